//! Who is asked in a run, and how.

use std::sync::Arc;
use std::time::Duration;

use ringfence_approval::{Channel, Desk, OnTimeout, Parts, Webhook, check_url};
use ringfence_bundle::{Manifest, Notify};
use ringfence_identity::Signer;
use ringfence_policy::Ruleset;
use ringfence_record::{Event, Outcome, Recorder, RunId};
use ringfence_secrets::{Chain, Environment, Found, Keychain};
use ringfence_state::State;

use crate::webhook::Poster;
use crate::{Error, Plan};

/// Whether a call of this manifest can need a person.
pub(crate) fn wanted(manifest: &Manifest) -> bool {
    !manifest.approvals.require.is_empty()
}

/// The desk of a run whose rules want one. `near` is where the run's own person is asked.
///
/// # Errors
/// [`Error`]: the database cannot be used, or a webhook's address is not to be had.
pub(crate) async fn desk(
    plan: &Plan,
    run: &RunId,
    recorder: &Recorder,
    state: State,
    near: Option<Arc<dyn Channel>>,
) -> Result<Option<Arc<Desk>>, Error> {
    let manifest = plan.manifest();
    if !wanted(manifest) {
        return Ok(None);
    }
    let mut channels: Vec<Arc<dyn Channel>> = near.into_iter().collect();
    if !manifest.approvals.notify.is_empty() {
        let poster = Arc::new(Poster::new());
        for notify in &manifest.approvals.notify {
            channels.push(Arc::new(Webhook {
                url: address(plan, recorder, notify).await?,
                keys: keys(notify, &plan.ruleset),
                signer: Signer::machine(&plan.home)?,
                post: Arc::clone(&poster) as _,
                recorder: recorder.clone(),
            }));
        }
    }
    let desk = Desk::open(Parts {
        state,
        home: plan.home.clone(),
        run: run.to_string(),
        project: plan.project().display().to_string(),
        recorder: recorder.clone(),
        timeout: Duration::from_secs(manifest.approvals.timeout_seconds),
        on_timeout: on_timeout(manifest, &plan.ruleset),
        channels,
    });
    Ok(Some(Arc::new(desk.await?)))
}

/// What the manifest says, as far as the machine allows it.
fn on_timeout(manifest: &Manifest, ruleset: &Ruleset) -> OnTimeout {
    match manifest.approvals.on_timeout {
        ringfence_bundle::OnTimeout::Abort => OnTimeout::Abort,
        ringfence_bundle::OnTimeout::Proceed if ruleset.may_proceed_on_timeout() => {
            OnTimeout::Proceed
        }
        ringfence_bundle::OnTimeout::Deny | ringfence_bundle::OnTimeout::Proceed => OnTimeout::Deny,
    }
}

/// Those of a webhook's keys that the machine's rules take.
fn keys(notify: &Notify, ruleset: &Ruleset) -> Vec<String> {
    notify.approver_keys.iter().filter(|key| ruleset.is_approver(key)).cloned().collect()
}

/// The address, from this machine alone: nothing of the project says where its questions go.
async fn address(
    plan: &Plan,
    recorder: &Recorder,
    notify: &Notify,
) -> Result<ringfence_bundle::Endpoint, Error> {
    let name = &notify.url_ref;
    let wrong = |reason: String| Error::Variable {
        name: name.to_string(),
        what: "the address of an approval webhook ([[approvals.notify]] url_ref)",
        reason,
    };
    let chain = Chain::new(vec![Box::new(Environment), Box::new(Keychain::new(&plan.home))]);
    let (outcome, detail, found) = match chain.find(name).await {
        Found::Value { source, secret } => (Outcome::Allowed, source.to_owned(), Ok(secret)),
        Found::Nowhere { .. } => {
            let reason = "it has no value on this machine".to_owned();
            (Outcome::Refused, reason.clone(), Err(wrong(reason)))
        }
        Found::Failed { source, reason } => {
            let reason = format!("{source}: {reason}");
            (Outcome::Refused, reason.clone(), Err(wrong(reason)))
        }
    };
    let accessed = Event::SecretAccessed {
        principal: "approvals".into(),
        name: name.to_string(),
        outcome,
        detail,
    };
    let _ = recorder.commit(accessed).await?;
    check_url(found?.expose()).map_err(|error| wrong(error.to_string()))
}
