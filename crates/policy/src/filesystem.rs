//! What is denied in the file system: the union of both layers.

use std::path::PathBuf;

use crate::glob;
use crate::language::Language;
use crate::path_glob::PathGlob;
use crate::pattern::{PathPattern, Root};
use crate::wire::{Line, Rules};
use crate::{Decision, Layer, Ruleset};

/// A compiled `deny` pattern. `x/**` denies `x` too: a folder that could be renamed away would take
/// what is in it along.
#[derive(Debug)]
pub(crate) struct Deny {
    root: Root,
    glob: PathGlob,
    /// The path itself, when it holds no wildcard.
    literal: Option<String>,
    /// The pattern, when it is one for a bare name: `.env*`.
    name: Option<String>,
    /// It is the root, or everything below it.
    all: bool,
    /// The absolute path, up to the first part with a wildcard.
    folder: Option<PathBuf>,
}

impl Deny {
    pub(crate) fn new(pattern: &PathPattern) -> Self {
        let mut text = pattern.glob.as_str();
        while let Some(shorter) = text.strip_suffix("/**") {
            text = shorter;
        }
        let all = text.is_empty() || text.bytes().all(|b| b == b'*') && text.len() > 1;
        let literal = (!all && glob::is_literal(text)).then(|| text.to_owned());
        let bare = pattern.root == Root::Project && !text.contains('/') && !text.contains("**");
        let name = (!all && bare).then(|| text.to_owned());
        let folder = (pattern.root == Root::Absolute && !all).then(|| {
            let plain = text.split('/').take_while(|part| glob::is_literal(part));
            std::iter::once("/").chain(plain).collect::<PathBuf>()
        });
        let folder = folder.filter(|folder| folder.parent().is_some());
        Self { root: pattern.root, glob: PathGlob::new(text), literal, name, all, folder }
    }

    /// The paths that it covers, seen from its root: what it matches and what is below.
    pub(crate) fn language(&self) -> Language {
        if self.all {
            return Language::of_name("*");
        }
        let mut language = if self.name.is_some() {
            let mut anywhere = Language::empty_path();
            anywhere.folders();
            anywhere.then_path(&self.glob.language());
            anywhere
        } else {
            self.glob.language()
        };
        language.and_below();
        language
    }

    /// Whether this path, or something above it, is denied.
    pub(crate) fn covers(&self, relative: Option<&str>, absolute: &str) -> bool {
        match self.root {
            // A pattern without a folder is a name that is denied anywhere: `.env*`. Folders above
            // the project are not asked: a project in `/build` is not denied by `build`.
            Root::Project => {
                let path = relative.unwrap_or(absolute);
                match &self.name {
                    Some(name) => path.split('/').any(|part| glob::matches(name, part)),
                    None => self.all || self.above(path),
                }
            }
            Root::Absolute => self.all || self.above(absolute),
            // Whose home is meant is not known here, so any folder may be one.
            Root::Home => {
                self.all
                    || absolute.match_indices('/').any(|(at, _)| self.above(&absolute[at + 1..]))
            }
        }
    }

    /// Whether the path or a folder above it is matched.
    fn above(&self, path: &str) -> bool {
        if path.is_empty() {
            return false;
        }
        if let Some(literal) = &self.literal {
            let rest = path.strip_prefix(literal.as_str());
            return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        }
        path.match_indices('/').any(|(at, _)| self.glob.matches(&path[..at]))
            || self.glob.matches(path)
    }
}

