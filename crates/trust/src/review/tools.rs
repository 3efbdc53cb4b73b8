//! What the lock pins of a server's tools, as data and as lines.

use ringfence_bundle::ToolPins;
use serde::Serialize;
use serde_json::Value;

use super::text::shown;

/// Most characters of a description or of a server's instructions.
const MOST_TEXT: usize = 600;

/// Most characters of a schema.
const MOST_SCHEMA: usize = 300;

/// Most further fields of one tool.
const MOST_FIELDS: usize = 60;

/// Most tools of one server.
const MOST_TOOLS: usize = 100;

/// What one server said of itself when it was last asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolsCard {
    /// What it tells a model about itself.
    pub instructions: Option<String>,
    /// Each tool.
    pub tools: Vec<ToolCard>,
}

/// One tool, as it is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolCard {
    /// Name.
    pub name: String,
    /// Digest of its definition.
    pub digest: String,
    /// What people are told it is called.
    pub title: Option<String>,
    /// What models are told it does.
    pub description: Option<String>,
    /// What it takes: its schema.
    pub input: Value,
    /// What it gives: its schema, where it has one.
    pub output: Value,
    /// What it says about its effects. Hints only: no gate is lowered for them.
    pub annotations: Value,
    /// All of it, as it is pinned: a model may be shown any field.
    pub definition: Value,
}

/// The card of one server's pins.
pub(super) fn tools_card(pins: &ToolPins) -> ToolsCard {
    let tools = pins.tools.iter().map(|pin| {
        let part = |key: &str| pin.definition.get(key).cloned().unwrap_or_default();
        let words = |key: &str| part(key).as_str().map(str::to_owned);
        ToolCard {
            name: pin.name.to_string(),
            digest: pin.digest.to_string(),
            title: words("title"),
            description: words("description"),
            input: part("inputSchema"),
            output: part("outputSchema"),
            annotations: part("annotations"),
            definition: pin.definition.clone(),
        }
    });
    ToolsCard { instructions: pins.instructions.clone(), tools: tools.collect() }
}

impl ToolsCard {
    /// Escaped lines, cut with the count and digest of what is left out.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(text) = &self.instructions {
            lines.push(format!("instructions to the model: {}", shown(text, MOST_TEXT)));
        }
        for tool in self.tools.iter().take(MOST_TOOLS) {
            lines.push(format!("tool {} ({})", shown(&tool.name, MOST_TEXT), tool.digest));
            let mut add = |what: &str, text: String| lines.push(format!("  {what}: {text}"));
            if let Some(title) = &tool.title {
                add("title", shown(title, MOST_SCHEMA));
            }
            if let Some(description) = &tool.description {
                add("description", shown(description, MOST_TEXT));
            }
            add("takes", summary(&tool.input));
            if !tool.output.is_null() {
                add("gives", summary(&tool.output));
            }
            if !tool.annotations.is_null() {
                add("says of itself", shown(&tool.annotations.to_string(), MOST_SCHEMA));
            }
            let mut fields = Vec::new();
            further(&tool.definition, &mut Vec::new(), &mut fields);
            for (path, value) in fields.iter().take(MOST_FIELDS) {
                add(&format!("field {}", shown(path, MOST_SCHEMA)), shown(value, MOST_TEXT));
            }
            let left = fields.len().saturating_sub(MOST_FIELDS);
            if left > 0 {
                add("…", format!("and {left} more fields, not shown here; --json shows all"));
            }
        }
        let left = self.tools.len().saturating_sub(MOST_TOOLS);
        if left > 0 {
            lines.push(format!("… and {left} more tools, not shown here; --json shows all"));
        }
        lines
    }
}

/// Every field that no other line of the card shows, by its path: what a parameter is said to be for,
/// default values, nested schemas, whatever else the server adds. A model reads these as well.
fn further<'v>(value: &'v Value, path: &mut Vec<&'v str>, all: &mut Vec<(String, String)>) {
    match (&path[..], value) {
        (["name" | "title" | "description"], Value::String(_))
        | (["annotations"], _)
        | (["inputSchema" | "outputSchema", "properties", _, "type"], Value::String(_)) => {}
        (["inputSchema" | "outputSchema", "type"], Value::String(kind)) if kind == "object" => {}
        (_, Value::Object(fields)) if !fields.is_empty() => {
            let schema = matches!(path[..], ["inputSchema" | "outputSchema"]);
            let known = |name: &Value| {
                let properties = fields.get("properties");
                name.as_str()
                    .is_some_and(|name| properties.is_some_and(|it| it.get(name).is_some()))
            };
            for (key, value) in fields {
                let marked = schema && key == "required";
                if marked && value.as_array().is_some_and(|names| names.iter().all(known)) {
                    continue;
                }
                path.push(key);
                further(value, path, all);
                path.pop();
            }
        }
        (_, Value::Array(items))
            if items.iter().any(|item| item.is_object() || item.is_array()) =>
        {
            for item in items {
                path.push("[]");
                further(item, path, all);
                path.pop();
            }
        }
        // Shown by its name and its type, or by a line of its own.
        (["inputSchema" | "outputSchema"] | ["inputSchema" | "outputSchema", "properties"], _)
        | (["inputSchema" | "outputSchema", "properties", _], Value::Object(_)) => {}
        (_, Value::String(text)) => all.push((path.join("."), text.clone())),
        (_, other) => all.push((path.join("."), other.to_string())),
    }
}

/// A schema in a line: each property with its type, the required ones marked; the whole where it is
/// not of that form.
fn summary(schema: &Value) -> String {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return match schema {
            Value::Null => "nothing it declares".to_owned(),
            other => shown(&other.to_string(), MOST_SCHEMA),
        };
    };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let row = |(name, property): (&String, &Value)| {
        let kind = match property.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            Some(other) => other.to_string(),
            None => "anything".to_owned(),
        };
        let must = if required.contains(&name.as_str()) { " (required)" } else { "" };
        format!("{name}: {kind}{must}")
    };
    let rows: Vec<String> = properties.iter().map(row).collect();
    let rows = if rows.is_empty() { "nothing".to_owned() } else { rows.join(", ") };
    shown(&rows, MOST_SCHEMA)
}
