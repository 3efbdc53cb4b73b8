//! Which servers a door shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringfence_bundle::{Id, ServerId, Toolset};

use crate::Gateway;
use crate::error::Error;

/// The servers of one toolset, or all. A selection grants nothing: every call is judged all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    toolset: Option<Id>,
    servers: Arc<BTreeSet<ServerId>>,
}

impl Selection {
    /// The toolset, where it is one.
    #[must_use]
    pub fn toolset(&self) -> Option<&Id> {
        self.toolset.as_ref()
    }

    /// Its servers.
    #[must_use]
    pub fn servers(&self) -> &BTreeSet<ServerId> {
        &self.servers
    }

    /// Whether a server belongs to it.
    #[must_use]
    pub fn has(&self, server: &ServerId) -> bool {
        self.servers.contains(server)
    }
}

impl Gateway {
    /// The toolset of this name; without a name the default one, and every server where the bundle
    /// declares none as its default.
    ///
    /// # Errors
    /// [`Error::NoToolset`].
    pub fn selection(&self, toolset: Option<&str>) -> Result<Selection, Error> {
        let found = match toolset {
            Some(name) => Some(self.toolsets.iter().find(|(id, _)| id.as_str() == name).ok_or(
                Error::NoToolset {
                    name: name.escape_debug().take(80).collect(),
                    known: self.toolsets.keys().map(ToString::to_string).collect(),
                },
            )?),
            None => self.toolsets.iter().find(|(_, toolset)| toolset.default),
        };
        Ok(match found {
            Some((id, toolset)) => Selection {
                toolset: Some(id.clone()),
                servers: Arc::new(toolset.servers.iter().cloned().collect()),
            },
            None => Selection {
                toolset: None,
                servers: Arc::new(self.servers.keys().cloned().collect()),
            },
        })
    }

    /// The toolsets of the trusted bundle.
    #[must_use]
    pub fn toolsets(&self) -> &BTreeMap<Id, Toolset> {
        &self.toolsets
    }

    /// The servers of the trusted bundle.
    pub fn servers(&self) -> impl Iterator<Item = &ServerId> {
        self.servers.keys()
    }
}
