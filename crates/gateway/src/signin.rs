//! The token of a server that a person signed in to: found, renewed, and said of what to do.

mod browser;
mod login;
mod outside;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringfence_bundle::{ServerId, Template};
use ringfence_mcp::oauth::{Challenge, Grant, Ground, OAuthError, Outside, SKEW, refresh};
use ringfence_mcp::{Authorize, Boxed as Reached};
use ringfence_record::{Event, Outcome};
use ringfence_secrets::{Resolver, Scrubber, Secret, SignIn, SignIns, Stamp};
use serde_json::Value;

use crate::seams::{Boxed, Filled, Journal, Scrub, Vault};

pub use browser::{Desk, Say};
pub use login::{Login, LoginError, SignedOut, sign_out};
pub(crate) use outside::Roads;

/// What the record calls a token: it has no name of its own, and never a value.
const NAME: &str = "(sign-in)";
/// A server that refuses a token so soon after it was renewed gets no other one.
const SETTLE: Duration = Duration::from_secs(10);

/// The values that manifests name, and the tokens of servers that a person signed in to.
pub(crate) struct Keys {
    resolver: Resolver,
    signins: SignIns,
    journal: Arc<dyn Journal>,
}

impl Keys {
    pub(crate) fn new(resolver: Resolver, signins: SignIns, journal: Arc<dyn Journal>) -> Self {
        Self { resolver, signins, journal }
    }
}

impl Vault for Keys {
    fn fill<'a>(
        &'a self,
        server: &'a ServerId,
        template: &'a Template,
    ) -> Boxed<'a, Result<Filled, String>> {
        self.resolver.fill(server, template)
    }

    fn authority(&self, server: &ServerId, url: &str) -> Option<Arc<dyn Authority>> {
        let outside = Roads::new(server.clone(), Arc::clone(&self.journal));
        let ground = Ground::new(url).ok()?;
        Some(Arc::new(SignedIn {
            server: server.clone(),
            ground,
            signins: self.signins.clone(),
            outside: Arc::new(outside),
            journal: Arc::clone(&self.journal),
            held: tokio::sync::Mutex::default(),
            words: Mutex::default(),
            scrubber: Mutex::new(Arc::new(Scrubber::new([]))),
        }))
    }
}

/// Whoever has a server's token.
pub(crate) trait Authority: Authorize {
    /// What to tell the person about it, when the server refused.
    fn words(&self) -> Option<String>;
    /// Takes the tokens of now out of what the server says.
    fn scrub(&self, value: &mut Value) -> bool;
}

/// What takes a server's tokens out of its replies, beside its declared secrets.
pub(crate) struct Both(pub(crate) Arc<dyn Scrub>, pub(crate) Arc<dyn Authority>);

impl Scrub for Both {
    fn scrub(&self, value: &mut Value) -> bool {
        let tokens = self.1.scrub(value);
        self.0.scrub(value) || tokens
    }
}

/// The stored sign-in of one server. Nobody is there to be asked.
struct SignedIn {
    server: ServerId,
    ground: Ground,
    signins: SignIns,
    outside: Arc<dyn Outside>,
    journal: Arc<dyn Journal>,
    held: tokio::sync::Mutex<Held>,
    words: Mutex<Option<String>>,
    scrubber: Mutex<Arc<Scrubber>>,
}

#[derive(Default)]
struct Held {
    /// What was read, and what the list of sign-ins was like then.
    read: Option<(Stamp, Option<(SignIn, Grant)>)>,
    renewed: Option<Instant>,
    /// Why it cannot be renewed; tried again when the list has changed.
    over: Option<String>,
}

impl SignedIn {
    fn url(&self) -> &str {
        self.ground.server().text()
    }

    fn login(&self) -> String {
        format!("`ringfence login {}`", self.server)
    }

    fn say(&self, words: String) -> String {
        *lock(&self.words) = Some(words.clone());
        words
    }

    /// Reads what is kept, unless that was done and nothing changed since.
    async fn read(&self, held: &mut Held) -> Result<(), String> {
        let stamp = self.signins.stamp();
        if held.read.as_ref().is_some_and(|(at, _)| *at == stamp) {
            return Ok(());
        }
        let found = self.load().await?;
        self.guard(found.as_ref().map(|(_, grant)| grant));
        *held = Held { read: Some((stamp, found)), renewed: held.renewed, over: None };
        Ok(())
    }

    async fn load(&self) -> Result<Option<(SignIn, Grant)>, String> {
        let words = |error: ringfence_secrets::Error| error.to_string();
        let Some(sign_in) = self.signins.find(self.url()).map_err(words)? else { return Ok(None) };
        let value = self.signins.value(&sign_in).await;
        let event = |outcome, detail: &str| Event::SecretAccessed {
            principal: self.server.to_string(),
            name: NAME.into(),
            outcome,
            detail: detail.into(),
        };
        // The access is durable before the value is used; that there was none is worth a line too.
        let told = match &value {
            Ok(_) => event(Outcome::Allowed, sign_in.kept.name()),
            Err(error) => event(Outcome::Refused, &error.to_string()),
        };
        let _evidence = self.journal.commit(told).await?;
        let value = value.map_err(words)?;
        // It is for this very address, or it is not read.
        let grant = Grant::from_text(value.expose().as_bytes(), self.url());
        Ok(Some((sign_in, grant.map_err(|error| error.to_string())?)))
    }

