//! Streams of what a server says outside requests.

use std::sync::Arc;
use std::time::Instant;

use ringfence_bundle::ServerId;
use ringfence_mcp::{Client, Listening, Party, UpstreamError, Wanted};
use ringfence_policy::{Decision, Layer};
use serde_json::Value;
use tokio::sync::watch;

use crate::asked::PROGRESS;
use crate::call::{JudgedRequest, Settling};
use crate::decide::Course;
use crate::error::Error;
use crate::tools::shown;
use crate::upstream::Failure;
use crate::{Caller, Gateway};

/// What a client tells a server. Handshake and cancellation end at the door.
const TOLD: [&str; 2] = ["notifications/roots/list_changed", PROGRESS];
/// Addresses of one stream.
const URIS: usize = 1_000;

impl Gateway {
    /// Begins a stream of what a server says outside requests, as far as the rules allow the methods
    /// that it names: tools always, prompts with any method of prompts, resources with
    /// `resources/list`, updates with `resources/subscribe`. One decision in the record. When the
    /// server is restarted, the stream goes on with its successor.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub async fn listen(
        self: &Arc<Self>,
        caller: &Caller,
        client: &Arc<dyn Client>,
        server: &ServerId,
        wanted: Wanted,
    ) -> Result<Listening, Error> {
        let mut ups = self.upstreams.ups();
        let (listening, mut generation) = self.hear(caller, client, server, wanted, None).await?;
        let granted = listening.granted.clone();
        let (gateway, client, server) = (Arc::clone(self), Arc::clone(client), server.clone());
        let (caller, wanted) = (caller.clone(), granted.clone());
        let attached = self.attach(&client, &server);
        let passing = async move {
            // What the session follows is heard on this stream for as long as it lives.
            let mut attached = attached;
            if let Some(attached) = &mut attached {
                attached.tell().await;
            }
            let mut passing = listening.passing;
            loop {
                passing.await;
                // Another connection of the same server, if there will be one.
                let next = loop {
                    ups.borrow_and_update();
                    match gateway.upstreams.generation(&server) {
                        Some(now) if now != generation => break now,
                        _ if ups.changed().await.is_err() => return,
                        _ => {}
                    }
                };
                let heard =
                    gateway.hear(&caller, &client, &server, wanted.clone(), Some(next)).await;
                generation = next;
                passing = match heard {
                    Ok((listening, _)) => listening.passing,
                    Err(Error::Refused(_) | Error::Record { .. }) => return,
                    // It may have gone again already.
                    Err(_) => Box::pin(std::future::ready(())),
                };
            }
        };
        Ok(Listening { granted, passing: Box::pin(passing) })
    }

    /// One decision, and a stream over one connection; over that of a generation, starting nothing.
    pub(crate) async fn hear(
        &self,
        caller: &Caller,
        client: &Arc<dyn Client>,
        server: &ServerId,
        wanted: Wanted,
        generation: Option<u64>,
    ) -> Result<(Listening, u64), Error> {
        self.hear_as(&caller.to_string(), client, server, wanted, generation).await
    }

    /// [`Gateway::hear`] for whoever is called so in the record.
    pub(crate) async fn hear_as(
        &self,
        who: &str,
        client: &Arc<dyn Client>,
        server: &ServerId,
        wanted: Wanted,
        generation: Option<u64>,
    ) -> Result<(Listening, u64), Error> {
        let request = JudgedRequest::from_door("subscriptions/listen", None);
        let mut course = self.declared_steps(server);
        let wanted = if course.is_open() {
            self.granted(&mut course, server, wanted)
        } else {
            Wanted::default()
        };
        let call = self.next_call();
        let mut settling = Settling {
            journal: self.journal.as_ref(),
            call,
            since: Instant::now(),
            open: course.is_open(),
            cost: None,
        };
        let decided = self.decide(who, call, course, server, &request).await;
        settling.open &= decided.is_ok();
        let permit = decided?;
        let most = wanted.clone();
        match self.upstreams.listen(client, permit, generation, wanted).await {
            Ok((mut listening, over)) => {
                settling.end("answered", Some("the stream is open".into()))?;
                listening.granted = both(most, listening.granted);
                Ok((listening, over))
            }
            Err(failure) => {
                let error = match failure {
                    Failure::Stale => {
                        UpstreamError::Closed { reason: "it was restarted meanwhile".into() }
                    }
                    Failure::Stranger(reason) => UpstreamError::Nonsense { reason },
                    Failure::Unsent(error) | Failure::Upstream(error) => error,
                };
                settling.end("failed", Some(self.detail(server, &error)))?;
                Err(match error {
                    UpstreamError::Rpc(error) => Error::Answered(error),
                    error => Error::Upstream { error },
                })
            }
        }
    }

    /// Passes a client's notification on to a server that is up: it starts none. Progress goes to the
    /// server alone that asked this client under that token. One decision in the record, as for a
    /// request.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub async fn tell(
        &self,
        caller: &Caller,
        party: &Party,
        server: &ServerId,
        method: &str,
        mut params: Option<Value>,
    ) -> Result<(), Error> {
        let Some(generation) = self.is_up(server) else { return Ok(()) };
        let about = (server, generation);
        let stray = method == PROGRESS && !self.upstreams.asked.name(party, about, params.as_mut());
        let request = JudgedRequest::from_door(method, params);
        let mut course = self.declared_steps(server);
        if course.is_open() {
            if stray {
                let rule = "the progress is about no question that this server asked this client";
                course.refuse("methods", Layer::Builtin, rule, "name the token of the question");
            } else if TOLD.contains(&method) {
                course.allow("methods", "notifications pass");
            } else {
                let rule = format!("{}: no notification of a client", shown(method));
                course.refuse("methods", Layer::Builtin, &rule, "spell it as MCP does");
            }
        }
        let call = self.next_call();
        let permit = self.decide(&caller.to_string(), call, course, server, &request).await?;
        let (journal, since) = (self.journal.as_ref(), Instant::now());
        let settling = Settling { journal, call, since, open: true, cost: None };
        match self.upstreams.tell(party, permit, generation).await {
            Ok(()) => settling.end("answered", Some("it was told".into())),
            Err(error) => settling.end("failed", Some(self.detail(server, &error))),
        }
    }

    /// What of it the methods allow, with a step for each part.
    fn granted(&self, course: &mut Course, server: &ServerId, wanted: Wanted) -> Wanted {
        let mut step = |what: &str, judged: Option<Decision>| match judged {
            Some(Decision { allowed: true, rule, .. }) => {
                course.allow("methods", format!("{what}: {rule}"));
                true
            }
            Some(Decision { rule, .. }) => {
                course.withhold("methods", format!("{what}: {rule}"));
                false
            }
            None => {
                course.withhold("methods", format!("{what}: no method of it is listed"));
                false
            }
        };
        let judge = |method: &str| Some(self.judge.method(server, method));
        let mut granted = Wanted::default();
        if wanted.prompts {
            let listed =
                self.methods(server).iter().filter(|method| method.starts_with("prompts/"));
            let judged = listed.map(|method| self.judge.method(server, method));
            granted.prompts = step("changes of prompts", judged.max_by_key(|d| d.allowed));
        }
        if wanted.resources {
            granted.resources = step("changes of resources", judge("resources/list"));
        }
        if !wanted.uris.is_empty() && step("updates of resources", judge("resources/subscribe")) {
            granted.uris = wanted.uris.into_iter().take(URIS).collect();
        }
        granted.tools = wanted.tools;
        granted.rest = wanted.rest;
        if granted.tools || granted.rest {
            course.allow("methods", "changes of tools, and notifications, pass");
        }
        granted
    }

    /// The connection that a server has. Contacts nobody.
    pub(crate) fn is_up(&self, server: &ServerId) -> Option<u64> {
        self.upstreams.generation(server)
    }

    /// Hears of servers that are up anew.
    pub(crate) fn ups(&self) -> watch::Receiver<u64> {
        self.upstreams.ups()
    }
}

/// What both sides grant.
fn both(ours: Wanted, theirs: Wanted) -> Wanted {
    Wanted {
        tools: ours.tools && theirs.tools,
        prompts: ours.prompts && theirs.prompts,
        resources: ours.resources && theirs.resources,
        uris: ours.uris.intersection(&theirs.uris).cloned().collect(),
        rest: ours.rest && theirs.rest,
    }
}
