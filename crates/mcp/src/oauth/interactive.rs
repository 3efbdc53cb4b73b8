//! Signing in with a person at hand.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use zeroize::Zeroizing;

use super::form::Form;
use super::scope::Scopes;
use super::token::{Redeem, redeem};
use super::{
    Callback, Challenge, Found, Grant, Ground, Identity, OAuthError, Outside, StateCheck, Step,
    discover, pkce,
};
use crate::{Authorize, Boxed};

/// How often a server may refuse what was got for it, or ask for more, before it is left.
const MAX_ROUNDS: usize = 3;

/// Where the browser comes back to, once.
pub trait Visit: Send {
    /// The address that it comes back to.
    fn redirect(&self) -> &str;

    /// Shows the person this address, and waits until the browser comes back with an answer that
    /// `state` knows. The address is plain ASCII.
    ///
    /// # Errors
    /// In words: nobody came in time, or the person ended it.
    fn answer<'a>(
        self: Box<Self>,
        url: &'a str,
        state: &'a StateCheck,
    ) -> Boxed<'a, Result<Callback, String>>
    where
        Self: 'a;
}

/// Sends a person to a page, and hears what comes of it.
pub trait Browser: Send + Sync + 'static {
    /// Gets ready for one visit. `fixed`: to a path that was made known beforehand, not a random one.
    ///
    /// # Errors
    /// In words.
    fn prepare(&self, fixed: bool) -> Boxed<'_, Result<Box<dyn Visit>, String>>;

    /// Tells the person something that they are to know before they say yes there. Plain ASCII.
    fn tell(&self, words: &str);
}

/// Is given each grant, before it is used.
pub trait Keep: Send + Sync + 'static {
    /// Takes it, in the place of one for the same server.
    ///
    /// # Errors
    /// In words, without a value.
    fn keep<'a>(&'a self, grant: &'a Grant) -> Boxed<'a, Result<(), String>>;
}

/// What a person wants of a sign-in.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Scopes instead of those that the server asks for.
    pub scopes: Option<String>,
    /// Whose tokens alone are wanted.
    pub issuer: Option<String>,
    /// What we can be known by.
    pub identity: Identity,
}

/// Credentials that a person is asked for, each time the server refuses what there is.
///
/// A token is for one server and from one authorization server: when the server names another one,
/// the person is asked anew, and nothing that the old one gave goes to the new one.
pub struct Interactive {
    outside: Arc<dyn Outside>,
    browser: Arc<dyn Browser>,
    keep: Arc<dyn Keep>,
    ground: Ground,
    wish: Wish,
    state: tokio::sync::Mutex<State>,
    failed: Mutex<Option<OAuthError>>,
    grant: Mutex<Option<Arc<Grant>>>,
}

#[derive(Default)]
struct State {
    rounds: usize,
    /// Whom a client that was registered beforehand is known to.
    issuer: Option<String>,
    /// What was asked for so far.
    scopes: Scopes,
}

impl std::fmt::Debug for Interactive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interactive")
            .field("server", &self.ground.server().text())
            .finish_non_exhaustive()
    }
}

impl Interactive {
    /// Nobody is asked yet.
    #[must_use]
    pub fn new(
        outside: Arc<dyn Outside>,
        browser: Arc<dyn Browser>,
        keep: Arc<dyn Keep>,
        ground: Ground,
        wish: Wish,
    ) -> Self {
        Self {
            outside,
            browser,
            keep,
            ground,
            wish,
            state: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            grant: Mutex::default(),
        }
    }

