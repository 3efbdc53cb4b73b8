//! Arguments of tools that a server wants to see in headers (2026-07-28, custom headers).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};

use super::header_value;
use crate::{RpcError, code};

const ANNOTATION: &str = "x-mcp-header";
/// Tools with annotations that are remembered; those beyond are not on offer.
const TOOLS: usize = 4096;
/// Annotations of one tool.
const HEADERS: usize = 64;
/// Bytes of the names of one tool and its annotations.
const NAMES: usize = 16 * 1024;
/// Bytes of one argument in a header.
const VALUE: usize = 64 * 1024;
/// Schemas inside one another that are looked into.
const DEPTH: usize = 64;

/// Where an argument is, and its header.
type Mirrored = (Vec<String>, HeaderName);

/// What the lists that went by said.
#[derive(Default)]
pub(super) struct ParamHeaders(Mutex<HashMap<String, Vec<Mirrored>>>);

impl ParamHeaders {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Mirrored>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns from one page of `tools/list`. Tools whose annotations are not valid are taken out of
    /// it, as the revision demands; gives their number.
    pub(super) fn learn(&self, page: &mut Value) -> usize {
        let Some(tools) = page.get_mut("tools").and_then(Value::as_array_mut) else { return 0 };
        let before = tools.len();
        let mut known = self.lock();
        tools.retain(|tool| {
            let Some(name) = tool.get("name").and_then(Value::as_str) else { return true };
            known.remove(name);
            match read(name, tool.get("inputSchema")) {
                Err(Invalid) => false,
                Ok(mirrored) if mirrored.is_empty() => true,
                Ok(_) if known.len() >= TOOLS => false,
                Ok(mirrored) => {
                    known.insert(name.to_owned(), mirrored);
                    true
                }
            }
        });
        before - tools.len()
    }

    /// The headers of a call.
    pub(super) fn add(
        &self,
        headers: &mut HeaderMap,
        params: Option<&Value>,
    ) -> Result<(), RpcError> {
        let name = params.and_then(|p| p.get("name")).and_then(Value::as_str).unwrap_or_default();
        let known = self.lock();
        let Some(mirrored) = known.get(name) else { return Ok(()) };
        for (path, header) in mirrored {
            let arguments = params.and_then(|params| params.get("arguments"));
            let value = path.iter().try_fold(arguments, |at, key| Some(at?.get(key)));
            let text = match value.flatten() {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Bool(value)) => value.to_string(),
                Some(Value::Number(number)) => number.to_string(),
                _ => continue,
            };
            let value = (text.len() <= VALUE).then(|| header_value(&text)).flatten();
            let refused = || {
                let words = format!("the argument {} does not fit a header", path.join("."));
                RpcError::new(code::INVALID_PARAMS, words)
            };
            headers.insert(header.clone(), value.ok_or_else(refused)?);
        }
        Ok(())
    }
}

/// The annotations break a rule of the revision, or are too many.
#[derive(Debug, PartialEq)]
struct Invalid;

fn read(name: &str, schema: Option<&Value>) -> Result<Vec<Mirrored>, Invalid> {
    let Some(schema) = schema.and_then(Value::as_object) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    collect(schema, Some(&mut Vec::new()), &mut found, 0)?;
    let mut seen = HashSet::new();
    let mut size = name.len();
    for (path, header) in &found {
        size += path.iter().map(String::len).sum::<usize>() + header.as_str().len();
        // Header names are lower case here.
        if !seen.insert(header.as_str()) {
            return Err(Invalid);
        }
    }
    if found.len() > HEADERS || (!found.is_empty() && size > NAMES) {
        return Err(Invalid);
    }
    Ok(found)
}

/// `path` leads here through `properties` alone; otherwise nothing here may be annotated.
fn collect(
    schema: &Map<String, Value>,
    mut path: Option<&mut Vec<String>>,
    found: &mut Vec<Mirrored>,
    depth: usize,
) -> Result<(), Invalid> {
    if depth > DEPTH {
        return Err(Invalid);
    }
    if let Some(annotation) = schema.get(ANNOTATION) {
        let path = path.as_deref().filter(|path| !path.is_empty()).ok_or(Invalid)?;
        let name = annotation.as_str().filter(|name| !name.is_empty()).ok_or(Invalid)?;
        let kind = schema.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err(Invalid);
        }
        let header = HeaderName::from_bytes(format!("Mcp-Param-{name}").as_bytes());
        found.push((path.clone(), header.map_err(|_| Invalid)?));
    }
    for (key, value) in schema {
        match key.as_str() {
            "properties" => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    let Some(property) = property.as_object() else { continue };
                    match path.as_deref_mut() {
                        Some(path) => {
                            path.push(name.clone());
                            collect(property, Some(path), found, depth + 1)?;
                            path.pop();
                        }
                        None => collect(property, None, found, depth + 1)?,
                    }
                }
            }
            // Names to schemas.
            "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties" => {
                for inner in value.as_object().into_iter().flat_map(Map::values) {
                    off_path(inner, found, depth + 1)?;
                }
            }
            // Values and names, not schemas.
            "default" | "const" | "enum" | "examples" | "dependentRequired" | ANNOTATION => {}
            _ => off_path(value, found, depth + 1)?,
        }
    }
    Ok(())
}

