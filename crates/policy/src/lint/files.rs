//! `[policy.filesystem]`

use std::path::{Path, PathBuf};

use ringfence_bundle::{Pattern, Severity};

use super::{MOST, Report, Side, Spot};
use crate::filesystem::Deny;
use crate::language::{Alphabet, Language, Within};
use crate::pattern::{PathPattern, Root, parse_deny};
use crate::scopes::subtree;

/// A denial that can be compared.
struct Denial<'a> {
    side: &'a Side<'a>,
    spot: Spot,
    root: Root,
    language: Language,
}

/// A folder or file of `read` or `write`.
struct Scope {
    spot: Spot,
    negative: bool,
    root: Root,
    path: PathBuf,
}

pub(super) fn check(sides: &[Side<'_>; 2], user_home: &Path, report: &mut Report) {
    let denials: Vec<Denial<'_>> = sides.iter().flat_map(denials).collect();
    if denials.len() <= MOST {
        for (n, denial) in denials.iter().enumerate() {
            superfluous(n, denial, &denials, report);
        }
    }
    for key in ["read", "write"] {
        let layers = sides.each_ref().map(|side| scopes(side, key, user_home));
        for (side, list) in sides.iter().zip(&layers) {
            let Some(list) = list.as_ref().filter(|list| list.len() <= MOST) else { continue };
            for (n, scope) in list.iter().enumerate() {
                alone(side, key, n, scope, list, report);
                denied(side, scope, &denials, report);
            }
        }
        if let [Some(machine), Some(bundle)] = &layers
            && machine.len().max(bundle.len()) <= MOST
        {
            outside(&sides[1], key, bundle, machine, report);
        }
        for (side, list) in sides.iter().zip(&layers) {
            let list = list.iter().flatten();
            let signs = list.map(|scope| (scope.spot.keys.as_str(), scope.negative));
            report.advise(side.layer, signs);
        }
    }
}

fn denials<'a>(side: &'a Side<'a>) -> Vec<Denial<'a>> {
    let list = side.tables.filesystem.deny.iter().enumerate();
    list.filter_map(|(n, pattern)| {
        let parsed = parse_deny(&pattern.text).ok()?;
        let keys = format!("policy.filesystem.deny[{n}]");
        let spot = side.spot(keys, &pattern.text, pattern.line);
        Some(Denial { side, spot, root: parsed.root, language: Deny::new(&parsed).language() })
    })
    .collect()
}

fn scopes(side: &Side<'_>, key: &str, user_home: &Path) -> Option<Vec<Scope>> {
    let files = &side.tables.filesystem;
    let list: &[Pattern] =
        if key == "read" { files.read.as_deref()? } else { files.write.as_deref()? };
    let scope = |(n, pattern): (usize, &Pattern)| {
        let parsed = PathPattern::parse(&pattern.text).ok()?;
        let spot = side.spot(format!("policy.filesystem.{key}[{n}]"), &pattern.text, pattern.line);
        let path = subtree(&parsed.glob)?;
        // Both spellings of a folder of the home are that folder.
        let (root, path) = match (parsed.root, user_home.strip_prefix("/")) {
            (Root::Home, Ok(home)) => (Root::Absolute, home.join(path)),
            (root, _) => (root, path),
        };
        Some(Scope { spot, negative: parsed.negative, root, path })
    };
    Some(list.iter().enumerate().filter_map(scope).collect())
}

/// A denial that another one makes superfluous.
fn superfluous(n: usize, denial: &Denial<'_>, all: &[Denial<'_>], report: &mut Report) {
    let within = |inner: &Denial<'_>, outer: &Denial<'_>| {
        inner.root == outer.root
            && inner.language.within(&[&outer.language], Alphabet::Every) == Within::Yes
    };
    // The machine's stand before the bundle's, whose rules may be gone tomorrow.
    let wider = all.iter().enumerate().find(|(at, other)| {
        let above = other.side.layer == denial.side.layer || *at < n;
        *at != n && above && within(denial, other) && (*at < n || !within(other, denial))
    });
    let Some((_, wider)) = wider else { return };
    let text = &denial.spot.text;
    let message = format!("{text:?} decides nothing: {} denies it too", wider.spot.shown());
    let (rule, help) = if wider.side.layer != denial.side.layer {
        ("moot-rule", "keep it if the bundle is used on other machines too")
    } else if wider.spot.text == denial.spot.text {
        ("duplicate-pattern", "take one out")
    } else {
        ("shadowed-pattern", "take it out, or narrow the wider one")
    };
    report.say(Severity::Warning, rule, (denial.side, &denial.spot), message, help);
}

