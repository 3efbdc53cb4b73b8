//! The proof that a call was allowed and that this is on disk.

use ringfence_bundle::ServerId;
use ringfence_record::Receipt;
use serde_json::Value;

/// That an event is durable. Made from the recorder's receipt alone.
#[derive(Debug)]
#[must_use]
pub(crate) struct Evidence(#[expect(dead_code, reason = "held as proof")] Option<Receipt>);

impl Evidence {
    pub(crate) fn of(receipt: Receipt) -> Self {
        Self(Some(receipt))
    }

    /// For journals of tests.
    #[cfg(test)]
    pub(crate) fn test() -> Self {
        Self(None)
    }
}

/// The right to forward one message, once. Made by the decision, consumed by the forward.
#[derive(Debug)]
#[must_use]
pub(crate) struct CallPermit {
    server: ServerId,
    method: String,
    params: Option<Value>,
    _evidence: Evidence,
}

impl CallPermit {
    /// Only [`crate::decide`] calls this, with the evidence of a decision that allowed.
    pub(crate) fn new(
        server: ServerId,
        method: String,
        params: Option<Value>,
        evidence: Evidence,
    ) -> Self {
        Self { server, method, params, _evidence: evidence }
    }

    pub(crate) fn server(&self) -> &ServerId {
        &self.server
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// A text among the parameters.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.params.as_ref()?.get(key)?.as_str()
    }

    /// The judged message, which is what goes on.
    pub(crate) fn into_message(self) -> (String, Option<Value>) {
        (self.method, self.params)
    }
}
