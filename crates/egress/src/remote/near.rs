//! The supervisor's side.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::Ruleset;
use ringfence_record::Event;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::far::QUESTIONS;
use super::wire::{self, Begin, Order, Refusal, Relay, Unresolved, Word};
use crate::address::AddressError;
use crate::engine::Engine;
use crate::{Error, Proxy, Token};

/// How long a sidecar has to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a sidecar is to do.
#[derive(Debug)]
pub struct Setup<'a> {
    /// By which rules.
    pub ruleset: &'a Ruleset,
    /// What its peers must show.
    pub token: &'a Token,
    /// Its address in the sandbox's network, where it listens.
    pub address: IpAddr,
    /// The proxy's port.
    pub proxy: u16,
    /// Other ports.
    pub relays: Vec<Relay>,
    /// Whether literal addresses and anything but TLS are refused.
    pub strict: bool,
}

/// A sidecar that listens.
#[derive(Debug)]
pub struct Remote {
    orders: mpsc::UnboundedSender<Order>,
    going: Option<oneshot::Receiver<()>>,
}

/// Serves a sidecar's questions, and takes its evidence. Over when the sidecar is gone, which it must not
/// be before the run is.
pub type Attending = tokio::task::JoinHandle<Ended>;

/// How a sidecar ended.
#[derive(Debug)]
pub enum Ended {
    /// It has said that this was all, and all that it said is in the record.
    Whole,
    /// The line was cut, or its evidence could not be taken: something may be missing.
    Cut(io::Error),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole => f.write_str("it has ended"),
            Self::Cut(error) => error.fmt(f),
        }
    }
}

impl Remote {
    /// Tells a sidecar what to do, and waits until it listens. Its questions are answered and its
    /// evidence is recorded by the given proxy's resolver, address check and record.
    ///
    /// # Errors
    /// [`Error::Sidecar`]: it refuses (a ruleset newer than it knows), or does not answer within 10
    /// seconds.
    pub async fn begin(
        proxy: &Proxy,
        control: StdUnixStream,
        setup: Setup<'_>,
    ) -> Result<(Self, Attending), Error> {
        let failed = |error: io::Error| Error::Sidecar(error.to_string());
        control.set_nonblocking(true).map_err(failed)?;
        let control = UnixStream::from_std(control).map_err(failed)?;
        let (mut words, mut orders) = control.into_split();
        let ruleset = String::from_utf8(setup.ruleset.to_json())
            .map_err(|error| Error::Sidecar(error.to_string()))?;
        let begin = Begin {
            version: wire::VERSION,
            ruleset,
            token: setup.token.text().to_owned(),
            address: setup.address,
            proxy: setup.proxy,
            relays: setup.relays,
            strict: setup.strict,
        };
        let answer = async {
            wire::send(&mut orders, &Order::Begin(Box::new(begin))).await?;
            wire::receive(&mut words).await
        };
        match timeout(PATIENCE, answer).await {
            Err(_) => return Err(Error::Sidecar("no answer within 10 s".into())),
            Ok(Err(error)) => return Err(failed(error)),
            Ok(Ok(Some(Word::Ready))) => {}
            Ok(Ok(Some(Word::Refused { reason }))) => return Err(Error::Sidecar(reason)),
            Ok(Ok(_)) => return Err(Error::Sidecar("it ended before it listened".into())),
        }
        let (say, said) = mpsc::unbounded_channel();
        let (go, going) = oneshot::channel();
        let near = Near {
            engine: Arc::clone(proxy.engine()),
            orders: say.clone(),
            lookups: Arc::new(Semaphore::new(QUESTIONS)),
            numbers: HashMap::new(),
            going: Some(go),
        };
        let attending = tokio::spawn(attend(near, words, orders, said));
        Ok((Self { orders: say, going: Some(going) }, attending))
    }

    /// From now on requests are judged and recorded. Before the process is let go.
    ///
    /// # Errors
    /// [`Error::Sidecar`]: it is gone.
    pub async fn go(&mut self) -> Result<(), Error> {
        let gone = || Error::Sidecar("it is gone".into());
        let Some(going) = self.going.take() else { return Ok(()) };
        self.orders.send(Order::Go).map_err(|_| gone())?;
        match timeout(PATIENCE, going).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(gone()),
        }
    }
}