    /// What was got, if anything was.
    #[must_use]
    pub fn grant(&self) -> Option<Arc<Grant>> {
        self.grant.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the last attempt failed.
    #[must_use]
    pub fn failed(&self) -> Option<OAuthError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Signs in: finds out who gives tokens for the server, asks the person there, and keeps what
    /// comes of it.
    ///
    /// # Errors
    /// [`OAuthError`].
    pub async fn sign_in(&self, challenge: &Challenge) -> Result<Arc<Grant>, OAuthError> {
        let mut state = self.state.lock().await;
        if state.rounds == MAX_ROUNDS {
            return Err(OAuthError::Rounds(MAX_ROUNDS));
        }
        state.rounds += 1;
        let wanted = self.wish.issuer.as_deref();
        let found = discover(&*self.outside, &self.ground, challenge, wanted).await?;
        // What somebody registered with one is shown to no other.
        if self.wish.identity.known.is_some() {
            let known = state.issuer.get_or_insert_with(|| found.issuer.issuer.clone());
            if *known != found.issuer.issuer {
                let (named, wanted) = (found.issuer.issuer, known.clone());
                return Err(OAuthError::OtherIssuer { named, wanted });
            }
        }
        let scopes = self.scopes(&found, challenge, &state.scopes)?;
        state.scopes = scopes.clone();
        let grant = Arc::new(self.ask(&found, scopes).await?);
        self.keep.keep(&grant).await.map_err(OAuthError::Keep)?;
        *self.grant.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&grant));
        Ok(grant)
    }

    /// What to ask for: what the person wants, else what the server's refusal names, else all that
    /// its metadata names, else nothing; together with what was asked for before, where more is
    /// wanted.
    fn scopes(
        &self,
        found: &Found,
        challenge: &Challenge,
        before: &Scopes,
    ) -> Result<Scopes, OAuthError> {
        let challenged = challenge.scope.as_deref().map(Scopes::parse).transpose()?;
        let scopes = match (&self.wish.scopes, challenged) {
            (Some(wanted), more) if challenge.insufficient() => {
                Scopes::parse(wanted)?.and(&more.unwrap_or_default())?
            }
            (Some(wanted), _) => return Scopes::parse(wanted),
            (None, Some(challenged)) if !challenged.is_empty() => challenged,
            (None, _) => Scopes::of(found.scopes.iter().map(String::as_str))?,
        };
        let scopes = if challenge.insufficient() { before.clone().and(&scopes)? } else { scopes };
        Ok(scopes.offline(&found.issuer.scopes))
    }

    async fn ask(&self, found: &Found, scopes: Scopes) -> Result<Grant, OAuthError> {
        let Found { resource, issuer, .. } = found;
        let visit = self
            .browser
            .prepare(self.wish.identity.fixed(issuer))
            .await
            .map_err(OAuthError::Browser)?;
        let redirect = visit.redirect().to_owned();
        let scope = scopes.text();
        let client =
            self.wish.identity.key(&*self.outside, &self.ground, issuer, &redirect, &scope).await?;
        let (verifier, state) = (pkce::random()?, pkce::random()?);
        let mut form = Form::new()
            .pair("response_type", "code")
            .pair("client_id", &client.id)
            .pair("redirect_uri", &redirect)
            .pair("state", &state)
            .pair("code_challenge", &pkce::challenge(&verifier))
            .pair("code_challenge_method", "S256")
            .pair("resource", resource);
        if !scopes.is_empty() {
            form = form.pair("scope", &scope);
        }
        let looked = self.outside.look(&issuer.authorization).await;
        looked.map_err(|why| OAuthError::Unreached { step: Step::Authorization, why })?;
        let server = self.ground.server().text();
        if resource != server {
            self.browser.tell(&format!(
                "the server wants the token made for {resource}, which is more than {server}: it is \
                 good for everything there"
            ));
        }
        let page = issuer.authorization.text();
        let joint = if page.contains('?') { '&' } else { '?' };
        let url = Zeroizing::new(format!("{page}{joint}{}", form.text()));
        let check = StateCheck::new(&state);
        let callback = visit.answer(&url, &check).await.map_err(OAuthError::Browser)?;
        let code = callback.code(issuer, self.wish.issuer.is_some())?;
        let with = Redeem { code: &code, verifier: &verifier, redirect: &redirect, resource };
        let fresh = redeem(&*self.outside, &issuer.token, &client, &with, now()).await?;
        // Where nothing is said of it, it is as it was asked for (RFC 6749, section 5.1).
        let given = fresh.scopes.unwrap_or_else(|| scopes.list());
        let (expires, tokens) = (fresh.expires, fresh.tokens);
        Ok(Grant::new(&self.ground, resource, issuer, client, given, expires, tokens))
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Authorize for Interactive {
    fn header(&self) -> Boxed<'_, Result<Option<String>, String>> {
        let header = self.grant().map(|grant| grant.tokens().header().to_string());
        Box::pin(std::future::ready(Ok(header)))
    }

    fn challenged<'a>(&'a self, status: u16, challenge: Option<&'a str>) -> Boxed<'a, bool> {
        Box::pin(async move {
            let challenge = challenge.map(Challenge::parse).unwrap_or_default();
            // Forbidden for another reason: no other token would help.
            if status == 403 && !challenge.insufficient() {
                return false;
            }
            match self.sign_in(&challenge).await {
                Ok(_) => true,
                Err(error) => {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    false
                }
            }
        })
    }
}
