//! Repositories that the person owns: registries and library folders. They have a work tree, and
//! what comes in is looked at before it is written there.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{self, Bounds, Ended};
use super::{Commit, Config, Git, Remote, Rev, beside, failed, tree};
use crate::Error;

/// What looks at each file of a commit: the commit, the path, the bytes.
pub type Each<'a> = dyn FnMut(&Commit, &str, &[u8]) -> Result<(), Error> + 'a;

/// A commit as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its id.
    pub commit: Commit,
    /// The first line of its message; from elsewhere, show it escaped.
    pub subject: String,
}

/// A repository with a work tree, by its folder.
#[derive(Debug, Clone)]
pub struct Owned<'a> {
    git: &'a Git,
    folder: PathBuf,
}

impl Git {
    /// Clones a repository that the person typed into a new folder. Nothing is written to the work
    /// tree unless all of it is regular files with plain names.
    ///
    /// # Errors
    /// [`Error::Git`], [`Error::Foreign`]. The folder is gone then.
    pub fn clone_owned(&self, from: &Remote, folder: &Path) -> Result<Owned<'_>, Error> {
        let doing = format!("clone {from}");
        let parent = folder.parent().filter(|parent| parent.is_absolute());
        let parent = parent.ok_or_else(|| failed(&doing, "the folder's path is not absolute"))?;
        if folder.exists() {
            return Err(failed(&doing, &format!("{} is there already", folder.display())));
        }
        std::fs::create_dir_all(parent)
            .map_err(|source| Error::Write { path: parent.to_owned(), source })?;
        let words = [
            "clone",
            "--quiet",
            "--no-checkout",
            "--no-local",
            "--no-tags",
            "--single-branch",
            "--no-recurse-submodules",
            "--template=",
            "--origin=origin",
            "--end-of-options",
            from.as_str(),
        ];
        self.serves(from, &doing)?;
        let mut command = self.command(parent, Config::Person, from.protocols(), &words);
        command.env_remove("GIT_DIR").arg(folder);
        let bounds = Bounds { folder: Some(folder.to_owned()), ..Bounds::NETWORK };
        let cloned = process::run(command, Vec::new(), &bounds, &doing)
            .and_then(|ended| if ended.success { Ok(()) } else { Err(ended.error(&doing)) });
        let filled = cloned.and_then(|()| {
            let owned = self.owned(folder)?;
            // As it was given, so that it can be compared.
            owned.local(&["config", "remote.origin.url", from.as_str()], &doing)?;
            if let Some(head) = owned.head()? {
                tree::check(self, &owned.git_dir(), &head)?;
                owned.local(&["reset", "--quiet", "--hard", head.as_str()], &doing)?;
            }
            Ok(owned)
        });
        if filled.is_err() {
            super::remove(folder)?;
        }
        filled
    }

    /// A repository that is there. Its own configuration must hold nothing that makes git run a
    /// program: it lies where an agent may have written.
    ///
    /// # Errors
    /// [`Error::Git`]: it is no repository with a `.git` folder of its own, or a key of its
    /// configuration is not one of the harmless.
    pub fn owned(&self, folder: &Path) -> Result<Owned<'_>, Error> {
        let doing = format!("use the repository {}", folder.display());
        let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let dir = folder.join(".git");
        if !folder.is_absolute() || !is_dir(folder) || !is_dir(&dir) {
            return Err(failed(
                &doing,
                "it is not a git repository with a `.git` folder of its own",
            ));
        }
        self.own(&dir, &[], &doing)?;
        let owned = Owned { git: self, folder: folder.to_owned() };
        owned.whole(&doing)?;
        Ok(owned)
    }
}

