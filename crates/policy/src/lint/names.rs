//! The lists over names: tools, hosts, secrets.

use std::collections::BTreeMap;

use ringfence_bundle::{Egress, HostRule, Id, Manifest, Pattern, Severity, Transport};

use super::{MOST, Report, Side, Spot};
use crate::decision::{AGENT, EVERYONE};
use crate::language::{Alphabet, Language, Within};
use crate::pattern::{Kind, NamePattern, Ports};
use crate::{MachinePolicy, glob};

/// Most patterns that one is held against together.
const TOGETHER: usize = 32;

/// A pattern that can be compared.
struct Entry {
    spot: Spot,
    pattern: NamePattern,
    language: Language,
    /// A text that every pattern which holds all of this one matches: its wildcards stand for a
    /// character that no pattern names.
    general: String,
}

/// One list of a layer.
struct List<'a> {
    side: &'a Side<'a>,
    key: String,
    entries: Vec<Entry>,
}

/// A table by name.
#[derive(Clone, Copy)]
struct Table {
    name: &'static str,
    kind: Kind,
    lists: fn(&Side<'_>) -> BTreeMap<String, Vec<Pattern>>,
}

const TABLES: [Table; 3] = [
    Table { name: "tools", kind: Kind::Tool, lists: |side| side.tables.tools.clone() },
    Table { name: "egress", kind: Kind::Egress, lists: |side| side.tables.egress.clone() },
    Table { name: "secrets", kind: Kind::Secret, lists: |side| side.tables.secrets.clone() },
];

/// Characters of the names of a kind.
pub(super) fn alphabet(kind: Kind) -> Alphabet<'static> {
    Alphabet::Only(match kind {
        Kind::Tool => "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./",
        Kind::Secret => "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
        Kind::Egress => "abcdefghijklmnopqrstuvwxyz0123456789-_.[:]",
    })
}

/// The longest name of a kind.
const fn longest(kind: Kind) -> usize {
    match kind {
        Kind::Tool | Kind::Secret => 128,
        Kind::Egress => 253,
    }
}

pub(super) fn check(
    sides: &[Side<'_>; 2],
    machine: &MachinePolicy,
    manifest: Option<&Manifest>,
    report: &mut Report,
) {
    for table in TABLES {
        let read = |side| lists(side, table);
        let layers = [read(&sides[0]), read(&sides[1])];
        for lists in &layers {
            for list in lists {
                alone(list, table, report);
                let everyone = lists.iter().find(|l| l.key == EVERYONE && list.key != EVERYONE);
                under(list, everyone, table, report);
            }
        }
        for list in &layers[1] {
            for above in layers[0].iter().filter(|l| l.key == EVERYONE || l.key == list.key) {
                under(list, Some(above), table, report);
            }
        }
        if let Some(manifest) = manifest {
            layers[0].iter().for_each(|list| known(list, table, manifest, report));
            layers[1].iter().for_each(|list| declared(list, table, manifest, report));
        }
        layers.iter().flatten().for_each(|list| list.advise(report));
    }
    // The ceiling is a list like the others.
    if let Some(texts) = &machine.ceilings.credentials {
        let line = |n: usize| {
            sides[0].places.find(&format!("policy.credentials[{n}]")).map_or(0, |place| place.line)
        };
        let entries = texts.iter().enumerate().filter_map(|(n, text)| {
            let spot = sides[0].spot(format!("policy.credentials[{n}]"), text, line(n));
            Entry::new(Kind::Secret, spot)
        });
        let list =
            List { side: &sides[0], key: "credentials".to_owned(), entries: entries.collect() };
        alone(&list, TABLES[2], report);
        list.advise(report);
    }
}

impl List<'_> {
    fn advise(&self, report: &mut Report) {
        let sign = |entry: &'_ Entry| entry.pattern.negative;
        let signs = self.entries.iter().map(|entry| (entry.spot.keys.as_str(), sign(entry)));
        report.advise(self.side.layer, signs);
    }
}

