//! Why nothing is served, for a person and for a model, in the forms of the protocol.

use std::path::Path;

use ringfence_gateway::Refusal;
use ringfence_mcp::Answer;
use serde_json::{Value, json};

use crate::Error;

/// Why nothing is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused(Refusal);

impl Refused {
    pub(super) fn new(check: &str, layer: &str, rule: String, next: String) -> Self {
        Self(Refusal { check: check.into(), rule, layer: layer.into(), next })
    }

    /// The plan for this folder could not be made.
    pub(super) fn of(error: &Error, project: &Path) -> Self {
        let (check, layer) = match error {
            Error::Trust(_) => ("trust", "builtin"),
            Error::Policy(_) | Error::UnpinnedTools { .. } => ("policy", "machine"),
            Error::Bundle(_) => ("bundle", "builtin"),
            _ => ("session", "builtin"),
        };
        let next = error.next().unwrap_or("ringfence validate".into());
        // Whoever types it stands somewhere else.
        let here = format!("ringfence -C {} ", quoted(project));
        Self::new(check, layer, error.to_string(), next.replace("ringfence ", &here))
    }

    /// For the person at the machine.
    pub(super) fn words(&self) -> String {
        format!("{}; next: {}", self.0.rule, self.0.next)
    }

    /// What is answered: a handshake that says so, lists with nothing in them, and refusals.
    pub(super) fn answer(&self, method: &str) -> Answer {
        match method {
            "initialize" | "server/discover" => Ok(self.hello()),
            "tools/list" => Ok(json!({ "tools": [] })),
            "prompts/list" => Ok(json!({ "prompts": [] })),
            "resources/list" => Ok(json!({ "resources": [] })),
            "resources/templates/list" => Ok(json!({ "resourceTemplates": [] })),
            _ => Err(ringfence_gateway::Error::Refused(self.0.clone()).to_rpc()),
        }
    }

    fn hello(&self) -> Value {
        let Refusal { rule, next, .. } = &self.0;
        let words = format!(
            "Ringfence offers no tools here now: {rule}. A person has to look at it, and to type in a \
             terminal: {next}. From then on the tools are listed and can be called, without a restart."
        );
        json!({
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "ringfence", "version": env!("CARGO_PKG_VERSION") },
            "instructions": words,
        })
    }
}

/// A path as a shell takes it. One with characters that do not show is shown, and cannot be pasted.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    let text: String = text.replace('\'', "'\\''").chars().flat_map(shown).collect();
    format!("'{text}'")
}

fn shown(c: char) -> Vec<char> {
    let hidden =
        c.is_control() || ringfence_bundle::first_invisible(c.encode_utf8(&mut [0; 4])).is_some();
    if hidden { c.escape_unicode().collect() } else { vec![c] }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Refused, quoted};
    use crate::Error;

    #[test]
    fn a_command_names_the_folder_as_a_shell_takes_it() {
        for (path, expected) in [
            ("/a/b-c.d", "/a/b-c.d"),
            ("/a b", "'/a b'"),
            ("/a'b", "'/a'\\''b'"),
            ("/$(id)", "'/$(id)'"),
            ("/a\nb", "'/a\\u{a}b'"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
        let error = Error::Trust(ringfence_trust::Error::Untrusted { project: "/p".into() });
        let refused = Refused::of(&error, Path::new("/p"));
        assert!(refused.words().ends_with("next: ringfence -C /p trust"), "{}", refused.words());
    }

    #[test]
    fn a_handshake_says_why_lists_are_empty_and_everything_else_is_refused() {
        let refused =
            Refused::new("trust", "builtin", "not trusted".into(), "ringfence trust".into());
        for method in ["initialize", "server/discover"] {
            let hello = refused.answer(method).unwrap();
            let words = hello["instructions"].as_str().unwrap();
            assert!(words.contains("not trusted") && words.contains("ringfence trust"), "{words}");
        }
        for (method, list) in [
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ] {
            assert_eq!(refused.answer(method).unwrap()[list], serde_json::json!([]));
        }
        for method in ["tools/call", "resources/read", "prompts/get", "anything"] {
            let error = refused.answer(method).unwrap_err();
            assert_eq!(error.data.unwrap()["ringfence"]["check"], "trust", "{method}");
        }
    }
}
