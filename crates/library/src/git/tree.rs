//! The tree of a commit as bytes: listed and read as objects, never checked out.

use std::collections::BTreeMap;
use std::path::Path;

use ringfence_bundle::{Blob, Content, check_relative, first_invisible};

use unicode_normalization::UnicodeNormalization as _;

use super::process::{self, Bounds};
use super::{Commit, Config, Git, failed};
use crate::Error;

/// The limits of pinned trees (`ringfence_bundle`).
const MAX_FILE: u64 = 64 * 1024 * 1024;
const MAX_TREE: u64 = 1024 * 1024 * 1024;
const MAX_ENTRIES: usize = 100_000;
const MAX_DEPTH: usize = 32;
/// Most bytes of the names of all files and folders, each with what it lies in.
const MAX_NAMES: usize = 64 << 20;

/// One file of a tree, or the file that a subpath is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path below what was asked for; empty for a subpath that is a file.
    pub(super) path: String,
    pub(super) executable: bool,
    pub(super) object: String,
    pub(super) size: u64,
}

/// What was asked for.
enum Shape {
    File(Entry),
    Tree(Vec<Entry>),
}

pub(super) fn content(
    git: &Git,
    folder: &Path,
    commit: &Commit,
    subpath: Option<&str>,
) -> Result<Content, Error> {
    match shape(git, folder, commit, subpath)? {
        Shape::File(entry) => {
            let mut blobs = read(git, folder, vec![entry])?;
            let blob = blobs.remove("").ok_or_else(|| failed("read a file", "git gave none"))?;
            Ok(Content::File(blob))
        }
        Shape::Tree(entries) => read(git, folder, entries).map(Content::Tree),
    }
}

/// Whether a commit's whole tree is of regular files with plain names. Reads no file.
pub(super) fn check(git: &Git, folder: &Path, commit: &Commit) -> Result<(), Error> {
    list(git, folder, commit.as_str()).map(drop)
}

fn shape(git: &Git, folder: &Path, commit: &Commit, subpath: Option<&str>) -> Result<Shape, Error> {
    let Some(subpath) = subpath else {
        return list(git, folder, commit.as_str()).and_then(some).map(Shape::Tree);
    };
    let subpath = subpath.trim_end_matches('/');
    check_relative(&format!("./{subpath}")).map_err(|reason| foreign(subpath, &reason))?;
    let doing = format!("look for {subpath} in commit {commit}");
    let words =
        ["ls-tree", "-z", "-l", "--full-tree", "--end-of-options", commit.as_str(), subpath];
    let found = parse(&output(git, folder, &words, &doing)?)?;
    let [row] = found.as_slice() else {
        return Err(foreign(subpath, &format!("commit {commit} has no such file or folder")));
    };
    if row.mode == "040000" {
        return list(git, folder, &row.object).and_then(some).map(Shape::Tree);
    }
    let mut entry = row.entry()?;
    entry.path = String::new();
    Ok(Shape::File(entry))
}

fn some(entries: Vec<Entry>) -> Result<Vec<Entry>, Error> {
    if entries.is_empty() {
        return Err(foreign(".", "the folder holds no file"));
    }
    Ok(entries)
}

fn list(git: &Git, folder: &Path, object: &str) -> Result<Vec<Entry>, Error> {
    let words = ["ls-tree", "-r", "-z", "-l", "--full-tree", "--end-of-options", object];
    let rows = parse(&output(git, folder, &words, "list the files of a commit")?)?;
    if rows.len() > MAX_ENTRIES {
        return Err(foreign(".", "it holds more than 100,000 files"));
    }
    let entries: Vec<Entry> = rows.iter().map(Row::entry).collect::<Result<_, _>>()?;
    distinct(entries.iter().map(|entry| entry.path.as_str()))?;
    if entries.iter().map(|entry| entry.size).sum::<u64>() > MAX_TREE {
        return Err(foreign(".", "it holds more than 1 GiB"));
    }
    Ok(entries)
}

/// A row of `ls-tree -l`.
struct Row {
    mode: String,
    object: String,
    size: String,
    path: String,
}

