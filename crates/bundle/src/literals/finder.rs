//! Finds any of many words in a text, once or a hundred thousand times.
//!
//! The automaton that reads fastest takes longest to build, which every start of the program would
//! pay for a manifest of a few hundred bytes. The first bytes are read with one that is built fast;
//! both find the same.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind};

/// So many bytes are read before it pays to build the one that reads fastest.
const PAYS: usize = 64 * 1024;

/// How an automaton is built: of this kind, or of the one that suits best.
type Build = fn(&mut AhoCorasickBuilder) -> AhoCorasick;

/// Two automata for the same words, each built when it is first needed.
pub(super) struct Finder {
    quick: LazyLock<AhoCorasick, fn() -> AhoCorasick>,
    best: LazyLock<AhoCorasick, fn() -> AhoCorasick>,
    read: AtomicUsize,
}

/// Builds the one that is ready soonest.
pub(super) fn quick(build: Build) -> AhoCorasick {
    build(AhoCorasick::builder().kind(Some(AhoCorasickKind::NoncontiguousNFA)))
}

/// Builds the one that reads fastest.
pub(super) fn best(build: Build) -> AhoCorasick {
    build(&mut AhoCorasick::builder())
}

impl Finder {
    pub(super) const fn new(quick: fn() -> AhoCorasick, best: fn() -> AhoCorasick) -> Self {
        Self { quick: LazyLock::new(quick), best: LazyLock::new(best), read: AtomicUsize::new(0) }
    }

    /// The one for a text of so many bytes.
    pub(super) fn reading(&self, bytes: usize) -> &AhoCorasick {
        // A lost addition costs a few bytes read slowly.
        if self.read.load(Ordering::Relaxed).saturating_add(bytes) > PAYS {
            return &self.best;
        }
        self.read.fetch_add(bytes, Ordering::Relaxed);
        &self.quick
    }
}
