//! `ringfence share`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::literals::{Context, find};
use ringfence_bundle::{Objects, Snapshot};
use serde_json::json;

use super::{Done, home, sign};
use crate::args::Args;
use crate::escape::escaped;
use crate::out;

/// Packs manifest, lock, and the pinned bytes of every kind, into
/// <agent.name>-<agent.version>.ringfence.tar.zst, signed. The overlay, ringfence.local.toml, is
/// yours and never in it; a bundle whose pins do not hold is refused, and so is a literal secret.
/// The same bundle gives the same bytes.
#[derive(Debug, ClapArgs)]
pub(crate) struct Share {
    /// Where to write the archive; nothing is replaced
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The key to sign with: one of this machine's identities; the machine's own when absent
    #[arg(long, value_name = "DID")]
    pub(crate) did: Option<String>,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args, share: &Share) -> Done {
    let home = home()?;
    let snapshot = Snapshot::read(args.project())?;
    let signer = sign::signer(&home, share.did.as_deref())?;
    let objects = Objects::of(&home);
    let (file, packed) =
        ringfence_library::share(&snapshot, &objects, &signer, &scan, share.output.as_deref())?;
    if share.json {
        out::json(&json!({
            "version": 1,
            "file": file.to_string_lossy(),
            "did": signer.did(),
            "members": packed.members,
            "bytes": packed.bytes.len(),
        }));
    }
    out::say(&format!(
        "wrote {}: {} file(s), {} bytes, signed by {}",
        escaped(&file.to_string_lossy()),
        packed.members,
        packed.bytes.len(),
        signer.did()
    ));
    if snapshot.local_bytes.is_some() {
        out::say("ringfence.local.toml is yours alone and is not in it");
    }
    Ok(ExitCode::SUCCESS)
}

/// Literal secrets in a file that is about to be shared: where they stand, never what they are.
pub(super) fn scan(path: &str, bytes: &[u8]) -> Vec<String> {
    find(bytes, Context::File(Path::new(path)))
        .into_iter()
        .map(|it| format!("{path}:{}:{}: {} {}", it.line, it.column, it.rule, it.preview))
        .collect()
}
