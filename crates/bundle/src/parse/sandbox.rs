//! `[sandbox]` and `[limits]`.

use std::cell::RefCell;

use crate::decode::{Table, Value};
use crate::manifest::{Egress, Engine, Isolation, Limits, Network, Sandbox};
use crate::{HostRule, SecretName, reserved_variable, text};

pub(super) fn sandbox(root: &Table<'_>) -> Sandbox {
    let Some(table) = root.table("sandbox") else { return Sandbox::default() };
    let sandbox = Sandbox {
        isolation: table.get("isolation").and_then(|v| isolation(&v)),
        image: table.get("image").and_then(|v| v.parsed("bad-value", image)),
        runtime: table.get("runtime").and_then(|v| v.parsed("bad-value", runtime)),
        command: table.get("command").and_then(|v| command(&v)).unwrap_or_default(),
        memory_mb: table.get("memory_mb").and_then(|v| v.integer(4..=4_194_304)),
        disk_mb: table.get("disk_mb").and_then(|v| v.integer(1..=16_777_216)),
        pids: table.get("pids").and_then(|v| v.integer(1..=4_194_304)),
        cpus: table.get("cpus").and_then(|v| v.number(0.01..=1024.0)),
        credentials: table
            .get("credentials")
            .and_then(|v| v.set_of(credential))
            .unwrap_or_default(),
        state: table.get("state").and_then(|v| super::clis::cli(&v)),
        network: network(&table),
    };
    table.finish();
    sandbox
}

pub(super) fn limits(root: &Table<'_>) -> Limits {
    let Some(table) = root.table("limits") else { return Limits::default() };
    let limits = Limits {
        max_duration_seconds: table
            .get("max_duration_seconds")
            .and_then(|v| v.integer(1..=31_536_000)),
    };
    table.finish();
    limits
}

pub(super) fn allowed_hosts(table: &Table<'_>) -> Vec<HostRule> {
    let seen = RefCell::new(Vec::<HostRule>::new());
    let rule = |value: &Value<'_>| {
        let rule = host_rule(value)?;
        let other = HostRule { opaque: !rule.opaque, ..rule.clone() };
        if seen.borrow().contains(&other) {
            let message = format!("`{rule}` is listed twice, once as opaque");
            value.error("duplicate-value", message, Some("keep the one that is meant".to_owned()));
            return None;
        }
        seen.borrow_mut().push(rule.clone());
        Some(rule)
    };
    table.get("allowed_hosts").and_then(|v| v.set_of(rule)).unwrap_or_default()
}

/// `"host:port"`, or `{ host = "host:port", opaque = true }`.
fn host_rule(value: &Value<'_>) -> Option<HostRule> {
    let rule = if value.is_table() {
        let table = value.table()?;
        let opaque = table.get("opaque").and_then(|v| v.boolean());
        let parse = if opaque == Some(true) { HostRule::opaque } else { HostRule::parse };
        let rule = table.require("host").and_then(|v| v.parsed("bad-host", parse));
        table.finish();
        rule?
    } else {
        value.parsed("bad-host", HostRule::parse)?
    };
    if rule.is_local() {
        value.error(
            "local-host",
            format!("`{rule}` means this machine or a container's host, which no sandbox may reach"),
            Some("declare a service of this machine as a server: it is then called through the gateway".to_owned()),
        );
        return None;
    }
    Some(rule)
}

fn network(sandbox: &Table<'_>) -> Network {
    let Some(table) = sandbox.table("network") else { return Network::default() };
    let egress = table.get("egress");
    let chosen = egress.as_ref().and_then(|value| {
        value.choice(&[
            ("none", Egress::None),
            ("restricted", Egress::Restricted),
            ("open", Egress::Open),
        ])
    });
    let allowed_hosts = allowed_hosts(&table);
    let listed = table.has("allowed_hosts");
    let contradiction = match chosen {
        Some(Egress::Open) => listed.then_some("open"),
        Some(Egress::None) => (!allowed_hosts.is_empty()).then_some("none"),
        _ => None,
    };
    if let (Some(value), Some(word)) = (&egress, contradiction) {
        value.error(
            "egress-contradiction",
            format!("`egress = \"{word}\"` contradicts `allowed_hosts`"),
            Some("write `egress = \"restricted\"`, or delete `allowed_hosts`".to_owned()),
        );
    }
    let network = Network {
        egress: chosen.unwrap_or_default(),
        allowed_hosts,
        engine: table
            .get("engine")
            .and_then(|v| v.choice(&[("builtin", Engine::Builtin), ("squid", Engine::Squid)]))
            .unwrap_or_default(),
    };
    table.finish();
    network
}

fn isolation(value: &Value<'_>) -> Option<Isolation> {
    let words = Isolation::ALL.map(|level| (level.as_str(), level));
    value.choice(&words)
}

fn image(given: &str) -> Result<String, &'static str> {
    let fits = (1..=255).contains(&given.len())
        && given.as_bytes()[0].is_ascii_alphanumeric()
        && given.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/:@-".contains(&b));
    if fits {
        Ok(given.to_owned())
    } else {
        Err("expected an image reference such as `name:tag` or `name@sha256:…`")
    }
}

fn runtime(given: &str) -> Result<String, &'static str> {
    let fits = (1..=64).contains(&given.len())
        && given.as_bytes()[0].is_ascii_alphanumeric()
        && given.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits {
        Ok(given.to_owned())
    } else {
        Err("expected a runtime's name such as `runsc` or `kata`")
    }
}

fn command(value: &Value<'_>) -> Option<Vec<String>> {
    let items = value.list()?;
    super::words::check(items.first(), items.get(1..).unwrap_or_default());
    let words = value.list_of(|item| item.text().map(str::to_owned))?;
    if words.first().is_none_or(String::is_empty) {
        let message = "expected a program and its arguments".to_owned();
        value.error(
            "bad-value",
            message,
            Some("leave `command` out to give it to `ringfence run`".to_owned()),
        );
        return None;
    }
    Some(words)
}

fn credential(value: &Value<'_>) -> Option<SecretName> {
    let name = value.parsed("bad-name", SecretName::parse)?;
    if let Some(reason) = reserved_variable(name.as_str()) {
        let message = format!("`{}` may not enter a sandbox: {reason}", text::shown(name.as_str()));
        value.error("reserved-variable", message, None);
        return None;
    }
    Some(name)
}
