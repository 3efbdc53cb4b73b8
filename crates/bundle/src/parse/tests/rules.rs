//! Each rule with what breaks it and, beside it, what does not.

use super::{brief, parse};

const DID: &str = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
const OTHER: &str = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";

/// Asserts that `bad` breaks exactly this rule, at the last line, and that `good` breaks none.
fn rule(name: &str, good: &str, bad: &str) {
    let good = format!("version = 1\n{good}");
    let found = parse(&good).map(drop).map_err(|_| brief(&good));
    assert_eq!(found, Ok(()), "control of {name}:\n{good}");
    let bad = format!("version = 1\n{bad}");
    let rules: Vec<String> =
        brief(&bad).iter().map(|f| f.split_once(':').expect("two").1.to_owned()).collect();
    assert_eq!(rules, [name], "{bad}");
}

#[test]
fn isolation_may_only_strengthen_the_floor() {
    rule(
        "isolation-below-floor",
        "capabilities = [\"web_search\"]\n[sandbox]\nisolation = \"kernel\"",
        "capabilities = [\"web_search\"]\n[sandbox]\nisolation = \"process\"",
    );
    rule(
        "isolation-below-floor",
        "[agent]\nname = \"a\"\ncapabilities = [\"read_file\"]\n[sandbox]\nisolation = \"process\"",
        "[agent]\nname = \"a\"\ncapabilities = [\"read_file\"]\n[sandbox]\nisolation = \"none\"",
    );
}

#[test]
fn capabilities_stand_in_one_place() {
    rule(
        "duplicate-key",
        "capabilities = [\"read_file\"]\n[agent]\nname = \"a\"",
        "capabilities = [\"read_file\"]\n[agent]\nname = \"a\"\ncapabilities = [\"read_file\"]",
    );
    rule("bad-value", "capabilities = [\"read_file\"]", "capabilities = [\"read_files\"]");
    rule(
        "duplicate-value",
        "capabilities = [\"read_file\"]",
        "capabilities = [\"read_file\", \"read_file\"]",
    );
}

#[test]
fn egress_agrees_with_allowed_hosts() {
    let hosts = "allowed_hosts = [\"a.com\"]";
    for word in ["open", "none"] {
        rule(
            "egress-contradiction",
            &format!("[sandbox.network]\negress = \"{word}\""),
            &format!("[sandbox.network]\negress = \"{word}\"\n{hosts}"),
        );
    }
    rule(
        "bad-host",
        &format!("[sandbox.network]\n{hosts}"),
        "[sandbox.network]\nallowed_hosts = [\"*.a.com\"]",
    );
}

#[test]
fn an_opaque_host_is_one_host_and_one_port() {
    let hosts = |list: &str| format!("[sandbox.network]\nallowed_hosts = [{list}]");
    let good = hosts("{ host = \"db.a.com:5432\", opaque = true }");
    for (name, bad) in [
        ("bad-host", "{ host = \"db.a.com\", opaque = true }"),
        ("bad-host", "{ host = \".a.com:5432\", opaque = true }"),
        ("bad-host", "{ host = \"*.a.com\" }"),
        ("local-host", "{ host = \"127.0.0.1:5432\", opaque = true }"),
        ("missing-key", "{ opaque = true }"),
        ("unknown-key", "{ host = \"db.a.com:5432\", opaqe = true }"),
        ("wrong-type", "{ host = \"db.a.com:5432\", opaque = \"yes\" }"),
        ("wrong-type", "5432"),
        ("duplicate-value", "\"db.a.com:5432\", { host = \"DB.a.com.:5432\", opaque = true }"),
        ("duplicate-value", "\"db.a.com\", { host = \"db.a.com\", opaque = false }"),
    ] {
        rule(name, &good, &hosts(bad));
        let server = "[servers.a]\ntype = \"stdio\"\ncommand = \"x\"";
        rule(
            name,
            &format!("{server}\nallowed_hosts = [\"a.com\"]"),
            &format!("{server}\nallowed_hosts = [{bad}]"),
        );
    }
}

