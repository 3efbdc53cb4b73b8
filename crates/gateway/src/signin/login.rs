//! `login`: a gateway whose one server asks a person. `logout`: the token given back and forgotten.

use std::sync::Arc;
use std::time::Duration;

use ringfence_bundle::{ServerId, Template, Transport};
use ringfence_mcp::oauth::{
    Challenge, Grant, Ground, Interactive, Keep, OAuthError, Outside, Wish, discover, revoke,
};
use ringfence_mcp::{Authorize, Boxed as Reached, UpstreamError};
use ringfence_record::{Event, MachineLog, Outcome};
use ringfence_secrets::{Kept, Resolver, Secret, SignIn, SignIns};
use serde_json::Value;

use super::{Authority, Desk, Guard, Keys, Roads, listed};
use crate::permit::Evidence;
use crate::seams::{Boxed, Filled, Journal, Vault};
use crate::{Error, Gateway, Parts, Waits};

/// How long a step may take in which a person signs in.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// Why nobody is signed in, or out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// A server over stdio has no sign-in of this kind: it gets its secrets by `env`.
    #[error("`{0}` is a server over stdio: it gets its secrets by `env`, and has no sign-in")]
    NotHttp(ServerId),
    /// Its declaration has an `Authorization` of its own, which goes before every token.
    #[error(
        "`{0}` is declared with an `Authorization` header of its own, which is used and no sign-in: \
         take it out of the manifest first"
    )]
    OwnHeader(ServerId),
    /// It answered everything without asking for a token.
    #[error("`{0}` asks for no sign-in, and publishes nothing about one")]
    NotAsked(ServerId),
    /// On the way to a token.
    #[error("{0}")]
    OAuth(#[from] OAuthError),
    /// The token was given and the server does not take it. Nothing is kept.
    #[error("the server does not take the token that it was given: {0}")]
    NotTaken(String),
    /// The server could not be reached, or a rule refused.
    #[error("{0}")]
    Server(String),
    /// The values could not be kept or had.
    #[error(transparent)]
    Secret(#[from] ringfence_secrets::Error),
    /// Evidence could not be written: nothing is kept.
    #[error("the record cannot be written: {0}")]
    Record(String),
    /// There is no sign-in for this address.
    #[error("nobody is signed in to {0}")]
    NotSignedIn(String),
}

/// A sign-in that a person asks for.
#[derive(Debug)]
pub struct Login {
    /// To which server.
    pub server: ServerId,
    /// What they want of it.
    pub wish: Wish,
    /// The name of the client's secret, where one was registered beforehand with one.
    pub client_secret: Option<ringfence_bundle::SecretName>,
    /// Where it is to be kept.
    pub kept: Kept,
    /// Where they sit.
    pub desk: Desk,
}

impl Gateway {
    /// Signs in to one server: connects as a run does, and asks the person when the server wants a
    /// token. Whatever is sent to the server is a decision in the record, as in a run; and so is each
    /// connection to whoever gives the token.
    ///
    /// # Errors
    /// [`LoginError`]; then what was kept before is kept still, and nothing else is.
    pub async fn sign_in(parts: Parts, mut login: Login) -> Result<SignIn, LoginError> {
        let journal: Arc<dyn Journal> = Arc::new(parts.recorder.clone());
        let server = login.server.clone();
        let declared = parts.bundle.snapshot().manifest.servers.get(&server);
        let url = match declared.map(|server| &server.transport) {
            Some(Transport::Http { url, headers }) => {
                if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
                    return Err(LoginError::OwnHeader(server));
                }
                url.clone()
            }
            _ => return Err(LoginError::NotHttp(server)),
        };
        let signins = parts.signins.clone();
        // Before anybody is contacted, or a person is sent anywhere.
        signins.ready(login.kept).await?;
        if let Some(name) = &login.client_secret
            && let Some(known) = &mut login.wish.identity.known
        {
            let principal = ringfence_policy::Principal::Server(server.clone());
            let value = parts.secrets.resolve(&principal, name).await?;
            known.secret = Some(zeroize::Zeroizing::new(value.expose().to_owned()));
        }
        let kept = login.kept;
        let outcome = Self::asking_person(parts, login, &url, &signins, &journal).await;
        // What nobody could be told of is not kept.
        let (sign_in, grant) = match outcome {
            Ok(grant) => (listed(&grant, kept), grant),
            Err(error) => {
                let told = signed_in(&server, &url, Err(&error));
                let _evidence = journal.commit(told).await.map_err(LoginError::Record)?;
                return Err(error);
            }
        };
        let told = signed_in(&server, &url, Ok(&sign_in));
        let _evidence = journal.commit(told).await.map_err(LoginError::Record)?;
        // It has come so far: now it takes the place of the one that was there.
        if let Err(error) = keep(&signins, &sign_in, &grant).await {
            let told = signed_in(&server, &url, Err(&error));
            let _evidence = journal.commit(told).await.map_err(LoginError::Record)?;
            return Err(error);
        }
        Ok(sign_in)
    }

    async fn asking_person(
        parts: Parts,
        login: Login,
        url: &str,
        signins: &SignIns,
        journal: &Arc<dyn Journal>,
    ) -> Result<Arc<Grant>, LoginError> {
        let server = login.server;
        let ground = Ground::new(url)?;
        let outside: Arc<dyn Outside> = Arc::new(Roads::new(server.clone(), Arc::clone(journal)));
        let wanted = login.wish.issuer.clone();
        let guard = Guard::of(ground.server().text());
        let holds: Arc<dyn Keep> = Arc::new(Holds(Arc::clone(&guard)));
        let person = Arc::new(Interactive::new(
            Arc::clone(&outside),
            Arc::new(login.desk),
            holds,
            ground.clone(),
            login.wish,
        ));
        let keys = Keys::new(parts.secrets.clone(), signins.clone(), Arc::clone(journal));
        let vault = Asking { keys, server: server.clone(), person: Arc::clone(&person), guard };
        let waits = Waits { connect: PATIENCE, call: PATIENCE };
        let gateway = Self::held_by(Vec::new(), parts, Arc::new(vault), waits);
        let offer = gateway.offer(&server).await;
        gateway.close().await;
        match offer {
            Ok(_) if person.grant().is_some() => {}
            // It answers without a token, and may say all the same who gives some.
            Ok(_) => {
                let nothing = Challenge::default();
                let found = discover(&*outside, &ground, &nothing, wanted.as_deref()).await?;
                if !found.published {
                    return Err(LoginError::NotAsked(server));
                }
                person.sign_in(&nothing).await?;
            }
            Err(error) => {
                let refused =
                    matches!(&error, Error::Upstream { error: UpstreamError::Unauthorized { .. } });
                if person.grant().is_none() {
                    return Err(match person.failed() {
                        Some(error) if refused => error.into(),
                        _ => LoginError::Server(words(&gateway, &server, &error)),
                    });
                }
                if refused {
                    // The next call would fail with it: it is not kept.
                    let why = person.failed().map(|error| error.to_string());
                    let why = why.unwrap_or_else(|| words(&gateway, &server, &error));
                    return Err(LoginError::NotTaken(why));
                }
                // It takes the token; what it does then is a matter of its own.
            }
        }
        person.grant().ok_or(LoginError::NotAsked(server))
    }
}

