//! What servers publish about themselves: RFC 9728 and RFC 8414, judged.

use serde_json::Value;

use super::answer::{text, texts};
use super::error::shown;
use super::{Ground, OAuthError, Place, Step};

/// What an MCP server says of the tokens that it takes (RFC 9728, section 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    /// Its identifier, as it is published: this goes into every request for a token.
    pub(super) resource: String,
    /// Who gives tokens for it.
    pub(super) issuers: Vec<String>,
    /// What they can be good for.
    pub(super) scopes: Vec<String>,
}

impl Resource {
    pub(super) fn read(ground: &Ground, value: &Value) -> Result<Self, OAuthError> {
        let step = Step::ResourceMetadata;
        let missing = |key: &str| OAuthError::Content { step, why: format!("`{key}` is missing") };
        let resource = text(step, value, "resource")?.ok_or_else(|| missing("resource"))?;
        if !covers(ground, &resource) {
            return Err(OAuthError::Resource {
                named: shown(&resource),
                server: ground.server().text().to_owned(),
            });
        }
        let issuers = texts(step, value, "authorization_servers")?.unwrap_or_default();
        if issuers.is_empty() {
            return Err(missing("authorization_servers"));
        }
        let scopes = texts(step, value, "scopes_supported")?.unwrap_or_default();
        Ok(Self { resource, issuers, scopes })
    }
}

/// Whether a token for this identifier is one for the declared server: the same origin, and the
/// same path or one above it, whole segments (RFC 9728, section 3.3, and section 7.4 for several
/// servers behind one identifier).
fn covers(ground: &Ground, resource: &str) -> bool {
    let Ok(named) = ground.place(Step::Server, resource) else { return false };
    let server = ground.server().url();
    if named.origin() != ground.server().origin() {
        return false;
    }
    if named.url().query().is_some() {
        return named.url().as_str() == server.as_str();
    }
    let above = named.url().path().trim_end_matches('/');
    let own = server.path();
    own.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where a server's metadata may be, in the order of trying (RFC 9728, section 3.1).
pub(super) fn resource_places(ground: &Ground) -> Result<Vec<Place>, OAuthError> {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let server = ground.server();
    let own = server.url().path().trim_end_matches('/');
    let mut paths = vec![format!("{WELL_KNOWN}{own}")];
    if !own.is_empty() {
        paths.push(WELL_KNOWN.to_owned());
    }
    paths.iter().map(|path| ground.beside(Step::ResourceMetadata, server, path)).collect()
}

/// Where an issuer's metadata may be, in the order of trying (RFC 8414, section 3.1; OpenID Connect
/// Discovery 1.0, section 4; MCP 2026-07-28).
pub(super) fn issuer_places(ground: &Ground, issuer: &Place) -> Result<Vec<Place>, OAuthError> {
    let own = issuer.url().path().trim_end_matches('/');
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{own}"),
        format!("/.well-known/openid-configuration{own}"),
    ];
    if !own.is_empty() {
        paths.push(format!("{own}/.well-known/openid-configuration"));
    }
    paths.iter().map(|path| ground.beside(Step::IssuerMetadata, issuer, path)).collect()
}

/// An authorization server, and where what it offers is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// Its name, as it publishes it.
    pub issuer: String,
    /// Where the browser goes.
    pub authorization: Place,
    /// Where tokens come from.
    pub token: Place,
    /// Where clients are registered, if it does that.
    pub registration: Option<Place>,
    /// Where tokens are taken back, if it does that.
    pub revocation: Option<Place>,
    /// Whether it says that its answers in the browser name it (RFC 9207).
    pub names_itself: bool,
    /// Whether a client can be known by the address of its own description.
    pub takes_documents: bool,
    /// How a client may prove who it is. `None` where it does not say.
    pub auth_methods: Option<Vec<String>>,
    /// Every scope that it says it has.
    pub scopes: Vec<String>,
}

impl Issuer {
    /// Whether a code goes to the origin that the person saw.
    pub(super) fn is_one_place(&self) -> bool {
        self.authorization.origin() == self.token.origin()
    }

    /// What `asked` publishes about itself. `older`: it was not named but guessed, as the server's own
    /// origin (2025-03-26); then it may be any issuer on that origin.
    pub(super) fn read(
        ground: &Ground,
        asked: &Place,
        older: bool,
        value: &Value,
    ) -> Result<Self, OAuthError> {
        let step = Step::IssuerMetadata;
        let content = |why: String| OAuthError::Content { step, why };
        let required = |key: &str| {
            text(step, value, key)?.ok_or_else(|| content(format!("`{key}` is missing")))
        };
        let issuer = required("issuer")?;
        let beside = || {
            let said = ground.place(Step::Issuer, &issuer);
            older && said.is_ok_and(|said| said.origin() == asked.origin())
        };
        if !same_issuer(asked.text(), &issuer) && !beside() {
            return Err(OAuthError::Issuer {
                asked: asked.text().to_owned(),
                said: shown(&issuer),
            });
        }
        let lists = |key: &str, word: &str| {
            Ok(texts(step, value, key)?.map(|list| list.iter().any(|item| item == word)))
        };
        if lists("code_challenge_methods_supported", "S256")? != Some(true) {
            return Err(OAuthError::NoPkce);
        }
        if lists("response_types_supported", "code")? == Some(false) {
            return Err(content("it offers no sign-in by code".to_owned()));
        }
        let place = |step, key: &str| {
            text(Step::IssuerMetadata, value, key)?.map(|url| ground.place(step, &url)).transpose()
        };
        let yes = |key: &str| value.get(key) == Some(&Value::Bool(true));
        Ok(Self {
            authorization: ground
                .place(Step::Authorization, &required("authorization_endpoint")?)?,
            token: ground.place(Step::Token, &required("token_endpoint")?)?,
            registration: place(Step::Registration, "registration_endpoint")?,
            revocation: place(Step::Revocation, "revocation_endpoint")?,
            names_itself: yes("authorization_response_iss_parameter_supported"),
            takes_documents: yes("client_id_metadata_document_supported"),
            auth_methods: texts(step, value, "token_endpoint_auth_methods_supported")?,
            scopes: texts(step, value, "scopes_supported")?.unwrap_or_default(),
            issuer,
        })
    }

    /// Where a server of 2025-03-26 has everything that publishes nothing.
    pub(super) fn unpublished(ground: &Ground) -> Result<Self, OAuthError> {
        let server = ground.server();
        Ok(Self {
            issuer: server.origin(),
            authorization: ground.beside(Step::Authorization, server, "/authorize")?,
            token: ground.beside(Step::Token, server, "/token")?,
            registration: Some(ground.beside(Step::Registration, server, "/register")?),
            revocation: None,
            names_itself: false,
            takes_documents: false,
            auth_methods: None,
            scopes: Vec::new(),
        })
    }
}

/// Character by character (RFC 8414, section 3.3). An empty path and `/` are one (RFC 3986, section
/// 6.2.3): the same metadata is found by both.
pub(super) fn same_issuer(asked: &str, said: &str) -> bool {
    let root = |text: &str| text.bytes().filter(|b| *b == b'/').count() == 3 && text.ends_with('/');
    let bare =
        |text: &str| if root(text) { text[..text.len() - 1].to_owned() } else { text.to_owned() };
    bare(asked) == bare(said)
}
