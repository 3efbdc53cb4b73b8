//! Putting things into a linked folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_bundle::{Blob, Content, Digest, Id, Kind, Snapshot, Source, read_content};

use super::sync::scan;
use super::{Library, Linked, fits, path_of, places, shelf};
use crate::{Error, Store, private, store};

/// What was put into a linked folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: Id,
    /// In which folder.
    pub source: Id,
    /// Its path there.
    pub path: String,
    /// Its digest.
    pub digest: Digest,
}

/// Something that can be put into a library: its kind, a name for it, its bytes.
#[derive(Debug, Clone)]
pub struct Piece {
    kind: Kind,
    name: Id,
    content: Content,
}

impl Piece {
    /// What lies at a path. Without a kind, a folder with `SKILL.md` is a skill and a file that ends
    /// in `.md` an instruction; without a name, the file's own counts.
    ///
    /// # Errors
    /// [`Error::Library`]: kind or name cannot be told; [`Error::Bundle`]: a link, a device, too
    /// large.
    pub fn of_path(path: &Path, kind: Option<Kind>, name: Option<Id>) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::Library(format!("{}: {reason}", path.display()));
        let absolute = std::path::absolute(path).map_err(|e| wrong(&e.to_string()))?;
        let last = absolute.file_name().and_then(|name| name.to_str());
        let (folder, last) =
            absolute.parent().zip(last).ok_or_else(|| wrong("it has no plain name"))?;
        let content = read_content(folder, last)?.ok_or_else(|| wrong("it is not there"))?;
        let told = match &content {
            Content::Tree(blobs) if blobs.contains_key("SKILL.md") => Some(Kind::Skill),
            Content::File(_) if last.ends_with(".md") => Some(Kind::Instruction),
            _ => None,
        };
        let kind = kind.or(told).ok_or_else(|| wrong("say what it is with --kind"))?;
        let (_, ending) = shelf(kind)?;
        let stem = match &content {
            Content::File(_) => ending.and_then(|it| last.strip_suffix(it)).unwrap_or(last),
            Content::Tree(_) => last,
        };
        let name = match name {
            Some(name) => name,
            None => Id::parse(stem).map_err(|e| wrong(&format!("{e}; give one with --name")))?,
        };
        Self { kind, name, content }.checked()
    }

    /// What a bundle declares, from where its bytes lie: beside the manifest, or in the store by the
    /// lock's pin.
    ///
    /// # Errors
    /// [`Error::Library`]: it is not declared, or not in the store; [`Error::Bundle`].
    pub fn of_bundle(
        snapshot: &Snapshot,
        store: &Store,
        kind: Kind,
        name: &str,
        as_name: Option<Id>,
    ) -> Result<Self, Error> {
        let wrong =
            |reason: &str| Error::Library(format!("{kind} `{}`: {reason}", name.escape_debug()));
        let mut sources = snapshot.sources();
        let found = sources.find(|(it, id, _)| *it == kind && id.as_str() == name);
        let (_, id, source) = found.ok_or_else(|| wrong("the manifest does not declare it"))?;
        let content = match source {
            Source::Path { path } => {
                let path = path.trim_start_matches("./");
                read_content(&snapshot.folder(), path)?.ok_or_else(|| wrong("it is not there"))?
            }
            _ => {
                let pin = snapshot.lock.as_ref().and_then(|lock| lock.digest(kind, name));
                let pin = pin.ok_or_else(|| wrong("it is not locked"))?;
                let kept = store.objects().read(kind, &pin)?;
                kept.ok_or_else(|| wrong("its bytes are not here; run `ringfence fetch`"))?
            }
        };
        Self { kind, name: as_name.unwrap_or_else(|| id.clone()), content }.checked()
    }

    fn checked(self) -> Result<Self, Error> {
        let Self { kind, name, content } = &self;
        shelf(*kind)?;
        fits(*kind, name.as_str(), content)?;
        Ok(self)
    }
}

