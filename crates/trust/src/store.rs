//! The machine's trust store, and the proof it gives.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_bundle::{
    Digest, Drift, Kind, Objects, Program, Programs, Snapshot, Who, Whose, on_machine, read_three,
};
use ringfence_record::{Event, MachineLog, RunId, read_machine};
use serde::{Deserialize, Serialize};

use crate::file::{self, Grants};
use crate::gate::refused;
use crate::review::Review;
use crate::{Error, Moved, moved, review};

/// Whether a bundle may start anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody said yes.
    Untrusted,
    /// These bytes were said yes to, every pin holds, and the programs are the ones that were shown.
    Trusted,
    /// Other bytes were said yes to, a pin no longer holds, or a program is another.
    Changed,
}

/// Proof that a person said yes to exactly these bytes, that every pin holds, and that the commands
/// run the very files that were shown. Made only by [`Store::check`].
#[derive(Debug, Clone)]
pub struct TrustedBundle {
    snapshot: Snapshot,
    consent: Digest,
    programs: Vec<Program>,
    whose: Whose,
    warnings: Vec<Drift>,
    /// The store as it was: while its bytes are these, it still says yes.
    store: Arc<[u8]>,
}

impl TrustedBundle {
    /// What was trusted.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Its consent digest.
    #[must_use]
    pub fn consent(&self) -> Digest {
        self.consent
    }

    /// The files outside the lock that its commands run, as they were proved.
    #[must_use]
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// Pins that do not hold and do not refuse (see [`crate::gate`]).
    #[must_use]
    pub fn warnings(&self) -> &[Drift] {
        &self.warnings
    }

    /// Looks again at what the lock pins of the project's programs, right before something of the image's
    /// may be told to run one.
    ///
    /// # Errors
    /// [`Error::Drifted`], [`Error::Bundle`].
    pub fn prove_pinned(&self) -> Result<(), Error> {
        refused(&self.snapshot.program_drift()?)
    }

    /// Looks again at what one command runs, right before `file`, which was resolved for it, starts:
    /// its programs on the machine and those of the project must be the very files that were proved,
    /// and `file` must be one of them.
    ///
    /// # Errors
    /// [`Error::Programs`], [`Error::Drifted`], [`Error::Missing`], [`Error::Bundle`].
    pub fn prove_program(
        &self,
        who: &Who,
        file: &Path,
        search: Option<&OsStr>,
    ) -> Result<(), Error> {
        let (manifest, project) = (&self.snapshot.manifest, &self.snapshot.project);
        let now = on_machine(manifest, project, search, &Whose::Only(who.clone()));
        let before: Vec<Program> =
            self.programs.iter().filter(|program| program.who == *who).cloned().collect();
        same_programs(&before, &now)?;
        refused(&self.snapshot.program_drift()?)?;
        let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let inside = real.strip_prefix(project).ok().and_then(Path::to_str);
        let lock = self.snapshot.lock.as_ref();
        let pinned = inside
            .is_some_and(|path| lock.is_some_and(|lock| lock.pin(Kind::Program, path).is_some()));
        if pinned || before.iter().any(|program| program.path == real) {
            return Ok(());
        }
        let reason = format!("{} is not what was trusted", real.display());
        Err(Error::Missing { who: who.to_string(), reason })
    }
}

/// `<home>/trust.json`.
#[derive(Debug, Clone)]
pub struct Store {
    home: PathBuf,
    objects: Objects,
}

/// One row of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Consent digest.
    pub consent: Digest,
    /// When, RFC 3339 UTC.
    pub at: String,
    /// The programs that were shown with it; `None` in a row of version 1, which did not record them:
    /// such a bundle counts as changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<Program>>,
}