#[test]
fn no_spelling_of_this_machine_is_allowed() {
    for host in [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        ".localhost",
        "host.docker.internal",
        "host.containers.internal",
        "gateway.docker.internal",
        "127.0.0.1",
        "127.3.2.1:80",
        "::1",
        "[::1]:443",
        "0.0.0.0",
        "::",
        "[::]",
        "::ffff:127.0.0.1",
        ".internal",
        "ⓛocalhost",
        "１２７.0.0.1",
    ] {
        rule(
            "local-host",
            "[sandbox.network]\nallowed_hosts = [\"localhost.example.com\"]",
            &format!("[sandbox.network]\nallowed_hosts = [\"{host}\"]"),
        );
        rule(
            "local-host",
            "[servers.a]\ntype = \"stdio\"\ncommand = \"x\"\nallowed_hosts = [\"a.com\"]",
            &format!(
                "[servers.a]\ntype = \"stdio\"\ncommand = \"x\"\nallowed_hosts = [\"{host}\"]"
            ),
        );
    }
}

#[test]
fn no_allowed_host_covers_a_gated_one() {
    let server = "[servers.m]\ntype = \"http\"\nurl = \"https://MCP.bücher.example./mcp\"\n";
    for host in [
        "mcp.xn--bcher-kva.example",
        "MCP.BÜCHER.example.",
        ".bücher.example",
        ".example:8443",
        "mcp.bücher.example:22",
    ] {
        rule(
            "server-host-allowed",
            &format!("{server}[sandbox.network]\nallowed_hosts = [\"cp.bücher.example\"]"),
            &format!("{server}[sandbox.network]\nallowed_hosts = [\"{host}\"]"),
        );
        rule(
            "server-host-allowed",
            &format!(
                "{server}[servers.s]\ntype = \"stdio\"\ncommand = \"x\"\nallowed_hosts = [\"b.com\"]"
            ),
            &format!(
                "{server}[servers.s]\ntype = \"stdio\"\ncommand = \"x\"\nallowed_hosts = [\"{host}\"]"
            ),
        );
    }
    let peer = |host: &str| {
        format!(
            "[agent]\nname = \"a\"\ndid = \"{DID}\"\n[[a2a.peers]]\nname = \"p\"\ndid = \"{OTHER}\"\n\
             endpoint = \"https://p.example:9443\"\n[sandbox.network]\nallowed_hosts = [\"{host}\"]"
        )
    };
    rule("server-host-allowed", &peer("q.example"), &peer("p.example"));
}

#[test]
fn server_addresses() {
    let server = |url: &str| format!("[servers.m]\ntype = \"http\"\nurl = \"{url}\"");
    for (name, bad) in [
        ("bad-url", "ftp://mcp.com"),
        ("bad-url", "https://u:p@mcp.com/"),
        ("bad-url", "https://mcp.com/#x"),
        ("bad-url", "https://0x7f.1/"),
        ("bad-url", "https://mcp.com/${TOKEN}"),
        ("plain-http", "http://mcp.com/"),
        ("plain-http", "http://93.184.216.34/"),
    ] {
        for good in
            ["https://mcp.com/", "http://127.0.0.1:80/", "http://localhost/", "http://10.1.2.3/mcp"]
        {
            rule(name, &server(good), &server(bad));
        }
    }
    rule("missing-key", &server("https://a.com"), "[servers.m]\ntype = \"http\"");
    rule(
        "unknown-key",
        &server("https://a.com"),
        &format!("{}\ncommand = \"x\"", server("https://a.com")),
    );
    rule(
        "bad-value",
        &server("https://a.com"),
        "[servers.m]\ntype = \"sse\"\nurl = \"https://a.com\"",
    );
}

