//! Archives taken apart and put together again by hand: header bytes, attestation and frame as a
//! hostile hand would make them, signed with a real key.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A key that signs what it is given.
#[derive(Debug)]
pub struct Key {
    key: SigningKey,
    did: String,
}

impl Key {
    /// The key of a machine whose DID is known.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn of_machine(state: &Path, did: &str) -> Self {
        let pem = std::fs::read_to_string(state.join("identities/machine/key.pem"));
        let key = SigningKey::from_pkcs8_pem(&pem.expect("a key was made")).expect("PKCS#8");
        Self { key, did: did.to_owned() }
    }

    /// An envelope over any payload (DSSE 1.0.2).
    #[must_use]
    pub fn envelope(&self, payload_type: &str, payload: &[u8]) -> Value {
        let mut message =
            format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
        message.extend_from_slice(payload);
        let sig = STANDARD.encode(self.key.sign(&message).to_bytes());
        json!({
            "payloadType": payload_type,
            "payload": STANDARD.encode(payload),
            "signatures": [{ "keyid": self.did, "sig": sig }],
        })
    }
}

/// An archive in parts, each of which a case may change.
#[derive(Debug, Clone)]
pub struct Forged {
    /// The in-toto statement.
    pub statement: Value,
    /// Header and content of every member after the attestation.
    pub members: Vec<(Vec<u8>, Vec<u8>)>,
    /// What ends the tar.
    pub end: Vec<u8>,
}

impl Forged {
    /// Takes a good archive apart.
    ///
    /// # Panics
    /// When it is not one.
    #[must_use]
    pub fn open(archive: &[u8]) -> Self {
        let tar = zstd::decode_all(archive).expect("a zstd frame");
        let mut rest = &tar[..];
        let mut members = Vec::new();
        while rest[0] != 0 {
            let size = std::str::from_utf8(&rest[124..135]).expect("octal digits");
            let size = usize::from_str_radix(size, 8).expect("octal digits");
            members.push((rest[..512].to_vec(), rest[512..512 + size].to_vec()));
            rest = &rest[512 + size.div_ceil(512) * 512..];
        }
        let (_, attestation) = members.remove(0);
        let envelope: Value = serde_json::from_slice(&attestation).expect("an envelope");
        let payload = STANDARD.decode(envelope["payload"].as_str().expect("text"));
        let statement = serde_json::from_slice(&payload.expect("base64")).expect("a statement");
        Self { statement, members, end: rest.to_vec() }
    }

    /// The row of a member in the attestation.
    ///
    /// # Panics
    /// When it has none.
    pub fn row(&mut self, path: &str) -> &mut Value {
        let rows = self.statement["predicate"]["members"].as_array_mut().expect("rows");
        rows.iter_mut().find(|row| row["path"] == path).expect("a row")
    }

    /// The place of a member.
    ///
    /// # Panics
    /// When it is not there.
    #[must_use]
    pub fn place(&self, path: &str) -> usize {
        let named = |header: &[u8]| header[..100].starts_with(path.as_bytes());
        self.members.iter().position(|(header, _)| named(header)).expect("a member")
    }

    /// Adds a member as an honest archive would have it, its row too, in order.
    pub fn add(&mut self, path: &str, bytes: &[u8]) {
        let row = json!({
            "path": path, "executable": false, "size": bytes.len(), "sha256": hex(bytes),
        });
        let rows = self.statement["predicate"]["members"].as_array_mut().expect("rows");
        let at = rows.iter().position(|row| row["path"].as_str() > Some(path));
        let at = at.unwrap_or(rows.len());
        rows.insert(at, row);
        self.members.insert(at, (header(path, "644", bytes.len(), b'0'), bytes.to_vec()));
    }

    /// The attestation's bytes, its subject made to fit its members.
    #[must_use]
    pub fn attestation(&self, key: &Key) -> Vec<u8> {
        let mut statement = self.statement.clone();
        let mut listing = String::new();
        for row in statement["predicate"]["members"].as_array().into_iter().flatten() {
            let text = |key: &str| row[key].as_str().unwrap_or_default();
            let mode = if row["executable"] == true { "755" } else { "644" };
            let (sha256, path) = (text("sha256"), text("path"));
            listing.push_str(&format!("{mode} {sha256} {} {path}\n", row["size"]));
        }
        statement["subject"][0]["digest"]["sha256"] = hex(listing.as_bytes()).into();
        let payload = serde_json::to_vec(&statement).expect("JSON");
        let envelope = key.envelope("application/vnd.in-toto+json", &payload);
        serde_json::to_vec(&envelope).expect("JSON")
    }

