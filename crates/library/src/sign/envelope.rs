//! The envelope (DSSE 1.0.2): a payload, its type, and one signature over both.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_identity::{Did, Signer};
use serde::{Deserialize, Serialize};

/// What every payload is: an in-toto statement (in-toto attestation framework 1.0, envelope layer).
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// Why an envelope says nothing that could be relied on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// It has more bytes than anything that is written here.
    #[error("it has {found} bytes, and at most {most} are read")]
    TooLarge {
        /// Bytes.
        found: usize,
        /// Bytes.
        most: usize,
    },
    /// It is no JSON of the one shape: cut off, a key twice, a key too many, something after it.
    #[error("it is not a signed envelope: {0}")]
    Shape(String),
    /// It is an envelope for something else.
    #[error("its payload type is {0:?}, and {PAYLOAD_TYPE:?} is expected")]
    PayloadType(String),
    /// Not exactly one signature.
    #[error("it has {0} signatures, and exactly one is expected")]
    Signatures(usize),
    /// The key id is no `did:key` of an honest Ed25519 key.
    #[error("its key id is no Ed25519 did:key")]
    Key,
    /// Base64 in another spelling than the one, or a signature of another length.
    #[error("its {0} is not canonical base64 of the right length")]
    Encoding(&'static str),
    /// The signature is not this key's over these bytes, or not canonical (RFC 8032, 5.1.7).
    #[error(
        "the signature does not verify: other bytes, another key, or a non-canonical signature"
    )]
    DoesNotVerify,
    /// The signature is good, and what it is over is not the statement that is expected.
    #[error("the signed statement is not the expected one: {0}")]
    Statement(String),
}

/// A payload whose signature was verified. Made by [`unseal`] alone.
#[derive(Debug, Clone)]
pub struct Signed {
    by: Did,
    payload: Vec<u8>,
}

impl Signed {
    /// Whose signature it is.
    #[must_use]
    pub fn by(&self) -> &Did {
        &self.by
    }

    /// The very bytes that were verified.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload: String,
    signatures: Vec<Signature>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    keyid: String,
    sig: String,
}

/// Signs a payload. The bytes end with a line end.
#[must_use]
pub fn seal(signer: &Signer, payload: &[u8]) -> Vec<u8> {
    let sig = signer.sign(&pre_authentication(PAYLOAD_TYPE, payload));
    let envelope = Envelope {
        payload_type: PAYLOAD_TYPE.to_owned(),
        payload: STANDARD.encode(payload),
        signatures: vec![Signature { keyid: signer.did().to_string(), sig: STANDARD.encode(sig) }],
    };
    let mut bytes = serde_json::to_vec(&envelope).expect("text always has a JSON form");
    bytes.push(b'\n');
    bytes
}

/// Reads an envelope strictly and verifies it. Whose key it is says nothing yet about whether that
/// key is known: the caller compares.
///
/// # Errors
/// [`Flaw`].
pub fn unseal(bytes: &[u8], most: usize) -> Result<Signed, Flaw> {
    if bytes.len() > most {
        return Err(Flaw::TooLarge { found: bytes.len(), most });
    }
    let envelope: Envelope =
        serde_json::from_slice(bytes).map_err(|error| Flaw::Shape(error.to_string()))?;
    if envelope.payload_type != PAYLOAD_TYPE {
        let cut: String = envelope.payload_type.chars().take(80).collect();
        return Err(Flaw::PayloadType(cut));
    }
    let [signature] = &envelope.signatures[..] else {
        return Err(Flaw::Signatures(envelope.signatures.len()));
    };
    let by = Did::parse(&signature.keyid).map_err(|_| Flaw::Key)?;
    let sig = STANDARD.decode(&signature.sig).map_err(|_| Flaw::Encoding("signature"))?;
    let sig: [u8; 64] = sig.try_into().map_err(|_| Flaw::Encoding("signature"))?;
    let payload = STANDARD.decode(&envelope.payload).map_err(|_| Flaw::Encoding("payload"))?;
    by.verify(&pre_authentication(PAYLOAD_TYPE, &payload), &sig)
        .map_err(|_| Flaw::DoesNotVerify)?;
    Ok(Signed { by, payload })
}

/// What is signed (DSSE 1.0.2, protocol, PAE): type and payload, each with its length first, so
/// that a signature for one type says nothing of another.
pub(super) fn pre_authentication(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}