fn covers(outer: &Scope, inner: &Scope) -> bool {
    outer.root == inner.root && inner.path.starts_with(&outer.path)
}

/// What a list of folders says against itself.
fn alone(side: &Side<'_>, key: &str, n: usize, scope: &Scope, list: &[Scope], report: &mut Report) {
    let text = &scope.spot.text;
    let wider = list.iter().enumerate().find(|(at, other)| {
        *at != n
            && other.negative == scope.negative
            && covers(other, scope)
            && (*at < n || !covers(scope, other))
    });
    let spot = (side, &scope.spot);
    if let Some((_, wider)) = wider {
        let rule = if wider.path == scope.path { "duplicate-pattern" } else { "shadowed-pattern" };
        let message = format!("{text:?} decides nothing: {} holds it", wider.spot.shown());
        report.say(Severity::Warning, rule, spot, message, "take it out, or narrow the wider one");
        return;
    }
    let positives = || list.iter().filter(|other| !other.negative);
    if scope.negative {
        let overlaps = positives().any(|other| covers(other, scope) || covers(scope, other));
        if !overlaps && positives().next().is_some() {
            let message = format!("{text:?} takes nothing away: no pattern of `{key}` grants it");
            report.say(Severity::Warning, "shadowed-pattern", spot, message, "take it out");
        }
    } else if let Some(by) = list.iter().find(|other| other.negative && covers(other, scope)) {
        let message = format!("{text:?} never allows anything: {} takes it away", by.spot.shown());
        let help = "narrow the denial, or take this out";
        report.say(Severity::Error, "never-allows", spot, message, help);
    }
}

/// A grant of the project that is denied as a whole.
fn denied(side: &Side<'_>, scope: &Scope, denials: &[Denial<'_>], report: &mut Report) {
    let Some(path) = scope.path.to_str().filter(|path| !path.is_empty()) else { return };
    if scope.negative || scope.root == Root::Home {
        return;
    }
    let mut language = Language::empty_path();
    path.chars().for_each(|c| language.character(c));
    language.and_below();
    let by = denials.iter().find(|denial| {
        denial.root == scope.root
            && language.within(&[&denial.language], Alphabet::Every) == Within::Yes
    });
    let Some(by) = by else { return };
    let text = &scope.spot.text;
    let message = format!("{text:?} never allows anything: {} denies it", by.spot.shown());
    let spot = (side, &scope.spot);
    if by.side.layer == side.layer {
        let help = "a denial wins: narrow it, or take this out";
        report.say(Severity::Error, "never-allows", spot, message, help);
    } else {
        let help = "denials of both layers hold: narrow the one, or take this out";
        report.say(Severity::Warning, "moot-rule", spot, message, help);
    }
}

/// Grants of the bundle that the machine's list does not hold.
fn outside(side: &Side<'_>, key: &str, bundle: &[Scope], machine: &[Scope], report: &mut Report) {
    if machine.iter().all(|scope| scope.negative) && !machine.is_empty() {
        return;
    }
    for scope in bundle.iter().filter(|scope| !scope.negative) {
        let meets = |m: &Scope| !m.negative && (covers(m, scope) || covers(scope, m));
        if !machine.iter().any(meets) {
            let message = format!(
                "{:?} never allows anything: `{key}` of machine.toml holds nothing of it",
                scope.spot.text
            );
            let help = "the machine's rules come first: ask its owner, or take this out";
            report.say(Severity::Warning, "moot-rule", (side, &scope.spot), message, help);
        }
    }
}
