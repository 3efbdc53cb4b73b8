//! Linked folders and their remotes: what comes in, what goes out, and no literal secret with it.

use std::path::{Path, PathBuf};

use ringfence_bundle::{Id, literals, read_content};

use super::change::files;
use super::{Library, Linked, SHELVES};
use crate::{Change, Error, Git, Remote};

/// A literal secret in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where: a file, and the commit that adds it where it is not the work tree's.
    pub path: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// Which rule found it and what may be shown of it, never the secret itself.
    pub what: String,
}

/// Looks for literal secrets in a file's path and in its bytes.
pub(super) fn scan(path: &Path, bytes: &[u8]) -> Vec<Finding> {
    let find = |bytes: &[u8], shown: &Path| -> Vec<Finding> {
        let found = literals::find(bytes, literals::Context::File(path)).into_iter();
        let what = |it: &literals::Literal| format!("{} {}", it.rule, it.preview);
        found.map(|it| Finding { path: shown.to_owned(), line: it.line, what: what(&it) }).collect()
    };
    let named = find(path.as_os_str().as_encoded_bytes(), Path::new("(the name of a file)"));
    // Its name is not shown then.
    let shown = if named.is_empty() { path } else { Path::new("(that file)") };
    let inside = find(bytes, shown);
    named.into_iter().chain(inside).collect()
}

/// What happened to a linked folder, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// The folder.
    pub source: Id,
    /// Where its remote is.
    pub remote: Remote,
    /// Commits that came in, newest first.
    pub incoming: Vec<Change>,
    /// Commits that went out, newest first.
    pub outgoing: Vec<Change>,
    /// Files with changes that are in no commit; they stay here.
    pub unsettled: Vec<String>,
}

impl Library {
    /// Brings a linked folder and its remote together: commits come in if they follow from what is
    /// here, and go out if no literal secret is in them or in the folder's entries. `dry` only
    /// fetches, and says what would happen. `say` hears whom it is about to contact.
    ///
    /// # Errors
    /// [`Error::Secrets`]: nothing went out, and nothing came in; [`Error::Git`]: it is no
    /// repository, has no remote, the two went apart; [`Error::Foreign`]: what comes in holds a link.
    pub fn sync(
        &self,
        source: &Linked,
        git: &Git,
        dry: bool,
        say: &dyn Fn(&Linked, &Remote),
    ) -> Result<Synced, Error> {
        let repository = git.owned(&source.folder)?;
        let remote = repository.remote()?.ok_or_else(|| {
            Error::Library(format!(
                "`{}` has no remote: git -C {} remote add origin …",
                source.name,
                source.folder.display()
            ))
        })?;
        say(source, &remote);
        repository.fetch()?;
        let (incoming, outgoing) = (repository.incoming()?, repository.outgoing()?);
        let mut findings = here(source)?;
        repository.visit(&outgoing, &mut |commit, path, bytes| {
            let path = if path.is_empty() { "(message)" } else { path };
            let short = &commit.as_str()[..12];
            findings.extend(scan(Path::new(path), bytes).into_iter().map(|mut finding| {
                let path = finding.path.display();
                finding.path = PathBuf::from(format!("commit {short}: {path}"));
                finding
            }));
            Ok(())
        })?;
        if !findings.is_empty() {
            return Err(Error::Secrets(findings));
        }
        let unsettled = repository.unsettled()?;
        if !dry {
            if !incoming.is_empty() && !outgoing.is_empty() {
                return Err(Error::Library(format!(
                    "`{}` and {remote} went apart: {} commit(s) here and {} there; \
                     git -C {} pull --rebase",
                    source.name,
                    outgoing.len(),
                    incoming.len(),
                    source.folder.display()
                )));
            }
            repository.forward()?;
            if !outgoing.is_empty() {
                repository.push()?;
            }
        }
        Ok(Synced { source: source.name.clone(), remote, incoming, outgoing, unsettled })
    }

    /// Commits one path of a linked folder, where that is a git repository; whether it did.
    ///
    /// # Errors
    /// [`Error::Git`].
    pub fn commit(&self, source: &Id, git: &Git, path: &str, message: &str) -> Result<bool, Error> {
        let source = self.source(source.as_str())?;
        if source.folder.join(".git").symlink_metadata().is_err() {
            return Ok(false);
        }
        let repository = git.owned(&source.folder)?;
        // What was never committed leaves no trace when it goes.
        let below = format!("{path}/");
        if !repository.unsettled()?.iter().any(|it| it == path || it.starts_with(&below)) {
            return Ok(false);
        }
        Ok(repository.commit(&[path], message)?.is_some())
    }
}

/// Literal secrets in what a folder holds now.
fn here(source: &Linked) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for (_, folder, _) in SHELVES {
        match read_content(&source.folder, folder) {
            Ok(Some(content)) => findings.extend(
                files(folder, &content).flat_map(|(path, bytes)| scan(Path::new(&path), bytes)),
            ),
            Ok(None) => {}
            // A folder without a file.
            Err(ringfence_bundle::Error::Object { reason, .. }) if reason.contains("no file") => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(findings)
}
