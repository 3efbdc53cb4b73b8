//! Checks one file's chain, line by line, in constant memory.
//!
//! A link that does not hold has two ends, and one of them was changed. Which one is told by the
//! next link or by a signature: a line that is vouched for by what follows is as it was written, so
//! the one before it is not.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::finding::{Class, Finding, Severity};
use crate::line::{Hash, Line, Malformed, genesis, hash, text};
use crate::{Event, machine, paths};

/// How many findings are kept of one file.
const MAX_FINDINGS: usize = 1000;

/// The line before the one at hand.
#[derive(Clone)]
struct Last {
    /// Its number in the file, 0 before the first.
    no: u64,
    hash: Hash,
    /// The sequence number that must follow, when that is known.
    next: Option<u64>,
    /// Whether a finding names it already.
    blamed: bool,
}

/// A link that does not hold, until it is known which end is wrong.
#[derive(Clone)]
struct Suspect {
    before: u64,
}

/// What stands in the machine log since its last signed line.
#[derive(Clone)]
struct Region {
    digest: Sha256,
    bytes: u64,
}

/// The state of a check.
#[derive(Clone)]
pub(super) struct Checker<'a> {
    file: &'a Path,
    run: &'a str,
    /// Who must sign; `None` when nobody said.
    key: Option<&'a str>,
    last: Last,
    suspect: Option<Suspect>,
    pub(super) findings: Vec<Finding>,
    /// Last line that is a commit, its hash and the number that follows it.
    commit: (u64, Hash, u64),
    /// Last line with a good signature.
    pub(super) signed: u64,
    region: Option<Region>,
}

/// What becomes of a line, for whoever looks at the events.
pub(super) enum Seen {
    /// Not signed yet.
    Event(Line),
    /// Everything since the last group is closed. Number of the commit line and its hash.
    Group { seq: u64, hash: Hash },
    /// Everything since the last group is no evidence.
    Torn,
    /// Nothing to look at.
    Nothing,
}

impl<'a> Checker<'a> {
    pub(super) fn new(file: &'a Path, run: &'a str, key: Option<&'a str>) -> Self {
        let start = genesis(run);
        let region = || Region { digest: Sha256::new(), bytes: 0 };
        Self {
            file,
            run,
            key,
            last: Last { no: 0, hash: start, next: Some(0), blamed: false },
            suspect: None,
            findings: Vec::new(),
            commit: (0, start, 0),
            signed: 0,
            region: (run == paths::MACHINE).then(region),
        }
    }

    /// Whole lines so far.
    pub(super) fn lines(&self) -> u64 {
        self.last.no
    }

    /// Hash of the last line.
    pub(super) fn head(&self) -> Hash {
        self.last.hash
    }

    /// Lines after the last commit line, and the first of them.
    pub(super) fn unsigned(&self) -> Option<u64> {
        (self.last.no > self.commit.0).then_some(self.commit.0 + 1)
    }

    /// Takes the next line, without its line end.
    pub(super) fn line(&mut self, bytes: &[u8]) -> Seen {
        let no = self.last.no + 1;
        let parsed = Line::parse(bytes);
        if let Ok(line) = &parsed
            && self.heals(line)
        {
            self.grow_region(bytes);
            self.drop_torn(no);
            self.last = Last { no, hash: line.hash, next: line.seq.checked_add(1), blamed: false };
            return Seen::Torn;
        }
        self.grow_region(bytes);
        match parsed {
            Ok(line) => self.parsed(no, line),
            Err(malformed) => {
                self.malformed(no, malformed, hash(bytes));
                Seen::Nothing
            }
        }
    }

    /// Takes a line that is longer than any that is written.
    pub(super) fn oversized(&mut self) {
        self.malformed(self.last.no + 1, Malformed::NotALine, Hash::default());
    }

    /// Settles a broken link at the last line, which `vouched` says is as it was written.
    pub(super) fn end(&mut self, vouched: bool) {
        let no = self.last.no;
        if let Some(suspect) = self.suspect.take() {
            if vouched {
                self.blame_before(no, &suspect);
            } else {
                let message = "does not follow from the line before it";
                self.find(no, Class::BrokenChain, Severity::Error, message);
            }
        }
    }

    pub(super) fn find(&mut self, line: u64, class: Class, severity: Severity, message: &str) {
        if self.findings.len() < MAX_FINDINGS {
            let (file, message) = (self.file.to_owned(), message.to_owned());
            self.findings.push(Finding { file, line: Some(line), class, severity, message });
        }
    }

    fn malformed(&mut self, no: u64, malformed: Malformed, hash: Hash) {
        // What comes next cannot vouch for the line before: the link is in the bytes that are lost.
        self.end(false);
        let (class, message) = match malformed {
            Malformed::NotALine => (Class::Edited, "is not a line that a recorder writes"),
            Malformed::NotCanonical => {
                (Class::NotCanonical, "is not in the one spelling that a recorder writes")
            }
        };
        self.find(no, class, Severity::Error, message);
        self.last = Last { no, hash, next: None, blamed: true };
    }

