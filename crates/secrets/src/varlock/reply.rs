//! What `varlock load --format json-full` prints.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use zeroize::Zeroizing;

use crate::Secret;

/// By name: the value, or why it is none; `None` where it has none.
pub(super) type Values = BTreeMap<String, Option<Result<Secret, &'static str>>>;

#[derive(Deserialize)]
struct Reply {
    config: BTreeMap<String, Item>,
    #[serde(default)]
    errors: Errors,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    value: Option<Scalar>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Errors {
    /// By name; their texts may hold values and are not kept.
    #[serde(default)]
    config_items: BTreeMap<String, de::IgnoredAny>,
}

/// A value as the text that a variable would have.
struct Scalar(Zeroizing<String>);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or a boolean")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(Zeroizing::new(text.to_owned())))
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(Zeroizing::new(value.to_string())))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(Zeroizing::new(value.to_string())))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(Zeroizing::new(value.to_string())))
            }
        }
        from.deserialize_any(Text)
    }
}

/// Every name that varlock knows.
pub(super) fn values(json: &[u8]) -> Result<Values, String> {
    // The parser's own words could quote a value.
    let reply: Reply = serde_json::from_slice(json)
        .map_err(|_| "its answer is not what `varlock load --format json-full` gives".to_owned())?;
    let wrong = reply.errors.config_items;
    let value = |(name, item): (String, Item)| {
        let text = item.value.filter(|Scalar(text)| !text.is_empty());
        let value = text.map(|Scalar(text)| {
            if wrong.contains_key(&name) {
                return Err("varlock finds the value wrong: `varlock load` says why");
            }
            Secret::from_bytes(Zeroizing::new(text.as_bytes().to_vec()))
        });
        (name, value)
    };
    Ok(reply.config.into_iter().map(value).collect())
}
