//! What a server says or asks while a request is under way, on its way to the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_mcp::{Answer, Boxed, Client};
use serde_json::Value;

use crate::scrub::Veil;

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
