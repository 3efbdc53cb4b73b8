//! What is compared: each is in front of the same fast server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::process::{Running, Worker, free_port};
use crate::Result;
use crate::bundle::Bundle;

/// A started contestant, and the load generator that is connected to it.
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) worker: Worker,
    _running: Vec<Running>,
    _folder: Option<tempfile::TempDir>,
    _bundle: Option<Bundle>,
}

/// This program.
fn own() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| e.to_string())
}

/// The load generator, outside.
pub(super) fn worker(order: &Value) -> Result<Worker> {
    let mut worker = Worker::start(Command::new(own()?).arg("worker"))?;
    worker.order(order)?;
    Ok(worker)
}

/// The fast server over HTTP, and its port.
pub(super) fn fast() -> Result<(Running, u16)> {
    let mut command = Command::new(own()?);
    let mut server = Running::start("the server", command.arg("server").stdout(Stdio::piped()))?;
    let port = server.line()?.parse().map_err(|e| format!("the server's port: {e}"))?;
    Ok((server, port))
}

/// The command of the fast server over stdio.
pub(super) fn fast_stdio() -> Result<Vec<String>> {
    Ok(vec![own()?.display().to_string(), "stdio-server".to_owned()])
}

fn contestant(
    name: &'static str,
    running: Vec<Running>,
    port: u16,
    path: &str,
) -> Result<Contestant> {
    let url = format!("http://127.0.0.1:{port}{path}");
    let worker =
        worker(&json!({ "do": "open", "url": url })).map_err(|e| format!("{name}: {e}"))?;
    Ok(Contestant { name, worker, _running: running, _folder: None, _bundle: None })
}

/// Nothing between.
pub(super) fn direct(server: u16) -> Result<Contestant> {
    contestant("direct", Vec::new(), server, "/mcp")
}

/// Debian's nginx as a plain proxy that keeps connections open and inspects nothing.
pub(super) fn nginx(tools: &Path, server: u16) -> Result<Contestant> {
    let folder = tempfile::Builder::new().prefix("ringfence-bench-").tempdir();
    let folder = folder.map_err(|e| e.to_string())?;
    let at = folder.path().display();
    let port = free_port()?;
    // As Debian's own file has it: a worker for each processor. No log, connections kept.
    let text = format!(
        "daemon off;\npid {at}/pid;\nerror_log stderr crit;\nworker_processes auto;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  tcp_nodelay on;\n  keepalive_requests 100000000;\n\
         client_body_temp_path {at}/body;\n  proxy_temp_path {at}/proxy;\n\
         fastcgi_temp_path {at}/fastcgi;\n  uwsgi_temp_path {at}/uwsgi;\n\
         scgi_temp_path {at}/scgi;\n\
         upstream fast {{ server 127.0.0.1:{server}; keepalive 128; \
         keepalive_requests 100000000; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://fast; \
         proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}\n}}\n"
    );
    let file = folder.path().join("nginx.conf");
    fs::write(&file, text).map_err(|e| e.to_string())?;
    let mut command = Command::new(tools.join("debian/bin/nginx"));
    command.args(["-e", "stderr", "-c"]).arg(&file);
    let mut nginx = Running::start("nginx", &mut command)?;
    nginx.listens("nginx", port)?;
    let mut contestant = contestant("nginx", vec![nginx], port, "/mcp")?;
    contestant._folder = Some(folder);
    Ok(contestant)
}

const FASTMCP: &str = "
import sys
from fastmcp.server import create_proxy
create_proxy(sys.argv[1]).run(transport='http', host='127.0.0.1', port=int(sys.argv[2]),
    show_banner=False, log_level='critical', uvicorn_config={'access_log': False})
";

