//! The source that every machine has: environment variables.

use std::ffi::OsString;

use ringfence_bundle::SecretName;

/// Where variables are looked up.
pub trait Environment: std::fmt::Debug + Send + Sync {
    /// A variable's value, `None` when it is not set.
    fn var(&self, name: &SecretName) -> Option<OsString>;
}

/// The environment of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn var(&self, name: &SecretName) -> Option<OsString> {
        std::env::var_os(name.as_str())
    }
}
