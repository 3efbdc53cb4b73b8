//! The source that every machine has: environment variables.

use std::os::unix::ffi::OsStringExt;

use ringfence_bundle::SecretName;
use zeroize::Zeroizing;

use crate::source::{Answer, Asked, Source};

/// The environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment;

impl Source for Environment {
    fn name(&self) -> &'static str {
        "environment"
    }

    fn find<'a>(&'a self, name: &'a SecretName) -> Asked<'a> {
        let answer = match std::env::var_os(name.as_str()) {
            Some(value) => Answer::found(Zeroizing::new(value.into_vec())),
            None => Answer::Missing,
        };
        Box::pin(std::future::ready(answer))
    }
}
