//! Why is it allowed or not? Every list that was asked, with what it said, its file and its line.

mod files;
mod table;

use std::path::{Path, PathBuf};

use ringfence_bundle::{Egress, Host, Manifest, Place, Places, SecretName};
use serde::Serialize;

use crate::decide::{EGRESS, SECRETS, TOOLS, Table};
use crate::decision::EVERYONE;
use crate::list::{Query, Verdict};
use crate::ruleset::{BUNDLE_FILE, MACHINE_FILE};
use crate::{Decision, Layer, MachinePolicy, Principal, Ruleset};

pub use table::Rule;

/// What somebody may want to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Call a tool.
    Tool(String),
    /// Use an MCP method.
    Method(String),
    /// Connect to a host on a port.
    Host(Host, u16),
    /// Have a secret.
    Secret(SecretName),
    /// Read a file: its path in the project, or from `/`.
    Read(String),
    /// Write a file.
    Write(String),
}

/// One list that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Whose it is.
    pub layer: Layer,
    /// Whether it lets the thing through.
    pub allows: bool,
    /// The rule as a person reads it, as in [`Decision::rule`].
    pub rule: String,
    /// The file that it stands in.
    pub file: Option<PathBuf>,
    /// Line in it, from 1.
    pub line: Option<usize>,
}

/// An answer, and how it came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// May it?
    pub allowed: bool,
    /// The step that decided: the first that refused, or the last that had a rule to ask.
    pub because: Step,
    /// Every list that was asked, in order.
    pub steps: Vec<Step>,
}

/// What an explanation looks at.
#[derive(Debug, Clone, Copy)]
pub struct Explain<'a> {
    /// Compiled from the next two.
    pub rules: &'a Ruleset,
    /// The machine's side.
    pub machine: &'a MachinePolicy,
    /// The bundle's side.
    pub manifest: &'a Manifest,
    /// The project folder, absolute.
    pub project: &'a Path,
    /// The person's home.
    pub user_home: &'a Path,
    /// The machine's state.
    pub home: &'a Path,
    /// Paths of the project that a run never lets be written, whatever the rules say.
    pub guarded: &'a [String],
}

impl Explain<'_> {
    /// Answers as an enforcer would, and says why.
    ///
    /// # Errors
    /// [`crate::Error::Exceeds`] when a question about a path meets scopes that no run accepts.
    pub fn answer(&self, who: &Principal, question: &Question) -> Result<Answer, crate::Error> {
        let (decision, steps, builtin, keys) = match question {
            Question::Read(path) => return self.path(path, false),
            Question::Write(path) => return self.path(path, true),
            Question::Tool(name) => {
                let Principal::Server(id) = who else {
                    let rule = "the agent has no tools of its own here: name a server";
                    return Ok(Answer::alone(Decision::refuse(Layer::Builtin, rule)));
                };
                let steps = self.lists(TOOLS, who, &Query::new(name, 0));
                (self.rules.tool(id, name), steps, String::new(), format!("servers.{id}.tools"))
            }
            Question::Method(name) => {
                let Principal::Server(id) = who else {
                    let rule = "the agent has no methods of its own here: name a server";
                    return Ok(Answer::alone(Decision::refuse(Layer::Builtin, rule)));
                };
                let keys = format!("servers.{id}.methods");
                (self.rules.method(id, name), Vec::new(), String::new(), keys)
            }
            Question::Host(host, port) => {
                let name = host.to_string();
                let steps = self.lists(EGRESS, who, &Query::new(&name, *port));
                let keys = match (who, self.manifest.sandbox.network.egress) {
                    (Principal::Server(id), _) => format!("servers.{id}.allowed_hosts"),
                    (Principal::Agent, Egress::Restricted) => {
                        "sandbox.network.allowed_hosts".to_owned()
                    }
                    (Principal::Agent, _) => "sandbox.network.egress".to_owned(),
                };
                (self.rules.egress(who, host, *port), steps, String::new(), keys)
            }
            Question::Secret(name) => {
                let steps = self.lists(SECRETS, who, &Query::new(name.as_str(), 0));
                let keys = match who {
                    Principal::Agent => "sandbox.credentials".to_owned(),
                    Principal::Server(id) => format!("servers.{id}"),
                };
                let ceiling = "policy.credentials".to_owned();
                (self.rules.secret(who, name), steps, ceiling, keys)
            }
        };
        Ok(self.assemble(decision, steps, &builtin, &keys))
    }

    /// Puts the deciding rule among the steps where no list of a layer is it.
    fn assemble(
        &self,
        decision: Decision,
        mut steps: Vec<Step>,
        ceiling: &str,
        declared: &str,
    ) -> Answer {
        let same = |step: &&Step| {
            step.layer == decision.layer
                && step.allows == decision.allowed
                && step.rule == decision.rule
        };
        let because = match steps.iter().find(same) {
            Some(step) => step.clone(),
            None => {
                let place = match decision.layer {
                    Layer::Machine => self.machine.places.find(ceiling),
                    Layer::Declared => self.manifest.places.find(declared),
                    Layer::Bundle | Layer::Builtin => None,
                };
                let step = Step::of(&decision, place);
                // Ringfence's own rules and the ceilings are asked first, what is declared last.
                let at = if decision.layer == Layer::Declared { steps.len() } else { 0 };
                steps.insert(at, step.clone());
                step
            }
        };
        Answer { allowed: decision.allowed, because, steps }
    }

    /// What each list of each layer says, all of them, also after one has refused.
    fn lists(&self, table: Table, who: &Principal, query: &Query<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        for layer in [Layer::Machine, Layer::Bundle] {
            for key in [EVERYONE, who.key()] {
                let Some(list) = self.rules.list(layer, table, key) else { continue };
                let verdict = list.judge(query);
                let at = match verdict {
                    Verdict::Denied(at) | Verdict::Allowed(Some(at)) => Some(at),
                    Verdict::Allowed(None) | Verdict::Unlisted => None,
                };
                let mut rule = self.rules.rule_at(layer, table, key, at);
                match verdict {
                    Verdict::Allowed(None) => rule.push_str(": not denied"),
                    Verdict::Unlisted => rule.push_str(": not listed"),
                    _ => {}
                }
                let keys = format!("policy.{}.{key}", table.name);
                let place = self.place(layer, &keys, at);
                let decision =
                    Decision { allowed: matches!(verdict, Verdict::Allowed(_)), layer, rule };
                steps.push(Step::of(&decision, place));
            }
        }
        steps
    }

    fn places(&self, layer: Layer) -> &Places {
        if layer == Layer::Machine { &self.machine.places } else { &self.manifest.places }
    }

    fn place(&self, layer: Layer, keys: &str, at: Option<usize>) -> Option<Place> {
        let keys = at.map_or_else(|| keys.to_owned(), |at| format!("{keys}[{at}]"));
        self.places(layer).find(&keys)
    }
}

impl Step {
    fn of(decision: &Decision, place: Option<Place>) -> Self {
        let (file, line) = place.map_or((None, None), |p| (Some(p.file), Some(p.line)));
        let rule = decision.rule.clone();
        Self { layer: decision.layer, allows: decision.allowed, rule, file, line }
    }
}

impl Answer {
    fn alone(decision: Decision) -> Self {
        let step = Step::of(&decision, None);
        Self { allowed: decision.allowed, because: step.clone(), steps: vec![step] }
    }
}

/// What a person calls the file of a layer.
fn file_of(layer: Layer) -> &'static str {
    if layer == Layer::Machine { MACHINE_FILE } else { BUNDLE_FILE }
}

#[cfg(test)]
mod tests;
