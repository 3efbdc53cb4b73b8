//! Which paths of a project are writable, read-only or masked: a look at the folder, then a list of
//! mounts. Nothing is changed here.

mod gitconfig;
mod guards;
mod links;
pub(crate) mod made;
pub(crate) mod outside;
mod programs;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringfence_adapters::Protected;
use ringfence_policy::FsScopes;
use ringfence_sandbox::{Missing, Mount, Rule};

use crate::Error;

pub(crate) use programs::programs;

/// What decides over a project's paths.
pub(crate) struct Rules<'a> {
    /// Canonical project folder.
    pub(crate) project: &'a Path,
    /// Read and write scopes, both layers intersected.
    pub(crate) scopes: &'a FsScopes,
    /// What adapters name.
    pub(crate) protected: &'a [Protected],
    /// What servers run.
    pub(crate) programs: &'a [PathBuf],
    /// Denied paths without wildcards: they may not be made either.
    pub(crate) literals: &'a [PathBuf],
    /// Whether a denied pattern with wildcards names folders: then a symlink to a folder may give a
    /// path a denied name.
    pub(crate) denied_below: bool,
    /// Git's configuration outside of the project: the person's and the machine's.
    pub(crate) git_configs: &'a [PathBuf],
    /// Whether a path (relative, absolute) is denied.
    pub(crate) denied: &'a dyn Fn(&str, &str) -> bool,
}

/// The mounts of a project, parents before children.
///
/// # Errors
/// [`Error::Project`] when a path that must be protected cannot be, or a scope is missing and its
/// kind is not known; [`Error::HardLink`] when a denied file has names that are not denied.
pub(crate) fn mounts(rules: &Rules<'_>) -> Result<Vec<Mount>, Error> {
    let literals = real_paths(rules)?;
    let rules = &Rules { literals: &literals, ..*rules };
    let found = walk::walk(rules)?;
    let mut plan = Plan::default();
    for path in &rules.scopes.write {
        plan.scope(path, Rule::Writable, scope_missing(rules.project, path)?);
    }
    for path in &rules.scopes.read_only {
        if rules.project.join(path).symlink_metadata().is_ok() {
            plan.scope(path, Rule::ReadOnly, Missing::Present);
        }
    }
    guards::guards(rules, &found, &mut plan)?;
    for path in found.masked {
        plan.guard(&path, Rule::Masked, Missing::Present);
    }
    let mounts = plan.finish();
    links::check(rules, &mounts)?;
    Ok(mounts)
}

/// Where the denied paths without wildcards really are: a symlinked folder on the way leads
/// elsewhere. What leads out of the project is not there at all.
fn real_paths(rules: &Rules<'_>) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for literal in rules.literals {
        let there = literal.ancestors().find_map(|part| {
            let real = rules.project.join(part).canonicalize().ok()?;
            Some((real, literal.strip_prefix(part).unwrap_or(Path::new(""))))
        });
        let Some((real, rest)) = there else { continue };
        let Ok(inside) = real.strip_prefix(rules.project) else { continue };
        if inside.as_os_str().is_empty() && rest.as_os_str().is_empty() {
            return Err(Error::Project {
                path: rules.project.join(literal),
                reason: "is denied, but is a link to the whole project".into(),
            });
        }
        paths.push(if rest.as_os_str().is_empty() { inside.to_owned() } else { inside.join(rest) });
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// A scope that is not there yet becomes a folder, unless the name looks like a file's.
fn scope_missing(project: &Path, path: &Path) -> Result<Missing, Error> {
    if project.join(path).symlink_metadata().is_ok() {
        return Ok(Missing::Present);
    }
    if path.extension().is_some() {
        return Err(Error::Project {
            path: project.join(path),
            reason: "is declared writable but is not there; make it first (touch or mkdir)".into(),
        });
    }
    Ok(Missing::Keep)
}

/// Mounts by path. Guards win over scopes, stronger rules over weaker.
#[derive(Default)]
pub(crate) struct Plan {
    scopes: BTreeMap<PathBuf, (Rule, Missing)>,
    guards: BTreeMap<PathBuf, (Rule, Missing)>,
}

impl Plan {
    fn scope(&mut self, path: &Path, rule: Rule, missing: Missing) {
        put(&mut self.scopes, path, rule, missing);
    }

    pub(crate) fn guard(&mut self, path: &Path, rule: Rule, missing: Missing) {
        put(&mut self.guards, path, rule, missing);
    }

    /// Parents first. What lies below a masked or guarded read-only path is left out: the parent
    /// covers it.
    fn finish(self) -> Vec<Mount> {
        let closed: Vec<PathBuf> = self
            .guards
            .iter()
            .filter(|(_, (rule, _))| matches!(rule, Rule::ReadOnly | Rule::Masked))
            .map(|(path, _)| path.clone())
            .collect();
        let masked: Vec<PathBuf> = self
            .guards
            .iter()
            .filter(|(_, (rule, _))| *rule == Rule::Masked)
            .map(|(path, _)| path.clone())
            .collect();
        let below = |path: &Path, roots: &[PathBuf]| {
            path.ancestors().skip(1).any(|a| roots.binary_search_by(|r| r.as_path().cmp(a)).is_ok())
        };
        let mut all = self.guards.clone();
        all.retain(|path, (rule, _)| {
            !below(path, &masked) && (*rule == Rule::Masked || !below(path, &closed))
        });
        for (path, (rule, missing)) in self.scopes {
            if !below(&path, &closed) && !closed.contains(&path) {
                put(&mut all, &path, rule, missing);
            }
        }
        all.into_iter().map(|(path, (rule, missing))| Mount { path, rule, missing }).collect()
    }
}

fn put(map: &mut BTreeMap<PathBuf, (Rule, Missing)>, path: &Path, rule: Rule, missing: Missing) {
    match map.get(path) {
        Some((there, _)) if strength(there) >= strength(&rule) => {}
        _ => {
            map.insert(path.to_owned(), (rule, missing));
        }
    }
}

fn strength(rule: &Rule) -> u8 {
    match rule {
        Rule::Writable => 0,
        Rule::Pinned => 1,
        Rule::ReadOnly => 2,
        Rule::Masked => 3,
    }
}

/// Whether a path may be written by the scopes alone: the deepest scope that covers it decides.
pub(crate) fn writable(scopes: &FsScopes, path: &Path) -> bool {
    let depth = |list: &[PathBuf]| {
        list.iter()
            .filter(|s| path.starts_with(s))
            .map(|s| s.components().count() + 1)
            .max()
            .unwrap_or(0)
    };
    depth(&scopes.write) > depth(&scopes.read_only)
}
