//! One corpus of requests, judged by the built-in proxy and by Squid through real sockets: the verdict of
//! the pure functions (which a test of `ringfence-egress` holds to the same file), or a listed difference.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_tests::{Project, TestNet, Who, each_user};
use serde_json::{Value, json};

use crate::bundles::SMALL;

const CORPUS: &str = include_str!("../corpus/egress.tsv");

const SCRIPT: &str = r##"
import concurrent.futures, re, threading
ADDRESS, SECRET = proxy()
LOGIN = SECRET.encode()

def bytes_of(text):
    short = {"r": b"\r", "n": b"\n", "\\": b"\\"}
    out, at = b"", 0
    while at < len(text):
        if text[at] != "\\":
            out += text[at].encode("latin-1"); at += 1
        elif text[at + 1] == "x":
            out += bytes([int(text[at + 2:at + 4], 16)]); at += 4
        else:
            out += short[text[at + 1]]; at += 2
    return out

def all_of(sock):
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except OSError:
        pass
    return data

def run(number, kind, text):
    data = bytes_of(text)
    auth = b"Proxy-Authorization: Basic " + LOGIN + b"\r\n"
    sock = socket.create_connection(ADDRESS, timeout=20)
    if kind == "connect":
        sock.sendall(b"CONNECT " + data + b" HTTP/1.1\r\nHost: " + data + b"\r\n" + auth + b"\r\n")
        try:
            head = until_blank(sock)
        except OSError:
            head = b""
        status, body = status_of(head), b""
        if status == 200:
            name = data.rsplit(b":", 1)[0].decode("latin-1").strip("[]").rstrip(".").lower()
            literal = ":" in name or re.fullmatch(r"[0-9.]+", name)
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            try:
                tls = context.wrap_socket(sock, server_hostname=None if literal else name)
                tls.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                body = all_of(tls)
            except (OSError, ValueError):
                pass
        return status, body.count(b"tls host")
    if kind == "get":
        host = data.split(b"//", 1)[1].split(b"/", 1)[0]
        data = b"GET " + data + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + auth + b"\r\n"
    try:
        sock.sendall(data.replace(b"{login}", LOGIN))
    except OSError:
        pass
    # A connection that is kept has said all there is to say after a while.
    sock.settimeout(3)
    answer = all_of(sock)
    count = answer.count(b"plain host")
    if data.startswith(b"HEAD ") and status_of(answer) == 200:
        count = 1
    return status_of(answer), count

# A control beside the corpus: what is counted can be counted.
lock = threading.Lock()
def one(job):
    try:
        status, count = run(*job)
    except Exception as error:
        status, count = -1, repr(error)
    with lock:
        say(str(job[0]), status=status, count=count)
with open("corpus.json") as file:
    jobs = json.load(file)
with concurrent.futures.ThreadPoolExecutor(12) as pool:
    list(pool.map(one, jobs))
"##;

struct Corpus {
    zone: Vec<(String, Value)>,
    allow: Vec<String>,
    differs: BTreeMap<String, (String, String)>,
    /// Kind, request, verdict, note.
    cases: Vec<[String; 4]>,
}

fn corpus() -> Corpus {
    let mut corpus =
        Corpus { zone: vec![], allow: vec![], differs: BTreeMap::new(), cases: vec![] };
    for line in CORPUS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        match fields[0].as_str() {
            "zone" => corpus.zone.push((fields[1].clone(), json!(fields[2..]))),
            "allow" => corpus.allow.push(fields[1].clone()),
            "differs" => {
                let what = (fields[2].clone(), fields[3].clone());
                corpus.differs.insert(fields[1].clone(), what);
            }
            _ => corpus.cases.push(fields.try_into().expect("four fields")),
        }
    }
    corpus
}

/// What came of a case, in the corpus' words.
fn verdict(status: i64, count: u64, expected: &str) -> String {
    match (status, count) {
        (400.., 1) => "second".into(),
        (_, 1) => "reached".into(),
        (_, 2) => "twice".into(),
        // The first answer is the one to look at: a refusal.
        (400.., _) | (0, 0) => expected_refusal(expected),
        (200, 0) => "opened".into(),
        other => format!("{other:?}"),
    }
}

/// By its status alone a refusal is one or the other: the lookups tell them apart.
fn expected_refusal(expected: &str) -> String {
    match expected {
        "refused" | "unreachable" => expected.into(),
        _ => "refused".into(),
    }
}

