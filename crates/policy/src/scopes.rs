//! What may be read and written, in the form that a mount can enforce: subtrees and files.

use std::path::{Path, PathBuf};

use ringfence_bundle::Diagnostic;
use serde::Serialize;

use crate::error::finding;
use crate::filesystem::rule;
use crate::glob::is_literal;
use crate::pattern::{PathPattern, Root};
use crate::wire::{Line, Rules};
use crate::{Error, Ruleset};

/// The file scopes of a run, both layers intersected. A path stands for itself and everything below
/// it; in `write`, `read_only` and `read_inside` the empty path is the whole project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FsScopes {
    /// Subtrees and files that may be written, relative to the project.
    pub write: Vec<PathBuf>,
    /// Subtrees below a writable one that may not.
    pub read_only: Vec<PathBuf>,
    /// Subtrees and files of the project that may be read; `None` is the whole project.
    pub read_inside: Option<Vec<PathBuf>>,
    /// Absolute paths outside the project that may be read. As written: a symlink on the way is for
    /// whoever opens them to refuse.
    pub read_outside: Vec<PathBuf>,
}

/// Folders of the system that no pattern opens: they hold sockets, devices and other processes.
const SYSTEM: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/var/run"];
/// Folders of a home that no pattern opens.
const KEYS: [&str; 2] = [".ssh", ".gnupg"];
/// The bundle's own folder, never writable.
const BUNDLE: &str = ".ringfence";

/// One layer's list as paths.
#[derive(Default)]
struct Scopes {
    inside: Vec<PathBuf>,
    outside: Vec<PathBuf>,
    except: Vec<PathBuf>,
    /// A list of denials alone (nothing else in it, and not empty): allows what it does not deny,
    /// but grants nothing that no other layer grants.
    denials_alone: bool,
}

impl Ruleset {
    /// Whether every write grant can also be read. One that cannot comes to nothing in
    /// [`Ruleset::scopes`], and would look like a grant to whoever wrote it.
    ///
    /// # Errors
    /// [`Error::Exceeds`] with the grants that come to nothing.
    pub fn check_writes(&self, user_home: &Path) -> Result<(), Error> {
        let lists = |key, pick: fn(&Rules) -> &Option<Vec<Line>>| -> Vec<_> {
            // What is no path is found by `scopes`.
            let mut elsewhere = Vec::new();
            [&self.wire().machine, &self.wire().bundle]
                .into_iter()
                .filter_map(|rules| {
                    let lines = pick(rules).as_ref()?;
                    Some(layer(rules, key, lines, user_home, &mut elsewhere))
                })
                .collect()
        };
        // The bundle's line first: it is the one that asks.
        let granted_by = |path: &Path| {
            let covers = |line: &&Line| {
                PathPattern::parse(&line.text).ok().is_some_and(|pattern| {
                    let inside = !pattern.negative && matches!(pattern.root, Root::Project);
                    inside && subtree(&pattern.glob).is_some_and(|tree| path.starts_with(tree))
                })
            };
            [&self.wire().bundle, &self.wire().machine].into_iter().find_map(|rules| {
                let lines = rules.filesystem.write.as_ref()?;
                Some(rule(rules, "write", Some(lines.iter().find(covers)?)))
            })
        };
        let reads = lists("read", |rules| &rules.filesystem.read);
        let writes = lists("write", |rules| &rules.filesystem.write);
        if reads.is_empty() {
            return Ok(());
        }
        let readable = intersect(reads.into_iter().map(|scopes| scopes.inside));
        let granting = writes.into_iter().filter(|scopes| !scopes.denials_alone);
        let granted = intersect(granting.map(|scopes| scopes.inside));
        let lost = granted
            .iter()
            .filter(|path| !readable.iter().any(|r| path.starts_with(r) || r.starts_with(path)));
        let findings: Vec<_> = lost
            .map(|path| {
                let place =
                    granted_by(path).unwrap_or_else(|| "[policy.filesystem] write".to_owned());
                finding(
                    "write-not-readable",
                    format!(
                        "{place} opens {}, which read does not cover \
                         (machine.toml and ringfence.toml taken together)",
                        path.display()
                    ),
                    Some("what may be written must be readable: add it to read".to_owned()),
                )
            })
            .collect();
        if findings.is_empty() { Ok(()) } else { Err(Error::Exceeds(findings)) }
    }

