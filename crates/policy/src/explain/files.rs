//! May this path be read, may it be written?

use std::path::{Path, PathBuf};

use super::{Answer, Explain, Step};
use crate::filesystem::rule;
use crate::pattern::{PathPattern, Root};
use crate::scopes::subtree;
use crate::wire::Line;
use crate::{Decision, Error, Layer};

/// What git reads to know what to run, or where to look: guarded in every repository.
const GIT: [&str; 7] =
    ["commondir", "config", "config.worktree", "hooks", "info", "modules", "worktrees"];

fn in_git(path: &Path) -> bool {
    let parts: Vec<_> = path.iter().collect();
    parts.windows(2).any(|pair| pair[0] == ".git" && GIT.iter().any(|name| pair[1] == *name))
}

impl Explain<'_> {
    /// The denials, then each layer's scopes, then what holds in every run.
    pub(super) fn path(&self, given: &str, write: bool) -> Result<Answer, Error> {
        let absolute = if given.starts_with('/') {
            PathBuf::from(given)
        } else {
            self.project.join(given.strip_prefix("./").unwrap_or(given))
        };
        let relative = absolute.strip_prefix(self.project).ok().map(Path::to_owned);
        let (Some(shown), Some(inside)) =
            (absolute.to_str(), relative.as_deref().map_or(Some(""), Path::to_str))
        else {
            let rule = "the path is not UTF-8";
            return Ok(Answer::alone(Decision::refuse(Layer::Builtin, rule)));
        };
        let mut steps = Vec::new();
        // As given: what is not plain must not be made plain before it is judged.
        let judged = if given.starts_with('/') { inside } else { given.trim_start_matches("./") };
        if let Some(denied) = self.rules.denied(judged, shown) {
            let hit = self.rules.deny_hits(judged, shown).into_iter().next();
            let place =
                hit.and_then(|(layer, at)| self.place(layer, "policy.filesystem.deny", Some(at)));
            steps.push(Step::of(&denied, place));
        }
        let scopes = self.rules.scopes(self.user_home, self.home)?;
        let path = relative.as_deref();
        let key = if write { "write" } else { "read" };
        for layer in [Layer::Machine, Layer::Bundle] {
            steps.extend(self.scope(layer, key, path, &absolute));
        }
        if write && let Some(path) = path {
            // What is written must be readable too.
            for layer in [Layer::Machine, Layer::Bundle] {
                let read = self.scope(layer, "read", Some(path), &absolute);
                steps.extend(read.filter(|step| !step.allows));
            }
        }
        let under = |list: &[PathBuf], path: &Path| list.iter().any(|d| path.starts_with(d));
        let builtin = |allowed, rule: &str| {
            let rule = rule.to_owned();
            Step::of(&Decision { allowed, layer: Layer::Builtin, rule }, None)
        };
        let allowed = match (path, write) {
            (Some(path), false) => {
                scopes.read_inside.as_deref().is_none_or(|list| under(list, path))
            }
            (Some(path), true) => under(&scopes.write, path) && !under(&scopes.read_only, path),
            (None, false) => under(&scopes.read_outside, &absolute),
            (None, true) => false,
        };
        match (path, write) {
            (Some(path), true) if path.starts_with(".ringfence") => {
                steps.insert(
                    0,
                    builtin(false, "nothing in a run may write the bundle's own folder"),
                );
            }
            (Some(path), true)
                if in_git(path) || self.guarded.iter().any(|g| path.starts_with(g)) =>
            {
                let rule = "a run guards it: git or an agent program would act on it later";
                steps.insert(0, builtin(false, rule));
            }
            (Some(_), false) if steps.is_empty() => {
                steps.push(builtin(true, "no layer names `read`: the whole project may be read"));
            }
            (Some(_), true) if !allowed && steps.iter().all(|step| step.allows) => {
                let rule = "no layer grants `write`: the project is read-only";
                steps.push(builtin(false, rule));
            }
            (None, true) => {
                steps.insert(0, builtin(false, "nothing outside the project may be written"));
            }
            (None, false) if !allowed && steps.iter().all(|step| step.allows) => {
                let rule = "outside the project only what `read` names, and the system's own \
                            programs and libraries (`ringfence run --plan`)";
                steps.push(builtin(false, rule));
            }
            _ => {}
        }
        let refused = steps.iter().find(|step| !step.allows).cloned();
        let because = match (&refused, steps.last()) {
            (Some(step), _) => step.clone(),
            (None, Some(last)) => last.clone(),
            (None, None) => builtin(allowed, "no rule says otherwise"),
        };
        Ok(Answer { allowed: allowed && refused.is_none(), because, steps })
    }

    /// What one layer's list of folders says; `None` when the layer has no such list.
    fn scope(
        &self,
        layer: Layer,
        key: &str,
        relative: Option<&Path>,
        absolute: &Path,
    ) -> Option<Step> {
        let wire = self.rules.wire();
        let rules = if layer == Layer::Machine { &wire.machine } else { &wire.bundle };
        let files = &rules.filesystem;
        let lines = if key == "read" { files.read.as_ref()? } else { files.write.as_ref()? };
        let holds = |line: &Line, negative: bool| {
            let Ok(pattern) = PathPattern::parse(&line.text) else { return false };
            let Some(path) = subtree(&pattern.glob) else { return false };
            pattern.negative == negative
                && match pattern.root {
                    Root::Project => relative.is_some_and(|relative| relative.starts_with(path)),
                    Root::Absolute => absolute.starts_with(Path::new("/").join(path)),
                    Root::Home => absolute.starts_with(self.user_home.join(path)),
                }
        };
        let first = |negative| lines.iter().position(|line| holds(line, negative));
        let denials_alone = !lines.is_empty() && lines.iter().all(|l| l.text.starts_with('!'));
        let (allowed, at, word) = match (first(true), first(false)) {
            (Some(at), _) => (false, Some(at), ""),
            (None, Some(at)) => (true, Some(at), ""),
            (None, None) if denials_alone => (true, None, ": not denied"),
            (None, None) => (false, None, ": not listed"),
        };
        let text = format!("{}{word}", rule(rules, key, at.and_then(|at| lines.get(at))));
        let place = self.place(layer, &format!("policy.filesystem.{key}"), at);
        Some(Step::of(&Decision { allowed, layer, rule: text }, place))
    }
}
