//! What a server says or asks while a request is under way, on its way to the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_mcp::{Answer, Boxed, Client};
use serde_json::Value;

use crate::scrub::Veil;

/// What a server may tell a client: the notifications of the revisions that are spoken.
const NOTES: [&str; 10] = [
    "notifications/cancelled",
    "notifications/elicitation/complete",
    "notifications/message",
    "notifications/progress",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/subscriptions/acknowledged",
    "notifications/tasks/status",
    "notifications/tools/list_changed",
];

/// A client that is told nothing that it may not see. What it answers goes on as it is.
pub(super) struct Shade {
    client: Arc<dyn Client>,
    veil: Arc<Veil>,
    tools_changed: Arc<AtomicBool>,
}

impl Shade {
    pub(super) fn new(
        client: Arc<dyn Client>,
        veil: Arc<Veil>,
        tools_changed: Arc<AtomicBool>,
    ) -> Self {
        Self { client, veil, tools_changed }
    }

    fn veiled(&self, params: Option<Value>) -> Option<Value> {
        params.map(|mut params| {
            self.veil.result(&mut params);
            params
        })
    }
}

impl Client for Shade {
    fn capabilities(&self) -> &Value {
        self.client.capabilities()
    }

    fn notify<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, ()> {
        if method == "notifications/tools/list_changed" {
            // The next call sees the list anew.
            self.tools_changed.store(true, Ordering::Release);
        }
        // A method has no room for anything of a server's own.
        if !NOTES.contains(&method) {
            return Box::pin(std::future::ready(()));
        }
        self.client.notify(method, self.veiled(params))
    }

    fn ask<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, Answer> {
        self.client.ask(method, self.veiled(params))
    }

    fn ask_as<'a>(
        &'a self,
        key: &'a str,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        self.client.ask_as(key, method, self.veiled(params))
    }
}
