//! The budget of a run, from its rules and what its servers' calls cost.

use std::path::Path;
use std::sync::Arc;

use ringfence_bundle::Manifest;
use ringfence_identity::machine_did;
use ringfence_policy::Ruleset;
use ringfence_record::RunId;
use ringfence_spend::{Budget, Cap, Caps, Ledger, Price, Usd};

use crate::Error;
use crate::shared::shared;

/// A run's budget, and the ledger to be flushed when it is over. `None` where nothing is priced, or
/// nothing is capped. Opens nothing yet. Days and months count for the agent's DID, or the machine's
/// where the bundle has none.
///
/// # Errors
/// [`Error::Price`]; [`Error::Variable`], [`Error::State`]: the shared database has no address, or a
/// wrong one; [`Error::Identity`]: the machine has no key.
pub(crate) async fn budget(
    home: &Path,
    run: &RunId,
    manifest: &Manifest,
    ruleset: &Ruleset,
) -> Result<Option<(Arc<Budget>, Ledger)>, Error> {
    let caps = caps(manifest, ruleset)?;
    let mut prices = Vec::new();
    for (id, server) in &manifest.servers {
        let Some(pricing) = &server.pricing else { continue };
        let meters =
            pricing.meters.iter().map(|m| (m.usage_path.as_str(), m.usd_per_unit.as_str()));
        let price = Price::new(meters, pricing.max_usd_per_call.as_deref());
        let price = price.map_err(|error| Error::Price(format!("server `{id}`: {error}")))?;
        prices.push((id.to_string(), price));
    }
    if caps.is_empty() || prices.is_empty() {
        return Ok(None);
    }
    let own = manifest.agent.as_ref().and_then(|agent| agent.did.clone());
    let who = match own {
        Some(did) => did,
        None => machine_did(home)?.to_string(),
    };
    let ledger = Ledger::new(shared(home).await?);
    let budget = Budget::new(ledger.clone(), &who, &run.to_string(), caps, prices);
    Ok(Some((Arc::new(budget), ledger)))
}

/// The lower of the machine's and the bundle's caps, each with where it stands.
fn caps(manifest: &Manifest, ruleset: &Ruleset) -> Result<Caps, Error> {
    let lower = ruleset.caps();
    let declared = &manifest.spending;
    let cap = |key: &str, amount: &Option<String>, own: &Option<String>| {
        let Some(text) = amount else { return Ok(None) };
        let rule = match manifest.places.find(&format!("spending.{key}")) {
            Some(place) if own == amount => {
                let file = place.file.file_name().unwrap_or(place.file.as_os_str());
                format!("{}:{} [spending] {key}", file.to_string_lossy(), place.line)
            }
            _ => format!("machine.toml [policy] {key}"),
        };
        // A cap beyond what a ledger can hold is none that could be reached.
        let amount = match Usd::parse(text) {
            Some(amount) => amount,
            None if ringfence_bundle::parse_usd(text).is_some() => Usd::MAX,
            None => return Err(Error::Price(format!("{rule}: not an amount"))),
        };
        Ok(Some(Cap { amount, rule }))
    };
    Ok(Caps {
        per_run: cap("max_per_run_usd", &lower.per_run_usd, &declared.max_per_run_usd)?,
        per_day: cap("max_per_day_usd", &lower.per_day_usd, &declared.max_per_day_usd)?,
        per_month: cap("max_per_month_usd", &lower.per_month_usd, &declared.max_per_month_usd)?,
        warn_at_percent: declared.warn_at_percent.and_then(|percent| u8::try_from(percent).ok()),
    })
}