fn lists<'a>(side: &'a Side<'a>, table: Table) -> Vec<List<'a>> {
    (table.lists)(side)
        .into_iter()
        .map(|(key, patterns)| {
            let entries = patterns.iter().enumerate().filter_map(|(n, pattern)| {
                let keys = format!("policy.{}.{key}[{n}]", table.name);
                Entry::new(table.kind, side.spot(keys, &pattern.text, pattern.line))
            });
            List { side, entries: entries.collect(), key }
        })
        .collect()
}

impl Entry {
    /// `None` for what is no pattern: that is found elsewhere.
    fn new(kind: Kind, spot: Spot) -> Option<Self> {
        let pattern = NamePattern::parse(kind, &spot.text).ok()?;
        let language = Language::of_name(&pattern.glob);
        let general = pattern.glob.replace(['*', '?'], "\u{1}");
        Some(Self { spot, pattern, language, general })
    }

    /// Whether this one holds all that the other matches.
    fn holds(&self, other: &Self, kind: Kind) -> bool {
        ports_within(other.pattern.ports, self.pattern.ports)
            && glob::matches(&self.pattern.glob, &other.general)
            && other.language.within(&[&self.language], alphabet(kind)) == Within::Yes
    }

    fn meets(&self, other: &Self, kind: Kind) -> bool {
        ports_meet(self.pattern.ports, other.pattern.ports)
            && ends_agree(&self.pattern.glob, &other.pattern.glob)
            && self.language.meets(&other.language, alphabet(kind))
    }
}

/// Whether what stands before the first and after the last wildcard of both can be had together;
/// most pairs are told apart by it.
fn ends_agree(one: &str, other: &str) -> bool {
    let wild = |c: char| matches!(c, '*' | '?');
    let fits = |a: &[u8], b: &[u8]| a.iter().zip(b).all(|(a, b)| a == b);
    let begin = |text: &str| text.find(wild).unwrap_or(text.len());
    let end = |text: &str| text.rfind(wild).map_or(0, |at| at + 1);
    let reversed = |text: &str| text.bytes().rev().collect::<Vec<_>>();
    fits(&one.as_bytes()[..begin(one)], &other.as_bytes()[..begin(other)])
        && fits(&reversed(&one[end(one)..]), &reversed(&other[end(other)..]))
}

fn ports_within(inner: Ports, outer: Ports) -> bool {
    match (inner, outer) {
        (_, Ports::Any) | (Ports::Web, Ports::Web) => true,
        (Ports::One(port), outer) => outer.cover(port),
        _ => false,
    }
}

fn ports_meet(one: Ports, other: Ports) -> bool {
    match (one, other) {
        (Ports::Any, _) | (_, Ports::Any) | (Ports::Web, Ports::Web) => true,
        (Ports::One(port), other) | (other, Ports::One(port)) => other.cover(port),
    }
}

/// Those of some patterns that hold all of this one: one of them, or several together.
fn held<'e>(entry: &Entry, by: &[&'e Entry], kind: Kind) -> Option<Vec<&'e Entry>> {
    if let Some(one) = by.iter().find(|other| other.holds(entry, kind)) {
        return Some(vec![*one]);
    }
    // Many that might have a part in it are too many to be walked side by side.
    let near: Vec<&Entry> = by
        .iter()
        .copied()
        .filter(|other| ports_within(entry.pattern.ports, other.pattern.ports))
        .filter(|other| ends_agree(&entry.pattern.glob, &other.pattern.glob))
        .take(TOGETHER + 1)
        .collect();
    if near.len() > TOGETHER {
        return None;
    }
    let some: Vec<&Entry> = near.into_iter().filter(|other| other.meets(entry, kind)).collect();
    if some.len() < 2 {
        return None;
    }
    let languages: Vec<&Language> = some.iter().map(|other| &other.language).collect();
    (entry.language.within(&languages, alphabet(kind)) == Within::Yes).then_some(some)
}

fn shown(entries: &[&Entry]) -> String {
    let all: Vec<String> = entries.iter().take(3).map(|entry| entry.spot.shown()).collect();
    let more = if entries.len() > 3 { " and more" } else { "" };
    format!("{}{more}", all.join(", "))
}

fn title(list: &List<'_>, table: Table) -> String {
    match list.key.as_str() {
        EVERYONE => format!("[policy.{}] \"*\"", table.name),
        key => format!("[policy.{}] {key}", table.name),
    }
}