fn parse(listing: &[u8]) -> Result<Vec<Row>, Error> {
    let rows = listing.split(|byte| *byte == 0).filter(|row| !row.is_empty());
    rows.map(|row| {
        let unclear = || failed("list the files of a commit", "git's answer is not understood");
        let tab = row.iter().position(|byte| *byte == b'\t').ok_or_else(unclear)?;
        let (front, name) = (&row[..tab], &row[tab + 1..]);
        let path = std::str::from_utf8(name).map_err(|_| {
            let shown = String::from_utf8_lossy(name).into_owned();
            foreign(&shown, "the name is not UTF-8")
        })?;
        let front = std::str::from_utf8(front).map_err(|_| unclear())?;
        let mut words = front.split_ascii_whitespace();
        let mut next = || words.next().map(str::to_owned).ok_or_else(unclear);
        let (mode, _kind, object, size) = (next()?, next()?, next()?, next()?);
        Ok(Row { mode, object, size, path: path.to_owned() })
    })
    .collect()
}

impl Row {
    /// The file that it is; anything else refuses the whole.
    fn entry(&self) -> Result<Entry, Error> {
        plain(&self.path)?;
        let executable = match self.mode.as_str() {
            "100644" | "100664" => false,
            "100755" => true,
            "120000" => {
                return Err(foreign(
                    &self.path,
                    "it is a symbolic link, and those are never followed here",
                ));
            }
            "160000" => return Err(foreign(&self.path, "it is a submodule")),
            _ => return Err(foreign(&self.path, "it is neither a file nor a folder")),
        };
        let size = self.size.parse().map_err(|_| foreign(&self.path, "its size is not known"))?;
        if size > MAX_FILE {
            return Err(foreign(&self.path, "it is larger than 64 MiB"));
        }
        Ok(Entry { path: self.path.clone(), executable, object: self.object.clone(), size })
    }
}

/// Refuses a path that another system or reader could take for something else.
pub(crate) fn plain(path: &str) -> Result<(), Error> {
    if path.len() > 4096 {
        return Err(foreign(path, "the path is longer than 4096 bytes"));
    }
    if first_invisible(path).is_some() || path.contains(['\\', '\n', '\r', '\t']) {
        return Err(foreign(path, "it holds a backslash or a character that does not show"));
    }
    let mut depth = 0;
    for part in path.split('/') {
        depth += 1;
        match part {
            "" | "." | ".." => return Err(foreign(path, "it leads out of its folder")),
            part if part.eq_ignore_ascii_case(".git") => {
                return Err(foreign(path, "it is git's own folder"));
            }
            part if part.len() > 255 => {
                return Err(foreign(path, "a name is longer than 255 bytes"));
            }
            _ => {}
        }
    }
    if depth > MAX_DEPTH {
        return Err(foreign(path, "folders nested more than 32 deep"));
    }
    Ok(())
}

/// Refuses two names, of files or of folders on the way, that differ only in case or in how their
/// characters are composed (Unicode NFKC).
pub(crate) fn distinct<'a>(paths: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    let mut kept = 0;
    for path in paths {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let (mut folded, mut begin) = (String::new(), 0);
        for end in ends {
            let part = &path[..end];
            folded.extend(path[begin..end].nfkc().flat_map(char::to_lowercase));
            folded.push('/');
            begin = end + 1;
            let first = *seen.entry(folded.clone()).or_insert_with(|| {
                kept += folded.len();
                part
            });
            if kept > MAX_NAMES {
                return Err(foreign(".", "its names, with all folders, are longer than 64 MiB"));
            }
            if first != part {
                let other = first.escape_debug();
                return Err(foreign(
                    part,
                    &format!("it differs from `{other}` only in case or in how it is composed"),
                ));
            }
        }
    }
    Ok(())
}

