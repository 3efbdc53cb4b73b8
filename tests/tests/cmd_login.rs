//! `ringfence login`

use ringfence_tests::authority::{form, with};
use ringfence_tests::{Authority, Keychain, Output, Project, Who, each_user};
use serde_json::{Value, json};

use crate::bundles::{all_text, upstream};

/// A trusted project whose server is this one, and a browser that says yes.
pub(crate) fn desk(who: Who, url: &str) -> Project {
    let mut project = Project::ready(who, &upstream(url));
    project.browser("honest");
    project
}

/// No token in what was printed or is kept outside `except`.
pub(crate) fn nowhere(project: &Project, both: &Authority, output: &Output, except: &str) {
    let state: String = project
        .picture(&project.state())
        .iter()
        .filter(|(path, _)| except.is_empty() || !path.starts_with(project.state().join(except)))
        .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
        .collect();
    let tokens = both.tokens();
    assert!(!tokens.is_empty(), "control: there are tokens");
    for token in tokens {
        for text in [&state, &output.stdout, &output.stderr] {
            assert!(!text.contains(&token), "{token} is in {text}");
        }
    }
}

#[test]
fn a_person_signs_in_and_a_run_uses_the_token() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let mut project = desk(who, &url);
        let _keychain = Keychain::start(&mut project);
        // Before it: the call fails, and says what to type.
        let cases = project.agent("Mcp('up').call('echo', 'echo')");
        assert!(!cases.get("echo").to_string().contains("authorization"), "{}", cases.get("echo"));
        let report = project.ringfence(&["report"]).ok();
        assert!(report.stdout.contains("`ringfence login up`"), "{}", report.stdout);

        let output = project.ringfence(&["login", "up"]).ok().says(&["signed in to up"]);
        nowhere(&project, &both, &output, "");
        let events = project.events();
        let told = events.has("signed_in", &[("server", "up"), ("outcome", "allowed")]);
        assert_eq!(told["url"], url.as_str());
        events.has("egress_decided", &[("principal", "up"), ("outcome", "allowed")]);
        events.has("call_decided", &[("server", "up"), ("method", "initialize")]);

        // One argument, as it was printed.
        let notes = project.desk();
        let argv = notes[0]["argv"].as_array().expect("a list");
        assert_eq!(argv.len(), 1, "{notes:?}");
        let page = argv[0].as_str().expect("a text");
        assert!(output.stderr.contains(page), "{}", output.stderr);
        assert!(notes[2]["body"].as_str().expect("a page").contains("can be closed"), "{notes:?}");
        let asked = form(page.split_once('?').expect("a query").1);
        assert_eq!(asked["code_challenge_method"], "S256");
        assert_eq!(asked["resource"], url);
        assert!(asked["redirect_uri"].starts_with("http://127.0.0.1:"), "{asked:?}");
        assert!(asked["redirect_uri"].len() > "http://127.0.0.1:65535/callback/".len() + 16);
        assert!(!asked.contains_key("scope"), "nobody named any: {asked:?}");

        let cases = project.agent("Mcp('up').call('echo', 'echo')");
        cases.answered("echo");
        // A careless server sent it back: it is not in the reply.
        assert!(
            cases.get("echo").to_string().contains("[redacted:(sign-in)]"),
            "{}",
            cases.get("echo")
        );
        let events = project.events();
        events.has("secret_accessed", &[("principal", "up"), ("detail", "keychain")]);
        let run = project.ringfence(&["report", "--json"]).ok();
        nowhere(&project, &both, &run, "");
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn list_shows_who_and_until_when_and_no_value() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        both.script(&json!({"scope": "read write"}));
        let project = desk(who, &url);
        let none = project.ringfence(&["login", "--list"]).ok();
        assert!(none.stdout.is_empty() && none.stderr.contains("nobody"), "{}", none.stderr);
        project.ringfence(&["login", "up", "--store", "file"]).ok().done();
        let output = project.ringfence(&["login", "--list"]).ok();
        let issuer = url.trim_end_matches("/mcp");
        for word in ["up: ", issuer, "read write", "renews itself", "kept   file"] {
            assert!(output.stdout.contains(word), "{word}: {}", output.stdout);
        }
        let json = project.ringfence(&["login", "--list", "--json"]).ok();
        let row = &json.json()["sign_ins"][0];
        assert_eq!(json.json()["version"], 1);
        assert_eq!(row["servers"], json!(["up"]));
        assert_eq!((&row["server"], &row["issuer"]), (&json!(url), &json!(issuer)));
        assert_eq!(row["scopes"], json!(["read", "write"]));
        assert!(row["expires"].as_str().expect("a time").ends_with('Z'), "{row}");
        nowhere(&project, &both, &output, "signins");
        nowhere(&project, &both, &json, "signins");
    });
}

