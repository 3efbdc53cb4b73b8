//! What is rendered, read by an independent reader of Squid's rules and by Squid itself.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use ringfence_bundle::{Host, Id, parse_manifest};
use ringfence_policy::{EgressPattern, EgressPorts, MachinePolicy, Principal, Ruleset};

use super::{Door, Group, Inexpressible, Place, outermost, regex, render};

fn ruleset(machine: &[(&str, Vec<String>)], manifest: &str) -> Ruleset {
    let file = Path::new("ringfence.toml");
    let (manifest, _) = parse_manifest(file, manifest, None).unwrap();
    let home = tempfile::tempdir().unwrap();
    let lists: Vec<String> =
        machine.iter().map(|(key, list)| format!("{key:?} = {list:?}\n")).collect();
    let text = format!("[policy.egress]\n{}", lists.concat());
    std::fs::write(home.path().join("machine.toml"), text).unwrap();
    Ruleset::compile(&MachinePolicy::load(home.path()).unwrap(), &manifest).unwrap()
}

fn doors(port: u16) -> Vec<Door> {
    vec![
        Door { who: Principal::Agent, port },
        Door { who: Principal::Server(Id::parse("s").unwrap()), port: port + 1 },
    ]
}

fn rendered(ruleset: &Ruleset, folder: &Path, port: u16, hosts: Option<&Path>) -> String {
    let place = Place {
        doors: &doors(port),
        checker: Path::new("/usr/lib/squid/basic_ncsa_auth"),
        passwords: &folder.join("passwords"),
        log: &folder.join("log"),
        own: &["11.22.33.1".parse().unwrap(), "127.0.0.1".parse().unwrap()],
        hosts,
    };
    render(ruleset, &place).unwrap()
}

/// A second reading of the configuration: `http_access` from the top, on a name and a port, up to the
/// rules about addresses.
struct Reader<'a> {
    acls: BTreeMap<&'a str, (&'a str, Vec<&'a str>)>,
    rules: Vec<Vec<&'a str>>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let mut acls: BTreeMap<&str, (&str, Vec<&str>)> = BTreeMap::new();
        let mut rules = Vec::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("acl") => {
                    let (name, kind) = (words.next().unwrap(), words.next().unwrap());
                    let values = words.filter(|word| *word != "-n");
                    acls.entry(name).or_insert((kind, Vec::new())).1.extend(values);
                }
                Some("http_access") => rules.push(words.collect()),
                _ => {}
            }
        }
        Self { acls, rules }
    }

    fn holds(&self, name: &str, door: &str, host: &str, port: u16) -> bool {
        if let Some(name) = name.strip_prefix('!') {
            return !self.holds(name, door, host, port);
        }
        if name == "all" {
            return true;
        }
        if name == "manager" {
            return false;
        }
        let (kind, values) = &self.acls[name];
        let ask = |name: &&str| self.holds(name, door, host, port);
        match *kind {
            "myportname" => values.contains(&door),
            "proxy_auth" | "annotate_transaction" => true,
            "method" => true,
            "proto" => false,
            "port" => values.contains(&port.to_string().as_str()),
            "any-of" => values.iter().any(ask),
            "all-of" => values.iter().all(ask),
            "dstdomain" => values.iter().any(|value| match value.strip_prefix('.') {
                Some(suffix) => host == suffix || host.ends_with(value),
                None => host == *value,
            }),
            "dstdom_regex" => values.iter().any(|value| fits(value, host)),
            "dst" => false,
            other => panic!("{other}"),
        }
    }

    fn allows(&self, door: &str, host: &str, port: u16) -> bool {
        for rule in &self.rules {
            if rule[1..].iter().all(|name| self.holds(name, door, host, port)) {
                return rule[0] == "allow";
            }
        }
        panic!("no rule applies")
    }
}

/// The part of POSIX expressions that is rendered, by trying everything.
fn fits(pattern: &str, text: &str) -> bool {
    fn rest(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [b'$'] => text.is_empty(),
            [b'.', b'*', after @ ..] => (0..=text.len()).any(|n| rest(after, &text[n..])),
            [b'.', after @ ..] => !text.is_empty() && rest(after, &text[1..]),
            [b'[', b'-', b']', after @ ..] => {
                text.first() == Some(&b'-') && rest(after, &text[1..])
            }
            [b'\\', c, after @ ..] | [c, after @ ..] => {
                text.first() == Some(c) && rest(after, &text[1..])
            }
            [] => true,
        }
    }
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    match pattern.strip_prefix(b"^") {
        Some(pattern) => rest(pattern, text),
        None => (0..=text.len()).any(|from| rest(pattern, &text[from..])),
    }
}

