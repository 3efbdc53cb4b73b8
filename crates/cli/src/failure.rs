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
        let next = self.advice();
        if json {
            let kind = match self.kind {
                Kind::User => "user",
                Kind::Refused => "refused",
                Kind::Internal => "internal",
            };
            out::json(&json!({
                "version": 1,
                "error": { "kind": kind, "message": self.message, "findings": self.findings, "next": next },
            }));
        }
        for mut finding in self.findings.iter().cloned() {
            // What is to be typed is said once, at the end.
            finding.next.take_if(|own| Some(own.as_str()) == next);
            out::diagnostic(&finding);
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
        if let Some(next) = next {
            out::say(&format!("  next: {}", escaped(next)));
        }
        ExitCode::from(status)
    }

    /// What every finding advises, which knows more than the kind of error does; else that.
    fn advice(&self) -> Option<&str> {
        let first = self.findings.first().and_then(|first| first.next.as_deref());
        let agreed = first.filter(|next| {
            self.findings.iter().all(|finding| finding.next.as_deref() == Some(*next))
        });
        agreed.or(self.next.as_deref())
    }
}

impl From<ringfence_run::Error> for Failure {
    fn from(error: ringfence_run::Error) -> Self {
        let findings = findings(&error).to_vec();
        let next = error.next().map(std::borrow::Cow::into_owned);
        Self { kind: error.kind(), message: error.to_string(), findings, next }
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
    ringfence_identity::Error,
    ringfence_state::Error,
    ringfence_approval::Error
);

impl From<ringfence_spend::Error> for Failure {
    fn from(error: ringfence_spend::Error) -> Self {
        match error {
            ringfence_spend::Error::State(error) => error.into(),
            error => Self::user(error.to_string()),
        }
    }
}

/// Bytes from elsewhere.
impl From<ringfence_library::Error> for Failure {
    fn from(error: ringfence_library::Error) -> Self {
        use ringfence_library::Error;
        let message = match &error {
            Error::Secrets(found) => {
                let lines = found
                    .iter()
                    .map(|it| format!("\n{}:{}: {}", it.path.display(), it.line, it.what));
                format!("{error}{}", lines.collect::<String>())
            }
            _ => error.to_string(),
        };
        let next = error.next().map(str::to_owned);
        let kind = match error {
            Error::Bundle(error) => return error.into(),
            Error::Identity(error) => return error.into(),
            Error::Record(error) => return error.into(),
            Error::Write { .. } => Kind::Internal,
            error if error.is_refusal() => Kind::Refused,
            _ => Kind::User,
        };
        Self { kind, message, findings: Vec::new(), next }
    }
}
