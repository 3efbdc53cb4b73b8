//! What `run --plan` shows: the same plan, in words.

use std::path::Path;

use ringfence_bundle::{Egress, Engine, HostRule, Transport};
use ringfence_policy::Principal;
use ringfence_sandbox::{Keeper, Missing, Rule};
use serde::Serialize;

use super::{Backend, Plan, level};

/// One line: what it is about, and what was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// For example `mount`, `host`, `limit`.
    pub about: &'static str,
    /// The decision in words.
    pub text: String,
}

/// A plan for people and, as JSON, for programs. Version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct View {
    /// Format of this document.
    pub version: u32,
    /// Project folder.
    pub project: String,
    /// `trusted`: no plan is made of anything else.
    pub trust: &'static str,
    /// Consent digest.
    pub consent: String,
    /// Digest of the ruleset.
    pub ruleset: String,
    /// Backend's name.
    pub backend: &'static str,
    /// Its isolation level.
    pub isolation: &'static str,
    /// Mode label; `ENFORCED` is only said by a run whose probe passed.
    pub mode: String,
    /// The program's file.
    pub program: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Everything else.
    pub lines: Vec<Line>,
    /// Every declared field with its label, from the table that `validate` prints from too.
    pub fields: Vec<(String, String)>,
}

impl Plan {
    /// The plan in words.
    #[must_use]
    pub fn view(&self) -> View {
        let mut lines = Vec::new();
        let mut say = |about, text: String| lines.push(Line { about, text });
        mounts(self, &mut say);
        container(self, &mut say);
        network(self, &mut say);
        servers(self, &mut say);
        for name in &self.credentials {
            say(
                "credential",
                format!(
                    "{name} enters the sandbox; the agent can read it and send it anywhere allowed"
                ),
            );
        }
        limits(self, &mut say);
        for program in self.bundle.programs() {
            let file = program.path.display();
            say("program", format!("{}: {file} ({}), as trusted", program.who, program.digest));
        }
        self.warnings().into_iter().for_each(|text| say("warning", text));
        View {
            version: 1,
            project: self.project().display().to_string(),
            trust: "trusted",
            consent: self.bundle.consent().to_string(),
            ruleset: self.ruleset.digest(),
            backend: self.backend.name(),
            isolation: level(self.backend.isolation(self.manifest().sandbox.runtime.as_deref())),
            mode: match self.backend {
                Backend::Host => self.backend.mode(),
                _ => format!("{} once its probe passes", self.backend.mode()),
            },
            program: self.program.file.display().to_string(),
            command: self.program.args.clone(),
            lines,
            fields: self
                .manifest()
                .declared()
                .into_iter()
                .map(|(keys, field)| (keys.to_owned(), field.label.to_string()))
                .collect(),
        }
    }
}

