//! What an archive says about itself, signed: which bundle it is, and every member of it.

use ringfence_identity::Signer;
use serde::{Deserialize, Serialize};

use super::Fault;
use super::member::{Names, cut};
use crate::sign::{Agent, Flaw, Signed, Statement, is_hex, seal, sha256, unseal};

/// The name of the first member.
pub(crate) const ATTESTATION: &str = "attestation.json";

/// Most bytes of an attestation.
pub(crate) const MAX_ATTESTATION: usize = 32 << 20;

/// What it states: that these are the members of the bundle's archive.
const PREDICATE: &str = "urn:ringfence:archive:1";

/// The one subject: the list of members.
const SUBJECT: [&str; 1] = ["members"];

/// Most members.
const MAX_MEMBERS: usize = 100_000;
/// Most bytes of all members.
pub(super) const MAX_TOTAL: u64 = 1 << 30;
/// Most bytes of one, as of a pinned file.
const MAX_FILE: u64 = 64 << 20;

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) path: String,
    pub(crate) executable: bool,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// Which bundle it is, and what is in the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    /// Always with a version.
    pub(crate) agent: Agent,
    /// SHA-256 of the manifest.
    pub(crate) manifest: String,
    /// SHA-256 of the lock.
    pub(crate) lock: String,
    /// Sorted by path.
    pub(crate) members: Vec<Row>,
}

impl About {
    /// Signs it.
    pub(super) fn seal(self, signer: &Signer) -> Vec<u8> {
        let subject = [(SUBJECT[0], sha256(listing(&self.members).as_bytes()))];
        seal(signer, &Statement::new(PREDICATE, &subject, self).bytes())
    }

    /// The rules that hold for every archive, whoever signed it.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let statement = |what: &str| Err(Fault::Flaw(Flaw::Statement(what.to_owned())));
        if check_named(&self.agent).is_err() {
            return statement("it names no agent and version that an archive can have");
        }
        if self.members.len() > MAX_MEMBERS {
            return Err(Fault::TooLarge("more than 100,000 members".to_owned()));
        }
        let mut names = Names::default();
        let mut total: u64 = 0;
        let mut last = "";
        for row in &self.members {
            names.add(&row.path)?;
            if row.path.as_str() <= last {
                return statement("its members are not sorted");
            }
            last = &row.path;
            if !is_hex(&row.sha256) {
                return statement("a digest is not 64 lower-case hex digits");
            }
            total = total.saturating_add(row.size);
            if row.size > MAX_FILE || total > MAX_TOTAL {
                let what = "a member holds at most 64 MiB, all together 1 GiB".to_owned();
                return Err(Fault::TooLarge(format!("`{}`: {what}", cut(&row.path))));
            }
        }
        Ok(())
    }
}

/// Reads an attestation: envelope, signature, statement, and the rules for names and sizes.
pub(crate) fn read_attestation(bytes: &[u8]) -> Result<(Signed, About), Fault> {
    let signed = unseal(bytes, MAX_ATTESTATION)?;
    let (digests, about) = Statement::<About>::of(&signed, PREDICATE, &SUBJECT)?;
    if digests[0] != sha256(listing(&about.members).as_bytes()) {
        let what = "its subject is not the list of its members".to_owned();
        return Err(Fault::Flaw(Flaw::Statement(what)));
    }
    about.check()?;
    Ok((signed, about))
}

/// What an archive may be named after: an agent's name, and a version that is a plain file name.
pub(crate) fn check_named(agent: &Agent) -> Result<(), &'static str> {
    let name = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".+-".contains(&b);
    if !(1..=63).contains(&agent.name.len())
        || !agent.name.bytes().all(name)
        || agent.name.starts_with('-')
    {
        return Err("`agent.name` is missing, or not 1 to 63 of a-z, 0-9 and `-`");
    }
    match agent.version.as_deref() {
        None => Err("an archive is named after `agent.version`, and the manifest has none"),
        Some(version)
            if (1..=64).contains(&version.len())
                && version.bytes().all(plain)
                && version.as_bytes()[0].is_ascii_alphanumeric() =>
        {
            Ok(())
        }
        Some(_) => Err("to be shared, `agent.version` has 1 to 64 of a-z, 0-9, `.`, `+` and `-`, \
                        and begins with a letter or digit"),
    }
}

/// The list of members as the subject's digest is taken over it: a line each.
fn listing(members: &[Row]) -> String {
    let mut text = String::new();
    for Row { path, executable, size, sha256 } in members {
        let mode = if *executable { "755" } else { "644" };
        text.push_str(&format!("{mode} {sha256} {size} {path}\n"));
    }
    text
}
