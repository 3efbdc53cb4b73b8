//! The sidecar's side.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_policy::{Principal, Ruleset};
use ringfence_record::Event;
use tokio::io::copy_bidirectional;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::wire::{self, Begin, Order, Refusal, Relay, Unresolved, Word};
use super::{CONTROL, SIDECAR_FOLDER, SIDECAR_NAME};
use crate::address::{AddressError, check_addresses};
use crate::engine::{Addresses, Check, Engine, Journal, Limits, Lookup, Names, Strictness};
use crate::local::Locals;
use crate::resolve::ResolveError;
use crate::{Begun, Proxy, Token};

/// Events that the supervisor has not taken yet, before a request waits.
const WAITING: u64 = 1024;
/// Connections of one relayed port at a time: clients of the gate.
const CONNECTIONS: usize = 256;
/// Questions to the supervisor at a time; more wait here.
pub(super) const QUESTIONS: usize = 256;

/// Whether this process was started as a sidecar.
#[must_use]
pub fn is_sidecar() -> bool {
    std::env::args_os().next().is_some_and(|name| {
        name.to_str().and_then(|name| name.strip_prefix('/')) == Some(SIDECAR_NAME)
    })
}

/// The program's entry as a sidecar: called by `main` before anything else when the process was started
/// as one (see [`is_sidecar`]). Never returns; ends when its supervisor does.
pub fn sidecar_main() -> ! {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| {
        runtime.block_on(async {
            let control = UnixStream::connect(Path::new(SIDECAR_FOLDER).join(CONTROL)).await?;
            attend(control, Path::new(SIDECAR_FOLDER)).await
        })
    });
    // The supervisor was told why, if it still listens. Nothing that was open is waited for.
    match ended {
        Ok(never) => match never {},
        Err(_) => std::process::exit(1),
    }
}

