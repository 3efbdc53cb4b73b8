//! Questions of servers that clients think about, by the token under which a client may say how far
//! it is. What it says goes to the server that asked, and to no other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_bundle::ServerId;
use ringfence_mcp::Party;
use serde_json::Value;

/// How a client says how far it is.
pub(crate) const PROGRESS: &str = "notifications/progress";

/// The questions of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    open: Mutex<HashMap<u64, Question>>,
    last: AtomicU64,
}

#[derive(Debug)]
struct Question {
    party: Party,
    server: ServerId,
    /// The connection over which it was asked.
    generation: u64,
    /// As the server named it.
    token: Value,
}

/// A question that is open, until dropped.
#[derive(Debug)]
pub(crate) struct Open {
    asked: Arc<Asked>,
    token: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.asked.lock().remove(&self.token);
    }
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Question>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A question that goes to this client. Its progress token, if it has one, becomes one of ours,
    /// which no other question has.
    pub(crate) fn open(
        self: &Arc<Self>,
        party: Party,
        (server, generation): (&ServerId, u64),
        params: Option<&mut Value>,
    ) -> Option<Open> {
        let theirs = params?.get_mut("_meta")?.get_mut("progressToken")?;
        let token = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let own = std::mem::replace(theirs, token.into());
        let question = Question { party, server: server.clone(), generation, token: own };
        self.lock().insert(token, question);
        Some(Open { asked: Arc::clone(self), token })
    }

    /// The server whose question this progress of a client is about. `None` when none was put to it
    /// under this token, or it is answered.
    pub(crate) fn server(&self, party: &Party, params: Option<&Value>) -> Option<ServerId> {
        let token = params?.get("progressToken")?.as_u64()?;
        let open = self.lock();
        open.get(&token).filter(|question| question.is_of(party)).map(|q| q.server.clone())
    }

    /// Names the question as the server did, over that connection. False when it is none of these.
    pub(crate) fn name(
        &self,
        party: &Party,
        (server, generation): (&ServerId, u64),
        params: Option<&mut Value>,
    ) -> bool {
        let named = params.and_then(|params| params.get_mut("progressToken"));
        let Some((token, named)) = named.and_then(|named| Some((named.as_u64()?, named))) else {
            return false;
        };
        let open = self.lock();
        let question = open.get(&token).filter(|question| {
            question.is_of(party) && question.server == *server && question.generation == generation
        });
        let Some(question) = question else { return false };
        *named = question.token.clone();
        true
    }
}

impl Question {
    fn is_of(&self, party: &Party) -> bool {
        matches!(party, Party::Caller { .. }) && self.party == *party
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ringfence_bundle::ServerId;
    use ringfence_mcp::Party;
    use serde_json::{Value, json};

    use super::Asked;

    fn client(principal: &str, session: &str) -> Party {
        Party::Caller { principal: Some(principal.into()), session: Some(session.into()) }
    }

    #[test]
    fn progress_is_about_the_question_that_was_put_to_this_client_alone() {
        let asked = Arc::<Asked>::default();
        let (a, b) = (ServerId::parse("a").unwrap(), ServerId::parse("b").unwrap());
        let (one, two) = (client("one", "1"), client("two", "2"));
        let question = || json!({ "_meta": { "progressToken": 1 }, "message": "?" });
        let (mut first, mut second) = (question(), question());
        let open = asked.open(one.clone(), (&a, 1), Some(&mut first)).unwrap();
        let _other = asked.open(two.clone(), (&b, 1), Some(&mut second)).unwrap();
        let token = |question: &Value| question["_meta"]["progressToken"].clone();
        assert_ne!(token(&first), token(&second), "two servers may use the same token");
        let said = json!({ "progressToken": token(&first), "progress": 1 });
        assert_eq!(asked.server(&one, Some(&said)), Some(a.clone()));
        let name = |party: &Party, server: &ServerId, generation: u64| {
            let mut said = said.clone();
            asked.name(party, (server, generation), Some(&mut said)).then_some(said)
        };
        let named = json!({ "progressToken": 1, "progress": 1 });
        assert_eq!(name(&one, &a, 1), Some(named));
        // Another server, connection, client or session.
        for (party, server, generation) in
            [(&one, &b, 1), (&one, &a, 2), (&two, &a, 1), (&client("one", "2"), &a, 1)]
        {
            assert_eq!(name(party, server, generation), None, "{party:?} {server} {generation}");
        }
        assert_eq!(asked.server(&two, Some(&said)), None);
        assert_eq!(asked.server(&one, Some(&json!({ "progressToken": "1" }))), None);
        assert_eq!(asked.server(&Party::Unknown, Some(&said)), None);
        drop(open);
        assert_eq!(asked.server(&one, Some(&said)), None, "it is answered");
        assert!(asked.open(one, (&a, 1), Some(&mut json!({ "_meta": {} }))).is_none());
    }
}
