//! What is delivered to agent CLIs: skills, instructions, settings, hooks, extensions, workflows,
//! toolsets.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::{clis, hints};
use crate::decode::{Table, Value};
use crate::manifest::{Delivery, Extension, Hook, RenderLocally, Source, Toolset};
use crate::{Id, check_relative, text};

pub(super) fn sources(root: &Table<'_>, key: &str) -> BTreeMap<Id, Source> {
    super::named(root, key, source)
}

fn source(table: &Table<'_>) -> Option<Source> {
    let path = table.get("path");
    let git = table.get("git");
    let library = table.get("library");
    let (rev, subpath) = (table.get("rev"), table.get("subpath"));
    let count = [&path, &git, &library].iter().filter(|value| value.is_some()).count();
    if count != 1 {
        let message = "expected exactly one of `path`, `git` and `library`".to_owned();
        table.error("bad-source", message, None);
        return None;
    }
    if git.is_none() {
        for value in [&rev, &subpath].into_iter().flatten() {
            value.error("bad-source", "it belongs to a `git` source".to_owned(), None);
        }
    }
    if let Some(path) = path {
        let path = path.parsed_or("bad-path", relative, hints::path)?;
        return Some(Source::Path { path });
    }
    if let Some(library) = library {
        return library
            .parsed("bad-source", library_name)
            .map(|library| Source::Library { library });
    }
    let git = git.and_then(|v| v.parsed("bad-source", repository));
    let rev = table.require("rev").and_then(|v| v.parsed("bad-source", revision));
    let subpath = subpath.and_then(|v| {
        v.parsed("bad-path", |given| relative(&format!("./{given}")).map(|_| given.to_owned()))
    });
    Some(Source::Git { git: git?, rev: rev?, subpath })
}

fn relative(given: &str) -> Result<String, String> {
    check_relative(given).map(|()| given.to_owned())
}

fn repository(given: &str) -> Result<String, String> {
    let fits = (given.starts_with("https://") || given.starts_with("ssh://"))
        && given.len() <= 2048
        && given.bytes().all(|b| b.is_ascii_graphic())
        && !given.contains("://-");
    if fits {
        return Ok(given.to_owned());
    }
    Err(format!("`{}` is not an `https://` or `ssh://` repository", text::shown(given)))
}

fn revision(given: &str) -> Result<String, String> {
    let fits = (1..=255).contains(&given.len())
        && given.as_bytes()[0].is_ascii_alphanumeric()
        && given.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(&b))
        && !given.contains("..");
    if fits {
        return Ok(given.to_owned());
    }
    Err(format!("`{}` is not a commit, tag or branch", text::shown(given)))
}

fn library_name(given: &str) -> Result<String, String> {
    let parts: Vec<&str> = given.split(':').collect();
    if parts.len() <= 2 && parts.iter().all(|part| Id::parse(part).is_ok()) {
        return Ok(given.to_owned());
    }
    Err(format!("`{}` is not `<source>:<name>` or a name", text::shown(given)))
}

pub(super) fn settings(root: &Table<'_>) -> BTreeMap<Id, Map<String, Json>> {
    if let Some(table) = root.table("settings") {
        for (name, _) in table.entries() {
            clis::check_name(&table, name);
        }
    }
    super::named(root, "settings", |table| {
        Some(
            table
                .entries()
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value.json(true)?)))
                .collect(),
        )
    })
}

pub(super) fn hooks(root: &Table<'_>) -> BTreeMap<Id, Hook> {
    super::named(root, "hooks", |table| {
        let event =
            table.require("event").and_then(|v| v.parsed_or("bad-value", event, hints::event));
        let command = table.require("command").and_then(|v| v.text_within(4096));
        Some(Hook { event: event?, command: command?.to_owned() })
    })
}

fn event(given: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&given.len())
        && given.as_bytes()[0].is_ascii_lowercase()
        && given.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if fits {
        return Ok(given.to_owned());
    }
    Err(format!("`{}` is not an event such as `post_tool_use`", text::shown(given)))
}

pub(super) fn extensions(root: &Table<'_>) -> BTreeMap<Id, Extension> {
    super::named(root, "extensions", |table| {
        let source = source(table);
        let target = table.require("target").and_then(|v| clis::cli(&v));
        Some(Extension { source: source?, target: target? })
    })
}

pub(super) fn toolsets(root: &Table<'_>) -> BTreeMap<Id, Toolset> {
    let names = |value: Value<'_>| value.set_of(super::id);
    super::named(root, "toolsets", |table| {
        Some(Toolset {
            servers: table.get("servers").and_then(names).unwrap_or_default(),
            skills: table.get("skills").and_then(names).unwrap_or_default(),
            default: table.get("default").and_then(|v| v.boolean()).unwrap_or_default(),
        })
    })
}

pub(super) fn delivery(root: &Table<'_>) -> Delivery {
    let Some(table) = root.table("delivery") else { return Delivery::default() };
    let render_locally = table.get("render_locally").and_then(|value| {
        if value.is_boolean() {
            value.boolean().map(RenderLocally::All)
        } else {
            value.set_of(clis::cli).map(RenderLocally::Harnesses)
        }
    });
    table.finish();
    Delivery { render_locally: render_locally.unwrap_or_default() }
}
