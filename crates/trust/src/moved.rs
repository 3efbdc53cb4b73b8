//! A program that is not the one that was trusted.

use std::fmt;

use ringfence_bundle::{Program, Who};
use serde::Serialize;

use crate::review::shown;

/// Most characters of a path.
const MOST: usize = 400;

/// What a command ran when a person said yes, and what it runs now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Whose command it is.
    pub who: Who,
    /// As it was trusted, `None` where there was none.
    pub before: Option<Program>,
    /// As it is, `None` where there is none.
    pub now: Option<Program>,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = |program: &Option<Program>, none: &str| match program {
            Some(it) => format!("{} ({})", shown(&it.path.to_string_lossy(), MOST), it.digest),
            None => none.to_owned(),
        };
        let before = file(&self.before, "nothing");
        let now = file(&self.now, "nothing");
        write!(f, "{}: trusted {before}, now {now}", self.who)
    }
}

/// What differs, each program beside the one that stands in its place. Both lists sorted.
pub(crate) fn between(before: &[Program], now: &[Program]) -> Vec<Moved> {
    let gone = before.iter().filter(|program| !now.contains(program));
    let mut new: Vec<&Program> = now.iter().filter(|program| !before.contains(program)).collect();
    let mut moved = Vec::new();
    for gone in gone {
        let same_path = new.iter().position(|new| new.who == gone.who && new.path == gone.path);
        let same_who = || new.iter().position(|new| new.who == gone.who);
        let at = same_path.or_else(same_who);
        let now = at.map(|at| new.remove(at).clone());
        moved.push(Moved { who: gone.who.clone(), before: Some(gone.clone()), now });
    }
    let added =
        |new: &Program| Moved { who: new.who.clone(), before: None, now: Some(new.clone()) };
    moved.extend(new.into_iter().map(added));
    moved
}
