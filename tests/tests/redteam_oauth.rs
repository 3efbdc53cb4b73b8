//! Rows 8 and 9: tokens go to whom they are for, and the way to one leads nowhere else. Each hop with
//! each spelling, against an authorization server and an MCP server of our own.

use ringfence_tests::authority::{form, with};
use ringfence_tests::{Authority, Output, Project, TestNet, Who, each_user};
use serde_json::{Value, json};

use crate::bundles::upstream;
use crate::cmd_login::desk;

const LOGIN: [&str; 4] = ["login", "up", "--store", "file"];

/// Both servers on the public side, and names that lead elsewhere.
fn network(who: Who, url: &str) -> (TestNet, Project) {
    let zone = [
        ("mcp.example.com", json!([TestNet::PUBLIC])),
        ("auth.example.com", json!([TestNet::OTHER])),
        ("other.example.com", json!([TestNet::OTHER])),
        ("private.example.com", json!([TestNet::PRIVATE])),
        ("mixed.example.com", json!([TestNet::OTHER, TestNet::PRIVATE])),
        ("metadata.example.com", json!([TestNet::METADATA])),
        ("side.example.com", json!([TestNet::SIDE])),
        ("loopback.example.com", json!(["127.0.0.1"])),
        ("mapped.example.com", json!(["::ffff:10.66.0.44"])),
        ("turning.example.com", json!([[TestNet::OTHER], [TestNet::PRIVATE]])),
    ];
    let net = TestNet::new(who, &zone);
    let mut project = Project::new(who);
    project.manifest(&upstream(url));
    project.browser("honest");
    project.env("SSL_CERT_FILE", &net.certificate().display().to_string());
    net.host(&mut project);
    net.authority(&honest());
    project.lock();
    project.trust();
    (net, project)
}

fn honest() -> Value {
    json!({"mcp": "https://mcp.example.com", "issuer": "https://auth.example.com"})
}

/// What each hop is called where it is changed, and the script that changes it.
fn hops(url: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("resource_metadata", json!({"challenge": url})),
        ("authorization_servers", json!({"resource": {"authorization_servers": [url]}})),
        ("authorization_endpoint", json!({"metadata": {"authorization_endpoint": url}})),
        ("token_endpoint", json!({"metadata": {"token_endpoint": url}})),
        ("registration_endpoint", json!({"metadata": {"registration_endpoint": url}})),
        ("revocation_endpoint", json!({"metadata": {"revocation_endpoint": url}})),
    ]
}

/// Nobody is signed in, and says so.
#[track_caller]
fn refused(project: &Project, what: &str) -> Output {
    let output = project.ringfence(&LOGIN);
    assert!(matches!(output.status, 1 | 3), "{what}: {} {}", output.status, output.stderr);
    assert!(output.stderr.contains("error"), "{what}: {}", output.stderr);
    let list = project.ringfence(&["login", "--list", "--json"]).ok().json();
    assert_eq!(list["sign_ins"], json!([]), "{what}");
    output
}

fn signed_in(project: &Project) {
    project.ringfence(&LOGIN).ok().done();
    let _ = project.desk();
    project.ringfence(&["logout", "up"]).ok().done();
}

/// Puts each of these at each hop: nobody is signed in, no browser is opened before it is found out,
/// and nothing goes anywhere but to the two public hosts.
fn at_each_hop(net: &TestNet, project: &Project, places: &[&str]) {
    signed_in(project);
    net.saw("asked", "POST https://auth.example.com/token");
    let before = net.sightings().len();
    for place in places {
        for (hop, over) in hops(place) {
            net.authority(&with(&honest(), &over));
            let what = format!("{hop}: {place}");
            // Whether it leads where it may is found out when somebody is to go there.
            let later = ["token_endpoint", "revocation_endpoint"].contains(&hop);
            if hop == "revocation_endpoint" && project.ringfence(&LOGIN).status == 0 {
                let words = ["signed out", "did not take the tokens back"];
                project.ringfence(&["logout", "up"]).ok().says(&words).done();
                assert!(!project.desk().is_empty(), "control");
                continue;
            }
            let output = refused(project, &what);
            let shown = output.stderr.contains("  http");
            assert!(later || !shown, "{what}: {}", output.stderr);
            assert_eq!(project.desk().is_empty(), !shown, "{what}");
        }
    }
    for seen in &net.sightings()[before..] {
        let fine = seen.kind == "dns"
            || seen.at.starts_with(&format!("{}:443", TestNet::PUBLIC))
            || seen.at.starts_with(&format!("{}:443", TestNet::OTHER));
        assert!(fine, "it went there: {seen:?}");
    }
}