#[test]
fn without_trust_nobody_is_contacted() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let mut project = Project::new(who);
        project.manifest(&upstream(&url));
        project.browser("honest");
        let words = ["login", "up", "--store", "file"];
        project.ringfence(&words).expect(3).says(&["ringfence trust"]).done();
        project.lock();
        project.ringfence(&words).expect(3).says(&["ringfence trust"]).done();
        assert!(both.asked().is_empty(), "{:?}", both.asked());
        assert!(project.desk().is_empty());
        project.trust();
        project.ringfence(&words).ok().done();
        assert!(!both.asked().is_empty(), "control");
    });
}

#[test]
fn without_a_keychain_a_file_only_where_it_is_asked_for() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let output = project.ringfence(&["login", "up"]).expect(1);
        assert!(output.stderr.contains("--store file"), "{}", output.stderr);
        // It was found out before anybody was contacted.
        assert!(both.asked().is_empty(), "{:?}", both.asked());
        assert!(!project.state().join("signins").exists());
        let output = project.ringfence(&["login", "up", "--store", "file"]).ok();
        nowhere(&project, &both, &output, "signins");
        use std::os::unix::fs::PermissionsExt;
        let folder = project.state().join("signins");
        let file = std::fs::read_dir(&folder).expect("a folder").next().expect("one").expect("one");
        let mode = |path: &std::path::Path| {
            std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
        };
        assert_eq!((mode(&folder), mode(&file.path())), (0o700, 0o600));
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
        project.events().has("secret_accessed", &[("principal", "up"), ("detail", "file")]);
        // A file that others can read is not used.
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644))
            .expect("our own file");
        let cases = project.agent("Mcp('up').call('echo', 'echo')");
        assert!(!cases.get("echo").to_string().contains("redacted"), "{}", cases.get("echo"));
    });
}

#[test]
fn a_token_that_has_ended_is_renewed_once() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        // It ends before it begins: every use renews it first.
        both.script(&json!({"token": {"expires_in": 1}}));
        let project = desk(who, &url);
        project.ringfence(&["login", "up", "--store", "file"]).ok().done();
        both.script(&json!({}));
        let before = both.at("/token").len();
        let script: String = (0..8)
            .map(|n| format!("threads.append(lambda: Mcp('up').call('echo {n}', 'echo'))\n"))
            .collect();
        let script = format!(
            "import threading\nthreads = []\n{script}\n\
             all = [threading.Thread(target=t) for t in threads]\n\
             [t.start() for t in all]\n[t.join() for t in all]\n"
        );
        let cases = project.agent(&script);
        for n in 0..8 {
            cases.answered(&format!("echo {n}"));
        }
        assert_eq!(both.at("/token").len(), before + 1, "{:?}", both.at("/token"));
        // Taken back in the middle: refused, renewed, answered.
        both.end_access();
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
        assert_eq!(both.at("/token").len(), before + 2);
        // Nobody can renew it any more: the person is told.
        both.end_access();
        both.end_refresh();
        let cases = project.agent("Mcp('up').call('echo', 'echo')");
        assert!(!cases.get("echo").to_string().contains("redacted"), "{}", cases.get("echo"));
        let report = project.ringfence(&["report"]).ok();
        assert!(report.stdout.contains("`ringfence login up`"), "{}", report.stdout);
        project.ringfence(&["login", "up", "--store", "file"]).ok().done();
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
    });
}

