//! `ringfence login`

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum};
use ringfence_bundle::SecretName;
use ringfence_gateway::Desk;
use ringfence_mcp::oauth::{Identity, Known, Wish};
use ringfence_run::{Request, SignInRow, Signing};
use ringfence_secrets::{Kept, SignIn};
use serde_json::json;

use super::{Done, home, user_home};
use crate::args::Args;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Login {
    /// The server, as the manifest names it
    #[arg(required_unless_present = "list")]
    server: Option<String>,
    /// Open no browser, only print the address
    #[arg(long)]
    no_browser: bool,
    /// Ask for these scopes, with spaces between, instead of those that the server names
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// What the authorization server knows you by: an id that you registered, or the https address of
    /// a document that describes you
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The name of the secret that belongs to the id; goes to this issuer alone
    #[arg(long, value_name = "NAME", requires = "client_id", requires = "issuer")]
    client_secret: Option<String>,
    /// Take tokens of this authorization server alone
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The port on 127.0.0.1 that the browser comes back to; else any
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Where the tokens are kept; a file is of mode 0600 in the machine's folder
    #[arg(long, value_name = "WHERE", default_value = "keychain")]
    store: Store,
    /// List the sign-ins of this machine
    #[arg(
        long,
        conflicts_with_all = ["server", "no_browser", "scope", "client_id", "issuer", "port", "store"]
    )]
    list: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    Keychain,
    File,
}

const AFTER: &str = "\
Examples:
  ringfence login tracker                    sign in with a browser
  ringfence login tracker --no-browser       print the address; open it yourself
  ringfence login tracker --scope 'read'     ask for less
  ringfence login --list                     who is signed in, until when, never a token

The bundle must be trusted: nobody is contacted before. The server says who gives tokens for it; every
address on the way must be https and lead to a public address (a server on loopback may have its own
there), and no redirect is followed. A token is for one server's address: every trusted bundle on this
machine that declares that address, without an Authorization header of its own, uses it, and nothing
else does. It is renewed by itself where that is offered.

On a machine without a browser: `--port 8976 --no-browser`, and from where the browser is,
`ssh -L 8976:127.0.0.1:8976 machine`.";

pub(crate) fn run(args: &Args, login: &Login) -> Done {
    if login.list {
        return list(args, login.json);
    }
    let Some(server) = login.server.clone() else {
        return Err(Failure::user("which server?").next("ringfence show"));
    };
    let secret = login.client_secret.as_deref().map(SecretName::parse).transpose();
    let client_secret = secret.map_err(|_| {
        // Whoever gives the value here by mistake must not have it shown again.
        Failure::user("--client-secret takes the name of a secret; a name is like CLIENT_SECRET")
            .next("ringfence secret set CLIENT_SECRET")
    })?;
    let id = login.client_id.clone();
    let document = id.clone().filter(|id| id.starts_with("https://"));
    let known = id.filter(|id| !id.starts_with("https://")).map(|id| Known { id, secret: None });
    let signing = Signing {
        server: server.clone(),
        wish: Wish {
            scopes: login.scope.clone(),
            issuer: login.issuer.clone(),
            identity: Identity { known, document },
        },
        client_secret,
        kept: match login.store {
            Store::Keychain => Kept::Keychain,
            Store::File => Kept::File,
        },
        desk: Desk {
            say: Arc::new(|line| out::say(&escaped_line(line))),
            open: !login.no_browser,
            port: login.port,
        },
    };
    let request = Request {
        project: args.project().to_owned(),
        home: home()?,
        user_home: user_home()?,
        path: std::env::var_os("PATH"),
        command: Vec::new(),
        backend: None,
    };
    let done = ringfence_run::login(&request, signing)?;
    if login.json {
        out::json(&json!({ "version": 1, "signed_in": done }));
        return Ok(ExitCode::SUCCESS);
    }
    out::say(&format!("signed in to {server}, by {}", escaped(&done.issuer)));
    detail(&done).iter().for_each(|line| out::say(line));
    Ok(ExitCode::SUCCESS)
}

/// A line with an address in it is shown whole: it is what the person must open.
fn escaped_line(line: &str) -> String {
    if line.bytes().all(|b| (0x20..0x7f).contains(&b)) { line.to_owned() } else { escaped(line) }
}

fn detail(sign_in: &SignIn) -> Vec<String> {
    let scopes = match sign_in.scopes.is_empty() {
        true => "whatever the issuer gives unasked".to_owned(),
        false => escaped(&sign_in.scopes.join(" ")),
    };
    let until = match (sign_in.expires, sign_in.renewable) {
        (_, true) => "it renews itself".to_owned(),
        (Some(at), false) => format!("until {}", moment(at)),
        (None, false) => "until the issuer ends it".to_owned(),
    };
    // A token for more than the server is good for more than the server.
    let wider = (sign_in.resource != sign_in.server)
        .then(|| format!("  good at all of {}", escaped(&sign_in.resource)));
    let mut lines = vec![format!("  for    {}", escaped(&sign_in.server))];
    lines.extend(wider);
    lines.extend([
        format!("  scopes {scopes}"),
        format!("  good   {until}"),
        format!("  kept   {}", sign_in.kept.name()),
    ]);
    lines
}

fn moment(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    at.map_or_else(|| "a time that cannot be told".to_owned(), |at| at.to_string())
}

fn list(args: &Args, json: bool) -> Done {
    let rows = ringfence_run::sign_ins(args.project(), &home()?)?;
    if json {
        let expiry = |row: &SignInRow| row.sign_in.expires.map(moment);
        let all: Vec<_> = rows
            .iter()
            .map(|row| {
                let mut value = json!(row);
                value["expires"] = json!(expiry(row));
                value
            })
            .collect();
        out::json(&json!({ "version": 1, "sign_ins": all }));
        return Ok(ExitCode::SUCCESS);
    }
    for row in &rows {
        let here = match row.servers.is_empty() {
            true => "(no server of this project)".to_owned(),
            false => row.servers.join(", "),
        };
        out::data(&format!("{here}: {}", escaped(&row.sign_in.issuer)));
        detail(&row.sign_in).iter().for_each(|line| out::data(line));
    }
    if rows.is_empty() {
        out::say("nobody is signed in on this machine");
        out::say("  next: ringfence login <server>");
    }
    Ok(ExitCode::SUCCESS)
}