#[test]
fn each_hop_of_a_sign_in_is_https_to_a_public_address() {
    each_user(|who| {
        let (net, project) = network(who, "https://mcp.example.com/mcp");
        // Control of the probe: those places do answer from here.
        let private = format!("http://{}/", TestNet::PRIVATE);
        project.shell(&["curl", "-sS", "--noproxy", "*", &private]).ok().done();
        let places = [
            "https://private.example.com/x",
            "https://mixed.example.com/x",
            "https://metadata.example.com/x",
            "https://side.example.com/x",
            "https://loopback.example.com/x",
            "https://mapped.example.com/x",
            "https://missing.example.com/x",
            "https://10.66.0.44/x",
            "https://169.254.169.254/latest/meta-data",
            "https://127.0.0.1/x",
            "https://localhost/x",
            "https://[::1]/x",
            "https://[::ffff:10.66.0.44]/x",
            "http://auth.example.com/x",
            "http://mcp.example.com/x",
            "http://127.0.0.1:80/x",
        ];
        at_each_hop(&net, &project, &places);
        // Resolved once: an answer that changes afterwards leads nowhere else.
        net.authority(&with(
            &honest(),
            &json!({
                "metadata": {"token_endpoint": "https://turning.example.com/token"},
            }),
        ));
        project.ringfence(&LOGIN).ok().done();
        net.saw("asked", "POST https://turning.example.com/token");
        net.authority(&honest());
        project.ringfence(&LOGIN).ok().done();
    });
}

#[test]
fn each_hop_of_a_sign_in_has_one_spelling() {
    each_user(|who| {
        let (net, project) = network(who, "https://mcp.example.com/mcp");
        let places = [
            "https://0x0a42002c/x",
            "https://0/x",
            "file:///etc/passwd",
            "ftp://auth.example.com/x",
            "javascript:alert(1)",
            "//auth.example.com/x",
            "/x",
            "https://user@auth.example.com/x",
            "https://user:word@auth.example.com/x",
            "https://auth.example.com/x#fragment",
            "https://auth.example.com/../x",
            "https://auth.example.com\\@mcp.example.com/x",
            "https:auth.example.com/x",
            "https://auth.ex%C3%A4mple.com/x",
        ];
        at_each_hop(&net, &project, &places);
    });
}

#[test]
fn no_redirect_is_followed_at_any_hop() {
    each_user(|who| {
        let (net, project) = network(who, "https://mcp.example.com/mcp");
        signed_in(&project);
        for to in [
            "https://auth.example.com/elsewhere",
            "https://mcp.example.com/elsewhere",
            "http://private.example.com/elsewhere",
            "/elsewhere",
        ] {
            for step in ["mcp", "resource", "metadata", "register", "token"] {
                net.authority(&with(&honest(), &json!({"redirect": step, "to": to})));
                let output = refused(&project, &format!("{step} to {to}"));
                let status = output.stderr.contains("302") || output.stderr.contains("redirect");
                assert!(status, "{step}: {}", output.stderr);
            }
        }
        net.saw_no("asked", "elsewhere");
        net.saw_no("http", "private");
        net.authority(&honest());
        signed_in(&project);
    });
}

#[test]
fn nothing_of_an_address_reaches_a_shell() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let base = url.trim_end_matches("/mcp").to_owned();
        let trap = project.root().join("home/trap");
        let touch = format!("touch+{}", trap.display());
        for part in [
            format!("?a=$({touch})"),
            format!("?a=`{touch}`"),
            format!("?a=;{touch}"),
            format!("?a=|{touch}"),
            format!("?a=${{IFS}}{touch}"),
            "?a='b'".into(),
            "?a=\"b\"".into(),
            "?a=(b)".into(),
            "?a=b c".into(),
            "?a=b\nc".into(),
            "?a=b\\c".into(),
            "?a=<b>".into(),
            "?a=*".into(),
            "?a=!b".into(),
            "?a=b\u{202e}c".into(),
            "?a=b\u{0}c".into(),
            "?a=\u{1b}[2Jb".into(),
        ] {
            let endpoint = format!("{base}/authorize{part}");
            both.script(&json!({"metadata": {"authorization_endpoint": endpoint}}));
            let output = refused(&project, &part);
            assert!(!output.stderr.contains('\u{1b}'), "{}", output.stderr);
            assert!(project.desk().is_empty(), "{part}: a browser was opened");
        }
        assert!(!trap.exists());
        // Control: a query of its own is kept, and comes as a part of the one argument.
        let endpoint = format!("{base}/authorize?audience=a-b_c.d&x=1%2C2");
        both.script(&json!({"metadata": {"authorization_endpoint": endpoint}}));
        project.ringfence(&LOGIN).ok().done();
        let argv = project.desk()[0]["argv"].clone();
        assert_eq!(argv.as_array().map(Vec::len), Some(1), "{argv}");
        assert!(argv[0].as_str().is_some_and(|page| page.starts_with(&endpoint)), "{argv}");
    });
}

