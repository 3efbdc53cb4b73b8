//! The machine's trust store, and the proof it gives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_bundle::{Digest, Drift, Objects, Snapshot, read_three};
use ringfence_record::{Event, MachineLog, RunId, read_machine};
use serde::{Deserialize, Serialize};

use crate::file::{self, Grants};
use crate::{Error, review};

/// Whether a bundle may start anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody said yes.
    Untrusted,
    /// These bytes were said yes to, and every pin holds.
    Trusted,
    /// Other bytes were said yes to, or a pin no longer holds.
    Changed,
}

/// Proof that a person said yes to exactly these bytes and every pin holds. Made only by
/// [`Store::check`].
#[derive(Debug, Clone)]
pub struct TrustedBundle {
    snapshot: Snapshot,
    consent: Digest,
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
}

impl Store {
    /// The store of this home. Reads nothing yet.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), objects: Objects::of(home) }
    }

    /// The state of a snapshot, with the drift that was found.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Bundle`].
    pub fn state(&self, snapshot: &Snapshot) -> Result<(State, Vec<Drift>), Error> {
        let (_, grants) = self.load()?;
        let drift = snapshot.drift(&self.objects)?;
        let state = match self.granted(&grants, &snapshot.project)? {
            None => State::Untrusted,
            Some(grant) => match judge(grant, snapshot, drift.clone()) {
                Ok(_) => State::Trusted,
                Err(_) => State::Changed,
            },
        };
        Ok((state, drift))
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
    /// pin no longer holds, in this order.
    ///
    /// # Errors
    /// [`Error::Untrusted`], [`Error::Changed`], [`Error::Unlocked`], [`Error::Drifted`],
    /// [`Error::Store`], [`Error::Bundle`].
    pub fn check(&self, snapshot: Snapshot) -> Result<TrustedBundle, Error> {
        let (bytes, grants) = self.load()?;
        let grant = self
            .granted(&grants, &snapshot.project)?
            .ok_or_else(|| Error::Untrusted { project: snapshot.project.clone() })?;
        // Pinned trees are looked at last: they may be large, and must not matter before.
        judge(grant, &snapshot, Vec::new())?;
        let consent = judge(grant, &snapshot, snapshot.drift(&self.objects)?)?;
        let store = bytes.unwrap_or_default().into();
        Ok(TrustedBundle { snapshot, consent, store })
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
        matches!(granted, Ok(Some(grant)) if grant.consent == bundle.consent)
    }

    /// Whether consent can be given at all: the lock is there and holds.
    ///
    /// # Errors
    /// [`Error::Unlocked`], [`Error::Drifted`].
    pub fn grantable(snapshot: &Snapshot, drift: &[Drift]) -> Result<(), Error> {
        locked(snapshot)?;
        if drift.is_empty() { Ok(()) } else { Err(Error::Drifted(drift.to_vec())) }
    }

    /// Records consent to this snapshot: intent event, store, settled event, under a file lock.
    /// `consented` must be the snapshot's consent digest as text. A change that a killed process
    /// left half done is settled first, by what the store really holds.
    ///
    /// # Errors
    /// [`Error::WrongDigest`], [`Error::Unlocked`], [`Error::Drifted`], [`Error::Store`],
    /// [`Error::Write`], [`Error::Bundle`], [`Error::Record`].
    pub fn grant(
        &self,
        snapshot: &Snapshot,
        consented: &str,
        log: &MachineLog,
    ) -> Result<(), Error> {
        let found = snapshot.consent_digest();
        if consented != found.to_string() {
            return Err(Error::WrongDigest { given: review::shown(consented, 80), found });
        }
        locked(snapshot)?;
        Self::grantable(snapshot, &snapshot.drift(&self.objects)?)?;
        let project = self.key(&snapshot.project)?;
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let _lock = file::lock(&self.home)?;
        self.reconcile(log)?;
        let (before, mut grants) = self.load()?;
        let at = format!("{:.0}", now());
        let previous = grants.insert(project.clone(), Grant { consent: found, at });
        let action = if previous.is_some() { "regrant" } else { "grant" };
        self.change(log, action, project, found, before, grants)
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
        self.change(log, "revoke", project, grant.consent, before, grants)?;
        Ok(true)
    }

    /// Settles every change in the machine log that says what was about to happen and not what did,
    /// by what the store holds. Only under the lock.
    fn reconcile(&self, log: &MachineLog) -> Result<(), Error> {
        let mut open = BTreeMap::new();
        for entry in read_machine(&self.home)?.into_iter().flatten() {
            match entry?.event {
                Event::TrustIntended { action, project, consent, change } => {
                    open.insert(change, (action, project, consent));
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
        for (change, (action, project, consent)) in open {
            let held = grants.get(&project).map(|grant| grant.consent.to_string());
            let happened = match action.as_str() {
                "revoke" => held.is_none(),
                _ => held.as_deref() == Some(consent.as_str()),
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
        consent: Digest,
        before: Option<Vec<u8>>,
        grants: Grants,
    ) -> Result<(), Error> {
        let change = RunId::fresh().to_string();
        let _receipt = log.append(Event::TrustIntended {
            action: action.to_owned(),
            project,
            consent: consent.to_string(),
            change: change.clone(),
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

/// Compares a snapshot with its grant. Pure but for what `drift` found.
fn judge(grant: &Grant, snapshot: &Snapshot, drift: Vec<Drift>) -> Result<Digest, Error> {
    let found = snapshot.consent_digest();
    if found != grant.consent {
        let (project, trusted) = (snapshot.project.clone(), grant.consent);
        return Err(Error::Changed { project, trusted, found });
    }
    locked(snapshot)?;
    if drift.is_empty() { Ok(found) } else { Err(Error::Drifted(drift)) }
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

fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

#[cfg(test)]
mod tests;
