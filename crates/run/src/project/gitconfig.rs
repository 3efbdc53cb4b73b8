//! What git's configuration makes git run, or read as more configuration, from the work tree.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Bytes of a configuration file that are read; a longer one is not a person's.
const MAX_BYTES: u64 = 1 << 20;
/// How deep included files are followed, as git does.
const MAX_DEPTH: usize = 10;

/// What stands at a path that git takes something from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// A folder of hooks.
    Hooks,
    /// More configuration, or the program that a command names first.
    File,
    /// Another word of a command: only of interest if it is a file.
    Word,
}

/// Paths that the configuration files name, as they would be found from the top of the work tree.
/// Absolute, without `..`; not all of them exist.
pub(super) fn paths(files: &[PathBuf], work_tree: &Path) -> Vec<(PathBuf, Use)> {
    let mut found = Vec::new();
    for file in files {
        read(file, work_tree, MAX_DEPTH, &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn read(file: &Path, work_tree: &Path, depth: usize, found: &mut Vec<(PathBuf, Use)>) {
    let mut text = Vec::new();
    // What is not there names nothing.
    let Ok(open) = File::open(file) else { return };
    if !open.metadata().is_ok_and(|meta| meta.is_file())
        || open.take(MAX_BYTES).read_to_end(&mut text).is_err()
    {
        return;
    }
    let folder = file.parent().unwrap_or(Path::new("/"));
    for (section, key, value) in entries(&String::from_utf8_lossy(&text)) {
        match (section.as_str(), key.as_str()) {
            ("core", "hookspath") => {
                let path = plain(&work_tree.join(&value));
                // Husky's `_` holds stubs that run the files beside it.
                let path = match path.parent() {
                    Some(parent) if path.ends_with("_") && parent != work_tree => parent.to_owned(),
                    _ => path,
                };
                found.push((path, Use::Hooks));
            }
            ("include" | "includeif", "path") => {
                let path = plain(&folder.join(&value));
                if depth > 0 {
                    read(&path, work_tree, depth - 1, found);
                }
                found.push((path, Use::File));
            }
            ("core", "attributesfile") => {
                found.push((plain(&work_tree.join(&value)), Use::File));
            }
            (section, key) if is_command(section, key) => {
                for (index, word) in words(&value).into_iter().enumerate() {
                    let first = index == 0 && word.contains('/');
                    let what = if first { Use::File } else { Use::Word };
                    found.push((plain(&work_tree.join(word)), what));
                }
            }
            _ => {}
        }
    }
}

/// Settings whose value git executes (`git-config(1)`).
fn is_command(section: &str, key: &str) -> bool {
    match section {
        "core" => matches!(
            key,
            "fsmonitor"
                | "sshcommand"
                | "editor"
                | "pager"
                | "askpass"
                | "gitproxy"
                | "alternaterefscommand"
        ),
        "filter" => matches!(key, "clean" | "smudge" | "process"),
        "diff" => matches!(key, "external" | "command" | "textconv"),
        "merge" => key == "driver",
        "credential" => key == "helper",
        "difftool" | "mergetool" | "man" | "browser" | "guitool" => matches!(key, "cmd" | "path"),
        "gpg" => matches!(key, "program" | "defaultkeycommand"),
        "sequence" => key == "editor",
        "interactive" => key == "difffilter",
        "trailer" => matches!(key, "cmd" | "command"),
        "remote" => matches!(key, "uploadpack" | "receivepack"),
        "tar" => key == "command",
        "sendemail" => key.ends_with("cmd"),
        "alias" | "pager" => true,
        _ => false,
    }
}

/// `(section, key, value)`, the first two in lower case, subsections left out.
fn entries(text: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut section = String::new();
    let joined = text.replace("\\\r\n", "").replace("\\\n", "");
    for line in joined.lines() {
        let mut line = line.trim_start_matches('\u{feff}').trim();
        if let Some(rest) = line.strip_prefix('[') {
            let Some((header, after)) = header(rest) else { continue };
            section = header;
            line = after.trim();
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (key, text) = line.split_once('=').unwrap_or((line, ""));
        found.push((section.clone(), key.trim().to_ascii_lowercase(), value(text)));
    }
    found
}

/// The section's name, and what follows the closing bracket (which a quoted subsection may hold).
fn header(text: &str) -> Option<(String, &str)> {
    let mut quoted = false;
    let mut escaped = false;
    let end = text.find(|c| {
        let closes = c == ']' && !quoted;
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = c == '\\' && !escaped;
        closes
    })?;
    let name = text[..end].split(|c: char| c.is_whitespace() || c == '.' || c == '"').next()?;
    Some((name.to_ascii_lowercase(), &text[end + 1..]))
}

fn value(text: &str) -> String {
    let mut plain = String::new();
    let mut quoted = false;
    let mut chars = text.trim().chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => plain.extend(chars.next()),
            '#' | ';' if !quoted => break,
            c => plain.push(c),
        }
    }
    plain.trim_end().to_owned()
}

/// The words of a shell command, roughly: what is too much is no file.
fn words(command: &str) -> Vec<&str> {
    let splits =
        |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '&' | '|' | '(' | ')');
    let command = command.trim_start().strip_prefix('!').unwrap_or(command);
    command.split(splits).filter(|word| !word.is_empty()).collect()
}

/// Without `.` and `..`, by the words alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Use, entries, paths};

    #[test]
    fn a_configuration_is_read_as_git_reads_it() {
        let text = "[core] hooksPath = \"a b\" ; c\n\tFSMonitor\n[Filter \"x ] y\"]\nclean = a \\\n b # c\n\
                    [include]path=../x\n[old.style]\n  key = \"q\\\"#\" \n";
        let is = |s: &str, k: &str, v: &str| (s.to_owned(), k.to_owned(), v.to_owned());
        assert_eq!(
            entries(text),
            [
                is("core", "hookspath", "a b"),
                is("core", "fsmonitor", ""),
                is("filter", "clean", "a  b"),
                is("include", "path", "../x"),
                is("old", "key", "q\"#"),
            ]
        );
    }

    #[test]
    fn what_git_would_run_is_found_through_includes() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        let config = git.join("config");
        std::fs::write(
            &config,
            "[core]\nhooksPath = .husky/_\nbare = false\n[include]\npath = ../.gitconfig\n\
             [branch \"main\"]\nmerge = refs/heads/main\n",
        )
        .unwrap();
        std::fs::write(
            dir.path().join(".gitconfig"),
            "[include]\npath = .gitconfig\n[alias]\nx = !sh 'tools/x.sh'\n[core]\nfsmonitor = ./w/fs 1\n",
        )
        .unwrap();
        let found = paths(&[config], dir.path());
        let has = |path: &str, what| found.contains(&(dir.path().join(path), what));
        assert!(has(".husky", Use::Hooks) && has(".gitconfig", Use::File), "{found:?}");
        assert!(has("tools/x.sh", Use::Word) && has("w/fs", Use::File), "{found:?}");
        assert!(!found.iter().any(|(path, _)| path.ends_with(Path::new("main"))), "{found:?}");
    }
}