#[test]
fn who_answers_must_be_who_was_asked() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let base = url.trim_end_matches("/mcp").to_owned();
        let lies = [
            ("issuer", json!({"metadata": {"issuer": "https://evil.example.com"}})),
            ("issuer of a tenant", json!({"metadata": {"issuer": format!("{base}/tenant")}})),
            ("issuer in capitals", json!({"metadata": {"issuer": base.to_uppercase()}})),
            ("no issuer", json!({"metadata": {"issuer": null}})),
            ("another iss", json!({"iss": "https://evil.example.com"})),
            ("iss, nearly", json!({"iss": format!("{base}/")})),
            ("no iss", json!({"iss": false})),
            (
                "another iss where none was promised",
                json!({
                    "iss": "https://evil.example.com",
                    "metadata": {"authorization_response_iss_parameter_supported": null},
                }),
            ),
            ("another resource", json!({"resource": {"resource": "https://evil.example.com/mcp"}})),
            ("a sibling", json!({"resource": {"resource": format!("{url}2")}})),
            ("below it", json!({"resource": {"resource": format!("{url}/below")}})),
            ("half a segment", json!({"resource": {"resource": format!("{base}/mc")}})),
            ("another port", json!({"resource": {"resource": "http://127.0.0.1:1/mcp"}})),
            ("no resource", json!({"resource": {"resource": null}})),
            ("no issuers", json!({"resource": {"authorization_servers": []}})),
            ("no PKCE", json!({"metadata": {"code_challenge_methods_supported": null}})),
            ("plain PKCE", json!({"metadata": {"code_challenge_methods_supported": ["plain"]}})),
            ("a token of another kind", json!({"token": {"token_type": "DPoP"}})),
            ("a token with a line end", json!({"token": {"access_token": "a\r\nX: y"}})),
            ("no token", json!({"token": {"access_token": null}})),
        ];
        for (what, lie) in lies {
            let before = both.at("/token").len();
            both.script(&lie);
            refused(&project, what);
            let redeemed = both.at("/token").len() - before;
            assert!(redeemed == 0 || what.contains("token"), "{what}: a code was sent");
        }
        // Controls: what is near, and right.
        for truth in [
            json!({}),
            json!({"metadata": {"issuer": format!("{base}/")}, "iss": format!("{base}/")}),
            json!({"iss": false, "metadata": {"authorization_response_iss_parameter_supported": null}}),
            json!({"resource": {"resource": base}}),
        ] {
            both.script(&truth);
            let output = project.ringfence(&LOGIN);
            // The server of this case takes tokens for its own address alone.
            let own = truth["resource"].is_null();
            assert_eq!(output.status, i32::from(!own), "{truth}: {}", output.stderr);
            assert_eq!(output.stderr.contains("does not take the token"), !own);
        }
    });
}

