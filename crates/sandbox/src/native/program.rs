//! Where the agent's program really is, and what must be mounted for it to start.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};

/// Folders of the host that every sandbox sees.
pub(crate) const SYSTEM: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives"];

/// The search path of an agent whose environment names none.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Symlinks followed before a path is taken for a loop (as the kernel does).
const LINKS_MAX: usize = 40;

/// A program, and what its path consists of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The file itself, when it is not visible anyway.
    pub(crate) file: Option<PathBuf>,
    /// Symlinks on the way that are not visible anyway: where, and to what.
    pub(crate) links: Vec<(PathBuf, OsString)>,
}

/// Resolves a program for a sandbox in which `granted` folders are visible besides [`SYSTEM`].
///
/// # Errors
/// [`Error::Spec`]: it is missing, not a file, not executable, or its interpreter is not visible.
pub(crate) fn resolve(program: &Path, granted: &[&Path], search: &OsStr) -> Result<Program> {
    let visible = |path: &Path| {
        SYSTEM
            .iter()
            .map(Path::new)
            .chain(granted.iter().copied())
            .any(|root| path.starts_with(root))
    };
    let Walk { file, mut links } =
        walk(program).map_err(|error| Error::Spec(format!("{}: {error}", program.display())))?;
    let meta = fs::metadata(&file)
        .map_err(|error| Error::Spec(format!("{}: {error}", program.display())))?;
    if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
        return Err(Error::Spec(format!("{}: not an executable file", program.display())));
    }
    if let Some(interpreter) = interpreter(&file) {
        check_interpreter(program, &interpreter, search, &visible)?;
    }
    links.retain(|(place, _)| !visible(place));
    Ok(Program { file: (!visible(&file)).then_some(file), links })
}

struct Walk {
    file: PathBuf,
    links: Vec<(PathBuf, OsString)>,
}

/// Follows a path component by component, noting each symlink.
fn walk(path: &Path) -> std::io::Result<Walk> {
    let mut links = Vec::new();
    let mut todo: Vec<OsString> = reversed(path);
    let mut at = PathBuf::from("/");
    while let Some(name) = todo.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        if !fs::symlink_metadata(&next)?.is_symlink() {
            at = next;
            continue;
        }
        if links.len() == LINKS_MAX {
            return Err(std::io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        todo.extend(reversed(&target));
        links.push((next, target.into_os_string()));
    }
    Ok(Walk { file: at, links })
}

fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

/// The words of a script's first line, after `#!`.
fn interpreter(file: &Path) -> Option<Vec<Vec<u8>>> {
    let mut head = Vec::new();
    fs::File::open(file).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Some(words.map(<[u8]>::to_vec).collect())
}

fn check_interpreter(
    program: &Path,
    words: &[Vec<u8>],
    search: &OsStr,
    visible: &impl Fn(&Path) -> bool,
) -> Result<()> {
    let refuse = |what: &Path| {
        Err(Error::Spec(format!(
            "{}: a script whose interpreter {} is not visible in the sandbox; grant its folder \
             under policy.filesystem.read",
            program.display(),
            what.display()
        )))
    };
    let seen = |path: &Path| {
        visible(path) && walk(path).is_ok_and(|walk| visible(&walk.file) && walk.file.is_file())
    };
    let Some((first, rest)) = words.split_first() else { return Ok(()) };
    let first = Path::new(OsStr::from_bytes(first));
    if !seen(first) {
        return refuse(first);
    }
    if first.file_name() != Some(OsStr::new("env")) {
        return Ok(());
    }
    // `#!/usr/bin/env node`: the program that env will look for.
    let named = rest.iter().find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    let Some(named) = named.map(|word| Path::new(OsStr::from_bytes(word))) else { return Ok(()) };
    let found = search
        .as_bytes()
        .split(|byte| *byte == b':')
        .any(|folder| seen(&Path::new(OsStr::from_bytes(folder)).join(named)));
    if found { Ok(()) } else { refuse(named) }
}

#[cfg(test)]
mod tests;