fn words(gateway: &Gateway, server: &ServerId, error: &Error) -> String {
    match error {
        Error::Upstream { error } => gateway.detail(server, error),
        error => error.to_string(),
    }
}

fn signed_in(server: &ServerId, url: &str, outcome: Result<&SignIn, &LoginError>) -> Event {
    let (issuer, scopes, detail) = match outcome {
        Ok(sign_in) => {
            (Some(sign_in.issuer.clone()), sign_in.scopes.clone(), sign_in.kept.name().to_owned())
        }
        Err(error) => (None, Vec::new(), error.to_string()),
    };
    Event::SignedIn {
        server: server.to_string(),
        url: url.to_owned(),
        outcome: if outcome.is_ok() { Outcome::Allowed } else { Outcome::Refused },
        issuer,
        scopes,
        detail,
    }
}

/// Takes what a sign-in gives, as it comes: hidden from then on, and kept nowhere before the server has
/// taken it, so that a sign-in that fails leaves the one that was there.
struct Holds(Arc<Guard>);

impl Keep for Holds {
    fn keep<'a>(&'a self, grant: &'a Grant) -> Reached<'a, Result<(), String>> {
        self.0.add(grant);
        Box::pin(std::future::ready(value(grant).map(drop)))
    }
}

/// A grant as the value that is kept.
fn value(grant: &Grant) -> Result<Secret, String> {
    let text = grant.to_text().map_err(|error| error.to_string())?;
    Secret::from_bytes(text).map_err(str::to_owned)
}