/// What a list says against itself.
fn alone(list: &List<'_>, table: Table, report: &mut Report) {
    let (kind, name) = (table.kind, title(list, table));
    if list.entries.len() > MOST {
        if let Some(first) = list.entries.first() {
            let message = format!("{name} holds more than {MOST} patterns: they are not compared");
            let help = "use wildcards, or split what belongs to one server each";
            report.say(Severity::Warning, "long-list", (list.side, &first.spot), message, help);
        }
        return;
    }
    for (n, entry) in list.entries.iter().enumerate() {
        let spot = (list.side, &entry.spot);
        let text = &entry.spot.text;
        let letters = entry.pattern.glob.chars().filter(|c| *c != '*').count();
        let digit =
            kind == Kind::Secret && entry.pattern.glob.starts_with(|c: char| c.is_ascii_digit());
        if digit || letters > longest(kind) || entry.language.is_empty(alphabet(kind)) {
            let what = match kind {
                Kind::Tool => "tool has a name like that (1 to 128 of A-Z a-z 0-9 _ - . /)",
                Kind::Secret => "variable has a name like that (A-Z a-z 0-9 _, no digit in front)",
                Kind::Egress => "host has a name like that",
            };
            let message = format!("{text:?} never matches: no {what}");
            report.say(
                Severity::Error,
                "never-matches",
                spot,
                message,
                "correct it, or take it out",
            );
            continue;
        }
        let others = || {
            list.entries
                .iter()
                .enumerate()
                .filter(move |(at, o)| *at != n && o.pattern.negative == entry.pattern.negative)
        };
        let twin = others().find(|(at, other)| {
            *at < n
                && other.pattern.glob == entry.pattern.glob
                && other.pattern.ports == entry.pattern.ports
        });
        if let Some((_, twin)) = twin {
            let message = format!("{text:?} stands twice in {name}: {}", twin.spot.shown());
            report.say(Severity::Warning, "duplicate-pattern", spot, message, "take one out");
            continue;
        }
        // Of two that match the same, the later one is superfluous.
        let wider = others()
            .find(|(at, other)| other.holds(entry, kind) && (*at < n || !entry.holds(other, kind)));
        if let Some((_, wider)) = wider {
            let message =
                format!("{text:?} decides nothing: {} matches all it does", wider.spot.shown());
            let help = "take it out, or narrow the wider one";
            report.say(Severity::Warning, "shadowed-pattern", spot, message, help);
        }
        if !entry.pattern.negative {
            let denials: Vec<&Entry> = list.entries.iter().filter(|e| e.pattern.negative).collect();
            if let Some(by) = held(entry, &denials, kind) {
                let message =
                    format!("{text:?} never allows anything: {} refuses all of it", shown(&by));
                let help =
                    "a denial beats it wherever it stands: narrow the denial, or take this out";
                report.say(Severity::Error, "never-allows", spot, message, help);
            }
        }
    }
}

/// What another list, which binds the same server, makes of this one.
fn under(list: &List<'_>, above: Option<&List<'_>>, table: Table, report: &mut Report) {
    let Some(above) = above else { return };
    if list.entries.len() > MOST || above.entries.len() > MOST {
        return;
    }
    let kind = table.kind;
    let denials: Vec<&Entry> = above.entries.iter().filter(|e| e.pattern.negative).collect();
    let positives: Vec<&Entry> = above.entries.iter().filter(|e| !e.pattern.negative).collect();
    let same_layer = list.side.layer == above.side.layer;
    let other = format!("{} of {}", title(above, table), above.side.file);
    for entry in &list.entries {
        let spot = (list.side, &entry.spot);
        let text = &entry.spot.text;
        if entry.pattern.negative {
            if let Some(by) = held(entry, &denials, kind) {
                let message = format!("{text:?} decides nothing: {} refuses it too", shown(&by));
                let (rule, help) = if same_layer {
                    ("shadowed-pattern", "take it out")
                } else {
                    ("moot-rule", "keep it if the bundle is used on other machines too")
                };
                report.say(Severity::Warning, rule, spot, message, help);
            }
            continue;
        }
        let reason = match held(entry, &denials, kind) {
            Some(by) => format!("{} refuses all of it", shown(&by)),
            None if positives.is_empty() && !denials.is_empty() => continue,
            None if positives.iter().any(|p| p.meets(entry, kind)) => continue,
            None => format!("{other} lists nothing that it matches"),
        };
        let message = format!("{text:?} never allows anything: {reason}");
        if same_layer {
            let help =
                "\"*\" binds every server besides its own key: widen \"*\", or take this out";
            report.say(Severity::Error, "never-allows", spot, message, help);
        } else {
            let help = "the machine's rules come first: ask its owner, or take this out";
            report.say(Severity::Warning, "moot-rule", spot, message, help);
        }
    }
}

