//! Rows 25 and 28, as far as they are about who keeps a limit: a server that takes too much, and an
//! agent that would have its supervisor stopped by the terminal that both share.

use ringfence_tests::{PYTHON, Project, each_user};
use rustix::process::Signal;

use crate::bundles::{SMALL, files};

const HOG: &str = "import sys, time
size = int(sys.argv[1]) << 20
taken = bytearray(size)
taken[::4096] = b'x' * len(taken[::4096])
print('taken', file=sys.stderr, flush=True)
for line in sys.stdin: pass
time.sleep(60)
";

const ASK: &str = r##"
import urllib.request
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}})
request = urllib.request.Request(os.environ["RINGFENCE_MCP_HOG_URL"], data=body.encode(), headers={
    "Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try: text = opener.open(request, timeout=3).read().decode()
except OSError as error: text = str(error)
say("asked", value=text)
"##;

#[test]
fn a_server_is_held_to_the_memory_limit() {
    each_user(|who| {
        let ended = |mib: &str| {
            let project = Project::new(who);
            project.file("hog.py", HOG);
            project.manifest(&format!(
                "{SMALL}\n[sandbox]\nmemory_mb = 96\n\n[servers.hog]\ntype = \"stdio\"\n\
                 command = \"/usr/bin/python3\"\nargs = [\"hog.py\", \"{mib}\"]\ntools = [\"a\"]\n"
            ));
            project.lock();
            project.trust();
            let cases = project.agent(ASK);
            let said = std::fs::read_to_string(project.last_run().join("hog.stderr"));
            (cases.get("asked")["value"].to_string(), said.unwrap_or_default())
        };
        let (fine, taken) = ended("8");
        assert!(taken.contains("taken") && !fine.contains("ended the connection"), "{fine}");
        let (over, _) = ended("400");
        assert!(over.contains("ended the connection"), "{over}");
    });
}

/// An agent could choose the terminal's suspend key, or write where a background process may not.
#[test]
fn the_terminal_does_not_stop_the_supervisor() {
    each_user(|who| {
        let project = Project::ready(who, &files("write = [\"out\"]"));
        let line = "grep SigIgn /proc/self/status > out/new; mv out/new out/up; sleep 60";
        let run = project.start(&["run", "--", "/bin/sh", "-c", line]);
        let up = project.path().join("out/up");
        while !up.exists() {
            std::thread::yield_now();
        }
        let ignored = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
            line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
        };
        let stops = [20, 21, 22].iter().fold(0, |mask, signal| mask | 1u64 << (signal - 1));
        assert_eq!(ignored(run.pid()) & stops, stops);
        run.signal(Signal::TERM);
        let said = std::fs::read_to_string(up).expect("it is there");
        let mask = said.trim().strip_prefix("SigIgn:").expect("control: the agent said it").trim();
        let mask = u64::from_str_radix(mask, 16).expect("a mask");
        assert_eq!(mask & stops, 0, "the agent itself may be stopped");
    });
}

#[test]
fn an_agent_that_asks_for_more_memory_is_ended_by_that_limit() {
    each_user(|who| {
        let project = Project::ready(who, &format!("{SMALL}\n[sandbox]\nmemory_mb = 96\n"));
        let python =
            |script: &str| project.ringfence(&["run", "--json", "--", PYTHON, "-c", script]);
        // It takes what it has asked for, and waits until somebody has seen it.
        let hog = "import time; x = bytearray(b'x') * (400 << 20); time.sleep(60)";
        let output = python(hog).expect(124);
        assert_eq!(output.last_json()["finished"]["limit"], "memory");
        project.events().has("limit_reached", &[("limit", "memory")]);
        let output = python("x = bytearray(b'x') * (8 << 20); print(len(x))").ok();
        assert!(output.last_json()["finished"]["limit"].is_null(), "the control");
    });
}

#[test]
fn a_runtime_is_no_protection_where_there_is_no_container() {
    each_user(|who| {
        let project = Project::ready(who, &format!("{SMALL}\n[sandbox]\nruntime = \"kata\"\n"));
        for words in [vec!["run", "--", "true"], vec!["run", "--plan", "--", "true"]] {
            let output = project.ringfence(&words);
            assert_ne!(output.status, 0, "{words:?}");
            assert!(output.stderr.contains("is for containers"), "{}", output.stderr);
            assert!(
                !format!("{}{}", output.stdout, output.stderr).contains("ENFORCED"),
                "{words:?}"
            );
        }
    });
}
