//! What a write scope never opens: Ringfence's own folder, git's hooks and configuration, the
//! configuration of agent CLIs.

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

/// What is there now may be another run's placeholder and gone in a moment: whatever can be made is
/// told how, also where it is there.
pub(super) fn guards(rules: &Rules<'_>, found: &Found, plan: &mut Plan) -> Result<(), Error> {
    plan.guard(Path::new(".ringfence"), Rule::ReadOnly, Missing::Present);
    for git in &found.git {
        repository(rules, git, plan)?;
    }
    for protected in rules.protected {
        let missing = match protected.kind {
            Kind::Dir => Missing::Dir,
            Kind::Json => Missing::File(b"{}\n".to_vec()),
            Kind::File => Missing::File(Vec::new()),
        };
        let path = Path::new(&protected.path);
        if writable(rules.scopes, path) {
            missing_parents(path, plan);
            read_only(rules, path, missing, plan)?;
        }
    }
    for path in &found.protected {
        read_only(rules, path, Missing::Present, plan)?;
        pin_parents(rules, path, plan);
    }
    for path in rules.literals {
        if writable(rules.scopes, path) && !is_symlink(rules, path) {
            missing_parents(path, plan);
            plan.guard(path, Rule::Masked, Missing::Dir);
        }
    }
    Ok(())
}

/// Folders on the way to something that may be missing are made too, and cannot be renamed away.
fn missing_parents(path: &Path, plan: &mut Plan) {
    for parent in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
        plan.guard(parent, Rule::Pinned, Missing::Dir);
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
        read_only(rules, &git.path.join(name), missing(), plan)?;
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
    if is_symlink(rules, path) {
        return Err(Error::Project {
            path: rules.project.join(path),
            reason: "must not be writable, but is a symlink in a writable folder, which cannot be \
                     protected; put the file itself there, or narrow `policy.filesystem.write`"
                .into(),
        });
    }
    plan.guard(path, Rule::ReadOnly, missing);
    Ok(())
}

fn is_symlink(rules: &Rules<'_>, path: &Path) -> bool {
    rules.project.join(path).symlink_metadata().is_ok_and(|m| m.file_type().is_symlink())
}
