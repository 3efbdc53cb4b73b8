//! `[servers.*]`

use std::collections::BTreeMap;

use super::{hints, words};
use crate::decode::{Table, Value};
use crate::manifest::{Meter, Pricing, Server, Template, Transport};
use crate::{Endpoint, SecretName, ServerId, ToolName, parse_usd, reserved_variable, text};

pub(super) fn servers(root: &Table<'_>) -> BTreeMap<ServerId, Server> {
    super::named(root, "servers", server)
}

#[derive(Clone, Copy)]
enum Kind {
    Http,
    Stdio,
}

fn server(table: &Table<'_>) -> Option<Server> {
    let reserved = match table.keys() {
        "servers.agent" => Some("`agent` is the reserved name of the agent itself in `[policy]`"),
        "servers.compact" => Some("`compact` is the reserved name of the gateway's compact door"),
        "servers.ringfence" => Some("`ringfence` is the reserved name of the gateway's own tools"),
        _ => None,
    };
    if let Some(message) = reserved {
        let help = "choose another name".to_owned();
        table.error("reserved-name", message.to_owned(), Some(help));
    }
    table.hint(hints::SERVER);
    let kind = kind(table);
    let transport = match kind {
        Some(Kind::Http) => http(table),
        Some(Kind::Stdio) => stdio(table),
        None => {
            // Without a type nobody knows which keys belong: take those of both.
            for key in ["url", "headers", "command", "args", "env", "allowed_hosts"] {
                table.has(key);
            }
            None
        }
    };
    let tool = |item: &Value<'_>| item.parsed_or("bad-name", ToolName::parse, hints::tool);
    let tools = table.get("tools").and_then(|v| v.set_of(tool));
    let methods = table.get("methods").and_then(|v| v.set_of(method)).unwrap_or_default();
    let pricing = table.table("pricing").map(pricing);
    Some(Server { transport: transport?, tools, methods, pricing })
}

/// Which kind it is; where it is not said, which kind the other keys are of, so that they are read
/// all the same.
fn kind(table: &Table<'_>) -> Option<Kind> {
    let (command, url) = (table.holds("command"), table.holds("url"));
    let (guess, help) = match (command, url) {
        (true, false) => (Some(Kind::Stdio), "add `type = \"stdio\"`: it has a `command`"),
        (false, true) => (Some(Kind::Http), "add `type = \"http\"`: it has a `url`"),
        _ => (None, "`type = \"http\"` has a `url`, `type = \"stdio\"` has a `command`"),
    };
    let Some(kind) = table.require_or("type", Some(help.to_owned())) else { return guess };
    let words = [("http", Kind::Http), ("stdio", Kind::Stdio)];
    kind.choice_or(&words, hints::transport).or(guess)
}

fn http(table: &Table<'_>) -> Option<Transport> {
    let headers = headers(table);
    let url = table.require("url")?;
    let endpoint = url.parsed("bad-url", Endpoint::parse)?;
    if !endpoint.tls && !endpoint.host.is_private() {
        url.error(
            "plain-http",
            format!(
                "`http` to {}: anyone on the way could read and change the calls",
                endpoint.host
            ),
            Some("use `https`; `http` is for this machine and private networks".to_owned()),
        );
    }
    Some(Transport::Http { url: endpoint.to_string(), headers })
}

fn headers(table: &Table<'_>) -> BTreeMap<String, Template> {
    let mut found: BTreeMap<String, Template> = BTreeMap::new();
    let Some(table) = table.table("headers") else { return found };
    for (name, value) in table.entries() {
        if let Err(reason) = check_header(name) {
            table.name_error(name, "bad-header", format!("`{}`: {reason}", text::shown(name)));
            continue;
        }
        if found.keys().any(|known| known.eq_ignore_ascii_case(name)) {
            table.name_error(name, "duplicate-key", format!("`{name}` is set twice in other case"));
            continue;
        }
        let Some(template) = template(&value) else { continue };
        if template.as_str().chars().any(|c| c.is_control() || !c.is_ascii()) {
            let message =
                "a header's value is visible ASCII without line ends (RFC 9110)".to_owned();
            value.error("bad-header", message, None);
            continue;
        }
        if is_credential(name) && template.references().is_empty() {
            value.warn(
                "literal-secret",
                format!(
                    "`{name}` holds its value in the file, where everyone who has it can read it"
                ),
                Some("name a host variable instead: `${NAME}`".to_owned()),
            );
        }
        found.insert(name.to_owned(), template);
    }
    table.finish();
    found
}

/// Whether a header usually carries a secret.
fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["authorization", "cookie"].contains(&name.as_str())
        || ["-token", "-key", "-secret"].iter().any(|end| name.ends_with(end))
}

