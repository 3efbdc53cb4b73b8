//! From a server that refuses to whoever gives tokens for it.

use super::answer::{object, send, status};
use super::error::shown;
use super::metadata::{Resource, issuer_places, resource_places, same_issuer};
use super::{Challenge, Ground, Issuer, OAuthError, Outside, Place, Step};

/// Who gives tokens for a server, and for what they are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The server's identifier, which every request for a token names (RFC 8707).
    pub resource: String,
    /// Who gives them.
    pub issuer: Issuer,
    /// What the server's metadata says that tokens can be good for.
    pub scopes: Vec<String>,
    /// Whether the server published anything: without it, the addresses are those of 2025-03-26.
    pub published: bool,
}

/// Finds out who gives tokens for a server. `wanted` is the issuer that a person asked for.
///
/// # Errors
/// [`OAuthError`]. Nothing that was found is used when a part of it is wrong.
pub async fn discover(
    outside: &dyn Outside,
    ground: &Ground,
    challenge: &Challenge,
    wanted: Option<&str>,
) -> Result<Found, OAuthError> {
    let Some(resource) = resource(outside, ground, challenge).await? else {
        return older(outside, ground, wanted).await;
    };
    let named = match wanted {
        None => resource.issuers.first(),
        Some(wanted) => resource.issuers.iter().find(|issuer| same_issuer(issuer, wanted)),
    };
    let Some(named) = named else {
        return Err(OAuthError::OtherIssuer {
            named: shown(&resource.issuers.join(" ")),
            wanted: wanted.unwrap_or_default().to_owned(),
        });
    };
    let place = ground.place(Step::Issuer, named)?;
    let issuer = issuer(outside, ground, &place, false).await?;
    let issuer = issuer.ok_or_else(|| OAuthError::Content {
        step: Step::IssuerMetadata,
        why: format!("`{}` publishes none", place.text()),
    })?;
    Ok(Found { resource: resource.resource, issuer, scopes: resource.scopes, published: true })
}

/// The server's own metadata: where its challenge says, or at the well-known places.
async fn resource(
    outside: &dyn Outside,
    ground: &Ground,
    challenge: &Challenge,
) -> Result<Option<Resource>, OAuthError> {
    if let Some(named) = &challenge.resource_metadata {
        let place = ground.place(Step::ResourceMetadata, named)?;
        let back = send(outside, &place, None, None).await?;
        if back.status != 200 {
            return Err(status(Step::ResourceMetadata, &back));
        }
        let value = object(Step::ResourceMetadata, &back)?;
        return Resource::read(ground, &value).map(Some);
    }
    for place in resource_places(ground)? {
        if let Some(value) = published(outside, &place).await? {
            return Resource::read(ground, &value).map(Some);
        }
    }
    Ok(None)
}

/// A server that publishes nothing of its own is its own authorization server (2025-03-26).
async fn older(
    outside: &dyn Outside,
    ground: &Ground,
    wanted: Option<&str>,
) -> Result<Found, OAuthError> {
    let place = ground.beside(Step::Issuer, ground.server(), "")?;
    if let Some(wanted) = wanted
        && !same_issuer(place.text(), wanted)
    {
        let (named, wanted) = (place.text().to_owned(), wanted.to_owned());
        return Err(OAuthError::OtherIssuer { named, wanted });
    }
    let found = issuer(outside, ground, &place, true).await?;
    let published = found.is_some();
    let issuer = match found {
        Some(issuer) => issuer,
        None => Issuer::unpublished(ground)?,
    };
    let resource = ground.server().text().to_owned();
    Ok(Found { resource, issuer, scopes: Vec::new(), published })
}

async fn issuer(
    outside: &dyn Outside,
    ground: &Ground,
    place: &Place,
    older: bool,
) -> Result<Option<Issuer>, OAuthError> {
    for at in issuer_places(ground, place)? {
        if let Some(value) = published(outside, &at).await? {
            return Issuer::read(ground, place, older, &value).map(Some);
        }
    }
    Ok(None)
}

/// What is published there. `None` when there is nothing, or it is not for us; any other trouble is
/// no reason to believe the next place.
async fn published(
    outside: &dyn Outside,
    place: &Place,
) -> Result<Option<serde_json::Value>, OAuthError> {
    let back = send(outside, place, None, None).await?;
    match back.status {
        200 => object(place.step(), &back).map(Some),
        400..=499 => Ok(None),
        _ => Err(status(place.step(), &back)),
    }
}
