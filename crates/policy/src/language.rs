//! What a pattern matches, as a set of texts: is one set within others, do two meet? Exact.
//!
//! A glob is a small automaton. Whether one lies within others is decided by walking it side by side
//! with the set of places that the others can be in; a text that leads out is given as a witness.
//! The walk is bounded: past [`MOST`] places it says that it does not know.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// Most pairs of places that one comparison visits.
const MOST: usize = 50_000;

/// What a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Char(char),
    /// Any character but `/`.
    Part,
    Any,
}

impl Takes {
    fn takes(self, c: char) -> bool {
        match self {
            Self::Char(x) => x == c,
            Self::Part => c != '/',
            Self::Any => true,
        }
    }
}

/// The texts that a pattern matches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Language {
    places: Vec<Place>,
    start: usize,
}

#[derive(Debug, Clone, Default)]
struct Place {
    steps: Vec<(Takes, usize)>,
    /// Reached without a character.
    skips: Vec<usize>,
    end: bool,
}

/// How one language lies in others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Within {
    /// Wholly.
    Yes,
    /// Not: this text is in it and in none of them.
    No(String),
    /// More places than are visited.
    Unknown,
}

/// The characters of which texts are made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Alphabet<'a> {
    /// These.
    Only(&'a str),
    /// All.
    Every,
}

impl Language {
    /// A glob over names: `*` is any run of characters, `?` one.
    pub(crate) fn of_name(glob: &str) -> Self {
        let mut language = Self { places: vec![Place::default()], start: 0 };
        for c in glob.chars() {
            match c {
                '*' => language.repeat(Takes::Any),
                '?' => language.then(Takes::Any),
                c => language.then(Takes::Char(c)),
            }
        }
        language.last().end = true;
        language
    }

    /// Nothing yet; build it with the methods below.
    pub(crate) fn empty_path() -> Self {
        Self { places: vec![Place::default()], start: 0 }
    }

    /// One more character.
    pub(crate) fn character(&mut self, c: char) {
        self.then(Takes::Char(c));
    }

    /// One more character that is not `/`.
    pub(crate) fn one(&mut self) {
        self.then(Takes::Part);
    }

    /// Any run without `/`.
    pub(crate) fn run(&mut self) {
        self.repeat(Takes::Part);
    }

    /// Any run.
    pub(crate) fn deep(&mut self) {
        self.repeat(Takes::Any);
    }

    /// No folder, or any run that ends in `/`.
    pub(crate) fn folders(&mut self) {
        let from = self.places.len() - 1;
        let inside = self.add();
        self.places[from].skips.push(inside);
        self.places[inside].steps.push((Takes::Any, inside));
        let after = self.add();
        self.places[inside].steps.push((Takes::Char('/'), after));
        self.places[from].skips.push(after);
    }

    /// Goes on as another begins.
    pub(crate) fn then_path(&mut self, other: &Self) {
        let from = self.places.len() - 1;
        let base = self.places.len();
        self.places[from].skips.push(base + other.start);
        for place in &other.places {
            self.places.push(Place {
                steps: place.steps.iter().map(|(takes, to)| (*takes, base + to)).collect(),
                skips: place.skips.iter().map(|to| base + to).collect(),
                end: place.end,
            });
        }
    }

    /// Ends here, or goes on below a `/`: what is in a folder is meant with it.
    pub(crate) fn and_below(&mut self) {
        self.last().end = true;
        self.then(Takes::Char('/'));
        self.repeat(Takes::Any);
        self.last().end = true;
    }

    /// The last place, where the next step begins.
    fn last(&mut self) -> &mut Place {
        let last = self.places.len() - 1;
        &mut self.places[last]
    }

    fn add(&mut self) -> usize {
        self.places.push(Place::default());
        self.places.len() - 1
    }

    fn then(&mut self, takes: Takes) {
        let from = self.places.len() - 1;
        let to = self.add();
        self.places[from].steps.push((takes, to));
    }

    fn repeat(&mut self, takes: Takes) {
        let from = self.places.len() - 1;
        let to = self.add();
        self.places[from].skips.push(to);
        self.places[to].steps.push((takes, to));
    }

