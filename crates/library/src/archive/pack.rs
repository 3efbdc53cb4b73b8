//! Packing a locked bundle: the pinned bytes, read once, signed, in the one form.

use std::collections::BTreeMap;
use std::io::Write;

use ringfence_bundle::{Beside, Blob, Content, Objects, Snapshot};
use ringfence_identity::Signer;
use zstd::stream::Encoder;
use zstd::zstd_safe::CParameter;

use super::Fault;
use super::attest::{ATTESTATION, About, MAX_ATTESTATION, Row, check_named};
use super::header::{END, header, padding};
use super::member::{BUNDLE, STORE, cut};
use crate::Error;
use crate::sign::{Agent, sha256};

/// How hard it is compressed. A part of the form: other levels give other bytes.
const LEVEL: i32 = 9;
/// The window, 4 MiB.
const WINDOW_LOG: u32 = 22;

/// Looks for literal secrets in a file: its path in the archive, its bytes, and what was found, a
/// line each that says where and never what.
pub type Scan<'s> = &'s dyn Fn(&str, &[u8]) -> Vec<String>;

/// A packed archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// `<name>-<version>.ringfence.tar.zst`
    pub file_name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many files of the bundle are in it.
    pub members: usize,
}

/// Packs what a lock pins, with manifest and lock, never the overlay. The same bundle gives the same
/// archive, but for the signature.
///
/// # Errors
/// [`Error::Unlocked`], [`Error::Drifted`], [`Error::Overlay`], [`Error::Unnamed`],
/// [`Error::Literals`], [`Error::Moved`] when bytes change under its hands, [`Error::Archive`] when
/// the bundle has a name or a size that no archive may have, [`Error::Bundle`].
pub fn pack(
    snapshot: &Snapshot,
    objects: &Objects,
    signer: &Signer,
    scan: Scan<'_>,
) -> Result<Packed, Error> {
    let alone = alone(snapshot, objects)?;
    let agent = alone.manifest.agent.as_ref();
    let agent = agent.map_or(Agent { name: String::new(), version: None }, |agent| Agent {
        name: agent.name.clone(),
        version: agent.version.clone(),
    });
    check_named(&agent).map_err(Error::Unnamed)?;
    let version = agent.version.clone().unwrap_or_default();
    let file_name = format!("{}-{version}.ringfence.tar.zst", agent.name);
    let files = files(&alone, objects)?;
    let found: Vec<String> =
        files.iter().flat_map(|(path, blob)| scan(path, &blob.bytes)).collect();
    if !found.is_empty() {
        return Err(Error::Literals(found));
    }
    let row = |(path, blob): (&String, &Blob)| Row {
        path: path.clone(),
        executable: blob.executable,
        size: blob.bytes.len() as u64,
        sha256: sha256(&blob.bytes),
    };
    let about = About {
        agent,
        manifest: sha256(&alone.manifest_bytes),
        lock: sha256(alone.lock_bytes.as_deref().unwrap_or_default()),
        members: files.iter().map(row).collect(),
    };
    let fail = |fault| Error::Archive { path: file_name.clone().into(), fault };
    about.check().map_err(fail)?;
    let attestation = about.seal(signer);
    if attestation.len() > MAX_ATTESTATION {
        return Err(fail(Fault::TooLarge("it has too many members to list".to_owned())));
    }
    let bytes = write(&attestation, &files).map_err(fail)?;
    Ok(Packed { file_name, bytes, members: files.len() })
}

/// The bundle without the overlay, if its lock holds.
fn alone(snapshot: &Snapshot, objects: &Objects) -> Result<Snapshot, Error> {
    if snapshot.lock.is_none() {
        return Err(Error::Unlocked(snapshot.project.clone()));
    }
    let drift = snapshot.drift(objects)?;
    if !drift.is_empty() {
        return Err(Error::Drifted(drift));
    }
    let alone = snapshot.without_overlay()?;
    let drift = alone.drift(objects)?;
    if drift.is_empty() { Ok(alone) } else { Err(Error::Overlay(drift)) }
}

/// Every member but the attestation, each read once and compared with its pin.
fn files(snapshot: &Snapshot, objects: &Objects) -> Result<BTreeMap<String, Blob>, Error> {
    let mut files = BTreeMap::new();
    let plain = |bytes: &[u8]| Blob { bytes: bytes.to_owned(), executable: false };
    let folder = format!("{BUNDLE}.ringfence/ringfence");
    files.insert(format!("{folder}.toml"), plain(&snapshot.manifest_bytes));
    let lock_bytes = snapshot.lock_bytes.as_deref().unwrap_or_default();
    files.insert(format!("{folder}.lock"), plain(lock_bytes));
    for Beside { kind, name, path, content } in snapshot.beside()? {
        let found = content.digest(kind);
        let pinned = snapshot.lock.as_ref().and_then(|lock| lock.digest(kind, &name));
        let expected = pinned.unwrap_or(found);
        if found != expected {
            return Err(Error::Moved { path: snapshot.project.join(path), expected, found });
        }
        add(&mut files, &format!("{BUNDLE}{path}"), content);
    }
    let elsewhere = snapshot.lock.iter().flat_map(|lock| &lock.pins).filter(|p| p.origin.is_some());
    for pin in elsewhere {
        let Some(content) = objects.read(pin.kind, &pin.digest)? else {
            let path = objects.place(pin.kind, &pin.digest);
            let source = std::io::ErrorKind::NotFound.into();
            return Err(Error::Read { path, source });
        };
        let hex = pin.digest.hex();
        let (kind, first, rest) = (pin.kind.as_str(), &hex[..2], &hex[2..]);
        add(&mut files, &format!("{STORE}{kind}/{first}/{rest}/content"), content);
    }
    Ok(files)
}

fn add(files: &mut BTreeMap<String, Blob>, path: &str, content: Content) {
    match content {
        Content::File(blob) => {
            files.insert(path.to_owned(), blob);
        }
        Content::Tree(blobs) => {
            files.extend(blobs.into_iter().map(|(below, blob)| (format!("{path}/{below}"), blob)));
        }
    }
}

/// Tar in zstd.
fn write(attestation: &[u8], files: &BTreeMap<String, Blob>) -> Result<Vec<u8>, Fault> {
    let mut encoder = Encoder::new(Vec::new(), LEVEL)?;
    encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
    encoder.include_checksum(true)?;
    encoder.include_contentsize(false)?;
    member(&mut encoder, ATTESTATION, false, attestation)?;
    for (path, Blob { bytes, executable }) in files {
        member(&mut encoder, path, *executable, bytes)?;
    }
    encoder.write_all(&END)?;
    Ok(encoder.finish()?)
}

fn member(out: &mut impl Write, path: &str, executable: bool, bytes: &[u8]) -> Result<(), Fault> {
    let size = bytes.len() as u64;
    let Some(header) = header(path, executable, size) else {
        let reason = "its path does not fit a tar header: at most 155 bytes of folders and 100 of \
                      name"
            .to_owned();
        return Err(Fault::Member { path: cut(path), reason });
    };
    out.write_all(&header)?;
    out.write_all(bytes)?;
    Ok(out.write_all(&END[..padding(size)])?)
}