fn off_path(value: &Value, found: &mut Vec<Mirrored>, depth: usize) -> Result<(), Invalid> {
    match value {
        Value::Object(schema) => collect(schema, None, found, depth),
        Value::Array(all) => all.iter().try_for_each(|inner| off_path(inner, found, depth)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use serde_json::{Value, json};

    use super::ParamHeaders;

    fn tool(schema: Value) -> Value {
        json!({"name": "t", "inputSchema": schema})
    }

    fn kept(schema: Value) -> bool {
        let headers = ParamHeaders::default();
        let mut page = json!({"tools": [tool(schema), {"name": "other"}]});
        let dropped = headers.learn(&mut page);
        assert_eq!(page["tools"].as_array().unwrap().len(), 2 - dropped);
        dropped == 0
    }

    #[test]
    fn invalid_annotations_take_the_tool_off_the_list() {
        let property = |p: Value| json!({"type": "object", "properties": {"a": p}});
        let named = |name: &str| property(json!({"type": "string", "x-mcp-header": name}));
        assert!(kept(property(json!({"type": "string"}))));
        assert!(kept(named("Region")));
        assert!(kept(property(json!({"type": "integer", "x-mcp-header": "N"}))));
        assert!(kept(property(
            json!({"properties": {"b": {"type": "boolean", "x-mcp-header": "B"}}})
        )));
        assert!(kept(json!({"default": {"x-mcp-header": "a value"}})));
        for name in ["", "My Region", "Region:Primary", "Région", "Region\t1", "a\r\nb"] {
            assert!(!kept(named(name)), "{name:?}");
        }
        for kind in ["object", "array", "null", "number"] {
            assert!(!kept(property(json!({"type": kind, "x-mcp-header": "N"}))), "{kind}");
        }
        assert!(!kept(property(json!({"type": "string", "x-mcp-header": 1}))));
        assert!(!kept(json!({"type": "string", "x-mcp-header": "Root"})));
        let both = |a: &str, b: &str| {
            let p = |name: &str| json!({"type": "string", "x-mcp-header": name});
            json!({"properties": {"a": p(a), "b": p(b)}})
        };
        assert!(kept(both("A", "B")));
        assert!(!kept(both("A", "A")) && !kept(both("MyField", "myfield")));
        let inner = json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}}});
        for off in ["items", "anyOf", "if", "$defs", "additionalProperties", "patternProperties"] {
            let schema = match off {
                "anyOf" => json!({"anyOf": [inner]}),
                "$defs" | "patternProperties" => json!({off: {"x": inner}}),
                _ => json!({off: inner}),
            };
            assert!(!kept(schema), "{off}");
        }
        let mut deep = json!({"type": "string", "x-mcp-header": "A"});
        for _ in 0..200 {
            deep = json!({"properties": {"a": deep}});
        }
        assert!(!kept(deep));
    }

    #[test]
    fn arguments_are_mirrored() {
        let known = ParamHeaders::default();
        let mut page = json!({"tools": [tool(json!({"properties": {
            "s": {"type": "string", "x-mcp-header": "S"},
            "n": {"type": "integer", "x-mcp-header": "N"},
            "b": {"type": "boolean", "x-mcp-header": "B"},
            "gone": {"type": "string", "x-mcp-header": "Gone"},
            "deep": {"properties": {"x": {"type": "string", "x-mcp-header": "X"}}},
            "plain": {"type": "string"},
        }}))]});
        assert_eq!(known.learn(&mut page), 0);
        let mut headers = HeaderMap::new();
        let arguments = json!({"s": " é", "n": -7, "b": true, "gone": null, "deep": {"x": "y z"}, "plain": "p"});
        let params = json!({"name": "t", "arguments": arguments});
        known.add(&mut headers, Some(&params)).unwrap();
        let has = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(has("mcp-param-s"), Some("=?base64?IMOp?="));
        assert_eq!(has("mcp-param-n"), Some("-7"));
        assert_eq!(has("mcp-param-b"), Some("true"));
        assert_eq!(has("mcp-param-x"), Some("y z"));
        assert_eq!(headers.len(), 4);
        let large = json!({"name": "t", "arguments": {"s": "x".repeat(70_000)}});
        assert!(known.add(&mut HeaderMap::new(), Some(&large)).is_err());
        let mut other = HeaderMap::new();
        known.add(&mut other, Some(&json!({"name": "u", "arguments": arguments}))).unwrap();
        assert!(other.is_empty());
        // A tool that is annotated no longer is not mirrored any more.
        known.learn(&mut json!({"tools": [{"name": "t", "inputSchema": {}}]}));
        known.add(&mut other, Some(&params)).unwrap();
        assert!(other.is_empty());
    }
}