    fn parsed(&mut self, no: u64, line: Line) -> Seen {
        let linked = line.prev == self.last.hash;
        if let Some(suspect) = self.suspect.take() {
            let before = self.last.no;
            if linked && self.last.next == Some(line.seq) {
                self.blame_before(before, &suspect);
            } else {
                self.find(before, Class::Edited, Severity::Error, EDITED);
                self.last.blamed = true;
            }
        }
        let mut blamed = false;
        if line.run != self.run {
            self.find(no, Class::Edited, Severity::Error, "belongs to another run's file");
            blamed = true;
        }
        let next = match self.last.next {
            None => line.seq.checked_add(1),
            Some(expected) if linked || line.seq == expected => {
                if line.seq != expected {
                    let message = format!("has number {}, but {expected} is due", line.seq);
                    self.find(no, Class::Edited, Severity::Error, &message);
                    blamed = true;
                } else if !linked && !self.last.blamed {
                    self.suspect = Some(Suspect { before: self.last.no });
                }
                expected.checked_add(1)
            }
            Some(expected) if line.seq > expected => {
                let message = match line.seq - expected {
                    1 => format!("line number {expected} is missing before this one"),
                    _ => format!("numbers {expected} to {} are missing before this", line.seq - 1),
                };
                self.find(no, Class::MissingLine, Severity::Error, &message);
                line.seq.checked_add(1)
            }
            Some(expected) => {
                let message =
                    format!("has number {}, which came before; {expected} is due", line.seq);
                self.find(no, Class::DuplicateSeq, Severity::Error, &message);
                blamed = true;
                Some(expected)
            }
        };
        if line.kind() == "torn_line" {
            let message =
                "marks bytes that a killed writer left, but other bytes are there, or none";
            self.find(no, Class::MissingLine, Severity::Error, message);
            blamed = true;
        }
        let commit = line.kind() == "commit";
        if commit {
            blamed |= self.signature(no, &line);
        } else if matches!(line.event(), None | Some(Event::Unknown)) {
            let message = "holds an event that this program does not know";
            self.find(no, Class::UnknownEvent, Severity::Warning, message);
        }
        self.last = Last { no, hash: line.hash, next, blamed };
        if !commit {
            return Seen::Event(line);
        }
        if self.region.is_none() || machine::is_commit(&line) {
            self.commit = (no, line.hash, line.seq.saturating_add(1));
            if let Some(region) = &mut self.region {
                *region = Region { digest: Sha256::new(), bytes: 0 };
            }
        }
        Seen::Group { seq: line.seq, hash: line.hash }
    }

    /// Checks a commit line; true when a finding names it.
    fn signature(&mut self, no: u64, line: &Line) -> bool {
        let first = self.commit.0 + 1;
        let Some((key, valid)) = line.commit() else {
            self.find(no, Class::Edited, Severity::Error, "is a commit line without its parts");
            return true;
        };
        if !valid {
            let message = format!(
                "the signature does not fit lines {first} to {no} as they are now: one of them was \
                 changed, or it was not made by the key it names"
            );
            self.find(no, Class::BadSignature, Severity::Error, &message);
            self.suspect = None;
            return true;
        }
        if self.key.is_some_and(|expected| expected != key) {
            let shown: String = key.chars().take(80).collect();
            let message =
                format!("lines {first} to {no} are signed by {shown}, not by this file's key");
            self.find(no, Class::UnknownKey, Severity::Error, &message);
            return true;
        }
        match self.suspect.take() {
            Some(suspect) => self.blame_before(no, &suspect),
            None => self.signed = no,
        }
        false
    }

    /// The line `no` is as it was written, but does not follow from the one before: that one is not.
    fn blame_before(&mut self, no: u64, suspect: &Suspect) {
        if suspect.before == 0 {
            let message = "is not the beginning of this file: what came before it is gone";
            self.find(no, Class::BrokenChain, Severity::Error, message);
        } else {
            self.find(suspect.before, Class::Edited, Severity::Error, EDITED);
        }
    }

    fn grow_region(&mut self, bytes: &[u8]) {
        if let Some(region) = &mut self.region {
            region.digest.update(bytes);
            region.digest.update(b"\n");
            region.bytes += bytes.len() as u64 + 1;
        }
    }

    /// Whether this line marks everything since the last commit line as a write that was cut off.
    fn heals(&self, line: &Line) -> bool {
        let Some(region) = &self.region else { return false };
        let (_, head, next) = self.commit;
        line.kind() == "torn_line"
            && line.run == self.run
            && line.prev == head
            && line.seq == next
            && region.bytes > 0
            && matches!(line.event(), Some(Event::TornLine { bytes, digest })
                if bytes == region.bytes
                    && digest == text(&region.digest.clone().finalize().into()))
    }

    fn drop_torn(&mut self, mark: u64) {
        let first = self.commit.0 + 1;
        self.suspect = None;
        self.findings.retain(|finding| finding.line.is_none_or(|line| line < first));
        let message = format!(
            "lines {first} to {} were left by a writer that was killed; they are no evidence, and \
             line {mark} says so",
            mark - 1
        );
        self.find(first, Class::Torn, Severity::Warning, &message);
    }
}

const EDITED: &str = "is not the line that was written: what follows it was chained to another";
