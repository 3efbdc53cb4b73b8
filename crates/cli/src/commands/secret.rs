//! `ringfence secret`

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_bundle::SecretName;
use ringfence_run::{SecretRow, State, Survey, survey};
use ringfence_secrets::{Keychain, MAX_BYTES, Secret as Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use zeroize::Zeroizing;

use super::{Done, home, user_home};
use crate::args::Args;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Secret {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER: &str = "\
A manifest refers to a value by name, `${NAME}`. When a run needs it, the sources are asked in this
order, and the first that has it answers:
  environment   the variables that Ringfence was started with
  varlock       where the project has a .env.schema and its files execute nothing
  keychain      the Secret Service of your session, where `ringfence secret set` puts values
  .env          in the project folder, where the agent cannot write it
A source that fails ends the search: no weaker one stands in for it. varlock and .env are asked only
for a trusted bundle. Values are never printed.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Put a value into the keychain: asked for at a terminal, or read from stdin
    Set {
        /// The name, as in `${NAME}`
        name: String,
    },
    /// List the names that the bundle refers to, who may have each, and where it would come from
    List {
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Show what each source says about one name
    Where {
        /// The name, as in `${NAME}`
        name: String,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Take a value out of the keychain
    Remove {
        /// The name, as in `${NAME}`
        name: String,
    },
}

impl Secret {
    /// Whether errors are to be JSON too.
    pub(crate) fn json(&self) -> bool {
        matches!(self.verb, Verb::List { json: true } | Verb::Where { json: true, .. })
    }
}

pub(crate) fn run(args: &Args, secret: &Secret) -> Done {
    match &secret.verb {
        Verb::Set { name } => set(&parsed(name)?),
        Verb::Remove { name } => remove(&parsed(name)?),
        Verb::List { json } => list(args, *json),
        Verb::Where { name, json } => one(args, &parsed(name)?, *json),
    }
}

fn parsed(name: &str) -> Result<SecretName, Failure> {
    // Whoever gives the value here by mistake must not have it shown again.
    SecretName::parse(name)
        .map_err(|_| Failure::user("this is no name of a secret; a name is like BANK_TOKEN"))
}

fn set(name: &SecretName) -> Done {
    let value = read(name)?;
    wait(Keychain::new(&home()?).set(name, &value))??;
    out::say(&format!("{name} is in the keychain"));
    Ok(ExitCode::SUCCESS)
}

fn remove(name: &SecretName) -> Done {
    let had = wait(Keychain::new(&home()?).remove(name))??;
    if !had {
        return Err(Failure::user(format!("{name} is not in the keychain"))
            .next(format!("ringfence secret where {name}")));
    }
    out::say(&format!("{name} was taken out of the keychain"));
    Ok(ExitCode::SUCCESS)
}

fn list(args: &Args, json: bool) -> Done {
    let survey = survey(args.project(), &home()?, &user_home()?, std::env::var_os("PATH"), None)?;
    if json {
        out::json(&survey);
        return Ok(ExitCode::SUCCESS);
    }
    for row in &survey.secrets {
        out::data(&line(row));
        for wanting in &row.wanted_by {
            let may = if wanting.allowed { "may have it" } else { "is refused it" };
            out::data(&format!("  {} {may}: {}", wanting.principal, escaped(&wanting.rule)));
        }
    }
    if survey.secrets.is_empty() {
        out::say("the bundle refers to no secret");
    }
    asked(&survey);
    Ok(ExitCode::SUCCESS)
}

fn one(args: &Args, name: &SecretName, json: bool) -> Done {
    let path = std::env::var_os("PATH");
    let survey = survey(args.project(), &home()?, &user_home()?, path, Some(name))?;
    if json {
        out::json(&survey);
        return Ok(ExitCode::SUCCESS);
    }
    for row in &survey.secrets {
        out::data(&line(row));
        for answer in &row.sources {
            let why = answer.detail.as_ref().map(|why| format!(": {}", escaped(why)));
            let why = why.unwrap_or_default();
            out::data(&format!("  {:<12} {}{why}", answer.source, word(answer.state)));
        }
        for wanting in &row.wanted_by {
            let may = if wanting.allowed { "may have it" } else { "is refused it" };
            out::data(&format!("  {} {may}: {}", wanting.principal, escaped(&wanting.rule)));
        }
        if row.wanted_by.is_empty() {
            out::say("the bundle does not refer to it");
        }
        if row.state == State::Missing {
            out::say(&format!("  next: ringfence secret set {name}"));
        }
    }
    asked(&survey);
    Ok(ExitCode::SUCCESS)
}

fn line(row: &SecretRow) -> String {
    let source = row.source.map(|source| format!(", {source}")).unwrap_or_default();
    let detail = row.detail.as_ref().map(|d| format!(": {}", escaped(d))).unwrap_or_default();
    format!("{:<32} {}{source}{detail}", row.name, word(row.state))
}

fn word(state: State) -> &'static str {
    match state {
        State::Found => "found",
        State::Missing => "missing",
        State::Failed => "failed",
        State::Denied => "denied",
    }
}

/// Says what was left out, and why.
fn asked(survey: &Survey) {
    if let Some(why) = &survey.untrusted {
        let left = survey.not_asked.join(" and ");
        out::say(&out::paint(
            Colour::Yellow,
            &format!("not asked: {left}, since {}", escaped(why)),
        ));
        out::say("  next: ringfence trust");
    }
}

/// Waits for a change of the keychain.
fn wait<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|e| Failure::user(format!("cannot start: {e}")))?.block_on(work))
}

