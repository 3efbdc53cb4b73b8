//! The person's library: folders that they linked, in their order. Files in them are read, never
//! run.
//!
//! A folder holds `skills/<name>/`, `instructions/<name>.md`, `extensions/<name>.ts` or
//! `extensions/<name>/`, `workflows/<name>.js` or `workflows/<name>/`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use ringfence_bundle::{Content, Digest, Form, Id, Kind, first_invisible, read_content};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::Error;

mod change;
mod sync;
mod trash;

pub use change::{Added, Piece};
pub use sync::{Finding, Scan, Synced};
pub use trash::Trashed;

#[cfg(test)]
mod tests;

/// The list of linked folders, in the home.
const NAME: &str = "library.toml";
/// Most bytes of it.
const MAX_BYTES: u64 = 1 << 20;
/// Most entries of one kind that a folder is asked for.
const MAX_ENTRIES: usize = 10_000;

/// Kinds that a library holds, the folder of each, and what a file of it ends in.
const SHELVES: [(Kind, &str, Option<&str>); 4] = [
    (Kind::Skill, "skills", None),
    (Kind::Instruction, "instructions", Some(".md")),
    (Kind::Extension, "extensions", Some(".ts")),
    (Kind::Workflow, "workflows", Some(".js")),
];

/// A linked folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linked {
    /// What it is called in `<source>:<name>`.
    pub name: Id,
    /// Where it is, absolute.
    pub folder: PathBuf,
}

/// The linked folders, first wins.
#[derive(Debug, Clone)]
pub struct Library {
    home: PathBuf,
    sources: Vec<Linked>,
}

/// Something that a linked folder holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: Id,
    /// In which folder.
    pub source: Id,
    /// Its path there.
    pub path: String,
    /// Its digest, or why it is refused.
    pub digest: Result<Digest, String>,
    /// The folder before this one that has the same: a bare name means that one.
    pub hidden_by: Option<Id>,
}

/// What a name was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The folder.
    pub source: Id,
    /// Its bytes.
    pub content: Content,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    #[serde(default)]
    source: Vec<Linked>,
}

