//! Prior trust: a command may not refuse itself.
//!
//! A command that writes the bundle and then delivers it in the same go would find it changed: by its
//! own hand, for the person who typed it. It is judged against the trust state at its start, captured
//! before it wrote.

use std::ffi::OsStr;

use ringfence_bundle::{Kind, Snapshot, Whose, consent_of, on_machine};

use crate::gate::refused;
use crate::store::same_programs;
use crate::{Error, Grant, Review, State, Store, TrustedBundle};

#[cfg(test)]
mod tests;

/// One of the three files of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File {
    /// `ringfence.toml`
    Manifest,
    /// `ringfence.local.toml`
    Overlay,
    /// `ringfence.lock`
    Lock,
}

/// The trust state at a command's start, and what the command has written since.
///
/// It authorises nothing new: what was untrusted or changed at the start is judged as ever, and so is
/// whatever anybody else wrote meanwhile. It records nothing: afterwards the project reads as changed,
/// and the next command asks.
#[derive(Debug, Clone, Default)]
pub struct PriorTrust {
    captured: Option<Captured>,
}

#[derive(Debug, Clone)]
struct Captured {
    before: Snapshot,
    grant: Grant,
    files: [Option<Vec<u8>>; 3],
}

/// What may be delivered.
#[derive(Debug, Clone)]
pub enum Deliverable {
    /// These very bytes were said yes to.
    Trusted(Box<TrustedBundle>),
    /// The bytes before were, and all that has changed is what this command wrote.
    Prior(Box<Snapshot>),
}

impl PriorTrust {
    /// Nothing is relaxed: what a call site has that captured nothing.
    pub const STRICT: Self = Self { captured: None };

    /// The state before a command writes; [`PriorTrust::STRICT`] unless that is trusted.
    #[must_use]
    pub fn capture(before: &Review) -> Self {
        let (State::Trusted, Some(grant)) = (before.state(), before.granted()) else {
            return Self::STRICT;
        };
        let before = before.snapshot().clone();
        let files = [
            Some(before.manifest_bytes.clone()),
            before.local_bytes.clone(),
            before.lock_bytes.clone(),
        ];
        Self { captured: Some(Captured { before, grant: grant.clone(), files }) }
    }

    /// Notes what the command itself wrote, with its own bytes.
    pub fn wrote(&mut self, file: File, bytes: &[u8]) {
        if let Some(captured) = &mut self.captured {
            captured.files[file as usize] = Some(bytes.to_owned());
        }
    }

    /// Judges the bundle as it is after the write, for things of one kind. Hooks are judged without
    /// any of this: they always get the full ceremony.
    ///
    /// # Errors
    /// As [`Store::check`].
    pub fn judge(
        &self,
        store: &Store,
        after: Snapshot,
        search: Option<&OsStr>,
        kind: Kind,
    ) -> Result<Deliverable, Error> {
        let strict = match store.check(after.clone(), search, Whose::All) {
            Ok(bundle) => return Ok(Deliverable::Trusted(Box::new(bundle))),
            Err(error) => error,
        };
        let Some(captured) = self.captured.as_ref().filter(|_| kind != Kind::Hook) else {
            return Err(strict);
        };
        let [Some(manifest), local, lock] = &captured.files else { return Err(strict) };
        let written = consent_of(manifest, local.as_deref(), lock.as_deref());
        let same_project = after.project == captured.before.project;
        if !same_project || after.consent_digest() != written || after.lock.is_none() {
            return Err(strict);
        }
        // Taken back meanwhile, or given anew: then that is what counts.
        if store.grant_of(&after.project)?.as_ref() != Some(&captured.grant) {
            return Err(strict);
        }
        let before = &captured.before;
        let programs = on_machine(&before.manifest, &before.project, search, &Whose::All);
        same_programs(captured.grant.programs.as_deref().unwrap_or_default(), &programs)?;
        refused(&after.drift(store.objects())?)?;
        Ok(Deliverable::Prior(Box::new(after)))
    }
}
