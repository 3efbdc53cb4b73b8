//! What is delivered to agent CLIs, and what selects it.

use serde::Serialize;

use crate::{Id, ServerId};

/// Where the bytes of a skill, instruction or workflow come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Source {
    /// Beside the manifest, `./`-relative to `.ringfence/`.
    Path {
        /// Relative path, no `..`.
        path: String,
    },
    /// A git repository at a revision.
    Git {
        /// Repository address.
        git: String,
        /// Revision.
        rev: String,
        /// Folder inside it.
        subpath: Option<String>,
    },
    /// `<source>:<name>` of the person's library.
    Library {
        /// `<source>:<name>` or a name.
        library: String,
    },
}

/// `[hooks.<id>]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// For example `post_tool_use`.
    pub event: String,
    /// Shell command, run by the agent CLI.
    pub command: String,
}

/// `[extensions.<id>]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Extension {
    /// Where its bytes come from.
    #[serde(flatten)]
    pub source: Source,
    /// The agent CLI it is for.
    pub target: Id,
}

/// `[toolsets.<id>]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Toolset {
    /// Servers it selects.
    pub servers: Vec<ServerId>,
    /// Skills it selects.
    pub skills: Vec<Id>,
    /// At most one toolset is the default.
    pub default: bool,
}

/// `[delivery]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// Which harnesses get files where the live channel would have worked.
    pub render_locally: RenderLocally,
}

/// `render_locally`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RenderLocally {
    /// The whole project, or none of it.
    All(bool),
    /// Only these harnesses.
    Harnesses(Vec<Id>),
}

impl Default for RenderLocally {
    fn default() -> Self {
        Self::All(false)
    }
}