/// The value: typed without being shown, or the whole of stdin without its last line end.
fn read(name: &SecretName) -> Result<Value, Failure> {
    let stdin = std::io::stdin();
    let broken = |error: std::io::Error| Failure::user(format!("stdin: {error}"));
    let mut from =
        std::fs::File::from(rustix::io::dup(&stdin).map_err(|error| broken(error.into()))?);
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 3));
    if stdin.is_terminal() {
        // Whoever types as soon as they are asked is not shown either.
        let _quiet = Quiet::new().map_err(|error| broken(error.into()))?;
        out::say(&format!("Value of {name} (not shown), then Enter:"));
        typed(&mut from, &mut bytes).map_err(broken)?;
    } else {
        from.take(MAX_BYTES as u64 + 3).read_to_end(&mut bytes).map_err(broken)?;
    }
    for end in [b'\n', b'\r'] {
        if bytes.last() == Some(&end) {
            bytes.pop();
        }
    }
    Ok(Value::from_bytes(bytes).map_err(ringfence_secrets::Error::NoValue)?)
}

/// One line, byte for byte, since a terminal's own line holds 4 KiB at most.
fn typed(from: &mut std::fs::File, bytes: &mut Zeroizing<Vec<u8>>) -> std::io::Result<()> {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    const KILL: u8 = 21;
    let mut byte = Zeroizing::new([0]);
    while bytes.len() < MAX_BYTES + 3 {
        match from.read(&mut *byte) {
            Ok(0) => break,
            Ok(_) => match byte[0] {
                END => break,
                b'\n' | b'\r' if more(from)? => {
                    return Err(std::io::Error::other(
                        "more than one line came; nothing was changed. A value over several lines \
                         is read from a file: `ringfence secret set NAME < FILE`",
                    ));
                }
                b'\n' | b'\r' => break,
                INTERRUPT => return Err(std::io::Error::other("interrupted; nothing was changed")),
                KILL => bytes.clear(),
                // The whole of a character, of which it is the last byte (RFC 3629).
                8 | 127 => while bytes.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {},
                other if other.is_ascii_control() && other != b'\t' => {
                    return Err(std::io::Error::other(
                        "a control character, such as that of an arrow key, is no part of a value \
                         that is typed; nothing was changed",
                    ));
                }
                other => bytes.push(other),
            },
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether something follows a line at once, as it does where a key of several lines is pasted. It is
/// read here and thrown away: a shell would take it for commands.
fn more(from: &mut std::fs::File) -> std::io::Result<bool> {
    const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let mut any = false;
    let mut rest = Zeroizing::new([0; 4096]);
    loop {
        let mut ready = [PollFd::new(from, PollFlags::IN)];
        match poll(&mut ready, Some(&QUIET)) {
            Ok(0) => return Ok(any),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        // The end of a terminal reads as nothing.
        if from.read(&mut *rest)? == 0 {
            return Ok(any);
        }
        any = true;
    }
}

/// A terminal that shows nothing of what is typed and sends no signals, until this is dropped.
struct Quiet(Termios);

impl Quiet {
    fn new() -> rustix::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&stdin, OptionalActions::Flush, &quiet)?;
        Ok(Self(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing put back.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}