impl Owned<'_> {
    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its `.git` folder.
    pub(crate) fn git_dir(&self) -> PathBuf {
        self.folder.join(".git")
    }

    /// The commit at hand; `None` before the first.
    ///
    /// # Errors
    /// [`Error::Git`].
    pub fn head(&self) -> Result<Option<Commit>, Error> {
        self.commit_of("HEAD")
    }

    /// The branch at hand.
    ///
    /// # Errors
    /// [`Error::Git`]: none is, or its name is not a plain one.
    pub fn branch(&self) -> Result<Rev, Error> {
        let doing = "find the branch at hand";
        let name = self.local(&["symbolic-ref", "--quiet", "--short", "HEAD"], doing)?;
        Rev::parse(name.trim())
    }

    /// Where `origin` is; `None` when it has none.
    ///
    /// # Errors
    /// [`Error::Git`]: it is an address that is not used here.
    pub fn remote(&self) -> Result<Option<Remote>, Error> {
        let command = self.command(
            Config::Nobody,
            "none",
            &["config", "--local", "--get", "remote.origin.url"],
        );
        let ended = process::run(command, Vec::new(), &Bounds::LOCAL, "find the remote")?;
        let url = String::from_utf8_lossy(&ended.stdout);
        if ended.success { Remote::typed(url.trim()).map(Some) } else { Ok(None) }
    }

    /// Gets what the remote's branch of the same name has, and says which commit that is; `None`
    /// when it has no such branch yet. Changes no file.
    ///
    /// # Errors
    /// [`Error::Git`].
    pub fn fetch(&self) -> Result<Option<Commit>, Error> {
        let (remote, branch) = self.upstream()?;
        let doing = format!("fetch {branch} of {remote}");
        self.git.serves(&remote, &doing)?;
        let refs = format!("+refs/heads/{branch}:{}", tracking(&branch));
        let words = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--refmap=",
            "--end-of-options",
            remote.as_str(),
            &refs,
        ];
        let command = self.command(Config::Person, remote.protocols(), &words);
        let bounds = Bounds { folder: Some(self.git_dir()), ..Bounds::NETWORK };
        let ended = process::run(command, Vec::new(), &bounds, &doing)?;
        if ended.success {
            return self.commit_of(&tracking(&branch));
        }
        if ended.stderr.contains("couldn't find remote ref") {
            // What is remembered of it is not there: all that is here would go out.
            self.local(&["update-ref", "-d", &tracking(&branch)], &doing)?;
            return Ok(None);
        }
        Err(ended.error(&doing))
    }

    /// What the last [`Owned::fetch`] brought and is not in the branch at hand, newest first.
    ///
    /// # Errors
    /// [`Error::Git`].
    pub fn incoming(&self) -> Result<Vec<Change>, Error> {
        let branch = self.branch()?;
        let Some(theirs) = self.commit_of(&tracking(&branch))? else { return Ok(Vec::new()) };
        self.log(&theirs, self.head()?.as_ref())
    }

    /// What the branch at hand has and the last [`Owned::fetch`] did not bring, newest first.
    ///
    /// # Errors
    /// [`Error::Git`].
    pub fn outgoing(&self) -> Result<Vec<Change>, Error> {
        let Some(ours) = self.head()? else { return Ok(Vec::new()) };
        let branch = self.branch()?;
        self.log(&ours, self.commit_of(&tracking(&branch))?.as_ref())
    }

    /// Moves the branch and the work tree on to what was fetched, if that follows from what is
    /// here. Everything in it must be a regular file with a plain name.
    ///
    /// # Errors
    /// [`Error::Foreign`]; [`Error::Git`]: the two went apart, or a changed file is in the way.
    pub fn forward(&self) -> Result<(), Error> {
        let branch = self.branch()?;
        let Some(theirs) = self.commit_of(&tracking(&branch))? else { return Ok(()) };
        tree::check(self.git, &self.git_dir(), &theirs)?;
        let doing = format!("move {branch} on to {theirs}");
        self.local(
            &["merge", "--ff-only", "--no-overwrite-ignore", "--quiet", theirs.as_str()],
            &doing,
        )
        .map(drop)
    }

    /// Makes the branch, the index and the work tree those of the remote, whatever lies here: for a
    /// clone in which nobody works. False when that cannot be done with this clone, and one is to be
    /// made anew.
    ///
    /// # Errors
    /// [`Error::Foreign`]; [`Error::Git`]: the remote cannot be asked, or what it has does not follow
    /// from what it had.
    pub fn mirror(&self) -> Result<bool, Error> {
        let branch = self.branch()?;
        let name = tracking(&branch);
        let before = self.commit_of(&name)?;
        let Some(theirs) = self.fetch()? else { return Ok(self.head()?.is_none()) };
        let doing = format!("move {branch} on to {theirs}");
        if let Some(before) = before {
            let words = ["merge-base", "--is-ancestor", before.as_str(), theirs.as_str()];
            let command = self.command(Config::Nobody, "none", &words);
            if !process::run(command, Vec::new(), &Bounds::LOCAL, &doing)?.success {
                self.local(&["update-ref", &name, before.as_str()], &doing)?;
                let reason = format!("it does not follow from {before}: its history was rewritten");
                return Err(failed(&doing, &reason));
            }
        }
        tree::check(self.git, &self.git_dir(), &theirs)?;
        for words in [&["reset", "--quiet", "--hard", theirs.as_str()][..], &["clean", "-ffdxq"]] {
            if self.local(words, &doing).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Commits these paths, relative to its folder, with the person's name; `None` when nothing in
    /// them changed.
    ///
    /// # Errors
    /// [`Error::Git`]: the person's git has no `user.name` and `user.email`, …
    pub fn commit(&self, paths: &[&str], message: &str) -> Result<Option<Commit>, Error> {
        let doing = "commit";
        let mut words = vec!["add", "--all", "--"];
        words.extend(paths);
        self.local(&words, doing)?;
        let mut words =
            vec!["diff", "--cached", "--quiet", "--no-ext-diff", "--ignore-submodules=all", "--"];
        words.extend(paths);
        let command = self.command(Config::Nobody, "none", &words);
        if process::run(command, Vec::new(), &Bounds::LOCAL, doing)?.success {
            return Ok(None);
        }
        let (name, email) = (self.person("user.name")?, self.person("user.email")?);
        // What else the person has staged stays staged.
        let mut words = vec!["commit", "--quiet", "--no-verify", "--no-gpg-sign", "--only"];
        words.extend(["--message", message, "--"]);
        words.extend(paths);
        let mut command = self.command(Config::Nobody, "none", &words);
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), &name).env(format!("GIT_{who}_EMAIL"), &email);
        }
        let ended = process::run(command, Vec::new(), &Bounds::LOCAL, doing)?;
        if ended.success { self.head() } else { Err(ended.error(doing)) }
    }

    /// Pushes the branch at hand. Never by force.
    ///
    /// # Errors
    /// [`Error::Git`]: the remote has commits that are not here, or refuses.
    pub fn push(&self) -> Result<(), Error> {
        let (remote, branch) = self.upstream()?;
        let doing = format!("push {branch} to {remote}");
        self.git.serves(&remote, &doing)?;
        let refs = format!("refs/heads/{branch}:refs/heads/{branch}");
        let mut words = vec![
            "push",
            "--quiet",
            "--no-verify",
            "--no-signed",
            "--no-follow-tags",
            "--recurse-submodules=no",
        ];
        if remote.host().is_none() {
            words.push(beside::RECEIVE);
        }
        words.extend(["--end-of-options", remote.as_str(), &refs]);
        let command = self.command(Config::Person, remote.protocols(), &words);
        let ended = process::run(command, Vec::new(), &Bounds::NETWORK, &doing)?;
        if !ended.success {
            return Err(ended.error(&doing));
        }
        if let Some(head) = self.head()? {
            self.local(&["update-ref", &tracking(&branch), head.as_str()], &doing)?;
        }
        Ok(())
    }

    /// Gives every file that these commits add or change, and each commit itself (who made it, its
    /// message, whatever else it says) under an empty path, to `each`, which may stop it.
    ///
    /// # Errors
    /// [`Error::Git`], [`Error::Foreign`], and what `each` gives.
    pub fn visit(&self, changes: &[Change], each: &mut Each<'_>) -> Result<(), Error> {
        for Change { commit, .. } in changes {
            let words = ["cat-file", "commit", commit.as_str()];
            each(commit, "", &tree::output(self.git, &self.git_dir(), &words, "read a commit")?)?;
            for (path, bytes) in tree::changed(self.git, &self.git_dir(), commit)? {
                each(commit, &path, &bytes)?;
            }
        }
        Ok(())
    }

    /// Paths that differ from the commit at hand, or are new; ignored ones left out.
    ///
    /// # Errors
    /// [`Error::Git`].
    pub fn unsettled(&self) -> Result<Vec<String>, Error> {
        let words = [
            "status",
            "--porcelain",
            "-z",
            "--no-renames",
            "--untracked-files=all",
            "--ignore-submodules=all",
        ];
        let text = self.local(&words, "look for changes")?;
        Ok(text.split('\0').filter_map(|row| row.get(3..)).map(str::to_owned).collect())
    }

    fn log(&self, to: &Commit, without: Option<&Commit>) -> Result<Vec<Change>, Error> {
        let not = without.map(|commit| format!("^{commit}"));
        let mut words = vec!["log", "-z", "--format=%H %s", to.as_str()];
        words.extend(not.as_deref());
        words.push("--");
        let text = self.local(&words, "list commits")?;
        let rows = text.split('\0').filter_map(|row| row.trim_end_matches('\n').split_once(' '));
        rows.map(|(id, subject)| {
            Ok(Change { commit: Commit::parse(id)?, subject: subject.to_owned() })
        })
        .collect()
    }

    fn upstream(&self) -> Result<(Remote, Rev), Error> {
        let none = || failed("find the remote", "the repository has no remote `origin`");
        Ok((self.remote()?.ok_or_else(none)?, self.branch()?))
    }

    fn commit_of(&self, name: &str) -> Result<Option<Commit>, Error> {
        let name = format!("{name}^{{commit}}");
        let words = ["rev-parse", "--quiet", "--verify", "--end-of-options", &name];
        let command = self.command(Config::Nobody, "none", &words);
        let ended = process::run(command, Vec::new(), &Bounds::LOCAL, "find a commit")?;
        let text = String::from_utf8_lossy(&ended.stdout);
        if ended.success { Commit::parse(text.trim()).map(Some) } else { Ok(None) }
    }

    /// What the person's git, or this repository, says of its owner.
    fn person(&self, key: &str) -> Result<String, Error> {
        let command = self.command(Config::Person, "none", &["config", "--get", key]);
        let Ended { success, stdout, .. } =
            process::run(command, Vec::new(), &Bounds::LOCAL, "read the person's name")?;
        let value = String::from_utf8_lossy(&stdout).trim().to_owned();
        if success && !value.is_empty() {
            return Ok(value);
        }
        Err(failed("commit", &format!("git does not know your {key}: git config --global {key} …")))
    }

    /// No repository lies in it: git would look for changes there too, by that one's configuration.
    fn whole(&self, doing: &str) -> Result<(), Error> {
        let listed = self.local(&["ls-files", "--stage", "-z"], doing)?;
        let inner = listed.split('\0').find(|row| row.starts_with("160000 "));
        let Some((_, path)) = inner.and_then(|row| row.split_once('\t')) else { return Ok(()) };
        Err(Error::Foreign { path: path.to_owned(), reason: "it is a submodule".to_owned() })
    }

    fn local(&self, words: &[&str], doing: &str) -> Result<String, Error> {
        let command = self.command(Config::Nobody, "none", words);
        let ended = process::run(command, Vec::new(), &Bounds::LOCAL, doing)?;
        if !ended.success {
            return Err(ended.error(doing));
        }
        String::from_utf8(ended.stdout).map_err(|_| failed(doing, "git's answer is not UTF-8"))
    }

    fn command(&self, config: Config, protocols: &str, words: &[&str]) -> Command {
        let mut command = self.git.command(&self.git_dir(), config, protocols, words);
        command.env("GIT_WORK_TREE", &self.folder).current_dir(&self.folder);
        command
    }
}

fn tracking(branch: &Rev) -> String {
    format!("refs/remotes/origin/{branch}")
}