/// Patterns and hosts over so few letters that they meet.
const PATTERN: &str = "!?([ab*?]{1,3}|\\*|-\\*)(\\.[ab*]{1,2}){0,2}(:80|:443|:8443)?";
const HOST: &str = "[ab]{1,2}(\\.[ab]{1,2}){0,3}";
const ALLOWED: &str = "\\.?[ab](\\.[ab]){0,2}(:8443)?";

fn rules() -> impl Strategy<Value = Ruleset> {
    let list = || prop::collection::btree_set(PATTERN, 0..5).prop_map(Vec::from_iter);
    let table =
        || prop::collection::btree_map(prop::sample::select(vec!["*", "agent", "s"]), list(), 0..3);
    let allowed = || prop::collection::btree_set(ALLOWED, 0..5).prop_map(Vec::from_iter);
    let egress = prop::sample::select(vec!["open", "restricted", "none"]);
    (table(), table(), allowed(), allowed(), egress).prop_map(
        |(machine, bundle, agent, server, egress)| {
            let hosts = if egress == "restricted" {
                format!("allowed_hosts = {agent:?}\n")
            } else {
                String::new()
            };
            let bundle: Vec<String> =
                bundle.iter().map(|(key, list)| format!("{key:?} = {list:?}\n")).collect();
            let manifest = format!(
                "version = 1\n[agent]\nname = \"a\"\n[sandbox.network]\negress = \"{egress}\"\n{hosts}\
                 [servers.s]\ntype = \"stdio\"\ncommand = \"/bin/x\"\nallowed_hosts = {server:?}\n\
                 [servers.w]\ntype = \"http\"\nurl = \"https://bb.aa/mcp\"\n\
                 [policy.egress]\n{}",
                bundle.concat()
            );
            let machine: Vec<_> = machine.into_iter().collect();
            ruleset(&machine, &manifest)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_reader_of_its_own_finds_the_same_rules(
        ruleset in rules(),
        asked in prop::collection::vec((HOST, prop::sample::select(vec![80_u16, 443, 8443, 22])), 20),
    ) {
        let text = rendered(&ruleset, Path::new("/x"), 1000, None);
        let reader = Reader::new(&text);
        for (door, name) in [(&doors(1000)[0], "d0"), (&doors(1000)[1], "d1")] {
            for (host, port) in &asked {
                let host = Host::parse(host).unwrap();
                let expected = ruleset.egress(&door.who, &host, *port).allowed;
                let found = reader.allows(name, &host.to_string(), *port);
                prop_assert_eq!(found, expected, "{} {}:{}\n{}", door.who, host, port, text);
            }
        }
    }
}

/// What `squid -k parse` says of a configuration, but for what it says of every one.
fn complaints(text: &str, folder: &Path) -> Vec<String> {
    let file = folder.join("parsed.conf");
    std::fs::write(&file, text).unwrap();
    let output = Command::new("/usr/sbin/squid")
        .args(["-k", "parse", "-f"])
        .arg(&file)
        .output()
        .expect("squid is installed (cargo xtask test does it)");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let fine = |line: &&str| {
        let said = line.split_once("| ").map_or(*line, |(_, said)| said);
        said.starts_with("Startup: Initializ")
            || said.starts_with("Processing")
            || said == "Initializing https:// proxy context"
    };
    let mut all: Vec<String> =
        words.lines().filter(|line| !fine(line)).map(str::to_owned).collect();
    if !output.status.success() {
        all.push(format!("{}", output.status));
    }
    all
}

/// Rulesets that a person may well write, and odd ones.
fn odd() -> Vec<Ruleset> {
    let manifest = |network: &str, server: &str, rest: &str| {
        format!(
            "version = 1\n[agent]\nname = \"a\"\n[sandbox.network]\n{network}\n[servers.s]\ntype = \
             \"stdio\"\ncommand = \"/bin/x\"\n{server}\n{rest}"
        )
    };
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let many: Vec<String> = (0..1000).map(|n| format!("h{n}.example.com")).collect();
    let below: Vec<String> = (0..300).map(|n| format!(".s{n}.example.com")).collect();
    let globs: Vec<String> = (0..300).map(|n| format!("a*b{n}.example.com:443")).collect();
    let long = format!("{}.example.com", ["a"; 60].join("."));
    vec![
        ruleset(&[], &manifest("", "", "")),
        ruleset(&[], &manifest("egress = \"none\"", "", "")),
        ruleset(&[], &manifest("egress = \"open\"", "", "")),
        ruleset(&[("*", vec![])], &manifest("egress = \"open\"", "", "")),
        ruleset(&[("*", texts(&["!*"]))], &manifest("egress = \"open\"", "", "")),
        ruleset(&[("*", texts(&["*"]))], &manifest("egress = \"open\"", "", "")),
        ruleset(
            &[("*", texts(&["**", "***:80", "?", "?*?", "*?"]))],
            &manifest("egress = \"open\"", "", ""),
        ),
        ruleset(
            &[(
                "*",
                texts(&[
                    "*.example.com",
                    "example.com",
                    "a.example.com",
                    "*.a.example.com",
                    "!*.b.example.com:443",
                ]),
            )],
            &manifest(
                "allowed_hosts = [\".example.com\", \".a.example.com\", \"a.example.com\", \"example.com:8443\", \".example.com:8443\"]",
                "allowed_hosts = [\"b.example.com\"]",
                "",
            ),
        ),
        ruleset(
            &[(
                "agent",
                texts(&[
                    "*.anthropic.com:443",
                    "!evil.anthropic.com",
                    "[*]",
                    "[2a00:1234::44]:443",
                    "11.22.33.44",
                    "1?.22.*",
                    "*.44",
                    "*.0x1f",
                ]),
            )],
            &manifest(
                "allowed_hosts = [\"11.22.33.44\", \"[2a00:1234::44]:443\", \"api.anthropic.com\"]",
                "",
                "",
            ),
        ),
        ruleset(
            &[(
                "*",
                texts(&[
                    "xn--bcher-kva.example",
                    "BÜCHER.Example.",
                    "a-b.example.com",
                    "*-*.example.com",
                    "*-i*",
                    "*.-x.example.com",
                ]),
            )],
            &manifest("egress = \"open\"", "", ""),
        ),
        ruleset(&[("*", many.clone())], &manifest(&format!("allowed_hosts = {many:?}"), "", "")),
        ruleset(
            &[("*", globs)],
            &manifest(
                &format!("allowed_hosts = {below:?}"),
                &format!("allowed_hosts = [{long:?}]"),
                "",
            ),
        ),
        ruleset(
            &[],
            &manifest(
                "",
                "",
                "[servers.w]\ntype = \"http\"\nurl = \"https://mcp.example.com/mcp\"\n[servers.v]\ntype = \"http\"\nurl = \"https://[2a00:1234::44]/mcp\"\n",
            ),
        ),
    ]
}

#[test]
fn squid_has_nothing_to_say_of_any_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let random = (0..60).map(|_| rules().new_tree(&mut runner).unwrap().current());
    for ruleset in odd().into_iter().chain(random) {
        let text = rendered(&ruleset, folder.path(), 1000, None);
        assert_eq!(complaints(&text, folder.path()), Vec::<String>::new(), "{text}");
    }
    // Control: what is left out of the answer is not everything.
    let text = rendered(&odd()[0], folder.path(), 1000, None);
    for wrong in
        ["via off\n", "acl x dstdomain .a.org b.a.org\n", "acl x dst 0.0.0.0/0\n", "nonsense\n"]
    {
        assert_ne!(
            complaints(&format!("{text}{wrong}"), folder.path()),
            Vec::<String>::new(),
            "{wrong}"
        );
    }
}

/// A Squid that ends with the test.
struct Real(Child);

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let name = format!("ringfencetest{}-", std::process::id());
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&name) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// What a real Squid says to a CONNECT. Every name is `127.0.0.1` to it, so that what the rules allow is
/// refused by the address, and says so.
#[test]
fn a_real_squid_decides_as_the_rules_do() {
    let mut runner = TestRunner::deterministic();
    let names: Vec<String> =
        (0..150).map(|_| HOST.new_tree(&mut runner).unwrap().current()).collect();
    for round in 0..6 {
        // Not all that is generated allows anything.
        let (ruleset, allowed) =
            std::iter::repeat_with(|| rules().new_tree(&mut runner).unwrap().current())
                .map(|ruleset| {
                    let allowed = |name: &&String| {
                        let host = Host::parse(name).unwrap();
                        ruleset.egress(&Principal::Agent, &host, 443).allowed
                    };
                    let count = names.iter().filter(allowed).count();
                    (ruleset, count)
                })
                .find(|(_, count)| *count > 5 && *count < names.len())
                .unwrap();
        let (same, reached) = compare(&ruleset, &names);
        assert!(same > 400 && reached >= allowed, "round {round}: {same} {reached} {allowed}");
    }
}

