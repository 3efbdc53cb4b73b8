//! A small terminal, as far as a program can misuse it: what stands on its screen, and whether it still
//! understands and hears (ECMA-48, DEC VT100 with its VT52 mode, as xterm does it).

/// A terminal of 100 columns and 40 rows.
#[derive(Debug)]
pub struct Vt {
    cells: Vec<Vec<Cell>>,
    row: usize,
    column: usize,
    state: State,
    /// It takes sequences of a VT52 alone.
    pub vt52: bool,
    /// The keyboard is locked (KAM).
    pub locked: bool,
    /// What is written now stands in a guarded area (SPA).
    pub guarding: bool,
    /// Guarded areas are not erased.
    guards: bool,
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    shows: char,
    guarded: bool,
}

#[derive(Debug)]
enum State {
    Ground,
    Escape,
    /// A control sequence, so far.
    Sequence(String),
    /// A string that ends with ST or BEL, and whether an ESC came in it.
    String(bool),
    /// So many characters belong to what began.
    Skip(usize),
}

const COLUMNS: usize = 100;
const ROWS: usize = 40;
const EMPTY: Cell = Cell { shows: ' ', guarded: false };

impl Default for Vt {
    fn default() -> Self {
        Self {
            cells: vec![vec![EMPTY; COLUMNS]; ROWS],
            row: 0,
            column: 0,
            state: State::Ground,
            vt52: false,
            locked: false,
            guarding: false,
            guards: false,
        }
    }
}

impl Vt {
    /// A terminal that was shown this.
    #[must_use]
    pub fn after(text: &str) -> Self {
        let mut vt = Self::default();
        text.chars().for_each(|c| vt.take(c));
        vt
    }

    /// What stands on the screen, line by line.
    #[must_use]
    pub fn screen(&self) -> String {
        let line = |cells: &Vec<Cell>| {
            cells.iter().map(|cell| cell.shows).collect::<String>().trim_end().to_owned()
        };
        self.cells.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn take(&mut self, c: char) {
        match (std::mem::replace(&mut self.state, State::Ground), c) {
            // Whatever was begun is broken off.
            (_, '\x18' | '\x1a') => {}
            (State::String(true), '\\') | (State::String(_), '\x07') => {}
            (State::String(_), c) => self.state = State::String(c == '\x1b'),
            (_, '\x1b') => self.state = State::Escape,
            (State::Ground, c) => self.show(c),
            (State::Escape, c) if self.vt52 => self.vt52_escape(c),
            (State::Escape, c) => self.escape(c),
            (State::Skip(more), _) if more > 1 => self.state = State::Skip(more - 1),
            (State::Skip(_), _) => {}
            (State::Sequence(text), '@'..='~') => self.sequence(&text, c),
            (State::Sequence(text), c) => self.state = State::Sequence(format!("{text}{c}")),
        }
    }

    fn show(&mut self, c: char) {
        match c {
            '\r' => self.column = 0,
            '\n' => self.down(),
            '\x08' => self.column = self.column.saturating_sub(1),
            c if c.is_control() => {}
            c => {
                if self.column == COLUMNS {
                    self.column = 0;
                    self.down();
                }
                self.cells[self.row][self.column] = Cell { shows: c, guarded: self.guarding };
                self.column += 1;
            }
        }
    }

    fn down(&mut self) {
        self.row += 1;
        if self.row == ROWS {
            self.row -= 1;
            self.cells.remove(0);
            self.cells.push(vec![EMPTY; COLUMNS]);
        }
    }

    fn erase(&mut self) {
        let guards = self.guards;
        for cell in self.cells.iter_mut().flatten().filter(|cell| !(guards && cell.guarded)) {
            *cell = EMPTY;
        }
    }

    fn vt52_escape(&mut self, c: char) {
        match c {
            '<' => self.vt52 = false,
            'H' => (self.row, self.column) = (0, 0),
            'J' => self.erase(),
            // A place on the screen.
            'Y' => self.state = State::Skip(2),
            // A CSI is none here: what follows is text.
            _ => {}
        }
    }

    fn escape(&mut self, c: char) {
        match c {
            '[' => self.state = State::Sequence(String::new()),
            ']' | 'P' | 'X' | '^' | '_' => self.state = State::String(false),
            '(' | ')' | '*' | '+' | '#' | ' ' | '%' => self.state = State::Skip(1),
            'V' => (self.guarding, self.guards) = (true, true),
            'W' => self.guarding = false,
            _ => {}
        }
    }

    fn sequence(&mut self, text: &str, last: char) {
        match (text, last) {
            // Every private mode stays as it is but the one that matters here; another screen is taken
            // for the same one, which hides less.
            (private, 'l') if private.starts_with('?') => {
                self.vt52 |= private[1..].split(';').any(|mode| mode == "2");
            }
            ("2", 'h') => self.locked = true,
            ("2", 'l') => self.locked = false,
            // A soft reset ends guarding.
            ("!", 'p') => (self.guarding, self.guards) = (false, false),
            ("2", 'J') => self.erase(),
            ("", 'H') => (self.row, self.column) = (0, 0),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Vt;

    #[test]
    fn it_is_misused_as_a_terminal_is() {
        let plain = Vt::after("one\r\ntwo\x1b[1;31m three\x1b]0;title\x07 four");
        assert_eq!(plain.screen().trim_end(), "one\ntwo three four");
        assert!(!plain.vt52 && !plain.locked && !plain.guarding);
        let old = Vt::after("\x1b[?2l\x1b[2Jx");
        assert!(old.vt52 && old.screen().contains("2Jx"), "{}", old.screen());
        assert!(!Vt::after("\x1b[?2l\x1b<").vt52);
        assert!(Vt::after("\x1b[2h").locked && !Vt::after("\x1b[2h\x1b[2l").locked);
        let kept = Vt::after("free\x1bVkept\x1bW\x1b[2J\x1b[Hx");
        assert_eq!(kept.screen().trim_end(), "x   kept");
        assert_eq!(Vt::after("\x1bVkept\x1b[!p\x1b[2J\x1b[Hx").screen().trim_end(), "x");
        assert_eq!(Vt::after("\x1bPleft open\x1b[2J\x18a").screen().trim_end(), "a");
    }
}