    /// What may be written and read. Pure: `user_home` is what `~` stands for, `ringfence_home` is
    /// the machine's state, which nothing in a sandbox reads.
    ///
    /// `write` absent in both layers is nothing; a layer without a list adds no bound. A list of
    /// denials alone bounds but grants nothing. What may be written must be readable too.
    ///
    /// # Errors
    /// [`Error::Exceeds`] when a pattern cannot be expressed as subtrees and files, when a write is
    /// outside the project or in `.ringfence`, or when an outside read would open what no pattern
    /// may.
    pub fn scopes(&self, user_home: &Path, ringfence_home: &Path) -> Result<FsScopes, Error> {
        let mut findings = Vec::new();
        let layers = [&self.wire().machine, &self.wire().bundle];
        let mut writes = Vec::new();
        let mut reads = Vec::new();
        for rules in layers {
            if let Some(lines) = &rules.filesystem.write {
                writes.push(layer(rules, "write", lines, user_home, &mut findings));
            }
            if let Some(lines) = &rules.filesystem.read {
                reads.push(layer(rules, "read", lines, user_home, &mut findings));
            }
        }

        let read_inside = (!reads.is_empty())
            .then(|| intersect(reads.iter().map(|scopes| scopes.inside.clone())))
            .filter(|paths| !paths.contains(&PathBuf::new()));
        let mut read_outside = intersect(reads.iter().map(|scopes| scopes.outside.clone()));
        // What is denied below one of them is for whoever mounts it to ask.
        read_outside.retain(|path| {
            path.to_str().is_some_and(|path| path == "/" || self.denied("", path).is_none())
        });
        for path in &read_outside {
            if let Some(reason) = never_read(path, user_home, ringfence_home) {
                findings.push(finding(
                    "never-readable",
                    format!(
                        "[policy.filesystem] read opens {}, {reason} (machine.toml and \
                         ringfence.toml taken together)",
                        path.display()
                    ),
                    Some("name the narrower folder that the agent needs".to_owned()),
                ));
            }
        }

        let granted = writes.iter().any(|scopes| !scopes.denials_alone);
        let mut bounds: Vec<Vec<PathBuf>> =
            writes
                .iter()
                .map(|scopes| {
                    if scopes.denials_alone { vec![PathBuf::new()] } else { scopes.inside.clone() }
                })
                .collect();
        bounds.extend(read_inside.clone());
        let mut write = if granted { intersect(bounds) } else { Vec::new() };
        let mut except: Vec<PathBuf> =
            writes.iter().flat_map(|scopes| scopes.except.iter().cloned()).collect();
        except.push(BUNDLE.into());
        write.retain(|path| !except.iter().any(|denied| path.starts_with(denied)));
        let mut read_only = minimal(except);
        read_only.retain(|denied| write.iter().any(|path| denied.starts_with(path)));

        if findings.is_empty() {
            Ok(FsScopes { write, read_only, read_inside, read_outside })
        } else {
            Err(Error::Exceeds(findings))
        }
    }
}

