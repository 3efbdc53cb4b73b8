//! `ringfence lock --tools`

use std::process::ExitCode;

use ringfence_run::{Asked, Field, How, Inquiry, Moved, Piece, Request, What};
use serde_json::{Value, json};

use super::super::{Done, home, user_home};
use crate::args::{Args, Lock};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

/// Things that moved, on one screen; with `--json` there are all.
const SHOWN: usize = 200;

pub(super) fn run(args: &Args, lock: &Lock, servers: &[String]) -> Done {
    let request = Request {
        project: args.project().to_owned(),
        home: home()?,
        user_home: user_home()?,
        path: std::env::var_os("PATH"),
        command: Vec::new(),
        backend: None,
    };
    let inquiry = Inquiry::build(&request, servers)?;
    let asked = inquiry.ask()?;
    let moved = inquiry.moved(&asked);
    let written = if lock.check { false } else { inquiry.write(&asked)? };
    if lock.json {
        out::json(&document(&asked, &moved, lock.check, written));
    } else {
        show(&asked, &moved);
    }
    let run = &asked.run;
    if lock.check {
        if moved.is_empty() {
            out::say(&format!("{} as pinned", counted(&asked)));
            return Ok(ExitCode::SUCCESS);
        }
        if lock.json {
            return Ok(ExitCode::FAILURE);
        }
        let words = format!("{} thing(s) that servers say are not as pinned", moved.len());
        return Err(Failure::user(words).next("ringfence lock --tools"));
    }
    if written {
        let file = inquiry.snapshot().folder().join("ringfence.lock");
        out::say(&format!("wrote {}: {}", escaped(&file.to_string_lossy()), counted(&asked)));
        out::say("  next: ringfence trust");
    } else {
        out::say(&format!("the lock holds: {}", counted(&asked)));
    }
    out::say(&out::paint(Colour::Dim, &format!("evidence: ringfence report {run}")));
    Ok(ExitCode::SUCCESS)
}

/// Says of which servers a new lock no longer pins the tools.
pub(super) fn lost(before: Option<&ringfence_bundle::Lock>, after: &ringfence_bundle::Lock) {
    let gone = |server: &str| after.tools_of(server).is_none();
    let servers = before.into_iter().flat_map(|lock| &lock.tools).map(|pins| pins.server.as_str());
    for server in servers.filter(|server| gone(server)) {
        let word = out::paint(Colour::Yellow, "unpinned");
        out::say(&format!("  {word}  tools of {server}: it is declared otherwise now"));
        out::say("  next: ringfence lock --tools, once it is trusted");
    }
}

fn counted(asked: &Asked) -> String {
    let tools: usize = asked.pins.iter().map(|pins| pins.tools.len()).sum();
    format!("{tools} tool(s) of {} server(s)", asked.pins.len())
}

fn document(asked: &Asked, moved: &[Moved], check: bool, written: bool) -> Value {
    let server = |pins: &ringfence_bundle::ToolPins| json!({ "server": pins.server, "tools": pins.tools.len() });
    let servers: Vec<_> = asked.pins.iter().map(server).collect();
    let mut document = json!({
        "version": 1, "run": asked.run, "servers": servers,
        "moved": moved, "unfit": asked.unfit, "missing": asked.missing,
    });
    if check {
        document["holds"] = moved.is_empty().into();
    } else {
        document["written"] = written.into();
    }
    document
}

fn show(asked: &Asked, moved: &[Moved]) {
    for row in moved.iter().take(SHOWN) {
        let what = match (&row.tool, row.what) {
            (Some(tool), _) => format!("tool {}/{}", row.server, escaped(tool.as_str())),
            (None, What::Instructions) => format!("instructions of {}", row.server),
            (None, _) => format!("server {}", row.server),
        };
        line(row.how, &what);
        for field in &row.fields {
            out::data(&format!("           {}: {}", field.path, words(field)));
        }
        if row.more > 0 {
            out::data(&format!("           and {} more field(s)", row.more));
        }
    }
    if moved.len() > SHOWN {
        out::data(&format!("  and {} more; --json has them all", moved.len() - SHOWN));
    }
    for unfit in &asked.unfit {
        let (server, name) = (&unfit.server, escaped(&unfit.name));
        let word = out::paint(Colour::Red, "not pinned");
        out::say(&format!("  {word}  {server}/{name}: {}", unfit.why));
    }
    for missing in &asked.missing {
        let words = "the manifest lists it, and the server does not offer it";
        out::say(&format!("  {}  {missing}: {words}", out::paint(Colour::Yellow, "absent")));
    }
}

fn line(how: How, what: &str) {
    let (colour, word) = match how {
        How::New => (Colour::Green, "new"),
        How::Gone => (Colour::Red, "gone"),
        How::Changed | How::Same => (Colour::Yellow, "changed"),
    };
    out::data(&format!("  {:<8} {what}", out::paint(colour, word)));
}

/// The words as `git diff --word-diff` marks them.
fn words(field: &Field) -> String {
    let piece = |Piece { how, text }: &Piece| {
        let text = unmarked(&escaped(text));
        match how {
            How::New => out::paint(Colour::Green, &format!("{{+{text}+}}")),
            How::Gone => out::paint(Colour::Red, &format!("[-{text}-]")),
            How::Same | How::Changed => text,
        }
    };
    field.words.iter().map(piece).collect()
}

/// A server's words do not mark what moved.
fn unmarked(text: &str) -> String {
    text.replace("{+", "\\u{7b}+")
        .replace("+}", "+\\u{7d}")
        .replace("[-", "\\u{5b}-")
        .replace("-]", "-\\u{5d}")
}
