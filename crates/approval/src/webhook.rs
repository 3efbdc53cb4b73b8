//! Asks an endpoint elsewhere. A request is signed by this machine in the form of Standard Webhooks
//! (`v1a`, Ed25519); the answer is a [`Decision`] that an approver signed. Nobody listens here: an
//! endpoint that has no decision yet says 202, and is sent the same question again.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use ringfence_bundle::{Endpoint, Host, shown};
use ringfence_identity::{Did, Signer};
use ringfence_record::{Event, Recorder};
use serde_json::json;
use tokio::time::sleep;

use crate::decision::MOST;
use crate::desk::Channel;
use crate::{Answer, Boxed, Decision, Error, SHOWN, Ticket};

/// Seconds between two requests: what the endpoint asks for, within these bounds.
const PAUSE: std::ops::RangeInclusive<u64> = 1..=30;
/// How long one request may take, its answer included: an endpoint may hold it while a person thinks.
const REQUEST: Duration = Duration::from_secs(60);
/// Failures in a row of which each is recorded; after them every tenth.
const TOLD: u32 = 3;

/// Sends one request. `run` implements it with the checks of the proxy: public addresses only,
/// redirects not followed, no proxy variables.
pub trait Post: Send + Sync + 'static {
    /// The error is for people and names no address.
    fn post(&self, request: Posted) -> Boxed<'_, Result<Received, String>>;
}

/// A request.
#[derive(Clone)]
pub struct Posted {
    /// Where. Secret: never shown.
    pub url: Endpoint,
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// JSON.
    pub body: Vec<u8>,
    /// How long all of it may take.
    pub timeout: Duration,
    /// Bytes of an answer that are read; one that is longer is an error.
    pub most: usize,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// HTTP status.
    pub status: u16,
    /// The `Retry-After` header in seconds, where it has a number.
    pub retry_after: Option<u64>,
    /// The body.
    pub body: Vec<u8>,
}

/// A webhook of `[[approvals.notify]]`.
pub struct Webhook {
    /// Where. Secret.
    pub url: Endpoint,
    /// Who may decide: the manifest's keys, as far as the machine allows them.
    pub keys: Vec<String>,
    /// Signs requests.
    pub signer: Signer,
    /// Sends them.
    pub post: Arc<dyn Post>,
    /// Told when the endpoint is not heard.
    pub recorder: Recorder,
}

/// Reads a webhook's address: `https`, or `http` to a literal loopback address, which only the person
/// who set the variable can have meant.
///
/// # Errors
/// [`Error::Address`], without the address.
pub fn check_url(url: &str) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::parse(url.trim()).map_err(Error::Address)?;
    if !endpoint.tls && !is_loopback(&endpoint) {
        return Err(Error::Address(
            "a webhook's address is https, or http to 127.0.0.1 or [::1]".into(),
        ));
    }
    Ok(endpoint)
}

/// Whether the host is written as an address of this machine's loopback.
#[must_use]
pub fn is_loopback(endpoint: &Endpoint) -> bool {
    match &endpoint.host {
        Host::Name(_) => false,
        Host::V4(address) => address.is_loopback(),
        Host::V6(address) => address.is_loopback(),
    }
}

/// A public key as Standard Webhooks writes it: `whpk_…`.
#[must_use]
pub fn public_text(did: &Did) -> String {
    format!("whpk_{}", base64::engine::general_purpose::STANDARD.encode(did.public_key()))
}

