//! Asks servers what they offer, so that a person can review it and the lock can pin it.

mod fit;
mod moved;

use std::sync::Arc;

use ringfence_bundle::{Id, Lock, ServerId, Snapshot, ToolPins};
use ringfence_gateway::Gateway;
use ringfence_mcp::UpstreamError;
use ringfence_record::{Event, Kind, RunId};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::execute::{EndedBy, runtime};
use crate::live::record_stop;
use crate::plan::Request;
use crate::proxy::Way;
use crate::session::{Session, alone};
use crate::supervise::Signals;
use crate::{Error, Plan};

pub use moved::{Field, How, Moved, Piece, What, moved};

/// Servers that are to be asked, of a bundle that is trusted. Runs no agent.
#[derive(Debug)]
pub struct Inquiry {
    plan: Plan,
    servers: Vec<ServerId>,
}

/// What was learnt.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The record of the asking.
    pub run: RunId,
    /// What each server offers, sorted by server.
    pub pins: Vec<ToolPins>,
    /// Tools that are not pinned and so never offered.
    pub unfit: Vec<Unfit>,
    /// Tools that a declaration lists and its server does not offer: `server/tool`.
    pub missing: Vec<String>,
}

/// A tool that is not pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unfit {
    /// Whose it is.
    pub server: ServerId,
    /// Its name as the server spells it: hostile text.
    pub name: String,
    /// Why, in words, fit to print.
    pub why: String,
}

impl Inquiry {
    /// Checks trust and everything else that a run checks. Starts, contacts and resolves nothing.
    /// Without names every declared server is meant.
    ///
    /// # Errors
    /// As for [`Plan::build`]; [`Error::NoServer`], [`Error::NoServers`].
    pub fn build(request: &Request, named: &[String]) -> Result<Self, Error> {
        let words = ["ringfence", "lock", "--tools"].map(str::to_owned).into_iter();
        let plan = Plan::without_agent(request, words.chain(named.iter().cloned()).collect())?;
        let declared = || plan.manifest().servers.keys();
        let known = |name: &String| {
            Id::parse(name).ok().filter(|id| plan.manifest().servers.contains_key(id)).ok_or_else(
                || Error::NoServer {
                    name: name.escape_debug().take(80).collect(),
                    declared: declared().map(ToString::to_string).collect(),
                },
            )
        };
        let mut servers: Vec<_> = if named.is_empty() {
            declared().cloned().collect()
        } else {
            named.iter().map(known).collect::<Result<_, _>>()?
        };
        servers.sort();
        servers.dedup();
        if servers.is_empty() {
            return Err(Error::NoServers);
        }
        Ok(Self { plan, servers })
    }

