//! A client that listens to what a server says outside requests.

use std::sync::Arc;

use serde_json::Value;

use super::desk::{TOOLS_CHANGED, is_change};
use super::mailbox::{Mailbox, Told};
use super::questions::Questions;
use super::tied::Whose;
use crate::{Client, Wanted};

/// The first message of a subscription: what the server agreed to tell.
pub(crate) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const UPDATED: &str = "notifications/resources/updated";

/// One of them.
pub(crate) struct Listener {
    pub(crate) whose: Whose,
    pub(crate) wanted: Wanted,
    pub(crate) questions: Questions,
    pub(crate) told: Mailbox,
}

impl Listener {
    pub(crate) fn new(client: &Arc<dyn Client>, wanted: Wanted) -> Self {
        let whose = Whose::of(client);
        Self {
            whose,
            wanted,
            questions: Questions::new(Arc::clone(client)),
            told: Mailbox::default(),
        }
    }

    /// Whether it asked for this.
    pub(crate) fn wants(&self, told: &Told) -> bool {
        match told.method.as_str() {
            TOOLS_CHANGED => self.wanted.tools,
            "notifications/prompts/list_changed" => self.wanted.prompts,
            "notifications/resources/list_changed" => self.wanted.resources,
            UPDATED => updated(told).is_some_and(|uri| self.follows(uri)),
            method => self.wanted.rest && !is_change(method),
        }
    }

    /// A server may name a part of what is followed (2025-11-25, schema, resource updates).
    pub(crate) fn follows(&self, uri: &str) -> bool {
        let part = |whole: &String| {
            let rest = uri.strip_prefix(whole.as_str());
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || whole.ends_with('/')
            })
        };
        self.wanted.uris.iter().any(part)
    }
}

/// The resource that a notification says was updated.
pub(crate) fn updated(told: &Told) -> Option<&str> {
    let params = (told.method == UPDATED).then_some(told.params.as_ref()?)?;
    params.get("uri").and_then(Value::as_str)
}