#[test]
fn headers() {
    let server = |headers: &str| {
        format!("[servers.m]\ntype = \"http\"\nurl = \"https://a.com\"\nheaders = {{ {headers} }}")
    };
    let good = server("Authorization = \"Bearer ${T}\"");
    for (name, bad) in [
        ("bad-header", "Host = \"x\""),
        ("bad-header", "\"Mcp-Session-Id\" = \"x\""),
        ("bad-header", "\"a b\" = \"x\""),
        ("bad-header", "A = \"x\\ny\""),
        ("bad-reference", "A = \"$T\""),
        ("duplicate-key", "A = \"x\", a = \"y\""),
    ] {
        rule(name, &good, &server(bad));
    }
}

#[test]
fn environments() {
    let server =
        |env: &str| format!("[servers.m]\ntype = \"stdio\"\ncommand = \"x\"\nenv = {{ {env} }}");
    for name in [
        "LD_PRELOAD",
        "NODE_OPTIONS",
        "BASH_ENV",
        "ENV",
        "PYTHONPATH",
        "GIT_DIR",
        "https_proxy",
        "PATH",
        "HOME",
        "RINGFENCE_HOME",
    ] {
        rule("reserved-variable", &server("API_KEY = \"x\""), &server(&format!("{name} = \"x\"")));
        rule(
            "reserved-variable",
            "[sandbox]\ncredentials = [\"API_KEY\"]",
            &format!("[sandbox]\ncredentials = [\"{name}\"]"),
        );
    }
    rule("bad-name", &server("A = \"x\""), &server("\"A-B\" = \"x\""));
    rule("bad-reference", &server("A = \"$$5 ${B}\""), &server("A = \"${B\""));
}

#[test]
fn names() {
    let server = |name: &str| format!("[servers.{name}]\ntype = \"stdio\"\ncommand = \"x\"");
    rule("bad-name", &server("a_b"), &server("a__b"));
    rule("bad-name", &server("a"), &server("\"аpple\""));
    rule("reserved-name", &server("agents"), &server("agent"));
    rule(
        "name-collision",
        &format!("{}\n{}", server("a-b"), server("a-c")),
        &format!("{}\n{}", server("a-b"), server("a_b")),
    );
    rule("bad-name", "[agent]\nname = \"a-b\"", "[agent]\nname = \"a_b\"");
}

#[test]
fn identity_is_needed_where_something_holds_across_runs() {
    let agent = format!("[agent]\nname = \"a\"\ndid = \"{DID}\"\n");
    for spending in ["max_per_day_usd = \"1\"", "max_per_month_usd = \"1\""] {
        rule(
            "needs-did",
            &format!("{agent}[spending]\n{spending}\n{PRICED}"),
            &format!("[spending]\n{spending}\n{PRICED}"),
        );
    }
    let peer =
        format!("[[a2a.peers]]\nname = \"p\"\ndid = \"{OTHER}\"\nendpoint = \"https://p.example\"");
    rule("needs-did", &format!("{agent}{peer}"), &peer);
    rule("bad-did", &agent, "[agent]\nname = \"a\"\ndid = \"did:web:a.com\"");
}

const PRICED: &str = "[servers.m]\ntype = \"stdio\"\ncommand = \"x\"\n[[servers.m.pricing.meters]]\nusage_path = \"a.b\"\nusd_per_unit = \"0.1\"";

#[test]
fn peers() {
    let a2a = |listen: &str, peers: &[(&str, &str)]| {
        let peers: String = peers
            .iter()
            .map(|(name, did)| format!("[[a2a.peers]]\nname = \"{name}\"\ndid = \"{did}\"\nendpoint = \"https://{name}.example\"\n"))
            .collect();
        format!("[agent]\nname = \"a\"\ndid = \"{DID}\"\n[a2a]\n{listen}\n{peers}")
    };
    let listen = "listen = \"127.0.0.1:9443\"";
    let good = a2a(listen, &[("p", OTHER)]);
    rule("listen-without-peers", &good, &a2a(listen, &[]));
    rule("peer-did", &good, &a2a(listen, &[("p", DID)]));
    rule("peer-did", &good, &a2a(listen, &[("p", OTHER), ("q", OTHER)]));
    rule("bad-value", &good, &a2a("listen = \"localhost:9443\"", &[("p", OTHER)]));
    rule("bad-url", &good, &good.replace("https://p", "http://p"));
}

