//! How much memory the supervisor holds at its peak, in a run with a call and a refused connection.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::bundle::Bundle;
use crate::{Figure, Result};

/// Speaks to the gate and the proxy, says so, and waits to be stopped.
const AGENT: &str = r#"
import json, os, socket, urllib.parse, urllib.request
url = os.environ["RINGFENCE_MCP_DEMO_URL"]
session = {}
def post(body):
    head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **session}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as reply:
        if reply.headers.get("Mcp-Session-Id"):
            session["Mcp-Session-Id"] = reply.headers["Mcp-Session-Id"]
        return reply.read().decode()
hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
session["MCP-Protocol-Version"] = "2025-06-18"
post({"jsonrpc": "2.0", "method": "notifications/initialized"})
for n in range(1, 101):
    text = post({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": "bench"}}})
    assert "result" in text, text
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
sock = socket.create_connection((proxy.hostname, proxy.port))
sock.sendall(b"CONNECT refused.example.com:443 HTTP/1.1\r\nHost: refused.example.com:443\r\n\r\n")
sock.recv(100)
print("ready", flush=True)
import time
time.sleep(600)
"#;

/// The figure.
pub(crate) fn measure(program: &Path) -> Result<Figure> {
    let manifest = format!(
        "version = 1\n\n[agent]\nname = \"bench\"\n\n[servers.demo]\ntype = \"stdio\"\ncommand = {:?}\nargs = [\"example\", \"mcp-server\"]\ntools = [\"greet\"]\n",
        program.display().to_string()
    );
    let bundle = Bundle::new(program, &manifest)?;
    let mut command = bundle.command(&["run", "--", "/usr/bin/python3", "-c", AGENT]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(|e| e.to_string())?;
    let peak = peak_when_ready(&mut child);
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    let _ = child.wait();
    let mib = peak? / 1024.0;
    Ok(Figure {
        name: "supervisor memory",
        measured: format!("{mib:.1} MiB at the peak, after 100 calls"),
        target: "at most 20 MiB",
        met: mib <= 20.0,
    })
}

/// KiB, from `VmHWM` of the supervisor's `/proc/<pid>/status`.
fn peak_when_ready(child: &mut Child) -> Result<f64> {
    let stdout = child.stdout.take().ok_or("stdout is a pipe")?;
    let mut lines = BufReader::new(stdout).lines();
    if !lines.any(|line| line.is_ok_and(|l| l == "ready")) {
        return Err("the agent ended before it was ready".into());
    }
    let status =
        fs::read_to_string(format!("/proc/{}/status", child.id())).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    line.trim().trim_end_matches(" kB").trim().parse().map_err(|e| format!("VmHWM: {e}"))
}
