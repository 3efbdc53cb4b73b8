//! The token endpoint: a code for tokens, old tokens for new ones, and giving them back.

use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::answer::{error_code, is_json, send, status};
use super::error::shown;
use super::form::{FORM, Form};
use super::scope::Scopes;
use super::{Back, ClientKey, Grant, Ground, OAuthError, Outside, Place, Step, Tokens};

/// How many seconds before its end a token is renewed: clocks differ, and requests take time.
pub const SKEW: u64 = 60;
/// Bytes of one token, at most.
const MAX_TOKEN: usize = 16 * 1024;
/// A token that says it lives longer is taken for one that lives so long: ten years of seconds.
const LONGEST: u64 = 10 * 365 * 24 * 60 * 60;

/// What a token endpoint gives (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct Given {
    #[serde(with = "super::quiet")]
    access_token: Zeroizing<String>,
    token_type: String,
    expires_in: Option<Value>,
    #[serde(default, with = "super::quiet::option")]
    refresh_token: Option<Zeroizing<String>>,
    scope: Option<String>,
}

/// Tokens as they came, with what was said of them.
pub(super) struct Fresh {
    pub(super) tokens: Tokens,
    pub(super) expires: Option<u64>,
    pub(super) scopes: Option<Vec<String>>,
}

fn read(back: &Back, now: u64) -> Result<Fresh, OAuthError> {
    let step = Step::Token;
    let content = |why: &str| OAuthError::Content { step, why: why.to_owned() };
    is_json(step, back)?;
    // The parser's words could hold a piece of a token.
    let given: Given = serde_json::from_slice(&back.body)
        .map_err(|_| content("its answer does not have the members of one with a token"))?;
    if !given.token_type.eq_ignore_ascii_case("bearer") {
        return Err(content("the token that it gives is not a bearer token"));
    }
    let fits = |token: &str| {
        (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|b| (0x21..0x7f).contains(&b))
    };
    if !fits(&given.access_token) {
        return Err(content("the token that it gives cannot stand in a header"));
    }
    let refresh = given.refresh_token.filter(|token| !token.is_empty());
    if refresh.as_ref().is_some_and(|token| !fits(token)) {
        return Err(content("the refresh token that it gives is not visible ASCII of some length"));
    }
    let seconds = match given.expires_in {
        None | Some(Value::Null) => None,
        // Some send a text.
        Some(Value::String(text)) => text.parse::<u64>().ok(),
        Some(Value::Number(number)) => number.as_u64(),
        Some(_) => return Err(content("`expires_in` is not a number of seconds")),
    };
    let expires = seconds.map(|seconds| now.saturating_add(seconds.min(LONGEST)));
    // Scopes are shown and listed.
    let scope = given.scope.as_deref().unwrap_or_default();
    let holds = |token: &str| token.len() >= 8 && scope.contains(token);
    if holds(&given.access_token) || refresh.as_ref().is_some_and(|token| holds(token)) {
        return Err(content("the scope that it gives has the token in it"));
    }
    let scopes = given.scope.as_deref().map(Scopes::parse).transpose()?.map(Scopes::list);
    Ok(Fresh { tokens: Tokens { access: given.access_token, refresh }, expires, scopes })
}

async fn ask(
    outside: &dyn Outside,
    place: &Place,
    client: &ClientKey,
    form: Form,
) -> Result<Back, OAuthError> {
    let (form, authorization) = client.prove(form);
    send(outside, place, Some((FORM, form.bytes())), authorization).await
}

/// What a code is redeemed with.
pub(super) struct Redeem<'a> {
    pub(super) code: &'a str,
    pub(super) verifier: &'a str,
    pub(super) redirect: &'a str,
    pub(super) resource: &'a str,
}

/// A code for tokens, at `now` in seconds since 1970.
pub(super) async fn redeem(
    outside: &dyn Outside,
    place: &Place,
    client: &ClientKey,
    with: &Redeem<'_>,
    now: u64,
) -> Result<Fresh, OAuthError> {
    let form = Form::new()
        .pair("grant_type", "authorization_code")
        .pair("code", with.code)
        .pair("redirect_uri", with.redirect)
        .pair("code_verifier", with.verifier)
        .pair("resource", with.resource);
    let back = ask(outside, place, client, form).await?;
    match back.status {
        200 => read(&back, now),
        _ => Err(status(Step::Token, &back)),
    }
}

/// New tokens for old ones, at `now` in seconds since 1970. Where the authorization server gives a
/// new refresh token too, the old one is good no more: whoever calls this keeps what it gives before
/// anything else, and lets nobody else renew the same grant meanwhile.
///
/// # Errors
/// [`OAuthError::Over`] when only a person can sign in again; the others may pass.
pub async fn refresh(
    outside: &dyn Outside,
    ground: &Ground,
    grant: &Grant,
    now: u64,
) -> Result<Grant, OAuthError> {
    let Some(token) = grant.tokens().refresh() else {
        return Err(OAuthError::Over("the token has ended, and none to renew it was given".into()));
    };
    let place = grant.token_place(ground)?;
    let form = Form::new()
        .pair("grant_type", "refresh_token")
        .pair("refresh_token", token)
        .pair("resource", grant.resource());
    let back = ask(outside, &place, grant.client(), form).await?;
    match back.status {
        200 => {
            let fresh = read(&back, now)?;
            Ok(grant.renewed(fresh.scopes, fresh.expires, fresh.tokens))
        }
        400 | 401 => match error_code(Step::Token, &back).as_deref() {
            Some(code @ ("invalid_grant" | "invalid_client" | "unauthorized_client")) => {
                Err(OAuthError::Over(format!("the authorization server says {}", shown(code))))
            }
            _ => Err(status(Step::Token, &back)),
        },
        _ => Err(status(Step::Token, &back)),
    }
}

/// Gives the tokens back (RFC 7009): the refresh token, with which the others go, or the access
/// token. False when the authorization server does not offer that.
///
/// # Errors
/// [`OAuthError`]: it may still be good.
pub async fn revoke(
    outside: &dyn Outside,
    ground: &Ground,
    grant: &Grant,
) -> Result<bool, OAuthError> {
    let Some(place) = grant.revocation_place(ground)? else { return Ok(false) };
    let both = [
        ("refresh_token", grant.tokens().refresh()),
        ("access_token", Some(grant.tokens().access())),
    ];
    for (hint, token) in both {
        let Some(token) = token else { continue };
        let form = Form::new().pair("token", token).pair("token_type_hint", hint);
        let back = ask(outside, &place, grant.client(), form).await?;
        if back.status != 200 {
            // Not every server takes an access token back; the one that renews it must go.
            let code = error_code(Step::Revocation, &back);
            if code.as_deref() == Some("unsupported_token_type") && hint == "access_token" {
                continue;
            }
            return Err(status(Step::Revocation, &back));
        }
    }
    Ok(true)
}
