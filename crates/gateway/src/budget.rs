//! What a call costs: set aside before it goes on, charged when its reply is there.

use ringfence_bundle::ServerId;
use ringfence_policy::Layer;
use ringfence_record::Event;
use ringfence_spend::{Asked, Reservation, Verdict};
use serde_json::{Map, Value};

use crate::Gateway;
use crate::call::{Carried, JudgedRequest};
use crate::decide::Course;

/// What is set aside for a call.
pub(crate) struct Paying {
    pub(crate) reservation: Reservation,
    /// The number of the call within its run.
    pub(crate) call: u64,
}

impl Paying {
    /// All of it, in USD.
    pub(crate) fn most(&self) -> String {
        self.reservation.amount.to_string()
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
            course.allow("budget", paying.reservation.rule.clone());
            return;
        }
        let tool = request.tool().unwrap_or_default().to_owned();
        let asked = Asked { server: server.to_string(), tool, call: carried.call };
        match purse.reserve(asked).await {
            Verdict::Free { rule } => course.allow("budget", rule),
            Verdict::Reserved(reservation) => {
                course.allow("budget", reservation.rule.clone());
                carried.paying = Some(Paying { reservation, call: carried.call });
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
        let cost = self.settled(paying, Some(&response)).await;
        (Some(cost), response[member].take())
    }

    /// Charges a reservation; all of it without a reply. The reply that crosses a cap still goes
    /// through, and is the last one.
    pub(crate) async fn settled(&self, paying: Paying, reply: Option<&Value>) -> String {
        let settled = paying.reservation.settle(reply).await;
        if let Some(detail) = settled.warning {
            // A record that takes no more stops the next call.
            let _ = self.journal.note(Event::SpendWarned { call: paying.call, detail });
        }
        if let Some(reason) = settled.stop {
            self.stop.now("spending", reason);
        }
        settled.cost.to_string()
    }
}
