//! Row 33, where calls are made: what is set aside, charged and refused by a run and by a gateway.

use ringfence_tests::{Project, StdioClient, Upstream, Who, each_user, eventually};
use serde_json::json;

use crate::bundles::MIRROR;

/// A server whose every answer says what it cost: 4 units.
const PRICED: &str = r#"
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    schema = {"type": "object"}
    usage = {"n": m["params"]["arguments"].get("n", 4)} if m["method"] == "tools/call" else {}
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}},
        "tools/list": {"tools": [{"name": "raw", "description": "d", "inputSchema": schema}]},
    }.get(m["method"], {"content": [{"type": "text", "text": "once"}], "usage": usage})
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"#;

const PRICES: &str = r#"
[servers.mirror.pricing]
max_usd_per_call = "0.05"
[[servers.mirror.pricing.meters]]
usage_path = "result.usage.n"
usd_per_unit = "0.01"
[spending]
max_per_run_usd = "0.10"
warn_at_percent = 80
"#;

const CALLS: &str = r#"
m = Mcp("mirror")
for n in ARGUMENTS:
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "raw", "arguments": {"n": n}}}
    status, text = m.post(call)
    say("call", value=text)
time.sleep(30)
"#;

/// A run that pays for these units, one call after the other.
fn paid(who: Who, units: &str) -> Project {
    let project = Project::new(who);
    project.manifest(&format!("{}{PRICES}", MIRROR.replace("mirror.py", "priced.py")));
    project.file("priced.py", PRICED);
    project.python();
    project.lock();
    project.trust();
    let cases = project.agent(&CALLS.replace("ARGUMENTS", units));
    assert_eq!(cases.output.status, 124, "stopped by a limit: {}", cases.output.stderr);
    project
}

#[test]
fn a_run_ends_with_the_call_that_crosses_its_cap() {
    each_user(|who| {
        let project = paid(who, "[4, 4, 4, 4, 4]");
        let events = project.events();
        events.has("call_settled", &[("cost_usd", "0.04")]);
        events.has("limit_reached", &[("limit", "spending")]);
        events.has("spend_warned", &[]);
        let told = project.ringfence(&["spend", "--run", "last", "--json"]).ok().json();
        assert_eq!(told["sums"][0]["spent_usd"], "0.12", "{told}");
        assert_eq!(told["sums"][0]["reserved_usd"], "0.00", "{told}");
        assert_eq!(told["calls"].as_array().map(Vec::len), Some(3), "{told}");
    });
}

#[test]
fn a_run_ends_with_a_reply_whose_cost_is_not_known() {
    each_user(|who| {
        for unknown in ["-1", "None", "'4'", "1e300", "[4]"] {
            let project = paid(who, &format!("[1, {unknown}, 1]"));
            let told = project.ringfence(&["spend", "--run", "last", "--json"]).ok().json();
            assert_eq!(told["sums"][0]["spent_usd"], "0.06", "{unknown}: {told}");
            assert_eq!(told["calls"].as_array().map(Vec::len), Some(2), "{unknown}: {told}");
        }
    });
}

#[test]
fn a_run_whose_ledger_cannot_be_used_makes_no_priced_call() {
    each_user(|who| {
        let project = paid(who, "[4, 4, 4]");
        // The journal too: it may still hold every page of the ledger.
        for file in ["state.db", "state.db-wal"] {
            project.state_file(file, [b'x'; 8192]);
        }
        let agent = CALLS.replace("ARGUMENTS", "[1]").replace("time.sleep(30)", "");
        let cases = project.agent(&agent);
        let said = cases.get("call")["value"].to_string();
        assert!(said.contains("ledger") && !said.contains("once"), "{said}");
    });
}

/// A trusted project whose server has prices.
fn priced(who: Who, manifest: &str) -> Project {
    let project = Project::new(who);
    project.manifest(manifest);
    project.file("priced.py", PRICED);
    project.python();
    project.lock();
    project.trust();
    project
}

fn prices(of: &str) -> String {
    format!("{}{PRICES}", of.replace("mirror.py", "priced.py"))
}