    /// Whether every text of this one, but the empty one, is in one of the others.
    pub(crate) fn within(&self, others: &[&Self], alphabet: Alphabet<'_>) -> Within {
        let letters = letters(std::iter::once(self).chain(others.iter().copied()), alphabet);
        let first: States = others
            .iter()
            .enumerate()
            .flat_map(|(n, other)| other.closed([other.start]).into_iter().map(move |p| (n, p)))
            .collect();
        let first = canonical(first);
        // Each node knows the one before it and the letter between, to read a witness back.
        let mut nodes: Vec<(usize, char)> = Vec::new();
        let mut seen: HashSet<(usize, Vec<(usize, usize)>)> = HashSet::new();
        let mut queue = VecDeque::new();
        for place in self.closed([self.start]) {
            if seen.insert((place, first.clone())) {
                nodes.push((usize::MAX, ' '));
                queue.push_back((nodes.len() - 1, place, first.clone()));
            }
        }
        while let Some((node, place, states)) = queue.pop_front() {
            for letter in &letters {
                let to: BTreeSet<usize> = self.places[place]
                    .steps
                    .iter()
                    .filter(|(takes, _)| takes.takes(*letter))
                    .map(|(_, to)| *to)
                    .collect();
                if to.is_empty() {
                    continue;
                }
                let next = advance(others, &states, *letter);
                if next.iter().any(|(n, p)| others[*n].takes_all_from(*p)) {
                    continue;
                }
                let in_others = next.iter().any(|(n, p)| others[*n].places[*p].end);
                for place in self.closed(to) {
                    if self.places[place].end && !in_others {
                        return Within::No(read_back(&nodes, node, *letter));
                    }
                    if seen.len() >= MOST {
                        return Within::Unknown;
                    }
                    if seen.insert((place, next.clone())) {
                        nodes.push((node, *letter));
                        queue.push_back((nodes.len() - 1, place, next.clone()));
                    }
                }
            }
        }
        Within::Yes
    }

    /// Whether some text, not the empty one, is in both. Past the bound it says yes.
    pub(crate) fn meets(&self, other: &Self, alphabet: Alphabet<'_>) -> bool {
        let letters = letters([self, other].into_iter(), alphabet);
        let mut seen = HashSet::new();
        let mut queue = VecDeque::new();
        for a in self.closed([self.start]) {
            for b in other.closed([other.start]) {
                if seen.insert((a, b)) {
                    queue.push_back((a, b));
                }
            }
        }
        while let Some((a, b)) = queue.pop_front() {
            for letter in &letters {
                let to = |language: &Self, place: usize| {
                    let steps = language.places[place].steps.iter();
                    let to = steps.filter(|(takes, _)| takes.takes(*letter)).map(|(_, to)| *to);
                    language.closed(to)
                };
                let (a, b) = (to(self, a), to(other, b));
                for a in &a {
                    for b in &b {
                        if self.places[*a].end && other.places[*b].end {
                            return true;
                        }
                        if seen.len() >= MOST {
                            return true;
                        }
                        if seen.insert((*a, *b)) {
                            queue.push_back((*a, *b));
                        }
                    }
                }
            }
        }
        false
    }

    /// Whether no text of the alphabet, but the empty one, is in it.
    pub(crate) fn is_empty(&self, alphabet: Alphabet<'_>) -> bool {
        self.within(&[], alphabet) == Within::Yes
    }

    /// These places and those reached from them without a character.
    fn closed(&self, from: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
        let mut all = BTreeSet::new();
        let mut open: Vec<usize> = from.into_iter().collect();
        while let Some(place) = open.pop() {
            if all.insert(place) {
                open.extend(&self.places[place].skips);
            }
        }
        all
    }

    /// Whether everything that can still follow is taken.
    fn takes_all_from(&self, place: usize) -> bool {
        let place_is = &self.places[place];
        place_is.end && place_is.steps.contains(&(Takes::Any, place))
    }
}

type States = Vec<(usize, usize)>;

fn canonical(mut states: States) -> States {
    states.sort_unstable();
    states.dedup();
    states
}

fn advance(others: &[&Language], states: &States, letter: char) -> States {
    let mut reached: HashMap<usize, Vec<usize>> = HashMap::new();
    for (n, place) in states {
        let steps = others[*n].places[*place].steps.iter();
        let to = steps.filter(|(takes, _)| takes.takes(letter)).map(|(_, to)| *to);
        reached.entry(*n).or_default().extend(to);
    }
    canonical(
        reached
            .into_iter()
            .flat_map(|(n, to)| others[n].closed(to).into_iter().map(move |p| (n, p)))
            .collect(),
    )
}

/// The characters that some pattern tells apart, and one that stands for all the rest.
fn letters<'a>(languages: impl Iterator<Item = &'a Language>, alphabet: Alphabet<'_>) -> Vec<char> {
    let mut named = BTreeSet::from(['/']);
    for takes in languages.flat_map(|l| &l.places).flat_map(|p| &p.steps).map(|(takes, _)| takes) {
        if let Takes::Char(c) = takes {
            named.insert(*c);
        }
    }
    match alphabet {
        Alphabet::Only(all) => {
            let rest = all.chars().find(|c| !named.contains(c));
            all.chars().filter(|c| named.contains(c)).chain(rest).collect()
        }
        Alphabet::Every => {
            // More characters than any pattern has.
            let rest = ('a'..=char::MAX).find(|c| !named.contains(c));
            named.iter().copied().chain(rest).collect()
        }
    }
}

fn read_back(nodes: &[(usize, char)], mut node: usize, last: char) -> String {
    let mut text = vec![last];
    while let Some((before, letter)) = nodes.get(node).filter(|(before, _)| *before != usize::MAX) {
        text.push(*letter);
        node = *before;
    }
    text.iter().rev().collect()
}

#[cfg(test)]
mod tests;
