//! The statement (in-toto attestation framework 1.0): which bytes it is about, and what it says.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Flaw, Signed};

/// The statement's own type.
const TYPE: &str = "https://in-toto.io/Statement/v1";

/// A statement about files, each by name and SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Statement<P> {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: P,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    name: String,
    digest: Hex,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hex {
    sha256: String,
}

/// Whose bundle it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
}

impl<P: Serialize + DeserializeOwned> Statement<P> {
    /// A statement about these files.
    pub(crate) fn new(predicate_type: &str, subject: &[(&str, String)], predicate: P) -> Self {
        let one = |(name, hex): &(&str, String)| Subject {
            name: (*name).to_owned(),
            digest: Hex { sha256: hex.clone() },
        };
        Self {
            kind: TYPE.to_owned(),
            subject: subject.iter().map(one).collect(),
            predicate_type: predicate_type.to_owned(),
            predicate,
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers always have a JSON form")
    }

    /// What a verified payload states, if it is of this type and about files of these names, in this
    /// order: their digests and the predicate. A key that stands twice or that is not known refuses
    /// the whole.
    pub(crate) fn of(
        signed: &Signed,
        predicate_type: &str,
        names: &[&str],
    ) -> Result<(Vec<String>, P), Flaw> {
        let statement: Self = serde_json::from_slice(signed.payload())
            .map_err(|error| Flaw::Statement(error.to_string()))?;
        let wrong = |what: &str| Err(Flaw::Statement(what.to_owned()));
        if statement.kind != TYPE {
            return wrong("it is no in-toto statement, version 1");
        }
        if statement.predicate_type != predicate_type {
            return wrong(&format!("its predicate type is not {predicate_type}"));
        }
        if !statement.subject.iter().map(|subject| subject.name.as_str()).eq(names.iter().copied())
        {
            return wrong(&format!("its subjects are not {}", names.join(" and ")));
        }
        let digests: Vec<String> =
            statement.subject.into_iter().map(|subject| subject.digest.sha256).collect();
        if !digests.iter().all(|digest| is_hex(digest)) {
            return wrong("a digest is not 64 lower-case hex digits");
        }
        Ok((digests, statement.predicate))
    }
}

/// SHA-256 in 64 lower-case hex digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether it is 64 lower-case hex digits.
pub(crate) fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
