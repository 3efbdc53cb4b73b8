//! Tool lists: held to the lock's or to the first one, and shown as far as they may be called.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use ringfence_bundle::{ServerId, ToolName, ToolPins};
use ringfence_mcp::strict::fold;
use ringfence_mcp::{HeaderParam, UpstreamError};
use ringfence_record::{Event, Outcome, Step};
use serde_json::{Value, json};

use crate::call::{Attempt, JudgedRequest};
use crate::catalog::{AGAIN, BYTES, Shown, Tools};
use crate::error::Error;
use crate::seams::Journal;
use crate::tools::{Dropped, Frozen, Listed, MOST, Pin, Verdict, lists};
use crate::{Gateway, Selection};

/// Pages of a list. More than any server has.
const PAGES: usize = 1000;

/// Tools with arguments that stand in headers too.
type Headers = Arc<HashMap<String, Vec<HeaderParam>>>;

/// What is known of one server's tools.
#[derive(Debug, Default)]
pub(crate) struct Held {
    frozen: Option<Frozen>,
    /// The connection that the last whole list came over.
    generation: u64,
    /// Grows with each reason to see the definitions anew.
    epoch: u64,
    /// Said once in the record.
    told: HashSet<Dropped>,
    names_told: HashSet<String>,
    /// The definitions of the last whole list, where a door wants them, and their bytes.
    whole: Option<(Tools, usize)>,
    /// Those that may be called now; made when they are asked for.
    shown: Option<Tools>,
    /// Which arguments of which tools stand in headers too, by the last whole list.
    headers: Option<Headers>,
    /// When a door's list was not to be had.
    failed: Option<Instant>,
}

impl Held {
    /// Before the first list: what the lock says, if it says something.
    pub(crate) fn to(pins: Option<&ToolPins>) -> Self {
        Self { frozen: pins.map(Frozen::by), ..Self::default() }
    }

    /// What is known may no longer be so, whatever list is under way.
    fn forget(&mut self) {
        self.generation = 0;
        self.epoch += 1;
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
        self.hold_to(server, false).await
    }

    /// [`Gateway::hold`], with the definitions whole.
    pub(crate) async fn hold_whole(&self, server: &ServerId) -> Result<Holding, Error> {
        let failed = self.held(server, |held| held.failed).flatten();
        if failed.is_some_and(|at| at.elapsed() < AGAIN) {
            return Err(nonsense("its tool list could not be had a moment ago"));
        }
        let holding = self.hold_to(server, true).await;
        self.held(server, |held| held.failed = holding.is_err().then(Instant::now));
        holding
    }

    async fn hold_to(&self, server: &ServerId, whole: bool) -> Result<Holding, Error> {
        let Some(turn) = self.listing.get(server) else {
            return Ok(Holding { generation: 0, fresh: false });
        };
        if let Some(generation) = self.known_as(server, whole) {
            return Ok(Holding { generation, fresh: false });
        }
        // One at a time: the others find it done.
        let _turn = turn.lock().await;
        if let Some(generation) = self.known_as(server, whole) {
            return Ok(Holding { generation, fresh: false });
        }
        // If this fails, the next one lists again.
        let epoch = self.held(server, |held| {
            held.generation = 0;
            held.epoch
        });
        let after = self.upstreams.patience();
        let (mut texts, mut bytes, mut headers) = (Vec::new(), 0, HashMap::new());
        let keep = |tool: &Value| {
            let listed = Listed::of(tool);
            if let (Some(name), params @ [_, ..]) =
                (listed.name(), &*HeaderParam::of_schema(&tool["inputSchema"]))
            {
                headers.insert(name.to_owned(), params.to_vec());
            }
            if let (true, Some(name)) = (whole, listed.name()) {
                let shown = Shown::new(name, tool);
                bytes += shown.text.len();
                if bytes <= BYTES {
                    texts.push(shown);
                }
            }
            Ok(listed)
        };
        let (tools, generation) = tokio::time::timeout(after, self.whole_list(server, None, keep))
            .await
            .unwrap_or(Err(Error::Upstream { error: UpstreamError::Timeout { after } }))?;
        let declared = self.declared(server);
        let bytes = bytes.min(BYTES);
        let dropped = self.held(server, |held| {
            let (frozen, mut dropped) = Frozen::take(held.frozen.take(), &tools);
            dropped.extend(frozen.moved(server, declared));
            held.frozen = Some(frozen);
            // What was said to have changed since this list was begun may not be in it.
            held.generation = if epoch == Some(held.epoch) { generation } else { 0 };
            if let Some((_, before)) = held.whole.take() {
                self.catalog.give_back(before);
            }
            held.whole = (whole && self.catalog.take(bytes)).then(|| (texts.into(), bytes));
            held.shown = None;
            held.headers = Some(Arc::new(headers));
            dropped
        });
        self.catalog.changed();
        self.report(server, dropped.unwrap_or_default()).await?;
        Ok(Holding { generation, fresh: true })
    }