impl Library {
    /// Reads `<home>/library.toml`; an empty library where there is none.
    ///
    /// # Errors
    /// [`Error::Library`]: it does not parse, is a link, or names a folder twice; [`Error::Read`].
    pub fn open(home: &Path) -> Result<Self, Error> {
        let path = home.join(NAME);
        let fail = |source: io::Error| Error::Read { path: path.clone(), source };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut text = String::new();
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                return Ok(Self { home: home.to_owned(), sources: Vec::new() });
            }
            Err(errno) => return Err(fail(errno.into())),
            Ok(file) => {
                let mut file = File::from(file).take(MAX_BYTES + 1);
                file.read_to_string(&mut text).map_err(fail)?;
            }
        }
        let wrong = |reason: String| Error::Library(format!("{}: {reason}", path.display()));
        if text.len() as u64 > MAX_BYTES {
            return Err(wrong("is larger than 1 MiB".to_owned()));
        }
        let document: Document =
            toml::from_str(&text).map_err(|e| wrong(e.message().escape_debug().to_string()))?;
        if document.version != 1 {
            let found = document.version;
            return Err(wrong(format!("is of version {found}, and this program reads 1")));
        }
        for (at, source) in document.source.iter().enumerate() {
            let before = &document.source[..at];
            if before.iter().any(|it| it.name == source.name || it.folder == source.folder) {
                return Err(wrong(format!("`{}` is linked twice", source.name)));
            }
            if !source.folder.is_absolute() {
                return Err(wrong(format!("the folder of `{}` is not absolute", source.name)));
            }
        }
        Ok(Self { home: home.to_owned(), sources: document.source })
    }

    /// The linked folders, in their order.
    #[must_use]
    pub fn sources(&self) -> &[Linked] {
        &self.sources
    }

    /// Links a folder, after those that are linked.
    ///
    /// # Errors
    /// [`Error::Library`]: the name or folder is linked already, it is no folder, or somebody else's.
    pub fn link(&mut self, name: Id, folder: &Path) -> Result<&Linked, Error> {
        use std::os::unix::fs::MetadataExt as _;
        let wrong = |reason: &str| Error::Library(format!("{}: {reason}", folder.display()));
        let real = folder.canonicalize().map_err(|e| wrong(&e.to_string()))?;
        let meta = real.metadata().map_err(|e| wrong(&e.to_string()))?;
        if !meta.is_dir() {
            return Err(wrong("it is not a folder"));
        }
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(wrong("it belongs to another user: whoever may write there decides"));
        }
        if meta.mode() & 0o022 != 0 {
            return Err(wrong("other users can write there; chmod go-w it first"));
        }
        if real.to_str().is_none_or(|text| first_invisible(text).is_some()) {
            return Err(wrong("its path is not plain text"));
        }
        if let Some(it) = self.sources.iter().find(|it| it.name == name || it.folder == real) {
            return Err(wrong(&format!(
                "`{}` is linked already, to {}",
                it.name,
                it.folder.display()
            )));
        }
        self.sources.push(Linked { name, folder: real });
        self.save()?;
        Ok(&self.sources[self.sources.len() - 1])
    }

    /// Forgets a folder. Nothing in it changes.
    ///
    /// # Errors
    /// [`Error::Library`]: no folder of this name is linked.
    pub fn unlink(&mut self, name: &str) -> Result<Linked, Error> {
        let at = self.sources.iter().position(|it| it.name.as_str() == name);
        let at = at.ok_or_else(|| self.unknown(name))?;
        let gone = self.sources.remove(at);
        self.save()?;
        Ok(gone)
    }

    /// Everything that the folders hold, sorted by kind and name, each with its digest or why it is
    /// refused.
    ///
    /// # Errors
    /// [`Error::Read`]: a linked folder cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>, Error> {
        let mut all: Vec<Entry> = Vec::new();
        let mut first: BTreeMap<(Kind, Id), Id> = BTreeMap::new();
        for source in &self.sources {
            let here = entries(source)?;
            for mut entry in here {
                let key = (entry.kind, entry.name.clone());
                match first.get(&key) {
                    Some(winner) if *winner != source.name => {
                        entry.hidden_by = Some(winner.clone());
                    }
                    _ => drop(first.insert(key, source.name.clone())),
                }
                all.push(entry);
            }
        }
        all.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        Ok(all)
    }

    /// What `<source>:<name>` or a bare name means now; `None` when no folder has it.
    ///
    /// # Errors
    /// [`Error::Library`]: no folder of that name is linked, or the kind has no place in a library;
    /// [`Error::Bundle`], [`Error::Foreign`]: it is there and is refused.
    pub fn find(&self, kind: Kind, given: &str) -> Result<Option<Found>, Error> {
        let (only, name) = match given.split_once(':') {
            Some((source, name)) => (Some(source), name),
            None => (None, given),
        };
        if let Some(only) = only
            && !self.sources.iter().any(|it| it.name.as_str() == only)
        {
            return Err(self.unknown(only));
        }
        let name = Id::parse(name).map_err(|e| Error::Library(e.to_string()))?;
        for source in self.sources.iter().filter(|it| only.is_none_or(|o| it.name.as_str() == o)) {
            if let Some(path) = path_of(source, kind, &name)? {
                let content = read(&source.folder, &path, kind)?;
                return Ok(Some(Found { source: source.name.clone(), content }));
            }
        }
        Ok(None)
    }

    fn source(&self, name: &str) -> Result<&Linked, Error> {
        self.sources.iter().find(|it| it.name.as_str() == name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Error {
        let shown: String = name.chars().take(80).collect();
        let known: Vec<&str> = self.sources.iter().map(|it| it.name.as_str()).collect();
        let known = if known.is_empty() { "none is".to_owned() } else { known.join(", ") };
        Error::Library(format!("no folder `{}` is linked ({known})", shown.escape_debug()))
    }

    fn save(&self) -> Result<(), Error> {
        let mut text =
            "# made by ringfence library; the first folder wins\nversion = 1\n".to_owned();
        for Linked { name, folder } in &self.sources {
            // Plain text, as `link` saw to it: JSON's quotes are TOML's then.
            let folder = serde_json::Value::from(folder.to_string_lossy().into_owned());
            text += &format!("\n[[source]]\nname = \"{name}\"\nfolder = {folder}\n");
        }
        let path = self.home.join(NAME);
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let put = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.home)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            File::open(&self.home)?.sync_all()
        };
        put().map_err(|source| Error::Write { path: path.clone(), source })
    }
}

