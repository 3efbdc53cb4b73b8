//! Why a sandbox could not be built.

use std::borrow::Cow;

use crate::Probe;

/// Why a sandbox could not be built. One variant a failing step, each with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A step failed.
    #[error("{step}: {source}{}", .hint.as_deref().map(|h| format!("\n{h}")).unwrap_or_default())]
    Step {
        /// What was being done.
        step: Cow<'static, str>,
        /// Why it failed.
        source: std::io::Error,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The probe found a way out, or could not tell.
    #[error("the sandbox is not shown to be tight: {}: {}", .0.check, .0.detail)]
    Leaky(Probe),
    /// The specification cannot be honoured.
    #[error("{0}")]
    Spec(String),
}

/// What a fallible step returns.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Names the step that failed.
pub(crate) trait Step<T> {
    /// Turns a failure into [`Error::Step`].
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T>;

    /// The same, with a hint computed from the failure.
    fn step_hint(
        self,
        step: impl Into<Cow<'static, str>>,
        hint: impl FnOnce(&std::io::Error) -> Option<String>,
    ) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Step<T> for std::result::Result<T, E> {
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T> {
        self.step_hint(step, |_| None)
    }

    fn step_hint(
        self,
        step: impl Into<Cow<'static, str>>,
        hint: impl FnOnce(&std::io::Error) -> Option<String>,
    ) -> Result<T> {
        self.map_err(|error| {
            let source = error.into();
            let hint = hint(&source);
            Error::Step { step: step.into(), source, hint }
        })
    }
}