fn mounts(plan: &Plan, say: &mut impl FnMut(&'static str, String)) {
    if plan.backend == Backend::Host {
        say("mount", "none: the agent's files are yours".into());
        return;
    }
    say("mount", "project: read-only, at its own path".into());
    for mount in &plan.mounts {
        let name = if mount.path.as_os_str().is_empty() { Path::new(".") } else { &mount.path };
        let what = match mount.rule {
            Rule::Writable => "writable",
            Rule::ReadOnly => "read-only",
            Rule::Pinned => "cannot be renamed",
            Rule::Masked => "not readable",
        };
        let there = plan.project().join(&mount.path).symlink_metadata().is_ok();
        let note = match mount.missing {
            _ if there => "",
            Missing::Present => "",
            Missing::Keep => " (missing: will be made)",
            Missing::Dir | Missing::File(_) => {
                " (missing: an empty one stands there during the run)"
            }
        };
        say("mount", format!("{}: {what}{note}", name.display()));
    }
    for path in &plan.read {
        say("mount", format!("{}: read-only", path.display()));
    }
    say("mount", "home, /tmp, /dev/shm: empty, in memory, gone after the run".into());
}

fn container(plan: &Plan, say: &mut impl FnMut(&'static str, String)) {
    let Some(image) = plan.image().filter(|_| plan.backend.is_container()) else { return };
    let runtime = plan.manifest().sandbox.runtime.as_deref().unwrap_or("the engine's default");
    say("container", format!("image {image}, its digest recorded; runtime {runtime}"));
    say(
        "container",
        "on a network of its own, whose one peer is the sidecar; servers stay on this machine"
            .into(),
    );
    if plan.backend == Backend::Lockdown {
        say("container", "literal addresses and anything but TLS are refused".into());
    }
}

fn network(plan: &Plan, say: &mut impl FnMut(&'static str, String)) {
    let network = &plan.manifest().sandbox.network;
    let engine = match plan.engine() {
        Engine::Builtin => "the built-in proxy",
        Engine::Squid => "Squid of this machine, version 5 or 6, started for the run",
    };
    say("engine", engine.into());
    match network.egress {
        Egress::None => say("host", "none".into()),
        Egress::Open => {
            say("host", "any public address on 443 and 80, within the machine's rules".into())
        }
        Egress::Restricted if network.allowed_hosts.is_empty() => say("host", "none".into()),
        Egress::Restricted => {
            for host in &network.allowed_hosts {
                let ports = if host.port.is_some() { "" } else { " on 443 and 80" };
                // Of a suffix there is no one host to ask the rules about.
                let port = host.port.unwrap_or(443);
                let ruled = plan.ruleset.egress(&Principal::Agent, &host.host, port);
                let verdict = match (host.suffix, ruled.allowed) {
                    (true, _) => "within the machine's rules".to_owned(),
                    (false, true) => "allowed".to_owned(),
                    (false, false) => format!("but refused by {}", ruled.rule),
                };
                let unseen = if plan.ruleset.is_opaque(&Principal::Agent, &host.host, port) {
                    ", opaque: what goes through is not looked at"
                } else {
                    ""
                };
                say("host", format!("{host}{ports}, {verdict}{unseen}"));
            }
        }
    }
}

fn servers(plan: &Plan, say: &mut impl FnMut(&'static str, String)) {
    for (id, server) in &plan.manifest().servers {
        let tools = match &server.tools {
            None => "all tools".to_owned(),
            Some(tools) if tools.is_empty() => "no tools".to_owned(),
            Some(tools) => tools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let methods = if server.methods.is_empty() {
            String::new()
        } else {
            format!("; methods {}", server.methods.join(", "))
        };
        let place = match &server.transport {
            Transport::Http { url, .. } => format!("{url}, from this host"),
            Transport::Stdio { allowed_hosts, .. } => {
                let file = plan
                    .servers
                    .iter()
                    .find(|(s, _)| s == id)
                    .map(|(_, p)| p.file.display().to_string());
                let hosts = if allowed_hosts.is_empty() {
                    "no hosts".to_owned()
                } else {
                    allowed_hosts.iter().map(HostRule::described).collect::<Vec<_>>().join(", ")
                };
                format!("{}, in a sandbox of its own, {hosts}", file.unwrap_or_default())
            }
        };
        let pins = match plan.bundle.snapshot().tool_pins(id) {
            Some(pins) => format!("pinned ({} tools)", pins.tools.len()),
            None => "unpinned: held to its first tools/list".to_owned(),
        };
        say("server", format!("{id}: {tools}{methods} ({place}); {pins}"));
    }
}

fn limits(plan: &Plan, say: &mut impl FnMut(&'static str, String)) {
    for (limit, keeper) in plan.keepers() {
        let value = match limit {
            "memory" => plan.limits.memory.map(|b| format!("{} MiB", b >> 20)),
            "disk" => plan.limits.disk.map(|b| format!("{} MiB of scratch space", b >> 20)),
            "pids" => plan.limits.pids.map(|n| n.to_string()),
            "cpus" => plan.limits.cpus.map(|n| n.to_string()),
            _ => None,
        };
        let keeper = match keeper {
            Keeper::Enforced => "enforced",
            Keeper::Watched => "watched",
            Keeper::Nobody => "not kept: there is no sandbox",
        };
        if let Some(value) = value {
            say("limit", format!("{limit}: {value} ({keeper})"));
        }
    }
    if let Some(duration) = plan.duration() {
        say("limit", format!("duration: {} s (enforced)", duration.as_secs()));
    }
}
