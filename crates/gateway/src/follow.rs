//! `resources/subscribe` and `resources/unsubscribe` of a client with a session. To a server they are
//! one stream of updates for each session, in whichever way the server has for it: nothing of it is
//! shared with another client.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ringfence_bundle::ServerId;
use ringfence_mcp::{Client, Listening, Reply, RpcError, UpstreamError, Wanted, code};
use serde_json::json;
use tokio::time::Instant;

use crate::Gateway;
use crate::error::Error;
use crate::permit::CallPermit;
use crate::sessions::{Attached, Ear, Follows, Stream, bounded, session};
use crate::upstream::Failure;

/// How long after its end a stream is begun again, and no longer than that when it ends again and again.
const SOON: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(60);

/// What a client wants with one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Follow,
    Leave,
}

impl Change {
    fn of(method: &str) -> Option<Self> {
        match method {
            "resources/subscribe" => Some(Self::Follow),
            "resources/unsubscribe" => Some(Self::Leave),
            _ => None,
        }
    }
}

fn refused(code: i64, words: &str) -> Failure {
    Failure::Upstream(UpstreamError::Rpc(RpcError::new(code, words)))
}

impl Gateway {
    /// Sends a judged message on. What a session follows is kept here, and what else it asks is the
    /// server's to answer.
    pub(crate) async fn forward(
        &self,
        who: &str,
        client: &Arc<dyn Client>,
        permit: CallPermit,
        generation: Option<u64>,
    ) -> Result<(Reply, u64), Failure> {
        let Some(change) = Change::of(permit.method()) else {
            return self.upstreams.forward(client, permit, generation).await;
        };
        let server = permit.server().clone();
        let uri = permit.text("uri").map(str::to_owned);
        let Some(uri) = uri.filter(|uri| !uri.is_empty()) else {
            return Err(refused(code::INVALID_PARAMS, "\"uri\" is missing"));
        };
        let Some(kept) = self.sessions.of(client.as_ref(), &server) else {
            let words = match session(client.as_ref()) {
                Some(_) => "the session has ended",
                None => "what is followed belongs to a session, and this request is in none",
            };
            return Err(refused(code::INVALID_REQUEST, words));
        };
        let mut follows = kept.follows.lock().await;
        let mut uris = follows.uris.clone();
        match change {
            Change::Follow if !uris.insert(uri.clone()) && follows.stands() => {
                let over = self.upstreams.generation(&server).unwrap_or_default();
                return Ok((Reply::Done(json!({})), over));
            }
            Change::Follow => {
                bounded(&uris).map_err(|error| Failure::Upstream(UpstreamError::Rpc(error)))?;
            }
            Change::Leave if uris.remove(&uri) => {}
            // The server says what it thinks of that; whoever else follows it goes on to.
            Change::Leave => return self.upstreams.forward(client, permit, generation).await,
        }
        if uris.is_empty() {
            *follows = Follows::default();
            let over = self.upstreams.generation(&server).unwrap_or_default();
            return Ok((Reply::Done(json!({})), over));
        }
        let new = (change == Change::Follow).then_some(uri.as_str());
        let ear = Arc::clone(&kept.ear) as Arc<dyn Client>;
        let followed = self.upstreams.follow(&ear, permit, generation, uris.clone(), new).await;
        let (Listening { granted, passing }, over) = followed?;
        let stream = Followed {
            gateway: Weak::clone(&self.me),
            who: who.to_owned(),
            server,
            ear: Arc::clone(&kept.ear),
            uris: granted.uris.clone(),
        };
        // The one before ends when there is another: nothing is missed between the two.
        follows.stream = Some(Stream::of(stream.pass(passing, over)));
        follows.uris = uris;
        Ok((Reply::Done(json!({})), over))
    }

    /// A session has ended: nothing is kept of it.
    pub(crate) fn left(&self, session: &str) {
        self.sessions.end(session);
    }

    /// Lets the session of this client hear of what it follows on this stream of its own, until what
    /// comes back is dropped.
    pub(crate) fn attach(&self, client: &Arc<dyn Client>, server: &ServerId) -> Option<Attached> {
        Some(self.sessions.of(client.as_ref(), server)?.ear.attach(client))
    }
}

/// What a session follows on one server, for as long as it does.
struct Followed {
    gateway: Weak<Gateway>,
    who: String,
    server: ServerId,
    ear: Arc<Ear>,
    uris: BTreeSet<String>,
}

impl Followed {
    /// Passes updates on. When the server is there anew, or has ended the stream, what is followed is
    /// asked of it again, and judged again.
    async fn pass(self, mut passing: ringfence_mcp::Boxed<'static, ()>, mut generation: u64) {
        let Some(mut ups) = self.gateway.upgrade().map(|gateway| gateway.ups()) else { return };
        let mut wait = SOON;
        loop {
            let begun = Instant::now();
            passing.await;
            wait = if begun.elapsed() > LATE { SOON } else { wait };
            let at = Instant::now() + wait;
            let next = loop {
                ups.borrow_and_update();
                let up = match self.gateway.upgrade().map(|gateway| gateway.is_up(&self.server)) {
                    None => return,
                    Some(Some(now)) if now != generation => break now,
                    Some(up) => up,
                };
                tokio::select! {
                    changed = ups.changed() => if changed.is_err() { return },
                    // It has ended the stream and stands, as far as is known.
                    () = tokio::time::sleep_until(at), if up.is_some() => {
                        wait = (2 * wait).min(LATE);
                        break generation;
                    }
                }
            };
            generation = next;
            let ear = Arc::clone(&self.ear) as Arc<dyn Client>;
            let wanted = Wanted { uris: self.uris.clone(), ..Wanted::default() };
            let Some(gateway) = self.gateway.upgrade() else { return };
            let heard = gateway.hear_as(&self.who, &ear, &self.server, wanted, Some(next)).await;
            drop(gateway);
            passing = match heard {
                Ok((listening, _)) => listening.passing,
                Err(Error::Refused(_) | Error::Record { .. }) => return,
                // It may have gone again already.
                Err(_) => Box::pin(std::future::ready(())),
            };
        }
    }
}
