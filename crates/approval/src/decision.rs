//! A decision that somebody signed elsewhere.

use base64::Engine as _;
use ringfence_identity::Did;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Error, Ticket};

/// Before everything else that is signed.
const DOMAIN: &str = "ringfence-approval-decision-v1";
/// Bytes of a decision, at most.
pub(crate) const MOST: usize = 16 * 1024;
/// Characters of a reason, at most.
const REASON: usize = 1000;

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Yes.
    Approve,
    /// No.
    Deny,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

/// What a decision endpoint answers, signed with an approver's key. `docs/approvals.md` says how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// 1.
    pub version: u32,
    /// The question's id.
    pub question: String,
    /// Its digest.
    pub digest: String,
    /// Its nonce.
    pub nonce: String,
    /// Its expiry, as the question has it.
    pub expires: String,
    /// Yes or no.
    pub verdict: Verdict,
    /// In the approver's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who signs: `z6Mk…`.
    pub key: String,
    /// Ed25519 over [`Decision::signed`], base64 with padding.
    pub signature: String,
}

impl Decision {
    /// The bytes that are signed: eight lines, each ended by a line feed. The reason goes in by its
    /// SHA-256, so that no text makes a line of its own; without one, of nothing.
    #[must_use]
    pub fn signed(&self) -> Vec<u8> {
        use std::fmt::Write as _;
        let reason = Sha256::digest(self.reason.as_deref().unwrap_or_default().as_bytes());
        let mut hex = String::new();
        for byte in reason {
            let _ = write!(hex, "{byte:02x}");
        }
        let Self { question, digest, nonce, expires, key, .. } = self;
        let verdict = self.verdict.word();
        format!("{DOMAIN}\n{question}\n{digest}\n{nonce}\n{expires}\n{verdict}\n{hex}\n{key}\n")
            .into_bytes()
    }

    /// Reads a decision and verifies that it is one about this question by one of these keys.
    ///
    /// # Errors
    /// [`Error::Decision`], with what is not right. Nothing of it may be believed then.
    pub fn verify(text: &[u8], ticket: &Ticket, keys: &[String]) -> Result<Self, Error> {
        let no = |why: &str| Error::Decision(why.to_owned());
        if text.len() > MOST {
            return Err(no("it is longer than 16 KiB"));
        }
        let decision: Self =
            serde_json::from_slice(text).map_err(|_| no("it is not of the form of version 1"))?;
        if decision.version != 1 {
            return Err(no("it is not of version 1"));
        }
        // First whose it is: what a stranger says about the rest does not matter.
        if !keys.contains(&decision.key) {
            return Err(no("it is signed by a key that is no approver's here"));
        }
        let did = Did::parse(&format!("did:key:{}", decision.key))
            .map_err(|_| no("its key is not an Ed25519 key"))?;
        let engine = base64::engine::general_purpose::STANDARD;
        let signature: [u8; 64] = engine
            .decode(&decision.signature)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| no("its signature is not 64 bytes in base64"))?;
        did.verify(&decision.signed(), &signature)
            .map_err(|_| no("its signature does not verify"))?;
        for (named, asked, what) in [
            (&decision.question, &ticket.id, "question"),
            (&decision.digest, &ticket.digest, "digest"),
            (&decision.nonce, &ticket.nonce, "nonce"),
            (&decision.expires, &ticket.expires, "expiry"),
        ] {
            if named != asked {
                return Err(no(&format!("it is about another {what}")));
            }
        }
        if ticket.seconds_left() == 0 {
            return Err(Error::Expired(ticket.id.clone()));
        }
        if decision.reason.as_ref().is_some_and(|text| text.chars().count() > REASON) {
            return Err(no("its reason is longer than 1,000 characters"));
        }
        Ok(decision)
    }
}

#[cfg(test)]
mod tests;
