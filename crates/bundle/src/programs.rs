//! Which files a bundle's commands run: those of the project, and those of the machine.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Digest, Error, Manifest, Template, Transport};

#[cfg(test)]
mod tests;

/// Names that an interpreter runs, whatever their mode.
const CODE: [&str; 15] = [
    "bash", "cjs", "jar", "js", "jsx", "lua", "mjs", "php", "pl", "ps1", "py", "rb", "sh", "ts",
    "wasm",
];

/// Where programs are looked up when nothing says otherwise.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Bytes of the largest program that is read to be digested.
const MAX_PROGRAM: u64 = 2 << 30;

/// Whose command it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The agent's own.
    Agent,
    /// This server's.
    Server(String),
}

/// A file of this machine that a command runs: the program itself, or the interpreter that its first
/// line names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Whose command it is.
    pub who: Who,
    /// The file itself, no link on the way, absolute.
    pub path: PathBuf,
    /// SHA-256 of its bytes, for the purpose `machine-program`.
    pub digest: Digest,
}

/// The files of the project that servers run, with the manifest key that names each: the program of a
/// stdio server, and what its arguments name that looks like code. Each where it really is, relative
/// to the project, which must be canonical; sorted. Whoever may write these decides what runs with the server's secrets and
/// hosts. What they load in turn is not known here.
#[must_use]
pub fn of_project(manifest: &Manifest, project: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let agent = manifest.sandbox.command.first().filter(|word| word.contains('/'));
    if let Some(path) = agent.and_then(|word| within(project, &project.join(word))) {
        found.insert(path, "sandbox.command".to_owned());
    }
    for (id, server) in &manifest.servers {
        let Transport::Stdio { command, args, .. } = &server.transport else { continue };
        if command.contains('/')
            && let Some(path) = within(project, &project.join(command))
        {
            found.insert(path, format!("servers.{id}.command"));
        }
        let literal = |arg: &Template| arg.render(|_| Err::<&str, _>(())).ok();
        for arg in args.iter().filter_map(literal) {
            let value = match arg.split_once('=') {
                Some((_, value)) if arg.starts_with('-') => value,
                _ => &arg,
            };
            let path = project.join(value);
            if is_code(&path)
                && let Some(path) = within(project, &path)
            {
                found.insert(path, format!("servers.{id}.args"));
            }
        }
    }
    found
}

