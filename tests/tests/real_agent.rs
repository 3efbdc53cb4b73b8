//! Real coding agents, unmodified, call a real MCP server through the gate, inside the native sandbox.

use std::path::{Path, PathBuf};

use ringfence_tests::{Events, Project, Who, each_user, repository};

fn npm() -> PathBuf {
    let folder = repository().join("target/tools/npm");
    assert!(
        folder.join("installed.lock").exists(),
        "{} is missing: `cargo xtask install` makes it",
        folder.display()
    );
    folder.canonicalize().expect("it is there")
}

/// Whether an ordinary user can reach a folder.
fn open_to_all(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.ancestors()
        .all(|p| std::fs::metadata(p).is_ok_and(|m| m.permissions().mode() & 0o001 != 0))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("our own folder");
    for entry in std::fs::read_dir(from).expect("the example").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("our own file");
        }
    }
}

/// The folder of the installed programs, at a place that the project's user can reach.
pub(crate) fn reachable_npm(project: &mut Project) -> PathBuf {
    let npm = npm();
    if project.who() != Who::Ordinary || open_to_all(&npm) {
        return npm;
    }
    let place = project.root().join("npm");
    std::fs::create_dir(&place).expect("our own folder");
    let mount = format!("mount --bind '{}' '{}' && exec \"$@\"", npm.display(), place.display());
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &mount, "sh"];
    project.inside(words.map(str::to_owned).to_vec());
    place
}

/// Runs the example's own driver; what it does is what a person would type.
fn drive(who: Who, cli: &str) -> (Project, Events, String) {
    let mut project = Project::new(who);
    let example = project.root().join("example");
    copy(&repository().join("examples/real-agent"), &example);
    let npm = reachable_npm(&mut project);
    let program = project.program().display().to_string();
    let scratch = project.path().display().to_string();
    project
        .env("RINGFENCE", &program)
        .env("NPM", &npm.display().to_string())
        .env("SCRATCH", &scratch);
    let driver = example.join("run.sh").display().to_string();
    let output = project.shell(&["/bin/bash", &driver, cli]).ok();
    let events = Events::from_value(&project.report());
    let words = format!("{}{}", output.stdout, output.stderr);
    (project, events, words)
}

fn check(cli: &str) {
    each_user(|who| {
        let (project, events, words) = drive(who, cli);
        assert!(
            words.contains("Echo: through the gate"),
            "the tool's answer reached the model:\n{words}"
        );
        let call = |tool: &str, outcome: &str| {
            let fields = [
                ("server", "everything"),
                ("method", "tools/call"),
                ("tool", tool),
                ("outcome", outcome),
            ];
            events.has("call_decided", &fields).clone()
        };
        let allowed = call("echo", "allowed");
        let refused = call("get-env", "refused");
        assert!(refused.to_string().contains("tools"), "the rule is named: {refused}");
        events.lacks("call_decided", &[("tool", "get-env"), ("outcome", "allowed")]);
        let number = ringfence_tests::field(&allowed, "call");
        events.has("call_settled", &[("call", &number), ("result", "answered")]);
        events.has("sandbox_probed", &[("principal", "agent"), ("tight", "true")]);
        events.lacks("egress_decided", &[("outcome", "allowed")]);
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn claude_code_calls_a_tool_and_is_refused_another() {
    check("claude");
}

#[test]
fn codex_calls_a_tool_and_is_refused_another() {
    check("codex");
}
