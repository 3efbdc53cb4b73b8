//! The tokens that a server was given by this process, of now and of before: taken out of what it says.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex};

use ringfence_mcp::oauth::Grant;
use ringfence_secrets::{Scrubber, Secret};
use serde_json::Value;

use super::{NAME, lock};

/// Tokens of one server that are known at once, and their bytes. Beyond them the oldest go, which were
/// renewed hundreds of times since.
const MOST: usize = 1024;
const BYTES: usize = 4 << 20;

/// For each server's address. A token outlives the connection that it was sent on, and the session: a
/// server may say it again whenever this process talks to it.
static GUARDS: LazyLock<Mutex<HashMap<String, Arc<Guard>>>> = LazyLock::new(Mutex::default);

/// What takes the tokens of one server out of its replies.
#[derive(Default)]
pub(crate) struct Guard {
    known: Mutex<VecDeque<Secret>>,
    scrubber: Mutex<Option<Arc<Scrubber>>>,
}

impl Guard {
    /// The one for this server, all through this process.
    pub(crate) fn of(server: &str) -> Arc<Self> {
        Arc::clone(lock(&GUARDS).entry(server.to_owned()).or_default())
    }

    /// Knows the tokens of a grant from now on, beside those that it knows.
    pub(crate) fn add(&self, grant: &Grant) {
        let tokens = [Some(grant.tokens().access()), grant.tokens().refresh()];
        let mut known = lock(&self.known);
        let before = known.len();
        for token in tokens.into_iter().flatten() {
            if known.iter().any(|secret| secret.expose() == token) {
                continue;
            }
            let bytes = zeroize::Zeroizing::new(token.as_bytes().to_vec());
            known.extend(Secret::from_bytes(bytes).ok());
        }
        if known.len() == before {
            return;
        }
        let mut bytes: usize = known.iter().map(|secret| secret.expose().len()).sum();
        while known.len() > MOST || bytes > BYTES {
            let Some(oldest) = known.pop_front() else { break };
            bytes -= oldest.expose().len();
        }
        let scrubber = Scrubber::new(known.iter().map(|secret| (NAME, secret)));
        *lock(&self.scrubber) = Some(Arc::new(scrubber));
    }

    /// True when one was in it.
    pub(crate) fn scrub(&self, value: &mut Value) -> bool {
        let scrubber = lock(&self.scrubber).clone();
        scrubber.is_some_and(|scrubber| scrubber.value(value))
    }
}
