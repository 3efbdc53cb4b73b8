//! Every project that was said yes to, and how it stands now.

use std::ffi::OsStr;
use std::path::PathBuf;

use ringfence_bundle::{Digest, Snapshot};
use serde::Serialize;

use crate::{Error, State, Store};

/// How a project that was said yes to stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// As it was said yes to.
    Trusted,
    /// Something is different: a yes is needed anew.
    Changed,
    /// There is no such project any more.
    Gone,
}

/// One project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its folder.
    pub project: PathBuf,
    /// How it stands.
    pub state: Standing,
    /// Why it cannot be read, where it cannot.
    pub detail: Option<String>,
    /// When it was said yes to, RFC 3339 UTC.
    pub at: String,
    /// The consent digest of that yes.
    pub consent_digest: Digest,
}

impl Store {
    /// Every project that was said yes to, with its state now. Reads each project.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn list(&self, search: Option<&OsStr>) -> Result<Vec<Listed>, Error> {
        let mut all = Vec::new();
        for (project, grant) in self.grants()? {
            let (state, detail) = match Snapshot::read(&project) {
                // A folder that was moved here by a link is another project than the one of the row.
                Ok(snapshot) if snapshot.project != project => (Standing::Gone, None),
                Ok(snapshot) => match self.review(snapshot, search) {
                    Ok(review) if review.state() == State::Trusted => (Standing::Trusted, None),
                    Ok(_) => (Standing::Changed, None),
                    Err(error @ Error::Store { .. }) => return Err(error),
                    Err(error) => (Standing::Changed, Some(error.to_string())),
                },
                Err(ringfence_bundle::Error::Missing(_)) => (Standing::Gone, None),
                Err(ringfence_bundle::Error::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    (Standing::Gone, None)
                }
                Err(error) => (Standing::Changed, Some(error.to_string())),
            };
            all.push(Listed {
                project,
                state,
                detail,
                at: grant.at,
                consent_digest: grant.consent,
            });
        }
        Ok(all)
    }
}
