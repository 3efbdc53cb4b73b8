//! What to write instead of what other programs' files have in the same place.

use crate::names::is_agent_name;
use crate::{Id, SecretName, check_relative, text};

/// Keys of a server in the settings of agent programs.
pub(super) const SERVER: &[(&str, &str)] = &[
    ("transport", "it is `type` here"),
    ("serverUrl", "it is `url` here"),
    ("httpUrl", "it is `url` here, with `type = \"http\"`"),
    ("environment", "it is `env` here"),
    ("includeTools", "it is `tools` here"),
    (
        "excludeTools",
        "list the tools that may be called in `tools`, or write `!name` in `[policy.tools]`",
    ),
    ("cwd", "there is none: a server starts in the project folder"),
    ("disabled", "there is no switch: delete the server, or make its lines comments"),
    ("enabled", "there is no switch: a server that is declared is there"),
    ("autoApprove", ALWAYS),
    ("alwaysAllow", ALWAYS),
    ("trust", ALWAYS),
    ("timeout", "there is none for one server: `[limits] max_duration_seconds` ends the run"),
    ("envFile", "there is none: name each variable in `env`, `NAME = \"${NAME}\"`"),
];

const ALWAYS: &str = "delete it: a tool that `tools` lists is called without asking, unless \
                      `[[approvals.require]]` names it";

/// Keys of whole files.
pub(super) const TOP: &[(&str, &str)] = &[
    ("mcpServers", SERVERS),
    ("mcp_servers", SERVERS),
    ("mcp", SERVERS),
    ("permissions", "it is `[policy.tools]`, `[policy.egress]` and `[policy.filesystem]` here"),
    ("env", "variables for the agent are named in `[sandbox] credentials`"),
];

const SERVERS: &str = "each server is a table of its own here: `[servers.<name>]`";

/// A server's `type`.
pub(super) fn transport(given: &str) -> Option<String> {
    let plain = given.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let help = match plain.as_str() {
        "http" | "https" | "streamablehttp" | "httpstream" | "streamable" | "remote" => {
            "write `type = \"http\"`: that is Streamable HTTP"
        }
        "sse" => {
            "write `type = \"http\"`, and the address of its Streamable HTTP endpoint: the older \
             transport of two endpoints is not spoken"
        }
        "stdio" | "local" | "command" | "process" => "write `type = \"stdio\"`",
        _ => return None,
    };
    Some(help.to_owned())
}

/// One name of `tools`.
pub(super) fn tool(given: &str) -> Option<String> {
    let help = match given {
        "*" => {
            "leave the key out: then every tool may be called, as far as `[policy.tools]` allows"
        }
        _ if given.contains(['*', '?', '!']) => {
            "`tools` takes exact names; patterns stand in `[policy.tools]`"
        }
        _ => return None,
    };
    Some(help.to_owned())
}

/// A name as it could be spelt here.
pub(super) fn name(given: &str) -> Option<String> {
    let name = plain(given, '-');
    Id::parse(&name).is_ok().then(|| meant(&name))
}

/// An agent's name as it could be spelt here.
pub(super) fn agent(given: &str) -> Option<String> {
    let name = plain(given, '-').replace('_', "-");
    is_agent_name(&name).then(|| meant(&name))
}

/// An event as it is spelt here: `PostToolUse` is `post_tool_use`.
pub(super) fn event(given: &str) -> Option<String> {
    let mut words = String::new();
    let mut lower = false;
    for c in given.chars().take(64) {
        if c.is_ascii_uppercase() && lower {
            words.push('_');
        }
        lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        words.push(c);
    }
    let name = plain(&words, '_').replace('-', "_");
    let fits = name.starts_with(|c: char| c.is_ascii_lowercase());
    (fits && name != given).then(|| meant(&name))
}

/// Letters in lower case, and everything that no name has as one separator.
fn plain(given: &str, separator: char) -> String {
    let mut name = String::new();
    for c in given.chars().take(64) {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_lowercase() || c.is_ascii_digit() => name.push(c),
            c @ ('-' | '_') if !name.is_empty() && !name.ends_with(['-', '_']) => name.push(c),
            _ if !name.is_empty() && !name.ends_with(['-', '_']) => name.push(separator),
            _ => {}
        }
    }
    name.trim_end_matches(['-', '_']).to_owned()
}

/// A path beside the manifest.
pub(super) fn path(given: &str) -> Option<String> {
    if given.starts_with(['/', '~']) {
        let help = "put it into `.ringfence/`, beside the manifest: what is pinned is there";
        return Some(help.to_owned());
    }
    let below = given.strip_prefix(".ringfence/").unwrap_or(given).replace('\\', "/");
    let parts: Vec<&str> = below.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let path = format!("./{}", parts.join("/"));
    (path != given && check_relative(&path).is_ok()).then(|| meant(&path))
}

/// The first reference that is written as another program would have it.
pub(super) fn reference(given: &str) -> Option<String> {
    // `$$` is a dollar sign, whatever follows.
    let mut rest = given;
    loop {
        rest = &rest[rest.find('$')? + 1..];
        if let Some(next) = rest.strip_prefix('$') {
            rest = next;
            continue;
        }
        let (inner, next) = match rest.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => rest.split_at(
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len()),
            ),
        };
        if rest.starts_with('{') && SecretName::parse(inner).is_ok() {
            rest = next;
            continue;
        }
        return of_variable(inner);
    }
}

fn of_variable(inner: &str) -> Option<String> {
    let reference = |name: &str| {
        SecretName::parse(name).is_ok().then(|| format!("`${{{}}}`", text::shown(name)))
    };
    if let Some(name) = inner.strip_prefix("env:") {
        // Some have a default after a second colon.
        let name = name.split(':').next().unwrap_or_default();
        return reference(name).map(|it| format!("write {it}"));
    }
    if let Some(name) = inner.strip_prefix("input:") {
        let name = name.replace(['-', '.', ' '], "_").to_ascii_uppercase();
        let it = reference(&name)?;
        return Some(format!("write {it}, and keep its value with `ringfence secret set {name}`"));
    }
    if let Some((name, _)) = inner.split_once([':', '-', '=']) {
        let it = reference(name)?;
        return Some(format!("write {it}: there are no defaults here, the variable must be set"));
    }
    reference(inner).map(|it| format!("write {it}"))
}

fn meant(word: &str) -> String {
    format!("did you mean `{word}`?")
}