impl Store {
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The store of this home. Reads nothing yet.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), objects: Objects::of(home) }
    }

    /// Everything that a person is asked about, in one value: the snapshot, the programs that its
    /// commands run when looked up on `search` (a PATH), what the lock and the grant say of both.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Bundle`].
    pub fn review(&self, snapshot: Snapshot, search: Option<&OsStr>) -> Result<Review, Error> {
        let (_, grants) = self.load()?;
        let granted = self.granted(&grants, &snapshot.project)?.cloned();
        let programs = on_machine(&snapshot.manifest, &snapshot.project, search, &Whose::All);
        let drift = snapshot.drift(&self.objects)?;
        let judged = granted.as_ref().map(|grant| {
            judge(grant, &snapshot)?;
            match judge_programs(&snapshot, grant, &programs, &Whose::All) {
                // It was not there either when a person said yes: it cannot start, and nothing moved.
                Ok(()) | Err(Error::Missing { .. }) => refused(&drift),
                Err(error) => Err(error),
            }
        });
        let state = match judged {
            None => State::Untrusted,
            Some(Ok(())) => State::Trusted,
            Some(Err(_)) => State::Changed,
        };
        let unseen = self.unseen(&snapshot);
        Ok(Review::new(snapshot, programs, state, drift, granted, unseen))
    }

    /// What is pinned to come from elsewhere, and was not brought from there by this machine.
    fn unseen(&self, snapshot: &Snapshot) -> Vec<(Kind, String)> {
        let pin = |kind, name: &str| snapshot.lock.as_ref()?.pin(kind, name);
        let unseen = |kind, name: &str| {
            let Some(pin) = pin(kind, name) else { return false };
            let origin = pin.origin.as_ref();
            origin.is_some_and(|origin| !self.objects.came_from(kind, &pin.digest, origin))
        };
        let names = snapshot.sources().map(|(kind, id, _)| (kind, id.to_string()));
        names.filter(|(kind, name)| unseen(*kind, name)).collect()
    }

    /// Every project that was said yes to, with its grant.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn grants(&self) -> Result<BTreeMap<PathBuf, Grant>, Error> {
        let (_, grants) = self.load()?;
        Ok(grants.into_iter().map(|(project, grant)| (project.into(), grant)).collect())
    }

    /// The proof, or why there is none: nobody said yes, these are other bytes, there is no lock, a
    /// program is another (looked up on `search`; the agent's own is left out when a person typed
    /// another command), a pin no longer holds, in this order. Nothing that a bundle names is read
    /// before its own bytes were found to be the trusted ones.
    ///
    /// # Errors
    /// [`Error::Untrusted`], [`Error::Changed`], [`Error::Unlocked`], [`Error::Unrecorded`],
    /// [`Error::Programs`], [`Error::Drifted`], [`Error::Store`], [`Error::Bundle`].
    pub fn check(
        &self,
        snapshot: Snapshot,
        search: Option<&OsStr>,
        whose: Whose,
    ) -> Result<TrustedBundle, Error> {
        let (bytes, grants) = self.load()?;
        let grant = self
            .granted(&grants, &snapshot.project)?
            .ok_or_else(|| Error::Untrusted { project: snapshot.project.clone() })?;
        let consent = judge(grant, &snapshot)?;
        let programs = on_machine(&snapshot.manifest, &snapshot.project, search, &whose);
        judge_programs(&snapshot, grant, &programs, &whose)?;
        // Pinned trees are looked at last: they may be large, and must not matter before.
        let drift = snapshot.drift(&self.objects)?;
        refused(&drift)?;
        let store = bytes.unwrap_or_default().into();
        let programs = programs.found;
        Ok(TrustedBundle { snapshot, consent, programs, whose, warnings: drift, store })
    }

    /// Whether the project's three files are still the bytes of this proof and the store still says
    /// yes. Reads them anew; cheap enough for every call. Anything that cannot be read is a no.
    #[must_use]
    pub fn still(&self, bundle: &TrustedBundle) -> bool {
        let project = &bundle.snapshot.project;
        let Ok((manifest, local, lock)) = read_three(project) else { return false };
        // Told apart by their bytes: a lock may be large, and comparing costs a fraction of a digest.
        let read = &bundle.snapshot;
        if manifest != read.manifest_bytes || local != read.local_bytes || lock != read.lock_bytes {
            return false;
        }
        let Ok(Some(bytes)) = file::read(&self.home) else { return false };
        if *bytes == *bundle.store {
            return true;
        }
        // Another project's grant may have changed.
        let Ok(grants) = file::parse(&self.home, Some(&bytes)) else { return false };
        let granted = self.granted(&grants, project);
        matches!(granted, Ok(Some(grant)) if grant.consent == bundle.consent
            && recorded(grant, &bundle.whose).is_some_and(|programs| programs == bundle.programs))
    }

    /// Whether consent can be given at all: the lock is there and holds.
    ///
    /// # Errors
    /// [`Error::Unlocked`], [`Error::Drifted`].
    pub fn grantable(review: &Review) -> Result<(), Error> {
        locked(review.snapshot())?;
        refused(review.drift())
    }

    /// Records consent to what was reviewed: intent event, store, settled event, under a file lock.
    /// `consented` must be the review digest as text. A change that a killed process left half done
    /// is settled first, by what the store really holds.
    ///
    /// # Errors
    /// [`Error::WrongDigest`], [`Error::Unlocked`], [`Error::Drifted`], [`Error::Store`],
    /// [`Error::Write`], [`Error::Bundle`], [`Error::Record`].
    pub fn grant(&self, review: &Review, consented: &str, log: &MachineLog) -> Result<(), Error> {
        let found = review.digest();
        if consented != found.to_string() {
            return Err(Error::WrongDigest { given: review::shown(consented, 80), found });
        }
        let snapshot = review.snapshot();
        locked(snapshot)?;
        refused(&snapshot.drift(&self.objects)?)?;
        let project = self.key(&snapshot.project)?;
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let _lock = file::lock(&self.home)?;
        self.reconcile(log)?;
        let (before, mut grants) = self.load()?;
        let programs = Some(review.programs().found.clone());
        let grant = Grant { consent: snapshot.consent_digest(), at: now(), programs };
        let previous = grants.insert(project.clone(), grant.clone());
        let action = if previous.is_some() { "regrant" } else { "grant" };
        self.change(log, action, project, &grant, before, grants)
    }

    /// Puts one grant in the place of another of the same project, if that other is the one that the
    /// store holds under the lock. False when it is not.
    pub(crate) fn exchange(
        &self,
        project: &Path,
        from: &Grant,
        consent: Digest,
        log: &MachineLog,
    ) -> Result<bool, Error> {
        let project = self.key(project)?;
        let _lock = file::lock(&self.home)?;
        self.reconcile(log)?;
        let (before, mut grants) = self.load()?;
        if grants.get(&project) != Some(from) {
            return Ok(false);
        }
        let to = Grant { consent, at: now(), programs: from.programs.clone() };
        grants.insert(project.clone(), to.clone());
        self.change(log, "carry", project, &to, before, grants)?;
        Ok(true)
    }

    /// The grant that the store holds for a project.
    pub(crate) fn grant_of(&self, project: &Path) -> Result<Option<Grant>, Error> {
        let (_, grants) = self.load()?;
        Ok(self.granted(&grants, project)?.cloned())
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Takes consent back. False when there was none.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Write`], [`Error::Record`].
    pub fn revoke(&self, project: &Path, log: &MachineLog) -> Result<bool, Error> {
        // A project that is gone can be taken out by the path it had.
        let project = project.canonicalize().unwrap_or_else(|_| project.to_owned());
        let project = self.key(&project)?;
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let _lock = file::lock(&self.home)?;
        self.reconcile(log)?;
        let (before, mut grants) = self.load()?;
        let Some(grant) = grants.remove(&project) else { return Ok(false) };
        self.change(log, "revoke", project, &grant, before, grants)?;
        Ok(true)
    }

    /// Settles every change in the machine log that says what was about to happen and not what did,
    /// by what the store holds. Only under the lock.
    fn reconcile(&self, log: &MachineLog) -> Result<(), Error> {
        let mut open = BTreeMap::new();
        for entry in read_machine(&self.home)?.into_iter().flatten() {
            match entry?.event {
                Event::TrustIntended { action, project, consent, change, review } => {
                    open.insert(change, (action, project, consent, review));
                }
                Event::TrustSettled { change, .. } => {
                    open.remove(&change);
                }
                _ => {}
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        let (_, grants) = self.load()?;
        for (change, (action, project, consent, review)) in open {
            let held = grants.get(&project);
            let happened = match action.as_str() {
                "revoke" => held.is_none(),
                _ => held.is_some_and(|grant| {
                    grant.consent.to_string() == consent
                        && review.is_none_or(|review| digest_of(grant).to_string() == review)
                }),
            };
            settle(log, change, happened)?;
        }
        Ok(())
    }

    fn change(
        &self,
        log: &MachineLog,
        action: &str,
        project: String,
        grant: &Grant,
        before: Option<Vec<u8>>,
        grants: Grants,
    ) -> Result<(), Error> {
        let change = RunId::fresh().to_string();
        let _receipt = log.append(Event::TrustIntended {
            action: action.to_owned(),
            project,
            consent: grant.consent.to_string(),
            change: change.clone(),
            review: Some(digest_of(grant).to_string()),
        })?;
        if let Err(error) = file::replace(&self.home, &file::render(grants)) {
            // Should this fail too, the next change settles it.
            drop(settle(log, change, false));
            return Err(error);
        }
        if let Err(error) = settle(log, change, true) {
            // Without its evidence the change must not stand. Should this fail too, the next change
            // finds the intent and settles it by what the store holds.
            let before = before.unwrap_or_else(|| file::render(Grants::new()));
            drop(file::replace(&self.home, &before));
            return Err(error);
        }
        Ok(())
    }

    fn load(&self) -> Result<(Option<Vec<u8>>, Grants), Error> {
        let bytes = file::read(&self.home)?;
        let grants = file::parse(&self.home, bytes.as_deref())?;
        Ok((bytes, grants))
    }

    fn granted<'a>(&self, grants: &'a Grants, project: &Path) -> Result<Option<&'a Grant>, Error> {
        Ok(grants.get(&self.key(project)?))
    }

    fn key(&self, project: &Path) -> Result<String, Error> {
        project.to_str().map(str::to_owned).ok_or_else(|| Error::Store {
            path: self.home.join(file::NAME),
            reason: format!("cannot hold {}: its path is not UTF-8", project.display()),
        })
    }
}

/// Compares a snapshot with its grant.
fn judge(grant: &Grant, snapshot: &Snapshot) -> Result<Digest, Error> {
    let found = snapshot.consent_digest();
    if found != grant.consent {
        let (project, trusted) = (snapshot.project.clone(), grant.consent);
        return Err(Error::Changed { project, trusted, found });
    }
    locked(snapshot)?;
    Ok(found)
}

/// Compares programs with those of the grant.
fn judge_programs(
    snapshot: &Snapshot,
    grant: &Grant,
    now: &Programs,
    whose: &Whose,
) -> Result<(), Error> {
    match recorded(grant, whose) {
        Some(before) => same_programs(&before, now),
        None => Err(Error::Unrecorded { project: snapshot.project.clone() }),
    }
}

/// The programs that were shown with a grant, of those who are asked about.
fn recorded(grant: &Grant, whose: &Whose) -> Option<Vec<Program>> {
    let programs = grant.programs.as_ref()?.iter();
    Some(programs.filter(|program| whose.includes(&program.who)).cloned().collect())
}

pub(crate) fn same_programs(before: &[Program], now: &Programs) -> Result<(), Error> {
    let moved: Vec<Moved> = moved::between(before, &now.found);
    if !moved.is_empty() {
        return Err(Error::Programs(moved));
    }
    match now.missing.first() {
        None => Ok(()),
        Some((who, reason)) => Err(Error::Missing { who: who.to_string(), reason: reason.clone() }),
    }
}

fn digest_of(grant: &Grant) -> Digest {
    review::digest(grant.consent, grant.programs.as_deref().unwrap_or_default())
}

fn locked(snapshot: &Snapshot) -> Result<(), Error> {
    match snapshot.lock {
        Some(_) => Ok(()),
        None => Err(Error::Unlocked(snapshot.project.clone())),
    }
}

fn settle(log: &MachineLog, change: String, happened: bool) -> Result<(), Error> {
    let result = if happened { "done" } else { "failed" }.to_owned();
    let _receipt = log.append(Event::TrustSettled { change, result })?;
    Ok(())
}

fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

#[cfg(test)]
pub(crate) mod tests;
