//! Reading what a run recorded, without depending on how a line is framed.

use serde_json::Value;

/// The events of one run or report, in order.
#[derive(Debug, Clone)]
pub struct Events(pub Vec<Value>);

/// A field of an event as text; numbers and booleans as they are written, absent as "".
#[must_use]
pub fn field(event: &Value, name: &str) -> String {
    match &event[name] {
        Value::String(s) => s.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Every object below `value` that has a text under `type`.
fn collect(value: &Value, into: &mut Vec<Value>) {
    match value {
        Value::Object(map) => {
            if map.get("type").is_some_and(Value::is_string) {
                into.push(value.clone());
            }
            map.values().for_each(|v| collect(v, into));
        }
        Value::Array(list) => list.iter().for_each(|v| collect(v, into)),
        _ => {}
    }
}

impl Events {
    /// Parses a record: one JSON value a line.
    ///
    /// # Panics
    /// When a line is not JSON.
    #[must_use]
    pub fn from_lines(text: &str) -> Self {
        let mut all = Vec::new();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            collect(&value, &mut all);
        }
        Self(all)
    }

    /// The events inside any JSON value, such as a report.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let mut all = Vec::new();
        collect(value, &mut all);
        Self(all)
    }

    /// Events of this type whose fields have these values.
    #[must_use]
    pub fn with(&self, kind: &str, fields: &[(&str, &str)]) -> Vec<&Value> {
        self.0
            .iter()
            .filter(|e| e["type"] == kind && fields.iter().all(|(k, v)| field(e, k) == *v))
            .collect()
    }

    /// Panics unless there is such an event.
    #[track_caller]
    pub fn has(&self, kind: &str, fields: &[(&str, &str)]) -> &Value {
        let found = self.with(kind, fields);
        assert!(!found.is_empty(), "no {kind} with {fields:?} among {:#?}", self.0);
        found[0]
    }

    /// Panics if there is such an event.
    #[track_caller]
    pub fn lacks(&self, kind: &str, fields: &[(&str, &str)]) {
        let found = self.with(kind, fields);
        assert!(found.is_empty(), "there is {found:#?}");
    }
}
