//! What a server's address is to an agent: nothing.

use std::sync::Arc;

use ringfence_mcp::Wants;
use serde_json::Value;

use crate::seams::Scrub;

/// Takes out secrets, and the server's real address.
pub(crate) struct Veil {
    secrets: Arc<dyn Scrub>,
    url: Option<String>,
    authority: Option<String>,
}

const INSTEAD: &str = "[server]";

impl Veil {
    /// For a server at this URL, if it has one.
    pub(crate) fn new(secrets: Arc<dyn Scrub>, url: Option<&str>) -> Self {
        let uri = url.and_then(|url| url.parse::<http::Uri>().ok());
        let authority = uri.and_then(|uri| Some(uri.authority()?.as_str().to_owned()));
        Self { secrets, url: url.map(str::to_owned), authority }
    }

    /// A result: secrets and the very URL go. A host's bare name may be what was asked for.
    pub(crate) fn result(&self, value: &mut Value) {
        self.secrets.scrub(value);
        if let Some(url) = &self.url {
            replace(value, url);
        }
    }

    /// Questions of a server, as a client sees them. The state goes back to the server as it is, and
    /// so do the keys of its questions: `None` when a client may not see one of these.
    pub(crate) fn questions(&self, mut wants: Wants) -> Option<Wants> {
        let told = |key: &String| {
            let mut seen = Value::String(key.clone());
            self.result(&mut seen);
            seen != *key
        };
        if wants.requests.keys().any(told) {
            return None;
        }
        for (_, params) in wants.requests.values_mut() {
            if let Some(params) = params {
                self.result(params);
            }
        }
        Some(wants)
    }

    /// An error: the host goes too.
    pub(crate) fn error(&self, value: &mut Value) {
        self.result(value);
        if let Some(authority) = &self.authority {
            replace(value, authority);
            let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
            replace(value, host);
        }
    }
}

fn replace(value: &mut Value, what: &str) {
    match value {
        Value::String(text) if text.contains(what) => *text = text.replace(what, INSTEAD),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, what)),
        Value::Object(map) => {
            map.values_mut().for_each(|value| replace(value, what));
            if map.keys().any(|key| key.contains(what)) {
                let old = std::mem::take(map);
                map.extend(old.into_iter().map(|(key, value)| (key.replace(what, INSTEAD), value)));
            }
        }
        _ => {}
    }
}
