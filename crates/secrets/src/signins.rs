//! Sign-ins to remote servers: the values in the keychain, and what of them is no secret in
//! `<home>/signins.json`.
//!
//! A sign-in is kept under its server's address, with attributes of its own, so that no `${NAME}` of
//! a manifest can ever mean one. On a machine without a keychain it can be kept in a file that only
//! its owner can read, where the person asks for that in so many words.

mod file;
mod index;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_bundle::Digest;
use secret_service::Collection;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::keychain::{LOCKED, PATIENCE, PERSON, opened, within, words};
use crate::{Error, Secret, private};

const SERVICE: &str = "ringfence-sign-in";
/// How long one process may wait for another that renews the same sign-in.
const TURN: Duration = Duration::from_secs(90);

/// Where a value is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// In the keychain of the desktop session.
    Keychain,
    /// In a file of mode 0600 under the machine's folder.
    File,
}

impl Kept {
    /// As a person calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Keychain => "keychain",
            Self::File => "file",
        }
    }
}

/// What of a sign-in is no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The server's declared address: the key.
    pub server: String,
    /// What the token was asked for (RFC 8707).
    pub resource: String,
    /// Who gave it.
    pub issuer: String,
    /// What it is good for, as far as that was said.
    pub scopes: Vec<String>,
    /// When the access token ends, in seconds since 1970, if it does by itself.
    pub expires: Option<u64>,
    /// Whether it renews itself.
    pub renewable: bool,
    /// Where its value is.
    pub kept: Kept,
}

/// Says whether anything changed: compare two of them.
pub type Stamp = Option<(u64, i64, i64, i64)>;

/// The sign-ins of this machine.
#[derive(Debug, Clone)]
pub struct SignIns {
    home: PathBuf,
}

/// Nobody else changes this sign-in while it is held.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "its lock goes when it is dropped")] std::fs::File);

impl SignIns {
    /// Those under this folder, which is Ringfence's own.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// All of them, by server. Asks no keychain.
    ///
    /// # Errors
    /// [`Error::SignIn`] when the list cannot be read.
    pub fn list(&self) -> Result<Vec<SignIn>, Error> {
        index::read(&self.home).map_err(Error::SignIn)
    }

    /// The one for this server. Asks no keychain.
    ///
    /// # Errors
    /// As for [`SignIns::list`].
    pub fn find(&self, server: &str) -> Result<Option<SignIn>, Error> {
        Ok(self.list()?.into_iter().find(|it| it.server == server))
    }

