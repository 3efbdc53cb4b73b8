//! Tool definitions held to the lock's, or to what the run first saw. Pure.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use ringfence_bundle::{Digest, ServerId, ToolName, ToolPins, tool_digest};
use ringfence_mcp::strict::fold;
use ringfence_policy::Layer;
use serde_json::Value;

/// More than any server has; what comes after is left out and said so.
pub(crate) const MOST: usize = 10_000;

/// Names that are spelled out where many are alike: the text stands once for each of them.
const NAMED: usize = 3;

/// Characters of a name that are shown.
const SHOWN: usize = 80;

/// Why a tool of a list is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Dropped {
    /// Escaped.
    pub(crate) name: String,
    /// As the server spells it, at most 80 characters.
    pub(crate) given: String,
    /// `name` or `pin`, as in a decision.
    pub(crate) check: &'static str,
    /// In words, the name among them.
    pub(crate) rule: String,
}

impl Dropped {
    /// For what a name is.
    fn named(name: &str, why: &str) -> Self {
        let (given, name) = (name.chars().take(SHOWN).collect(), shown(name));
        Self { check: "name", rule: format!("{name}: {why}"), name, given }
    }

    /// For what a pin says.
    pub(crate) fn pinned(name: &str, rule: String) -> Self {
        let (given, name) = (name.chars().take(SHOWN).collect(), shown(name));
        Self { check: "pin", rule, name, given }
    }

    /// The rule without the name.
    pub(crate) fn why(&self) -> &str {
        self.rule.strip_prefix(&format!("{}: ", self.name)).unwrap_or(&self.rule)
    }
}

/// As much as is kept of a tool of a list: pages may be large, and there may be many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its name, or why it has none that can be used.
    name: Result<(String, Digest), Dropped>,
}

impl Listed {
    /// Its name, when that can be used.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_ref().ok().map(|(name, _)| name.as_str())
    }

    pub(crate) fn of(tool: &Value) -> Self {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        match bad_name(name) {
            Some(why) => Self { name: Err(Dropped::named(name, why)) },
            None => Self { name: Ok((name.to_owned(), tool_digest(tool))) },
        }
    }
}

/// The definitions that a server is held to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frozen {
    /// By the lock, or by the run's first whole list.
    first: BTreeMap<String, Digest>,
    pinned: bool,
    /// Whether there was a whole list in this run.
    seen: bool,
    /// The names that the last whole list bore out; others are refused.
    now: BTreeMap<String, Digest>,
}

/// What the pin says of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    /// As it is pinned, or as in the first list.
    Same,
    /// Defined otherwise now.
    Changed,
    /// Was in the first list and no longer is.
    Gone,
    /// Was not in the first list, or was not fit to be.
    Unknown,
}

/// A pin's verdict on a tool, with the rule that a person reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) pin: Pin,
    pub(crate) layer: Layer,
    pub(crate) rule: String,
}

impl Frozen {
    /// Held to what a person reviewed.
    pub(crate) fn by(pins: &ToolPins) -> Self {
        let row = |pin: &ringfence_bundle::ToolPin| (pin.name.to_string(), pin.digest);
        let first = pins.tools.iter().map(row).collect();
        Self { first, pinned: true, seen: false, now: BTreeMap::new() }
    }

    /// Takes a whole list: without pins the first is kept; all others are compared with it.
    pub(crate) fn take(frozen: Option<Self>, tools: &[Listed]) -> (Self, Vec<Dropped>) {
        let (now, dropped) = fit(tools);
        let (first, pinned) =
            frozen.map_or_else(|| (now.clone(), false), |frozen| (frozen.first, frozen.pinned));
        (Self { first, pinned, seen: true, now }, dropped)
    }

    fn pin(&self, tool: &str, now: Option<&Digest>) -> Pin {
        match (self.first.get(tool), now) {
            (None, _) => Pin::Unknown,
            (Some(_), None) => Pin::Gone,
            (Some(first), Some(now)) if first == now => Pin::Same,
            (Some(_), Some(_)) => Pin::Changed,
        }
    }

    /// What was seen last of a tool.
    pub(crate) fn now(&self, tool: &str) -> Option<Digest> {
        self.now.get(tool).copied()
    }

    /// Whether a list may show a tool: as it is pinned, as far as anybody has looked.
    pub(crate) fn offers(&self, server: &ServerId, tool: &str) -> bool {
        let unseen = self.pinned && !self.seen && bad_name(tool).is_none();
        unseen || self.verdict(server, tool).pin == Pin::Same
    }

    /// What the last list says of a tool.
    pub(crate) fn verdict(&self, server: &ServerId, tool: &str) -> Verdict {
        self.judge(server, tool, self.now.get(tool))
    }

