//! `ringfence sign`

use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::{Objects, Snapshot};
use ringfence_identity::{Did, Signer};
use ringfence_library::sign_lock;
use serde_json::json;

use super::{Done, home};
use crate::args::Args;
use crate::escape::escaped;
use crate::out;

/// Writes .ringfence/ringfence.lock.sig: a DSSE envelope with an in-toto statement about the
/// digests of lock and manifest. Whoever has listed your key (`ringfence publisher add`) can verify
/// it. A signature says whose words these are; it makes nothing trusted on any machine.
#[derive(Debug, ClapArgs)]
pub(crate) struct Sign {
    /// The key to sign with: one of this machine's identities; the machine's own when absent
    #[arg(long, value_name = "DID")]
    pub(crate) did: Option<String>,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args, sign: &Sign) -> Done {
    let home = home()?;
    let signer = signer(&home, sign.did.as_deref())?;
    let snapshot = Snapshot::read(args.project())?;
    let path = sign_lock(&snapshot, &Objects::of(&home), &signer)?;
    if sign.json {
        let path = path.to_string_lossy();
        out::json(&json!({ "version": 1, "file": path, "did": signer.did() }));
    }
    out::say(&format!("wrote {}, signed by {}", escaped(&path.to_string_lossy()), signer.did()));
    if snapshot.local_bytes.is_some() {
        out::say("ringfence.local.toml is yours alone: the signature does not cover it");
    }
    out::say(&format!(
        "  next, on a machine that is to know you: ringfence publisher add <name> {}",
        signer.did()
    ));
    Ok(ExitCode::SUCCESS)
}

/// The key that a person names, or the machine's own.
pub(super) fn signer(
    home: &std::path::Path,
    did: Option<&str>,
) -> Result<Signer, crate::failure::Failure> {
    Ok(match did {
        Some(did) => Signer::for_did(home, &Did::parse(did)?)?,
        None => Signer::machine(home)?,
    })
}
