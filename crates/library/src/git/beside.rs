//! Repositories that lie on this machine: git reads the configuration of each, and a program on the
//! other side of a push runs the hooks of the folder that is pushed to. Both lie where an agent may
//! have written, so that nothing there may be able to start a program.

use std::path::{Path, PathBuf};

use super::process::{self, Bounds};
use super::{Config, Git, Remote, failed};
use crate::Error;

/// Keys that a repository's own configuration may have: none of them runs a program.
const HARMLESS: [&str; 16] = [
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.autocrlf",
    "core.eol",
    "extensions.objectformat",
    "extensions.refstorage",
    "user.name",
    "user.email",
    "commit.gpgsign",
    "pull.rebase",
    "pull.ff",
];
/// The same, below a name: `remote.<name>.url`.
const HARMLESS_BELOW: [(&str, &[&str]); 2] = [
    ("remote", &["url", "fetch", "tagopt"]),
    ("branch", &["remote", "merge", "rebase", "vscode-merge-base", "github-pr-owner-number"]),
];
/// What the one that commits are taken from or pushed to may have beyond that.
const SHARED: [&str; 5] = [
    "core.sharedrepository",
    "receive.denynonfastforwards",
    "receive.denydeletes",
    "receive.advertisepushoptions",
    "transfer.fsckobjects",
];
/// The other side of a push to a folder. What is set on our side does not reach it.
pub(super) const RECEIVE: &str = "--receive-pack=git -c core.hooksPath=/dev/null -c receive.autoGC=false \
                                  -c core.fsmonitor=false receive-pack";

impl Git {
    /// Whether a folder of this machine may be asked, or pushed to. Says nothing of a host.
    pub(super) fn serves(&self, remote: &Remote, doing: &str) -> Result<(), Error> {
        if remote.host().is_some() {
            return Ok(());
        }
        self.own(&repository(Path::new(remote.as_str()), doing)?, &SHARED, doing)
    }

    /// A repository's objects are its own, and its own configuration holds nothing that makes git
    /// run a program or go elsewhere than it says.
    pub(super) fn own(&self, dir: &Path, more: &[&str], doing: &str) -> Result<(), Error> {
        for name in ["commondir", "objects/info/alternates", "objects/info/http-alternates"] {
            if dir.join(name).symlink_metadata().is_ok() {
                let at = dir.join(name);
                let reason = format!("it has `{}`: its objects lie elsewhere", at.display());
                return Err(failed(doing, &reason));
            }
        }
        let file = dir.join("config");
        let Some(path) = file.to_str() else { return Err(failed(doing, "its path is no text")) };
        let words = ["config", "--file", path, "--no-includes", "--list", "--name-only", "-z"];
        let command = self.command(dir, Config::Nobody, "none", &words);
        let ended = process::run(command, Vec::new(), &Bounds::LOCAL, doing)?;
        if !ended.success {
            return Err(ended.error(doing));
        }
        for key in ended.stdout.split(|byte| *byte == 0).filter(|key| !key.is_empty()) {
            let key = String::from_utf8_lossy(key);
            if !harmless(&key) && !more.contains(&&*key) {
                let (key, file) = (key.escape_debug(), file.display());
                let reason = format!(
                    "its {file} sets `{key}`, which is not used here; \
                     take it out with `git config --file {file} --unset-all {key}`, or use git by hand"
                );
                return Err(failed(doing, &reason));
            }
        }
        Ok(())
    }
}

fn harmless(key: &str) -> bool {
    HARMLESS.contains(&key)
        || HARMLESS_BELOW.iter().any(|(section, last)| {
            let rest = key.strip_prefix(section).and_then(|rest| rest.strip_prefix('.'));
            // A remote that is called like an address is taken for that address.
            rest.and_then(|rest| rest.rsplit_once('.')).is_some_and(|(name, key)| {
                last.contains(&key) && !name.contains(':') && !name.starts_with('/')
            })
        })
}

/// The folder that git takes for the repository when it is given this one.
fn repository(given: &Path, doing: &str) -> Result<PathBuf, Error> {
    let none = |at: &Path| failed(doing, &format!("{} is no git repository", at.display()));
    let mut with = given.as_os_str().to_owned();
    with.push(".git");
    let folder = if given.exists() { given } else { Path::new(&with) };
    let folder = folder.canonicalize().map_err(|_| none(given))?;
    let dir = folder.join(".git");
    match dir.symlink_metadata() {
        Ok(meta) if meta.is_dir() => Ok(dir),
        // Its real place would be a matter of one more file.
        Ok(_) => Err(failed(doing, &format!("{} is no folder", dir.display()))),
        Err(_) if folder.join("HEAD").exists() => Ok(folder),
        Err(_) => Err(none(given)),
    }
}