impl Webhook {
    fn body(&self, ticket: &Ticket) -> Vec<u8> {
        let characters = ticket.arguments.chars().count();
        let others = ticket.other_params.chars().count();
        let data = json!({
            "version": 1,
            "question": ticket.id,
            "digest": ticket.digest,
            "nonce": ticket.nonce,
            "created": ticket.created,
            "expires": ticket.expires,
            "server": shown(&ticket.server, SHOWN),
            "tool": shown(&ticket.tool, SHOWN),
            "rule": shown(&ticket.rule, SHOWN),
            "run": ticket.run,
            "project": shown(&ticket.project, SHOWN),
            "caller": shown(&ticket.caller, SHOWN),
            "call": ticket.call,
            "server_digest": ticket.server_digest,
            "tool_digest": ticket.tool_digest,
            "ruleset": ticket.ruleset,
            "arguments": shown(&ticket.arguments, SHOWN),
            "arguments_characters": characters,
            "arguments_cut": characters > SHOWN,
            "other_params": shown(&ticket.other_params, SHOWN),
            "other_params_characters": others,
            "other_params_cut": others > SHOWN,
            "decide": "answer this request with a signed decision, or with 202 to be asked again",
        });
        let whole = json!({
            "type": "approval.requested", "timestamp": ticket.created, "data": data,
        });
        whole.to_string().into_bytes()
    }

    fn request(&self, ticket: &Ticket, body: &[u8]) -> Posted {
        // The same for every attempt: an endpoint knows that it was asked before.
        let id = format!("msg_{}", ticket.id.replace('-', ""));
        let timestamp = jiff::Timestamp::now().as_second();
        let mut signed = format!("{id}.{timestamp}.").into_bytes();
        signed.extend_from_slice(body);
        let engine = base64::engine::general_purpose::STANDARD;
        let signature = format!("v1a,{}", engine.encode(self.signer.sign(&signed)));
        Posted {
            url: self.url.clone(),
            headers: vec![
                ("content-type", "application/json".into()),
                ("accept", "application/json".into()),
                ("user-agent", "ringfence".into()),
                ("webhook-id", id),
                ("webhook-timestamp", timestamp.to_string()),
                ("webhook-signature", signature),
            ],
            body: body.to_owned(),
            timeout: REQUEST,
            most: MOST,
        }
    }

    fn unheard(&self, ticket: &Ticket, reason: &str) {
        // A record that fails ends the run by itself.
        let _ = self.recorder.note(Event::ApprovalUnheard {
            question: ticket.id.clone(),
            channel: "webhook".into(),
            reason: shown(reason, 200),
        });
    }

    async fn asked(&self, ticket: &Ticket) -> Option<Answer> {
        if self.keys.is_empty() {
            self.unheard(ticket, "none of its keys is an approver's on this machine");
            return None;
        }
        let body = self.body(ticket);
        let mut failures = 0_u32;
        loop {
            let sent = self.post.post(self.request(ticket, &body)).await;
            let (pause, trouble) = match sent {
                Ok(Received { status: 200, body, .. }) => {
                    match Decision::verify(&body, ticket, &self.keys) {
                        Ok(decision) => {
                            return Some(Answer {
                                verdict: decision.verdict,
                                by: decision.key,
                                channel: "webhook",
                                reason: decision.reason,
                            });
                        }
                        Err(error) => (None, Some(error.to_string())),
                    }
                }
                Ok(Received { status: 202, retry_after, .. }) => {
                    failures = 0;
                    (Some(retry_after.unwrap_or(2)), None)
                }
                Ok(Received { status, retry_after, .. }) => {
                    (retry_after, Some(format!("it answered with status {status}")))
                }
                Err(reason) => (None, Some(reason)),
            };
            if let Some(trouble) = trouble {
                failures = failures.saturating_add(1);
                if failures <= TOLD || failures.is_multiple_of(10) {
                    self.unheard(ticket, &trouble);
                }
            }
            // Twice as long after each failure.
            let backed_off = 1_u64 << failures.min(5);
            let pause = pause.unwrap_or(backed_off).clamp(*PAUSE.start(), *PAUSE.end());
            sleep(Duration::from_secs(pause)).await;
        }
    }
}

impl Channel for Webhook {
    fn ask<'a>(&'a self, ticket: &'a Ticket) -> Boxed<'a, Option<Answer>> {
        Box::pin(self.asked(ticket))
    }
}

#[cfg(test)]
mod tests;
