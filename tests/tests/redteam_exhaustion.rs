//! Row 33's kin: what an agent or a server can make the supervisor hold has an end.

use ringfence_tests::{Project, each_user};

use crate::bundles::MIRROR;

/// A server that ends after each answer.
const MAYFLY: &str = r#"
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    schema = {"type": "object"}
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}},
        "tools/list": {"tools": [{"name": "raw", "description": "d", "inputSchema": schema}]},
    }.get(m["method"], {"content": [{"type": "text", "text": "once"}]})
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
    if m["method"] == "tools/call":
        break
"#;

/// Calls until it was answered so often, each time by another process.
const AGAIN: &str = r#"
m = Mcp("mirror")
done = 0
call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "raw", "arguments": {}}}
for attempt in range(400):
    status, text = m.post(call)
    done += "once" in text
    if done == 60:
        break
    if "once" not in text:
        time.sleep(0.05)
say("again and again", value=done)
"#;

#[test]
fn a_server_that_is_started_again_and_again_leaves_no_descriptor_behind() {
    each_user(|who| {
        let mut project = Project::new(who);
        project.manifest(&MIRROR.replace("mirror.py", "mayfly.py"));
        project.file("mayfly.py", MAYFLY);
        project.python();
        project.lock();
        project.trust();
        // One more descriptor for each start would be more than there are.
        project.inside(vec!["prlimit".to_owned(), "--nofile=70:70".to_owned()]);
        let cases = project.agent(AGAIN);
        assert_eq!(cases.get("again and again")["value"], 60);
    });
}
