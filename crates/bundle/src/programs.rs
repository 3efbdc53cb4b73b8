//! Which files a bundle's commands run: those of the project, and those of the machine.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Digest, Error, Manifest, Transport, text};

mod named;
#[cfg(test)]
mod tests;

pub use named::{Named, named, of_project, unpinned};

/// The command that stands for the running program itself.
pub const OWN_NAME: &str = "ringfence";

/// Where programs are looked up when nothing says otherwise.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// PATH of every sandboxed process: where `#!/usr/bin/env name` looks.
pub const SANDBOX_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Interpreters that are themselves scripts: how many in a row, as the kernel has it.
const MOST_INTERPRETERS: usize = 5;

/// Bytes of a file that its first line is looked for in, as the kernel has it.
const HEAD: usize = 256;

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
    /// This hook's.
    Hook(String),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent => f.write_str("the agent"),
            Self::Server(name) => write!(f, "server `{}`", text::shown(name)),
            Self::Hook(name) => write!(f, "hook `{}`", text::shown(name)),
        }
    }
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

/// What a manifest's commands run on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// The files, sorted.
    pub found: Vec<Program>,
    /// Commands whose files could not be found or read, and why; they cannot start as they are.
    pub missing: Vec<(Who, String)>,
}

/// Whose commands are asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// The agent's, and every server's.
    All,
    /// Every server's: the agent's own was typed by a person.
    Servers,
    /// This one's.
    Only(Who),
}

impl Whose {
    /// Whether this one is among them.
    #[must_use]
    pub fn includes(&self, who: &Who) -> bool {
        match self {
            Self::All => true,
            Self::Servers => *who != Who::Agent,
            Self::Only(one) => one == who,
        }
    }
}

/// The files that the manifest's commands run and that no lock pins, as this machine finds them now:
/// each program, and the interpreter its first line names. `search` is a PATH; the default is
/// `/usr/local/bin:/usr/bin:/bin`. Ringfence's own name stands for the running program and is left out.
#[must_use]
pub fn on_machine(
    manifest: &Manifest,
    project: &Path,
    search: Option<&OsStr>,
    whose: &Whose,
) -> Programs {
    let mut commands = Vec::new();
    if let Some(word) = manifest.sandbox.command.first() {
        commands.push((Who::Agent, word));
    }
    for (id, server) in &manifest.servers {
        if let Transport::Stdio { command, .. } = &server.transport {
            commands.push((Who::Server(id.to_string()), command));
        }
    }
    let pinned = of_project(manifest, project);
    let mut digests = BTreeMap::new();
    let mut all = Programs::default();
    commands.retain(|(who, word)| *word != OWN_NAME && whose.includes(who));
    for (who, word) in commands {
        match of_command(word, project, search, &pinned, &mut digests) {
            Ok(files) => all.found.extend(files.into_iter().map(|(path, digest)| Program {
                who: who.clone(),
                path,
                digest,
            })),
            Err(Error::Program { path, reason }) => {
                all.missing.push((who, format!("`{}` {reason}", path.display())));
            }
            Err(error) => all.missing.push((who, error.to_string())),
        }
    }
    all.found.sort();
    all.found.dedup();
    all
}

/// The absolute path of a command's program. A name without `/` is looked up on `search` (entries
/// that are not absolute are passed over); one with `/` is taken from the project. `ringfence` is
/// always the running program, so that no folder on the way can put another in its place.
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
    if name == OWN_NAME {
        return std::env::current_exe().map_err(|error| fail(&error.to_string()));
    }
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

