//! `login` and `logout`: a session without an agent, in which a person signs in to one server.

use std::path::Path;

use ringfence_bundle::{Id, SecretName, ServerId, Snapshot, Transport};
use ringfence_gateway::{Desk, Gateway, Login, LoginError, SignedOut};
use ringfence_mcp::oauth::Wish;
use ringfence_record::{Event, Kind, MachineLog};
use ringfence_secrets::{Kept, SignIn, SignIns};
use serde::Serialize;
use tokio::sync::watch;

use crate::execute::{EndedBy, runtime};
use crate::live::record_stop;
use crate::plan::Request;
use crate::proxy::Way;
use crate::session::{Session, alone};
use crate::supervise::Signals;
use crate::{Error, Plan};

/// What a person asked for.
#[derive(Debug)]
pub struct Signing {
    /// The server's name.
    pub server: String,
    /// What they want of the sign-in.
    pub wish: Wish,
    /// The name of the client's secret.
    pub client_secret: Option<SecretName>,
    /// Where it is to be kept.
    pub kept: Kept,
    /// Where they sit.
    pub desk: Desk,
}

/// Signs in to a server of a trusted bundle, on this thread, which must be the program's main one. A
/// record of its own says who was contacted and what came of it.
///
/// # Errors
/// As for [`Plan::build`], before anybody is contacted; [`Error::NoServer`]; [`Error::Login`];
/// [`Error::StoppedLogin`].
pub fn login(request: &Request, signing: Signing) -> Result<SignIn, Error> {
    let words = ["ringfence", "login", &signing.server].map(str::to_owned).to_vec();
    let plan = Plan::without_agent(request, words)?;
    let server = declared(&plan.manifest().servers, &signing.server)?;
    let session = Session::open(&plan, Kind::Ask, None)?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(contained(&plan, &session, server, signing));
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    session.close(outcome, |_| Event::RunFinished {
        status: 0,
        ended_by: EndedBy::Exit.word().into(),
        detail: None,
    })
}

fn declared<T>(
    servers: &std::collections::BTreeMap<ServerId, T>,
    name: &str,
) -> Result<ServerId, Error> {
    Id::parse(name).ok().filter(|id| servers.contains_key(id)).ok_or_else(|| Error::NoServer {
        name: name.escape_debug().take(80).collect(),
        declared: servers.keys().map(ToString::to_string).collect(),
    })
}

async fn contained(
    plan: &Plan,
    session: &Session,
    server: ServerId,
    signing: Signing,
) -> Result<SignIn, Error> {
    let mut signals =
        Signals::new().map_err(|source| Error::Io { path: "(signals)".into(), source })?;
    let (_stop, stopped) = watch::channel(false);
    // Nothing that could go out by it is started.
    let proxy = Way::builtin(plan, &session.recorder)?;
    let (parts, _servers) = alone(plan, session, &proxy, stopped)?;
    let Signing { wish, client_secret, kept, desk, .. } = signing;
    let login = Login { server: server.clone(), wish, client_secret, kept, desk };
    tokio::select! {
        done = Gateway::sign_in(parts, login) => {
            done.map_err(|error| Error::Login { server: server.to_string(), error })
        }
        _ = signals.next() => {
            Err(record_stop(&session.recorder).await.err().unwrap_or(Error::StoppedLogin))
        }
    }
}

/// One sign-in of this machine, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignInRow {
    /// The servers of this project that use it, by name.
    pub servers: Vec<String>,
    /// What of it is no secret.
    #[serde(flatten)]
    pub sign_in: SignIn,
}

/// Every sign-in of this machine, and which servers of this project use it. Asks nobody.
///
/// # Errors
/// [`Error::Secret`] when the list cannot be read.
pub fn sign_ins(project: &Path, home: &Path) -> Result<Vec<SignInRow>, Error> {
    let declared = Snapshot::read(project).map(|snapshot| snapshot.manifest.servers.clone());
    let declared = declared.unwrap_or_default();
    let row = |sign_in: SignIn| {
        let uses = |transport: &Transport| match transport {
            Transport::Http { url, headers } => {
                *url == sign_in.server
                    && !headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
            }
            Transport::Stdio { .. } => false,
        };
        let servers = declared.iter().filter(|(_, server)| uses(&server.transport));
        SignInRow { servers: servers.map(|(id, _)| id.to_string()).collect(), sign_in }
    };
    Ok(SignIns::new(home).list()?.into_iter().map(row).collect())
}

/// Gives a token back, where its issuer takes it, and forgets it. `name` is a server of the project,
/// or an address of [`sign_ins`]. The machine's own record says so; nothing of the bundle is used but
/// the server's address, so that no trust is needed.
///
/// # Errors
/// [`Error::NoServer`]; [`Error::Login`]: it is still there.
pub fn logout(project: &Path, home: &Path, name: &str) -> Result<SignedOut, Error> {
    let signins = SignIns::new(home);
    let listed = signins.list()?.into_iter().find(|it| it.server == name);
    let (server, url) = match listed {
        Some(sign_in) => (Id::parse("elsewhere").ok(), sign_in.server),
        None => {
            let servers = Snapshot::read(project)?.manifest.servers.clone();
            let id = declared(&servers, name)?;
            match servers.get(&id).map(|server| &server.transport) {
                Some(Transport::Http { url, .. }) => (Some(id), url.clone()),
                _ => {
                    let error = LoginError::NotHttp(id);
                    return Err(Error::Login { server: name.to_owned(), error });
                }
            }
        }
    };
    let fail = |error| Error::Login { server: name.to_owned(), error };
    let Some(server) = server else { return Err(fail(LoginError::NotSignedIn(url))) };
    let log = MachineLog::of_machine(home)?;
    let runtime = runtime()?;
    let done = runtime.block_on(ringfence_gateway::sign_out(&server, &url, &signins, log));
    done.map_err(fail)
}