impl Ruleset {
    /// Is this path denied, and by which rule? `relative` is the path in the project, empty for one
    /// outside it; `absolute` the path from `/`. Each pattern of either layer is held against the
    /// relative path, the absolute path, the bare name, and every folder above. A path with empty,
    /// `.` or `..` components is denied: it is not the path that would be opened.
    #[must_use]
    pub fn denied(&self, relative: &str, absolute: &str) -> Option<Decision> {
        let relative_path = relative.strip_suffix('/').unwrap_or(relative);
        let Some(absolute_path) = absolute.strip_prefix('/') else {
            return Some(Decision::refuse(Layer::Builtin, "the path is not absolute"));
        };
        let absolute_path = absolute_path.strip_suffix('/').unwrap_or(absolute_path);
        let plain = |path: &str| {
            path.is_empty() || !path.split('/').any(|part| matches!(part, "" | "." | ".."))
        };
        if !plain(relative_path) || !plain(absolute_path) {
            return Some(Decision::refuse(Layer::Builtin, "the path is not in plain form"));
        }
        let inside = (!relative_path.is_empty()).then_some(relative_path);
        let layers = [
            (Layer::Machine, &self.index().machine, &self.wire().machine),
            (Layer::Bundle, &self.index().bundle, &self.wire().bundle),
        ];
        layers.into_iter().find_map(|(layer, tables, rules)| {
            let at = tables.deny.iter().position(|deny| deny.covers(inside, absolute_path))?;
            Some(Decision::refuse(layer, rule(rules, "deny", rules.filesystem.deny.get(at))))
        })
    }

    /// The denials that hold for a path, by layer and position, the machine's first.
    pub(crate) fn deny_hits(&self, relative: &str, absolute: &str) -> Vec<(Layer, usize)> {
        let relative = relative.strip_suffix('/').unwrap_or(relative);
        let absolute = absolute.trim_start_matches('/');
        let absolute = absolute.strip_suffix('/').unwrap_or(absolute);
        let inside = (!relative.is_empty()).then_some(relative);
        [(Layer::Machine, &self.index().machine), (Layer::Bundle, &self.index().bundle)]
            .into_iter()
            .flat_map(|(layer, tables)| {
                let all = tables.deny.iter().enumerate();
                all.filter(|(_, deny)| deny.covers(inside, absolute)).map(move |(n, _)| (layer, n))
            })
            .collect()
    }

    /// The denied paths in the project that hold no wildcard, relative to it, whether or not they
    /// are there: a backend puts something in their place so that they cannot be made.
    #[must_use]
    pub fn denied_literals(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = [&self.index().machine, &self.index().bundle]
            .into_iter()
            .flat_map(|tables| &tables.deny)
            .filter(|deny| deny.root == Root::Project)
            .filter_map(|deny| deny.literal.as_ref().map(PathBuf::from))
            .collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// Whether a denied pattern with wildcards names folders: `conf/*.key`, and not `.env*`. A path
    /// may then have a denied name through a symlink to a folder.
    #[must_use]
    pub fn denies_below_folders(&self) -> bool {
        [&self.index().machine, &self.index().bundle].into_iter().flat_map(|t| &t.deny).any(
            |deny| {
                let literal = deny.root == Root::Project && deny.literal.is_some();
                deny.name.is_none() && !deny.all && !literal
            },
        )
    }

    /// The denied absolute paths, up to their first wildcard, each with its rule.
    #[must_use]
    pub fn denied_elsewhere(&self) -> Vec<(PathBuf, String)> {
        let layers = [
            (&self.index().machine, &self.wire().machine),
            (&self.index().bundle, &self.wire().bundle),
        ];
        let mut found = Vec::new();
        for (tables, rules) in layers {
            for (deny, line) in tables.deny.iter().zip(&rules.filesystem.deny) {
                if let Some(folder) = &deny.folder {
                    found.push((folder.clone(), rule(rules, "deny", Some(line))));
                }
            }
        }
        found
    }
}

/// `machine.toml:12 [policy.filesystem] deny ".env*"`
pub(crate) fn rule(rules: &Rules, key: &str, line: Option<&Line>) -> String {
    match line {
        Some(line) => {
            let file = rules.file_of(line);
            format!("{file}:{} [policy.filesystem] {key} {:?}", line.line, line.text)
        }
        None => format!("{} [policy.filesystem] {key}", rules.file),
    }
}

#[cfg(test)]
mod tests;