fn compare(ruleset: &Ruleset, names: &[String]) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let token = crate::Token::fresh().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, open).unwrap();
    let salted = Command::new("openssl")
        .args(["passwd", "-6", "-salt", "salt", token.secret()])
        .output()
        .unwrap();
    let hash = String::from_utf8(salted.stdout).unwrap();
    std::fs::write(path.join("passwords"), format!("agent:{hash}s:{hash}")).unwrap();
    let hosts: Vec<String> = names.iter().map(|name| format!("127.0.0.1 {name}\n")).collect();
    std::fs::write(path.join("hosts"), hosts.concat()).unwrap();
    let port = loop {
        let one = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = one.local_addr().unwrap().port();
        if port < 65000 && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            break port;
        }
    };
    let text = rendered(ruleset, path, port, Some(&path.join("hosts")))
        .replace("access_log stdio:", "access_log none # ");
    let text = format!(
        "{text}reply_header_add X-Checked \"%{{check}}note\" all\ncache_effective_user proxy\n"
    );
    std::fs::write(path.join("squid.conf"), &text).unwrap();
    let mut real = Real(
        Command::new("/usr/sbin/squid")
            .args(["-N", "-d", "1", "-n", &format!("ringfencetest{}", std::process::id()), "-f"])
            .arg(path.join("squid.conf"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("squid is installed (cargo xtask test does it)"),
    );
    let said = BufReader::new(real.0.stderr.take().unwrap());
    let mut accepting = 0;
    let mut all = String::new();
    let mut said = said.lines();
    while accepting < 2 {
        let line = said.next().unwrap_or_else(|| panic!("{all}\n{text}")).unwrap();
        accepting += usize::from(line.contains("Accepting HTTP"));
        all.push_str(&line);
        all.push('\n');
    }
    // What it says later goes nowhere, but somewhere.
    std::thread::spawn(move || said.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
    let (mut same, mut reached) = (0, 0);
    for (n, door) in doors(port).iter().enumerate() {
        for name in names {
            for target in [443, 8443] {
                let host = Host::parse(name).unwrap();
                let expected = ruleset.egress(&door.who, &host, target).allowed;
                let answer = ask(door, &token, name, target)
                    .unwrap_or_else(|error| panic!("{error}\n{text}"));
                // An allowed name is looked up, found to be loopback and refused as that.
                let found = answer.contains("X-Checked: address");
                assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
                assert_eq!(found, expected, "{n} {name}:{target}\n{answer}\n{text}");
                same += 1;
                reached += usize::from(found && n == 0 && target == 443);
            }
        }
    }
    (same, reached)
}

#[expect(clippy::disallowed_methods, reason = "a test dials the Squid that it started")]
fn ask(door: &Door, token: &crate::Token, name: &str, port: u16) -> std::io::Result<String> {
    use base64::Engine as _;
    let pair = format!("{}:{}", door.who, token.secret());
    let pair = base64::engine::general_purpose::STANDARD.encode(pair);
    // Squid says that it accepts connections shortly before it does.
    let until = std::time::Instant::now() + Duration::from_secs(10);
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", door.port)) {
            Err(_) if std::time::Instant::now() < until => std::thread::yield_now(),
            other => break other?,
        }
    };
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let head = format!(
        "CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\nProxy-Authorization: Basic {pair}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_suffix_covers_only_what_has_its_ports() {
    assert_eq!(outermost(vec!["a.b", "b", "c.b", "xb", "b"]), ["b", "xb"]);
    let manifest = "version = 1\n[agent]\nname = \"a\"\n[sandbox.network]\nallowed_hosts = [\n\
                    \".example.com\", \"a.example.com:8443\", \".b.example.com:8443\"]\n";
    let ruleset = ruleset(&[], manifest);
    let text = rendered(&ruleset, Path::new("/x"), 1000, None);
    let reader = Reader::new(&text);
    for (host, port, allowed) in [
        ("a.example.com", 443, true),
        ("a.example.com", 8443, true),
        ("c.example.com", 8443, false),
        ("x.b.example.com", 8443, true),
        ("b.example.com", 8443, false),
        ("example.com", 443, false),
    ] {
        assert_eq!(reader.allows("d0", host, port), allowed, "{host}:{port}");
    }
}

#[test]
fn what_cannot_be_said_exactly_is_refused_by_its_name() {
    for glob in ["", "a b", "A", "a\"", "a\\b", "b\u{fc}cher", "a(b|c)", "a^", &"a".repeat(513)] {
        let pattern = EgressPattern {
            denies: false,
            glob: glob.to_owned(),
            ports: EgressPorts::Any,
            rule: "machine.toml:3 the rule".to_owned(),
        };
        let rule = "machine.toml:3 the rule".to_owned();
        assert_eq!(Group::default().add(&pattern), Err(Inexpressible { rule }), "{glob:?}");
    }
    assert_eq!(regex("a**b?.[c]"), r"^a.*b.\.\[c\]$");
    assert_eq!((regex("*a"), regex("a*"), regex("*?*")), ("a$".into(), "^a".into(), ".".into()));
}
