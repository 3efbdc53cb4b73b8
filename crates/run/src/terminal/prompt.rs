//! One question on the screen, and what is typed below it.

use ringfence_approval::Ticket;

/// Letters of a code: none that is taken for another, no vowels.
const LETTERS: &[u8; 20] = b"bcdfghjkmnpqrstvwxyz";
/// Letters that a person types for a yes: one chance in 160,000 for anything that does not read them.
const CODE: usize = 4;
/// Wrong answers after which it is a no.
const TRIES: u32 = 5;
/// Characters of a line that are kept.
const LINE: usize = 32;
/// Characters of everything but the arguments.
const OTHER: usize = 200;
/// Lines that the question takes besides what is sent.
const FRAME: usize = 14;

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Yes,
    No,
}

/// A question that is being asked.
#[derive(Debug)]
pub(super) struct Prompt {
    code: String,
    line: Vec<u8>,
    /// A byte came that no person types as a part of a word: the line is none.
    spoilt: bool,
    wrong: u32,
}

impl Prompt {
    /// # Errors
    /// When the system has no random bytes.
    pub(super) fn new() -> Result<Self, String> {
        Ok(Self { code: code()?, line: Vec::new(), spoilt: false, wrong: 0 })
    }

    /// The question as text: as much of the arguments as fits the screen, so that nothing of it
    /// scrolls away.
    pub(super) fn draw(&self, ticket: &Ticket, columns: u16, rows: u16, more: usize) -> String {
        let (columns, rows) = (usize::from(columns.max(20)), usize::from(rows.max(10)));
        let mut others = OTHER;
        let mut most = ringfence_approval::SHOWN;
        let lines = loop {
            let lines = ticket.lines(most, others);
            let height: usize = lines.iter().map(|line| cells(line).div_ceil(columns).max(1)).sum();
            if height + FRAME <= rows.max(FRAME + 12) || (most <= 20 && others <= 60) {
                break lines;
            }
            if most > 100 || others <= 60 { most /= 2 } else { others /= 2 }
        };
        let mut text = String::from(
            "Ringfence asks you. The agent waits, and cannot see or write this.\r\n\r\n",
        );
        for line in &lines {
            text.push_str(line);
            text.push_str("\r\n");
        }
        text.push_str(&format!(
            "expires    {} (in {} s)\r\n\r\nAll of it, also what is cut here: ringfence approvals show {} --full\r\n",
            ticket.expires,
            ticket.seconds_left(),
            ticket.id
        ));
        if more > 0 {
            text.push_str(&format!("{more} more wait after this one.\r\n"));
        }
        text.push_str(&self.invitation());
        text
    }

    fn invitation(&self) -> String {
        format!("\r\nType {} to approve, or no to deny, and Enter: ", self.code)
    }

    /// Takes one byte of input: what is to be written for it, and what was said.
    pub(super) fn feed(&mut self, byte: u8) -> (String, Option<Said>) {
        match byte {
            // Ctrl-C and Ctrl-D.
            3 | 4 => return ("\r\n".into(), Some(Said::No)),
            b'\r' | b'\n' => return self.entered(),
            8 | 0x7f if !self.spoilt => {
                if self.line.pop().is_some() {
                    return ("\x08 \x08".into(), None);
                }
            }
            b' '..=b'~' if !self.spoilt && self.line.len() < LINE => {
                self.line.push(byte);
                return (char::from(byte).to_string(), None);
            }
            // The answer of a terminal to a request of the agent's, or a key that is no letter.
            _ => self.spoilt = true,
        }
        (String::new(), None)
    }

    fn entered(&mut self) -> (String, Option<Said>) {
        let line = std::mem::take(&mut self.line);
        let spoilt = std::mem::take(&mut self.spoilt);
        let word = line.trim_ascii().to_ascii_lowercase();
        if !spoilt && word == self.code.as_bytes() {
            return ("\r\n".into(), Some(Said::Yes));
        }
        if !spoilt && matches!(word.as_slice(), b"no" | b"n") {
            return ("\r\n".into(), Some(Said::No));
        }
        self.wrong += 1;
        // Another code each time: what was tried tells nothing.
        match code() {
            Ok(code) if self.wrong < TRIES => self.code = code,
            _ => return ("\r\n".into(), Some(Said::No)),
        }
        (format!("\r\nThat is neither.{}", self.invitation()), None)
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> &str {
        &self.code
    }
}

fn code() -> Result<String, String> {
    let mut code = String::with_capacity(CODE);
    while code.len() < CODE {
        let mut byte = [0_u8];
        getrandom::fill(&mut byte).map_err(|error| error.to_string())?;
        // 240 is twelve times 20: each is as likely as the next.
        if byte[0] < 240 {
            code.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
        }
    }
    Ok(code)
}

/// Columns that a line takes, at most.
fn cells(line: &str) -> usize {
    line.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum()
}

#[cfg(test)]
mod tests {
    use super::{Prompt, Said};
    use ringfence_approval::Ticket;

