//! The token of a server that a person signed in to: found, renewed, and said of what to do.

mod browser;
mod guard;
mod login;
mod outside;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringfence_bundle::{ServerId, Template};
use ringfence_mcp::oauth::{Challenge, Grant, Ground, OAuthError, Outside, SKEW, refresh};
use ringfence_mcp::{Authorize, Boxed as Reached};
use ringfence_record::{Event, Outcome};
use ringfence_secrets::{Resolver, Secret, SignIn, SignIns, Stamp};
use serde_json::Value;
use tokio::sync::watch;

use crate::seams::{Boxed, Filled, Journal, Scrub, Vault};

pub use browser::{Desk, Say};
use guard::Guard;
pub use login::{Login, LoginError, SignedOut, sign_out};
pub(crate) use outside::Roads;

/// What the record calls a token: it has no name of its own, and never a value.
const NAME: &str = "(sign-in)";
/// A server that refuses a token so soon after it was renewed gets no other one.
const SETTLE: Duration = Duration::from_secs(10);
/// How long the end of a session waits for a renewal that nobody else waits for.
const LAST: Duration = Duration::from_secs(10);

/// The values that manifests name, and the tokens of servers that a person signed in to.
pub(crate) struct Keys {
    resolver: Resolver,
    signins: SignIns,
    journal: Arc<dyn Journal>,
    /// How many renewals are under way.
    under_way: Arc<watch::Sender<usize>>,
}

impl Keys {
    pub(crate) fn new(resolver: Resolver, signins: SignIns, journal: Arc<dyn Journal>) -> Self {
        Self { resolver, signins, journal, under_way: Arc::default() }
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
        Some(Arc::new(Holder(Arc::new(SignedIn {
            server: server.clone(),
            guard: Guard::of(ground.server().text()),
            under_way: Arc::clone(&self.under_way),
            ground,
            signins: self.signins.clone(),
            outside: Arc::new(outside),
            journal: Arc::clone(&self.journal),
            held: tokio::sync::Mutex::default(),
            words: Mutex::default(),
        }))))
    }

    fn settled(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            let mut under_way = self.under_way.subscribe();
            let none = under_way.wait_for(|number| *number == 0);
            let _ = tokio::time::timeout(LAST, none).await;
        })
    }
}

/// Whoever has a server's token.
pub(crate) trait Authority: Authorize {
    /// What to tell the person about it, when the server refused.
    fn words(&self) -> Option<String>;
    /// Takes the tokens of now, and those that were renewed since, out of what the server says.
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
    guard: Arc<Guard>,
    under_way: Arc<watch::Sender<usize>>,
}

/// [`SignedIn`], as the connection has it.
struct Holder(Arc<SignedIn>);

/// One renewal that is under way, until dropped.
struct UnderWay(Arc<watch::Sender<usize>>);

impl UnderWay {
    fn new(all: &Arc<watch::Sender<usize>>) -> Self {
        all.send_modify(|number| *number += 1);
        Self(Arc::clone(all))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|number| *number -= 1);
    }
}

#[derive(Default)]
struct Held {
    /// What was read, and what the list of sign-ins was like then.
    read: Option<(Stamp, Option<(SignIn, Grant)>)>,
    renewed: Option<Instant>,
    /// Why these tokens cannot be renewed; tried again when there are others.
    over: Option<Over>,
}

/// Tokens that are no more renewed.
struct Over {
    refresh: Option<zeroize::Zeroizing<String>>,
    words: String,
}

impl Over {
    fn new(grant: &Grant, words: String) -> Self {
        Self { refresh: refresh_of(grant), words }
    }
}

