//! `ringfence approvals`

use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_approval::{Answer, Kept, Questions, SHOWN, Standing, Verdict};
use serde_json::{Value, json};

use super::{Done, home};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

/// See the calls that wait for a person, and say yes or no.
#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Approvals {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER: &str = "\
A call that `[[approvals.require]]` names waits until somebody answers, or its time is over:
  ringfence approvals list                what waits
  ringfence approvals show k7mq-2xwd      everything about it, nothing in it that a terminal acts on
  ringfence approvals approve k7mq-2xwd   look at it once more, and say yes
  ringfence approvals deny k7mq-2xwd --reason 'not on a Friday'

The first answer counts, once, for exactly what was shown: its digest is over the definitions of
server and tool, the arguments and all else that is sent with them, the rules, the run and a number
that is used once.
Without a terminal: `ringfence approvals approve <id> --yes --digest <digest of show --json>`.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the questions that wait
    List(List),
    /// Show one: all its arguments, its rule, what a yes is bound to, and how long it waits
    Show(Show),
    /// Say yes
    Approve(Approve),
    /// Say no
    Deny(Deny),
}

#[derive(Debug, ClapArgs)]
struct List {
    /// List the settled ones too, the last 1,000
    #[arg(long)]
    all: bool,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
struct Show {
    /// The question's id
    id: String,
    /// Cut nothing of the arguments
    #[arg(long)]
    full: bool,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
struct Approve {
    /// The question's id
    id: String,
    /// For the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Say yes without being asked; needs --digest
    #[arg(long, requires = "digest")]
    yes: bool,
    /// The digest of what was looked at
    #[arg(long, value_name = "DIGEST", requires = "yes")]
    digest: Option<String>,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
struct Deny {
    /// The question's id
    id: String,
    /// For the record, and for the agent
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

impl Approvals {
    /// Whether errors are to be JSON too.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::List(List { json, .. })
            | Verb::Show(Show { json, .. })
            | Verb::Approve(Approve { json, .. })
            | Verb::Deny(Deny { json, .. }) => *json,
        }
    }
}

pub(crate) fn run(approvals: &Approvals) -> Done {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::user(error.to_string()))?;
    runtime.block_on(async {
        match &approvals.verb {
            Verb::List(options) => list(options).await,
            Verb::Show(options) => show(options).await,
            Verb::Approve(options) => approve(options).await,
            Verb::Deny(options) => deny(options).await,
        }
    })
}

/// The machine's questions; `None` before there was any.
async fn questions(home: &Path) -> Result<Option<Questions>, Failure> {
    Ok(Questions::existing(&ringfence_run::shared(home).await?, home).await?)
}

async fn one(id: &str) -> Result<(Questions, Kept), Failure> {
    let id = id.trim().to_ascii_lowercase();
    let unknown = || ringfence_approval::Error::Unknown(escaped(&id));
    let questions = questions(&home()?).await?.ok_or_else(unknown)?;
    let kept = questions.get(&id).await?;
    Ok((questions, kept))
}

async fn list(options: &List) -> Done {
    let questions = questions(&home()?).await?;
    let kept = match questions {
        Some(questions) => questions.list(options.all).await?,
        None => Vec::new(),
    };
    if options.json {
        let rows: Vec<Value> = kept.iter().map(value).collect();
        out::json(&json!({ "version": 1, "approvals": rows }));
        return Ok(ExitCode::SUCCESS);
    }
    for kept in &kept {
        let ticket = &kept.ticket;
        let call = escaped(&format!("{}: {}", ticket.server, ticket.tool));
        let (id, run) = (escaped(&ticket.id), escaped(&ticket.run));
        out::data(&format!("{id}  {:<9}  {call}  {run}", standing(kept)));
    }
    if kept.is_empty() {
        out::say(
            "nothing waits for an answer; `ringfence approvals list --all` shows what was answered",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// How it stands, in a word.
fn standing(kept: &Kept) -> String {
    match (kept.standing, kept.ticket.seconds_left()) {
        (Standing::Pending, 0) => "expired".into(),
        (Standing::Pending, left) => format!("{left} s left"),
        // The record says which of the two it was at any moment; a person wants to know of the yes.
        (Standing::Used, _) => "approved".into(),
        (other, _) => other.word().replace('_', " "),
    }
}

fn value(kept: &Kept) -> Value {
    let mut value = serde_json::to_value(kept).unwrap_or_default();
    value["seconds_left"] = match kept.standing {
        Standing::Pending => kept.ticket.seconds_left().into(),
        _ => 0.into(),
    };
    value
}

/// What a person is shown, before an answer and otherwise.
fn lines(kept: &Kept, most: usize) -> Vec<String> {
    let mut lines = kept.ticket.lines(most, SHOWN);
    let held = u64::try_from(kept.ticket.arguments.chars().count()).unwrap_or(u64::MAX);
    if held < kept.characters {
        lines.push(format!(
            "kept       the first {held} of {} characters: it is settled",
            kept.characters
        ));
    }
    lines.push(format!("stands     {}, expires {}", standing(kept), escaped(&kept.ticket.expires)));
    for (name, text) in [("by", &kept.by), ("channel", &kept.channel), ("reason", &kept.reason)] {
        if let Some(text) = text {
            lines.push(format!("{name:<10} {}", escaped(text)));
        }
    }
    lines
}

async fn show(options: &Show) -> Done {
    let (_, kept) = one(&options.id).await?;
    if options.json {
        let mut value = value(&kept);
        value["version"] = 1.into();
        out::json(&value);
        return Ok(ExitCode::SUCCESS);
    }
    let most = if options.full { usize::MAX } else { SHOWN };
    lines(&kept, most).iter().for_each(|line| out::data(line));
    let id = escaped(&kept.ticket.id);
    let texts = [&kept.ticket.arguments, &kept.ticket.other_params];
    if texts.into_iter().any(|text| text.chars().count() > most) {
        out::say(&format!("  next: ringfence approvals show {id} --full"));
    }
    if kept.standing == Standing::Pending && kept.ticket.seconds_left() > 0 {
        out::say(&format!("  next: ringfence approvals approve {id}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn approve(options: &Approve) -> Done {
    let (questions, kept) = one(&options.id).await?;
    let digest = match &options.digest {
        Some(digest) => digest.clone(),
        None => {
            lines(&kept, SHOWN).iter().for_each(|line| out::say(line));
            if kept.standing == Standing::Pending {
                ask(&kept)?;
            }
            kept.ticket.digest.clone()
        }
    };
    answer(&questions, &kept, &digest, Verdict::Approve, &options.reason, options.json).await
}

async fn deny(options: &Deny) -> Done {
    let (questions, kept) = one(&options.id).await?;
    let digest = kept.ticket.digest.clone();
    answer(&questions, &kept, &digest, Verdict::Deny, &options.reason, options.json).await
}

async fn answer(
    questions: &Questions,
    kept: &Kept,
    digest: &str,
    verdict: Verdict,
    reason: &Option<String>,
    json: bool,
) -> Done {
    let by = format!("uid {}", rustix::process::getuid().as_raw());
    let reason = reason.as_ref().map(|text| text.chars().take(1000).collect());
    let answer = Answer { verdict, by, channel: "command", reason };
    let now = questions.answer(&kept.ticket.id, digest, &answer).await?;
    if json {
        let mut value = value(&now);
        value["version"] = 1.into();
        out::json(&value);
    }
    out::say(&match verdict {
        Verdict::Approve => {
            out::paint(Colour::Green, "approved: the call is judged once more, and goes on")
        }
        Verdict::Deny => out::paint(Colour::Red, "denied"),
    });
    Ok(ExitCode::SUCCESS)
}

/// A yes is typed by a person at a terminal, for what is on the screen.
fn ask(kept: &Kept) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let (id, digest) = (&kept.ticket.id, &kept.ticket.digest);
        return Err(Failure::user("nobody is at a terminal to say yes").next(format!(
            "ringfence approvals approve {id} --yes --digest {digest} # after looking at it"
        )));
    }
    // What was typed before it could be read is no answer.
    let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
    out::say("May exactly this call go on? Type `yes`:");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|e| Failure::user(e.to_string()))?;
    if answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::user("not approved; the question waits on")
        .next(format!("ringfence approvals deny {}", kept.ticket.id)))
}