    /// What this very definition is worth. Calls follow what was seen last of the process that they
    /// go to: `current` says whether this was.
    pub(crate) fn see(
        &mut self,
        server: &ServerId,
        tool: &str,
        definition: &Value,
        current: bool,
    ) -> Verdict {
        let digest = tool_digest(definition);
        let known = self.now.get_mut(tool);
        // A page shows no second tool whose name can be taken for this one: the whole list did.
        let unfit = known.is_none() && self.first.contains_key(tool);
        if let (true, Some(now)) = (current, known) {
            *now = digest;
        }
        self.judge(server, tool, (!unfit).then_some(&digest))
    }

    fn judge(&self, server: &ServerId, tool: &str, now: Option<&Digest>) -> Verdict {
        let pin = self.pin(tool, now);
        let (first, name) = (self.first.get(tool), shown(tool));
        let digest = |of: Option<&Digest>| of.map(Digest::to_string).unwrap_or_default();
        let rule = match (self.pinned, pin) {
            (true, Pin::Same) => format!("lock: tool {server}/{name}"),
            (true, Pin::Changed) => format!(
                "lock: tool {server}/{name} is pinned as {}, and the server defines it as {}",
                digest(first),
                digest(now)
            ),
            (true, Pin::Gone) => format!(
                "lock: tool {server}/{name} is pinned, and the server no longer lists it, or \
                 lists another whose name can be taken for it"
            ),
            (true, Pin::Unknown) if now.is_some() => format!(
                "lock: tool {server}/{name} is not pinned, and the server defines it as {}",
                digest(now)
            ),
            (true, Pin::Unknown) => format!("lock: tool {server}/{name} is not pinned"),
            (false, Pin::Same) => "unpinned; defined as in the run's first tools/list".into(),
            (false, Pin::Changed) => format!(
                "{name}: its definition is not that of the run's first tools/list: it was {} and \
                 is {}",
                digest(first),
                digest(now)
            ),
            (false, Pin::Gone) => format!("{name}: the server no longer lists it"),
            (false, Pin::Unknown) => {
                format!("{name}: it was not in the run's first tools/list, or not fit to be")
            }
        };
        let layer = if self.pinned { Layer::Bundle } else { Layer::Builtin };
        Verdict { pin, layer, rule }
    }

    /// What the last list has that is not as it was, of the tools that `declared` lets through.
    pub(crate) fn moved(&self, server: &ServerId, declared: Option<&[ToolName]>) -> Vec<Dropped> {
        let names = self.now.keys().chain(self.first.keys().filter(|n| !self.now.contains_key(*n)));
        names
            .filter(|name| lists(declared, name))
            .map(|name| (name, self.verdict(server, name)))
            .filter(|(_, verdict)| verdict.pin != Pin::Same)
            .map(|(name, verdict)| Dropped::pinned(name, verdict.rule))
            .collect()
    }
}

/// Whether a server's declaration lets a tool through.
pub(crate) fn lists(declared: Option<&[ToolName]>, name: &str) -> bool {
    declared.is_none_or(|tools| tools.iter().any(|tool| tool.as_str() == name))
}

/// The tools with a fit name that no other tool's name can be taken for, with their digests.
pub(crate) fn fit(tools: &[Listed]) -> (BTreeMap<String, Digest>, Vec<Dropped>) {
    let mut dropped = Vec::new();
    let mut by_fold: HashMap<String, Vec<(&str, Digest)>> = HashMap::new();
    let mut order = Vec::new();
    for tool in tools.iter().take(MOST) {
        match &tool.name {
            Err(flaw) => dropped.push(flaw.clone()),
            Ok((name, digest)) => {
                let same = by_fold.entry(alike(name)).or_default();
                if same.is_empty() {
                    order.push(alike(name));
                }
                same.push((name, *digest));
            }
        }
    }
    if tools.len() > MOST {
        let why = format!("the list is longer than {MOST} tools");
        dropped.push(Dropped::named(&format!("{} more", tools.len() - MOST), &why));
    }
    let mut fit = BTreeMap::new();
    for key in order {
        match by_fold.remove(&key).unwrap_or_default()[..] {
            [(name, digest)] => {
                fit.insert(name.to_owned(), digest);
            }
            ref several => {
                let some: Vec<_> = several.iter().take(NAMED).map(|(name, _)| *name).collect();
                let mut why = format!("its name can be taken for another's: {}", some.join(", "));
                if several.len() > NAMED {
                    let _ = write!(why, " and {} more", several.len() - NAMED);
                }
                dropped.extend(several.iter().map(|(name, _)| Dropped::named(name, &why)));
            }
        }
    }
    (fit, dropped)
}

/// Why a name cannot be a tool's.
pub(crate) fn bad_name(name: &str) -> Option<&'static str> {
    if name.contains("__") {
        return Some("its name holds `__`, which parts server and tool");
    }
    ToolName::parse(name).err().map(|error| error.reason)
}

/// What a name looks like to somebody who does not look closely.
fn alike(name: &str) -> String {
    fold(name).replace(['-', '.', '/'], "_")
}

/// Escaped for people, at most 80 characters.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests;
