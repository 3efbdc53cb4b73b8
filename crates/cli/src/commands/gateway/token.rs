//! `ringfence gateway token`

use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_bundle::Id;
use ringfence_run::{Tokens, parse_lifetime};
use serde_json::json;

use super::super::{Done, home};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

/// Who may come: one token a client
#[derive(Debug, ClapArgs)]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a token and print its value, this once
    #[command(after_help = CREATE)]
    Create {
        /// The client, as the record names it: a-z, 0-9, `-` and `_`
        name: String,
        /// Refuse it after so long: a number and m, h, d or w
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// List the tokens, without their values
    List {
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Refuse a client from its next request on
    Revoke {
        /// The client
        name: String,
    },
}

const CREATE: &str = "\
Only the value's SHA-256 is kept, in gateway-tokens.json of the machine's folder.

Examples:
  ringfence gateway token create laptop
  ringfence gateway token create ci --expires 90d > token.txt
  curl -H \"Authorization: Bearer $(cat token.txt)\" …";

impl Token {
    /// Whether an error is to be JSON too.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::Create { json, .. } | Verb::List { json } => *json,
            Verb::Revoke { .. } => false,
        }
    }
}

pub(crate) fn run(token: &Token) -> Done {
    let tokens = Tokens::of(&home()?);
    match &token.verb {
        Verb::Create { name, expires, json } => create(&tokens, name, expires.as_deref(), *json),
        Verb::List { json } => list(&tokens, *json),
        Verb::Revoke { name } => revoke(&tokens, name),
    }
}

fn parsed(name: &str) -> Result<Id, Failure> {
    Id::parse(name).map_err(|error| Failure::user(error.to_string()))
}

fn create(tokens: &Tokens, name: &str, expires: Option<&str>, json: bool) -> Done {
    let name = parsed(name)?;
    let expires = expires.map(parse_lifetime).transpose();
    let expires = expires.map_err(|error| Failure::user(format!("--expires: {error}")))?;
    let (token, value) = tokens.create(&name, expires)?;
    if json {
        out::json(&json!({
            "version": 1, "name": token.name, "created": token.created, "expires": token.expires,
            "token": value.expose(),
        }));
    } else {
        out::data(value.expose());
    }
    out::say(&format!("this is the token of {name}, and it is not shown again"));
    Ok(ExitCode::SUCCESS)
}

fn list(tokens: &Tokens, json: bool) -> Done {
    let all = tokens.list()?;
    if json {
        let row = |token: &ringfence_run::Token| {
            json!({
                "name": token.name, "created": token.created, "expires": token.expires,
                "expired": token.has_expired(),
            })
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        out::json(&json!({ "version": 1, "tokens": rows }));
        return Ok(ExitCode::SUCCESS);
    }
    for token in &all {
        let end = match token.expires {
            None => "for good".to_owned(),
            Some(at) if token.has_expired() => out::paint(Colour::Red, &format!("expired {at:.0}")),
            Some(at) => format!("until {at:.0}"),
        };
        out::data(&format!("{:<20} since {:.0}  {end}", token.name, token.created));
    }
    if all.is_empty() {
        out::say("there is no token; next: ringfence gateway token create NAME");
    }
    Ok(ExitCode::SUCCESS)
}

fn revoke(tokens: &Tokens, name: &str) -> Done {
    let name = parsed(name)?;
    if !tokens.revoke(&name)? {
        let message = format!("there is no token `{}`", escaped(name.as_str()));
        return Err(Failure::user(message).next("ringfence gateway token list"));
    }
    out::say(&format!("{name} is refused from its next request on"));
    Ok(ExitCode::SUCCESS)
}
