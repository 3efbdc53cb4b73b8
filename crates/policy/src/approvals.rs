//! Which calls need a person's yes.

use regex::{Regex, RegexBuilder};
use ringfence_bundle::{ServerId, ToolName};
use serde_json::Value;

use crate::Ruleset;
use crate::decimal::Decimal;
use crate::ruleset::BUNDLE_FILE;
use crate::wire::{Approval, Test};

/// Bytes that a compiled expression may take.
const REGEX_LIMIT: usize = 1 << 20;

/// A compiled `[[approvals.require]]`.
#[derive(Debug)]
pub(crate) struct Rule {
    server: Option<ServerId>,
    tool: ToolName,
    when: Option<(String, Check)>,
    /// As a person reads it.
    text: String,
}

#[derive(Debug)]
enum Check {
    Equals(Value),
    Prefix(String),
    Matches(Regex),
    GreaterThan(Decimal),
    OneOf(Vec<Value>),
}

impl Ruleset {
    /// The first `[[approvals.require]]` rule that this call meets, as a person reads it; `None`
    /// when it needs nobody's yes.
    ///
    /// A rule whose pointer finds nothing, or a value of another type than it expects, is met: a
    /// gate is not passed by leaving out what it looks at. Numbers are compared as exact decimals
    /// in the form in which they are sent on.
    #[must_use]
    pub fn approval_needed(&self, server: &ServerId, tool: &str, args: &Value) -> Option<String> {
        self.index()
            .approvals
            .iter()
            .find(|rule| rule.is_met(server, tool, args))
            .map(|rule| rule.text.clone())
    }
}

impl Rule {
    /// Compiles a rule.
    ///
    /// # Errors
    /// What in it is not of the form that its test expects.
    pub(crate) fn new(rule: &Approval) -> Result<Self, String> {
        let server = rule.server.as_ref().map_or("*", ServerId::as_str);
        let mut text = format!(
            "{BUNDLE_FILE} [[approvals.require]] server = \"{server}\" tool = \"{}\"",
            rule.tool
        );
        let when = match &rule.when {
            None => None,
            Some(when) => {
                if !when.pointer.is_empty() && !when.pointer.starts_with('/') {
                    return Err("the pointer does not begin with `/` (RFC 6901)".to_owned());
                }
                let (check, said) = Check::new(&when.test)?;
                text.push_str(&format!(" when {:?} {said}", when.pointer));
                Some((when.pointer.clone(), check))
            }
        };
        Ok(Self { server: rule.server.clone(), tool: rule.tool.clone(), when, text })
    }

    fn is_met(&self, server: &ServerId, tool: &str, args: &Value) -> bool {
        if self.server.as_ref().is_some_and(|id| id != server) || self.tool.as_str() != tool {
            return false;
        }
        match &self.when {
            None => true,
            // Nothing there: required.
            Some((pointer, check)) => args.pointer(pointer).is_none_or(|value| check.is_met(value)),
        }
    }
}

impl Check {
    fn new(test: &Test) -> Result<(Self, String), String> {
        let json = |text: &String| {
            serde_json::from_str::<Value>(text).map_err(|e| format!("not a JSON value: {e}"))
        };
        Ok(match test {
            Test::Equals(text) => (Self::Equals(json(text)?), format!("equals {text}")),
            Test::Prefix(text) => (Self::Prefix(text.clone()), format!("prefix {text:?}")),
            Test::Matches(text) => {
                let regex = RegexBuilder::new(text)
                    .size_limit(REGEX_LIMIT)
                    .dfa_size_limit(REGEX_LIMIT)
                    .build()
                    .map_err(|e| format!("`matches` is no regular expression: {e}"))?;
                (Self::Matches(regex), format!("matches {text:?}"))
            }
            Test::GreaterThan(text) => {
                let number =
                    Decimal::parse(text).ok_or("`greater_than` is not a decimal number")?;
                (Self::GreaterThan(number), format!("greater_than {text:?}"))
            }
            Test::OneOf(texts) => {
                let values = texts.iter().map(json).collect::<Result<_, _>>()?;
                (Self::OneOf(values), format!("one_of [{}]", texts.join(", ")))
            }
        })
    }

    /// Whether this value asks for a yes; another type than expected does.
    fn is_met(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Equals(expected), value) => {
                !same_type(expected, value) || equal(expected, value)
            }
            (Self::OneOf(expected), value) => {
                !expected.iter().any(|e| same_type(e, value))
                    || expected.iter().any(|e| equal(e, value))
            }
            (Self::Prefix(prefix), Value::String(text)) => text.starts_with(prefix),
            (Self::Matches(regex), Value::String(text)) => regex.is_match(text),
            (Self::GreaterThan(bound), Value::Number(number)) => {
                // A number too large to be held is required, like one that is none.
                Decimal::parse(&number.to_string()).is_none_or(|number| number > *bound)
            }
            (Self::Prefix(_) | Self::Matches(_) | Self::GreaterThan(_), _) => true,
        }
    }
}

fn same_type(a: &Value, b: &Value) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// The same JSON value: numbers by what they are worth, objects whatever the order of their keys.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.to_string(), b.to_string());
            match (Decimal::parse(&a), Decimal::parse(&b)) {
                (Some(a), Some(b)) => a == b,
                _ => a == b,
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests;