    /// The tar, whole.
    #[must_use]
    pub fn tar(&self, attestation: &[u8]) -> Vec<u8> {
        let mut tar = header("attestation.json", "644", attestation.len(), b'0');
        append(&mut tar, attestation);
        for (header, content) in &self.members {
            tar.extend_from_slice(header);
            append(&mut tar, content);
        }
        tar.extend_from_slice(&self.end);
        tar
    }

    /// The archive, signed.
    #[must_use]
    pub fn sealed(&self, key: &Key) -> Vec<u8> {
        let tar = self.tar(&self.attestation(key));
        zstd::encode_all(&tar[..], 1).expect("in memory")
    }
}

/// SHA-256 in hex.
fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn append(tar: &mut Vec<u8>, content: &[u8]) {
    tar.extend_from_slice(content);
    tar.resize(tar.len().div_ceil(512) * 512, 0);
}

/// A ustar header written byte by byte (POSIX.1-2017, pax, ustar interchange format). A path longer
/// than 100 bytes is split at its last slash that fits.
///
/// # Panics
/// When the path cannot be split.
#[must_use]
pub fn header(path: &str, mode: &str, size: usize, kind: u8) -> Vec<u8> {
    let mut header = vec![0; 512];
    let (prefix, name) = if path.len() <= 100 {
        ("", path)
    } else {
        let at = path.rmatch_indices('/').map(|(at, _)| at).find(|at| *at <= 155);
        path.split_at(at.expect("a slash"))
    };
    let name = if prefix.is_empty() { name } else { &name[1..] };
    put(&mut header, 0, name.as_bytes());
    put(&mut header, 100, format!("{mode:0>7}").as_bytes());
    put(&mut header, 108, b"0000000");
    put(&mut header, 116, b"0000000");
    put(&mut header, 124, format!("{size:011o}").as_bytes());
    put(&mut header, 136, b"00000000000");
    header[156] = kind;
    put(&mut header, 257, b"ustar\x0000");
    put(&mut header, 329, b"0000000");
    put(&mut header, 337, b"0000000");
    put(&mut header, 345, prefix.as_bytes());
    checksum(&mut header);
    header
}

/// Makes a changed header's checksum right.
fn checksum(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(header, 148, format!("{sum:06o}\0").as_bytes());
}

fn put(header: &mut [u8], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Forged {
    /// Changes the header of a member, and makes its checksum right again.
    pub fn rewrite(&mut self, path: &str, at: usize, bytes: &[u8]) {
        let place = self.place(path);
        let header = &mut self.members[place].0;
        put(header, at, bytes);
        checksum(header);
    }
}

impl Forged {
    /// Gives a member other bytes, its header and row made to fit.
    ///
    /// # Panics
    /// When it is not there.
    pub fn replace(&mut self, path: &str, bytes: &[u8]) {
        let place = self.place(path);
        let row = self.row(path);
        row["size"] = bytes.len().into();
        row["sha256"] = hex(bytes).into();
        let mode = if row["executable"] == true { "755" } else { "644" };
        self.members[place] = (header(path, mode, bytes.len(), b'0'), bytes.to_vec());
        match path {
            "bundle/.ringfence/ringfence.lock" => {
                self.statement["predicate"]["lock"] = hex(bytes).into();
            }
            "bundle/.ringfence/ringfence.toml" => {
                self.statement["predicate"]["manifest"] = hex(bytes).into();
            }
            _ => {}
        }
    }
}

/// A digest of the bundle's kind: purpose, then each part with its length first.
#[must_use]
pub fn framed(kind: &str, parts: &[&[u8]]) -> String {
    let mut bytes = format!("ringfence/{kind}/1\0").into_bytes();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    format!("sha256:{}", hex(&bytes))
}
