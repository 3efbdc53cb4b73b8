//! The one way out of a run's sandboxes: the built-in proxy or Squid, as the manifest has it.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_bundle::{Engine, Transport};
use ringfence_egress::{Begun, Proxy, Squid, SquidSetup, Strictness, Token, clear_squid};
use ringfence_policy::Principal;
use ringfence_record::{Recorder, RunId};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::execute::run_dir;
use crate::live::started_at;
use crate::plan::PROXY_PORT;
use crate::{Error, Plan};

/// What is known of a run's Squid, in the run's folder as long as it is there.
const NOTE: &str = "squid.json";
/// Where its files are, in the run's folder, where an unprivileged user need not come through.
const OWN: &str = "squid";

/// The proxy of one run.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    Builtin(Proxy),
    Squid(Arc<Kept>),
}

/// A Squid, and the note of it.
#[derive(Debug)]
pub(crate) struct Kept {
    squid: Squid,
    note: PathBuf,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.note);
    }
}

/// What a sweep must know.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    folder: PathBuf,
    /// Its name among the Squids of this machine.
    name: String,
    /// 0 before it has started.
    pid: u32,
    /// Clock ticks since boot.
    pid_started: u64,
}

impl Way {
    /// Opens the way that the manifest names.
    pub(crate) async fn open(plan: &Plan, run: &RunId, recorder: &Recorder) -> Result<Self, Error> {
        match plan.engine() {
            Engine::Builtin => Self::builtin(plan, recorder),
            Engine::Squid => Self::squid(plan, run, recorder).await,
        }
    }

    /// The built-in one, whatever the manifest names. As strict for servers as it is for the agent.
    pub(crate) fn builtin(plan: &Plan, recorder: &Recorder) -> Result<Self, Error> {
        let strict = plan.is_strict();
        let strictness = Strictness { refuse_literals: strict, tls_only: strict };
        let proxy = Proxy::strict(Arc::clone(&plan.ruleset), recorder.clone(), strictness)?;
        Ok(Self::Builtin(proxy))
    }

    async fn squid(plan: &Plan, run: &RunId, recorder: &Recorder) -> Result<Self, Error> {
        let own = run_dir(&plan.home, run);
        // As root it is another user, who cannot come through the machine's state.
        let folder = match rustix::process::geteuid().is_root() {
            true => PathBuf::from(format!("/run/ringfence-squid-{run}-{}", std::process::id())),
            false => own.join(OWN),
        };
        let path = own.join(NOTE);
        let name: String = run.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("ringfence{name}");
        let mut note = Note { folder: folder.clone(), name: name.clone(), ..Note::default() };
        write(&path, &note)?;
        let servers = plan.manifest().servers.iter();
        let stdio = servers.filter(|(_, it)| matches!(it.transport, Transport::Stdio { .. }));
        let principals = std::iter::once(Principal::Agent)
            .chain(stdio.map(|(id, _)| Principal::Server(id.clone())))
            .collect();
        let setup = SquidSetup {
            ruleset: Arc::clone(&plan.ruleset),
            recorder: recorder.clone(),
            principals,
            path: plan.search.as_deref(),
            folder: &folder,
            name: &name,
            prepare: ringfence_sandbox::dies_with_us,
        };
        let squid = match Squid::start(&setup).await {
            Ok(squid) => squid,
            Err(error) => {
                sweep(&own);
                return Err(error.into());
            }
        };
        note.pid = squid.pid();
        note.pid_started = started_at(note.pid).unwrap_or_default();
        write(&path, &note)?;
        Ok(Self::Squid(Arc::new(Kept { squid, note: path })))
    }

    /// The built-in proxy, where it is that.
    pub(crate) fn of_ours(&self) -> Option<&Proxy> {
        match self {
            Self::Builtin(proxy) => Some(proxy),
            Self::Squid(_) => None,
        }
    }

    /// The token that this principal is to show.
    pub(crate) fn token(&self, who: &Principal) -> Result<Token, ringfence_egress::Error> {
        match self {
            Self::Builtin(_) => Token::fresh(),
            Self::Squid(kept) => kept.squid.token(who).map_or_else(Token::fresh, Ok),
        }
    }

    /// The address of the proxy inside a sandbox, with the token.
    pub(crate) fn url(&self, who: &Principal, token: &Token, peer: IpAddr) -> String {
        let at = SocketAddr::new(peer, PROXY_PORT);
        match self {
            Self::Builtin(_) => token.proxy_url(at),
            // Squid knows its clients by their names.
            Self::Squid(_) => token.proxy_url_as(&who.to_string(), at),
        }
    }

    pub(crate) async fn serve(
        &self,
        listener: TcpListener,
        who: Principal,
        token: Token,
        begun: Begun,
        stop: watch::Receiver<bool>,
    ) -> Result<(), ringfence_egress::Error> {
        match self {
            Self::Builtin(proxy) => proxy.serve(listener, who, token, begun, stop).await,
            Self::Squid(kept) => kept.squid.serve(listener, who, begun, stop).await,
        }
    }

    /// Ends when nothing can go out any more, and says why.
    pub(crate) async fn failed(&self) -> String {
        match self {
            Self::Builtin(_) => std::future::pending().await,
            Self::Squid(kept) => kept.squid.failed().await,
        }
    }

    /// Ends what was started for it. What it saw is in the record then.
    pub(crate) async fn close(&self) {
        match self {
            Self::Builtin(_) => {}
            Self::Squid(kept) => kept.squid.stop().await,
        }
    }
}

fn write(path: &Path, note: &Note) -> Result<(), Error> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let new = path.with_extension("new");
    let text = serde_json::to_vec(note).map_err(|error| io(error.into()))?;
    std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)).map_err(io)
}

/// Ends the Squid of a run whose supervisor is gone, and removes its files. Only ever the process that
/// was noted: its id and its start.
pub(crate) fn sweep(own: &Path) {
    let path = own.join(NOTE);
    let Ok(text) = std::fs::read(&path) else { return };
    let note: Note = serde_json::from_slice(&text).unwrap_or_default();
    let pid = i32::try_from(note.pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid
        && note.pid_started != 0
        && started_at(note.pid) == Some(note.pid_started)
        // Opened before the check below, so that a reused id is never signalled.
        && let Ok(handle) =
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        && started_at(note.pid) == Some(note.pid_started)
    {
        let _ = rustix::process::pidfd_send_signal(&handle, rustix::process::Signal::KILL);
    }
    let ours = note.folder.starts_with(own)
        || note.folder.parent() == Some(Path::new("/run"))
            && note.folder.file_name().is_some_and(|name| {
                name.to_str().is_some_and(|name| name.starts_with("ringfence-squid-"))
            });
    if ours {
        clear_squid(&note.folder, &note.name);
    }
    let _ = std::fs::remove_file(&path);
}