/// Does what it is told, until the socket ends: then all that it serves ends with it.
pub(super) async fn attend(control: UnixStream, folder: &Path) -> io::Result<Infallible> {
    let (mut orders, mut words) = control.into_split();
    let begin = match wire::receive(&mut orders).await? {
        Some(Order::Begin(begin)) => begin,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let begun = Begun::default();
    let (say, mut said) = mpsc::unbounded_channel();
    let line = Arc::new(Line {
        say,
        noted: Mutex::new(0),
        kept: watch::channel(0).0,
        questions: AtomicU64::new(0),
        asking: Arc::new(Semaphore::new(QUESTIONS)),
        asked: Mutex::default(),
    });
    let (stop, stopped) = watch::channel(false);
    match listen(&begin, folder, &line, &begun, &stopped).await {
        Ok(()) => wire::send(&mut words, &Word::Ready).await?,
        Err(reason) => {
            wire::send(&mut words, &Word::Refused { reason: reason.clone() }).await?;
            return Err(io::Error::other(reason));
        }
    }
    let writing = async {
        while let Some(word) = said.recv().await {
            wire::send(&mut words, &word).await?;
            if matches!(word, Word::Bye) {
                break;
            }
        }
        Err::<Infallible, _>(io::Error::from(io::ErrorKind::BrokenPipe))
    };
    tokio::select! {
        ended = writing => ended,
        ended = obey(&mut orders, &line, &begun, &stop) => ended,
    }
}

async fn obey(
    orders: &mut OwnedReadHalf,
    line: &Line,
    begun: &Begun,
    stop: &watch::Sender<bool>,
) -> io::Result<Infallible> {
    loop {
        match wire::receive(orders).await? {
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(Order::Begin(_)) => return Err(io::ErrorKind::InvalidData.into()),
            Some(Order::Stop) => drop(stop.send(true)),
            Some(Order::Go) => {
                begun.begin();
                line.tell(Word::Going)?;
            }
            Some(Order::Resolved { question, answer }) => {
                line.answered(question, Answer::Names(answer))
            }
            Some(Order::Checked { question, refusal }) => {
                line.answered(question, Answer::Address(refusal));
            }
            Some(Order::Kept { events }) => {
                line.kept.send_modify(|kept| *kept = kept.saturating_add(events));
            }
        }
    }
}

/// Opens every port.
async fn listen(
    begin: &Begin,
    folder: &Path,
    line: &Arc<Line>,
    begun: &Begun,
    stopped: &watch::Receiver<bool>,
) -> Result<(), String> {
    if begin.version != wire::VERSION {
        return Err(format!("there is no form {} of orders", begin.version));
    }
    let ruleset =
        Ruleset::from_json(begin.ruleset.as_bytes()).map_err(|error| error.to_string())?;
    let at =
        |port: u16, error: io::Error| format!("{}: {error}", SocketAddr::new(begin.address, port));
    let listener = std::net::TcpListener::bind((begin.address, begin.proxy))
        .map_err(|error| at(begin.proxy, error))?;
    let engine = Engine::new(
        Box::new(Arc::new(ruleset)),
        Box::new(Arc::clone(line)),
        Box::new(Arc::clone(line)),
        Box::new(Arc::clone(line)),
        Limits::default(),
    );
    let strictness = Strictness { refuse_literals: begin.strict, tls_only: begin.strict };
    let proxy = Proxy::with_engine(engine.with_strictness(strictness));
    let (token, begun, stopped) = (Token::given(&begin.token), begun.clone(), stopped.clone());
    for Relay { port, socket, once } in &begin.relays {
        let listener =
            TcpListener::bind((begin.address, *port)).await.map_err(|error| at(*port, error))?;
        tokio::spawn(relay(listener, folder.join(socket), *once));
    }
    let line = Arc::clone(line);
    tokio::spawn(async move {
        // What was open is recorded by now. A proxy that cannot go on is no peer any more: the sandbox
        // is shut then, as when it is told to end.
        let _ = proxy.serve(listener, Principal::Agent, token, begun, stopped).await;
        let _ = line.tell(Word::Bye);
    });
    Ok(())
}

/// Passes connections on, byte for byte, each way until its end.
async fn relay(listener: TcpListener, socket: std::path::PathBuf, once: bool) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((mut client, _)) = listener.accept().await else {
            // Descriptors have run out: some are given back when connections end.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let socket = socket.clone();
        tokio::spawn(async move {
            let _slot = slot;
            let _ = client.set_nodelay(true);
            // Errors of a connection are its own ends'.
            if let Ok(mut server) = UnixStream::connect(socket).await {
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
        if once {
            return;
        }
    }
}

enum Answer {
    Names(Result<Vec<IpAddr>, Unresolved>),
    Address(Option<Refusal>),
}

/// The line to the supervisor.
struct Line {
    say: mpsc::UnboundedSender<Word>,
    /// Events that were sent.
    noted: Mutex<u64>,
    /// Those of them that the supervisor has taken, in their order.
    kept: watch::Sender<u64>,
    questions: AtomicU64,
    asking: Arc<Semaphore>,
    /// Whoever asked, with the room for it: that is free again when the answer comes, also where nobody
    /// waits for it any more.
    asked: Mutex<HashMap<u64, (oneshot::Sender<Answer>, OwnedSemaphorePermit)>>,
}

impl Line {
    fn tell(&self, word: Word) -> io::Result<()> {
        self.say.send(word).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn asked(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<u64, (oneshot::Sender<Answer>, OwnedSemaphorePermit)>>
    {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, u64> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, question: u64, answer: Answer) {
        if let Some((asker, _)) = self.asked().remove(&question) {
            // Whoever asked may have given up.
            let _ = asker.send(answer);
        }
    }

    async fn ask(&self, word: impl FnOnce(u64) -> Word) -> Option<Answer> {
        let room = Arc::clone(&self.asking).acquire_owned().await.ok()?;
        let question = self.questions.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = oneshot::channel();
        self.asked().insert(question, (asker, room));
        self.tell(word(question)).ok()?;
        answer.await.ok()
    }
}

impl Names for Arc<Line> {
    fn lookup<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let word = |question| Word::Resolve { question, name: name.to_owned() };
            match self.ask(word).await {
                Some(Answer::Names(answer)) => answer.map_err(Into::into),
                _ => Err(ResolveError::Lookup("the supervisor is gone".into())),
            }
        })
    }
}

/// What this container knows, and then what the machine knows.
impl Addresses for Arc<Line> {
    fn check<'a>(&'a self, answers: &'a [IpAddr]) -> Check<'a> {
        Box::pin(async move {
            let checked = check_addresses(answers, &Locals::of_this_machine())?;
            let Some(first) = answers.first().copied() else { return Err(AddressError::Empty) };
            let word = |question| Word::Check { question, addresses: answers.to_vec() };
            match self.ask(word).await {
                Some(Answer::Address(None)) => Ok(checked),
                Some(Answer::Address(Some(Refusal::Local(address)))) => {
                    Err(AddressError::Local(address))
                }
                Some(Answer::Address(Some(Refusal::Unknown(address, reason)))) => {
                    Err(AddressError::Unknown(address, reason))
                }
                _ => Err(AddressError::Unknown(first, "the supervisor is gone".into())),
            }
        })
    }
}

impl Journal for Arc<Line> {
    fn note(&self, event: Event) -> Result<(), String> {
        // Counted and sent as one, so that the count is the order.
        let mut noted = self.noted();
        *noted += 1;
        self.tell(Word::Event(Box::new(event))).map_err(|_| GONE.to_owned())
    }

    fn taken(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let noted = *self.noted();
        Box::pin(async move {
            let mut kept = self.kept.subscribe();
            let taken = kept.wait_for(|kept| *kept >= noted).await;
            taken.map(drop).map_err(|_| GONE.to_owned())
        })
    }

    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let mut kept = self.kept.subscribe();
            // One that is gone takes everything down with it.
            let _ = kept.wait_for(|kept| *self.noted() < kept.saturating_add(WAITING)).await;
        })
    }
}

const GONE: &str = "the supervisor is gone";
