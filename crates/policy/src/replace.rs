//! `machine.toml` replaced as a whole, and taken back: shown first, then done or not at all.
//!
//! The old bytes are kept before the new ones are put in place, so that a crash leaves the old file,
//! or the new one with the old one kept.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

use crate::file::MAX_BYTES;
use crate::ruleset::MACHINE_FILE;
use crate::{Error, MachinePolicy, Preset};

/// What a kept file is called: `machine.toml.before-0001`; one that stands for no file ends so.
const KEPT: &str = "machine.toml.before-";
const NONE: &str = "-none";
/// Where what an undo takes away is kept; the next ones have a number behind it.
const UNDONE: &str = "machine.toml.undone";
/// What is being written. Whoever writes holds the folder's lock, so there is one.
const NEW: &str = "machine.toml.new";
/// Tables that are no rules. Without its `[state]` a machine would begin an empty ledger of its own.
const KEPT_TABLES: [&str; 2] = ["guard", "state"];
/// How many are kept; the oldest goes first.
const MOST: usize = 50;

/// A `machine.toml` that is about to become another. Nothing is changed until [`Replacement::apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    home: PathBuf,
    /// What is there now; `None` when nothing is.
    pub old: Option<Vec<u8>>,
    /// What will be there; `None` to have nothing.
    pub new: Option<Vec<u8>>,
    /// The kept file that is put back, for an undo.
    restores: Option<String>,
}

impl Replacement {
    /// The machine's rules become a preset; the tables `[guard]` and `[state]` stay as they are.
    ///
    /// # Errors
    /// [`Error::Replace`] when what is there cannot be read, is no regular file, or is no TOML, so
    /// that its `[guard]` and `[state]` cannot be kept.
    pub fn with(home: &Path, preset: &Preset) -> Result<Self, Error> {
        let path = home.join(MACHINE_FILE);
        let old = match open_home(home, false).map_err(|e| fail(home, &e))? {
            Some(folder) => read(&folder, MACHINE_FILE).map_err(|e| fail(&path, &e))?,
            None => None,
        };
        let text = match &old {
            Some(old) => keep(&path, old, preset.text)?,
            None => preset.text.to_owned(),
        };
        // Never put in place what a run would refuse.
        MachinePolicy::parse(&path, &text)?;
        Ok(Self { home: home.to_owned(), old, new: Some(text.into_bytes()), restores: None })
    }

    /// What the newest replacement put away comes back.
    ///
    /// # Errors
    /// [`Error::Replace`] when nothing was put away, or it cannot be read.
    pub fn undo(home: &Path) -> Result<Self, Error> {
        let path = home.join(MACHINE_FILE);
        let nothing = || fail(&path, &std::io::Error::other("nothing was put away to take back"));
        let folder = open_home(home, false).map_err(|e| fail(home, &e))?.ok_or_else(nothing)?;
        let kept = kept(&folder).map_err(|e| fail(home, &e))?;
        let (_, name) = kept.last().ok_or_else(nothing)?;
        let old = read(&folder, MACHINE_FILE).map_err(|e| fail(&path, &e))?;
        let new = if name.ends_with(NONE) {
            None
        } else {
            read(&folder, name).map_err(|e| fail(&home.join(name), &e))?
        };
        Ok(Self { home: home.to_owned(), old, new, restores: Some(name.clone()) })
    }

    /// Whether anything would change.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.old != self.new
    }

    /// What would change, line by line: ` `, `-` or `+` and the line, with three lines around.
    #[must_use]
    pub fn diff(&self) -> Vec<String> {
        let text = |bytes: &Option<Vec<u8>>| {
            String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
        };
        let (old, new) = (text(&self.old), text(&self.new));
        let diff = similar::TextDiff::configure()
            .timeout(std::time::Duration::from_secs(2))
            .diff_lines(&old, &new);
        let mut lines = Vec::new();
        for group in diff.grouped_ops(3) {
            if !lines.is_empty() {
                lines.push("@".to_owned());
            }
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                lines.push(format!("{}{}", change.tag(), change.value().trim_end_matches('\n')));
            }
        }
        lines
    }

    /// Does it. Gives the file in which the old bytes are kept, if there is one.
    ///
    /// # Errors
    /// [`Error::Replace`] when the file is no longer the one that was shown, or when the folder
    /// cannot be written; then nothing has changed.
    pub fn apply(&self) -> Result<Option<PathBuf>, Error> {
        let path = self.home.join(MACHINE_FILE);
        self.write().map_err(|error| fail(&path, &error))
    }

    fn write(&self) -> std::io::Result<Option<PathBuf>> {
        let folder = open_home(&self.home, true)?
            .ok_or_else(|| std::io::Error::other("the folder went away"))?;
        flock(&folder, FlockOperation::LockExclusive)?;
        if read(&folder, MACHINE_FILE)? != self.old {
            return Err(std::io::Error::other("it is no longer the file that was shown"));
        }
        let kept_at = match &self.restores {
            // What is taken back is not lost either: it may have been edited since.
            Some(_) => match &self.old {
                Some(old) => Some(put_undone(&folder, old)?),
                None => None,
            },
            None => {
                let mut all = kept(&folder)?;
                let number = all.last().map_or(1, |(number, _)| number + 1);
                let none = if self.old.is_none() { NONE } else { "" };
                let name = format!("{KEPT}{number:04}{none}");
                put(&folder, &name, self.old.as_deref().unwrap_or_default())?;
                while all.len() >= MOST {
                    let (_, oldest) = all.remove(0);
                    unlinkat(&folder, &oldest, AtFlags::empty())?;
                }
                self.old.is_some().then_some(name)
            }
        };
        match &self.new {
            Some(new) => put(&folder, MACHINE_FILE, new)?,
            None => match unlinkat(&folder, MACHINE_FILE, AtFlags::empty()) {
                Err(error) if error != Errno::NOENT => return Err(error.into()),
                _ => File::from(folder.try_clone()?).sync_all()?,
            },
        }
        if let Some(name) = &self.restores {
            unlinkat(&folder, name, AtFlags::empty())?;
            File::from(folder).sync_all()?;
        }
        Ok(kept_at.map(|name| self.home.join(name)))
    }
}

