//! What a place where values are kept can answer.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use ringfence_bundle::SecretName;
use zeroize::Zeroizing;

use crate::Secret;

/// What a source says about a name.
#[derive(Debug)]
pub enum Answer {
    /// Here it is.
    Found(Secret),
    /// It is not kept here.
    Missing,
    /// It may be kept here and could not be had, in words without the value.
    Failed(String),
}

impl Answer {
    /// A value that was found, if it is fit to be one.
    pub(crate) fn found(bytes: Zeroizing<Vec<u8>>) -> Self {
        Secret::from_bytes(bytes).map_or_else(|why| Self::Failed(why.to_owned()), Self::Found)
    }
}

/// An answer on its way.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// A place where values are kept.
pub trait Source: Debug + Send + Sync {
    /// What a person calls it: `environment`, `varlock`, `keychain`, `.env`.
    fn name(&self) -> &'static str;

    /// Looks a name up.
    fn find<'a>(&'a self, name: &'a SecretName) -> Asked<'a>;
}
