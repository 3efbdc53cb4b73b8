//! Where the fields of a manifest stand.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::Place;
use crate::source::Source;
use crate::tree::Span;

/// Where the fields of a manifest stand: `limits.max_duration_seconds`, `servers.search.env.KEY`,
/// `policy.tools.search[0]`.
#[derive(Clone, Default, PartialEq)]
pub struct Places {
    pub(crate) spans: BTreeMap<String, Span>,
    pub(crate) sources: Arc<Vec<Source>>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Places({})", self.spans.len())
    }
}

impl Places {
    /// Where a field stands, or the nearest table around it that is declared.
    #[must_use]
    pub fn find(&self, keys: &str) -> Option<Place> {
        let mut keys = keys;
        loop {
            if let Some(span) = self.spans.get(keys) {
                return Some(self.sources.get(span.source)?.place(span.start..span.end));
            }
            keys = &keys[..keys.rfind(['.', '['])?];
        }
    }

    /// The file in which a field stands, or the nearest table around it that is declared.
    #[must_use]
    pub fn file(&self, keys: &str) -> Option<&Path> {
        let mut keys = keys;
        loop {
            if let Some(span) = self.spans.get(keys) {
                return self.sources.get(span.source).map(Source::file);
            }
            keys = &keys[..keys.rfind(['.', '['])?];
        }
    }

    /// Whether the fields come from more than one file.
    #[must_use]
    pub fn is_layered(&self) -> bool {
        self.sources.len() > 1
    }

    /// The paths of all fields that are declared.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.spans.keys().map(String::as_str)
    }
}