    /// The bundle that was checked.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        self.plan.bundle.snapshot()
    }

    /// Asks each server once, all at the same time, on this thread, which must be the program's main
    /// one. A record of its own says who was asked what.
    ///
    /// # Errors
    /// [`Error::NotAsked`] names every server that gave no answer; [`Error::Stopped`]; and what keeps
    /// a run from starting.
    pub fn ask(&self) -> Result<Asked, Error> {
        let session = Session::open(&self.plan, Kind::Ask, None)?;
        let runtime = runtime()?;
        let outcome = runtime.block_on(self.contained(&session));
        runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        session.close(outcome, |_| Event::RunFinished {
            status: 0,
            ended_by: EndedBy::Exit.word().into(),
            detail: None,
        })
    }

    async fn contained(&self, session: &Session) -> Result<Asked, Error> {
        let mut signals =
            Signals::new().map_err(|source| Error::Io { path: "(signals)".into(), source })?;
        let (stop, stopped) = watch::channel(false);
        let proxy = Way::open(&self.plan, &session.run, &session.recorder).await?;
        let (parts, servers) = alone(&self.plan, session, &proxy, stopped)?;
        let gateway = Gateway::asking(parts);
        let mut asking = JoinSet::new();
        for server in self.servers.clone() {
            let gateway = Arc::clone(&gateway);
            asking.spawn(async move {
                let offer = gateway.offer(&server).await;
                (server, offer)
            });
        }
        let mut offers = Vec::new();
        let all = async {
            while let Some(asked) = asking.join_next().await {
                // One that panicked has said so, and is missed below.
                offers.extend(asked);
            }
        };
        let ended = tokio::select! {
            () = all => Ok(()),
            _ = signals.next() => {
                Err(record_stop(&session.recorder).await.err().unwrap_or(Error::Stopped))
            }
        };
        asking.shutdown().await;
        gateway.close().await;
        servers.none().await;
        proxy.close().await;
        // Nobody listens any more only when all is over already.
        let _ = stop.send(true);
        ended?;
        offers.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.gather(session.run.clone(), offers, &gateway)
    }

    /// What the answers come to: all of it, or every problem.
    fn gather(&self, run: RunId, offers: Vec<Answered>, gateway: &Gateway) -> Result<Asked, Error> {
        let mut asked = Asked { run, pins: Vec::new(), unfit: Vec::new(), missing: Vec::new() };
        let (mut problems, mut refused) = (Vec::new(), false);
        for server in &self.servers {
            if offers.iter().all(|(answered, _)| answered != server) {
                problems.push(format!("{server}: it gave no answer"));
            }
        }
        for (server, offer) in offers {
            let fitted = match offer {
                Ok(offer) => fit::fit(&server, offer),
                Err(error) => {
                    refused |= matches!(error, ringfence_gateway::Error::Refused(_));
                    Err(match error {
                        // Its own words, for once: a person asked it.
                        ringfence_gateway::Error::Upstream {
                            error: error @ UpstreamError::Rpc(_),
                        } => error.to_string(),
                        ringfence_gateway::Error::Upstream { error } => {
                            gateway.detail(&server, &error)
                        }
                        error => error.to_string(),
                    })
                }
            };
            match fitted {
                Ok((pins, unfit, missing)) => {
                    asked.pins.push(pins);
                    asked.unfit.extend(unfit);
                    asked.missing.extend(missing);
                }
                // One line each: the words may be the server's, and must not look like ours.
                Err(why) => {
                    let why: String = why.replace('\n', "\\n").replace('\r', "\\r");
                    problems.push(format!("{server}: {why}"));
                }
            }
        }
        if problems.is_empty() { Ok(asked) } else { Err(Error::NotAsked { problems, refused }) }
    }

    /// The lock with what was learnt in the place of what it said of these servers.
    #[must_use]
    pub fn locked(&self, asked: &Asked) -> Lock {
        // A bundle that is trusted has a lock.
        let mut lock = self.snapshot().lock.clone().unwrap_or_default();
        lock.tools.retain(|pins| !self.servers.contains(&pins.server));
        lock.tools.extend(asked.pins.iter().cloned());
        lock.tools.sort_by(|a, b| a.server.cmp(&b.server));
        lock
    }

    /// What moved against the lock, for each server that was asked.
    #[must_use]
    pub fn moved(&self, asked: &Asked) -> Vec<Moved> {
        let before = |pins: &ToolPins| self.snapshot().tool_pins(&pins.server);
        asked.pins.iter().flat_map(|pins| moved(before(pins), pins)).collect()
    }

    /// Writes the lock, whole or not at all. False when it said all of this already.
    ///
    /// # Errors
    /// [`Error::Overtaken`]; [`Error::Unlockable`] when it would not read back as it is, which its
    /// size alone can cause; [`Error::Bundle`] when it cannot be written.
    pub fn write(&self, asked: &Asked) -> Result<bool, Error> {
        let lock = self.locked(asked);
        let text = lock.render();
        if self.snapshot().lock_bytes.as_deref() == Some(text.as_bytes()) {
            return Ok(false);
        }
        let file = self.snapshot().folder().join("ringfence.lock");
        match Lock::parse(&file, text.as_bytes()) {
            Ok(read) if read == lock => {}
            Ok(_) => return Err(Error::Unlockable("it reads back as something else".into())),
            Err(found) => {
                let words: Vec<_> = found.into_iter().map(|finding| finding.message).collect();
                return Err(Error::Unlockable(words.join("; ")));
            }
        }
        if !self.plan.store.still(&self.plan.bundle) {
            return Err(Error::Overtaken);
        }
        ringfence_bundle::write_lock(self.snapshot(), &text)?;
        Ok(true)
    }
}

type Answered = (ServerId, Result<ringfence_gateway::Offer, ringfence_gateway::Error>);