impl Remote {
    /// Tells the sidecar to cut what is open, to say so, and to end.
    pub fn stop(&self) {
        // One that is gone has ended.
        let _ = self.orders.send(Order::Stop);
    }
}

struct Near {
    engine: Arc<Engine>,
    orders: mpsc::UnboundedSender<Order>,
    lookups: Arc<Semaphore>,
    /// The run's numbers of connections that are open, by the sidecar's.
    numbers: HashMap<u64, u64>,
    going: Option<oneshot::Sender<()>>,
}

async fn attend(
    mut near: Near,
    mut words: OwnedReadHalf,
    mut orders: OwnedWriteHalf,
    mut said: mpsc::UnboundedReceiver<Order>,
) -> Ended {
    let writing = async {
        while let Some(order) = said.recv().await {
            wire::send(&mut orders, &order).await?;
        }
        Ok::<(), io::Error>(())
    };
    let reading = async {
        loop {
            match wire::receive(&mut words).await? {
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(Word::Bye) => return Ok(()),
                Some(word) => near.hear(word).await?,
            }
        }
    };
    tokio::pin!(writing, reading);
    let mut deaf = false;
    let ended: io::Result<()> = loop {
        tokio::select! {
            biased;
            ended = &mut reading => break ended,
            // It hears nothing any more; what it said is still taken.
            _ = &mut writing, if !deaf => deaf = true,
        }
    };
    match ended {
        Ok(()) => Ended::Whole,
        Err(error) => Ended::Cut(error),
    }
}

impl Near {
    async fn hear(&mut self, word: Word) -> io::Result<()> {
        match word {
            Word::Ready | Word::Refused { .. } | Word::Bye => {
                Err(io::ErrorKind::InvalidData.into())
            }
            Word::Going => {
                if let Some(going) = self.going.take() {
                    let _ = going.send(());
                }
                Ok(())
            }
            Word::Resolve { question, name } => {
                let (engine, orders) = (Arc::clone(&self.engine), self.orders.clone());
                // Evidence comes by the same line: nothing here waits for a name server. One that keeps to
                // its own bound never asks more.
                let Ok(slot) = Arc::clone(&self.lookups).try_acquire_owned() else {
                    let answer = Err(Unresolved::Lookup("too many questions at once".into()));
                    return self.answer(Order::Resolved { question, answer });
                };
                tokio::spawn(async move {
                    let answer = engine.names.lookup(&name).await.map_err(Into::into);
                    // Given back first: the next question comes as soon as this one is answered.
                    drop(slot);
                    // A sidecar that is gone asks nothing any more.
                    let _ = orders.send(Order::Resolved { question, answer });
                });
                Ok(())
            }
            Word::Check { question, addresses } => {
                let refusal = self.refusal(&addresses).await;
                self.answer(Order::Checked { question, refusal })
            }
            Word::Event(event) => {
                if let Some(event) = self.renumbered(*event) {
                    self.engine.journal.room().await;
                    self.engine.journal.note(event).map_err(io::Error::other)?;
                }
                self.answer(Order::Kept { events: 1 })
            }
        }
    }

    fn answer(&self, order: Order) -> io::Result<()> {
        self.orders.send(order).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    async fn refusal(&self, addresses: &[IpAddr]) -> Option<Refusal> {
        match self.engine.addresses.check(addresses).await {
            Ok(_) => None,
            Err(AddressError::Local(address) | AddressError::Special { address, .. }) => {
                Some(Refusal::Local(address))
            }
            Err(AddressError::Unknown(address, reason)) => Some(Refusal::Unknown(address, reason)),
            Err(AddressError::Empty) => None,
        }
    }

    /// Evidence of a sidecar under the run's own numbers. It speaks for the agent, of connections, and
    /// of nothing else.
    fn renumbered(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::EgressDecided {
                connection,
                method,
                host,
                port,
                outcome,
                steps,
                address,
                ..
            } => {
                let number = self.engine.number();
                if address.is_some() {
                    self.numbers.insert(connection, number);
                }
                Some(Event::EgressDecided {
                    principal: ringfence_policy::Principal::Agent.to_string(),
                    connection: number,
                    method,
                    host,
                    port,
                    outcome,
                    steps,
                    address,
                })
            }
            Event::EgressClosed { connection, sent, received, reason } => {
                let connection = self.numbers.remove(&connection)?;
                Some(Event::EgressClosed { connection, sent, received, reason })
            }
            _ => None,
        }
    }
}
