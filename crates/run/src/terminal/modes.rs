//! What an agent has made of the terminal, and how it is made plain for a question and given back.

use std::collections::BTreeSet;

/// Private modes that are off in a plain terminal: keys and reports that a person does not type,
/// another screen, output that is held back, inverted or bounded.
const OFF: [u16; 20] = [
    1, 5, 6, 9, 47, 69, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049, 2004,
    2026, 2031,
];
/// Private modes that are on: lines wrap, the cursor is seen.
const ON: [u16; 2] = [7, 25];
/// The screens besides the first.
const SCREENS: [u16; 3] = [47, 1047, 1049];
/// Bytes of one control sequence that are looked at; a longer one is none.
const MOST: usize = 64;

/// Follows an agent's output.
#[derive(Debug, Default)]
pub(super) struct Modes {
    sequence: Vec<u8>,
    inside: bool,
    escape: bool,
    /// Those that are not as in a plain terminal.
    turned: BTreeSet<u16>,
    /// The last `CSI > 4 ; n m`, which says how keys are reported.
    keys: Option<u8>,
}

impl Modes {
    /// Reads what the agent writes. What is missed here is not given back; nothing else follows from
    /// it, since everything is made plain whatever was seen.
    pub(super) fn see(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                0x1b => (self.escape, self.inside) = (true, false),
                b'[' if self.escape => {
                    (self.escape, self.inside) = (false, true);
                    self.sequence.clear();
                }
                0x40..=0x7e if self.inside => {
                    self.inside = false;
                    self.end(byte);
                }
                0x18 | 0x1a => self.inside = false,
                0x20..=0x3f if self.inside && self.sequence.len() < MOST => {
                    self.sequence.push(byte);
                }
                0x20..=0x3f if self.inside => self.inside = false,
                _ => self.escape = false,
            }
        }
    }

    fn end(&mut self, last: u8) {
        let Ok(text) = std::str::from_utf8(&self.sequence) else { return };
        match (text.strip_prefix('?'), last) {
            (Some(numbers), b'h' | b'l') => {
                let on = last == b'h';
                for number in numbers.split(';').filter_map(|n| n.parse().ok()) {
                    if OFF.contains(&number) && on || ON.contains(&number) && !on {
                        self.turned.insert(number);
                    } else {
                        self.turned.remove(&number);
                    }
                }
            }
            (None, b'm') => {
                if let Some(level) = text.strip_prefix(">4;").and_then(|n| n.parse().ok()) {
                    self.keys = Some(level);
                }
            }
            _ => {}
        }
    }

    /// Whether the agent is on another screen than the first, which it draws anew itself.
    pub(super) fn full_screen(&self) -> bool {
        SCREENS.iter().any(|screen| self.turned.contains(screen))
    }

    /// Makes the terminal plain and empty: whatever was begun is broken off, every mode is put back
    /// whether it was seen or not, colours are the person's own, and the screen is one on which
    /// nothing of the agent's stands.
    pub(super) fn plain(&self) -> String {
        let numbers = |modes: &[u16], without: &[u16]| {
            let chosen: Vec<String> =
                modes.iter().filter(|m| !without.contains(m)).map(u16::to_string).collect();
            chosen.join(";")
        };
        let screen = if self.full_screen() { "" } else { "\x1b[?1049h" };
        format!(
            // Out of a graphics mode, and out of any sequence or string that was left open.
            "\x1b\x03\x18\x1b\\\x18\x1b<\x1b[!p\x1bW\x1b[2l\x1b[?{off}l{screen}\x1b[?{on}h\
             \x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\\
             \x1b[>0u\x1b[>4;0m\x1b[4l\x1b[20l\x1b>\x1b[0m\x1b(B\x1b)B\x0f\x1b[r\x1b[2J\x1b[H",
            off = numbers(&OFF, &SCREENS),
            on = numbers(&ON, &[]),
        )
    }

    /// Gives the terminal back as the agent had it.
    pub(super) fn back(&self) -> String {
        let mut text = "\x1b[0m\x1b[2J\x1b[H\x1b[<u".to_owned();
        if !self.full_screen() {
            text.push_str("\x1b[?1049l");
        }
        for mode in self.turned.iter().filter(|mode| !SCREENS.contains(mode)) {
            text.push_str(&format!("\x1b[?{mode}{}", if ON.contains(mode) { 'l' } else { 'h' }));
        }
        if let Some(level) = self.keys {
            text.push_str(&format!("\x1b[>4;{level}m"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Modes;

    fn after(bytes: &[u8]) -> Modes {
        let mut modes = Modes::default();
        // Cut anywhere, it is the same.
        bytes.chunks(3).for_each(|piece| modes.see(piece));
        modes
    }

    #[test]
    fn what_was_turned_is_turned_back() {
        let editor = after(b"\x1b[?1049h\x1b[?25l\x1b[?1002;1006h\x1b[>4;2mtext\x1b[?2004h");
        assert!(editor.full_screen());
        let back = editor.back();
        for mode in ["\x1b[?25l", "\x1b[?1002h", "\x1b[?1006h", "\x1b[?2004h", "\x1b[>4;2m"] {
            assert!(back.contains(mode), "{mode:?} in {back:?}");
        }
        assert!(!back.contains("1049"), "it is still on its own screen");
        let left = after(b"\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l");
        assert!(!left.full_screen());
        assert!(left.back().ends_with("\x1b[?1049l") && left.plain().contains("\x1b[?1049h"));
    }

    #[test]
    fn a_terminal_is_brought_to_listen_before_it_is_told_anything() {
        for bytes in [&b""[..], b"\x1b[?2l", b"\x1b[2h\x1bVguarded", b"\x1b[?1049h\x1b[?2l"] {
            let plain = after(bytes).plain();
            let at =
                |part: &str| plain.find(part).unwrap_or_else(|| panic!("{part:?} in {plain:?}"));
            // A VT52 takes no control sequence: out of it first.
            assert!(at("\x1b<") < at("\x1b["), "{plain:?}");
            // Guarding ends, and the keyboard is heard, before the screen is emptied.
            for part in ["\x1b[!p", "\x1bW", "\x1b[2l"] {
                assert!(at(part) < at("\x1b[2J"), "{part:?} in {plain:?}");
            }
        }
    }

    #[test]
    fn it_is_made_plain_whatever_was_seen() {
        // Strings that are left open, endless sequences, modes spelt so that we do not see them.
        let hostile: [&[u8]; 6] = [
            b"",
            b"\x1b]0;",
            b"\x1bP+q",
            b"\x1b[?1003h\x1b[?",
            b"\x9b?1003h\x9b?2026h",
            &[b'1'; 5000],
        ];
        for bytes in hostile {
            let plain = after(bytes).plain();
            assert!(plain.starts_with("\x1b\x03\x18\x1b\\\x18"), "{plain:?}");
            assert!(plain.contains("1003;") && plain.contains("2026;"), "{plain:?}");
            assert!(plain.contains("\x1b[?7;25h") && plain.ends_with("\x1b[2J\x1b[H"));
        }
        let many: Vec<u8> = (0..100_000).flat_map(|n| format!("\x1b[?{n}h").into_bytes()).collect();
        assert!(after(&many).turned.len() <= super::OFF.len(), "it does not grow");
    }
}