/// Whether a key of the machine names anything. Its rules are for all bundles, so only what looks
/// like a slip is said; in a bundle the manifest's own parse refuses a key without a server.
fn known(list: &List<'_>, table: Table, manifest: &Manifest, report: &mut Report) {
    let key = list.key.as_str();
    let declared = Id::parse(key).is_ok_and(|id| manifest.servers.contains_key(&id));
    if declared || key == EVERYONE || key == AGENT {
        return;
    }
    let near = manifest
        .servers
        .keys()
        .map(|id| (strsim::damerau_levenshtein(key, id.as_str()), id))
        .filter(|(distance, id)| *distance <= (id.as_str().len() / 3).max(1))
        .min()
        .map(|(_, id)| id);
    let keys = format!("policy.{}.{key}", table.name);
    let line = list.side.places.find(&keys).map_or(0, |place| place.line);
    let spot = list.side.spot(keys, key, line);
    let Some(near) = near else { return };
    let message =
        format!("{} binds nothing here: [servers.{near}] is declared", title(list, table));
    let help = format!("did you mean `{near}`? `\"*\"` binds every server, whatever its name");
    report.say(Severity::Warning, "unknown-server", (list.side, &spot), message, &help);
}

/// Patterns that match none of what the manifest lets through anyway.
fn declared(list: &List<'_>, table: Table, manifest: &Manifest, report: &mut Report) {
    let names = |names: Vec<&str>| -> Vec<NamePattern> {
        let plain =
            |name: &str| NamePattern { negative: false, glob: name.into(), ports: Ports::Any };
        names.into_iter().map(plain).collect()
    };
    let server = Id::parse(&list.key).ok().and_then(|id| manifest.servers.get(&id));
    let network = &manifest.sandbox.network;
    let (there, what) = match (table.kind, list.key.as_str(), server) {
        (Kind::Tool, key, Some(server)) => match &server.tools {
            Some(tools) => (
                names(tools.iter().map(|t| t.as_str()).collect()),
                format!("[servers.{key}] tools"),
            ),
            None => return,
        },
        (Kind::Secret, AGENT, _) => {
            let all = manifest.sandbox.credentials.iter().map(|name| name.as_str()).collect();
            (names(all), "[sandbox] credentials".to_owned())
        }
        (Kind::Egress, AGENT, _) if network.egress == Egress::Restricted => {
            (hosts(&network.allowed_hosts), "[sandbox.network] allowed_hosts".to_owned())
        }
        (Kind::Egress, key, Some(server)) => match &server.transport {
            Transport::Stdio { allowed_hosts, .. } => {
                (hosts(allowed_hosts), format!("[servers.{key}] allowed_hosts"))
            }
            Transport::Http { .. } => return,
        },
        _ => return,
    };
    for entry in list.entries.iter().filter(|entry| !entry.pattern.negative) {
        let meets = there.iter().any(|name| {
            ports_meet(entry.pattern.ports, name.ports)
                && Language::of_name(&name.glob).meets(&entry.language, alphabet(table.kind))
        });
        if !meets {
            let text = &entry.spot.text;
            let message = format!("{text:?} allows nothing: {what} lists nothing that it matches");
            let help = "what is allowed must be declared too: declare it, or take this out";
            let spot = (list.side, &entry.spot);
            report.say(Severity::Warning, "not-declared", spot, message, help);
        }
    }
}

fn hosts(rules: &[HostRule]) -> Vec<NamePattern> {
    rules.iter().map(crate::index::host_pattern).collect()
}