/// The folder of a kind and what its files end in.
fn shelf(kind: Kind) -> Result<(&'static str, Option<&'static str>), Error> {
    let found = SHELVES.into_iter().find(|(it, ..)| *it == kind);
    found
        .map(|(_, folder, ending)| (folder, ending))
        .ok_or_else(|| Error::Library(format!("a library holds no {kind}")))
}

/// Where a folder would have something: as a folder and as a file.
fn places(kind: Kind, name: &Id) -> Result<Vec<String>, Error> {
    let (folder, ending) = shelf(kind)?;
    let file = ending.map(|ending| format!("{folder}/{name}{ending}"));
    let tree = (kind.form() != Form::File).then(|| format!("{folder}/{name}"));
    Ok(file.into_iter().chain(tree).collect())
}

/// Where a folder has something; `None` when it does not.
fn path_of(source: &Linked, kind: Kind, name: &Id) -> Result<Option<String>, Error> {
    let there = |path: &String| source.folder.join(path).symlink_metadata().is_ok();
    let mut found: Vec<String> = places(kind, name)?.into_iter().filter(there).collect();
    if let [one, other] = found.as_slice() {
        let reason = format!("`{}` has it as {other} too; take one away", source.name);
        return Err(Error::Foreign { path: one.clone(), reason });
    }
    Ok(found.pop())
}

/// Reads an entry and checks that it is a file or a folder, as its kind wants.
fn read(folder: &Path, path: &str, kind: Kind) -> Result<Content, Error> {
    let foreign =
        |reason: &str| Error::Foreign { path: path.to_owned(), reason: reason.to_owned() };
    let content = read_content(folder, path)?.ok_or_else(|| foreign("it is gone"))?;
    fits(kind, &content).map_err(foreign)?;
    if let Content::Tree(blobs) = &content {
        for path in blobs.keys() {
            crate::git::plain(path)?;
        }
        crate::git::distinct(blobs.keys().map(String::as_str))?;
    }
    Ok(content)
}

/// Whether something of a kind can be this.
pub(crate) fn fits(kind: Kind, content: &Content) -> Result<(), &'static str> {
    match (kind.form(), content) {
        (Form::Tree, Content::File(_)) => Err("it is a file, and a folder is expected"),
        (Form::File | Form::Definition, Content::Tree(_)) => {
            Err("it is a folder, and a file is expected")
        }
        _ => Ok(()),
    }
}

fn entries(source: &Linked) -> Result<Vec<Entry>, Error> {
    let mut all = Vec::new();
    for (kind, folder, ending) in SHELVES {
        let path = source.folder.join(folder);
        let fail = |source| Error::Read { path: path.clone(), source };
        let list = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(fail)?,
        };
        for entry in list.take(MAX_ENTRIES) {
            let entry = entry.map_err(fail)?;
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let bare = ending.and_then(|ending| file_name.strip_suffix(ending));
            // What has no fit name is no entry: README.md, .gitkeep.
            let Ok(name) = Id::parse(bare.unwrap_or(&file_name)) else { continue };
            if bare.is_none() && kind.form() == Form::File {
                continue;
            }
            let path = format!("{folder}/{file_name}");
            let digest = path_of(source, kind, &name)
                .and_then(|_| read(&source.folder, &path, kind))
                .map(|content| content.digest(kind))
                .map_err(|error| error.to_string());
            let source = source.name.clone();
            all.push(Entry { kind, name, source, path, digest, hidden_by: None });
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}
