//! Who we are to an authorization server.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::answer::{is_json, send, status};
use super::form::{Form, encode};
use super::{Ground, Issuer, OAuthError, Outside, Step};

/// Characters of an id or a secret, at most.
const MAX: usize = 4096;

/// How a client proves who it is at the token endpoint (RFC 6749, section 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Auth {
    /// Not at all: PKCE alone.
    #[serde(rename = "none")]
    None,
    /// By HTTP Basic.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// In the form.
    #[serde(rename = "client_secret_post")]
    Post,
}

impl Auth {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::None, Self::Basic, Self::Post].into_iter().find(|auth| auth.name() == name)
    }

    /// The first of these that the authorization server takes.
    fn first(issuer: &Issuer, of: &[Self]) -> Result<Self, OAuthError> {
        let Some(taken) = &issuer.auth_methods else {
            return of.first().copied().ok_or(OAuthError::NoAuth);
        };
        let takes = |auth: &&Self| taken.iter().any(|name| name == auth.name());
        of.iter().find(takes).copied().ok_or(OAuthError::NoAuth)
    }
}

/// What an authorization server knows us by.
#[derive(Clone, Serialize, Deserialize)]
pub struct ClientKey {
    /// The id.
    pub id: String,
    /// The secret, where there is one.
    #[serde(default, with = "super::quiet::option")]
    pub(super) secret: Option<Zeroizing<String>>,
    /// How it is proved.
    pub auth: Auth,
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey").field("id", &self.id).field("auth", &self.auth).finish()
    }
}

impl ClientKey {
    /// Puts the proof where it belongs: into the form, or into `Authorization`.
    pub(super) fn prove(&self, form: Form) -> (Form, Option<Zeroizing<String>>) {
        let secret = self.secret.as_deref().map(String::as_str).unwrap_or_default();
        match self.auth {
            Auth::None => (form.pair("client_id", &self.id), None),
            Auth::Post => (form.pair("client_id", &self.id).pair("client_secret", secret), None),
            Auth::Basic => {
                // RFC 6749, section 2.3.1: both are form-encoded first.
                let mut pair = Zeroizing::new(String::with_capacity(3 * (2 * MAX) + 1));
                encode(&self.id, &mut pair);
                pair.push(':');
                encode(secret, &mut pair);
                let coded = Zeroizing::new(BASE64_STANDARD.encode(pair.as_bytes()));
                (form, Some(Zeroizing::new(format!("Basic {}", *coded))))
            }
        }
    }
}

/// A client that somebody registered.
#[derive(Clone)]
pub struct Known {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What we can be known by, the best first: registered beforehand, described at an address of our
/// own, registered now.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Registered beforehand, with the issuer that a person asked for or the only one found.
    pub known: Option<Known>,
    /// Where a document describes us, for authorization servers that take one.
    pub document: Option<String>,
}

impl Identity {
    /// Whether the redirect has to go to a path that was made known beforehand.
    pub(super) fn fixed(&self, issuer: &Issuer) -> bool {
        self.known.is_some() || (self.document.is_some() && issuer.takes_documents)
    }

    /// What this authorization server is to know us by; registers where it must.
    pub(super) async fn key(
        &self,
        outside: &dyn Outside,
        ground: &Ground,
        issuer: &Issuer,
        redirect: &str,
        scope: &str,
    ) -> Result<ClientKey, OAuthError> {
        if let Some(known) = &self.known {
            let auth = match known.secret {
                Some(_) => Auth::first(issuer, &[Auth::Basic, Auth::Post])?,
                None => Auth::first(issuer, &[Auth::None])?,
            };
            return Ok(ClientKey { id: known.id.clone(), secret: known.secret.clone(), auth });
        }
        if let Some(document) = self.document.as_ref().filter(|_| issuer.takes_documents) {
            let place = ground.place(Step::ClientDocument, document)?;
            if !place.tls() || place.target() == "/" {
                let why = "it is not `https` with a path".to_owned();
                return Err(OAuthError::Content { step: Step::ClientDocument, why });
            }
            return Ok(ClientKey { id: document.clone(), secret: None, auth: Auth::None });
        }
        register(outside, issuer, redirect, scope).await
    }
}

/// What a registration gives (RFC 7591, section 3.2.1).
#[derive(Deserialize)]
struct Registered {
    client_id: String,
    #[serde(default, with = "super::quiet::option")]
    client_secret: Option<Zeroizing<String>>,
    token_endpoint_auth_method: Option<String>,
}

async fn register(
    outside: &dyn Outside,
    issuer: &Issuer,
    redirect: &str,
    scope: &str,
) -> Result<ClientKey, OAuthError> {
    let step = Step::Registration;
    let place = issuer.registration.as_ref().ok_or(OAuthError::NoRegistration)?;
    let wanted = Auth::first(issuer, &[Auth::None, Auth::Basic, Auth::Post])?;
    let mut request = json!({
        "client_name": "Ringfence",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted.name(),
        // OpenID Connect Dynamic Client Registration; MCP 2026-07-28 requires it.
        "application_type": "native",
    });
    if !scope.is_empty() {
        request["scope"] = Value::String(scope.to_owned());
    }
    let body = Zeroizing::new(request.to_string().into_bytes());
    let back = send(outside, place, Some(("application/json", body)), None).await?;
    if !matches!(back.status, 200 | 201) {
        return Err(status(step, &back));
    }
    is_json(step, &back)?;
    let content = |why: &str| OAuthError::Content { step, why: why.to_owned() };
    let given: Registered = serde_json::from_slice(&back.body)
        .map_err(|_| content("its answer is not that of a registration"))?;
    let secret = given.client_secret.filter(|secret| !secret.is_empty());
    let visible = |text: &str| text.len() <= MAX && text.bytes().all(|b| (0x20..0x7f).contains(&b));
    if given.client_id.is_empty()
        || !visible(&given.client_id)
        || secret.as_ref().is_some_and(|secret| !visible(secret))
    {
        return Err(content("the id or the secret that it gives is not visible ASCII"));
    }
    let auth = match (given.token_endpoint_auth_method, &secret) {
        (Some(name), _) => Auth::parse(&name).ok_or(OAuthError::NoAuth)?,
        (None, Some(_)) => Auth::first(issuer, &[Auth::Basic, Auth::Post, Auth::None])?,
        (None, None) => Auth::first(issuer, &[Auth::None])?,
    };
    if auth != Auth::None && secret.is_none() {
        return Err(content("it gives no secret for the proof that it wants"));
    }
    Ok(ClientKey { id: given.client_id, secret, auth })
}
