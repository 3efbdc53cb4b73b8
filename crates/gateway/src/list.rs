//! Tool lists: held to the first one, and shown as far as they may be called.

use ringfence_bundle::ServerId;
use ringfence_mcp::UpstreamError;
use ringfence_record::{Event, Outcome, Step};
use serde_json::{Value, json};

use crate::Gateway;
use crate::call::{Attempt, JudgedRequest};
use crate::error::Error;
use crate::seams::Journal;
use crate::tools::{Dropped, Frozen, MOST, Pin, shown};

/// What is known of one server's tools.
#[derive(Debug, Default)]
pub(crate) struct Held {
    frozen: Option<Frozen>,
    /// The connection that the last whole list came over.
    generation: u64,
    /// Said once in the record.
    told: Vec<Dropped>,
}

/// In the record: listings that the gateway makes for itself.
const GATEWAY: &str = "gateway";

impl Gateway {
    /// Sees to it that the definitions are those of this connection. Gives its generation.
    pub(crate) async fn hold(&self, server: &ServerId) -> Result<u64, Error> {
        let Some(turn) = self.listing.get(server) else {
            return Ok(0);
        };
        // One at a time: the others find it done.
        let _turn = turn.lock().await;
        let known = self.held(server, |held| held.frozen.is_some().then_some(held.generation));
        if let Some((standing, false)) = self.upstreams.standing(server).await
            && known.flatten() == Some(standing)
        {
            return Ok(standing);
        }
        // If this fails, the next one lists again.
        self.held(server, |held| held.generation = 0);
        let tools = self.whole_list(server).await?;
        let Some((generation, _)) = self.upstreams.standing(server).await else {
            let reason = "it ended after its tools were listed".to_owned();
            return Err(Error::Upstream { error: UpstreamError::Closed { reason } });
        };
        let dropped = self.held(server, |held| {
            let (frozen, dropped) = Frozen::take(held.frozen.take(), &tools);
            held.frozen = Some(frozen);
            held.generation = generation;
            dropped
        });
        self.tell(server, dropped.unwrap_or_default()).await?;
        Ok(generation)
    }

    /// All pages, each a call of its own in the record.
    async fn whole_list(&self, server: &ServerId) -> Result<Vec<Value>, Error> {
        let mut tools = Vec::new();
        let mut cursor: Option<Value> = None;
        for _ in 0..MOST {
            let params = cursor.take().map(|cursor| json!({ "cursor": cursor }));
            let request = JudgedRequest::from_door("tools/list", params);
            let course = self.first_steps(server, &request);
            let page = match self.pass(GATEWAY, course, server, request, None).await {
                Ok(page) => page,
                Err(Attempt::Failed(error)) => return Err(error),
                Err(Attempt::Again) => return Err(nonsense("it cannot be listed")),
            };
            let Some(found) = page.get("tools").and_then(Value::as_array) else {
                return Err(nonsense("its tool list is not a list"));
            };
            tools.extend(found.iter().cloned());
            match page.get("nextCursor") {
                Some(next @ Value::String(_)) if tools.len() <= MOST => cursor = Some(next.clone()),
                _ => return Ok(tools),
            }
        }
        Err(nonsense("its tool list has no end"))
    }

    pub(crate) fn pin(&self, server: &ServerId, tool: &str) -> Option<Pin> {
        self.held(server, |held| held.frozen.as_ref().map(|frozen| frozen.pin(tool)))?
    }

    fn held<T>(&self, server: &ServerId, act: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.get_mut(server).map(act)
    }

    /// What the agent sees of a page: the tools that it may call, as they were first defined.
    pub(crate) async fn filter(&self, server: &ServerId, mut page: Value) -> Result<Value, Error> {
        let Some(tools) = page.get_mut("tools").and_then(Value::as_array_mut) else {
            return Err(nonsense("its tool list is not a list"));
        };
        let listed = self.servers.get(server).and_then(|declared| declared.tools.as_ref());
        let mut dropped = Vec::new();
        self.held(server, |held| {
            let mut frozen = held.frozen.as_mut();
            tools.retain(|tool| {
                let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
                if frozen.as_ref().is_none_or(|frozen| frozen.pin(name) == Pin::Unknown) {
                    let why = "it was not in the run's first tools/list, or not fit to be";
                    dropped.push(Dropped { name: shown(name), why: why.into() });
                    return false;
                }
                if !frozen.as_mut().is_some_and(|frozen| frozen.see(name, tool)) {
                    let why = "its definition is not that of the run's first tools/list";
                    dropped.push(Dropped { name: shown(name), why: why.into() });
                    return false;
                }
                listed.is_none_or(|tools| tools.iter().any(|tool| tool.as_str() == name))
                    && self.judge.tool(server, name).allowed
            });
            dropped.retain(|new| !held.told.iter().any(|told| told.name == new.name));
        });
        self.tell(server, dropped).await?;
        Ok(page)
    }

    /// Records what a list held back, each once.
    async fn tell(&self, server: &ServerId, dropped: Vec<Dropped>) -> Result<(), Error> {
        let new = self.held(server, |held| {
            let mut new: Vec<_> = dropped.into_iter().filter(|d| !held.told.contains(d)).collect();
            new.truncate(MOST.saturating_sub(held.told.len()));
            held.told.extend(new.iter().cloned());
            new
        });
        // A line of the record stays readable.
        for some in new.unwrap_or_default().chunks(100) {
            let step = |dropped: &Dropped| Step {
                check: "name".into(),
                outcome: Outcome::Refused,
                rule: format!("{}: {}", dropped.name, dropped.why),
            };
            let event = Event::CallDecided {
                call: self.next_call(),
                principal: GATEWAY.into(),
                server: server.to_string(),
                method: "tools/list".into(),
                tool: None,
                arguments: None,
                outcome: Outcome::Refused,
                steps: some.iter().map(step).collect(),
            };
            let written = Journal::commit(self.journal.as_ref(), event).await;
            let _evidence = written.map_err(|detail| Error::Record { detail })?;
        }
        Ok(())
    }
}

fn nonsense(reason: &str) -> Error {
    Error::Upstream { error: UpstreamError::Nonsense { reason: reason.into() } }
}
