//! Resolving names for one run.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use ringfence_bundle::SecretName;
use ringfence_policy::{Principal, Ruleset};
use ringfence_record::{Event, Outcome, Recorder};
use zeroize::Zeroize;

use crate::{Environment, Error, ProcessEnvironment, Secret};

/// Resolves names for one run, by policy, leaving a record of each access.
#[derive(Debug, Clone)]
pub struct Resolver {
    ruleset: Arc<Ruleset>,
    recorder: Recorder,
    environment: Arc<dyn Environment>,
}

impl Resolver {
    /// A resolver that reads the process environment.
    #[must_use]
    pub fn new(ruleset: Arc<Ruleset>, recorder: Recorder) -> Self {
        Self::with_environment(ruleset, recorder, Arc::new(ProcessEnvironment))
    }

    /// A resolver that reads the given environment.
    #[must_use]
    pub fn with_environment(
        ruleset: Arc<Ruleset>,
        recorder: Recorder,
        environment: Arc<dyn Environment>,
    ) -> Self {
        Self { ruleset, recorder, environment }
    }

    /// The value of a name for a principal. The access is recorded, by name and durably, before the
    /// value is returned; so is a refusal.
    ///
    /// # Errors
    /// [`Error::Denied`] by policy, [`Error::Missing`] when the variable is not set,
    /// [`Error::NotText`], and [`Error::Record`] when the access could not be recorded.
    pub async fn resolve(&self, who: &Principal, name: &SecretName) -> Result<Secret, Error> {
        let (event, result) = look_up(&self.ruleset, &*self.environment, who, name);
        let _receipt = self.recorder.commit(event).await?;
        result
    }
}

/// Decides and looks up, without recording: what is to be recorded, and what is to be returned
/// once it is. A refused name is not looked up.
fn look_up(
    ruleset: &Ruleset,
    environment: &dyn Environment,
    who: &Principal,
    name: &SecretName,
) -> (Event, Result<Secret, Error>) {
    let event = |outcome, detail: String| Event::SecretAccessed {
        principal: who.to_string(),
        name: name.to_string(),
        outcome,
        detail,
    };
    let decision = ruleset.secret(who, name);
    if !decision.allowed {
        let rule = decision.rule;
        let error =
            Error::Denied { name: name.to_string(), principal: who.clone(), rule: rule.clone() };
        return (event(Outcome::Refused, rule), Err(error));
    }
    let (detail, result) = match environment.var(name).map(std::ffi::OsString::into_string) {
        Some(Ok(value)) => ("environment", Ok(Secret::new(value))),
        Some(Err(value)) => {
            value.into_vec().zeroize();
            ("environment: not valid UTF-8", Err(Error::NotText { name: name.to_string() }))
        }
        None => ("environment: not set", Err(Error::Missing { name: name.to_string() })),
    };
    (event(Outcome::Allowed, detail.to_owned()), result)
}

#[cfg(test)]
mod tests;
