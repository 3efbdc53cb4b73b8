//! What is said to somebody who writes what another program would have.

use super::findings;
use crate::Severity;

/// The one finding of a rule in a manifest of these lines: severity, line, message, help.
#[track_caller]
fn one(rule: &str, text: &str) -> (Severity, usize, String, String) {
    let text = format!("version = 1\n{text}\n");
    let found: Vec<_> = findings(&text).into_iter().filter(|f| f.rule == rule).collect();
    let [finding] = &found[..] else { panic!("{rule} once in\n{text}\n{:#?}", findings(&text)) };
    let line = finding.at.as_ref().expect("a place").line;
    (finding.severity, line, finding.message.clone(), finding.help.clone().unwrap_or_default())
}

#[track_caller]
fn help(rule: &str, text: &str) -> String {
    one(rule, text).3
}

const HTTP: &str = "[servers.s]\ntype = \"http\"\nurl = \"https://a.example/\"";
const STDIO: &str = "[servers.s]\ntype = \"stdio\"\ncommand = \"x\"";

#[test]
fn the_controls_have_no_finding() {
    for text in [
        HTTP,
        STDIO,
        &format!("{STDIO}\nargs = [\"a~/b\", \"~x\", \"a b\", \"$$HOME\", \"${{X}}\"]"),
        "[skills.s]\npath = \"./skills/s\"",
        "[hooks.h]\nevent = \"post_tool_use\"\ncommand = \"make fmt\"",
        "[settings.claude-code]\nmodel = \"opus\"",
        "[delivery]\nrender_locally = [\"codex\"]",
        "[sandbox]\nstate = \"pi\"\ncommand = [\"npx\", \"-y\", \"a b\"]",
        &format!("{HTTP}\n[[approvals.require]]\nserver = \"*\"\ntool = \"t\""),
        &format!("{HTTP}\n[[approvals.require]]\nserver = \"s\"\ntool = \"t\""),
    ] {
        assert_eq!(findings(&format!("version = 1\n{text}\n")), [], "{text}");
    }
}

#[test]
fn a_server_without_a_type_is_told_which() {
    let stdio = "[servers.s]\ncommand = \"x\"\nargs = [\"y\"]";
    assert_eq!(help("missing-key", stdio), "add `type = \"stdio\"`: it has a `command`");
    let http = "[servers.s]\nurl = \"https://a.example/\"";
    assert_eq!(help("missing-key", http), "add `type = \"http\"`: it has a `url`");
    let neither = help("missing-key", "[servers.s]\ntools = []");
    assert!(neither.contains("`type = \"http\"` has a `url`"), "{neither}");
    // The other keys are read all the same.
    let more = "[servers.s]\nurl = \"https://a.example/\"\nheaders = { host = \"x\" }";
    assert_eq!(one("bad-header", more).1, 4);
}

#[test]
fn other_words_for_a_transport_are_told_ours() {
    for word in ["streamable-http", "streamableHttp", "streamable_http", "HTTP", "remote"] {
        let text = format!("[servers.s]\ntype = \"{word}\"\nurl = \"https://a.example/\"");
        let (_, line, _, help) = one("bad-value", &text);
        assert_eq!(line, 3);
        assert!(help.starts_with("write `type = \"http\"`"), "{word}: {help}");
    }
    let sse = help("bad-value", "[servers.s]\ntype = \"sse\"\nurl = \"https://a.example/sse\"");
    assert!(sse.contains("`type = \"http\"`") && sse.contains("not spoken"), "{sse}");
    let local = help("bad-value", "[servers.s]\ntype = \"local\"\ncommand = \"x\"");
    assert_eq!(local, "write `type = \"stdio\"`");
    // One that is near needs no table.
    let near = help("bad-value", "[servers.s]\ntype = \"htp\"\nurl = \"https://a.example/\"");
    assert_eq!(near, "did you mean `http`?");
}

#[test]
fn keys_of_other_programs_are_told_ours() {
    let top = one("unknown-key", "[mcpServers.s]\ncommand = \"x\"");
    assert_eq!((top.0, top.1), (Severity::Error, 2));
    assert!(top.3.contains("[servers.<name>]"), "{top:?}");
    for (key, value, says) in [
        ("cwd", "\"/x\"", "project folder"),
        ("disabled", "true", "delete the server"),
        ("autoApprove", "[\"t\"]", "[[approvals.require]]"),
        ("alwaysAllow", "[\"t\"]", "[[approvals.require]]"),
        ("timeout", "3", "max_duration_seconds"),
        ("serverUrl", "\"x\"", "`url`"),
    ] {
        let (severity, line, _, help) = one("unknown-key", &format!("{STDIO}\n{key} = {value}"));
        assert_eq!((severity, line), (Severity::Error, 5));
        assert!(help.contains(says), "{key}: {help}");
    }
    // A key that is only misspelt.
    assert_eq!(help("unknown-key", &format!("{STDIO}\nagrs = []")), "did you mean `args`?");
}

#[test]
fn a_star_in_tools_is_told_to_go() {
    let star = help("bad-name", &format!("{HTTP}\ntools = [\"*\"]"));
    assert!(star.starts_with("leave the key out"), "{star}");
    let glob = help("bad-name", &format!("{HTTP}\ntools = [\"list_*\"]"));
    assert!(glob.contains("[policy.tools]"), "{glob}");
    assert_eq!(help("bad-name", &format!("{HTTP}\ntools = [\"a b\"]")), "");
}

