//! `[meta]`, `[agent]` and `capabilities`.

use crate::decode::{Table, Value};
use crate::manifest::{Agent, Capability, Meta};
use crate::names::{AGENT_NAME, is_agent_name};
use crate::{check_did, text};

pub(super) fn meta(root: &Table<'_>) -> Meta {
    let Some(table) = root.table("meta") else { return Meta::default() };
    let meta =
        Meta { gitignore: table.get("gitignore").and_then(|v| v.boolean()).unwrap_or_default() };
    table.finish();
    meta
}

/// `[agent]`, and its `capabilities` if it has them.
pub(super) fn agent<'d>(root: &Table<'d>) -> (Option<Agent>, Option<Value<'d>>) {
    let Some(table) = root.table("agent") else { return (None, None) };
    let name = table.require("name").and_then(|value| {
        let parse = |name: &str| {
            if is_agent_name(name) {
                return Ok(name.to_owned());
            }
            Err(format!("`{}` is not an agent name: expected {AGENT_NAME}", text::shown(name)))
        };
        value.parsed_or("bad-name", parse, super::hints::agent)
    });
    let agent = Agent {
        name: name.unwrap_or_default(),
        version: table.get("version").and_then(|v| v.text_within(64)).map(str::to_owned),
        owner: table.get("owner").and_then(|v| v.text_within(256)).map(str::to_owned),
        did: table.get("did").and_then(|v| v.parsed("bad-did", check_did)).map(str::to_owned),
    };
    let capabilities = table.get("capabilities");
    table.finish();
    (Some(agent), capabilities)
}

pub(super) fn capabilities(value: &Value<'_>) -> Vec<Capability> {
    let words = Capability::ALL.map(|capability| (capability.as_str(), capability));
    value.set_of(|item| item.choice(&words)).unwrap_or_default()
}
