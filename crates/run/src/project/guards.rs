//! What a write scope never opens: Ringfence's own folder, git's hooks and configuration, the
//! configuration of agent CLIs, the programs of servers.

use std::path::Path;

use ringfence_adapters::Kind;
use ringfence_sandbox::{Missing, Rule};

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
    }
    for path in &found.protected {
        read_only(rules, path, Missing::Present, plan)?;
        pin_parents(rules, path, plan);
    }
    for protected in rules.protected {
        let missing = match protected.kind {
            Kind::Dir => Missing::Dir,
            Kind::Json => Missing::File(b"{}\n".to_vec()),
            Kind::File => Missing::File(Vec::new()),
        };
        let path = Path::new(&protected.path);
        if !exists(rules, path) && writable(rules.scopes, path) {
            missing_parents(rules, path, plan);
            read_only(rules, path, missing, plan)?;
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
        if !exists(rules, path) && writable(rules.scopes, path) {
            missing_parents(rules, path, plan);
            plan.guard(path, Rule::Masked, Missing::Dir);
        }
    }
    Ok(())
}

/// Folders on the way to something missing are made too, and cannot be renamed away.
fn missing_parents(rules: &Rules<'_>, path: &Path, plan: &mut Plan) {
    for parent in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
        let missing = if exists(rules, parent) { Missing::Present } else { Missing::Dir };
        plan.guard(parent, Rule::Pinned, missing);
    }
}

fn repository(rules: &Rules<'_>, git: &Git, plan: &mut Plan) -> Result<(), Error> {
    if !writable(rules.scopes, &git.path) {
        return Ok(());
    }
    pin_parents(rules, &git.path, plan);
    if !git.dir {
        return read_only(rules, &git.path, Missing::Present, plan);
    }
    if !git.path.as_os_str().is_empty() {
        plan.guard(&git.path, Rule::Pinned, Missing::Present);
    }
    for (name, missing) in GIT {
        let path = git.path.join(name);
        let missing = if exists(rules, &path) { Missing::Present } else { missing() };
        read_only(rules, &path, missing, plan)?;
    }
    Ok(())
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
    if !writable(rules.scopes, path) {
        return Ok(());
    }
    let full = rules.project.join(path);
    if full.symlink_metadata().is_ok_and(|m| m.file_type().is_symlink()) {
        return Err(Error::Project {
            path: full,
            reason: "must not be writable, but is a symlink in a writable folder, which cannot be \
                     protected; put the file itself there, or narrow `policy.filesystem.write`"
                .into(),
        });
    }
    plan.guard(path, Rule::ReadOnly, missing);
    Ok(())
}

fn exists(rules: &Rules<'_>, path: &Path) -> bool {
    rules.project.join(path).symlink_metadata().is_ok()
}
