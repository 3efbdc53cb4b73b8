//! A list of patterns over names, indexed so that a decision does not walk it.
//!
//! A name is allowed when some positive pattern matches it and no negative one does. A list of
//! negatives alone allows what none of them matches (`["!*"]` allows nothing). An empty list allows
//! nothing.

use crate::chain::Chain;
use crate::glob;
use crate::grams::Grams;
use crate::pattern::{NamePattern, Ports};

/// What is asked, made once a decision.
pub(crate) struct Query<'a> {
    name: &'a str,
    reversed: Vec<u8>,
    /// 0 for names that have none; [`Ports::Any`] covers it.
    port: u16,
}

impl<'a> Query<'a> {
    pub(crate) fn new(name: &'a str, port: u16) -> Self {
        Self { name, reversed: name.bytes().rev().collect(), port }
    }
}

/// What a list says, with the position of the pattern that says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The first negative that matches.
    Denied(usize),
    /// The first positive that matches; `None` in a list of negatives alone.
    Allowed(Option<usize>),
    /// Nothing matches, and something had to.
    Unlisted,
}

/// A compiled list.
#[derive(Debug, Default)]
pub(crate) struct List {
    patterns: Vec<NamePattern>,
    positive: Set,
    negative: Set,
}

impl List {
    pub(crate) fn new(patterns: Vec<NamePattern>) -> Self {
        let set = |negative| {
            let at = (0..patterns.len()).filter(|n| patterns[*n].negative == negative);
            Set::new(&patterns, at)
        };
        let (positive, negative) = (set(false), set(true));
        Self { patterns, positive, negative }
    }

    /// The patterns in their order.
    pub(crate) fn patterns(&self) -> &[NamePattern] {
        &self.patterns
    }

    pub(crate) fn judge(&self, query: &Query<'_>) -> Verdict {
        if let Some(at) = self.negative.first(&self.patterns, query) {
            return Verdict::Denied(at);
        }
        if let Some(at) = self.positive.first(&self.patterns, query) {
            return Verdict::Allowed(Some(at));
        }
        if self.positive.len == 0 && self.negative.len > 0 {
            return Verdict::Allowed(None);
        }
        Verdict::Unlisted
    }
}

/// The patterns of one sign. Positions are those in the list; the lowest that matches is given, so
/// that a verdict names the same rule as reading the list from the top does.
#[derive(Debug, Default)]
struct Set {
    len: usize,
    /// Positions of patterns without a wildcard, by text.
    exact: Vec<u32>,
    /// `text*`
    begins: Chain,
    /// `*text`, reversed.
    ends: Chain,
    /// Other globs with literal text.
    holds: Grams,
    /// Globs of wildcards alone.
    scan: Vec<u32>,
}

impl Set {
    fn new(patterns: &[NamePattern], at: impl Iterator<Item = usize>) -> Self {
        let mut set = Self::default();
        let (mut begins, mut ends, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for n in at {
            set.len += 1;
            let pattern = &patterns[n];
            let text = pattern.glob.as_bytes();
            let wild = |b: &u8| matches!(b, b'*' | b'?');
            let position = u32::try_from(n).unwrap_or(u32::MAX);
            let Some(first) = text.iter().position(wild) else {
                set.exact.push(position);
                continue;
            };
            let last = text.iter().rposition(wild).unwrap_or(first);
            let one_star = first == last && text[first] == b'*';
            let sure = pattern.ports == Ports::Any;
            if one_star && last + 1 == text.len() {
                begins.push((text[..first].into(), position, sure));
            } else if one_star && first == 0 {
                ends.push((reversed(&text[1..]), position, sure));
            } else {
                others.push((position, &*pattern.glob));
            }
        }
        set.exact.sort_by(|a, b| text_of(patterns, *a).cmp(text_of(patterns, *b)).then(a.cmp(b)));
        set.begins = Chain::new(begins);
        set.ends = Chain::new(ends);
        (set.holds, set.scan) = Grams::new(&others);
        set
    }

    /// The lowest position whose pattern matches.
    fn first(&self, patterns: &[NamePattern], query: &Query<'_>) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let matches = |at: u32| {
            let pattern = &patterns[at as usize];
            pattern.ports.cover(query.port) && glob::matches(&pattern.glob, query.name)
        };
        let from = self.exact.partition_point(|at| text_of(patterns, *at) < query.name);
        let exact = self.exact[from..]
            .iter()
            .take_while(|at| text_of(patterns, **at) == query.name)
            .copied()
            .find(|at| patterns[*at as usize].ports.cover(query.port));
        let begins = self.begins.first(query.name.as_bytes(), matches);
        let ends = self.ends.first(&query.reversed, matches);
        let holds = self.holds.first(query.name.as_bytes(), matches);
        let scan = self.scan.iter().copied().find(|at| matches(*at));
        [exact, begins, ends, holds, scan].into_iter().flatten().min().map(|at| at as usize)
    }
}

fn text_of(patterns: &[NamePattern], at: u32) -> &str {
    &patterns[at as usize].glob
}

fn reversed(text: &[u8]) -> Box<[u8]> {
    text.iter().rev().copied().collect()
}

#[cfg(test)]
mod tests;