    /// Changes when a sign-in comes, goes or is renewed. Cheap.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        index::stamp(&self.home)
    }

    /// Whether a value could be kept there now: asked before a person is sent to a browser.
    ///
    /// # Errors
    /// [`Error::NoKeychain`], with what to do.
    pub async fn ready(&self, kept: Kept) -> Result<(), Error> {
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        match kept {
            Kept::File => file::prepare(&self.home).map_err(Error::SignIn),
            Kept::Keychain => {
                let look = async {
                    let service = opened().await?;
                    let collection = default(&service).await?;
                    unlocked(&collection).await
                };
                within(PATIENCE, look).await.map_err(Error::NoKeychain)
            }
        }
    }

    /// Waits until nobody else changes this sign-in.
    ///
    /// # Errors
    /// [`Error::SignIn`] when another process holds it for a minute and a half.
    pub async fn turn(&self, server: &str) -> Result<Turn, Error> {
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let path = self.home.join(format!("signins-{}.lock", &key(server)[..16]));
        let name = path.display().to_string();
        let work = tokio::task::spawn_blocking(move || {
            Ok::<_, std::io::Error>(Turn(private::locked(&path)?))
        });
        match tokio::time::timeout(TURN, work).await {
            Ok(Ok(Ok(turn))) => Ok(turn),
            Ok(Ok(Err(error))) => Err(Error::SignIn(format!("{name}: {error}"))),
            Ok(Err(_)) => Err(Error::SignIn(format!("{name}: the thread that waits for it died"))),
            Err(_) => Err(Error::SignIn("another process renews it and does not end".into())),
        }
    }

    /// The value of a sign-in.
    ///
    /// # Errors
    /// [`Error::SignIn`], [`Error::NoKeychain`]: it is listed and cannot be had.
    pub async fn value(&self, sign_in: &SignIn) -> Result<Secret, Error> {
        let bytes = match sign_in.kept {
            Kept::File => file::read(&self.home, &key(&sign_in.server)).map_err(Error::SignIn)?,
            Kept::Keychain => {
                let look = async {
                    let service = opened().await?;
                    let found = service.search_items(attributes(&sign_in.server)).await;
                    let found = found.map_err(|error| words(&error))?;
                    match (&found.unlocked[..], found.locked.is_empty()) {
                        ([item], _) => {
                            item.get_secret().await.map(Zeroizing::new).map_err(|e| words(&e))
                        }
                        ([], false) => Err(LOCKED.to_owned()),
                        ([], true) => Err("the sign-in is not in it any more".to_owned()),
                        (several, _) => Err(format!("{} values are for it", several.len())),
                    }
                };
                within(PATIENCE, look).await.map_err(Error::NoKeychain)?
            }
        };
        Secret::from_bytes(bytes).map_err(|why| Error::SignIn(why.to_owned()))
    }

    /// Keeps a sign-in in the place of the one that was there for the same server.
    ///
    /// # Errors
    /// [`Error::SignIn`], [`Error::NoKeychain`]: it is not kept, and what was there may be.
    pub async fn keep(&self, sign_in: &SignIn, value: &Secret) -> Result<(), Error> {
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let before = self.find(&sign_in.server)?;
        let server = &sign_in.server;
        match sign_in.kept {
            Kept::File => {
                file::write(&self.home, &key(server), value.expose().as_bytes())
                    .map_err(Error::SignIn)?;
            }
            Kept::Keychain => {
                let put = async {
                    let service = opened().await?;
                    let collection = default(&service).await?;
                    unlocked(&collection).await?;
                    let label = format!("Ringfence: signed in to {server}");
                    let bytes = value.expose().as_bytes();
                    let made = collection
                        .create_item(&label, attributes(server), bytes, true, "application/json")
                        .await;
                    made.map(drop).map_err(|error| words(&error))
                };
                within(PERSON, put).await.map_err(Error::NoKeychain)?;
            }
        }
        index::change(&self.home, server, Some(sign_in)).map_err(Error::SignIn)?;
        // It moved: what is in the other place is good for nobody.
        match before {
            Some(before) if before.kept != sign_in.kept => self.take(&before).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Takes a sign-in away. False when there was none.
    ///
    /// # Errors
    /// [`Error::SignIn`], [`Error::NoKeychain`]: it may still be there.
    pub async fn forget(&self, server: &str) -> Result<bool, Error> {
        let Some(sign_in) = self.find(server)? else { return Ok(false) };
        self.take(&sign_in).await?;
        index::change(&self.home, server, None).map_err(Error::SignIn)?;
        Ok(true)
    }

    async fn take(&self, sign_in: &SignIn) -> Result<(), Error> {
        match sign_in.kept {
            Kept::File => file::remove(&self.home, &key(&sign_in.server)).map_err(Error::SignIn),
            Kept::Keychain => {
                let gone = async {
                    let service = opened().await?;
                    let found = service.search_items(attributes(&sign_in.server)).await;
                    let found = found.map_err(|error| words(&error))?;
                    if !found.locked.is_empty() {
                        return Err(LOCKED.to_owned());
                    }
                    for item in &found.unlocked {
                        item.delete().await.map_err(|error| words(&error))?;
                    }
                    Ok(())
                };
                within(PERSON, gone).await.map_err(Error::NoKeychain)
            }
        }
    }
}

/// A name for files that says nothing of the server.
fn key(server: &str) -> String {
    Digest::framed("sign-in", &[server.as_bytes()]).hex()
}

fn attributes(server: &str) -> HashMap<&str, &str> {
    HashMap::from([("service", SERVICE), ("server", server)])
}

async fn default<'a>(
    service: &'a secret_service::SecretService<'_>,
) -> Result<Collection<'a>, String> {
    service.get_default_collection().await.map_err(|error| match error {
        secret_service::Error::NoResult => "there is no default collection".to_owned(),
        other => words(&other),
    })
}

async fn unlocked(collection: &Collection<'_>) -> Result<(), String> {
    match collection.is_locked().await.map_err(|error| words(&error))? {
        true => Err(LOCKED.to_owned()),
        false => Ok(()),
    }
}
