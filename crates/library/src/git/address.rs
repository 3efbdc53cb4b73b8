//! Addresses, revisions and commits: values that exist only in a form that git cannot take for an
//! option or a command.

use std::fmt;
use std::path::Path;

use ringfence_bundle::first_invisible;

use crate::Error;

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remote {
    address: String,
    typed: bool,
}

impl Remote {
    /// An address that a manifest names: https or ssh.
    ///
    /// # Errors
    /// [`Error::Git`]: it is neither, or holds what an address has no use for.
    pub fn declared(address: &str) -> Result<Self, Error> {
        let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("ssh://"));
        let fits = rest.is_some_and(|rest| {
            let authority = rest.split('/').next().unwrap_or_default();
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            // `?`, `#` and `\` end a host for some readers, an escape hides another for others.
            let host_fits =
                host.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:[]".contains(&b));
            let user_fits =
                user.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-~:%+=,;!$&*".contains(&b));
            !host.is_empty()
                && !authority.starts_with('-')
                && !host.starts_with('-')
                && host_fits
                && user_fits
        });
        if fits && address.len() <= 2048 && address.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(Self { address: address.to_owned(), typed: false });
        }
        Err(unfit(address, "an `https://` or `ssh://` repository"))
    }

    /// An address that the person typed: https, ssh, `user@host:path`, or a folder by its absolute
    /// path.
    ///
    /// # Errors
    /// [`Error::Git`]: it is none of these.
    pub fn typed(address: &str) -> Result<Self, Error> {
        if Path::new(address).is_absolute() && plain(address) {
            return Ok(Self { address: address.to_owned(), typed: true });
        }
        if let Some((user, host, path)) = scp(address) {
            return Self::declared(&format!("ssh://{user}@{host}/{path}"));
        }
        Self::declared(address)
            .map_err(|_| unfit(address, "an `https://` or `ssh://` repository or a folder's path"))
    }

    /// As git is given it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.address
    }

    /// The host that is contacted; `None` for a folder.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let rest = self.address.split_once("://")?.1;
        rest.split('/').next()?.rsplit('@').next()
    }

    /// What `GIT_ALLOW_PROTOCOL` is set to.
    pub(super) fn protocols(&self) -> &'static str {
        if self.typed { "https:ssh:file" } else { "https:ssh" }
    }
}

impl fmt::Display for Remote {
    /// Without a password that an address may hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.address.split_once("://") else {
            return f.write_str(&self.address);
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        match host.rsplit_once('@') {
            Some((user, host)) if user.contains(':') => {
                let user = user.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}:***@{host}/{path}")
            }
            _ => f.write_str(&self.address),
        }
    }
}

/// `user@host:path`, as scp takes it.
fn scp(address: &str) -> Option<(&str, &str, &str)> {
    let (front, path) = address.split_once(':')?;
    let (user, host) = front.split_once('@')?;
    let word = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let fits = word(user) && word(host) && !path.is_empty() && !path.starts_with(['/', '-']);
    fits.then_some((user, host, path))
}

fn plain(text: &str) -> bool {
    first_invisible(text).is_none() && !text.contains(['\n', '\r', '\t'])
}

/// A commit, tag or branch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rev(String);

impl Rev {
    /// Checks a revision: letters, digits, `.`, `_`, `/`, `-`; begins with a letter or digit; no
    /// `..`.
    ///
    /// # Errors
    /// [`Error::Git`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let fits = (1..=255).contains(&text.len())
            && text.as_bytes()[0].is_ascii_alphanumeric()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(&b))
            && !text.contains("..");
        if fits { Ok(Self(text.to_owned())) } else { Err(unfit(text, "a commit, tag or branch")) }
    }

    /// As git is given it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a whole commit id.
    #[must_use]
    pub fn is_commit(&self) -> bool {
        Commit::parse(&self.0).is_ok()
    }
}

impl From<&Commit> for Rev {
    fn from(commit: &Commit) -> Self {
        Self(commit.0.clone())
    }
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A whole commit id: 40 or 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commit(String);

impl Commit {
    /// Checks an id.
    ///
    /// # Errors
    /// [`Error::Git`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if matches!(text.len(), 40 | 64) && text.bytes().all(hex) {
            return Ok(Self(text.to_owned()));
        }
        Err(unfit(text, "a commit: 40 or 64 lower-case hex digits"))
    }

    /// Its digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn unfit(text: &str, expected: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    super::failed("read an address", &format!("`{}` is not {expected}", shown.escape_debug()))
}