    /// Tokens of now are taken out of replies; those of before may still come back, and stay hidden.
    fn guard(&self, grant: Option<&Grant>) {
        let Some(grant) = grant else { return };
        let secret =
            |text: &str| Secret::from_bytes(zeroize::Zeroizing::new(text.as_bytes().to_vec())).ok();
        let tokens = [Some(grant.tokens().access()), grant.tokens().refresh()];
        let secrets: Vec<Secret> = tokens.into_iter().flatten().filter_map(secret).collect();
        let scrubber = Scrubber::new(secrets.iter().map(|secret| (NAME, secret)));
        *lock(&self.scrubber) = Arc::new(scrubber);
    }

    /// New tokens for the old ones; nobody else in this process or another does it meanwhile.
    async fn renew(&self, held: &mut Held) -> Result<(), String> {
        if let Some(over) = &held.over {
            return Err(over.clone());
        }
        let before = held.read.as_ref().and_then(|(_, found)| found.as_ref());
        let before = before.map(|(_, grant)| grant.tokens().access().to_owned());
        let turn = self.signins.turn(self.url()).await.map_err(|error| error.to_string())?;
        // Another process may have done it.
        held.read = None;
        self.read(held).await?;
        let Some((_, Some((sign_in, grant)))) = &held.read else {
            return Err(format!("nobody is signed in any more; {} does it", self.login()));
        };
        if before.as_deref() != Some(grant.tokens().access()) && !grant.ended(now(), SKEW) {
            held.renewed = Some(Instant::now());
            return Ok(());
        }
        let renewed = refresh(&*self.outside, &self.ground, grant, now()).await;
        let grant = match renewed {
            Ok(grant) => grant,
            Err(error @ OAuthError::Over(_)) => {
                let over = format!("{error}; {} signs in again", self.login());
                held.over = Some(over.clone());
                return Err(over);
            }
            Err(error) => return Err(format!("the token could not be renewed: {error}")),
        };
        let new = listed(&grant, sign_in.kept);
        let text = grant.to_text().map_err(|error| error.to_string())?;
        let value = Secret::from_bytes(text).map_err(str::to_owned)?;
        let kept = self.signins.keep(&new, &value).await;
        kept.map_err(|error| format!("{error}; {} signs in again", self.login()))?;
        drop(turn);
        self.guard(Some(&grant));
        let stamp = self.signins.stamp();
        *held = Held {
            read: Some((stamp, Some((new, grant)))),
            renewed: Some(Instant::now()),
            over: None,
        };
        Ok(())
    }

    async fn token(&self) -> Result<Option<String>, String> {
        let mut held = self.held.lock().await;
        self.read(&mut held).await?;
        let Some((_, Some((_, grant)))) = &held.read else { return Ok(None) };
        if grant.ended(now(), SKEW) {
            let useful = !grant.ended(now(), 0);
            let renewed = self.renew(&mut held).await;
            if let Err(words) = renewed
                && !useful
            {
                return Err(words);
            }
        }
        let Some((_, Some((_, grant)))) = &held.read else { return Ok(None) };
        Ok(Some(grant.tokens().header().to_string()))
    }

    async fn refused(&self, status: u16, challenge: &Challenge) -> Result<bool, String> {
        let mut held = self.held.lock().await;
        let signed_in = matches!(&held.read, Some((_, Some(_))));
        if status == 403 {
            if challenge.insufficient() {
                let Some((_, Some((_, grant)))) = &held.read else { return Ok(false) };
                let more = challenge.scope.as_deref().unwrap_or_default();
                let scopes = scopes_for(grant.scopes(), more);
                return Err(format!(
                    "the token is not good for this; `ringfence login {} --scope '{scopes}'`",
                    self.server
                ));
            }
            return Ok(false);
        }
        if !signed_in {
            return Err(format!("it wants a sign-in; {} does it", self.login()));
        }
        // Many requests can be refused with one old token: it is renewed once.
        if held.renewed.is_some_and(|at| at.elapsed() < SETTLE) {
            return Ok(true);
        }
        self.renew(&mut held).await.map(|()| true)
    }
}

impl Authorize for SignedIn {
    fn header(&self) -> Reached<'_, Result<Option<String>, String>> {
        Box::pin(async move { self.token().await.map_err(|words| self.say(words)) })
    }

    fn challenged<'a>(&'a self, status: u16, challenge: Option<&'a str>) -> Reached<'a, bool> {
        Box::pin(async move {
            let challenge = challenge.map(Challenge::parse).unwrap_or_default();
            match self.refused(status, &challenge).await {
                Ok(again) => again,
                Err(words) => {
                    self.say(words);
                    false
                }
            }
        })
    }
}

impl Authority for SignedIn {
    fn words(&self) -> Option<String> {
        lock(&self.words).clone()
    }

    fn scrub(&self, value: &mut Value) -> bool {
        let scrubber = Arc::clone(&lock(&self.scrubber));
        scrubber.value(value)
    }
}

/// What of a grant is no secret.
pub(crate) fn listed(grant: &Grant, kept: ringfence_secrets::Kept) -> SignIn {
    SignIn {
        server: grant.server().to_owned(),
        resource: grant.resource().to_owned(),
        issuer: grant.issuer().to_owned(),
        scopes: grant.scopes().to_vec(),
        expires: grant.expires(),
        renewable: grant.renewable(),
        kept,
    }
}

/// Scopes for a command line: only what has no other meaning there.
fn scopes_for(have: &[String], more: &str) -> String {
    let plain = |word: &&str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:/".contains(&b))
    };
    let mut all: Vec<&str> = have.iter().map(String::as_str).collect();
    for word in more.split(' ') {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all.retain(plain);
    all.truncate(32);
    all.join(" ")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