/// Reads blobs in one go; each must be as long as it was listed.
fn read(git: &Git, folder: &Path, entries: Vec<Entry>) -> Result<BTreeMap<String, Blob>, Error> {
    let doing = "read the files of a commit";
    let mut asked = String::new();
    let mut most: u64 = 0;
    for entry in &entries {
        asked.push_str(&entry.object);
        asked.push('\n');
        most += entry.size + entry.object.len() as u64 + 64;
    }
    let bounds = Bounds { output: most, ..Bounds::LOCAL };
    let command = git.command(folder, Config::Nobody, "none", &["cat-file", "--batch", "--buffer"]);
    let ended = process::run(command, asked.into_bytes(), &bounds, doing)?;
    if !ended.success {
        return Err(ended.error(doing));
    }
    let mut rest = ended.stdout.as_slice();
    let mut blobs = BTreeMap::new();
    for entry in entries {
        let bytes = next(&mut rest, &entry)
            .ok_or_else(|| foreign(&entry.path, "git did not give its bytes"))?;
        blobs.insert(entry.path, Blob { bytes, executable: entry.executable });
    }
    Ok(blobs)
}

/// The files that a commit adds or changes against each of its parents.
pub(super) fn changed(
    git: &Git,
    folder: &Path,
    commit: &Commit,
) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let words = [
        "diff-tree",
        "-r",
        "-z",
        "-m",
        "--root",
        "--no-commit-id",
        "--no-renames",
        "--no-ext-diff",
        "--diff-filter=d",
        "--end-of-options",
        commit.as_str(),
    ];
    let found = output(git, folder, &words, "list what a commit changes")?;
    let text = std::str::from_utf8(&found).map_err(|_| foreign("?", "a name is not UTF-8"))?;
    let mut parts = text.split('\0').filter(|part| !part.is_empty());
    let mut objects = BTreeMap::new();
    while let (Some(row), Some(path)) = (parts.next(), parts.next()) {
        let words: Vec<&str> = row.split_ascii_whitespace().collect();
        // A submodule has no bytes here; a symlink's are its target.
        if let [_, mode, _, object, _] = words.as_slice()
            && *mode != "160000"
        {
            objects.insert((path, *object), ());
        }
    }
    let asked: String = objects.keys().map(|(_, object)| format!("{object}\n")).collect();
    let command = git.command(folder, Config::Nobody, "none", &["cat-file", "--batch-check"]);
    let sizes =
        process::run(command, asked.into_bytes(), &Bounds::LOCAL, "read what a commit changes")?;
    let sizes = String::from_utf8_lossy(&sizes.stdout).into_owned();
    let mut total = 0;
    let mut entries = Vec::new();
    for ((path, object), line) in objects.keys().zip(sizes.lines()) {
        let size = line.rsplit(' ').next().and_then(|size| size.parse().ok());
        let size: u64 = size.ok_or_else(|| foreign(path, "its bytes are not there"))?;
        total += size;
        if size > MAX_FILE || total > MAX_TREE {
            return Err(foreign(path, "too large: a file holds at most 64 MiB, a commit 1 GiB"));
        }
        let (path, object) = ((*path).to_owned(), (*object).to_owned());
        entries.push(Entry { path, executable: false, object, size });
    }
    if entries.len() != objects.len() {
        return Err(failed("read what a commit changes", "git's answer is not understood"));
    }
    let blobs = read(git, folder, entries)?;
    Ok(blobs.into_iter().map(|(path, blob)| (path, blob.bytes)).collect())
}

/// One answer of `cat-file --batch`.
fn next(rest: &mut &[u8], entry: &Entry) -> Option<Vec<u8>> {
    let head = format!("{} blob {}\n", entry.object, entry.size);
    let body = rest.strip_prefix(head.as_bytes())?;
    let length = usize::try_from(entry.size).ok()?;
    let bytes = body.get(..length)?.to_vec();
    *rest = body.get(length..)?.strip_prefix(b"\n")?;
    Some(bytes)
}

/// What a command that reads a repository says.
pub(super) fn output(
    git: &Git,
    folder: &Path,
    words: &[&str],
    doing: &str,
) -> Result<Vec<u8>, Error> {
    let command = git.command(folder, Config::Nobody, "none", words);
    let ended = process::run(command, Vec::new(), &Bounds::LOCAL, doing)?;
    if ended.success { Ok(ended.stdout) } else { Err(ended.error(doing)) }
}

fn foreign(path: &str, reason: &str) -> Error {
    Error::Foreign { path: path.to_owned(), reason: reason.to_owned() }
}
