//! Where pinned bytes come from when they do not lie beside the manifest.

use serde::{Deserialize, Serialize};

use super::Pin;
use crate::manifest::Source;
use crate::{Digest, Kind, text};

/// Where pinned bytes come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A git repository.
    Git {
        /// Its address, as declared.
        git: String,
        /// The revision, as declared.
        rev: String,
        /// The folder or file inside, as declared.
        subpath: Option<String>,
        /// The commit that the revision was when it was locked: 40 or 64 lower-case hex digits.
        commit: String,
    },
    /// The library of the person who locked it.
    Library {
        /// As declared.
        library: String,
    },
}

/// What a source was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Digest of its bytes, which lie in the store.
    pub digest: Digest,
    /// Where they come from.
    pub origin: Origin,
}

impl Origin {
    /// Whether this is where a declared source comes from.
    #[must_use]
    pub fn is_of(&self, source: &Source) -> bool {
        match (self, source) {
            (
                Self::Git { git, rev, subpath, .. },
                Source::Git { git: same_git, rev: same_rev, subpath: same_path },
            ) => git == same_git && rev == same_rev && subpath == same_path,
            (Self::Library { library }, Source::Library { library: same }) => library == same,
            _ => false,
        }
    }

    /// Tells origins apart: commit and revision too.
    pub(crate) fn digest(&self) -> Digest {
        let fields = self.fields();
        let parts: Vec<&[u8]> =
            fields.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]).collect();
        Digest::framed("origin", &parts)
    }

    /// Its keys in a row of the lock.
    pub(super) fn fields(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::Git { git, rev, subpath, commit } => {
                let mut fields = vec![("git", git.as_str()), ("rev", rev)];
                fields.extend(subpath.as_deref().map(|subpath| ("subpath", subpath)));
                fields.push(("commit", commit));
                fields
            }
            Self::Library { library } => vec![("library", library)],
        }
    }
}

/// A row as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    kind: Kind,
    name: String,
    digest: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    git: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rev: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subpath: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    library: Option<String>,
}

impl TryFrom<Row> for Pin {
    type Error = String;

    fn try_from(row: Row) -> Result<Self, String> {
        let Row { kind, name, digest, git, rev, subpath, commit, library } = row;
        let origin = match (git, rev, subpath, commit, library) {
            (None, None, None, None, None) => None,
            (Some(git), Some(rev), subpath, Some(commit), None) if is_commit(&commit) => {
                Some(Origin::Git { git, rev, subpath, commit })
            }
            (None, None, None, None, Some(library)) => Some(Origin::Library { library }),
            _ => return Err(format!("{kind} `{}`: its origin is not whole", text::shown(&name))),
        };
        Ok(Self { kind, name, digest, origin })
    }
}

impl From<Pin> for Row {
    fn from(pin: Pin) -> Self {
        let Pin { kind, name, digest, origin } = pin;
        let bare = Self {
            kind,
            name,
            digest,
            git: None,
            rev: None,
            subpath: None,
            commit: None,
            library: None,
        };
        match origin {
            None => bare,
            Some(Origin::Git { git, rev, subpath, commit }) => {
                Self { git: Some(git), rev: Some(rev), subpath, commit: Some(commit), ..bare }
            }
            Some(Origin::Library { library }) => Self { library: Some(library), ..bare },
        }
    }
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64)
        && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
