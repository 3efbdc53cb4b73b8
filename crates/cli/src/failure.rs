//! Errors: what is said, and which status is returned.

use std::process::ExitCode;

use ringfence_bundle::Diagnostic;
use ringfence_run::Kind;
use serde_json::json;

use crate::escape::escaped;
use crate::out::{self, Colour};

/// An error on its way to the person.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    findings: Vec<Diagnostic>,
    next: Option<String>,
}

impl Failure {
    /// The person's matter.
    pub(crate) fn user(message: impl Into<String>) -> Self {
        Self { kind: Kind::User, message: message.into(), findings: Vec::new(), next: None }
    }

    /// Refused: by trust, by policy, or because of what came from elsewhere.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { kind: Kind::Refused, ..Self::user(message) }
    }

    /// What to type next.
    #[must_use]
    pub(crate) fn next(mut self, command: impl Into<String>) -> Self {
        self.next = Some(command.into());
        self
    }

    /// Says it, and gives the status.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let status = match self.kind {
            Kind::User => 1,
            Kind::Refused => 3,
            Kind::Internal => 255,
        };
        if json {
            let kind = match self.kind {
                Kind::User => "user",
                Kind::Refused => "refused",
                Kind::Internal => "internal",
            };
            out::json(&json!({
                "version": 1,
                "error": { "kind": kind, "message": self.message, "findings": self.findings, "next": self.next },
            }));
        }
        for finding in &self.findings {
            out::diagnostic(finding);
        }
        let mut lines = self.message.lines();
        out::say(&format!(
            "{}: {}",
            out::paint(Colour::Red, "error"),
            escaped(lines.next().unwrap_or_default())
        ));
        for line in lines {
            out::say(&format!("  {}", escaped(line)));
        }
        if let Some(next) = &self.next {
            out::say(&format!("  next: {}", escaped(next)));
        }
        ExitCode::from(status)
    }
}

impl From<ringfence_run::Error> for Failure {
    fn from(error: ringfence_run::Error) -> Self {
        let findings = findings(&error).to_vec();
        let next = error.next().map(Into::into);
        Self { kind: error.kind(), message: error.to_string(), findings, next }
    }
}

impl From<ringfence_library::Error> for Failure {
    fn from(error: ringfence_library::Error) -> Self {
        use ringfence_library::Error as Library;
        match error {
            Library::Bundle(error) => error.into(),
            Library::Identity(error) => error.into(),
            error => {
                let kind = if error.is_refusal() { Kind::Refused } else { Kind::User };
                let next = error.next().map(str::to_owned);
                Self { kind, next, ..Self::user(error.to_string()) }
            }
        }
    }
}

fn findings(error: &ringfence_run::Error) -> &[Diagnostic] {
    use ringfence_bundle::Error as Bundle;
    use ringfence_policy::Error as Policy;
    use ringfence_run::Error;
    match error {
        Error::Bundle(Bundle::Invalid(found))
        | Error::Trust(ringfence_trust::Error::Bundle(Bundle::Invalid(found)))
        | Error::Policy(Policy::Machine(found) | Policy::Exceeds(found)) => found,
        _ => &[],
    }
}

macro_rules! through_run {
    ($($type:ty),*) => {$(
        impl From<$type> for Failure {
            fn from(error: $type) -> Self {
                Self::from(ringfence_run::Error::from(error))
            }
        }
    )*};
}

through_run!(
    ringfence_bundle::Error,
    ringfence_trust::Error,
    ringfence_policy::Error,
    ringfence_record::Error,
    ringfence_secrets::Error,
    ringfence_identity::Error
);
