//! Where does this name's value come from?

use ringfence_policy::{Principal, Ruleset};
use ringfence_record::Recorder;

/// Why a secret has no value here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Policy refuses it.
    #[error("{name} is refused to {principal} by {rule}")]
    Denied {
        /// Variable.
        name: String,
        /// For whom.
        principal: Principal,
        /// Which rule.
        rule: String,
    },
    /// No source has it.
    #[error("{name} is not set")]
    Missing {
        /// Variable.
        name: String,
    },
    /// It is not text.
    #[error("{name} is not valid UTF-8")]
    NotText {
        /// Variable.
        name: String,
    },
    /// The access could not be recorded.
    #[error(transparent)]
    Record(#[from] ringfence_record::Error),
}

/// A value in memory: zeroed when dropped, never printed.
pub struct Secret(zeroize::Zeroizing<String>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// The value, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Resolves names for one run, by policy, leaving a record of each access.
#[derive(Debug, Clone)]
pub struct Resolver {
    ruleset: std::sync::Arc<Ruleset>,
    recorder: Recorder,
}

impl Resolver {
    /// A resolver that reads the process environment.
    #[must_use]
    pub fn new(ruleset: std::sync::Arc<Ruleset>, recorder: Recorder) -> Self {
        Self { ruleset, recorder }
    }

    /// The value of a name for a principal. The access is recorded, by name, before it is returned.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn resolve(
        &self,
        _who: &Principal,
        _name: &ringfence_bundle::SecretName,
    ) -> Result<Secret, Error> {
        let _ = (&self.ruleset, &self.recorder);
        todo!()
    }
}

/// Takes exact values out of what a server says.
pub struct Scrubber {}

impl Scrubber {
    /// A scrubber of these values, each with its name.
    #[must_use]
    pub fn new(_values: impl IntoIterator<Item = (String, Secret)>) -> Self {
        todo!()
    }

    /// Replaces every value in every string and key. True when there was one.
    #[must_use]
    pub fn scrub_value(&self, _value: &mut serde_json::Value) -> bool {
        todo!()
    }
}
