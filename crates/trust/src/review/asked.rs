//! Everything that a person is asked about, in one value.

use ringfence_bundle::{Digest, Drift, Kind, Program, Programs, Snapshot};

use super::card::Card;
use super::gather::card;
use crate::{Grant, Moved, State, moved};

/// What is displayed, said yes to and recorded: one value, with no second read in between. Made only
/// by [`crate::Store::review`].
#[derive(Debug, Clone)]
pub struct Review {
    snapshot: Snapshot,
    programs: Programs,
    state: State,
    drift: Vec<Drift>,
    granted: Option<Grant>,
    unseen: Vec<(Kind, String)>,
}

impl Review {
    pub(crate) fn new(
        snapshot: Snapshot,
        programs: Programs,
        state: State,
        drift: Vec<Drift>,
        granted: Option<Grant>,
        unseen: Vec<(Kind, String)>,
    ) -> Self {
        Self { snapshot, programs, state, drift, granted, unseen }
    }

    /// The bundle as it was read.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What its commands run on this machine.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Whether it is trusted.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Pins that do not hold.
    #[must_use]
    pub fn drift(&self) -> &[Drift] {
        &self.drift
    }

    /// What the lock says to come from a repository or a library, and this machine did not bring from
    /// there itself.
    #[must_use]
    pub fn unseen_origins(&self) -> &[(Kind, String)] {
        &self.unseen
    }

    /// What was said yes to before.
    #[must_use]
    pub fn granted(&self) -> Option<&Grant> {
        self.granted.as_ref()
    }

    /// Programs that are not those that were said yes to before; none where they were not recorded.
    #[must_use]
    pub fn moved(&self) -> Vec<Moved> {
        let before = self.granted.as_ref().and_then(|grant| grant.programs.as_ref());
        before.map(|before| moved::between(before, &self.programs.found)).unwrap_or_default()
    }

    /// What a person says yes to: the consent digest, and each program.
    #[must_use]
    pub fn digest(&self) -> Digest {
        digest(self.snapshot.consent_digest(), &self.programs.found)
    }

    /// What a person is shown.
    #[must_use]
    pub fn card(&self) -> Card {
        card(self)
    }
}

/// The digest of a consent digest with programs: whose, path and digest of each, framed.
pub(crate) fn digest(consent: Digest, programs: &[Program]) -> Digest {
    let mut parts = vec![consent.as_bytes().to_vec()];
    for program in programs {
        let who = serde_json::to_vec(&program.who).expect("a name has a JSON form");
        parts.push(who);
        parts.push(program.path.as_os_str().as_encoded_bytes().to_vec());
        parts.push(program.digest.as_bytes().to_vec());
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Digest::framed("review", &parts)
}

#[cfg(test)]
mod tests;
