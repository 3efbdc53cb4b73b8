//! `ringfence gateway`

mod token;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_bundle::Id;
use ringfence_run::{Folder, Listen, Listening};

use super::Done;
use super::mcp::{request, say, words};
use crate::args::Args;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

/// Serve projects' tools to many clients over HTTP
#[derive(Debug, ClapArgs)]
pub(crate) struct Gateway {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Listen until SIGTERM; SIGHUP looks at everything anew
    #[command(after_help = SERVE)]
    Serve(Serve),
    /// Who may come: one token a client
    Token(token::Token),
}

const SERVE: &str = "\
Doors, for one folder:
  /mcp             the servers of the default toolset as one, tools named <server>__<tool>
  /compact/mcp     three tools that search, describe and call the others
  /<server>/mcp    one server as it is
With several folders each path begins with the folder's name: --folder shop=~/src/shop gives /shop/mcp.

Every request needs a token, whatever the address: `ringfence gateway token create NAME`.

Examples:
  ringfence gateway serve
  ringfence gateway serve --listen 127.0.0.1:9000 --folder ~/src/shop
  ringfence gateway serve --listen 10.0.0.5:8443 --tls-cert chain.pem --tls-key key.pem --host gw.example
  kill -HUP <pid>     after a change of the certificate; bundles, rules and tokens are looked at anyway";

#[derive(Debug, ClapArgs)]
pub(crate) struct Serve {
    /// Where to listen; port 0 takes any
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:3130")]
    listen: SocketAddr,
    /// A project folder; once more for each, then with a name before it, or its last part is the name
    #[arg(long, value_name = "[NAME=]DIR")]
    folder: Vec<String>,
    /// A name by which clients call this gateway, beside its address; what else `Host` says is refused
    #[arg(long, value_name = "NAME[:PORT]")]
    host: Vec<String>,
    /// A page that may call it from a browser, beside its own address
    #[arg(long, value_name = "URL")]
    origin: Vec<String>,
    /// Certificate chain in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let tokens and calls cross a network that others can read, for an address that is not this
    /// machine's alone
    #[arg(long)]
    unencrypted_on_the_network: bool,
    /// Seconds that calls in flight have at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(..=3600))]
    drain: u64,
    /// Connections at once; the next ones wait
    #[arg(long, value_name = "NUMBER", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: u32,
    /// Requests of one client at once; the next ones are refused
    #[arg(long, value_name = "NUMBER", default_value_t = 128,
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    per_client: u32,
    /// Print where it listens as one line of JSON on stdout
    #[arg(long)]
    json: bool,
}

impl Gateway {
    /// Whether an error is to be JSON too.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::Serve(serve) => serve.json,
            Verb::Token(token) => token.json(),
        }
    }
}

pub(crate) fn run(args: &Args, gateway: &Gateway) -> Done {
    match &gateway.verb {
        Verb::Serve(serve) => listen(args, serve),
        Verb::Token(token) => token::run(token),
    }
}

fn listen(args: &Args, serve: &Serve) -> Done {
    let folders = match &serve.folder[..] {
        [] => vec![Folder { name: None, request: request(args.project())? }],
        [one] => {
            let (name, request) = folder(one)?;
            vec![Folder { name, request }]
        }
        several => several.iter().map(|given| named(given)).collect::<Result<_, _>>()?,
    };
    for (number, one) in folders.iter().enumerate() {
        let other = folders[..number].iter().find(|other| other.name == one.name);
        if let (Some(_), Some(name)) = (other, &one.name) {
            let message = format!("two folders are called `{name}`");
            return Err(Failure::user(message).next("ringfence gateway serve --folder other=DIR …"));
        }
    }
    let listen = Listen {
        address: serve.listen,
        folders,
        hosts: serve.host.clone(),
        origins: serve.origin.clone(),
        tls: serve.tls_cert.clone().zip(serve.tls_key.clone()),
        plain: serve.unencrypted_on_the_network,
        drain: Duration::from_secs(serve.drain),
        connections: serve.connections as usize,
        per_client: serve.per_client as usize,
        words: words(),
        say: say(),
    };
    ringfence_run::gateway(listen, |listening| show(listening, serve.json))?;
    Ok(ExitCode::SUCCESS)
}

/// `[NAME=]DIR`
fn folder(given: &str) -> Result<(Option<Id>, ringfence_run::Request), Failure> {
    let (name, path) = match given.split_once('=') {
        Some((name, path)) if Id::parse(name).is_ok() => (Id::parse(name).ok(), path),
        _ => (None, given),
    };
    Ok((name, request(path.as_ref())?))
}

/// The same, with a name in any case.
fn named(given: &str) -> Result<Folder, Failure> {
    let (name, request) = folder(given)?;
    let last = request.project.file_name().and_then(|last| last.to_str());
    let name = name.or_else(|| Id::parse(last?).ok()).ok_or_else(|| {
        let given = escaped(given);
        Failure::user(format!("--folder {given}: its last part is no name for a path"))
            .next(format!("ringfence gateway serve --folder name={given} …"))
    })?;
    Ok(Folder { name: Some(name), request })
}

fn show(listening: &Listening, json: bool) {
    if json {
        out::json(
            &serde_json::json!({ "version": 1, "pid": std::process::id(), "listening": listening }),
        );
    }
    for door in &listening.doors {
        out::say(&format!("ringfence: {}", escaped(&door.folder.to_string_lossy())));
        for address in [&door.all, &door.compact, &door.server] {
            out::say(&format!("  {address}"));
        }
    }
}
