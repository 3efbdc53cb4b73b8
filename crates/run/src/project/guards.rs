//! What a write scope never opens: Ringfence's own folder, git's hooks and configuration, the
//! configuration of agent CLIs, the programs of servers.

use std::path::{Path, PathBuf};

use ringfence_adapters::Kind;
use ringfence_sandbox::{Missing, Rule};

use super::gitconfig::{self, Use};
use super::walk::{Found, Git};
use super::{Plan, Rules, writable};
use crate::Error;

/// What stands in place of something that is missing.
type Empty = fn() -> Missing;

/// What in a git directory makes git run something, or look elsewhere for it. Made when missing, in
/// a form that git takes for "nothing".
const GIT: [(&str, Empty); 7] = [
    ("commondir", || Missing::File(b".\n".to_vec())),
    ("config", || Missing::File(Vec::new())),
    ("config.worktree", || Missing::File(Vec::new())),
    ("hooks", || Missing::Dir),
    ("info", || Missing::Dir),
    ("modules", || Missing::Dir),
    ("worktrees", || Missing::Dir),
];

pub(super) fn guards(rules: &Rules<'_>, found: &Found, plan: &mut Plan) -> Result<(), Error> {
    plan.guard(Path::new(".ringfence"), Rule::ReadOnly, Missing::Present);
    for git in &found.git {
        repository(rules, git, plan)?;
        configured(rules, git, plan)?;
    }
    // What is there may be the placeholder of a run that ends before this one begins: each path is
    // made again if it is missing by then.
    for path in &found.protected {
        let kind = rules.protected.iter().find(|p| path.ends_with(&p.path)).map(|p| p.kind);
        read_only(rules, path, kind.map_or(Missing::Present, empty), plan)?;
        missing_parents(rules, path, plan);
    }
    for protected in rules.protected {
        let path = Path::new(&protected.path);
        for parent in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
            // Through a symlink it is another path, which the agent could write.
            refuse_symlink(rules, parent)?;
        }
        if opened(rules, path) {
            missing_parents(rules, path, plan);
            read_only(rules, path, empty(protected.kind), plan)?;
        }
    }
    for path in rules.programs {
        // A link is kept by the folder that it is in.
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let path = match folder {
            Some(folder) if rules.project.join(path).is_symlink() => folder,
            _ => path,
        };
        read_only(rules, path, Missing::Present, plan)?;
        pin_parents(rules, path, plan);
    }
    for path in rules.literals {
        if opened(rules, path) {
            missing_parents(rules, path, plan);
            plan.guard(path, Rule::Masked, Missing::Dir);
        }
    }
    Ok(())
}

/// What stands in place of a missing path of an adapter.
fn empty(kind: Kind) -> Missing {
    match kind {
        Kind::Dir => Missing::Dir,
        Kind::Json => Missing::File(b"{}\n".to_vec()),
        Kind::File => Missing::File(Vec::new()),
    }
}

/// Folders on the way to something missing are made too, and cannot be renamed away. Those above the
/// write scope stay as they are: pinned ones may be written.
fn missing_parents(rules: &Rules<'_>, path: &Path, plan: &mut Plan) {
    let parents = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty());
    for parent in parents.filter(|p| writable(rules.scopes, p)) {
        plan.guard(parent, Rule::Pinned, Missing::Dir);
    }
}

fn repository(rules: &Rules<'_>, git: &Git, plan: &mut Plan) -> Result<(), Error> {
    pin_parents(rules, &git.path, plan);
    if !git.dir {
        return read_only(rules, &git.path, Missing::Present, plan);
    }
    if !git.path.as_os_str().is_empty() && writable(rules.scopes, &git.path) {
        plan.guard(&git.path, Rule::Pinned, Missing::Present);
    }
    for (name, missing) in GIT {
        read_only(rules, &git.path.join(name), missing(), plan)?;
    }
    Ok(())
}

/// What a repository's configuration, and the person's own, make git run or read from the work tree:
/// hooks by `core.hooksPath`, included configuration, filters and other commands.
fn configured(rules: &Rules<'_>, git: &Git, plan: &mut Plan) -> Result<(), Error> {
    let full = rules.project.join(&git.path);
    let bare = git.dir && !git.path.ends_with(".git");
    let work_tree = if bare { full.as_path() } else { full.parent().unwrap_or(&full) };
    let folder = if git.dir { Some(full.clone()) } else { git_folder(&full) };
    let mut files: Vec<PathBuf> = rules.git_configs.to_vec();
    if let Some(folder) = folder {
        // A linked work tree shares the configuration of its repository.
        let common = std::fs::read_to_string(folder.join("commondir")).unwrap_or_default();
        files.push(folder.join(common.trim_end()).join("config"));
        files.push(folder.join("config.worktree"));
    }
    for (path, what) in gitconfig::paths(&files, work_tree) {
        let Ok(path) = path.strip_prefix(rules.project) else { continue };
        if path.as_os_str().is_empty() || !opened(rules, path) {
            continue;
        }
        let missing = match (what, exists(rules, path)) {
            (Use::Word, false) => continue,
            (Use::Word, true) if !rules.project.join(path).is_file() => continue,
            (Use::Hooks, _) => Missing::Dir,
            _ => Missing::File(Vec::new()),
        };
        missing_parents(rules, path, plan);
        read_only(rules, path, missing, plan)?;
    }
    Ok(())
}

/// Where a `.git` file points to.
fn git_folder(file: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(file.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
}

/// A folder that holds a guarded path is made a mount point: it cannot be renamed away and made anew.
fn pin_parents(rules: &Rules<'_>, path: &Path, plan: &mut Plan) {
    for parent in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
        if writable(rules.scopes, parent) {
            plan.guard(parent, Rule::Pinned, Missing::Present);
        }
    }
}

fn read_only(
    rules: &Rules<'_>,
    path: &Path,
    missing: Missing,
    plan: &mut Plan,
) -> Result<(), Error> {
    if !opened(rules, path) {
        return Ok(());
    }
    refuse_symlink(rules, path)?;
    plan.guard(path, Rule::ReadOnly, missing);
    Ok(())
}

/// A symlink in a writable folder can be replaced: what must hold cannot be reached through one.
fn refuse_symlink(rules: &Rules<'_>, path: &Path) -> Result<(), Error> {
    let full = rules.project.join(path);
    let link = full.symlink_metadata().is_ok_and(|m| m.file_type().is_symlink());
    if !link || !writable(rules.scopes, path) {
        return Ok(());
    }
    Err(Error::Project {
        path: full,
        reason: "must not be writable, but is a symlink in a writable folder, which cannot be \
                 protected; put the file itself there, or narrow `policy.filesystem.write`"
            .into(),
    })
}

/// Whether a write scope covers a path or something below it: a guard wins over both.
fn opened(rules: &Rules<'_>, path: &Path) -> bool {
    writable(rules.scopes, path) || rules.scopes.write.iter().any(|scope| scope.starts_with(path))
}

fn exists(rules: &Rules<'_>, path: &Path) -> bool {
    rules.project.join(path).symlink_metadata().is_ok()
}