#[test]
fn scopes_are_those_of_the_person_else_the_servers_and_grow_by_what_it_misses() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let scope = |script: Value, more: &[&str]| {
            both.script(&script);
            let mut words = vec!["login", "up", "--store", "file"];
            words.extend(more);
            project.ringfence(&words).ok().done();
            let page = both.at("/authorize").pop().expect("somebody was asked");
            form(&page.query).get("scope").cloned()
        };
        assert_eq!(scope(json!({}), &[]), None);
        assert_eq!(scope(json!({"scope": "a b"}), &[]).as_deref(), Some("a b"));
        let listed = json!({"resource": {"scopes_supported": ["x", "y"]}});
        assert_eq!(scope(listed.clone(), &[]).as_deref(), Some("x y"));
        assert_eq!(scope(with(&listed, &json!({"scope": "a"})), &[]).as_deref(), Some("a"));
        assert_eq!(scope(listed.clone(), &["--scope", "z"]).as_deref(), Some("z"));
        let offline = json!({"metadata": {"scopes_supported": ["x", "offline_access"]}});
        let offline = scope(with(&listed, &offline), &[]);
        assert_eq!(offline.as_deref(), Some("x y offline_access"));
        // More is needed for the list of tools: asked for on top, once.
        let before = both.at("/authorize").len();
        let more = json!({"scope": "a", "needs": {"tools/list": "list"}});
        assert_eq!(scope(more, &[]).as_deref(), Some("a list"));
        assert_eq!(both.at("/authorize").len(), before + 2);
        // A server that is never content is left.
        let before = both.at("/authorize").len();
        both.script(&json!({"needs": {"initialize": "more"}, "token": {"scope": "less"}, "audience": "https://other.example.com"}));
        let output = project.ringfence(&["login", "up", "--store", "file"]).expect(1);
        assert!(output.stderr.contains("does not take the token"), "{}", output.stderr);
        let asked = both.at("/authorize").len() - before;
        assert!((1..=3).contains(&asked), "{asked}");
        let list = project.ringfence(&["login", "--list", "--json"]).ok().json();
        assert_eq!(list["sign_ins"][0]["scopes"], json!(["a", "list"]), "the one of before stays");
        // A call that the token is not good for: the person is told what to type.
        scope(json!({"scope": "a"}), &[]);
        both.script(&json!({"needs": {"tools/call": "pay"}}));
        let _ = project.agent("Mcp('up').call('echo', 'echo')").get("echo");
        let report = project.ringfence(&["report"]).ok();
        assert!(report.stdout.contains("ringfence login up --scope 'a pay'"), "{}", report.stdout);
    });
}