/// The program and, where its first line names one, its interpreter, and so on: each as it really
/// is, with its digest; what the lock pins is left out.
fn of_command(
    word: &str,
    project: &Path,
    search: Option<&OsStr>,
    pinned: &BTreeMap<String, String>,
    digests: &mut BTreeMap<PathBuf, Digest>,
) -> Result<Vec<(PathBuf, Digest)>, Error> {
    let real = |path: &Path| {
        let fail =
            |error: io::Error| Error::Program { path: path.to_owned(), reason: error.to_string() };
        path.canonicalize().map_err(fail)
    };
    let mut files = Vec::new();
    let mut next = vec![real(&resolve_program(word, project, search)?)?];
    while let Some(path) = next.pop() {
        if files.iter().any(|(there, _)| *there == path) {
            continue;
        }
        if files.len() > 2 * MOST_INTERPRETERS {
            let reason = "names an interpreter that names another, and so on".to_owned();
            return Err(Error::Program { path, reason });
        }
        let (words, digest) = look(&path, digests.get(&path).copied())?;
        digests.insert(path.clone(), digest);
        files.push((path.clone(), digest));
        let Some((first, rest)) = words.split_first() else { continue };
        let first = Path::new(first);
        if !first.is_absolute() {
            // The kernel takes it from wherever the process is then.
            let reason = format!(
                "names its interpreter by a path that is not absolute: `{}`",
                text::shown(&first.to_string_lossy())
            );
            return Err(Error::Program { path, reason });
        }
        let interpreter = real(first)?;
        // Under either name: a link to `env` by another is `env`.
        let is_env =
            [first, &interpreter].iter().any(|it| it.file_name() == Some(OsStr::new("env")));
        next.push(interpreter);
        let search = Some(OsStr::new(SANDBOX_PATH));
        if is_env {
            let Some(name) = env_starts(rest) else {
                let reason = "cannot be told what its first line makes `env` start".to_owned();
                return Err(Error::Program { path, reason });
            };
            next.push(real(&resolve_program(&name, project, search)?)?);
        } else if let Some(Ok(program)) = rest
            .iter()
            .find_map(|word| word.to_str().filter(|word| !word.starts_with('-')))
            .map(|name| resolve_program(name, project, search))
        {
            // `#!/usr/bin/nice python3`
            next.push(real(&program)?);
        }
    }
    let is_pinned = |path: &Path| {
        let inside = path.strip_prefix(project).ok().and_then(Path::to_str);
        inside.is_some_and(|path| pinned.contains_key(path))
    };
    files.retain(|(path, _)| !is_pinned(path));
    // It is recorded, and shown, as text.
    match files.iter().find(|(path, _)| path.to_str().is_none()) {
        Some((path, _)) => {
            let reason = "has a path that is not UTF-8".to_owned();
            Err(Error::Program { path: path.clone(), reason })
        }
        None => Ok(files),
    }
}

/// What `env` starts, by the words after it in a first line: the first that is no option and sets no
/// variable. `-S` may have its text behind it. `None` where an option takes a word of its own, or none is left.
fn env_starts(words: &[OsString]) -> Option<String> {
    const ALONE: [&str; 8] =
        ["-", "-i", "--ignore-environment", "-v", "--debug", "-S", "--split-string", "-vS"];
    let mut words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    if let Some(first) = words.first_mut() {
        let attached = ["--split-string=", "-S", "-vS", "-iS"];
        if let Some(text) = attached.iter().find_map(|option| first.strip_prefix(option)) {
            *first = text;
        }
    }
    let plain = |word: &str| !word.contains(['"', '\'', '\\', '$', '#']);
    for word in words.into_iter().filter(|word| !word.is_empty()) {
        match word {
            word if !plain(word) => return None,
            word if ALONE.contains(&word) => {}
            word if word.starts_with('-') => return None,
            // It would look elsewhere than we do.
            word if word.starts_with("PATH=") => return None,
            word if word.contains('=') => {}
            word => return Some(word.to_owned()),
        }
    }
    None
}

/// The words after a file's `#!`, and its digest, from one opened file; `known` is a digest that was
/// taken of it just now.
fn look(path: &Path, known: Option<Digest>) -> Result<(Vec<OsString>, Digest), Error> {
    let fail = |reason: String| Error::Program { path: path.to_owned(), reason };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let file = File::from(opened.map_err(|e| fail(e.to_string()))?);
    let meta = file.metadata().map_err(|e| fail(e.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_PROGRAM {
        return Err(fail("is not a regular file of at most 2 GiB".to_owned()));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 17];
    let mut head = Vec::new();
    let mut file = file.take(MAX_PROGRAM);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                if head.len() < HEAD {
                    head.extend_from_slice(&buffer[..length.min(HEAD - head.len())]);
                }
                if known.is_some() && head.len() == HEAD {
                    break;
                }
                hash.update(&buffer[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fail(error.to_string())),
        }
    }
    if head.len() == HEAD && head.starts_with(b"#!") && !head.contains(&b'\n') {
        // What it starts is then not what it says.
        return Err(fail("has a first line that is longer than the kernel reads".to_owned()));
    }
    let digest = known.unwrap_or_else(|| Digest::framed("machine-program", &[&hash.finalize()]));
    Ok((first_line(&head), digest))
}

/// The words after `#!`, none when there is no such line.
fn first_line(head: &[u8]) -> Vec<OsString> {
    let line = head.strip_prefix(b"#!").and_then(|rest| rest.split(|b| *b == b'\n').next());
    // The kernel parts words at these two alone.
    let words = line.unwrap_or_default().split(|byte| matches!(byte, b' ' | b'\t'));
    words.filter(|word| !word.is_empty()).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

fn executable(file: &Path) -> bool {
    file.is_file() && accessat(CWD, file, Access::EXEC_OK, AtFlags::empty()).is_ok()
}

/// Drops `.` and `//`; leaves `..` to the file system.
fn normal(file: &Path) -> PathBuf {
    file.components().filter(|c| !matches!(c, Component::CurDir)).collect()
}
