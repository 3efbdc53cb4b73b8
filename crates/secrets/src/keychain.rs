//! The keychain of the desktop session: the freedesktop.org Secret Service, over D-Bus.
//!
//! Values are kept under the attributes `service = ringfence` and `name = NAME`, and go over the bus
//! encrypted. A machine without such a service has no keychain, which is no failure, unless a value
//! was put there: which names were is written down, names alone, in Ringfence's home.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_bundle::SecretName;
use secret_service::{EncryptionType, SecretService};
use zeroize::Zeroizing;

use crate::source::{Answer, Asked, Source};
use crate::{Error, Secret};

mod index;

const SERVICE: &str = "ringfence";
/// How long an answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long a change may take: a person may be asked something.
pub(crate) const PERSON: Duration = Duration::from_secs(120);
pub(crate) const LOCKED: &str = "it is locked; unlock it and try again";

/// The keychain of the person who runs this process.
#[derive(Debug, Clone)]
pub struct Keychain {
    home: PathBuf,
}

impl Keychain {
    /// The keychain; `home` is Ringfence's own, where the names in it are written down.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned() }
    }

    /// Puts a value there, in place of one that was.
    ///
    /// # Errors
    /// [`Error::Keychain`] when there is no keychain, or it is locked.
    pub async fn set(&self, name: &SecretName, secret: &Secret) -> Result<(), Error> {
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let work = async {
            let service = opened().await?;
            let collection =
                service.get_default_collection().await.map_err(|error| match error {
                    secret_service::Error::NoResult => "there is no default collection".to_owned(),
                    other => words(&other),
                })?;
            if collection.is_locked().await.map_err(|error| words(&error))? {
                return Err(LOCKED.to_owned());
            }
            // Written down first: a value that is there and not written down could go unmissed.
            let new = index::change(&self.home, name, true)?;
            let label = format!("Ringfence: {name}");
            let value = secret.expose().as_bytes();
            let made = collection.create_item(&label, attributes(name), value, true, "text/plain");
            if let Err(error) = made.await {
                if new {
                    index::change(&self.home, name, false)?;
                }
                return Err(words(&error));
            }
            Ok(())
        };
        within(PERSON, work).await.map_err(Error::Keychain)
    }

    /// Takes a value away. False when there was none.
    ///
    /// # Errors
    /// [`Error::Keychain`] when there is no keychain, or it is locked.
    pub async fn remove(&self, name: &SecretName) -> Result<bool, Error> {
        ringfence_record::prepare_home(&self.home).map_err(ringfence_record::Error::from)?;
        let work = async {
            let service = opened().await?;
            let found = service.search_items(attributes(name)).await.map_err(|e| words(&e))?;
            if !found.locked.is_empty() {
                return Err(LOCKED.to_owned());
            }
            for item in &found.unlocked {
                item.delete().await.map_err(|error| words(&error))?;
            }
            index::change(&self.home, name, false)?;
            Ok(!found.unlocked.is_empty())
        };
        within(PERSON, work).await.map_err(Error::Keychain)
    }

    async fn look(&self, name: &SecretName) -> Result<Answer, String> {
        let put_there = index::names(&self.home)?.contains(name.as_str());
        let Some(service) = open().await? else {
            return if put_there {
                Err("a value was put there, and no Secret Service answers in this session".into())
            } else {
                Ok(Answer::Missing)
            };
        };
        let found = service.search_items(attributes(name)).await.map_err(|error| words(&error))?;
        match (&found.unlocked[..], found.locked.is_empty()) {
            ([item], _) => {
                let bytes = item.get_secret().await.map_err(|error| words(&error))?;
                Ok(Answer::found(Zeroizing::new(bytes)))
            }
            ([], false) => Err(LOCKED.to_owned()),
            ([], true) if put_there => Err(format!(
                "a value was put there and is gone (`ringfence secret set {name}`, or \
                 `ringfence secret remove {name}`)"
            )),
            ([], true) => Ok(Answer::Missing),
            (several, _) => Err(format!("{} values go by this name", several.len())),
        }
    }
}

impl Source for Keychain {
    fn name(&self) -> &'static str {
        "keychain"
    }

    fn find<'a>(&'a self, name: &'a SecretName) -> Asked<'a> {
        Box::pin(async { within(PATIENCE, self.look(name)).await.unwrap_or_else(Answer::Failed) })
    }
}

fn attributes(name: &SecretName) -> HashMap<&str, &str> {
    HashMap::from([("service", SERVICE), ("name", name.as_str())])
}

pub(crate) async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    tokio::time::timeout(time, work)
        .await
        .unwrap_or_else(|_| Err(format!("it gave no answer in {} s", time.as_secs())))
}

/// The Secret Service, or why it cannot be used; `None` where there is none.
async fn open() -> Result<Option<SecretService<'static>>, String> {
    if !has_bus() {
        return Ok(None);
    }
    SecretService::connect(EncryptionType::Dh).await.map(Some).or_else(|error| {
        let words = words(&error);
        let none = words.contains("org.freedesktop.DBus.Error.ServiceUnknown");
        if none { Ok(None) } else { Err(words) }
    })
}

/// Whether there is a session bus, or the environment says that there is one.
fn has_bus() -> bool {
    if let Some(address) = std::env::var_os("DBUS_SESSION_BUS_ADDRESS") {
        return !address.is_empty();
    }
    let own = || format!("/run/user/{}", rustix::process::geteuid().as_raw()).into();
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(own, PathBuf::from);
    folder.join("bus").exists()
}

pub(crate) async fn opened() -> Result<SecretService<'static>, String> {
    open().await?.ok_or_else(|| {
        "no Secret Service (such as gnome-keyring) answers in this session; on a machine without \
         one, set the variable where Ringfence is started"
            .to_owned()
    })
}

pub(crate) fn words(error: &secret_service::Error) -> String {
    match error {
        secret_service::Error::Locked => LOCKED.to_owned(),
        secret_service::Error::Prompt => "the question it asked was not answered".to_owned(),
        other => other.to_string(),
    }
}
