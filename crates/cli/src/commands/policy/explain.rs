//! `ringfence policy explain`

use std::process::ExitCode;

use ringfence_bundle::{Host, Id, Manifest, SecretName, Snapshot};
use ringfence_policy::{
    Answer, Explain as Explained, Layer, MachinePolicy, Principal, Question, Rule, Ruleset, Step,
};
use serde_json::{Value, json};

use super::{Explain, Kind};
use crate::args::Args;
use crate::commands::{Done, home, user_home};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

pub(super) fn run(args: &Args, options: &Explain) -> Done {
    let snapshot = Snapshot::read_without_lock(args.project())?;
    let (home, user_home) = (home()?, user_home()?);
    let machine = MachinePolicy::load(&home)?;
    let manifest = &snapshot.manifest;
    let who = principal(&options.who, manifest)?;
    let rules = Ruleset::compile(&machine, manifest)?;
    let guarded: Vec<String> =
        ringfence_adapters::protected().into_iter().map(|protected| protected.path).collect();
    let real = |path: &std::path::Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let explain = Explained {
        rules: &rules,
        machine: &machine,
        manifest,
        project: &snapshot.project,
        user_home: &real(&user_home),
        home: &real(&home),
        guarded: &guarded,
    };
    let (Some(kind), Some(value)) = (options.kind, &options.value) else {
        let table = explain.table(&who);
        if options.json {
            out::json(&json!({ "version": 1, "who": who.key(), "rules": table }));
        } else {
            show(&who, &table);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let mut refused = false;
    let mut answers = Vec::new();
    for (verb, question) in questions(kind, value)? {
        let answer = explain.answer(&who, &question)?;
        refused |= !answer.allowed;
        if options.json {
            answers.push(as_json(verb, &answer));
        } else {
            say(verb, &who, value, &answer);
        }
    }
    if options.json {
        out::json(&json!({
            "version": 1, "who": who.key(), "value": value, "allowed": !refused, "answers": answers,
        }));
    }
    Ok(if refused && options.check { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

fn principal(who: &str, manifest: &Manifest) -> Result<Principal, Failure> {
    if who == "agent" {
        return Ok(Principal::Agent);
    }
    match Id::parse(who) {
        Ok(id) if manifest.servers.contains_key(&id) => Ok(Principal::Server(id)),
        _ => {
            let names: Vec<&str> = manifest.servers.keys().map(Id::as_str).collect();
            let list = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(Failure::user(format!(
                "`{who}` is neither `agent` nor a server of this bundle; servers: {list}"
            ))
            .next("ringfence policy explain agent"))
        }
    }
}

fn questions(kind: Kind, value: &str) -> Result<Vec<(&'static str, Question)>, Failure> {
    Ok(match kind {
        Kind::Tool => vec![("call", Question::Tool(value.to_owned()))],
        Kind::Method => vec![("use", Question::Method(value.to_owned()))],
        Kind::Secret => {
            let name = SecretName::parse(value).map_err(|e| Failure::user(e.to_string()))?;
            vec![("have", Question::Secret(name))]
        }
        Kind::Path => vec![
            ("read", Question::Read(value.to_owned())),
            ("write", Question::Write(value.to_owned())),
        ],
        Kind::Host => {
            let (host, port) = host(value)?;
            vec![("connect to", Question::Host(host, port))]
        }
    })
}

/// `name`, `name:port`, `[address]:port`.
fn host(value: &str) -> Result<(Host, u16), Failure> {
    let bad = |reason: String| {
        Failure::user(format!("`{value}` is not host or host:port: {reason}"))
            .next("ringfence policy explain agent host api.example.com:443")
    };
    // What stands behind the last `:` is a port, but inside of the brackets of an IPv6 address.
    let (name, port) = match value.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => {
            let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            let number = port.parse().ok().filter(|number| digits && *number != 0);
            (name, number.ok_or_else(|| bad("the port is not from 1 to 65535".to_owned()))?)
        }
        _ => (value, 443),
    };
    let host = Host::parse(name).map_err(|error| bad(error.reason.to_string()))?;
    Ok((host, port))
}

fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Machine => "machine",
        Layer::Bundle => "bundle",
        Layer::Declared => "declared",
        Layer::Builtin => "ringfence",
    }
}

fn place(step: &Step) -> String {
    match (&step.file, step.line) {
        (Some(file), Some(line)) => format!("{}:{line}", file.display()),
        _ => String::new(),
    }
}

fn as_json(verb: &str, answer: &Answer) -> Value {
    json!({
        "asked": verb, "allowed": answer.allowed, "because": answer.because, "steps": answer.steps,
    })
}

fn say(verb: &str, who: &Principal, value: &str, answer: &Answer) {
    let (colour, word) =
        if answer.allowed { (Colour::Green, "allowed") } else { (Colour::Red, "refused") };
    let because = &answer.because;
    out::data(&format!(
        "{}: {} may {}{verb} {}",
        out::paint(colour, word),
        who.key(),
        if answer.allowed { "" } else { "not " },
        escaped(value)
    ));
    out::data(&format!("  by    {}: {}", layer(because.layer), escaped(&because.rule)));
    if !place(because).is_empty() {
        out::data(&format!("  at    {}", escaped(&place(because))));
    }
    for step in answer.steps.iter().filter(|step| *step != because) {
        let word = if step.allows { "allows" } else { "refuses" };
        out::data(&format!("  also  {} {word}: {}", layer(step.layer), escaped(&step.rule)));
    }
}

fn show(who: &Principal, table: &[Rule]) {
    for rule in table {
        let word = if rule.refuses { "refuse" } else { "allow" };
        let everyone = if rule.everyone { "everyone" } else { who.key() };
        let line = if rule.line == 0 { String::new() } else { format!(":{}", rule.line) };
        out::data(&format!(
            "{:<7} {:<6} {:<28} {:<9} {:<10} {}{line}",
            rule.about,
            word,
            escaped(&rule.pattern),
            layer(rule.layer),
            everyone,
            escaped(&rule.file.to_string_lossy()),
        ));
    }
    let about = |what: &str| table.iter().any(|rule| rule.about == what);
    let mut silent = Vec::new();
    if *who != Principal::Agent && !about("tool") {
        silent.push("no rule on tools: all of them");
    }
    if *who != Principal::Agent && !about("secret") {
        silent.push("no rule on secrets: those that it names");
    }
    if !about("read") {
        silent.push("no `read`: the whole project may be read");
    }
    if !about("write") {
        silent.push("no `write`: the project is read-only");
    }
    for line in silent {
        out::say(line);
    }
    out::say("a refusal beats what is allowed, and every list that is named must allow");
}