#[test]
fn money() {
    let cap = |amount: &str| format!("[spending]\nmax_per_run_usd = {amount}\n{PRICED}");
    rule("zero-cap", &cap("\"0.01\""), &cap("\"0\""));
    rule("zero-cap", &cap("\"1\""), &cap("\"0.00\""));
    rule("bad-amount", &cap("\"0.00000001\""), &cap("\"0.000000001\""));
    rule("wrong-type", &cap("\"1\""), &cap("1.5"));
    rule(
        "no-meters",
        PRICED,
        "[servers.m]\ntype = \"stdio\"\ncommand = \"x\"\n[servers.m.pricing]\nmax_usd_per_call = \"1\"\n[spending]\nmax_per_run_usd = \"1\"",
    );
    rule(
        "bad-amount",
        PRICED,
        &format!("[spending]\nmax_per_run_usd = \"1\"\n{}", PRICED.replace("0.1", "1e-1")),
    );
}

#[test]
fn webhooks() {
    let notify = |rest: &str| format!("[[approvals.notify]]\nchannel = \"webhook\"\n{rest}");
    let key = "approver_keys = [\"z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK\"]";
    let good = notify(&format!("url_ref = \"U\"\n{key}"));
    rule("webhook-without-url", &good, &notify(key));
    rule("webhook-without-key", &good, &notify("url_ref = \"U\""));
    rule("webhook-without-key", &good, &notify("url_ref = \"U\"\napprover_keys = []"));
    rule("bad-name", &good, &notify(&format!("url_ref = \"https://x\"\n{key}")));
}

#[test]
fn predicates() {
    let when = |when: &str| {
        format!(
            "[servers.s]\ntype = \"stdio\"\ncommand = \"x\"\n[[approvals.require]]\nserver = \"s\"\ntool = \"t\"\nwhen = {{ {when} }}"
        )
    };
    let good = when("pointer = \"/a\", greater_than = \"-1.5\"");
    for (name, bad) in [
        ("bad-predicate", "pointer = \"/a\""),
        ("bad-predicate", "pointer = \"/a\", equals = 1, prefix = \"x\""),
        ("bad-pointer", "pointer = \"a\", equals = 1"),
        ("bad-pointer", "pointer = \"/a~2\", equals = 1"),
        ("bad-pattern", "pointer = \"/a\", matches = \"(\""),
        ("bad-amount", "pointer = \"/a\", greater_than = \"many\""),
        ("wrong-type", "pointer = \"/a\", greater_than = 1.5"),
        ("bad-value", "pointer = \"/a\", equals = 1.5"),
        ("bad-value", "pointer = \"/a\", one_of = []"),
        ("missing-key", "equals = 1"),
        ("unknown-key", "pointer = \"/a\", equals = 1, negate = true"),
    ] {
        rule(name, &good, &when(bad));
    }
}

#[test]
fn sources() {
    let skill = |rest: &str| format!("[skills.s]\n{rest}");
    let good = skill("path = \"./skills/s\"");
    for (name, bad) in [
        ("bad-path", "path = \"../s\""),
        ("bad-path", "path = \"/etc\""),
        ("bad-path", "path = \"./a/../../s\""),
        ("bad-source", "git = \"https://a.com/r\"\nrev = \"v1\"\npath = \"./s\""),
        ("bad-source", "git = \"ext::sh -c id\"\nrev = \"v1\""),
        ("bad-source", "git = \"https://a.com/r\"\nrev = \"--upload-pack=x\""),
        ("bad-source", "path = \"./s\"\nrev = \"v1\""),
        ("bad-path", "git = \"https://a.com/r\"\nrev = \"v1\"\nsubpath = \"../x\""),
        ("missing-key", "git = \"https://a.com/r\""),
        ("bad-source", "library = \"a:b:c\""),
    ] {
        rule(name, &good, &skill(bad));
    }
}

