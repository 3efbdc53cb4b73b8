//! Tool lists: held to the lock's or to the first one, and shown as far as they may be called.

use std::collections::HashSet;

use ringfence_bundle::{ServerId, ToolName, ToolPins};
use ringfence_mcp::UpstreamError;
use ringfence_mcp::strict::fold;
use ringfence_record::{Event, Outcome, Step};
use serde_json::{Value, json};

use crate::Gateway;
use crate::call::{Attempt, JudgedRequest, nobody};
use crate::error::Error;
use crate::seams::Journal;
use crate::tools::{Dropped, Frozen, Listed, MOST, Pin, Verdict, lists};

/// Pages of a list. More than any server has.
const PAGES: usize = 1000;

/// What is known of one server's tools.
#[derive(Debug, Default)]
pub(crate) struct Held {
    frozen: Option<Frozen>,
    /// The connection that the last whole list came over.
    generation: u64,
    /// Said once in the record.
    told: HashSet<Dropped>,
    names_told: HashSet<String>,
}

impl Held {
    /// Before the first list: what the lock says, if it says something.
    pub(crate) fn to(pins: Option<&ToolPins>) -> Self {
        Self { frozen: pins.map(Frozen::by), ..Self::default() }
    }
}

/// That a server's definitions are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The connection that they came over.
    pub(crate) generation: u64,
    /// They were listed just now, which may have taken a while.
    pub(crate) fresh: bool,
}

/// In the record: listings that the gateway makes for itself.
pub(crate) const GATEWAY: &str = "gateway";

impl Gateway {
    /// Sees to it that the definitions are those of this connection.
    pub(crate) async fn hold(&self, server: &ServerId) -> Result<Holding, Error> {
        let Some(turn) = self.listing.get(server) else {
            return Ok(Holding { generation: 0, fresh: false });
        };
        // One at a time: the others find it done.
        let _turn = turn.lock().await;
        let known = self.held(server, |held| held.frozen.is_some().then_some(held.generation));
        if let Some((standing, false)) = self.upstreams.standing(server).await
            && known.flatten() == Some(standing)
        {
            return Ok(Holding { generation: standing, fresh: false });
        }
        // If this fails, the next one lists again.
        self.held(server, |held| held.generation = 0);
        let after = self.upstreams.patience();
        let (tools, generation) =
            tokio::time::timeout(after, self.whole_list(server, None, |tool| Ok(Listed::of(tool))))
                .await
                .unwrap_or(Err(Error::Upstream { error: UpstreamError::Timeout { after } }))?;
        let declared = self.declared(server);
        let dropped = self.held(server, |held| {
            let (frozen, mut dropped) = Frozen::take(held.frozen.take(), &tools);
            dropped.extend(frozen.moved(server, declared));
            held.frozen = Some(frozen);
            held.generation = generation;
            dropped
        });
        self.tell(server, dropped.unwrap_or_default()).await?;
        Ok(Holding { generation, fresh: true })
    }

    /// All pages, each a call of its own in the record, all over one connection: its generation is
    /// given with them. `keep` says what is kept of each.
    pub(crate) async fn whole_list<T>(
        &self,
        server: &ServerId,
        mut generation: Option<u64>,
        mut keep: impl FnMut(&Value) -> Result<T, Error>,
    ) -> Result<(Vec<T>, u64), Error> {
        let mut tools = Vec::new();
        let mut cursor: Option<Value> = None;
        for _ in 0..PAGES {
            let params = cursor.take().map(|cursor| json!({ "cursor": cursor }));
            let request = JudgedRequest::from_door("tools/list", params);
            let course = self.first_steps(server, &request);
            let (page, over) =
                match self.pass(GATEWAY, &nobody(), course, server, request, generation).await {
                    Ok(passed) => passed,
                    Err(Attempt::Failed(error)) => return Err(error),
                    // A page of another process is no page of this list.
                    Err(Attempt::Again) => {
                        let reason = "it ended while its tools were being listed".to_owned();
                        return Err(Error::Upstream { error: UpstreamError::Closed { reason } });
                    }
                };
            generation = Some(over);
            let Some(found) = page.get("tools").and_then(Value::as_array) else {
                return Err(nonsense("its tool list is not a list"));
            };
            // One more than are kept, so that it shows.
            for tool in found.iter().take(MOST + 1 - tools.len()) {
                tools.push(keep(tool)?);
            }
            match page.get("nextCursor") {
                Some(next @ Value::String(_)) if tools.len() <= MOST => cursor = Some(next.clone()),
                _ => return Ok((tools, over)),
            }
        }
        Err(nonsense("its tool list has no end"))
    }

    pub(crate) fn pin(&self, server: &ServerId, tool: &str) -> Verdict {
        let verdict = |frozen: &Frozen| frozen.verdict(server, tool);
        let known = self.held(server, |held| held.frozen.as_ref().map(verdict)).flatten();
        known.unwrap_or_else(|| Frozen::default().verdict(server, tool))
    }

    /// The tools that a server's declaration lets through; `None` for all.
    pub(crate) fn declared(&self, server: &ServerId) -> Option<&[ToolName]> {
        self.servers.get(server)?.tools.as_deref()
    }

    fn held<T>(&self, server: &ServerId, act: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.get_mut(server).map(act)
    }

    /// What the agent sees of a page: the tools that it may call, as they were first defined. `over`
    /// is the generation of the connection that it came over.
    pub(crate) async fn filter(
        &self,
        server: &ServerId,
        mut page: Value,
        over: u64,
    ) -> Result<Value, Error> {
        if let Some(page) = page.as_object_mut() {
            // A reader that ignores case would take such a list for the one that is filtered.
            page.retain(|key, _| key == "tools" || fold(key) != "tools");
        }
        let Some(tools) = page.get_mut("tools").and_then(Value::as_array_mut) else {
            return Err(nonsense("its tool list is not a list"));
        };
        tools.truncate(MOST);
        let declared = self.declared(server);
        let mut dropped = Vec::new();
        self.held(server, |held| {
            // A page of a process that is gone says nothing of the one that was listed since.
            let current = held.generation == over;
            let frozen = held.frozen.get_or_insert_default();
            tools.retain(|tool| {
                let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
                // What the declaration leaves out needs no other reason.
                if !lists(declared, name) {
                    return false;
                }
                let Verdict { pin, rule, .. } = frozen.see(server, name, tool, current);
                if pin != Pin::Same {
                    dropped.push(Dropped::pinned(name, rule));
                    return false;
                }
                self.judge.tool(server, name).allowed
            });
            dropped.retain(|new| !held.names_told.contains(&new.name));
        });
        self.tell(server, dropped).await?;
        Ok(page)
    }

    /// Records what a list held back, each once.
    async fn tell(&self, server: &ServerId, dropped: Vec<Dropped>) -> Result<(), Error> {
        let new = self.held(server, |held| {
            let mut new = Vec::new();
            for dropped in dropped {
                if held.told.len() < MOST && held.told.insert(dropped.clone()) {
                    held.names_told.insert(dropped.name.clone());
                    new.push(dropped);
                }
            }
            new
        });
        // A line of the record stays readable.
        for some in new.unwrap_or_default().chunks(100) {
            let step = |dropped: &Dropped| Step {
                check: dropped.check.into(),
                outcome: Outcome::Refused,
                rule: dropped.rule.clone(),
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

pub(crate) fn nonsense(reason: &str) -> Error {
    Error::Upstream { error: UpstreamError::Nonsense { reason: reason.into() } }
}
