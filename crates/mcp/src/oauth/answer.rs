//! Reading what came back: a status, then one JSON text, then its members.

use serde_json::Value;
use zeroize::Zeroizing;

use super::error::shown;
use super::place::Step;
use super::{Back, Hop, MAX_BODY, OAuthError, Outside, Place};
use crate::strict::{self, Limits};

const LIMITS: Limits = Limits { bytes: MAX_BODY, depth: 16, number: 32, values: 10_000 };

/// Sends, and refuses whatever is a redirect.
pub(super) async fn send(
    outside: &dyn Outside,
    place: &Place,
    body: Option<(&'static str, Zeroizing<Vec<u8>>)>,
    authorization: Option<Zeroizing<String>>,
) -> Result<Back, OAuthError> {
    let step = place.step();
    let back = outside
        .send(Hop { place, body, authorization })
        .await
        .map_err(|why| OAuthError::Unreached { step, why })?;
    match back.status {
        300..=399 => Err(OAuthError::Redirected { step, status: back.status }),
        _ if back.body.len() > MAX_BODY => {
            Err(OAuthError::Content { step, why: "its answer is longer than 256 KiB".into() })
        }
        _ => Ok(back),
    }
}

/// Refuses what does not say that it is JSON.
pub(super) fn is_json(step: Step, back: &Back) -> Result<(), OAuthError> {
    let kind = back.content_type.as_deref().unwrap_or("").split(';').next().unwrap_or("").trim();
    let kind = kind.to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    Err(OAuthError::Content { step, why: format!("its answer is `{}`, not JSON", shown(&kind)) })
}

/// One JSON object.
pub(super) fn object(step: Step, back: &Back) -> Result<Value, OAuthError> {
    is_json(step, back)?;
    match strict::parse(&back.body, LIMITS) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(OAuthError::Content { step, why: "its answer is not an object".into() }),
        Err(error) => Err(OAuthError::Content { step, why: error.to_string() }),
    }
}

/// The error that a status other than the expected one is: with `error` and `error_description`
/// (RFC 6749, section 5.2) where it has them.
pub(super) fn status(step: Step, back: &Back) -> OAuthError {
    OAuthError::Status { step, status: back.status, said: said(step, back) }
}

fn said(step: Step, back: &Back) -> String {
    let Ok(value) = object(step, back) else { return String::new() };
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(shown);
    match (text("error"), text("error_description")) {
        (Some(error), Some(more)) => format!(": {error} ({more})"),
        (Some(error), None) => format!(": {error}"),
        (None, _) => String::new(),
    }
}

/// `error` of an answer, if it is one of RFC 6749's.
pub(super) fn error_code(step: Step, back: &Back) -> Option<String> {
    Some(object(step, back).ok()?.get("error")?.as_str()?.to_owned())
}

/// A member that is a text, if it is there.
pub(super) fn text(step: Step, value: &Value, key: &str) -> Result<Option<String>, OAuthError> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(OAuthError::Content { step, why: format!("`{key}` is not a text") }),
    }
}

/// A member that is a list of texts, if it is there.
pub(super) fn texts(
    step: Step,
    value: &Value,
    key: &str,
) -> Result<Option<Vec<String>>, OAuthError> {
    let wrong = || OAuthError::Content { step, why: format!("`{key}` is not a list of texts") };
    match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            let text = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(wrong);
            items.iter().map(text).collect::<Result<_, _>>().map(Some)
        }
        Some(_) => Err(wrong()),
    }
}
