//! What a yes is bound to, in one digest.

use sha2::{Digest as _, Sha256};

use crate::Question;

/// Before everything else, so that no digest of another kind is taken for one of these.
const DOMAIN: &str = "ringfence approval v2";

/// SHA-256 over everything that a yes to this question is bound to: `sha256:` and 64 hexadecimal
/// digits. Each part stands behind its length (8 bytes, big-endian), so that no two questions give the
/// same bytes; arguments and other parameters go in as text, so that numbers that a double cannot tell apart do not.
#[must_use]
pub fn digest(question: &Question, run: &str, nonce: &str) -> String {
    use std::fmt::Write as _;
    // Named, so that a new part cannot be forgotten.
    let Question {
        server,
        tool,
        server_digest,
        tool_digest,
        arguments,
        other_params,
        ruleset,
        rule,
        call,
        caller,
    } = question;
    let call = call.to_string();
    let parts = [
        DOMAIN,
        run,
        nonce,
        server,
        server_digest,
        tool,
        tool_digest,
        ruleset,
        rule,
        &call,
        caller,
        arguments,
        other_params,
    ];
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut text = String::from("sha256:");
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::digest;
    use crate::Question;

    pub(crate) fn question() -> Question {
        Question {
            server: "pay".into(),
            tool: "send".into(),
            server_digest: "sha256:s".into(),
            tool_digest: "sha256:t".into(),
            arguments: r#"{"amount":100.00}"#.into(),
            other_params: "{}".into(),
            ruleset: "sha256:r".into(),
            rule: "[[approvals.require]] pay send".into(),
            call: 7,
            caller: "agent".into(),
        }
    }

    #[test]
    fn every_part_is_in_it() {
        let base = digest(&question(), "run", "nonce");
        assert_eq!(base, digest(&question(), "run", "nonce"), "control: the same is the same");
        let changes: [fn(&mut Question); 10] = [
            |q| q.server = "pa".into(),
            |q| q.tool = "ysend".into(),
            |q| q.server_digest.push('x'),
            |q| q.tool_digest.push('x'),
            |q| q.arguments = r#"{"amount":100.0}"#.into(),
            |q| q.other_params = r#"{"_meta":{"to":"elsewhere"}}"#.into(),
            |q| q.ruleset.push('x'),
            |q| q.rule.push('x'),
            |q| q.call = 8,
            |q| q.caller = "agents".into(),
        ];
        let mut all =
            vec![base, digest(&question(), "ru", "nnonce"), digest(&question(), "run", "nonc")];
        for change in changes {
            let mut other = question();
            change(&mut other);
            all.push(digest(&other, "run", "nonce"));
        }
        // Numbers that a double cannot tell apart, an amount as a string, a key twice as long.
        for arguments in [
            r#"{"amount":9007199254740992}"#,
            r#"{"amount":9007199254740993}"#,
            r#"{"amount":"9007199254740993"}"#,
            r#"{"amount":1e2}"#,
            r#"{"amount":100}"#,
            r#"{"amount":"100.00"}"#,
            r#"{"amount": 100.00}"#,
        ] {
            let other = Question { arguments: arguments.into(), ..question() };
            all.push(digest(&other, "run", "nonce"));
        }
        // What moves from one part into its neighbour is another question.
        let other = Question { server: "pays".into(), tool: "end".into(), ..question() };
        all.push(digest(&other, "run", "nonce"));
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:#?}");
    }
}
