//! The first manifest of a project.

use crate::names::is_agent_name;

#[cfg(test)]
mod tests;

/// The text of a first manifest, commented for a person who has never seen one. It is valid as it
/// is: an agent in a sandbox that reaches nothing and writes nothing. The folder's name becomes the
/// agent's, as far as its letters allow.
#[must_use]
pub fn first_manifest(folder: &str) -> String {
    TEXT.replace("@NAME@", &agent_name(folder))
}

fn agent_name(folder: &str) -> String {
    let mut name = String::new();
    for c in folder.chars().take(63) {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_lowercase() || c.is_ascii_digit() => name.push(c),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    let name = name.trim_end_matches('-');
    if is_agent_name(name) { name.to_owned() } else { "agent".to_owned() }
}

const TEXT: &str = r#"# What this agent is made of and what it may do.
# After each change: `ringfence validate`, `ringfence lock`, `ringfence trust`. Then `ringfence run`.
# `ringfence schema` prints every key; with it, editors complete this file.
version = 1

[agent]
name = "@NAME@"
# What it does. This sets how strong the sandbox must at least be, and grants nothing:
# read_file, write_file: process. web_search, external_api, send_email: network.
# spawn_subagent, external_transfer, delete_records: kernel.
capabilities = ["read_file"]

[sandbox]
# What runs, without a shell. `ringfence run -- <command>` runs another.
# command   = ["python3", "main.py"]
memory_mb = 1024
disk_mb   = 512
pids      = 256
# The only host variables that enter the sandbox. The agent can read them.
# credentials = ["GROQ_API_KEY"]

[sandbox.network]
# Hosts the agent may reach: exact, or `.suffix` for all names below. Ports 443 and 80 unless named.
egress        = "restricted"
allowed_hosts = []

[limits]
max_duration_seconds = 900

# A server over HTTP. Its address and its token stay on the host; the agent gets
# RINGFENCE_MCP_TRACKER_URL, and calls go through the gateway.
# [servers.tracker]
# type    = "http"
# url     = "https://mcp.tracker.example/mcp"
# headers = { Authorization = "Bearer ${TRACKER_TOKEN}" }
# tools   = ["list_issues"]            # absent: all; []: none

# A server that the gateway starts, in a sandbox of its own.
# [servers.search]
# type    = "stdio"
# command = "npx"
# args    = ["-y", "@example/search-mcp"]
# env     = { SEARCH_API_KEY = "${SEARCH_API_KEY}" }
# allowed_hosts = ["api.search.example"]

# What an agent reads, in this folder: `.ringfence/skills/review/SKILL.md`, `.ringfence/team.md`.
# [skills.review]
# path = "./skills/review"
# [instructions.team]
# path = "./team.md"

# Calls that need a person's yes.
# [[approvals.require]]
# server = "tracker"
# tool   = "delete_issue"

# What the bundle asks to be held to. The machine's own rules (machine.toml) come first:
# `ringfence policy use developer` makes a ready set yours; Ringfence's docs/machine.md has every key.
[policy.filesystem]
read  = ["**"]
write = []
deny  = [".env*"]
"#;