#[test]
fn references_between_tables() {
    let server = "[servers.search]\ntype = \"stdio\"\ncommand = \"x\"\n";
    rule(
        "undeclared-name",
        &format!("{server}[toolsets.t]\nservers = [\"search\"]"),
        &format!("{server}[toolsets.t]\nservers = [\"serach\"]"),
    );
    rule(
        "two-defaults",
        "[toolsets.t]\ndefault = true\n[toolsets.u]",
        "[toolsets.t]\ndefault = true\n[toolsets.u]\ndefault = true",
    );
    for table in ["tools", "egress", "secrets"] {
        rule(
            "undeclared-name",
            &format!("{server}[policy.{table}]\nsearch = [\"x\"]\n\"*\" = [\"y\"]"),
            &format!("{server}[policy.{table}]\nserach = [\"x\"]"),
        );
    }
    rule("bad-name", "[policy.egress]\nagent = [\"x\"]", "[policy.tools]\nagent = [\"x\"]");
    rule("bad-pattern", "[policy.tools]\n\"*\" = [\"!x\"]", "[policy.tools]\n\"*\" = [\"!\"]");
}

#[test]
fn warnings_leave_the_bundle_usable() {
    let server = "[servers.s]\ntype = \"stdio\"\ncommand = \"x\"\ntools = [\"a\"]\n";
    for (name, text) in [
        (
            "approval-matches-nothing",
            format!("{server}[[approvals.require]]\nserver = \"s\"\ntool = \"b\""),
        ),
        (
            "approval-matches-nothing",
            format!("{server}[[approvals.require]]\nserver = \"*\"\ntool = \"b\""),
        ),
        ("caps-without-prices", format!("{server}[spending]\nmax_per_run_usd = \"1\"")),
        ("price-without-cap", PRICED.to_owned()),
        (
            "literal-secret",
            "[servers.m]\ntype = \"http\"\nurl = \"https://a.com\"\nheaders = { X-Api-Key = \"sk\" }".to_owned(),
        ),
        ("wants-approval", "capabilities = [\"send_email\"]".to_owned()),
    ] {
        let text = format!("version = 1\n{text}");
        let (_, warnings) = parse(&text).unwrap_or_else(|found| panic!("{found:#?}"));
        assert_eq!(warnings.iter().map(|w| w.rule).collect::<Vec<_>>(), [name], "{text}");
    }
    let quiet = format!("version = 1\n{server}[[approvals.require]]\nserver = \"*\"\ntool = \"a\"");
    assert_eq!(parse(&quiet).expect("valid").1, []);
}

#[test]
fn the_version_is_known() {
    assert_eq!(brief("version = 2\n"), ["1:bad-value"]);
    assert_eq!(brief("[meta]\n"), ["1:missing-key"]);
    assert_eq!(brief("version = \"1\"\n"), ["1:wrong-type"]);
}

/// A token that nobody was given, put together here so that it stands in no file.
fn token() -> String {
    format!("gh{}_{}", 'p', "aZ3kQ9".repeat(6))
}