/// PyPI's `fastmcp` as a proxy.
pub(super) fn fastmcp(tools: &Path, server: u16) -> Result<Contestant> {
    let port = free_port()?;
    let mut command = Command::new(tools.join("python/bin/python"));
    command.args(["-c", FASTMCP, &format!("http://127.0.0.1:{server}/mcp"), &port.to_string()]);
    let mut proxy = Running::start("fastmcp", command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    proxy.listens("fastmcp", port)?;
    contestant("fastmcp", vec![proxy], port, "/mcp")
}

/// npm's `supergateway`: it makes an HTTP server of a stdio server and is in front of that one.
pub(super) fn supergateway(tools: &Path) -> Result<Contestant> {
    let port = free_port()?;
    let words = fast_stdio()?.iter().map(|w| format!("'{w}'")).collect::<Vec<_>>().join(" ");
    let mut command = Command::new(tools.join("node22/bin/node"));
    command.arg(tools.join("npm/node_modules/.bin/supergateway"));
    command.args(["--stdio", &words, "--outputTransport", "streamableHttp", "--stateful"]);
    command.args(["--logLevel", "none", "--port", &port.to_string()]);
    let mut proxy = Running::start("supergateway", command.stdout(Stdio::null()))?;
    proxy.listens("supergateway", port)?;
    contestant("supergateway", vec![proxy], port, "/mcp")
}

/// A manifest with everything on: policy, a price, a cap. The definitions are pinned by the lock.
pub(super) fn manifest(server: &str) -> String {
    format!(
        "version = 1\n\n[agent]\nname = \"bench\"\n\n[servers.fast]\n{server}tools = [\"echo\"]\n\n\
         [servers.fast.pricing]\nmax_usd_per_call = \"0.0001\"\n\n\
         [[servers.fast.pricing.meters]]\nusage_path = \"result._meta.usage.tokens\"\n\
         usd_per_unit = \"0.00000001\"\n\n\
         [spending]\nmax_per_run_usd = \"1000\"\n\n[policy.tools]\nfast = [\"echo\", \"read_*\"]\n\n\
         [toolsets.all]\nservers = [\"fast\"]\ndefault = true\n"
    )
}

pub(super) fn over_http(server: u16) -> String {
    format!("type = \"http\"\nurl = \"http://127.0.0.1:{server}/mcp\"\n")
}

/// A gateway that serves, and how it is reached.
pub(super) struct Serving {
    pub(super) process: Running,
    pub(super) port: u16,
    pub(super) token: String,
}

/// `ringfence gateway serve` on a bundle.
pub(super) fn serve(bundle: &Bundle) -> Result<Serving> {
    let token = bundle.must(&["gateway", "token", "create", "bench"])?.trim().to_owned();
    let mut command = bundle.command(&["gateway", "serve", "--json"]);
    command.args(["--listen", "127.0.0.1:0", "--connections", "4096"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = Running::start("ringfence gateway serve", &mut command)?;
    let line = process.line()?;
    let told: Value = serde_json::from_str(&line).map_err(|_| format!("gateway serve: {line}"))?;
    let address = told["listening"]["address"].as_str().unwrap_or_default();
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    Ok(Serving { process, port: port.ok_or("gateway serve names no port")?, token })
}

impl Serving {
    /// What opens a session at one of its doors.
    pub(super) fn order(&self, path: &str, tool: &str) -> Value {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        json!({ "do": "open", "url": url, "token": self.token, "tool": tool })
    }
}

/// Ringfence with everything on, behind the transparent door of one server.
pub(super) fn ringfence(
    name: &'static str,
    program: &Path,
    server: u16,
    home: Option<&Path>,
) -> Result<Contestant> {
    let bundle = Bundle::pinned(program, &manifest(&over_http(server)), home)?;
    let serving = serve(&bundle)?;
    let worker = worker(&serving.order("/fast/mcp", "echo")).map_err(|e| format!("{name}: {e}"))?;
    let running = vec![serving.process];
    Ok(Contestant { name, worker, _running: running, _folder: None, _bundle: Some(bundle) })
}

/// The fast server over stdio, started by the load generator itself.
pub(super) fn stdio() -> Result<Worker> {
    worker(&json!({ "do": "open", "command": fast_stdio()? }))
}

/// The same server, started by `ringfence mcp` in a sandbox, with everything on.
pub(super) fn ringfence_stdio(program: &Path) -> Result<(Worker, Bundle)> {
    let own = own()?;
    let server = format!(
        "type = \"stdio\"\ncommand = {:?}\nargs = [\"stdio-server\"]\n",
        own.display().to_string()
    );
    let read = format!("\n[policy.filesystem]\nread = [\"**\", \"{}\"]\n", own.display());
    let bundle = Bundle::pinned(program, &(manifest(&server) + &read), None)?;
    let home = format!("RINGFENCE_HOME={}", bundle.home().display());
    let project = bundle.project().display().to_string();
    let program = program.display().to_string();
    let command = ["/usr/bin/env", &home, &program, "mcp", "--folder", &project];
    let order = json!({ "do": "open", "command": command, "tool": "fast__echo" });
    Ok((worker(&order).map_err(|e| format!("ringfence mcp: {e}"))?, bundle))
}