#[test]
fn a_client_that_goes_from_folder_to_folder_has_one_budget() {
    each_user(|who| {
        let manifest = prices(MIRROR);
        let project = priced(who, &manifest);
        // With a cap of its own: the process has had its money.
        let theirs = manifest.replace("max_per_run_usd = \"0.10\"", "max_per_run_usd = \"0.11\"");
        let other = crate::cmd_mcp::beside(&project, &theirs, "priced.py");
        let uri = |folder: &std::path::Path| format!("file://{}", folder.display());
        let paid = |client: &mut StdioClient, expected: bool, why: &str| {
            let answer = client.call("mirror__raw", json!({"n": 4}));
            eprintln!("{answer}");
            assert_eq!(answer["result"].is_object(), expected, "{why}: {answer}");
        };
        let start = |root: &std::path::Path| {
            let mut client = StdioClient::start(crate::cmd_mcp::command(&project, &[]));
            client.with_roots(&[uri(root)]).handshake("2025-11-25");
            client
        };
        let go = |client: &mut StdioClient, root: &std::path::Path| {
            client.with_roots(&[uri(root)]);
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
            client.next(|message| message["method"] == "notifications/tools/list_changed");
        };
        let mut client = start(&project.path());
        paid(&mut client, true, "0.04 of 0.10");
        paid(&mut client, true, "0.08 of 0.10");
        go(&mut client, &other);
        paid(&mut client, true, "0.12 of 0.11: what crosses a cap is the last one through");
        paid(&mut client, false, "0.12 of 0.11");
        go(&mut client, &project.path());
        paid(&mut client, false, "0.12 of 0.10");
        assert_eq!(client.finish().0, 0);
        // Control: another process there has a budget of its own.
        let mut client = start(&other);
        paid(&mut client, true, "0.04 of 0.11");
        paid(&mut client, true, "0.08 of 0.11");
        assert_eq!(client.finish().0, 0);
        let told = project.ringfence(&["spend", "--json"]).ok().json();
        let runs = told["sums"].as_array().expect("sums").iter().filter(|sum| sum["kind"] == "run");
        let mut spent: Vec<_> = runs.map(|sum| sum["spent_usd"].to_string()).collect();
        spent.sort();
        assert_eq!(spent, ["\"0.08\"", "\"0.12\""], "{told}");
    });
}

#[test]
fn a_call_whose_client_is_gone_is_paid_for_and_nothing_stays_set_aside() {
    each_user(|who| {
        for gone in ["cancelled", "away"] {
            let open = std::sync::Arc::<(std::sync::Mutex<bool>, std::sync::Condvar)>::default();
            let up = Upstream::held(&open);
            let server = format!(
                "version = 1\n[servers.mirror]\ntype = \"http\"\nurl = \"{}\"\ntools = [\"echo\"]\n",
                up.url()
            );
            let project = priced(who, &format!("{server}{PRICES}"));
            let mut client = StdioClient::start(crate::cmd_mcp::command(&project, &[]));
            client.handshake("2025-11-25");
            let call = json!({"name": "mirror__echo", "arguments": {}});
            let id = client.ask("tools/call", call);
            let arrived = || up.seen().iter().any(|seen| seen.body.contains("tools/call"));
            eventually("the server has it", arrived);
            let settled = || project.events_text().contains("\"result\":\"cancelled\"");
            if gone == "cancelled" {
                let params = json!({"requestId": id});
                client.send(&json!({
                    "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params,
                }));
                eventually("it is settled", settled);
            }
            assert_eq!(client.finish().0, 0, "{gone}");
            project.events().has("call_settled", &[("result", "cancelled"), ("cost_usd", "0.05")]);
            let told = project.ringfence(&["spend", "--json"]).ok().json();
            let sum = &told["sums"][0];
            assert_eq!(
                (&sum["spent_usd"], &sum["reserved_usd"]),
                (&json!("0.05"), &json!("0.00")),
                "{gone}: {told}"
            );
            assert_eq!(told["calls"][0]["result"], "charged", "{gone}: {told}");
            *open.0.lock().expect("ours") = true;
            open.1.notify_all();
        }
    });
}

#[test]
fn calls_dearer_than_they_may_be_overspend_by_those_under_way_alone() {
    each_user(|who| {
        // Each may cost 0.05 and costs 0.30; the cap has room for four at once.
        let manifest =
            prices(MIRROR).replace("max_per_run_usd = \"0.10\"", "max_per_run_usd = \"0.20\"");
        let project = priced(who, &manifest);
        let script = "import threading\n\
            call = {'jsonrpc': '2.0', 'id': 7, 'method': 'tools/call', 'params': {'name': 'raw', 'arguments': {'n': 30}}}\n\
            all = [threading.Thread(target=lambda: Mcp('mirror').post(call), daemon=True) for n in range(20)]\n\
            [one.start() for one in all]\n[one.join() for one in all]\ntime.sleep(30)\n";
        let cases = project.agent(script);
        assert_eq!(cases.output.status, 124, "stopped by a limit: {}", cases.output.stderr);
        let told = project.ringfence(&["spend", "--run", "last", "--json"]).ok().json();
        let sum = &told["sums"][0];
        let spent: f64 = sum["spent_usd"].as_str().expect("USD").parse().expect("a number");
        // The cap, and for each of the four what it cost beyond what it may.
        assert!((0.30..=0.20 + 4.0 * 0.25 + 1e-9).contains(&spent), "{told}");
        assert_eq!(sum["reserved_usd"], "0.00", "{told}");
        let charged = told["calls"].as_array().expect("calls");
        let charged = charged.iter().filter(|call| call["result"] == "charged").count();
        assert!((1..=4).contains(&charged), "{told}");
        project.events().has("limit_reached", &[("limit", "spending")]);
    });
}