/// A field name (RFC 9110, section 5.1) that the gateway does not set itself.
fn check_header(name: &str) -> Result<(), &'static str> {
    const OWN: [&str; 17] = [
        "host",
        "connection",
        "content-length",
        "content-type",
        "content-encoding",
        "accept",
        "accept-encoding",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "mcp-session-id",
        "mcp-protocol-version",
        "last-event-id",
    ];
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(token) {
        return Err("it is not a header name (RFC 9110)");
    }
    if OWN.contains(&name.to_ascii_lowercase().as_str()) {
        return Err("the gateway sets it itself");
    }
    Ok(())
}

fn stdio(table: &Table<'_>) -> Option<Transport> {
    let args = table.get("args");
    let items = args.as_ref().and_then(|args| args.list()).unwrap_or_default();
    words::check(table.get("command").as_ref(), &items);
    let args = args.and_then(|v| v.list_of(template)).unwrap_or_default();
    let env = environment(table);
    let allowed_hosts = super::sandbox::allowed_hosts(table);
    let command = table.require("command")?.text_within(4096)?.to_owned();
    Some(Transport::Stdio { command, args, env, allowed_hosts })
}

fn environment(table: &Table<'_>) -> BTreeMap<String, Template> {
    let mut found = BTreeMap::new();
    let Some(table) = table.table("env") else { return found };
    for (name, value) in table.entries() {
        if let Err(error) = SecretName::parse(name) {
            table.name_error(name, "bad-name", error.to_string());
        } else if let Some(reason) = reserved_variable(name) {
            let message = format!("`{name}` may not be set for a server: {reason}");
            table.name_error(name, "reserved-variable", message);
        } else if let Some(template) = template(&value) {
            found.insert(name.to_owned(), template);
        }
    }
    table.finish();
    found
}

fn template(value: &Value<'_>) -> Option<Template> {
    value.parsed_or("bad-reference", Template::parse, hints::reference)
}

/// A JSON-RPC method: the handshake and tools need no mention.
fn method(value: &Value<'_>) -> Option<String> {
    let method = value.text()?;
    let fits = (1..=128).contains(&method.len())
        && method.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_-.".contains(&b));
    if !fits {
        let message =
            format!("`{}` is not an MCP method such as `resources/list`", text::shown(method));
        value.error("bad-value", message, None);
        return None;
    }
    if method.starts_with("tools/") {
        let help = "name tools in `tools`; `methods` is for what lies beyond them".to_owned();
        value.error(
            "bad-value",
            format!("`{method}` always goes through the tool list"),
            Some(help),
        );
        return None;
    }
    Some(method.to_owned())
}

fn pricing(table: Table<'_>) -> Pricing {
    let max_usd_per_call = table.get("max_usd_per_call").and_then(|v| cap(&v));
    let meters: Vec<Meter> = table.tables("meters").into_iter().map(meter).collect();
    if meters.is_empty() {
        let message = "a price needs at least one meter".to_owned();
        let help =
            format!("add `[[{}.meters]]` with `usage_path` and `usd_per_unit`", table.keys());
        table.error("no-meters", message, Some(help));
    }
    table.finish();
    Pricing { max_usd_per_call, meters }
}

fn meter(table: Table<'_>) -> Meter {
    let meter = Meter {
        usage_path: table
            .require("usage_path")
            .and_then(|v| v.parsed("bad-value", usage_path))
            .unwrap_or_default(),
        usd_per_unit: table.require("usd_per_unit").and_then(|v| amount(&v)).unwrap_or_default(),
    };
    table.finish();
    meter
}

fn usage_path(given: &str) -> Result<String, String> {
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
    };
    if given.len() <= 256 && given.split('.').all(part) {
        return Ok(given.to_owned());
    }
    Err(format!("`{}` is not a path such as `result.usage.input_tokens`", text::shown(given)))
}

/// An exact amount of USD.
pub(super) fn amount(value: &Value<'_>) -> Option<String> {
    value.parsed("bad-amount", |given| match parse_usd(given) {
        Some(_) => Ok(given.to_owned()),
        None => Err(format!(
            "`{}` is not a decimal with at most 8 places, such as `\"0.05\"`",
            text::shown(given)
        )),
    })
}

/// An exact amount of USD above zero.
pub(super) fn cap(value: &Value<'_>) -> Option<String> {
    let given = amount(value)?;
    if parse_usd(&given) == Some(0) {
        let help = "leave it out for no cap, or remove what would cost".to_owned();
        value.error("zero-cap", "a cap of 0 would stop every run".to_owned(), Some(help));
        return None;
    }
    Some(given)
}
