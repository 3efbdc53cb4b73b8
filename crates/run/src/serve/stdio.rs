//! `ringfence mcp`: one client over stdin and stdout, for as long as it and its program live.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use ringfence_bundle::Id;
use ringfence_mcp::Backend;
use ringfence_sandbox::native;
use tokio::sync::watch;

use super::bundle::Served;
use super::front::Front;
use super::open::Ending;
use super::place::Place;
use super::{Say, Which, Wish};
use crate::execute::{EndedBy, runtime_for_one};
use crate::rooms::Counted;
use crate::supervise::Signals;
use crate::{Error, Request};

/// How long calls may go on when a session is replaced by another.
const DRAIN: Duration = Duration::from_secs(30);

/// What a person asked for.
#[derive(Clone)]
pub struct Mcp {
    /// Folder and machine.
    pub request: Request,
    /// Whether the folder was named: then a client's roots do not count.
    pub named: bool,
    /// A toolset by name, or the default one.
    pub toolset: Option<String>,
    /// Only this server, as it is.
    pub server: Option<String>,
    /// Three tools over everything that is selected.
    pub compact: bool,
    /// As typed, for the record.
    pub words: Vec<String>,
    /// Where people are told something. Stdout is the protocol's.
    pub say: Say,
}

/// Serves the client at stdin and stdout until stdin is closed, the program that started this one is
/// gone, or a signal comes; then every server is gone and every record sealed.
///
/// # Errors
/// [`Error::NoServer`] when what was named can be no server; [`Error::Io`].
pub fn mcp(mcp: Mcp) -> Result<(), Error> {
    let which = match (&mcp.server, mcp.compact) {
        (Some(name), _) => Which::Server(Id::parse(name).map_err(|_| Error::NoServer {
            name: name.escape_debug().take(80).collect(),
            declared: Vec::new(),
        })?),
        (None, true) => Which::Compact,
        (None, false) => Which::All,
    };
    let runtime = runtime_for_one()?;
    let served = runtime.block_on(serve(mcp, which));
    // Whoever reads stdin may still be waiting for it.
    runtime.shutdown_background();
    served
}

async fn serve(mcp: Mcp, which: Which) -> Result<(), Error> {
    let io = |source| Error::Io { path: "(signals)".into(), source };
    let mut signals = Signals::new().map_err(io)?;
    let user_home = mcp.request.user_home.canonicalize().ok();
    let wish = Wish {
        request: mcp.request,
        words: mcp.words,
        toolset: mcp.toolset,
        drain: DRAIN,
        // On a terminal an agent may have drawn its own screen.
        notices: !std::io::stderr().is_terminal(),
        counted: Counted::default(),
        say: mcp.say,
    };
    let served = Served::new(wish);
    let place = if mcp.named { Place::fixed(served) } else { Place::asking(served, user_home) };
    place.connect();
    let (end, ending) = watch::channel(false);
    let front: Arc<dyn Backend> = Arc::new(Front::new(Arc::clone(&place), which, ending));
    let serving = ringfence_mcp::serve_stdio(front, tokio::io::stdin(), tokio::io::stdout());
    let ending = tokio::select! {
        served = serving => match served {
            Ok(()) => Ending::new(EndedBy::Exit, "the client closed the connection"),
            Err(error) => Ending::new(EndedBy::Error, error.to_string()),
        },
        signal = signals.next() => Ending::new(EndedBy::Stopped, format!("signal {signal}")),
        // Others may hold the other end of stdin then.
        () = native::parent_gone() => Ending::new(EndedBy::Exit, "the client's program is gone"),
    };
    // Nobody listens any more only when everything has ended.
    let _ = end.send(true);
    place.close(ending).await;
    Ok(())
}
