//! The system's `git`, used so that what a repository holds cannot act: bytes come out of it, and
//! nothing of it is checked out, run, filtered or followed.
//!
//! No shell; addresses and revisions are values that exist only in valid form; the environment is an
//! allow-list; protocols are https and ssh alone (a folder too where the person typed it); the
//! system's configuration is left out, the person's own is read only where a remote is contacted,
//! for credentials; hooks, file-system monitors, replaced objects, lazy fetches and questions at the
//! terminal are off; time, bytes and entries are bounded.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_bundle::{Content, resolve_program};

use crate::Error;

mod address;
mod beside;
mod owned;
mod process;
mod tree;

pub use address::{Commit, Remote, Rev};
pub use owned::{Change, Each, Owned};
use process::{Bounds, Ended};
pub(crate) use tree::{distinct, plain};

#[cfg(test)]
mod tests;

/// Variables of the caller that git needs: who the person is, how hosts are reached, and which
/// certificates count.
const KEPT: [&str; 22] = [
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CACHE_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "GNUPGHOME",
    "KRB5CCNAME",
    "KRB5_CONFIG",
];

/// What is always so, whatever a repository or a person's configuration says.
const SETTINGS: [&str; 27] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.askPass=",
    "core.gitProxy=",
    "core.symlinks=true",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.bigFileThreshold=16m",
    "core.packedGitLimit=256m",
    "core.deltaBaseCacheLimit=64m",
    "protocol.allow=never",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=120",
    "transfer.fsckObjects=true",
    "transfer.bundleURI=false",
    "fetch.fsckObjects=true",
    "fetch.unpackLimit=1",
    "fetch.writeCommitGraph=false",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// SSH that asks nothing, and that hands a host that a manifest named nothing of the person's: no
/// agent, no display, no port.
const SSH: &str = "ssh -oBatchMode=yes -oPermitLocalCommand=no -oForwardAgent=no -oForwardX11=no \
                   -oClearAllForwardings=yes -oTunnel=no -oServerAliveInterval=30";

/// Whose configuration is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Config {
    /// The person's: where a remote is contacted, for credentials and proxies.
    Person,
    /// Nobody's: wherever files are read or written.
    Nobody,
}

/// The git program of this machine.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    environment: BTreeMap<OsString, OsString>,
}

impl Git {
    /// The git that the caller's PATH finds, in the caller's environment as far as git needs it.
    ///
    /// # Errors
    /// [`Error::Git`]: there is none.
    pub fn of_machine() -> Result<Self, Error> {
        Self::with(std::env::vars_os())
    }

