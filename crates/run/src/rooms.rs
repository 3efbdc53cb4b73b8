//! What a run needs of the machine's shared state: who is asked, and what is paid. Nothing of it is
//! opened where the rules want neither.

use std::sync::{Arc, OnceLock};

use ringfence_approval::{Approver, Channel, Desk};
use ringfence_identity::machine_did;
use ringfence_policy::MachinePolicy;
use ringfence_record::{Event, Recorder, RunId};
use ringfence_spend::{Budget, Cap, Caps, Ledger, Price, Purse, Usd};
use ringfence_state::State;

use crate::shared::shared;
use crate::{Error, Plan, approvals};

/// Where a process counts what the cap of one run is held against: whose sum, and of which run. The first
/// run of the process that pays for something says so, and every later one counts there.
pub(crate) type Counted = Arc<OnceLock<(String, String)>>;

/// Both, each where it is wanted.
#[derive(Default)]
pub(crate) struct Rooms {
    desk: Option<Arc<Desk>>,
    purse: Option<Arc<dyn Purse>>,
    ledger: Option<(Ledger, Recorder)>,
}

impl Rooms {
    /// Opens what this plan's rules want. `near` is where the run's own person is asked, `counted` where
    /// the process counts.
    pub(crate) async fn open(
        plan: &Plan,
        run: &RunId,
        recorder: &Recorder,
        near: Option<Arc<dyn Channel>>,
        counted: &Counted,
    ) -> Result<Self, Error> {
        let caps = caps(plan)?;
        let paid = !caps.is_empty() && prices(plan).next().is_some();
        if !paid && !approvals::wanted(plan.manifest()) {
            return Ok(Self::default());
        }
        let state = shared(&plan.home).await?;
        let mut rooms = Self::default();
        if paid {
            let ledger = Ledger::new(state.clone());
            rooms.purse = Some(Arc::new(budget(plan, run, caps, ledger.clone(), counted)?));
            rooms.ledger = Some((ledger, recorder.clone()));
        }
        rooms.desk = desk(plan, run, recorder, state, near).await?;
        Ok(rooms)
    }

    pub(crate) fn approver(&self) -> Option<Arc<dyn Approver>> {
        self.desk.clone().map(|desk| desk as Arc<dyn Approver>)
    }

    pub(crate) fn purse(&self) -> Option<Arc<dyn Purse>> {
        self.purse.clone()
    }

    /// At the end: questions are withdrawn, and settlements are on disk.
    pub(crate) async fn close(&self) {
        if let Some(desk) = &self.desk {
            // What could not be taken back expires.
            let _ = desk.close().await;
        }
        if let Some((ledger, recorder)) = &self.ledger {
            ledger.flush().await;
            if let Some(detail) = self.purse.as_ref().and_then(|purse| purse.warning()) {
                // A record that takes no more has ended the run already.
                let _ = recorder.note(Event::SpendWarned { call: None, detail });
            }
        }
    }
}

async fn desk(
    plan: &Plan,
    run: &RunId,
    recorder: &Recorder,
    state: State,
    near: Option<Arc<dyn Channel>>,
) -> Result<Option<Arc<Desk>>, Error> {
    approvals::desk(plan, run, recorder, state, near).await
}

fn budget(
    plan: &Plan,
    run: &RunId,
    caps: Caps,
    ledger: Ledger,
    counted: &Counted,
) -> Result<Budget, Error> {
    let who = match plan.manifest().agent.as_ref().and_then(|agent| agent.did.clone()) {
        Some(did) => did,
        None => machine_did(&plan.home)?.to_string(),
    };
    let prices = prices(plan).collect::<Result<Vec<_>, _>>()?;
    let (whose, of) = counted.get_or_init(|| (who.clone(), run.to_string()));
    Ok(Budget::new(ledger, &who, run.as_str(), caps, prices).counted_with(whose, of))
}

/// What calls cost, by server.
fn prices(plan: &Plan) -> impl Iterator<Item = Result<(String, Price), Error>> {
    plan.manifest().servers.iter().filter_map(|(id, server)| {
        let pricing = server.pricing.as_ref()?;
        let meters = pricing.meters.iter();
        let meters = meters.map(|meter| (meter.usage_path.as_str(), meter.usd_per_unit.as_str()));
        let price = Price::new(meters, pricing.max_usd_per_call.as_deref());
        Some(match price {
            Ok(price) => Ok((id.to_string(), price)),
            Err(error) => Err(Error::Spending(format!("[servers.{id}.pricing]: {error}"))),
        })
    })
}

/// The caps that hold, each with the rule that it comes from.
fn caps(plan: &Plan) -> Result<Caps, Error> {
    let hold = plan.ruleset.caps();
    let machine = MachinePolicy::load(&plan.home)?;
    let spending = &plan.manifest().spending;
    let cap = |held: Option<String>, own: &Option<String>, key: &str| {
        let Some(text) = held else { return Ok::<_, Error>(None) };
        // A cap beyond what a ledger can hold is none that could be reached.
        let amount = match Usd::parse(&text) {
            Some(amount) => amount,
            None if ringfence_bundle::parse_usd(&text).is_some() => Usd::MAX,
            None => {
                let text = text.escape_debug();
                return Err(Error::Spending(format!("{key}: `{text}` is no amount")));
            }
        };
        let (places, path, table) = match own.as_deref() == Some(text.as_str()) {
            true => (&plan.manifest().places, format!("spending.{key}"), "[spending]"),
            false => (&machine.places, format!("policy.{key}"), "[policy]"),
        };
        let place = places.find(&path).map(|place| {
            let file = place.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            format!("{file}:{} ", place.line)
        });
        Ok(Some(Cap { amount, rule: format!("{}{table} {key}", place.unwrap_or_default()) }))
    };
    Ok(Caps {
        per_run: cap(hold.per_run_usd, &spending.max_per_run_usd, "max_per_run_usd")?,
        per_day: cap(hold.per_day_usd, &spending.max_per_day_usd, "max_per_day_usd")?,
        per_month: cap(hold.per_month_usd, &spending.max_per_month_usd, "max_per_month_usd")?,
        warn_at_percent: spending.warn_at_percent.and_then(|percent| u8::try_from(percent).ok()),
    })
}