fn fail(path: &Path, error: &std::io::Error) -> Error {
    Error::Replace { path: path.to_owned(), reason: error.to_string() }
}

/// The folder of the machine's state; `None` when it is not there and is not to be made.
fn open_home(home: &Path, make: bool) -> std::io::Result<Option<OwnedFd>> {
    use std::os::unix::fs::DirBuilderExt as _;
    if make {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(home, flags, Mode::empty()) {
        Ok(folder) => {
            crate::file::check_folder(&fstat(&folder)?).map_err(std::io::Error::other)?;
            Ok(Some(folder))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The bytes of a regular file in the folder, no symlink followed; `None` when there is none.
fn read(folder: &OwnedFd, name: &str) -> std::io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => {
            return Err(std::io::Error::other("it is a symlink: replace what it leads to by hand"));
        }
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::from(file).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    Ok(Some(bytes))
}

/// Puts a file in place whole: written beside it, synced, renamed, the folder synced.
fn put(folder: &OwnedFd, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    // One that a crash left is of no use to anybody.
    match unlinkat(folder, NEW, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, NEW, flags, Mode::from_raw_mode(0o600))?);
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(folder, NEW, folder, name)?));
    if let Err(error) = written {
        let _ = unlinkat(folder, NEW, AtFlags::empty());
        return Err(error);
    }
    File::from(folder.try_clone()?).sync_all()
}

/// Keeps what an undo takes away beside what earlier ones took: a person may have edited each.
fn put_undone(folder: &OwnedFd, old: &[u8]) -> std::io::Result<String> {
    for number in 1..=MOST {
        let name = if number == 1 { UNDONE.to_owned() } else { format!("{UNDONE}-{number}") };
        match read(folder, &name)? {
            Some(there) if there != old => {}
            Some(_) => return Ok(name),
            None => {
                put(folder, &name, old)?;
                return Ok(name);
            }
        }
    }
    Err(std::io::Error::other(format!("{MOST} files `{UNDONE}*` are there: move them away")))
}

/// The files that were put away, oldest first.
fn kept(folder: &OwnedFd) -> std::io::Result<Vec<(u32, String)>> {
    let mut all = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let Some(rest) = name.strip_prefix(KEPT) else { continue };
        let digits = rest.strip_suffix(NONE).unwrap_or(rest);
        if digits.len() >= 4
            && digits.bytes().all(|b| b.is_ascii_digit())
            && let Ok(number) = digits.parse()
        {
            all.push((number, name.to_owned()));
        }
    }
    all.sort();
    Ok(all)
}

/// The preset's text with the tables of the old file that are no rules, comments and all.
fn keep(path: &Path, old: &[u8], preset: &str) -> Result<String, Error> {
    let refuse = |reason: String| Error::Replace { path: path.to_owned(), reason };
    let text = std::str::from_utf8(old)
        .map_err(|_| refuse("it is not UTF-8; move it away first".to_owned()))?;
    let document: toml_edit::DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let first = error.message().lines().next().unwrap_or_default().to_owned();
        refuse(format!(
            "it does not parse ({first}), so that its [guard] and [state] cannot be kept; mend it or move it away"
        ))
    })?;
    let there: Vec<&str> = KEPT_TABLES.into_iter().filter(|t| document.contains_key(t)).collect();
    if there.is_empty() {
        return Ok(preset.to_owned());
    }
    let alone = |document: &toml_edit::DocumentMut| {
        let mut alone = toml_edit::DocumentMut::new();
        for table in &there {
            alone.insert(table, document.get(table).cloned().unwrap_or_default());
        }
        alone.to_string().trim().to_owned()
    };
    let kept = alone(&document);
    let whole = format!("{}\n\n{kept}\n", preset.trim_end());
    let again = whole.parse::<toml_edit::DocumentMut>();
    // Read back and compared, so that nothing of it is lost on the way.
    match again {
        Ok(again) if alone(&again) == kept => Ok(whole),
        _ => {
            let tables: Vec<String> = there.iter().map(|table| format!("[{table}]")).collect();
            let tables = tables.join(" or ");
            Err(refuse(format!("its {tables} cannot be kept: write it as a table of that form")))
        }
    }
}

#[cfg(test)]
mod tests;
