//! Whose is it, what a server says or asks without naming a request? Nobody's, unless there is one
//! client alone whose it can be: those whose requests are under way, and those whose requests have
//! ended so lately that the server may still speak of them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::exchange::{Exchange, LONGEST};
use super::listener::Listener;
use crate::{Client, Party};

/// How long a server may still speak of a request that it has answered.
const ANSWERED: Duration = Duration::from_secs(60);
/// How long it may still work on one that it was told nobody waits for.
const UNANSWERED: Duration = LONGEST;
/// Clients that are remembered so; beyond them nothing can be told apart for a while.
const MOST: usize = 1024;

/// Requests that hold no words of a client: when they have ended there is nothing to ask about.
const BARE: [&str; 8] = [
    "initialize",
    "server/discover",
    "ping",
    "logging/setLevel",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
];

/// Whose a request or a stream is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    /// The gateway's own.
    Ours,
    /// A client's.
    Client { principal: Option<Arc<str>>, session: Option<Arc<str>> },
    /// That of a client which says nothing of itself, by where it stands in memory.
    Alone(usize),
}

impl Whose {
    pub(crate) fn of(client: &Arc<dyn Client>) -> Self {
        match client.party() {
            Party::Gateway => Self::Ours,
            Party::Unknown => Self::Alone(Arc::as_ptr(client).cast::<()>() as usize),
            Party::Caller { principal, session } => Self::Client { principal, session },
        }
    }

    /// Whether it is one session's, so that each of its requests leads to the same client.
    pub(crate) fn is_session(&self) -> bool {
        !matches!(self, Self::Ours | Self::Client { session: None, .. })
    }

    /// Whether it is known by name which client it is.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self, Self::Client { principal: Some(_), .. })
    }

    /// The same client, though perhaps in another session.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Client { principal, .. }, Self::Client { principal: other, .. }) => {
                principal == other
            }
            _ => self == other,
        }
    }
}

/// Clients whose requests have ended, and until when the server may still speak of them.
#[derive(Default)]
pub(super) struct Ghosts {
    until: HashMap<Whose, Ghost>,
    /// There were too many to remember.
    crowd: Option<Instant>,
}

struct Ghost {
    until: Instant,
    /// Nothing else comes to stand in its place meanwhile.
    _place: Option<Weak<dyn Client>>,
}

impl Ghosts {
    /// A request has ended; `answered` by the server, or given up.
    pub(super) fn ended(
        &mut self,
        whose: &Whose,
        client: &Arc<dyn Client>,
        method: &str,
        answered: bool,
    ) {
        if *whose == Whose::Ours || BARE.contains(&method) {
            return;
        }
        let long = if answered { ANSWERED } else { UNANSWERED };
        let place = matches!(whose, Whose::Alone(_)).then(|| Arc::downgrade(client));
        self.remember(whose.clone(), Instant::now() + long, place);
    }

    /// A client has told the server something.
    pub(super) fn told(&mut self, party: &Party) {
        let until = Instant::now() + ANSWERED;
        match party.clone() {
            Party::Gateway => {}
            Party::Unknown => self.crowd = self.crowd.max(Some(until)),
            Party::Caller { principal, session } => {
                self.remember(Whose::Client { principal, session }, until, None);
            }
        }
    }

    fn remember(&mut self, whose: Whose, until: Instant, place: Option<Weak<dyn Client>>) {
        let whose = match whose {
            // One client, whatever its sessions.
            Whose::Client { principal, .. } => Whose::Client { principal, session: None },
            other => other,
        };
        if let Some(known) = self.until.get_mut(&whose) {
            known.until = known.until.max(until);
            return;
        }
        if self.until.len() >= MOST {
            self.sweep();
        }
        if self.until.len() >= MOST {
            self.crowd = self.crowd.max(Some(until));
            return;
        }
        self.until.insert(whose, Ghost { until, _place: place });
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        self.until.retain(|_, ghost| ghost.until > now);
        self.crowd = self.crowd.filter(|until| *until > now);
    }

    /// Whether all of them are this client.
    fn only(&mut self, whose: &Whose) -> bool {
        self.sweep();
        self.crowd.is_none() && self.until.keys().all(|ghost| ghost.is_of(whose))
    }
}

/// Where it can go.
pub(super) enum Tied {
    /// To these requests of one session, the newest first.
    Requests(Vec<Arc<Exchange>>),
    /// To these streams of one client, the newest first: nothing is under way.
    Listeners(Vec<Arc<Listener>>),
    /// Nowhere.
    Nobody,
}

/// Whose it is, of these requests and streams.
pub(super) fn tied<'r>(
    requests: impl Iterator<Item = &'r Arc<Exchange>>,
    listeners: impl Iterator<Item = (&'r u64, &'r Arc<Listener>)>,
    ghosts: &mut Ghosts,
) -> Tied {
    let mut under_way: Vec<_> = requests.filter(|r| r.whose != Whose::Ours).cloned().collect();
    if let Some(first) = under_way.first() {
        let whose = first.whose.clone();
        if under_way.iter().any(|request| request.whose != whose) || !ghosts.only(&whose) {
            return Tied::Nobody;
        }
        under_way.sort_unstable_by_key(|request| std::cmp::Reverse(request.key));
        return Tied::Requests(under_way);
    }
    let mut hear: Vec<_> = listeners.filter(|(_, listener)| listener.wanted.rest).collect();
    let Some((_, first)) = hear.first() else { return Tied::Nobody };
    let whose = first.whose.clone();
    if hear.iter().any(|(_, listener)| !listener.whose.is_of(&whose)) || !ghosts.only(&whose) {
        return Tied::Nobody;
    }
    hear.sort_unstable_by_key(|(key, _)| std::cmp::Reverse(**key));
    Tied::Listeners(hear.into_iter().map(|(_, listener)| Arc::clone(listener)).collect())
}
