//! What a call costs: set aside before it goes on, charged when its reply is there.

use ringfence_bundle::ServerId;
use ringfence_policy::Layer;
use ringfence_record::Event;
use ringfence_spend::{Asked, Early, Pending, Reservation, Verdict};
use serde_json::{Map, Value};

use crate::Gateway;
use crate::call::{Carried, JudgedRequest};
use crate::decide::Course;
use crate::error::Refusal;

/// What is set aside for a call.
pub(crate) enum Paying {
    /// Being on disk is under way: no call can be made with it yet.
    Soon(Pending),
    /// It is on disk.
    Now(Reservation),
}

impl Paying {
    /// All of it, in USD.
    pub(crate) fn most(&self) -> String {
        match self {
            Self::Soon(pending) => pending.amount.to_string(),
            Self::Now(reservation) => reservation.amount.to_string(),
        }
    }

    /// Whether a server may have done something with the call. One that waits for the disk was not sent.
    pub(crate) fn sent(&mut self, sent: bool) {
        if let Self::Now(reservation) = self {
            reservation.sent(sent);
        }
    }

    fn rule(&self) -> &str {
        match self {
            Self::Soon(pending) => &pending.rule,
            Self::Now(reservation) => &reservation.rule,
        }
    }

    /// Waits for the disk.
    ///
    /// # Errors
    /// In words, when it did not get there.
    pub(crate) async fn durable(self) -> Result<Reservation, String> {
        match self {
            Self::Soon(pending) => pending.durable().await,
            Self::Now(reservation) => Ok(reservation),
        }
    }
}

impl Gateway {
    /// The step `budget`, the last before the decision is recorded.
    pub(crate) async fn affordable(
        &self,
        course: &mut Course,
        server: &ServerId,
        request: &JudgedRequest,
        carried: &mut Carried,
    ) {
        let Some(purse) = self.purse.as_ref().filter(|_| course.is_open()) else { return };
        if let Some(paying) = &carried.paying {
            course.allow("budget", paying.rule());
            return;
        }
        let tool = request.tool().unwrap_or_default().to_owned();
        let asked = Asked { server: server.to_string(), tool, call: carried.call };
        let verdict = match purse.reserve_early(asked).await {
            Early::Pending(pending) => {
                course.allow("budget", pending.rule.clone());
                carried.paying = Some(Paying::Soon(pending));
                return;
            }
            Early::Known(verdict) => verdict,
        };
        match verdict {
            Verdict::Free { rule } => course.allow("budget", rule),
            Verdict::Reserved(reservation) => {
                course.allow("budget", reservation.rule.clone());
                carried.paying = Some(Paying::Now(reservation));
            }
            Verdict::Refused { rule, stop } => {
                course.refuse("budget", Layer::Declared, &rule, "ringfence spend");
                if stop {
                    self.stop.now("spending", rule);
                }
            }
        }
    }

    /// Charges what a reply says that it cost. The member is `result` or `error`; its value is given
    /// back.
    pub(crate) async fn paid(
        &self,
        carried: &mut Carried,
        member: &str,
        value: Value,
    ) -> (Option<String>, Value) {
        let Some(paying) = carried.paying.take() else { return (None, value) };
        let mut response = Map::new();
        response.insert("jsonrpc".into(), "2.0".into());
        response.insert(member.to_owned(), value);
        let mut response = Value::Object(response);
        let cost = self.settled(carried.call, paying, Some(&response)).await;
        (Some(cost), response[member].take())
    }

    /// Charges a reservation; all of it without a reply. The reply that crosses a cap still goes
    /// through, and is the last one.
    pub(crate) async fn settled(&self, call: u64, paying: Paying, reply: Option<&Value>) -> String {
        let most = paying.most();
        let Ok(reservation) = paying.durable().await else { return most };
        let settled = reservation.settle(reply).await;
        if let Some(warning) = settled.warning {
            // A record that takes no more stops the next call.
            let _ =
                self.journal.note(Event::SpendWarned { call: Some(call), detail: warning.clone() });
            self.stop.warn(warning);
        }
        if let Some(reason) = settled.stop {
            self.stop.now("spending", reason);
        }
        settled.cost.to_string()
    }
}

/// A reservation that did not get to the disk.
pub(crate) fn unaffordable(reason: String) -> Refusal {
    Refusal {
        check: "budget".into(),
        rule: reason,
        layer: "builtin".into(),
        next: "ringfence spend".into(),
    }
}
