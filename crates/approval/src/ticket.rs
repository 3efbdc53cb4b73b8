//! A question as it is kept and shown.

use ringfence_bundle::shown;
use serde::{Deserialize, Serialize};

use crate::{Error, Question, digest};

/// Characters of a text that are shown; what is cut says so, with how many and the digest.
pub const SHOWN: usize = 2000;

/// Letters and digits of an id: none that is taken for another.
const ALPHABET: &[u8; 28] = b"23456789bcdfghjkmnpqrstvwxyz";

/// A question that was asked: what waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticket {
    /// Short, random, to be typed: `k7mq-2xwd`.
    pub id: String,
    /// The run that waits.
    pub run: String,
    /// Its project folder.
    pub project: String,
    /// Whose tool it is.
    pub server: String,
    /// Which.
    pub tool: String,
    /// Digest of the server's declaration.
    pub server_digest: String,
    /// Digest of the tool's definition.
    pub tool_digest: String,
    /// The arguments, as the text that would be sent on.
    pub arguments: String,
    /// The other parameters, as the text that would be sent on; `{}` without any.
    #[serde(default)]
    pub other_params: String,
    /// Digest of the ruleset.
    pub ruleset: String,
    /// The rule that asks for it.
    pub rule: String,
    /// The number of the call within its run.
    pub call: u64,
    /// Who calls.
    pub caller: String,
    /// 128 random bits, hexadecimal: no two questions have the same digest.
    pub nonce: String,
    /// Digest of all that a yes is bound to, see [`digest`].
    pub digest: String,
    /// When it was asked, RFC 3339 UTC.
    pub created: String,
    /// When it expires, RFC 3339 UTC.
    pub expires: String,
}

impl Ticket {
    pub(crate) fn new(
        question: &Question,
        run: &str,
        project: &str,
        timeout: std::time::Duration,
    ) -> Result<Self, Error> {
        let mut nonce = [0_u8; 16];
        getrandom::fill(&mut nonce).map_err(|e| Error::Random(e.to_string()))?;
        let nonce = format!("{:032x}", u128::from_be_bytes(nonce));
        let created = jiff::Timestamp::now();
        let expires = created.checked_add(jiff::SignedDuration::try_from(timeout).unwrap_or(
            // A day is the most that a manifest can say.
            jiff::SignedDuration::from_hours(24),
        ));
        Ok(Self {
            id: id()?,
            run: run.to_owned(),
            project: project.to_owned(),
            server: question.server.clone(),
            tool: question.tool.clone(),
            server_digest: question.server_digest.clone(),
            tool_digest: question.tool_digest.clone(),
            arguments: question.arguments.clone(),
            other_params: question.other_params.clone(),
            ruleset: question.ruleset.clone(),
            rule: question.rule.clone(),
            call: question.call,
            caller: question.caller.clone(),
            digest: digest(question, run, &nonce),
            nonce,
            created: seconds(created),
            expires: seconds(expires.unwrap_or(created)),
        })
    }

    /// Seconds from now until it expires; 0 when it has.
    #[must_use]
    pub fn seconds_left(&self) -> u64 {
        let Ok(expires) = self.expires.parse::<jiff::Timestamp>() else { return 0 };
        u64::try_from(expires.as_second() - jiff::Timestamp::now().as_second()).unwrap_or(0)
    }

    /// What was asked.
    #[must_use]
    pub fn question(&self) -> Question {
        Question {
            server: self.server.clone(),
            tool: self.tool.clone(),
            server_digest: self.server_digest.clone(),
            tool_digest: self.tool_digest.clone(),
            arguments: self.arguments.clone(),
            other_params: self.other_params.clone(),
            ruleset: self.ruleset.clone(),
            rule: self.rule.clone(),
            call: self.call,
            caller: self.caller.clone(),
        }
    }

    /// Whether its digest is over what it says: what is shown is what is said yes to.
    pub(crate) fn is_whole(&self) -> bool {
        digest(&self.question(), &self.run, &self.nonce) == self.digest
    }

    /// It as a person sees it, line by line, nothing in it that a terminal acts on. Of the arguments
    /// and of the other parameters, where there are any, at most `most` characters, of everything else
    /// `other`; what is cut says so.
    #[must_use]
    pub fn lines(&self, most: usize, other: usize) -> Vec<String> {
        let row = |name: &str, text: &str| format!("{name:<10} {}", shown(text, other));
        let mut lines = vec![
            row("question", &self.id),
            row("call", &format!("{}: {}", self.server, self.tool)),
        ];
        let mut text = |name: &str, text: &str| {
            lines.push(format!("{name} ({} characters):", text.chars().count()));
            lines.push(format!("  {}", shown(text, most)));
        };
        text("arguments", &self.arguments);
        if !matches!(self.other_params.as_str(), "" | "{}") {
            text("sent beside them", &self.other_params);
        }
        lines.extend([
            row("rule", &self.rule),
            row("run", &format!("{} in {}", self.run, self.project)),
            row("by", &format!("{}, call {}", self.caller, self.call)),
            row("digest", &self.digest),
        ]);
        lines
    }
}