/// The files outside the project that the manifest's commands run, as this machine finds them now:
/// each program and the interpreter its first line names, sorted. `search` is a PATH; the default is
/// `/usr/local/bin:/usr/bin:/bin`. Ringfence's own name stands for the running program and is left out.
///
/// # Errors
/// [`Error::Program`]: it is not found, not a regular file, or cannot be read.
pub fn on_machine(
    manifest: &Manifest,
    project: &Path,
    search: Option<&OsStr>,
) -> Result<Vec<Program>, Error> {
    let mut commands = Vec::new();
    if let Some(word) = manifest.sandbox.command.first() {
        commands.push((Who::Agent, word));
    }
    for (id, server) in &manifest.servers {
        if let Transport::Stdio { command, .. } = &server.transport {
            commands.push((Who::Server(id.to_string()), command));
        }
    }
    let mut digests: BTreeMap<PathBuf, Digest> = BTreeMap::new();
    let mut found = Vec::new();
    for (who, word) in commands.into_iter().filter(|(_, word)| *word != "ringfence") {
        for path in files_of(word, project, search)? {
            if path.starts_with(project) {
                continue;
            }
            let digest = match digests.get(&path) {
                Some(digest) => *digest,
                None => digest_program(&path)?,
            };
            digests.insert(path.clone(), digest);
            found.push(Program { who: who.clone(), path, digest });
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The absolute path of a command's program. A name without `/` is looked up on `search` (entries
/// that are not absolute are passed over); one with `/` is taken from the project.
///
/// # Errors
/// [`Error::Program`]: it is not there, or may not be executed.
pub fn resolve_program(
    name: &str,
    project: &Path,
    search: Option<&OsStr>,
) -> Result<PathBuf, Error> {
    let fail = |reason: &str| {
        let path = PathBuf::from(name.escape_debug().to_string());
        Error::Program { path, reason: reason.to_owned() }
    };
    if name.contains('/') {
        let file = project.join(name);
        if file.is_file() && !executable(&file) {
            return Err(fail("may not be executed; `chmod +x` it, or name its interpreter first"));
        }
        return if executable(&file) { Ok(normal(&file)) } else { Err(fail("was not found")) };
    }
    let search = search.unwrap_or(OsStr::new(DEFAULT_PATH));
    std::env::split_paths(search)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| executable(file))
        .ok_or_else(|| fail(&format!("was not found in {}", search.to_string_lossy())))
}

/// The program and, where its first line names one, its interpreter; each as it really is.
fn files_of(word: &str, project: &Path, search: Option<&OsStr>) -> Result<Vec<PathBuf>, Error> {
    let named = resolve_program(word, project, search)?;
    let real = |path: &Path| {
        let fail =
            |error: io::Error| Error::Program { path: path.to_owned(), reason: error.to_string() };
        path.canonicalize().map_err(fail)
    };
    let mut files = vec![real(&named)?];
    let words = first_line(&files[0])?;
    let Some((first, rest)) = words.split_first() else { return Ok(files) };
    let first = Path::new(first);
    files.push(real(first)?);
    if first.file_name() == Some(OsStr::new("env")) {
        let mut rest = rest.iter().map(|word| word.as_bytes());
        let found = rest.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        if let Some(name) = found.and_then(|word| std::str::from_utf8(word).ok()) {
            files.push(real(&resolve_program(name, project, search)?)?);
        }
    }
    Ok(files)
}

/// The words after `#!`, none when there is no such line.
fn first_line(file: &Path) -> Result<Vec<OsString>, Error> {
    let fail =
        |error: io::Error| Error::Program { path: file.to_owned(), reason: error.to_string() };
    let mut head = Vec::new();
    File::open(file).map_err(fail)?.take(256).read_to_end(&mut head).map_err(fail)?;
    let Some(line) = head.strip_prefix(b"#!").and_then(|rest| rest.split(|b| *b == b'\n').next())
    else {
        return Ok(Vec::new());
    };
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Ok(words.map(|word| OsStr::from_bytes(word).to_owned()).collect())
}

fn digest_program(path: &Path) -> Result<Digest, Error> {
    let fail = |reason: String| Error::Program { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let meta = file.metadata().map_err(|e| fail(e.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_PROGRAM {
        return Err(fail("is not a regular file of at most 2 GiB".to_owned()));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 17];
    let mut file = file.take(MAX_PROGRAM);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => hash.update(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fail(error.to_string())),
        }
    }
    Ok(Digest::framed("machine-program", &[&hash.finalize()]))
}

fn executable(file: &Path) -> bool {
    file.is_file() && accessat(CWD, file, Access::EXEC_OK, AtFlags::empty()).is_ok()
}

fn is_code(path: &Path) -> bool {
    let named = path.extension().and_then(|name| name.to_str());
    let named = named.is_some_and(|name| CODE.contains(&name.to_ascii_lowercase().as_str()));
    fs::metadata(path).is_ok_and(|m| m.is_file() && (named || m.permissions().mode() & 0o111 != 0))
}

/// Drops `.` and `//`; leaves `..` to the file system.
fn normal(file: &Path) -> PathBuf {
    file.components().filter(|c| !matches!(c, Component::CurDir)).collect()
}

/// Where a file really is, relative to the project; `None` where it is not there, leads out of it or
/// is not UTF-8. A link that is turned elsewhere shows as another path.
fn within(project: &Path, path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    let mut relative = Vec::new();
    for component in real.strip_prefix(project).ok()?.components() {
        match component {
            Component::Normal(name) => relative.push(name.to_str()?),
            _ => return None,
        }
    }
    (!relative.is_empty()).then(|| relative.join("/"))
}