fn refresh_of(grant: &Grant) -> Option<zeroize::Zeroizing<String>> {
    grant.tokens().refresh().map(str::to_owned).map(zeroize::Zeroizing::new)
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
        if let Some((_, grant)) = &found {
            self.guard.add(grant);
        }
        // The list changes with each sign-in of any server: what is over stays so with its own token.
        let refresh = found.as_ref().and_then(|(_, grant)| refresh_of(grant));
        let over = held.over.take().filter(|over| refresh.is_some() && over.refresh == refresh);
        *held = Held { read: Some((stamp, found)), renewed: held.renewed, over };
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

    /// Does this to its end, whatever becomes of whoever waits for it: once an authorization server was
    /// asked, the old tokens may be good no more, and the new ones have to be kept.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> Result<T, String> {
        let under_way = UnderWay::new(&self.under_way);
        let task = tokio::spawn(async move {
            let done = work.await;
            drop(under_way);
            done
        });
        task.await.unwrap_or_else(|_| Err("the renewal was broken off".to_owned()))
    }

    /// New tokens for the old ones; nobody else in this process or another does it meanwhile.
    async fn renew(&self, held: &mut Held) -> Result<(), String> {
        if let Some(over) = &held.over {
            return Err(over.words.clone());
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
        let old = Over::new(grant, String::new());
        let grant = match renewed {
            Ok(grant) => grant,
            Err(error @ OAuthError::Over(_)) => {
                let over = format!("{error}; {} signs in again", self.login());
                held.over = Some(Over { words: over.clone(), ..old });
                return Err(over);
            }
            Err(error) => return Err(format!("the token could not be renewed: {error}")),
        };
        let rotated = refresh_of(&grant) != old.refresh;
        let new = listed(&grant, sign_in.kept);
        let text = grant.to_text().map_err(|error| error.to_string())?;
        let value = Secret::from_bytes(text).map_err(str::to_owned)?;
        // A server may say it from now on, whatever becomes of it here.
        self.guard.add(&grant);
        if let Err(error) = self.signins.keep(&new, &value).await {
            let words = format!("{error}; {} signs in again", self.login());
            if rotated {
                // The old one was used: once more, it would be taken for stolen.
                held.over = Some(Over { words: words.clone(), ..old });
            }
            return Err(words);
        }
        drop(turn);
        let stamp = self.signins.stamp();
        *held = Held {
            read: Some((stamp, Some((new, grant)))),
            renewed: Some(Instant::now()),
            over: None,
        };
        Ok(())
    }

    async fn token(self: &Arc<Self>) -> Result<Option<String>, String> {
        {
            let mut held = self.held.lock().await;
            self.read(&mut held).await?;
            let Some((_, Some((_, grant)))) = &held.read else { return Ok(None) };
            if !grant.ended(now(), SKEW) {
                return Ok(Some(grant.tokens().header().to_string()));
            }
        }
        let own = Arc::clone(self);
        self.apart(async move {
            let mut held = own.held.lock().await;
            own.fresh(&mut held).await
        })
        .await
    }

    /// The token, renewed where it has ended.
    async fn fresh(&self, held: &mut Held) -> Result<Option<String>, String> {
        self.read(held).await?;
        let Some((_, Some((_, grant)))) = &held.read else { return Ok(None) };
        if grant.ended(now(), SKEW) {
            let useful = !grant.ended(now(), 0);
            let renewed = self.renew(held).await;
            if let Err(words) = renewed
                && !useful
            {
                return Err(words);
            }
        }
        let Some((_, Some((_, grant)))) = &held.read else { return Ok(None) };
        Ok(Some(grant.tokens().header().to_string()))
    }

    async fn refused(self: &Arc<Self>, status: u16, challenge: &Challenge) -> Result<bool, String> {
        let held = self.held.lock().await;
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
        drop(held);
        let own = Arc::clone(self);
        self.apart(async move {
            let mut held = own.held.lock().await;
            // Many requests can be refused with one old token: it is renewed once.
            if held.renewed.is_some_and(|at| at.elapsed() < SETTLE) {
                return Ok(true);
            }
            own.renew(&mut held).await.map(|()| true)
        })
        .await
    }
}

impl Authorize for Holder {
    fn header(&self) -> Reached<'_, Result<Option<String>, String>> {
        Box::pin(async move { self.0.token().await.map_err(|words| self.0.say(words)) })
    }

    fn challenged<'a>(&'a self, status: u16, challenge: Option<&'a str>) -> Reached<'a, bool> {
        Box::pin(async move {
            let challenge = challenge.map(Challenge::parse).unwrap_or_default();
            match self.0.refused(status, &challenge).await {
                Ok(again) => again,
                Err(words) => {
                    self.0.say(words);
                    false
                }
            }
        })
    }
}

impl Authority for Holder {
    fn words(&self) -> Option<String> {
        lock(&self.0.words).clone()
    }

    fn scrub(&self, value: &mut Value) -> bool {
        self.0.guard.scrub(value)
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
