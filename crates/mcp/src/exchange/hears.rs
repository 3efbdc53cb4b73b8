//! Which notifications a client wants to hear of. Pure.

use serde_json::{Value, json};

use crate::revision::{META_LOG, META_SUBSCRIPTION, meta};
use crate::{Revision, Wanted};

/// What may be said on one exchange.
#[derive(Debug)]
pub(crate) enum Hears {
    /// Everything.
    All,
    /// A stateless request: log messages from this level on, and whatever else belongs to it.
    Request {
        /// The place in [`LEVELS`]; without one there are none.
        log: Option<usize>,
    },
    /// A stateless subscription.
    Subscription {
        /// What the client asked for.
        wanted: Wanted,
        /// The id of the request that began it.
        id: Value,
    },
}

/// From the least severe to the most (RFC 5424 by way of MCP, logging).
pub(crate) const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

fn level(name: &Value) -> Option<usize> {
    LEVELS.iter().position(|level| name == level)
}

impl Hears {
    pub(crate) fn of_request(revision: &Revision, params: Option<&Value>) -> Self {
        if !revision.is_stateless() {
            return Self::All;
        }
        Self::Request { log: meta(params, META_LOG).and_then(level) }
    }

    /// The parameters to pass a notification on with. `None` when it is not passed on.
    #[allow(clippy::option_option, reason = "parameters may be absent in what is passed on")]
    pub(super) fn pass(&self, method: &str, params: Option<Value>) -> Option<Option<Value>> {
        match self {
            Self::All => Some(params),
            Self::Request { log } => {
                let said = params.as_ref().and_then(|params| level(params.get("level")?));
                let passes = method != "notifications/message"
                    || log.is_some_and(|log| said.is_none_or(|said| said >= log));
                passes.then_some(params)
            }
            Self::Subscription { wanted, id } => {
                let uri = params.as_ref().and_then(|params| params.get("uri"));
                let uri = uri.and_then(Value::as_str);
                let passes = match method {
                    "notifications/tools/list_changed" => wanted.tools,
                    "notifications/prompts/list_changed" => wanted.prompts,
                    "notifications/resources/list_changed" => wanted.resources,
                    "notifications/resources/updated" => {
                        uri.is_some_and(|uri| wanted.uris.iter().any(|whole| within(uri, whole)))
                    }
                    _ => wanted.rest,
                };
                passes.then(|| Some(tagged(params, id)))
            }
        }
    }
}

/// Whether an updated resource is the one that was subscribed to, or a part of it.
fn within(uri: &str, whole: &str) -> bool {
    let rest = uri.strip_prefix(whole);
    rest.is_some_and(|rest| {
        rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '#', '?'])
    })
}

/// Parameters that name the subscription they belong to.
pub(crate) fn tagged(params: Option<Value>, id: &Value) -> Value {
    let mut params = params.filter(Value::is_object).unwrap_or_else(|| json!({}));
    if !params.get("_meta").is_some_and(Value::is_object) {
        params["_meta"] = json!({});
    }
    params["_meta"][META_SUBSCRIPTION] = id.clone();
    params
}