#[test]
fn a_literal_secret_is_an_error_wherever_it_stands() {
    let token = token();
    let drawn = "q7Rz2Lm9Xw4Vb6Nc8Tk3Hs5Jd1Fg0Py";
    let http =
        |rest: &str| format!("[servers.m]\ntype = \"http\"\nurl = \"https://a.com/x\"\n{rest}");
    let stdio = |rest: &str| format!("[servers.m]\ntype = \"stdio\"\ncommand = \"x\"\n{rest}");
    let escaped = token.replace('_', "\\u005f");
    for (good, bad) in [
        (
            http("headers = { Authorization = \"Bearer ${T}\" }"),
            http(&format!("headers = {{ Authorization = \"Bearer {token}\" }}")),
        ),
        (
            http("headers = { X-Api-Key = \"${T}\" }"),
            http(&format!("headers = {{ X-Api-Key = \"{drawn}\" }}")),
        ),
        (http(""), http(&format!("# the old one: {token}"))),
        (http(""), format!("[servers.m]\ntype = \"http\"\nurl = \"https://a.com/{token}\"")),
        (
            stdio("env = { API_KEY = \"${K}\" }"),
            stdio(&format!("env = {{ API_KEY = \"{drawn}\" }}")),
        ),
        (
            stdio("args = [\"--token\", \"x\"]"),
            stdio(&format!("args = [\"--token\", \"{drawn}\"]")),
        ),
        (stdio("args = [\"--token=x\"]"), stdio(&format!("args = [\"--token={drawn}\"]"))),
        (stdio("args = [\"x\"]"), stdio(&format!("args = [\"{escaped}\"]"))),
        (
            "[settings.claude-code]\nenv = { A_TOKEN = \"x\" }".to_owned(),
            format!("[settings.claude-code]\nenv = {{ A_TOKEN = \"{drawn}\" }}"),
        ),
        (
            "[settings.claude-code]\nenv = { A = [\"x\"] }".to_owned(),
            format!("[settings.claude-code]\nenv = {{ A = [\"{escaped}\"] }}"),
        ),
        (
            "[hooks.h]\nevent = \"stop\"\ncommand = \"curl -H $T a.com\"".to_owned(),
            format!("[hooks.h]\nevent = \"stop\"\ncommand = \"curl -H {token} a.com\""),
        ),
        (
            "[sandbox]\ncommand = [\"x\", \"--key\"]".to_owned(),
            format!("[sandbox]\ncommand = [\"x\", \"{token}\"]"),
        ),
    ] {
        rule("literal-secret", &good, &bad);
        // Nothing of it is shown, whatever else is found.
        let text = format!("version = 1\n{bad}\n[sandbocks]\n");
        let all = format!("{:?}", super::findings(&text));
        let tail = [&token[8..], &drawn[8..], &escaped[12..]];
        assert!(!tail.iter().any(|tail| all.contains(tail)), "{all}");
    }
}

#[test]
fn a_literal_secret_has_its_place_and_is_masked_in_other_findings() {
    let token = token();
    let text = format!(
        "version = 1\n[servers.m]\ntype = \"http\"\nurl = \"https://a.com\"\n\
                        headers = {{ A = \"x {token}\", a = \"{token}\", Host = \"{token}\" }}\n\
                        [agent]\nname = \"{token}\"\n"
    );
    let found = super::findings(&text);
    let own: Vec<_> = found.iter().filter(|f| f.rule == "literal-secret").collect();
    let at = own[0].at.as_ref().expect("a place");
    assert_eq!((at.line, at.column, at.width), (5, 20, 40));
    assert!(at.text.contains("****") && at.text.starts_with("headers"), "{at:?}");
    assert!(own[0].help.as_ref().is_some_and(|help| help.contains("ringfence secret set NAME")));
    assert!(found.iter().any(|f| f.rule == "bad-header" || f.rule == "bad-name"), "{found:#?}");
    assert!(!format!("{found:?}").contains(&token[4..12]), "{found:#?}");
}

#[test]
fn tools_that_differ_in_case_only_are_both_named() {
    let tools = |list: &str| {
        let text = format!(
            "version = 1\n[servers.s]\ntype = \"stdio\"\ncommand = \"x\"\ntools = {list}\n"
        );
        let findings = crate::parse_manifest(std::path::Path::new("m"), &text, None);
        findings.err().unwrap_or_default()
    };
    assert!(tools("[\"pay\", \"list\"]").is_empty(), "control");
    let found = tools("[\"pay\", \"list\", \"Pay\"]");
    assert_eq!((found.len(), found[0].rule), (1, "name-collision"));
    assert!(found[0].message.contains("`pay` and `Pay`"), "{}", found[0].message);
}
