//! `ringfence webhook`

use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_approval::public_text;
use ringfence_identity::Signer;
use serde_json::json;

use super::{Done, home};
use crate::escape::escaped;
use crate::out;

/// Keys for the endpoint that answers approvals elsewhere.
#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Webhook {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER: &str = "\
A decision endpoint is sent each question, signed by this machine, and answers it with a decision,
signed by a key that the manifest names (docs/approvals.md; examples/approval-endpoint is one):
  ringfence webhook keygen office     make a key: hand its file to whoever runs the endpoint, and put
                                      the printed z6Mk… into [[approvals.notify]] approver_keys
  ringfence webhook key               print the key that this machine's requests verify with";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an approver's key, in webhook-keys/<NAME>.pem of the machine's folder
    Keygen(Keygen),
    /// Print the public key with which this machine signs its requests
    Key(Key),
}

#[derive(Debug, ClapArgs)]
struct Keygen {
    /// Its name: a-z, 0-9 and -
    #[arg(default_value = "approver")]
    name: String,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
struct Key {
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

impl Webhook {
    /// Whether errors are to be JSON too.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::Keygen(Keygen { json, .. }) | Verb::Key(Key { json }) => *json,
        }
    }
}

pub(crate) fn run(webhook: &Webhook) -> Done {
    let home = home()?;
    match &webhook.verb {
        Verb::Keygen(Keygen { name, json }) => {
            let (did, file) = Signer::make_webhook(&home, name)?;
            let key = did.as_str().trim_start_matches("did:key:");
            if *json {
                out::json(&json!({ "version": 1, "key": key, "file": file }));
            } else {
                out::data(key);
            }
            out::say(&format!("the private key is in {}", escaped(&file.to_string_lossy())));
            out::say("  next: hand that file to whoever runs the endpoint, and take it away here");
            out::say(&format!("  next: approver_keys = [\"{key}\"] in [[approvals.notify]]"));
        }
        Verb::Key(Key { json }) => {
            let signer = Signer::machine(&home)?;
            let text = public_text(signer.did());
            if *json {
                out::json(&json!({ "version": 1, "key": text, "did": signer.did() }));
            } else {
                out::data(&text);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