async fn keep(signins: &SignIns, sign_in: &SignIn, grant: &Grant) -> Result<(), LoginError> {
    let value = value(grant).map_err(OAuthError::Keep)?;
    let _turn = signins.turn(grant.server()).await?;
    signins.keep(sign_in, &value).await?;
    Ok(())
}

/// The keys of a run, but for the one server whose token a person is asked for.
struct Asking {
    keys: Keys,
    server: ServerId,
    person: Arc<Interactive>,
    guard: Arc<Guard>,
}

impl Vault for Asking {
    fn fill<'a>(
        &'a self,
        server: &'a ServerId,
        template: &'a Template,
    ) -> Boxed<'a, Result<Filled, String>> {
        Resolver::fill(&self.keys.resolver, server, template)
    }

    fn authority(&self, server: &ServerId, url: &str) -> Option<Arc<dyn Authority>> {
        if *server != self.server {
            return self.keys.authority(server, url);
        }
        Some(Arc::new(Person(Arc::clone(&self.person), Arc::clone(&self.guard))))
    }
}

struct Person(Arc<Interactive>, Arc<Guard>);

impl Authorize for Person {
    fn header(&self) -> Reached<'_, Result<Option<String>, String>> {
        self.0.header()
    }

    fn challenged<'a>(&'a self, status: u16, challenge: Option<&'a str>) -> Reached<'a, bool> {
        self.0.challenged(status, challenge)
    }
}

impl Authority for Person {
    fn words(&self) -> Option<String> {
        self.0.failed().map(|error| error.to_string())
    }

    fn scrub(&self, value: &mut Value) -> bool {
        self.1.scrub(value)
    }
}

/// What became of a sign-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedOut {
    /// The sign-in that there was.
    pub sign_in: SignIn,
    /// True when the authorization server took the tokens back, false when it does not offer that;
    /// or why they may still be good there.
    pub revoked: Result<bool, String>,
}

/// The machine's own chain as a journal: a sign-out belongs to no run.
struct Log(MachineLog);

impl Journal for Log {
    fn commit(&self, event: Event) -> Boxed<'_, Result<Evidence, String>> {
        let receipt = self.0.append(event).map_err(|error| error.to_string());
        Box::pin(std::future::ready(receipt.map(Evidence::of)))
    }
    fn note(&self, event: Event) -> Result<(), String> {
        self.0.append(event).map(drop).map_err(|error| error.to_string())
    }
}

/// Gives a server's tokens back, where the authorization server takes them, and forgets them. `server`
/// names it in the record.
///
/// # Errors
/// [`LoginError::NotSignedIn`]; [`LoginError::Secret`] and [`LoginError::Record`]: it is still there.
pub async fn sign_out(
    server: &ServerId,
    url: &str,
    signins: &SignIns,
    log: MachineLog,
) -> Result<SignedOut, LoginError> {
    let journal: Arc<dyn Journal> = Arc::new(Log(log));
    let _turn = signins.turn(url).await?;
    let Some(sign_in) = signins.find(url)? else {
        return Err(LoginError::NotSignedIn(url.to_owned()));
    };
    let value = signins.value(&sign_in).await;
    let revoked = match value {
        Err(error)
            if sign_in.kept == Kept::Keychain
                && !matches!(&error, ringfence_secrets::Error::SignIn(_)) =>
        {
            return Err(error.into());
        }
        Err(error) => Err(error.to_string()),
        Ok(value) => match Grant::from_text(value.expose().as_bytes(), url) {
            Err(error) => Err(error.to_string()),
            Ok(grant) => {
                let outside = Roads::new(server.clone(), Arc::clone(&journal));
                let ground = Ground::new(url)?;
                revoke(&outside, &ground, &grant).await.map_err(|error| error.to_string())
            }
        },
    };
    let told = match &revoked {
        Ok(true) => "revoked".to_owned(),
        Ok(false) => "not offered".to_owned(),
        Err(why) => format!("failed: {why}"),
    };
    let event = Event::SignedOut {
        server: server.to_string(),
        url: url.to_owned(),
        issuer: sign_in.issuer.clone(),
        revoked: told,
    };
    let _evidence = journal.commit(event).await.map_err(LoginError::Record)?;
    signins.forget(url).await?;
    Ok(SignedOut { sign_in, revoked })
}
