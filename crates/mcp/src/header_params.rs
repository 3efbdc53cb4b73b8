//! Arguments of a tool that stand in HTTP headers too (2026-07-28, `x-mcp-header`).

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use http::{HeaderMap, HeaderName};
use serde_json::Value;

use crate::http_client::header_text;

/// Headers of one tool.
const MOST: usize = 64;
/// Properties inside one another.
const DEEPEST: usize = 16;

/// One argument and the header that must repeat it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParam {
    header: HeaderName,
    /// Names of properties, from the arguments inwards.
    path: Vec<String>,
}

impl HeaderParam {
    /// The headers that a tool's input schema asks for: `x-mcp-header` on properties that are
    /// reached through `properties` alone. An annotation that is not valid asks for nothing.
    #[must_use]
    pub fn of_schema(schema: &Value) -> Vec<Self> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        collect(schema, &mut Vec::new(), &mut |header, path: &[&str]| {
            let name = HeaderName::from_bytes(format!("mcp-param-{header}").as_bytes());
            if let Ok(header) = name
                && !path.is_empty()
                && found.len() < MOST
                && seen.insert(header.clone())
            {
                let path = path.iter().map(|name| (*name).to_owned()).collect();
                found.push(Self { header, path });
            }
        });
        found
    }

    /// Whether the header says what the arguments say: both the same, or both nothing.
    pub(crate) fn matches(&self, headers: &HeaderMap, arguments: Option<&Value>) -> bool {
        let found = arguments
            .and_then(|root| self.path.iter().try_fold(root, |value, name| value.get(name)));
        let said = match found {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Bool(flag)) => Some(flag.to_string()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        match headers.get(&self.header) {
            None => said.is_none(),
            Some(value) => {
                let text = value.to_str().ok().and_then(header_text);
                text.is_some() && text == said
            }
        }
    }
}

fn collect<'s>(schema: &'s Value, path: &mut Vec<&'s str>, found: &mut impl FnMut(&str, &[&str])) {
    if path.len() > DEEPEST {
        return;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        path.push(name);
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str)
            && !header.is_empty()
        {
            found(header, path);
        }
        collect(property, path, found);
        path.pop();
    }
}