/// Reads one list into paths; what is none is a finding.
fn layer(
    rules: &Rules,
    key: &str,
    lines: &[Line],
    user_home: &Path,
    findings: &mut Vec<Diagnostic>,
) -> Scopes {
    let mut scopes = Scopes::default();
    let mut positives = 0;
    for line in lines {
        let mut refuse = |reason: &str, help: String| {
            let place = rule(rules, key, Some(line));
            findings.push(finding("not-mountable", format!("{place} {reason}"), Some(help)));
        };
        let pattern = match PathPattern::parse(&line.text) {
            Ok(pattern) => pattern,
            Err(problem) => {
                refuse(&problem.reason, problem.help.unwrap_or_default());
                continue;
            }
        };
        let Some(path) = subtree(&pattern.glob) else {
            let help = format!(
                "write `{}`, or name the files one by one",
                parent_of(&pattern.glob).map_or_else(|| "**".to_owned(), |dir| dir + "/**")
            );
            refuse("cannot be enforced by a mount: it is no folder and no file", help);
            continue;
        };
        if !pattern.negative {
            positives += 1;
        }
        match (key, pattern.negative, pattern.root) {
            ("write", true, Root::Project) => scopes.except.push(path),
            ("write", false, Root::Project) if path.starts_with(BUNDLE) => {
                refuse(
                    "is the bundle's own folder, which nothing in a run may write",
                    help_write(),
                );
            }
            ("write", _, Root::Absolute | Root::Home) => {
                refuse("is outside the project, where nothing may be written", help_write());
            }
            (_, true, _) => {
                let help = format!("write {:?} in `deny`", line.text.trim_start_matches('!'));
                refuse("is a denial, which `read` does not take", help);
            }
            (_, _, Root::Project) => scopes.inside.push(path),
            (_, _, Root::Absolute) => scopes.outside.push(Path::new("/").join(path)),
            (_, _, Root::Home) => scopes.outside.push(user_home.join(path)),
        }
    }
    scopes.denials_alone = positives == 0 && !lines.is_empty();
    scopes
}

fn help_write() -> String {
    "write a folder of the project, for example `src/**`".to_owned()
}

/// `**`, `dir/**`, `dir` as a path; `None` for every other glob.
pub(crate) fn subtree(glob: &str) -> Option<PathBuf> {
    if glob == "**" {
        return Some(PathBuf::new());
    }
    let path = glob.strip_suffix("/**").unwrap_or(glob);
    is_literal(path).then(|| PathBuf::from(path))
}

/// The longest folder before the first wildcard.
fn parent_of(glob: &str) -> Option<String> {
    let literal = &glob[..glob.find(['*', '?']).unwrap_or(glob.len())];
    literal.rfind('/').map(|at| literal[..at].to_owned())
}

/// The intersection of lists of subtrees: pairwise, the deeper of two that lie in one another.
/// Of no lists: nothing.
fn intersect(lists: impl IntoIterator<Item = Vec<PathBuf>>) -> Vec<PathBuf> {
    let mut lists = lists.into_iter();
    let first = minimal(lists.next().unwrap_or_default());
    lists.fold(first, |left, right| {
        let both = left.iter().flat_map(|a| {
            right.iter().filter_map(move |b| {
                if a.starts_with(b) {
                    Some(a.clone())
                } else if b.starts_with(a) {
                    Some(b.clone())
                } else {
                    None
                }
            })
        });
        minimal(both.collect())
    })
}

/// Sorted, without what lies in another.
fn minimal(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    // In the order of components a folder comes before what is in it, with nothing of another
    // folder between.
    paths.sort();
    let mut kept: Vec<PathBuf> = Vec::with_capacity(paths.len());
    for path in paths {
        if kept.last().is_none_or(|last| !path.starts_with(last)) {
            kept.push(path);
        }
    }
    kept
}

/// Why a path outside the project may not be read, if so.
fn never_read(path: &Path, user_home: &Path, ringfence_home: &Path) -> Option<String> {
    let overlaps = |other: &Path| path.starts_with(other) || other.starts_with(path);
    if user_home.starts_with(path) {
        return Some(format!("which is or holds the home folder {}", user_home.display()));
    }
    if overlaps(ringfence_home) {
        return Some("which holds or is in Ringfence's own state".to_owned());
    }
    if let Some(system) = SYSTEM.iter().find(|system| overlaps(Path::new(system))) {
        return Some(format!("which holds or is in {system}"));
    }
    let keys = KEYS.iter().find(|keys| overlaps(&user_home.join(keys)));
    keys.map(|keys| format!("which holds or is in ~/{keys}"))
}

#[cfg(test)]
mod tests;