impl Library {
    /// Copies something into a linked folder: into the first, or the one that is named. Bytes with
    /// a literal secret are refused.
    ///
    /// # Errors
    /// [`Error::Library`]: it is there already, no folder is linked; [`Error::Secrets`];
    /// [`Error::Write`].
    pub fn add(&self, piece: &Piece, to: Option<&str>) -> Result<Added, Error> {
        let Piece { kind, name, content } = piece;
        let source = match to {
            Some(to) => self.source(to)?,
            None => self.sources().first().ok_or_else(|| self.unknown("…"))?,
        };
        if let Some(path) = path_of(source, *kind, name)? {
            return Err(Error::Library(format!(
                "`{}` has {path} already; `ringfence library remove {kind}:{name}` first",
                source.name
            )));
        }
        let path = match content {
            Content::Tree(_) => places(*kind, name)?.pop(),
            Content::File(_) => places(*kind, name)?.into_iter().next(),
        };
        let path = path.ok_or_else(|| Error::Library(format!("a library holds no {kind}")))?;
        let findings: Vec<_> =
            files(&path, content).flat_map(|(path, bytes)| scan(Path::new(&path), bytes)).collect();
        if !findings.is_empty() {
            return Err(Error::Secrets(findings));
        }
        put(source, &path, content)?;
        Ok(Added {
            kind: *kind,
            name: name.clone(),
            source: source.name.clone(),
            digest: content.digest(*kind),
            path,
        })
    }
}

/// Each file of something with its path.
pub(super) fn files<'a>(
    path: &'a str,
    content: &'a Content,
) -> Box<dyn Iterator<Item = (String, &'a [u8])> + 'a> {
    match content {
        Content::File(blob) => Box::new(std::iter::once((path.to_owned(), blob.bytes.as_slice()))),
        Content::Tree(blobs) => Box::new(
            blobs
                .iter()
                .map(move |(below, blob)| (format!("{path}/{below}"), blob.bytes.as_slice())),
        ),
    }
}

/// Writes something into a linked folder: beside its place, then moved there in one step. What is
/// there already stays, and is an error.
pub(super) fn put(source: &Linked, path: &str, content: &Content) -> Result<(), Error> {
    let place: PathBuf = source.folder.join(path);
    let done = || -> io::Result<()> {
        let folder = place.parent().ok_or(io::ErrorKind::InvalidInput)?;
        match folder.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => {
                return Err(io::Error::other("it is not a folder, and links are not followed"));
            }
            Err(_) => fs::create_dir(folder)?,
        }
        let new = private::aside(folder, ASIDE)?;
        let beside = write_content(new.path(), content)?;
        open_to_all(&beside, content)?;
        rustix::fs::renameat_with(
            rustix::fs::CWD,
            &beside,
            rustix::fs::CWD,
            &place,
            rustix::fs::RenameFlags::NOREPLACE,
        )?;
        fs::File::open(folder)?.sync_all()
    };
    done().map_err(|source| Error::Write { path: place.clone(), source })
}

/// Takes away a file or a folder: out of its place in one step, so that it is never half there.
pub(super) fn take_away(place: &Path) -> Result<(), Error> {
    let done = || -> io::Result<()> {
        let folder = place.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let aside = private::aside(folder, ASIDE)?;
        fs::rename(place, aside.path().join("content"))?;
        fs::File::open(folder)?.sync_all()?;
        aside.close()
    };
    done().map_err(|source| Error::Write { path: place.to_owned(), source })
}

/// What is being written, or taken away, lies in a folder whose name begins with this.
pub(super) const ASIDE: &str = ".ringfence-aside-";

/// Writes a file or a folder as `content` of an empty folder, durable; gives its path.
pub(super) fn write_content(into: &Path, content: &Content) -> io::Result<PathBuf> {
    let beside = into.join("content");
    match content {
        Content::File(blob) => {
            let only = [("content".to_owned(), blob.clone())].into();
            store::write_tree(into, &only)?;
        }
        Content::Tree(blobs) => store::write_tree(&beside, blobs)?,
    }
    Ok(beside)
}

/// The store's objects are their owner's alone; a library is an ordinary folder.
fn open_to_all(beside: &Path, content: &Content) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode =
        |blob: &Blob| fs::Permissions::from_mode(if blob.executable { 0o755 } else { 0o644 });
    match content {
        Content::File(blob) => fs::set_permissions(beside, mode(blob)),
        Content::Tree(blobs) => {
            for (path, blob) in blobs {
                let file = beside.join(path);
                fs::set_permissions(&file, mode(blob))?;
                for folder in file.ancestors().skip(1).take_while(|it| it.starts_with(beside)) {
                    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
                }
            }
            Ok(())
        }
    }
}
