//! Resolving names for one run.

use std::sync::Arc;

use ringfence_bundle::SecretName;
use ringfence_policy::{Principal, Ruleset};
use ringfence_record::{Event, Outcome, Recorder};

use crate::chain::Found;
use crate::{Chain, Error, Secret};

/// Resolves names for one run, by policy, leaving a record of each access.
#[derive(Debug, Clone)]
pub struct Resolver {
    ruleset: Arc<Ruleset>,
    recorder: Recorder,
    chain: Chain,
}

impl Resolver {
    /// A resolver that asks this chain.
    #[must_use]
    pub fn new(ruleset: Arc<Ruleset>, recorder: Recorder, chain: Chain) -> Self {
        Self { ruleset, recorder, chain }
    }

    /// The value of a name for a principal. The access is recorded, by name and durably, before the
    /// value is returned; so is a refusal.
    ///
    /// # Errors
    /// [`Error::Denied`] by policy, [`Error::Missing`] when no source has it, [`Error::Failed`]
    /// when a source could not say, and [`Error::Record`] when the access could not be recorded.
    pub async fn resolve(&self, who: &Principal, name: &SecretName) -> Result<Secret, Error> {
        let (event, result) = look_up(&self.ruleset, &self.chain, who, name).await;
        let _receipt = self.recorder.commit(event).await?;
        result
    }

    /// Whether each of these could be resolved now. Nothing is handed out, so nothing is recorded:
    /// an access is a value on its way to whoever asked for it.
    ///
    /// # Errors
    /// As for [`Resolver::resolve`]: the first that could not, denials before all else.
    pub async fn check(&self, wanted: &[(Principal, SecretName)]) -> Result<(), Error> {
        for (who, name) in wanted {
            denied(&self.ruleset, who, name).map_err(|(_, error)| error)?;
        }
        for (who, name) in wanted {
            look_up(&self.ruleset, &self.chain, who, name).await.1?;
        }
        Ok(())
    }
}

/// The rule that refuses a name to a principal, and the refusal.
fn denied(ruleset: &Ruleset, who: &Principal, name: &SecretName) -> Result<(), (String, Error)> {
    let decision = ruleset.secret(who, name);
    if decision.allowed {
        return Ok(());
    }
    let rule = decision.rule;
    let (name, principal) = (name.to_string(), who.clone());
    Err((rule.clone(), Error::Denied { name, principal, rule }))
}

/// Decides and looks up, without recording: what is to be recorded, and what is to be returned
/// once it is. A refused name is not looked up.
async fn look_up(
    ruleset: &Ruleset,
    chain: &Chain,
    who: &Principal,
    name: &SecretName,
) -> (Event, Result<Secret, Error>) {
    let event = |outcome, detail: String| Event::SecretAccessed {
        principal: who.to_string(),
        name: name.to_string(),
        outcome,
        detail,
    };
    if let Err((rule, error)) = denied(ruleset, who, name) {
        return (event(Outcome::Refused, rule), Err(error));
    }
    match chain.find(name).await {
        Found::Value { source, secret } => (event(Outcome::Allowed, source.to_owned()), Ok(secret)),
        Found::Nowhere { asked } => {
            let asked = asked.join(", ");
            let detail = format!("missing: asked {asked}");
            let error = Error::Missing { name: name.to_string(), principal: who.clone(), asked };
            (event(Outcome::Refused, detail), Err(error))
        }
        Found::Failed { source, reason } => {
            let detail = format!("failed: {source}: {reason}");
            let (name, principal) = (name.to_string(), who.clone());
            let error = Error::Failed { name, principal, origin: source, reason };
            (event(Outcome::Refused, detail), Err(error))
        }
    }
}

#[cfg(test)]
mod tests;
