//! Two texts, line by line.

use serde::Serialize;
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

use super::{MOST, shown_line};

/// Lines shown around those that moved.
const AROUND: usize = 2;

/// Most lines, of both sides, that are compared one by one. More are shown as gone and new.
const MOST_COMPARED: usize = 4000;

/// Most comparisons of two lines, of all files together. A hostile update of many files would take hours
/// to show; those that come later are shown as gone and new.
const MOST_COMPARISONS: usize = 200_000_000;

/// Most lines of one hunk.
const MOST_ROWS: usize = 60;

/// Most hunks of one file.
const MOST_HUNKS: usize = 100;

/// Lines that moved, with a few around.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hunk {
    /// The first line that moved, in the file as it is now; where lines are gone, the one that stands
    /// in their place.
    pub line: usize,
    /// The lines, escaped and cut.
    pub rows: Vec<Row>,
    /// How many more there are.
    pub left: usize,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Which side it is on.
    pub sign: Sign,
    /// The line, escaped; cut around what differs when it is long.
    pub text: String,
}

/// Which side a line is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// Both.
    Same,
    /// It was there.
    Gone,
    /// It is there.
    New,
}

impl Sign {
    /// As a diff has it.
    #[must_use]
    pub const fn mark(self) -> char {
        match self {
            Self::Same => ' ',
            Self::Gone => '-',
            Self::New => '+',
        }
    }
}

/// How many comparisons of lines are left.
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MOST_COMPARISONS)
    }
}

impl Room {
    /// Whether there is room to compare so many lines with so many.
    fn take(&mut self, old: usize, new: usize) -> bool {
        let left = self.0.checked_sub(old.saturating_mul(new));
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// The lines that differ; `None` when one of the two is no text.
pub(super) fn hunks(old: &[u8], new: &[u8], room: &mut Room) -> Option<Vec<Hunk>> {
    let (old, new) = (text(old)?, text(new)?);
    let (old, new): (Vec<&str>, Vec<&str>) =
        (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let groups = group_diff_ops(operations(&old, &new, room), AROUND);
    let found = groups.iter().take(MOST_HUNKS).map(|ops| hunk(ops, &old, &new));
    let mut found: Vec<Hunk> = found.collect();
    if let Some(last) = found.last_mut() {
        let rest = groups.iter().skip(MOST_HUNKS).flatten();
        last.left += rest.map(|op| op.new_range().len() + op.old_range().len()).sum::<usize>();
    }
    Some(found)
}

fn operations(old: &[&str], new: &[&str], room: &mut Room) -> Vec<DiffOp> {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let pairs = old_rest.iter().rev().zip(new_rest.iter().rev());
    let tail = pairs.take_while(|(old, new)| old == new).count();
    let (old_len, new_len) = (old_rest.len() - tail, new_rest.len() - tail);
    if old_len + new_len <= MOST_COMPARED && room.take(old_len, new_len) {
        return capture_diff_slices(Algorithm::Myers, old, new);
    }
    vec![
        DiffOp::Equal { old_index: 0, new_index: 0, len: head },
        DiffOp::Replace { old_index: head, old_len, new_index: head, new_len },
        DiffOp::Equal { old_index: head + old_len, new_index: head + new_len, len: tail },
    ]
}

fn hunk(ops: &[DiffOp], old: &[&str], new: &[&str]) -> Hunk {
    let mut rows = Vec::new();
    let mut left = 0;
    let mut line = None;
    for op in ops {
        if matches!(op, DiffOp::Equal { .. }) {
            let same = new[op.new_range()].iter();
            rows.extend(same.map(|text| Row { sign: Sign::Same, text: whole(text, 0) }));
            continue;
        }
        line.get_or_insert(op.new_range().start + 1);
        let (gone, came) = (&old[op.old_range()], &new[op.new_range()]);
        let most = MOST_ROWS / 2;
        let from = |nth: usize| match (gone.get(nth), came.get(nth)) {
            (Some(gone), Some(came)) => {
                gone.chars().zip(came.chars()).take_while(|(gone, came)| gone == came).count()
            }
            _ => 0,
        };
        for (sign, side) in [(Sign::Gone, gone), (Sign::New, came)] {
            let shown = side.iter().take(most).enumerate();
            rows.extend(shown.map(|(nth, text)| Row { sign, text: whole(text, from(nth)) }));
            left += side.len().saturating_sub(most);
        }
    }
    // Where the last lines are gone, the last that is left stands for them.
    let line = line.unwrap_or(1).min(new.len().max(1));
    Hunk { line, rows, left }
}

/// A line, escaped; a long one from a little before the character in which it differs.
fn whole(line: &str, differs: usize) -> String {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, ""),
        None => (line, " (no line end)"),
    };
    if differs + 40 < MOST || text.chars().count() <= MOST {
        return format!("{}{end}", shown_line(text, MOST));
    }
    let skipped = differs - 40;
    let rest: String = text.chars().skip(skipped).collect();
    format!("({skipped} characters before) … {}{end}", shown_line(&rest, MOST))
}

fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.contains(&0) { None } else { std::str::from_utf8(bytes).ok() }
}

#[cfg(test)]
mod tests {
    use super::{Room, Sign, hunks};

    #[test]
    fn without_room_lines_are_gone_and_new_and_say_so() {
        let (old, new) = ("a\nb\nc\nd\ne\nf\ng\n", "a\nB\nc\nd\ne\nF\ng\n");
        let moved = |room: &mut Room| {
            let found = hunks(old.as_bytes(), new.as_bytes(), room).expect("text");
            let rows = found.iter().flat_map(|hunk| &hunk.rows);
            rows.filter(|row| row.sign != Sign::Same).count()
        };
        let mut room = Room(25);
        assert_eq!(moved(&mut room), 4, "control");
        assert_eq!(room.0, 0);
        assert_eq!(moved(&mut room), 10);
        assert_eq!(moved(&mut Room(24)), 10);
    }
}