    fn type_in(prompt: &mut Prompt, bytes: &[u8]) -> Option<Said> {
        bytes.iter().find_map(|byte| prompt.feed(*byte).1)
    }

    #[test]
    fn only_the_code_that_is_shown_is_a_yes() {
        let mut prompt = Prompt::new().unwrap();
        let code = prompt.code().to_owned();
        assert_eq!(type_in(&mut prompt, format!(" {code}\r").as_bytes()), Some(Said::Yes));

        let mut prompt = Prompt::new().unwrap();
        for wrong in ["yes\r", "y\n", "\r", "approve\r"] {
            let code = prompt.code().to_owned();
            assert_eq!(type_in(&mut prompt, wrong.as_bytes()), None, "{wrong:?}");
            assert_ne!(prompt.code(), code, "another code after each");
        }
        assert_eq!(type_in(&mut prompt, b"ok\r"), Some(Said::No), "five times is a no");

        for no in [&b"no\r"[..], b"n\r", b"\x03", b"\x04", b"xx\x7f\x7fno\r"] {
            assert_eq!(type_in(&mut Prompt::new().unwrap(), no), Some(Said::No), "{no:?}");
        }
        let mut prompt = Prompt::new().unwrap();
        let mut mended = b"abc\x7f\x7f\x08".to_vec();
        mended.extend(prompt.code().bytes().chain([b'\r']));
        assert_eq!(type_in(&mut prompt, &mended), Some(Said::Yes));
    }

    #[test]
    fn what_a_terminal_reports_is_no_answer_even_with_the_code_in_it() {
        for report in ["\x1b[24;80R", "\x1b]lno\x1b\\", "\x1bP>|x\x1b\\", "\x1b[I", "\u{9b}0n"] {
            let mut prompt = Prompt::new().unwrap();
            let code = prompt.code().to_owned();
            assert_eq!(type_in(&mut prompt, format!("{report}{code}\r").as_bytes()), None);
            let again = format!("{}\r", prompt.code());
            assert_eq!(type_in(&mut prompt, again.as_bytes()), Some(Said::Yes), "control");
        }
    }

    #[test]
    fn the_whole_question_fits_the_screen_and_what_is_cut_says_so() {
        let text = |arguments: String, beside: String| {
            let ticket: Ticket = serde_json::from_value(serde_json::json!({
                "id": "abcd-efgh", "run": "r", "project": "/p", "server": "s", "tool": "t",
                "server_digest": "", "tool_digest": "", "arguments": arguments, "ruleset": "",
                "other_params": beside,
                "rule": "rule ".repeat(500), "call": 1, "caller": "agent", "nonce": "",
                "digest": "sha256:d", "created": "2026-01-01T00:00:00Z",
                "expires": "2026-01-01T00:00:00Z",
            }))
            .unwrap();
            Prompt::new().unwrap().draw(&ticket, 80, 40, 2)
        };
        for arguments in
            ["x".repeat(10_000), "\x1b[2J\r".repeat(3000), "\u{202e}\u{4f60}".repeat(5000)]
        {
            // With something as long beside them, and without.
            let beside = if arguments.starts_with('x') { String::new() } else { arguments.clone() };
            let text = text(arguments, beside);
            let height: usize =
                text.split("\r\n").map(|line| super::cells(line).div_ceil(80).max(1)).sum();
            assert!(height <= 40, "{height} lines:\n{text}");
            assert!(text.contains("more characters, sha256:"), "{text}");
            let acts = |c: char| c.is_control() && !matches!(c, '\r' | '\n');
            assert!(!text.contains(acts), "{text:?}");
        }
        let short = text("{\"amount\":1}".into(), "{\"task\":{}}".into());
        assert!(short.contains("{\"amount\":1}") && short.contains("{\"task\":{}}"), "{short}");
        assert!(short.contains("sent beside them (11 characters):"), "{short}");
    }
}
