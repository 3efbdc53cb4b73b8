//! What the gateway asks of other rooms, as traits, with the rooms that answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ringfence_bundle::{ServerId, Template};
use ringfence_policy::{Decision, Principal, Ruleset};
use ringfence_record::{Event, Receipt, Recorder};
use ringfence_secrets::{Resolver, Scrubber, Secret};
use ringfence_trust::Watch;
use serde_json::Value;

use crate::permit::Evidence;
use crate::signin::Authority;

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps evidence.
pub(crate) trait Journal: Send + Sync {
    /// Returns when the event is durable.
    fn commit(&self, event: Event) -> Boxed<'_, Result<Evidence, String>>;
    /// Durable soon.
    fn note(&self, event: Event) -> Result<(), String>;
}

impl Journal for Recorder {
    fn commit(&self, event: Event) -> Boxed<'_, Result<Evidence, String>> {
        Box::pin(async move {
            let receipt: Receipt =
                Recorder::commit(self, event).await.map_err(|error| error.to_string())?;
            Ok(Evidence::of(receipt))
        })
    }
    fn note(&self, event: Event) -> Result<(), String> {
        Recorder::note(self, event).map_err(|error| error.to_string())
    }
}

/// Knows the rules.
pub(crate) trait Judge: Send + Sync {
    fn tool(&self, server: &ServerId, tool: &str) -> Decision;
    fn method(&self, server: &ServerId, method: &str) -> Decision;
    fn approval(&self, server: &ServerId, tool: &str, arguments: &Value) -> Option<String>;
    /// Of the whole ruleset.
    fn digest(&self) -> String;
    /// Whether a call may go through when nobody answered in time.
    fn may_proceed(&self) -> bool;
}

impl Judge for Ruleset {
    fn tool(&self, server: &ServerId, tool: &str) -> Decision {
        Ruleset::tool(self, server, tool)
    }
    fn method(&self, server: &ServerId, method: &str) -> Decision {
        Ruleset::method(self, server, method)
    }
    fn approval(&self, server: &ServerId, tool: &str, arguments: &Value) -> Option<String> {
        self.approval_needed(server, tool, arguments)
    }
    fn digest(&self) -> String {
        Ruleset::digest(self)
    }
    fn may_proceed(&self) -> bool {
        self.may_proceed_on_timeout()
    }
}

/// Knows whether the bundle is still what a person said yes to.
pub(crate) trait Trust: Send + Sync {
    fn holds(&self) -> bool;
}

impl Trust for Watch {
    fn holds(&self) -> bool {
        Watch::holds_now(self)
    }
}

/// Takes secret values out of what a server says.
pub(crate) trait Scrub: Send + Sync {
    /// True when there was one.
    fn scrub(&self, value: &mut Value) -> bool;
}

impl Scrub for Scrubber {
    fn scrub(&self, value: &mut Value) -> bool {
        self.value(value)
    }
}

/// A resolved header template, and the secrets in it.
pub(crate) struct Filled {
    pub(crate) text: String,
    pub(crate) secrets: Vec<(String, Secret)>,
}

/// Has secret values.
pub(crate) trait Vault: Send + Sync {
    /// Fills a template for a server. The error is for the person at the machine.
    fn fill<'a>(
        &'a self,
        server: &'a ServerId,
        template: &'a Template,
    ) -> Boxed<'a, Result<Filled, String>>;
    /// Whoever has the token of a server at this address that declares no `Authorization` of its own.
    fn authority(&self, server: &ServerId, url: &str) -> Option<Arc<dyn Authority>> {
        let _ = (server, url);
        None
    }
    /// Waits, for a while, until nothing is under way that would be lost with the program.
    fn settled(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::ready(()))
    }
    /// What takes these values out of replies.
    fn scrubber(&self, secrets: Vec<(String, Secret)>) -> Arc<dyn Scrub> {
        Arc::new(Scrubber::new(secrets.iter().map(|(name, secret)| (name.as_str(), secret))))
    }
}

impl Vault for Resolver {
    fn fill<'a>(
        &'a self,
        server: &'a ServerId,
        template: &'a Template,
    ) -> Boxed<'a, Result<Filled, String>> {
        Box::pin(async move {
            let principal = Principal::Server(server.clone());
            let mut secrets = Vec::new();
            for name in template.references() {
                let resolved = self.resolve(&principal, &name).await;
                secrets.push((name.to_string(), resolved.map_err(|error| error.to_string())?));
            }
            let text = template.render(|name| {
                let found = secrets.iter().find(|(known, _)| known == name.as_str());
                found.map(|(_, secret)| secret.expose()).ok_or_else(|| format!("{name} is missing"))
            })?;
            Ok(Filled { text, secrets })
        })
    }
}
