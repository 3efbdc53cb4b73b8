//! What is kept of a sign-in.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{ClientKey, Ground, OAuthError, Place, Step};

/// Bytes of one kept grant, at most.
const MAX_BYTES: usize = 60 * 1024;

/// The tokens themselves. Never shown.
#[derive(Clone, Serialize, Deserialize)]
pub struct Tokens {
    #[serde(with = "super::quiet")]
    pub(super) access: Zeroizing<String>,
    #[serde(default, with = "super::quiet::option")]
    pub(super) refresh: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens(…)")
    }
}

impl Tokens {
    /// The value that goes into `Authorization`.
    #[must_use]
    pub fn header(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("Bearer {}", *self.access))
    }

    /// The access token, for taking it out of replies.
    #[must_use]
    pub fn access(&self) -> &str {
        &self.access
    }

    /// The refresh token, if there is one.
    #[must_use]
    pub fn refresh(&self) -> Option<&str> {
        self.refresh.as_deref().map(String::as_str)
    }
}

/// One sign-in: for which server, from whom, as whom, and the tokens. Good for nothing but the
/// server that it was made for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// 1.
    version: u32,
    /// The declared address of the server: no other gets the token.
    server: String,
    /// What the token was asked for (RFC 8707).
    resource: String,
    /// Who gave it.
    issuer: String,
    token_endpoint: String,
    revocation_endpoint: Option<String>,
    client: ClientKey,
    /// What it is good for, as far as that was said.
    scopes: Vec<String>,
    /// Seconds since 1970, if it ends by itself.
    expires: Option<u64>,
    tokens: Tokens,
}

impl Grant {
    pub(super) fn new(
        ground: &Ground,
        resource: &str,
        issuer: &super::Issuer,
        client: ClientKey,
        scopes: Vec<String>,
        expires: Option<u64>,
        tokens: Tokens,
    ) -> Self {
        Self {
            version: 1,
            server: ground.server().text().to_owned(),
            resource: resource.to_owned(),
            issuer: issuer.issuer.clone(),
            token_endpoint: issuer.token.text().to_owned(),
            revocation_endpoint: issuer.revocation.as_ref().map(|it| it.text().to_owned()),
            client,
            scopes,
            expires,
            tokens,
        }
    }

    pub(super) fn renewed(
        &self,
        scopes: Option<Vec<String>>,
        expires: Option<u64>,
        mut tokens: Tokens,
    ) -> Self {
        tokens.refresh = tokens.refresh.take().or_else(|| self.tokens.refresh.clone());
        let scopes = scopes.unwrap_or_else(|| self.scopes.clone());
        Self { scopes, expires, tokens, ..self.clone() }
    }

    /// As it is kept: JSON with every value in it.
    ///
    /// # Errors
    /// [`OAuthError::Keep`] when it is larger than a place for secrets takes.
    pub fn to_text(&self) -> Result<Zeroizing<Vec<u8>>, OAuthError> {
        // Room for all of it at once: a buffer that grows leaves copies behind.
        let mut text = Zeroizing::new(Vec::with_capacity(MAX_BYTES));
        serde_json::to_writer(&mut *text, self)
            .map_err(|error| OAuthError::Keep(error.to_string()))?;
        if text.len() > MAX_BYTES {
            return Err(OAuthError::Keep("the tokens are longer than 60 KiB".into()));
        }
        Ok(text)
    }

    /// What was kept, if it is a grant for exactly this declared address.
    ///
    /// # Errors
    /// [`OAuthError::Keep`] in words without a value.
    pub fn from_text(text: &[u8], server: &str) -> Result<Self, OAuthError> {
        // The parser's words could hold a piece of a value.
        let grant: Self = serde_json::from_slice(text)
            .map_err(|_| OAuthError::Keep("what is kept is no sign-in".into()))?;
        if grant.version != 1 {
            return Err(OAuthError::Keep("it was kept by another version".into()));
        }
        if grant.server != server {
            return Err(OAuthError::Keep("what is kept is for another server".into()));
        }
        Ok(grant)
    }

    /// The declared address that it is for.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The identifier that the token was asked for.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Who gave it.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// What it is good for, as far as that was said.
    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// When the access token ends by itself, in seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// Whether it can be renewed without a person.
    #[must_use]
    pub fn renewable(&self) -> bool {
        self.tokens.refresh.is_some()
    }

    /// The tokens.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Who we are to the one who gave it.
    #[must_use]
    pub fn client(&self) -> &ClientKey {
        &self.client
    }

    /// Whether the access token has ended at `now`, or will within `early` seconds.
    #[must_use]
    pub fn ended(&self, now: u64, early: u64) -> bool {
        self.expires.is_some_and(|at| at <= now.saturating_add(early))
    }

    pub(super) fn token_place(&self, ground: &Ground) -> Result<Place, OAuthError> {
        ground.place(Step::Token, &self.token_endpoint)
    }

    pub(super) fn revocation_place(&self, ground: &Ground) -> Result<Option<Place>, OAuthError> {
        let place = |url: &String| ground.place(Step::Revocation, url);
        self.revocation_endpoint.as_ref().map(place).transpose()
    }
}
