//! What a server says or asks while a request is under way, on its way to the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_bundle::ServerId;
use ringfence_mcp::{Answer, Boxed, Client, Held, Party};
use serde_json::Value;

use crate::asked::{Asked, Open};
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
    pub(super) client: Arc<dyn Client>,
    /// Whose words these are, over the connection of this generation.
    pub(super) server: ServerId,
    pub(super) generation: u64,
    pub(super) veil: Arc<Veil>,
    pub(super) tools_changed: Arc<AtomicBool>,
    pub(super) asked: Arc<Asked>,
}

impl Shade {
    /// A question as the client sees it, and what stands for it until it is answered.
    fn question(&self, params: Option<Value>) -> (Option<Value>, Option<Open>) {
        let mut params = self.veiled(params);
        let whose = (&self.server, self.generation);
        let open = self.asked.open(self.client.party(), whose, params.as_mut());
        (params, open)
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

    fn party(&self) -> Party {
        self.client.party()
    }

    fn keep(&self, held: Held) {
        self.client.keep(held);
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
        let (params, open) = self.question(params);
        Box::pin(async move {
            let _open = open;
            self.client.ask(method, params).await
        })
    }

    fn ask_as<'a>(
        &'a self,
        key: &'a str,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        let (params, open) = self.question(params);
        Box::pin(async move {
            let _open = open;
            self.client.ask_as(key, method, params).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use ringfence_mcp::{Answer, Boxed, Client, Wants};
    use serde_json::{Value, json};

    use super::Shade;
    use crate::scrub::Veil;
    use crate::seams::Scrub;

    struct Hide;
    impl Scrub for Hide {
        fn scrub(&self, value: &mut Value) -> bool {
            let text = value.to_string();
            *value = serde_json::from_str(&text.replace("s3cret", "***")).unwrap();
            text.contains("s3cret")
        }
    }

    #[derive(Default)]
    struct Ear(Mutex<Vec<(String, Option<Value>)>>);
    impl Client for Ear {
        fn capabilities(&self) -> &Value {
            &Value::Null
        }
        fn notify<'a>(&'a self, method: &'a str, params: Option<Value>) -> Boxed<'a, ()> {
            self.0.lock().unwrap().push((method.to_owned(), params));
            Box::pin(std::future::ready(()))
        }
        fn ask<'a>(&'a self, _method: &'a str, _params: Option<Value>) -> Boxed<'a, Answer> {
            Box::pin(std::future::ready(Ok(Value::Null)))
        }
    }

    #[tokio::test]
    async fn what_names_a_message_holds_no_secret_either() {
        let ear = Arc::new(Ear::default());
        let veil = Arc::new(Veil::new(Arc::new(Hide), None));
        let client = Arc::clone(&ear) as Arc<dyn Client>;
        let shade = Shade {
            client,
            server: ringfence_bundle::ServerId::parse("s").unwrap(),
            generation: 1,
            veil: Arc::clone(&veil),
            tools_changed: Arc::default(),
            asked: Arc::default(),
        };
        shade.notify("notifications/s3cret", None).await;
        shade.notify("notifications/message", Some(json!({ "data": "s3cret" }))).await;
        let heard = ear.0.lock().unwrap().clone();
        let message = ("notifications/message".to_owned(), Some(json!({ "data": "***" })));
        assert_eq!(heard, [message]);

        let wants = |key: &str| {
            let question = ("elicitation/create".to_owned(), Some(json!({ "message": "s3cret" })));
            Wants { requests: BTreeMap::from([(key.to_owned(), question)]), state: None }
        };
        assert_eq!(veil.questions(wants("s3cret")), None);
        let shown = veil.questions(wants("name")).expect("control");
        assert_eq!(shown.requests["name"].1, Some(json!({ "message": "***" })));
    }
}
