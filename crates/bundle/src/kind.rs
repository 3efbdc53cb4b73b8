//! What a pin is about.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kinds of thing that a lock pins, each a digest family of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A file or folder of extension code.
    Extension,
    /// A hook as declared.
    Hook,
    /// A file of instructions.
    Instruction,
    /// A file of the project that a server runs.
    Program,
    /// A server as declared.
    Server,
    /// A value of an agent CLI's settings, as declared.
    Setting,
    /// A folder of a skill.
    Skill,
    /// A file or folder of a workflow: its blueprint.
    Workflow,
}

impl Kind {
    /// All of them, sorted by name.
    pub const ALL: [Self; 8] = [
        Self::Extension,
        Self::Hook,
        Self::Instruction,
        Self::Program,
        Self::Server,
        Self::Setting,
        Self::Skill,
        Self::Workflow,
    ];

    /// As it is written in a lock: lower case, singular.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Extension => "extension",
            Self::Hook => "hook",
            Self::Instruction => "instruction",
            Self::Program => "program",
            Self::Server => "server",
            Self::Setting => "setting",
            Self::Skill => "skill",
            Self::Workflow => "workflow",
        }
    }

    /// What is hashed for it.
    #[must_use]
    pub const fn form(self) -> Form {
        match self {
            Self::Server | Self::Setting | Self::Hook => Form::Definition,
            Self::Instruction | Self::Program => Form::File,
            Self::Skill => Form::Tree,
            Self::Extension | Self::Workflow => Form::Either,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a kind's digest is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The canonical JSON (RFC 8785) of what is declared, references unresolved.
    Definition,
    /// The bytes of one regular file and whether it is executable.
    File,
    /// All files of a folder: path, bytes, and whether executable. Nothing but regular files and
    /// folders may be in it.
    Tree,
    /// A file or a folder, whichever is there.
    Either,
}
