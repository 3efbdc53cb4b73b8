//! The card as plain lines for a terminal.

use std::collections::BTreeMap;

use super::card::{Card, ServerCard, Tools};
use super::gather::word;
use super::text::{quoted, shown};
use crate::State;

/// Most characters of one declared text.
const MOST_CHARACTERS: usize = 400;

/// Most rows of one list.
const MOST_ROWS: usize = 200;

struct Lines(Vec<String>);

impl Lines {
    fn head(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn row(&mut self, text: impl AsRef<str>) {
        self.0.push(format!("  {}", text.as_ref()));
    }

    /// A titled list, left out when it is empty and cut, saying so, when it is long.
    fn list(&mut self, title: &str, rows: impl IntoIterator<Item = String>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        self.head(title);
        for row in rows.by_ref().take(MOST_ROWS) {
            self.row(row);
        }
        let left = rows.count();
        if left > 0 {
            self.row(format!("… and {left} more, not shown here; --json shows all"));
        }
    }
}

impl Card {
    /// Plain lines for a terminal, without line ends. Every declared text is escaped so that it
    /// cannot move the cursor, hide or reorder anything; what is cut says so.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Lines(Vec::new());
        let state = match self.state {
            State::Untrusted => "not trusted on this machine",
            State::Trusted => "trusted, and unchanged since",
            State::Changed => "CHANGED since it was trusted",
        };
        lines.head(&format!("{}: {state}", text(&self.project)));
        self.agent_lines(&mut lines);
        self.server_lines(&mut lines);
        self.program_lines(&mut lines);
        self.reach_lines(&mut lines);
        self.content_lines(&mut lines);
        lines.head(&format!("Consent digest: {}", self.consent_digest));
        lines.head(&format!("Review digest, what a yes is for: {}", self.review_digest));
        lines.0
    }

    fn agent_lines(&self, lines: &mut Lines) {
        lines.head("Agent");
        if let Some(agent) = &self.agent {
            let part = |name: &str, value: &Option<String>| {
                value.as_ref().map(|value| format!(", {name} {}", text(value))).unwrap_or_default()
            };
            lines.row(format!(
                "{}{}{}{}",
                text(&agent.name),
                part("version", &agent.version),
                part("owner", &agent.owner),
                part("signs as", &agent.did)
            ));
            if !agent.capabilities.is_empty() {
                lines.row(format!("capabilities: {}", agent.capabilities.join(", ")));
            }
        }
        if self.command.is_empty() {
            lines.row("runs: what the command line names");
        } else {
            lines.row(format!("runs: {}{}", command(&self.command), pinned(&self.agent_files)));
            others(&self.agent_unpinned, "", lines);
        }
        if let Some(image) = &self.image {
            lines.row(format!("image: {}", text(image)));
        }
        lines.row(format!("isolation: at least {}", word(&self.isolation)));
        if let Some(adapter) = &self.keeps_state_of {
            lines.row(format!("keeps the files of {} between runs", text(adapter)));
        }
    }

    fn server_lines(&self, lines: &mut Lines) {
        if self.servers.is_empty() {
            return;
        }
        lines.head("MCP servers");
        for server in self.servers.iter().take(MOST_ROWS) {
            self.server_rows(server, lines);
        }
        let left = self.servers.len().saturating_sub(MOST_ROWS);
        if left > 0 {
            lines.row(format!("… and {left} more, not shown here; --json shows all"));
        }
    }

    fn server_rows(&self, server: &ServerCard, lines: &mut Lines) {
        lines.row(text(&server.name));
        if let Some(program) = &server.command {
            lines.row(format!(
                "  starts on this machine: {}{}",
                command(program),
                pinned(&server.project_files)
            ));
            others(&server.unpinned_files, "  ", lines);
            let hosts =
                if server.hosts.is_empty() { "nothing".to_owned() } else { joined(&server.hosts) };
            lines.row(format!("  may connect to: {hosts}"));
            pairs("  gets variable", "=", &server.env, lines);
        }
        if let Some(url) = &server.url {
            lines.row(format!("  contacts: {}", text(url)));
            pairs("  with header", ": ", &server.headers, lines);
        }
        lines.row(match &server.tools {
            Tools::All => "  tools: ALL that it offers".to_owned(),
            Tools::None => "  tools: none".to_owned(),
            Tools::Only(tools) => format!("  tools: {}", joined(tools)),
        });
        if !server.methods.is_empty() {
            lines.row(format!("  further methods: {}", joined(&server.methods)));
        }
        match &server.pinned_tools {
            Some(pins) => pins.lines().iter().for_each(|line| lines.row(format!("  {line}"))),
            None => lines.row("  tools not pinned: run ringfence lock --tools"),
        }
    }

    fn program_lines(&self, lines: &mut Lines) {
        lines.list(
            "Programs of this machine that these commands run (kept with your yes; what they load in \
             turn is not)",
            self.programs
                .iter()
                .map(|it| format!("{}: {} ({})", text(&it.whose), text(&it.path), it.digest)),
        );
        lines.list(
            "NOT FOUND on this machine",
            self.missing_programs
                .iter()
                .map(|(whose, reason)| format!("{}: {}", text(whose), text(reason))),
        );
        lines.list(
            "NOT the programs that were trusted",
            self.moved_programs.iter().map(ToString::to_string),
        );
    }