#[test]
fn a_client_that_was_registered_beforehand_is_used() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let mut project = desk(who, &url);
        let issuer = url.trim_end_matches("/mcp").to_owned();
        let own = json!({"client": {"id": "mine", "secret": "the-clients-secret"}, "missing": "register"});
        both.script(&own);
        let words = |more: &[&'static str]| {
            let mut all = vec!["login".to_owned(), "up".into(), "--store".into(), "file".into()];
            all.extend(more.iter().map(|w| (*w).to_owned()));
            all
        };
        let run = |project: &Project, words: &[String]| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            project.ringfence(&words)
        };
        // Nobody registers us: it says what to do.
        let output = run(&project, &words(&[])).expect(1);
        assert!(output.stderr.contains("HTTP 404"), "{}", output.stderr);
        both.script(&with(&own, &json!({"metadata": {"registration_endpoint": null}})));
        let output = run(&project, &words(&[])).expect(1);
        assert!(output.stderr.contains("--client-id"), "{}", output.stderr);
        // A secret goes to a named issuer alone.
        run(&project, &words(&["--client-id", "mine", "--client-secret", "MINE"])).expect(2).done();
        project.env("MINE", "the-clients-secret");
        let mut full = words(&["--client-id", "mine", "--client-secret", "MINE"]);
        full.extend(["--issuer".to_owned(), "https://auth.example.com".to_owned()]);
        let output = run(&project, &full).expect(3);
        assert!(output.stderr.contains("was asked for"), "{}", output.stderr);
        assert!(both.at("/token").is_empty());
        *full.last_mut().expect("a word") = issuer;
        let output = run(&project, &full).ok();
        let all = all_text(&project, &project.state().join("runs"), "");
        for text in [&output.stdout, &output.stderr, &all] {
            assert!(!text.contains("the-clients-secret"), "{text}");
        }
        let page = both.at("/authorize").pop().expect("somebody was asked");
        let redirect = form(&page.query)["redirect_uri"].clone();
        assert!(redirect.ends_with("/callback"), "{redirect}");
        assert!(both.at("/token")[0].header("authorization").starts_with("Basic "));
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
    });
}

#[test]
fn no_browser_prints_the_address_and_waits() {
    each_user(|who| {
        let (_both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let program = project.program().display().to_string();
        let path = project.path().display().to_string();
        // A person who reads the address and opens it in a browser of their own.
        let script = "import subprocess, sys\n\
            words = sys.argv[2:]\n\
            child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)\n\
            for line in child.stderr:\n\
            \x20   sys.stderr.write(line)\n\
            \x20   if line.startswith('  http'):\n\
            \x20       subprocess.run([sys.argv[1], line.strip()], check=True)\n\
            sys.exit(child.wait())\n";
        let browser = project.root().join("bin/xdg-open").display().to_string();
        let run = |own: &str| {
            let words = [
                ringfence_tests::PYTHON,
                "-c",
                script,
                own,
                &program,
                "-C",
                &path,
                "login",
                "up",
                "--no-browser",
                "--store",
                "file",
            ];
            project.shell(&words)
        };
        let output = run(&browser).ok();
        assert!(!output.stderr.contains("a browser was asked"), "{}", output.stderr);
        assert_eq!(project.desk().iter().filter(|note| note["argv"].is_array()).count(), 1);
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
    });
}

#[test]
fn what_cannot_be_signed_in_to_says_why() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let mut project = Project::new(who);
        project.browser("honest");
        let own =
            upstream(&url).replace("tools =", "headers = { authorization = \"x ${T}\" }\ntools =");
        let local = "\n[servers.local]\ntype = \"stdio\"\ncommand = \"/usr/bin/python3\"\n";
        project.manifest(&format!("{own}{local}"));
        project.lock();
        project.trust();
        let says = |server: &str, word: &str| {
            project.ringfence(&["login", server, "--store", "file"]).expect(1).says(&[word]).done();
        };
        says("up", "`Authorization` header of its own");
        says("local", "server over stdio");
        says("nobody", "there is no server");
        project.ringfence(&["login"]).expect(2).done();
        assert!(both.asked().is_empty());
        // It asks for nothing, and says nothing of who would give a token.
        project.manifest(&upstream(&url));
        project.lock();
        project.trust();
        both.script(&json!({"open": true, "missing": "resource", "metadata": {"issuer": "x"}}));
        let output = project.ringfence(&["login", "up", "--store", "file"]);
        assert_ne!(output.status, 0, "{}", output.stderr);
        both.script(&json!({"open": true}));
        project.ringfence(&["login", "up", "--store", "file"]).ok().done();
        // The person says no.
        both.script(&json!({"deny": "access_denied"}));
        says("up", "access_denied");
        let told = project.events();
        told.has("signed_in", &[("outcome", "refused")]);
        // What was there before is still there.
        both.script(&json!({}));
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
    });
}
