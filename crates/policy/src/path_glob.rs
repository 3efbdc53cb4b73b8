//! Globs over paths: `*` and `?` stay within a component, `**` crosses `/`.
//!
//! Matching walks the text once and keeps the set of pattern positions that are still possible, so
//! it costs at most (length of path) × (length of pattern) steps whatever the two hold.

use crate::glob::MAX_PATTERN;
use crate::language::Language;

/// One step of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Char(char),
    /// `?`: one character other than `/`.
    One,
    /// `*`: any run without `/`.
    Run,
    /// `**`: any run.
    Deep,
    /// `**/` where a component begins: no folder at all, or …
    Open,
    /// … any number of whole ones.
    Folders,
}

/// A compiled path glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathGlob {
    tokens: Vec<Token>,
}

const WORDS: usize = (MAX_PATTERN + 2).div_ceil(64);

/// Positions in a pattern that are possible at some point of the text.
#[derive(Clone, Copy)]
struct States([u64; WORDS]);

impl States {
    /// Adds one and says whether it is new.
    fn insert(&mut self, state: usize) -> bool {
        let bit = 1 << (state % 64);
        let word = &mut self.0[state / 64];
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn contains(&self, state: usize) -> bool {
        self.0[state / 64] & (1 << (state % 64)) != 0
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(n, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    n * 64 + bit
                })
            })
        })
    }
}

impl PathGlob {
    /// Compiles a pattern, which [`crate::pattern`] has already bounded to [`MAX_PATTERN`] bytes.
    pub(crate) fn new(pattern: &str) -> Self {
        let mut tokens = Vec::with_capacity(pattern.len());
        let mut chars = pattern.chars().take(MAX_PATTERN).peekable();
        while let Some(c) = chars.next() {
            match c {
                '?' => tokens.push(Token::One),
                '*' => {
                    let mut stars = 1;
                    while chars.next_if_eq(&'*').is_some() {
                        stars += 1;
                    }
                    let begins =
                        matches!(tokens.last(), None | Some(Token::Char('/') | Token::Folders));
                    if stars == 1 {
                        tokens.push(Token::Run);
                    } else if begins && chars.next_if_eq(&'/').is_some() {
                        tokens.extend([Token::Open, Token::Folders]);
                    } else {
                        tokens.push(Token::Deep);
                    }
                }
                c => tokens.push(Token::Char(c)),
            }
        }
        Self { tokens }
    }

    /// Whether all of `path` is matched.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let mut now = States([0; WORDS]);
        self.reach(&mut now, 0);
        for c in path.chars() {
            let mut next = States([0; WORDS]);
            for state in now.iter() {
                match self.tokens.get(state) {
                    Some(Token::Char(x)) if *x == c => self.reach(&mut next, state + 1),
                    Some(Token::One) if c != '/' => self.reach(&mut next, state + 1),
                    Some(Token::Run) if c != '/' => self.reach(&mut next, state),
                    Some(Token::Deep) => self.reach(&mut next, state),
                    Some(Token::Folders) => {
                        next.insert(state);
                        if c == '/' {
                            self.reach(&mut next, state + 1);
                        }
                    }
                    _ => {}
                }
            }
            if next.is_empty() {
                return false;
            }
            now = next;
        }
        now.contains(self.tokens.len())
    }

    /// The paths that are matched, for comparing.
    pub(crate) fn language(&self) -> Language {
        let mut language = Language::empty_path();
        for token in &self.tokens {
            match token {
                Token::Char(c) => language.character(*c),
                Token::One => language.one(),
                Token::Run => language.run(),
                Token::Deep => language.deep(),
                // One step, said at its first half.
                Token::Open => language.folders(),
                Token::Folders => {}
            }
        }
        language
    }

    /// Adds a position and those that are reached from it without a character.
    fn reach(&self, states: &mut States, mut state: usize) {
        while states.insert(state) {
            match self.tokens.get(state) {
                Some(Token::Run | Token::Deep) => state += 1,
                Some(Token::Open) => {
                    states.insert(state + 1);
                    state += 2;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::naive;
