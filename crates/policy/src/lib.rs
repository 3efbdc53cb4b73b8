//! Is it permitted, and by which rule of which layer? Globs, intersection, ruleset.
//!
//! A pattern is a glob: `*` is any run of characters, `?` one character, a leading `!` denies,
//! everything else is itself. In `[policy.filesystem]` `*` stays within a path component and `**`
//! crosses `/`. A list allows a name when some positive pattern matches it and no negative one
//! does; a list of negatives alone allows what none of them matches, so `["!*"]` allows nothing; an
//! empty list allows nothing. The key `"*"` binds everyone, named or not, besides the own key.
//!
//! Two layers hold such lists, `machine.toml` and the bundle; both must allow, and then what is
//! declared of the thing itself. A key that is absent adds no bound, but for egress and `write`,
//! where nothing is granted that is not declared.
#![forbid(unsafe_code)]

mod approvals;
mod ceilings;
mod chain;
mod decide;
mod decimal;
mod decision;
mod error;
mod explain;
mod file;
mod filesystem;
mod glob;
mod grams;
mod index;
mod language;
mod lint;
mod list;
mod machine;
mod path_glob;
mod pattern;
mod preset;
mod replace;
mod ruleset;
mod scopes;
mod spelled;
mod wire;

pub use ceilings::{Caps, Ceilings};
pub use decision::{Decision, Layer, Principal};
pub use error::Error;
pub use explain::{Answer, Explain, Question, Rule, Step};
pub use lint::lint;
pub use machine::MachinePolicy;
pub use preset::{Preset, presets};
pub use replace::Replacement;
pub use ruleset::Ruleset;
pub use scopes::FsScopes;
pub use spelled::{EgressList, EgressPattern, EgressPorts, EgressRules};

#[cfg(test)]
mod properties;