fn judged(who: Who, engine: &str, corpus: &Corpus) -> BTreeMap<usize, String> {
    let zone: Vec<(&str, Value)> =
        corpus.zone.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let net = TestNet::new(who, &zone);
    let mut project = Project::new(who);
    project.manifest(&format!(
        "{SMALL}\n[sandbox.network]\nengine = \"{engine}\"\negress = \"open\"\n\n[policy.egress]\n\
         agent = {:?}\n",
        corpus.allow
    ));
    net.host(&mut project);
    project.lock();
    project.trust();
    // Control: whoever is asked past the proxy does answer, private or not.
    let direct = format!("http://{}/", TestNet::PRIVATE);
    let direct = project.shell(&["curl", "-sS", "--noproxy", "*", &direct]).ok();
    assert!(direct.stdout.contains("plain host"));
    let before = net.sightings().len();

    let jobs: Vec<Value> = corpus
        .cases
        .iter()
        .enumerate()
        .map(|(number, case)| json!([number, case[0], case[1]]))
        .collect();
    project.file("corpus.json", json!(jobs).to_string());
    let cases = project.agent(SCRIPT);
    let found: BTreeMap<usize, String> = corpus
        .cases
        .iter()
        .enumerate()
        .map(|(number, case)| {
            let found = cases.get(&number.to_string());
            let (status, count) = (found["status"].as_i64(), found["count"].as_u64());
            let (Some(status), Some(count)) = (status, count) else { panic!("{case:?}: {found}") };
            (number, verdict(status, count, &case[2]))
        })
        .collect();

    // Nothing but what the rules allow was looked up, and nothing but what is public was reached.
    let allowed = |name: &str| {
        corpus.allow.iter().any(|pattern| match pattern.strip_prefix('*') {
            Some(suffix) => name.ends_with(suffix),
            None => name == pattern,
        })
    };
    let mut asked = BTreeSet::new();
    for seen in &net.sightings()[before..] {
        let name = seen.name.as_str();
        match seen.kind.as_str() {
            "dns" => {
                assert!(allowed(name), "{engine} looked up {name:?}");
                asked.insert(name.to_owned());
            }
            _ => {
                let host = name.split(':').next().unwrap_or_default();
                let own = name.is_empty() || allowed(host) || allowed(name) || name == "x";
                assert!(own, "{engine}: {seen:?}");
                let public = [TestNet::PUBLIC, TestNet::OTHER, TestNet::PUBLIC6];
                assert!(public.iter().any(|at| seen.at.contains(at)), "{engine} reached {seen:?}");
            }
        }
    }
    // Control: those that are allowed were looked up, there and nowhere else.
    for name in ["allowed.example.com", "private.wild.example.com", "missing.wild.example.com"] {
        assert!(asked.contains(name), "{engine} did not look up {name}: {asked:?}");
    }
    project.events().has("egress_decided", &[("host", "refused.example.com")]);
    found
}

#[test]
fn every_engine_gives_the_verdict_of_the_corpus() {
    let corpus = corpus();
    assert!(corpus.cases.len() >= 300, "{}", corpus.cases.len());
    let listed = |case: &[String; 4]| corpus.differs.get(&case[3]);
    each_user(|who| {
        for engine in ["builtin", "squid"] {
            let found = judged(who, engine, &corpus);
            let (mut same, mut differ, mut wrong) = (0, 0, Vec::new());
            for (number, case) in corpus.cases.iter().enumerate() {
                let found = &found[&number];
                match listed(case).filter(|_| engine == "squid") {
                    Some((other, _)) if found == other => differ += 1,
                    Some((other, _)) => {
                        wrong.push(format!("listed as {other}, and found {found}: {case:?}"));
                    }
                    None if *found == case[2] => same += 1,
                    None => wrong.push(format!("found {found}: {case:?}")),
                }
            }
            assert!(wrong.is_empty(), "{engine}, {}:\n{}", wrong.len(), wrong.join("\n"));
            println!("{engine:8} uid {:6}  same {same:4}  listed {differ:2}", who.uid());
        }
    });
    for (note, (other, reason)) in &corpus.differs {
        assert!(corpus.cases.iter().any(|case| case[3] == *note), "{note} is no case");
        println!("squid: {note}: {other}: {reason}");
    }
}
