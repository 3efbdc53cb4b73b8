//! `ringfence set`

use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::{Layer, Snapshot, preferences, set_preference, write_layer};
use ringfence_identity::Signer;
use ringfence_record::MachineLog;
use ringfence_trust::review::changes::{Side, between};
use ringfence_trust::{Carried, Store, TrustCarry};
use serde_json::json;

use super::{Done, home};
use crate::args::Args;
use crate::failure::Failure;
use crate::out::{self, Colour};

/// What `set` takes.
#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Set {
    /// Which preference: `delivery.render_locally` or `meta.gitignore`
    key: String,
    /// Its value, as TOML: true, false, or a list such as `["codex"]`
    value: String,
    /// Into ringfence.local.toml, which is yours alone, instead of ringfence.toml
    #[arg(long)]
    local: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    print: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER: &str = "\
Only preferences can be set: they say where declared things land, not what may run. Comments and order
stay. If the bundle is trusted, it still is afterwards, since nothing that you reviewed is different;
an untrusted or changed one stays as it is.";

pub(crate) fn run(args: &Args, set: &Set) -> Done {
    let home = home()?;
    let store = Store::new(&home);
    let path = std::env::var_os("PATH");
    let review = store.review(Snapshot::read(args.project())?, path.as_deref())?;
    let snapshot = review.snapshot();
    let layer = if set.local { Layer::Overlay } else { Layer::Manifest };
    let before = snapshot.layer(layer);
    let text = set_preference(snapshot, layer, &set.key, &set.value).map_err(|fault| {
        let keys = preferences().join(", ");
        Failure::user(format!("{fault}\npreferences are: {keys}")).next("ringfence set --help")
    })?;
    let same = before.is_some_and(|before| before == text.as_bytes());
    let side = |bytes: Option<Vec<u8>>| {
        let mut side = Side::default();
        side.files[if set.local { 1 } else { 0 }] = bytes;
        side
    };
    let changes =
        between(&side(before.map(<[u8]>::to_vec)), &side(Some(text.clone().into_bytes())));
    if !set.json {
        changes.iter().flat_map(|change| change.lines()).for_each(|line| out::data(&line));
    }
    let mut carried = None;
    if !same && !set.print {
        // The trust that is there now, before anything is written.
        let carry = TrustCarry::capture(&review);
        let file = write_layer(snapshot, layer, &text)?;
        if let Some(carry) = carry {
            let log = MachineLog::open(&home, Signer::machine(&home)?)?;
            carried = Some(carry.carry(&store, &file, text.as_bytes(), &log)?);
        }
    }
    let written = !same && !set.print;
    if set.json {
        let trust = matches!(carried, Some(Carried::Yes));
        out::json(
            &json!({ "version": 1, "written": written, "trust_carried": trust, "changes": changes }),
        );
    }
    out::say(match (same, set.print) {
        (true, _) => "it is so already",
        (_, true) => "nothing was written",
        _ => "written",
    });
    match carried {
        Some(Carried::Yes) => {
            out::say(&out::paint(
                Colour::Green,
                "still trusted: nothing that you reviewed is different",
            ));
        }
        Some(Carried::No(reason)) => {
            out::say(&format!("no longer trusted: {reason}"));
            out::say("  next: ringfence trust");
        }
        None if written => {
            out::say("it was not trusted as it was, and is not now: ringfence trust")
        }
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}