fn seconds(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Eight letters and digits: 38 bits, for a name that is unique among the questions of a machine. It
/// is no secret; what a yes is bound to is the digest.
fn id() -> Result<String, Error> {
    let letters = letters(8)?;
    let (first, second) = letters.split_at(4);
    Ok(format!("{first}-{second}"))
}

/// Random letters and digits.
pub(crate) fn letters(count: usize) -> Result<String, Error> {
    let mut text = String::with_capacity(count);
    while text.len() < count {
        let mut byte = [0_u8];
        getrandom::fill(&mut byte).map_err(|e| Error::Random(e.to_string()))?;
        // 252 is nine times 28: each is as likely as the next.
        if byte[0] < 252 {
            text.push(char::from(ALPHABET[usize::from(byte[0]) % ALPHABET.len()]));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::Ticket;
    use crate::bound::tests::question;
    use crate::{Question, SHOWN};

    fn ticket(arguments: &str) -> Ticket {
        let question = Question { arguments: arguments.into(), ..question() };
        Ticket::new(&question, "run", "/p", std::time::Duration::from_secs(300)).unwrap()
    }

    #[test]
    fn nothing_in_it_moves_hides_or_colours_other_text() {
        let hostile = "a\x1b[2J\x1b]0;title\x07\r\n\u{202e}evil\u{200b}\u{9b}31m\u{85}\u{2028}";
        let plain = |line: &String| {
            assert!(
                line.chars().all(|c| !c.is_control() && !"\u{202e}\u{200b}\u{2028}".contains(c)),
                "{line:?}"
            );
        };
        let mut all = ticket(hostile);
        all.lines(SHOWN, SHOWN).iter().for_each(plain);
        assert!(all.lines(SHOWN, SHOWN)[3].contains("\\u{1b}[2J"), "it is there, as text");
        (all.tool, all.server, all.rule) = (hostile.into(), hostile.into(), hostile.into());
        (all.project, all.caller) = (hostile.into(), hostile.into());
        all.lines(SHOWN, SHOWN).iter().for_each(plain);
        assert_eq!(all.lines(SHOWN, SHOWN).len(), 8, "no text makes a line of its own");
        all.other_params = hostile.into();
        let lines = all.lines(SHOWN, SHOWN);
        lines.iter().for_each(plain);
        assert_eq!(lines.len(), 10, "{lines:#?}");
        assert!(lines[4].starts_with("sent beside them (") && lines[5].contains("\\u{1b}[2J"));
    }

    #[test]
    fn what_is_cut_says_so() {
        let long = format!("{{\"a\":\"{}\",\"amount\":1000000}}", "x".repeat(10_000));
        let lines = ticket(&long).lines(SHOWN, SHOWN);
        assert!(lines[2].contains(&format!("({} characters)", long.chars().count())));
        let left = long.chars().count() - SHOWN;
        assert!(lines[3].contains(&format!("… ({left} more characters, sha256:")), "{}", lines[3]);
        assert!(!lines[3].contains("1000000"));
        let full = ticket(&long).lines(usize::MAX, SHOWN);
        assert!(full[3].contains("1000000") && !full[3].contains("more characters"));
    }

    #[test]
    fn a_ticket_whose_digest_is_not_over_what_it_says_is_not_whole() {
        let good = ticket(r#"{"amount":1}"#);
        assert!(good.is_whole());
        let changes: [fn(&mut Ticket); 5] = [
            |t| t.arguments = r#"{"amount":2}"#.into(),
            |t| t.other_params = r#"{"task":{}}"#.into(),
            |t| t.server.push('x'),
            |t| t.rule.push('x'),
            |t| t.nonce.push('0'),
        ];
        for change in changes {
            let mut other = good.clone();
            change(&mut other);
            assert!(!other.is_whole(), "{other:?}");
        }
    }

    #[test]
    fn ids_are_typeable_and_nonces_are_not_repeated() {
        let tickets: Vec<_> = (0..200).map(|_| ticket("{}")).collect();
        let digests: std::collections::BTreeSet<_> = tickets.iter().map(|t| &t.digest).collect();
        assert_eq!(digests.len(), 200);
        assert!(tickets.iter().all(|t| t.nonce.len() == 32 && t.id.len() == 9));
        assert!(tickets.iter().all(|t| (298..=300).contains(&t.seconds_left())));
    }
}
