//! `ringfence logout`

use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Done, home};
use crate::args::Args;
use crate::escape::escaped;
use crate::out::{self, Colour};

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Logout {
    /// The server, as the manifest names it, or an address of `ringfence login --list`
    server: String,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER: &str = "\
Examples:
  ringfence logout tracker
  ringfence logout https://mcp.tracker.example/mcp

The tokens are given back to whoever gave them, where that is offered (RFC 7009), and are forgotten in
any case. A run that is under way has none from then on.";

pub(crate) fn run(args: &Args, logout: &Logout) -> Done {
    let done = ringfence_run::logout(args.project(), &home()?, &logout.server)?;
    let (revoked, why) = match &done.revoked {
        Ok(revoked) => (*revoked, None),
        Err(why) => (false, Some(why.clone())),
    };
    if logout.json {
        out::json(&json!({
            "version": 1, "signed_out": done.sign_in, "revoked": revoked, "why_not": why,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let issuer = escaped(&done.sign_in.issuer);
    out::say(&format!("signed out of {}", escaped(&done.sign_in.server)));
    match (&done.revoked, why) {
        (Ok(true), _) => out::say(&format!("  {issuer} took the tokens back")),
        (Ok(false), _) => out::say(&format!(
            "  {issuer} takes no tokens back: they are forgotten here, and end there by themselves"
        )),
        (Err(_), why) => out::say(&out::paint(
            Colour::Yellow,
            &format!(
                "  {issuer} did not take the tokens back, and they may still be good there: {}",
                escaped(&why.unwrap_or_default())
            ),
        )),
    }
    Ok(ExitCode::SUCCESS)
}