    /// As [`Git::of_machine`], in another environment.
    ///
    /// # Errors
    /// [`Error::Git`]: its PATH finds no git.
    pub fn with(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Error> {
        let all: BTreeMap<OsString, OsString> = environment.into_iter().collect();
        // An entry that is not absolute would let the folder at hand decide what runs.
        let search = all.get(OsStr::new("PATH")).map(|path| {
            let absolute = std::env::split_paths(path).filter(|entry| entry.is_absolute());
            std::env::join_paths(absolute).unwrap_or_default()
        });
        let program = resolve_program("git", Path::new("/"), search.as_deref())
            .map_err(|_| failed("find the program git", "it is not installed, or not on PATH"))?;
        let mut environment: BTreeMap<OsString, OsString> =
            all.into_iter().filter(|(name, _)| KEPT.iter().any(|kept| name == *kept)).collect();
        environment
            .insert("PATH".into(), search.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()));
        for (name, value) in [
            ("LC_ALL", "C"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", ""),
            ("SSH_ASKPASS_REQUIRE", "never"),
            ("GCM_INTERACTIVE", "never"),
            ("GIT_SSH_COMMAND", SSH),
            ("GIT_SSH_VARIANT", "ssh"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_GRAFT_FILE", "/dev/null"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
        ] {
            environment.insert(name.into(), value.into());
        }
        Ok(Self { program, environment })
    }

    /// Brings one revision, without its history, into a bare repository that is made for it, and says
    /// which commit it is. At most 1 GiB, at most ten minutes. Nothing of it is checked out.
    ///
    /// # Errors
    /// [`Error::Git`]: the host cannot be reached or refuses, the revision is not there, objects are
    /// malformed, it is too large or too slow. [`Error::Write`].
    pub fn fetch(&self, from: &Remote, rev: &Rev, bare: &Path) -> Result<Commit, Error> {
        let doing = format!("fetch {rev} of {from}");
        let mut format =
            if rev.as_str().len() == 64 && rev.is_commit() { "sha256" } else { "sha1" };
        loop {
            self.init_bare(bare, format)?;
            let ended = self.try_fetch(from, rev, bare, &doing)?;
            if ended.success {
                break;
            }
            if format == "sha1" && ended.stderr.contains("mismatched algorithms") {
                format = "sha256";
                remove(bare)?;
                continue;
            }
            return Err(ended.error(&doing));
        }
        let words = ["rev-parse", "--verify", "--end-of-options", "FETCH_HEAD^{commit}"];
        let commit = Commit::parse(self.local(bare, &words, &doing)?.trim())?;
        if rev.is_commit() && commit.as_str() != rev.as_str() {
            return Err(failed(&doing, &format!("it is not a commit, it leads to {commit}")));
        }
        Ok(commit)
    }

    /// Brings exactly this commit: by its own name where the host allows that, else by the revision,
    /// which must still be it.
    ///
    /// # Errors
    /// As for [`Git::fetch`]; [`Error::Git`] naming both when the revision is another commit now.
    pub fn fetch_pinned(
        &self,
        from: &Remote,
        rev: &Rev,
        commit: &Commit,
        bare: &Path,
    ) -> Result<(), Error> {
        let first = match self.fetch(from, &commit.into(), bare) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if rev.as_str() == commit.as_str() {
            return Err(first);
        }
        remove(bare)?;
        let found = self.fetch(from, rev, bare)?;
        if found == *commit {
            return Ok(());
        }
        let reason =
            format!("{rev} is commit {found} now, and the host does not give the pinned one");
        Err(failed(&format!("fetch commit {commit} of {from}"), &reason))
    }

    /// The bytes of a folder or file of a commit: regular files alone. Reads objects, checks out
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Foreign`]: a symlink, a submodule, a name that is not plain, two names that differ
    /// only in case, too many, too large or too deep. [`Error::Git`].
    pub fn content(
        &self,
        bare: &Path,
        commit: &Commit,
        subpath: Option<&str>,
    ) -> Result<Content, Error> {
        tree::content(self, bare, commit, subpath)
    }

    fn init_bare(&self, bare: &Path, format: &str) -> Result<(), Error> {
        let doing = "make a bare repository";
        std::fs::create_dir_all(bare)
            .map_err(|source| Error::Write { path: bare.to_owned(), source })?;
        let format = format!("--object-format={format}");
        let words = ["init", "--quiet", "--bare", "--template=", &format];
        self.local(bare, &words, doing).map(drop)
    }

    fn try_fetch(
        &self,
        from: &Remote,
        rev: &Rev,
        bare: &Path,
        doing: &str,
    ) -> Result<Ended, Error> {
        self.serves(from, doing)?;
        let words = [
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--refmap=",
            "--end-of-options",
            from.as_str(),
            rev.as_str(),
        ];
        let bounds = Bounds { folder: Some(bare.to_owned()), ..Bounds::NETWORK };
        let command = self.command(bare, Config::Person, from.protocols(), &words);
        process::run(command, Vec::new(), &bounds, doing)
    }

    /// A command in a bare repository, with nobody's configuration and no protocol at all.
    fn local(&self, bare: &Path, words: &[&str], doing: &str) -> Result<String, Error> {
        let command = self.command(bare, Config::Nobody, "none", words);
        let ended = process::run(command, Vec::new(), &Bounds::LOCAL, doing)?;
        if !ended.success {
            return Err(ended.error(doing));
        }
        String::from_utf8(ended.stdout).map_err(|_| failed(doing, "git's answer is not UTF-8"))
    }

    fn command(&self, folder: &Path, config: Config, protocols: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .envs(&self.environment)
            .env("GIT_DIR", folder)
            .env("GIT_ALLOW_PROTOCOL", protocols)
            .env("GIT_CEILING_DIRECTORIES", "/")
            .current_dir(folder);
        if config == Config::Nobody {
            command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        }
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.args(words);
        command
    }
}

fn failed(doing: &str, reason: &str) -> Error {
    Error::Git { doing: doing.to_owned(), reason: reason.to_owned() }
}

fn remove(folder: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(folder) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Write { path: folder.to_owned(), source })
        }
        _ => Ok(()),
    }
}
