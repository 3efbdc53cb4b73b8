//! The serialised form of a ruleset: everything as it was declared, nothing computed.

use std::collections::BTreeMap;

use ringfence_bundle::{
    Egress, Filesystem, Host, HostRule, Isolation, Pattern, Places, PolicyTables, SecretName,
    ServerId, ToolName,
};
use serde::{Deserialize, Serialize};

use crate::Ceilings;

/// The format that this program writes, and the newest it reads.
/// 2: a host may be `opaque`, and the machine may refuse that.
pub(crate) const VERSION: u32 = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wire {
    pub(crate) version: u32,
    pub(crate) machine: Rules,
    pub(crate) ceilings: Ceilings,
    pub(crate) bundle: Rules,
    pub(crate) declared: Declared,
}

/// `[policy.*]` of one layer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    /// What a person calls the file.
    pub(crate) file: String,
    pub(crate) tools: BTreeMap<String, Vec<Line>>,
    pub(crate) egress: BTreeMap<String, Vec<Line>>,
    pub(crate) secrets: BTreeMap<String, Vec<Line>>,
    pub(crate) filesystem: Files,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Files {
    pub(crate) read: Option<Vec<Line>>,
    pub(crate) write: Option<Vec<Line>>,
    pub(crate) deny: Vec<Line>,
}

/// One pattern and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) line: u32,
    /// What a person calls its file, where that is another than the layer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}

/// What the manifest says of the things themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Declared {
    /// The stronger of the declared level and the capabilities' floor.
    pub(crate) isolation: Isolation,
    pub(crate) max_duration_seconds: Option<u64>,
    pub(crate) max_per_run_usd: Option<String>,
    pub(crate) max_per_day_usd: Option<String>,
    pub(crate) max_per_month_usd: Option<String>,
    pub(crate) credentials: Vec<SecretName>,
    pub(crate) egress: Egress,
    pub(crate) allowed_hosts: Vec<HostRule>,
    pub(crate) servers: BTreeMap<ServerId, Server>,
    /// Host to what it belongs to, in words.
    pub(crate) gateway_only: BTreeMap<Host, String>,
    pub(crate) proceed_on_timeout: bool,
    pub(crate) approver_keys: Vec<String>,
    pub(crate) peers: Vec<String>,
    pub(crate) approvals: Vec<Approval>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) tools: Option<Vec<ToolName>>,
    pub(crate) methods: Vec<String>,
    pub(crate) allowed_hosts: Vec<HostRule>,
}

/// One `[[approvals.require]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approval {
    pub(crate) server: Option<ServerId>,
    pub(crate) tool: ToolName,
    pub(crate) when: Option<When>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct When {
    pub(crate) pointer: String,
    pub(crate) test: Test,
}

/// Values are kept as JSON text: the canonical form that is digested holds numbers as doubles, and
/// two rules that differ only beyond a double must not have one digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Test {
    Equals(String),
    Prefix(String),
    Matches(String),
    GreaterThan(String),
    OneOf(Vec<String>),
}

impl Rules {
    /// `places` says for a layer of more than one file in which of them a pattern stands.
    pub(crate) fn new(file: &str, tables: &PolicyTables, places: &Places) -> Self {
        let table = |name: &str, table: &BTreeMap<String, Vec<Pattern>>| {
            table
                .iter()
                .map(|(key, list)| (key.clone(), lines(file, list, places, name, key)))
                .collect()
        };
        let files = |key, list: &[Pattern]| lines(file, list, places, "filesystem", key);
        let Filesystem { read, write, deny } = &tables.filesystem;
        Self {
            file: file.to_owned(),
            tools: table("tools", &tables.tools),
            egress: table("egress", &tables.egress),
            secrets: table("secrets", &tables.secrets),
            filesystem: Files {
                read: read.as_deref().map(|list| files("read", list)),
                write: write.as_deref().map(|list| files("write", list)),
                deny: files("deny", deny),
            },
        }
    }

    /// What a person calls the file in which a line stands.
    pub(crate) fn file_of<'a>(&'a self, line: &'a Line) -> &'a str {
        line.file.as_deref().unwrap_or(&self.file)
    }
}

fn lines(file: &str, patterns: &[Pattern], places: &Places, table: &str, key: &str) -> Vec<Line> {
    let other = |n: usize| {
        let name = places.file(&format!("policy.{table}.{key}[{n}]"))?.file_name()?.to_str()?;
        (name != file).then(|| name.to_owned())
    };
    patterns
        .iter()
        .enumerate()
        .map(|(n, p)| Line {
            text: p.text.clone(),
            line: u32::try_from(p.line).unwrap_or(u32::MAX),
            file: if places.is_layered() { other(n) } else { None },
        })
        .collect()
}
