//! Tools of the gateway's own. Pure.

use std::collections::BTreeMap;

use ringfence_bundle::{Id, ServerId, Toolset};
use serde_json::{Value, json};

use crate::Selection;

pub(super) const TOOLSETS: &str = "ringfence__toolsets";
pub(super) const LEASE: &str = "ringfence__lease";
pub(super) const RELEASE: &str = "ringfence__release";
pub(super) const SEARCH: &str = "tools_search";
pub(super) const DESCRIBE: &str = "tools_describe";
pub(super) const CALL: &str = "tools_call";

/// Whether a name is one of the tools about leases.
pub(super) fn is_lease_tool(name: &str) -> bool {
    matches!(name, TOOLSETS | LEASE | RELEASE)
}

/// The three tools about leases.
pub(super) fn lease_tools() -> Vec<Value> {
    let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    vec![
        json!({
            "name": TOOLSETS,
            "title": "List toolsets",
            "description": "Lists the toolsets of this project, with their servers, and which one this connection has now.",
            "inputSchema": none,
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }),
        json!({
            "name": LEASE,
            "title": "Lease a toolset",
            "description": "Selects another toolset of this project for this connection, until it is released or the connection ends. The list of tools changes with it. What each tool may do does not.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "toolset": { "type": "string", "description": "A name of ringfence__toolsets." },
                    "task": { "type": "string", "description": "What it is for, in a few words." },
                },
                "required": ["toolset", "task"],
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": false, "destructiveHint": false, "openWorldHint": false },
        }),
        json!({
            "name": RELEASE,
            "title": "Release a toolset",
            "description": "Gives back the toolset that this connection leased. The list of tools is as it was before.",
            "inputSchema": none,
            "annotations": { "readOnlyHint": false, "destructiveHint": false, "openWorldHint": false },
        }),
    ]
}

/// The three tools of the compact door.
pub(super) fn compact_tools() -> Vec<Value> {
    vec![
        json!({
            "name": SEARCH,
            "title": "Search tools",
            "description": "Finds tools by words of their names, titles, descriptions and parameters. Gives names for tools_describe and tools_call, the best first.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": { "type": "string", "description": "A few words. Empty lists all tools by name." },
                    "limit": { "type": "integer", "minimum": 1, "maximum": 50, "description": "How many; 10 when it is absent." },
                    "server": { "type": "string", "description": "Only tools of this server." },
                },
                "required": ["query"],
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }),
        json!({
            "name": DESCRIBE,
            "title": "Describe tools",
            "description": "Gives the whole definitions of tools, with the schemas of their arguments.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "names": {
                        "type": "array",
                        "items": { "type": "string" },
                        "minItems": 1,
                        "maxItems": 20,
                        "description": "Names that tools_search gave.",
                    },
                },
                "required": ["names"],
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }),
        json!({
            "name": CALL,
            "title": "Call a tool",
            "description": "Calls a tool with arguments as its definition wants them, and gives its result as it is.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "A name that tools_search gave." },
                    "arguments": { "type": "object", "description": "By the schema that tools_describe gives." },
                },
                "required": ["name"],
                "additionalProperties": false,
            },
        }),
    ]
}

/// What a client is told of servers that gave no list of their tools. `None` when all did.
pub(super) fn missing(servers: &[ServerId]) -> Option<Value> {
    let names: Vec<_> = servers.iter().map(ServerId::as_str).collect();
    (!names.is_empty()).then(|| {
        let words =
            format!("{} gave no list of tools: their tools are not shown", names.join(", "));
        json!({ "missing": names, "message": words, "next": "ringfence report" })
    })
}

/// A result with data.
pub(super) fn answer(value: &Value) -> Value {
    json!({
        "content": [{ "type": "text", "text": value.to_string() }],
        "structuredContent": value,
        "isError": false,
    })
}

/// A result that says what was wrong with the arguments.
pub(super) fn failed(words: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": words }], "isError": true })
}

/// What [`TOOLSETS`] answers.
pub(super) fn toolsets(all: &BTreeMap<Id, Toolset>, now: &Selection) -> Value {
    let row = |(id, toolset): (&Id, &Toolset)| {
        let servers: Vec<_> = toolset.servers.iter().map(ToString::to_string).collect();
        json!({
            "name": id.as_str(),
            "servers": servers,
            "default": toolset.default,
            "selected": now.toolset() == Some(id),
        })
    };
    json!({ "toolsets": all.iter().map(row).collect::<Vec<_>>() })
}
