//! What a sandbox must have cleaned, written down before it is made.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Result, Step};

/// Names of journal files begin with this.
const PREFIX: &str = "sandbox-";

/// A journal's content.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Entries {
    /// The project folder that the placeholders are in.
    pub(crate) project: OsString,
    /// Placeholders, parents first.
    pub(crate) placeholders: Vec<Entry>,
    /// Cgroup folders.
    pub(crate) groups: Vec<OsString>,
    /// What is in a container engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<Contained>,
    /// Mounts on this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mounts: Vec<OsString>,
}

/// A run's containers and networks, all of which are known by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contained {
    /// The engine: `unix://…`.
    pub(crate) host: String,
    /// The run.
    pub(crate) run: String,
}

/// One placeholder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Relative to the project.
    pub(crate) path: OsString,
    /// The name under which it is made, relative to the project; of this run alone.
    pub(crate) temporary: OsString,
    /// A file's bytes; a folder has none.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Device and inode, once it is made.
    pub(crate) made: Option<(u64, u64)>,
}

/// A journal file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: PathBuf,
    /// What it holds.
    pub(crate) entries: Entries,
}

impl Journal {
    /// A journal of its own in a run's folder. Nothing is written until there is something to say.
    pub(crate) fn new(run_dir: &Path, id: &str, project: &Path) -> Self {
        let entries = Entries { project: project.as_os_str().to_owned(), ..Entries::default() };
        Self { file: run_dir.join(format!("{PREFIX}{id}.json")), entries }
    }

    /// The journals that a run left in its folder.
    ///
    /// # Errors
    /// [`crate::Error::Step`]: the folder cannot be read. A missing folder left nothing.
    pub(crate) fn left_in(run_dir: &Path) -> Result<Vec<Self>> {
        let listing = match fs::read_dir(run_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listing => listing.step("read the run's folder")?,
        };
        let mut journals = Vec::new();
        for item in listing {
            let item = item.step("read the run's folder")?;
            let name = item.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            let file = item.path();
            if name.ends_with(".new") {
                // Cut before it took the place of the old one, which still holds.
                fs::remove_file(&file).step("remove a journal that was cut")?;
            }
            if !name.ends_with(".json") {
                continue;
            }
            let text = fs::read(&file).step("read what a run left")?;
            match serde_json::from_slice(&text) {
                Ok(entries) => journals.push(Self { file, entries }),
                // Written whole or not at all: this is no journal of ours.
                Err(error) => return Err(io::Error::other(error)).step("read what a run left"),
            }
        }
        Ok(journals)
    }

    /// Writes it whole: beside the old one, then over it.
    ///
    /// # Errors
    /// [`crate::Error::Step`].
    pub(crate) fn write(&self) -> Result<()> {
        let text = serde_json::to_vec(&self.entries).map_err(io::Error::other);
        let new = self.file.with_extension("new");
        let write = || -> io::Result<()> {
            let mut options = fs::OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&text?)?;
            fs::rename(&new, &self.file)
        };
        write().step("write down what must be cleaned")
    }

    /// The run's folder.
    pub(crate) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/nonexistent"))
    }

    /// Forgets it, or what is left of it.
    pub(crate) fn settle(&self) {
        let nothing = self.entries.placeholders.is_empty()
            && self.entries.groups.is_empty()
            && self.entries.engine.is_none()
            && self.entries.mounts.is_empty();
        if nothing {
            let _ = fs::remove_file(&self.file);
        } else {
            let _ = self.write();
        }
    }
}