    fn reach_lines(&self, lines: &mut Lines) {
        use ringfence_bundle::Egress;
        lines.head("The agent may connect to");
        match self.network.egress {
            Egress::None => lines.row("nothing"),
            Egress::Open => lines.row("ANY public address, on ports 443 and 80"),
            Egress::Restricted if self.network.hosts.is_empty() => lines.row("nothing"),
            Egress::Restricted => lines.row(joined(&self.network.hosts)),
        }
        lines.list(
            "Secrets (names; values are never in a bundle)",
            self.secrets.iter().map(|it| format!("{} -> {}", text(&it.name), joined(&it.goes_to))),
        );
        if !self.credentials.is_empty() {
            lines.head(
                "Enter the sandbox: the agent can read these and send them wherever it may connect",
            );
            lines.row(joined(&self.credentials));
        }
        lines.head("Files of the project");
        let scope = |patterns: &Option<Vec<String>>, absent: &str| match patterns {
            None => absent.to_owned(),
            Some(patterns) if patterns.is_empty() => "nothing".to_owned(),
            Some(patterns) => joined(patterns),
        };
        let outside = |pattern: &&String| pattern.starts_with(['/', '~']);
        let (outside, inside): (Vec<String>, Vec<String>) =
            self.read.iter().flatten().cloned().partition(|pattern| outside(&pattern));
        let read = self.read.as_ref().map(|_| inside);
        lines.row(format!("read: {}", scope(&read, "everything")));
        lines.row(format!("write: {}", scope(&self.write, "nothing")));
        if !self.deny.is_empty() {
            lines.row(format!("neither: {}", joined(&self.deny)));
        }
        lines.list(
            "Files OUTSIDE the project that the agent may read",
            outside.iter().map(|it| text(it)),
        );
        lines.list(
            "Held to, in [policy]",
            self.narrowed.iter().map(|(what, list)| {
                let list = if list.is_empty() { "nothing".to_owned() } else { joined(list) };
                format!("{}: {list}", text(what))
            }),
        );
        lines.list(
            "Limits",
            self.limits.iter().map(|it| format!("{} = {}", it.key, text(&it.value))),
        );
        lines.list(
            "Calls that need a yes (refused in this version, which cannot ask yet)",
            self.approvals.require.iter().map(|it| text(it)),
        );
        if !self.approvals.require.is_empty() {
            lines.row(format!("when nobody answers: {}", word(&self.approvals.on_timeout)));
        }
        lines.list("Keys that may say yes", self.approvals.approvers.iter().map(|it| text(it)));
        if let Some(listen) = &self.listen {
            lines.head(&format!("Peers may reach the agent at {}", text(listen)));
        }
        lines.list(
            "Peers",
            self.peers.iter().map(|(name, did, endpoint)| {
                format!("{}: {} at {}", text(name), text(did), text(endpoint))
            }),
        );
    }

    fn content_lines(&self, lines: &mut Lines) {
        lines.list(
            "Hooks: shell commands that the agent CLI runs",
            self.hooks.iter().map(|it| {
                format!("{} on {}: {}", text(&it.name), text(&it.event), text(&it.command))
            }),
        );
        lines.list(
            "Content",
            self.content.iter().map(|it| {
                let unseen = match (it.unseen_origin, it.source.starts_with("git ")) {
                    (false, _) => "",
                    (true, true) => "  (by the lock's word; `ringfence fetch` looks)",
                    (true, false) => "  (by the lock's word)",
                };
                format!("{} {}: {}{unseen}", it.kind, text(&it.name), text(&it.source))
            }),
        );
        if self.locked {
            lines.list(
                "Pinned",
                self.pins.iter().map(|it| format!("{} {}: {}", it.kind, text(&it.name), it.digest)),
            );
        } else {
            lines.head("NOTHING IS PINNED: there is no lock; run `ringfence lock`");
        }
        lines.list(
            "NOT as pinned; run `ringfence lock`",
            self.drift.iter().map(|it| {
                let digest = |digest: Option<ringfence_bundle::Digest>, none: &str| {
                    digest.map_or_else(|| none.to_owned(), |digest| digest.to_string())
                };
                let pinned = digest(it.pinned, "nothing");
                let found = digest(it.found, "gone or not declared");
                format!("{} {}: pinned {pinned}, now {found}", it.kind, text(&it.name))
            }),
        );
    }
}

/// What of a command lies in the project. Its bytes are in the lock.
fn pinned(files: &[String]) -> String {
    if files.is_empty() {
        return String::new();
    }
    format!("  (of the project, pinned: {}; what they load in turn is not)", joined(files))
}

/// What may change without a question.
fn others(files: &[String], indent: &str, lines: &mut Lines) {
    if !files.is_empty() {
        lines.row(format!("{indent}also takes from the project, NOT pinned: {}", joined(files)));
    }
}

fn pairs(title: &str, between: &str, pairs: &BTreeMap<String, String>, lines: &mut Lines) {
    for (name, value) in pairs.iter().take(MOST_ROWS) {
        lines.row(format!("{title} {}{between}{}", text(name), quoted(value, MOST_CHARACTERS)));
    }
    let left = pairs.len().saturating_sub(MOST_ROWS);
    if left > 0 {
        lines.row(format!("{title} … and {left} more, not shown here; --json shows all"));
    }
}

fn text(given: &str) -> String {
    shown(given, MOST_CHARACTERS)
}

/// A command's words, each with clear ends.
fn command(words: &[String]) -> String {
    limited(words, " ", |word| quoted(word, MOST_CHARACTERS))
}

fn joined(items: &[String]) -> String {
    limited(items, ", ", text)
}

fn limited(items: &[String], between: &str, show: impl Fn(&str) -> String) -> String {
    let mut out: Vec<String> = items.iter().take(MOST_ROWS).map(|item| show(item)).collect();
    let left = items.len().saturating_sub(MOST_ROWS);
    if left > 0 {
        out.push(format!("… and {left} more, not shown here; --json shows all"));
    }
    out.join(between)
}