    /// Whether a door's list needs nobody to be asked.
    pub(crate) fn stands(&self, server: &ServerId) -> bool {
        self.known_as(server, true).is_some()
    }

    /// The connection whose definitions are known and still the last that its server spoke of.
    fn known_as(&self, server: &ServerId, whole: bool) -> Option<u64> {
        self.held(server, |held| {
            let (standing, changed) = self.upstreams.standing(server)?;
            if changed {
                // Said once: whoever is here first keeps it in mind for the others.
                held.forget();
            }
            let known = held.frozen.is_some() && (!whole || held.whole.is_some());
            (known && held.generation == standing).then_some(standing)
        })
        .flatten()
    }

    /// The definitions must be seen anew before the next call.
    pub(crate) fn look_again(&self, server: &ServerId) {
        self.held(server, Held::forget);
    }

    /// Which arguments of a tool stand in headers too: by the lock, or by its server's last list. A
    /// server that is not pinned and was not asked yet is asked.
    pub(crate) async fn header_params(&self, server: &ServerId, tool: &str) -> Vec<HeaderParam> {
        let known = || self.held(server, |held| held.headers.clone()).flatten();
        let headers = match (known(), self.pins.get(server)) {
            (Some(headers), _) => headers,
            (None, Some(pins)) => {
                let schema = pins.tool(tool).map(|pin| &pin.definition["inputSchema"]);
                return schema.map(HeaderParam::of_schema).unwrap_or_default();
            }
            (None, None) => {
                // Why there is no list is said where the tool is called.
                let _ = self.hold(server).await;
                known().unwrap_or_default()
            }
        };
        headers.get(tool).cloned().unwrap_or_default()
    }

    /// Digest of a tool's definition, as it was seen last.
    pub(crate) fn definition(&self, server: &ServerId, tool: &str) -> String {
        let now = self.held(server, |held| held.frozen.as_ref().and_then(|f| f.now(tool)));
        now.flatten().map(|digest| digest.to_string()).unwrap_or_default()
    }

    /// Whether lists of these servers need nobody to be asked.
    pub(crate) fn all_stand(&self, selection: &Selection) -> bool {
        for server in selection.servers() {
            if !self.pins.contains_key(server) && !self.stands(server) {
                return false;
            }
        }
        true
    }

    /// The tools that may be called now, as far as that is known; sorted by name.
    pub(crate) fn shown(&self, server: &ServerId) -> Option<Tools> {
        let declared = self.declared(server);
        let may = |name: &str| lists(declared, name) && self.judge.tool(server, name).allowed;
        self.held(server, |held| {
            if let Some(shown) = &held.shown {
                return Some(Arc::clone(shown));
            }
            let whole: Tools = match (self.pins.get(server), &held.whole) {
                (Some(pins), _) => {
                    let row = |pin: &ringfence_bundle::ToolPin| {
                        Shown::new(pin.name.as_str(), &pin.definition)
                    };
                    pins.tools.iter().map(row).collect()
                }
                (None, Some((whole, _))) => Arc::clone(whole),
                (None, None) => return None,
            };
            let same = |name: &str| held.frozen.as_ref().is_some_and(|f| f.offers(server, name));
            let mut shown: Vec<_> =
                whole.iter().filter(|t| may(&t.name) && same(&t.name)).cloned().collect();
            shown.sort_by(|a, b| a.name.cmp(&b.name));
            shown.dedup_by(|a, b| a.name == b.name);
            let shown: Tools = shown.into();
            held.shown = Some(Arc::clone(&shown));
            Some(shown)
        })
        .flatten()
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
            let course = self.first_steps(server, &request, 0);
            let (page, over) =
                match self.pass_own(GATEWAY, course, server, &request, generation).await {
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
        let mut moved = false;
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
                let before = frozen.now(name);
                let Verdict { pin, rule, .. } = frozen.see(server, name, tool, current);
                moved |= before != frozen.now(name);
                if pin != Pin::Same {
                    dropped.push(Dropped::pinned(name, rule));
                    return false;
                }
                self.judge.tool(server, name).allowed
            });
            dropped.retain(|new| !held.names_told.contains(&new.name));
            if moved {
                held.shown = None;
            }
        });
        if moved {
            self.catalog.changed();
        }
        self.report(server, dropped).await?;
        Ok(page)
    }

    /// Records what a list held back, each once.
    async fn report(&self, server: &ServerId, dropped: Vec<Dropped>) -> Result<(), Error> {
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
                other_params: None,
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