#[test]
fn references_of_other_programs_are_told_ours() {
    for (given, says) in [
        ("${env:TOKEN}", "write `${TOKEN}`"),
        ("Bearer ${env:TOKEN}", "write `${TOKEN}`"),
        (
            "${TOKEN:-none}",
            "write `${TOKEN}`: there are no defaults here, the variable must be set",
        ),
        ("${TOKEN-none}", "write `${TOKEN}`: there are no defaults here, the variable must be set"),
        (
            "${input:api-key}",
            "write `${API_KEY}`, and keep its value with `ringfence secret set API_KEY`",
        ),
        ("$TOKEN", "write `${TOKEN}`"),
        ("${GOOD} $TOKEN/x", "write `${TOKEN}`"),
        ("$$ $TOKEN", "write `${TOKEN}`"),
        ("${a b}", ""),
        ("5$", ""),
    ] {
        let text = format!("{STDIO}\nenv = {{ A = \"{given}\" }}");
        assert_eq!(help("bad-reference", &text), says, "{given}");
    }
}

#[test]
fn names_are_told_as_they_are_spelt_here() {
    for (given, says) in [
        ("GitHub", "did you mean `github`?"),
        ("My Server", "did you mean `my-server`?"),
        ("a__b", "did you mean `a_b`?"),
        ("io.x/y", "did you mean `io-x-y`?"),
        ("Ü", ""),
    ] {
        let text = format!("[servers.\"{given}\"]\ntype = \"stdio\"\ncommand = \"x\"");
        let (_, line, _, help) = one("bad-name", &text);
        assert_eq!((line, help.as_str()), (2, says), "{given}");
    }
    let value = "[[approvals.require]]\nserver = \"GitHub\"\ntool = \"t\"";
    assert_eq!(help("bad-name", value), "did you mean `github`?");
    assert_eq!(help("bad-name", "[agent]\nname = \"My_Agent\""), "did you mean `my-agent`?");
}

#[test]
fn events_are_told_as_they_are_spelt_here() {
    for given in ["PostToolUse", "postToolUse", "post-tool-use", "Post Tool Use"] {
        let text = format!("[hooks.h]\nevent = \"{given}\"\ncommand = \"x\"");
        assert_eq!(help("bad-value", &text), "did you mean `post_tool_use`?", "{given}");
    }
}

#[test]
fn paths_are_told_as_they_are_spelt_here() {
    for (given, says) in [
        ("skills/s", "did you mean `./skills/s`?"),
        ("./skills/s/", "did you mean `./skills/s`?"),
        ("skills//s/", "did you mean `./skills/s`?"),
        ("./.", ""),
        (".ringfence/skills/s", "did you mean `./skills/s`?"),
        (r"skills\\s", "did you mean `./skills/s`?"),
        ("../skills/s", ""),
    ] {
        let text = format!("[skills.s]\npath = \"{given}\"");
        assert_eq!(help("bad-path", &text), says, "{given}");
    }
    let away = help("bad-path", "[skills.s]\npath = \"~/skills/s\"");
    assert!(away.contains("beside the manifest"), "{away}");
}

#[test]
fn one_letter_is_close_to_nothing() {
    let two = format!("{HTTP}\n{}", STDIO.replace("servers.s", "servers.t"));
    let rule = "[policy.tools]\nx = [\"*\"]";
    assert_eq!(help("undeclared-name", &format!("{two}\n{rule}")), "");
    assert_eq!(help("undeclared-name", &format!("{HTTP}\n{rule}")), "did you mean `s`?");
    let long = HTTP.replace("servers.s", "servers.search");
    let near = help("undeclared-name", &format!("{long}\n{two}\n[policy.tools]\nserch = []"));
    assert_eq!(near, "did you mean `search`?");
}

#[test]
fn words_that_a_shell_would_have_split_or_expanded_are_warned_of() {
    let text = "[servers.s]\ntype = \"stdio\"\ncommand = \"npx -y foo\"";
    let (severity, line, _, help) = one("command-with-spaces", text);
    assert_eq!((severity, line), (Severity::Warning, 4));
    assert!(help.contains("`npx` alone"), "{help}");
    let text = "[sandbox]\ncommand = [\"npx -y foo\"]";
    assert_eq!(one("command-with-spaces", text).0, Severity::Warning);
    let text = format!("{STDIO}\nargs = [\"--dir\", \"~/notes\"]");
    let (severity, line, message, _) = one("tilde", &text);
    assert_eq!((severity, line), (Severity::Warning, 5));
    assert!(message.contains("no shell"), "{message}");
    assert_eq!(one("tilde", "[sandbox]\ncommand = [\"~/bin/x\"]").1, 3);
}

#[test]
fn unknown_clis_are_warned_of() {
    for text in [
        "[settings.claude]\nmodel = \"opus\"",
        "[extensions.e]\npath = \"./e.ts\"\ntarget = \"claude\"",
        "[delivery]\nrender_locally = [\"claude\"]",
        "[sandbox]\nstate = \"claude\"",
    ] {
        let (severity, _, message, help) = one("unknown-cli", text);
        assert_eq!(severity, Severity::Warning);
        assert!(message.contains("`claude`"), "{message}");
        assert_eq!(help, "did you mean `claude-code`?");
    }
    let far = help("unknown-cli", "[settings.emacs]\na = 1");
    assert!(far.starts_with("known are `aider`, ") && far.ends_with("`zed`"), "{far}");
    // What is no name is not also an unknown one.
    let bad = "version = 1\n[settings.Emacs]\na = 1\n";
    assert_eq!(findings(bad).iter().map(|f| f.rule).collect::<Vec<_>>(), ["bad-name"]);
}

#[test]
fn an_approval_rule_for_nobody_is_an_error() {
    let text = format!("{HTTP}\n[[approvals.require]]\nserver = \"t\"\ntool = \"x\"");
    let (severity, line, message, _) = one("undeclared-name", &text);
    assert_eq!((severity, line), (Severity::Error, 6));
    assert!(message.contains("`t` is not declared under `[servers]`"), "{message}");
}