#[test]
fn an_answer_in_the_browser_is_for_one_question_once() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let mut project = desk(who, &url);
        project.browser("state no-state two-states path host honest honest");
        project.ringfence(&LOGIN).ok().done();
        let notes = project.desk();
        let status = |name: &str| {
            let note = notes.iter().find(|note| note["move"] == name);
            note.unwrap_or_else(|| panic!("{name}: {notes:?}"))["status"].clone()
        };
        assert_eq!(status("state"), 400);
        assert_eq!(status("no-state"), 400);
        assert_eq!(status("two-states"), 400);
        assert_eq!(status("path"), 404);
        assert_eq!(status("host"), 421);
        assert_eq!(status("honest"), 200);
        let again = notes.last().expect("a note")["status"].clone();
        assert!(again == 410 || again == 0, "{notes:?}");
        // None of them was sent on, and a code is good once.
        let sent = both.at("/token");
        assert_eq!(sent.len(), 1, "{sent:?}");
        let code = form(&sent[0].body)["code"].clone();
        let body = format!("grant_type=authorization_code&code={code}");
        let base = url.trim_end_matches("/mcp");
        let output = project
            .shell(&["curl", "-sS", "--noproxy", "*", "-d", &body, &format!("{base}/token")])
            .ok();
        assert!(output.stdout.contains("invalid_grant"), "{}", output.stdout);
        // With none but wrong ones nobody is signed in: the person ends it.
        project.ringfence(&["logout", "up"]).ok().done();
        project.browser("state no-state host");
        let started = project.start(&LOGIN);
        let begun = std::time::Instant::now();
        let log = project.home().join("desk.jsonl");
        while !std::fs::read_to_string(&log).unwrap_or_default().contains("\"host\"") {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "no browser came");
            std::thread::yield_now();
        }
        started.signal(rustix::process::Signal::INT);
        started.finish().expect(1).says(&["stopped"]).done();
        assert_eq!(both.at("/token").len(), 2, "only the one that curl sent came on top");
    });
}

#[test]
fn what_is_huge_or_not_json_is_not_read() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        for step in ["resource", "metadata", "register", "token"] {
            both.script(&json!({"huge": step}));
            let output = refused(&project, step);
            assert!(output.stderr.contains("256 KiB"), "{step}: {}", output.stderr);
            both.script(&json!({"html": step}));
            let output = refused(&project, step);
            assert!(output.stderr.contains("not JSON"), "{step}: {}", output.stderr);
        }
        both.script(&json!({"resource": {"pad": "x".repeat(100 * 1024)}}));
        project.ringfence(&LOGIN).ok().done();
    });
}

#[test]
fn a_token_goes_to_the_address_that_it_is_for_and_to_no_other() {
    each_user(|who| {
        let (net, project) = network(who, "https://mcp.example.com/mcp");
        project.ringfence(&LOGIN).ok().done();
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
        net.saw_some("authorization", "mcp.example.com Bearer at-");
        // The manifest names another address, which says that it is the first.
        project.manifest(&upstream("https://other.example.com/mcp"));
        project.lock();
        project.trust();
        let _ = project.agent("Mcp('up').call('echo', 'echo')").get("echo");
        net.saw_some("asked", "POST https://other.example.com/mcp");
        net.saw_no("authorization", "other.example.com");
        net.saw_no("authorization", "auth.example.com Bearer");
        let output = project.ringfence(&LOGIN);
        assert_ne!(output.status, 0, "the metadata is about another server: {}", output.stderr);
        assert!(output.stderr.contains("not be this server's"), "{}", output.stderr);
        // One that was given for another server is not taken, and not kept.
        project.manifest(&upstream("https://mcp.example.com/mcp"));
        project.lock();
        project.trust();
        let list = || project.ringfence(&["login", "--list", "--json"]).ok().json();
        let before = list();
        net.authority(&with(&honest(), &json!({"audience": "https://other.example.com/mcp"})));
        let output = project.ringfence(&LOGIN).expect(1);
        assert!(output.stderr.contains("does not take the token"), "{}", output.stderr);
        assert_eq!(list(), before, "the one of before stays");
    });
}

#[test]
fn the_clients_own_token_is_never_passed_on() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let call = "one = Mcp('up')\n\
            body = {'jsonrpc': '2.0', 'id': 5, 'method': 'tools/call', \
                    'params': {'name': 'echo', 'arguments': {}}}\n\
            for name in ['Authorization', 'authorization', 'Proxy-Authorization', 'X-Authorization', \
                         'Cookie', 'X-Api-Key']:\n\
            \x20   status, text = one.post(body, headers={name: 'Bearer the-agents-own-token'})\n\
            \x20   say(name, status=status)\n";
        project.agent(call).get("Authorization").to_string();
        project.ringfence(&LOGIN).ok().done();
        let cases = project.agent(call);
        let calls = both.at("/mcp").iter().filter(|it| it.body.contains("tools/call")).count();
        assert!(calls >= 1, "control: {}", cases.get("X-Api-Key"));
        for asked in both.asked() {
            for (name, value) in &asked.headers {
                assert!(!value.contains("the-agents-own"), "{name}: {value}");
            }
            let bearer = asked.header("authorization");
            assert!(bearer.is_empty() || bearer.starts_with("Bearer at-"), "{bearer}");
        }
    });
}
