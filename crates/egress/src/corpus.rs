//! The pure functions over the corpus that every engine is held to: `tests/corpus/egress.tsv`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use ringfence_bundle::{Host, parse_manifest};
use ringfence_policy::{MachinePolicy, Principal, Ruleset};

use crate::address::check_addresses;
use crate::head::{Framing, Head, find_end};
use crate::local::Locals;
use crate::request::Request;

const CORPUS: &str = include_str!("../../../tests/corpus/egress.tsv");
const LOGIN: &str = "Basic cmluZ2ZlbmNlOnRva2Vu";

fn bytes_of(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        out.push(match (byte, byte == b'\\') {
            (byte, false) => byte,
            (_, true) => match rest.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            },
        });
    }
    out
}

fn request(kind: &str, text: &str) -> Vec<u8> {
    let text = bytes_of(text);
    let with = |parts: &[&[u8]]| parts.concat();
    let auth = format!("\r\nProxy-Authorization: {LOGIN}\r\n\r\n");
    match kind {
        "connect" => with(&[b"CONNECT ", &text, b" HTTP/1.1\r\nHost: ", &text, auth.as_bytes()]),
        "get" => {
            let host = text["http://".len()..].split(|byte| *byte == b'/').next().unwrap();
            with(&[b"GET ", &text, b" HTTP/1.1\r\nHost: ", host, auth.as_bytes()])
        }
        _ => {
            let login = LOGIN.strip_prefix("Basic ").unwrap();
            // Every request is text but for its escapes, which are kept.
            let text = text.iter().map(|byte| char::from(*byte)).collect::<String>();
            text.replace("{login}", login)
                .chars()
                .map(|c| u8::try_from(u32::from(c)).unwrap())
                .collect()
        }
    }
}

struct World {
    zone: BTreeMap<String, Vec<String>>,
    ruleset: Ruleset,
    locals: Locals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Refused,
    /// Refused, and the connection is over.
    Malformed,
    Unreachable,
    Reached,
    /// A tunnel with something else than TLS behind it.
    Opened,
}

impl World {
    fn judge(&self, head: Head, behind: &[u8]) -> Fate {
        let shown = head.headers.get_all("proxy-authorization").iter().any(|value| value == LOGIN);
        let (tunnel, Ok(request)) = (head.method == "CONNECT", Request::new(head)) else {
            return Fate::Malformed;
        };
        let to = match request {
            Request::Tunnel(to) => to,
            Request::Exchange(exchange) => exchange.authority,
        };
        if !shown || !self.ruleset.egress(&Principal::Agent, &to.host, to.port).allowed {
            return Fate::Refused;
        }
        let answers: Option<Vec<IpAddr>> = match &to.host {
            Host::V4(address) => Some(vec![(*address).into()]),
            Host::V6(address) => Some(vec![(*address).into()]),
            Host::Name(name) => self
                .zone
                .get(name)
                .and_then(|answers| answers.iter().map(|answer| answer.parse().ok()).collect()),
        };
        match answers.map(|answers| check_addresses(&answers, &self.locals)) {
            Some(Ok(_)) if tunnel && !behind.is_empty() => Fate::Opened,
            Some(Ok(_)) => Fate::Reached,
            _ => Fate::Unreachable,
        }
    }

    /// Every request of a connection, as long as it is kept.
    fn verdict(&self, mut bytes: &[u8]) -> &'static str {
        let mut fates = Vec::new();
        while !bytes.is_empty() {
            let Ok(Some(end)) = find_end(bytes, 0) else {
                fates.push(Fate::Malformed);
                break;
            };
            let Ok(head) = Head::parse(&bytes[..end]) else {
                fates.push(Fate::Malformed);
                break;
            };
            bytes = &bytes[end..];
            let (tunnel, kept) = (head.method == "CONNECT", head.keeps_alive());
            match head.framing {
                Framing::Empty => {}
                Framing::Length(length) => {
                    bytes = bytes.get(usize::try_from(length).unwrap()..).unwrap_or_default()
                }
                Framing::Chunked => bytes = &[],
            }
            fates.push(self.judge(head, if tunnel { bytes } else { &[] }));
            if tunnel || !kept || fates.ends_with(&[Fate::Malformed]) {
                break;
            }
        }
        match fates[..] {
            [Fate::Reached]
            | [Fate::Reached, Fate::Refused | Fate::Malformed | Fate::Unreachable] => "reached",
            [Fate::Reached, Fate::Reached] => "twice",
            [Fate::Refused | Fate::Malformed] => "refused",
            [Fate::Refused, Fate::Reached] => "second",
            [Fate::Unreachable] => "unreachable",
            [Fate::Opened] => "opened",
            _ => "something else",
        }
    }
}

#[test]
fn the_pure_functions_give_the_verdict_of_the_corpus() {
    let (mut zone, mut allow, mut cases) = (BTreeMap::new(), Vec::new(), Vec::new());
    for line in CORPUS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[0] {
            "zone" => {
                let answers = fields[2..].iter().map(|answer| (*answer).to_owned());
                zone.insert(fields[1].to_owned(), answers.collect());
            }
            "allow" => allow.push(fields[1]),
            "differs" => {}
            _ => cases.push(fields),
        }
    }
    assert!(cases.len() >= 300);
    let manifest = format!(
        "version = 1\n[agent]\nname = \"a\"\n[sandbox.network]\negress = \"open\"\n\
         [policy.egress]\nagent = {allow:?}\n"
    );
    let (manifest, _) = parse_manifest(Path::new("ringfence.toml"), &manifest, None).unwrap();
    let ruleset = Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap();
    let own = ["11.22.33.1", "2a00:1234::1"].map(|text| text.parse().unwrap());
    let world = World { zone, ruleset, locals: Locals::with_interfaces_in_test(own.into()) };
    let wrong: Vec<String> = cases
        .iter()
        .map(|case| (case, world.verdict(&request(case[0], case[1]))))
        .filter(|(case, found)| case[2] != *found)
        .map(|(case, found)| format!("found {found}: {case:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
