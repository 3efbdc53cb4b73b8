//! An agent that tries what it may do and what it may not, and says what happened.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine as _;
use ringfence_mcp::HttpClient;
use serde_json::json;

use crate::commands::Done;
use crate::failure::Failure;
use crate::out;

const WAIT: Duration = Duration::from_secs(5);
/// A variable that the example's driver sets on the host and the manifest does not name.
const SECRET: &str = "RINGFENCE_EXAMPLE_TOKEN";

pub(crate) fn run() -> Done {
    let url = std::env::var("RINGFENCE_MCP_DEMO_URL").map_err(|_| {
        Failure::user("this is the example's agent; it runs inside a sandbox")
            .next("ringfence -C examples/first-run run")
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::user(e.to_string()))?;
    let mut as_meant = true;
    let mut tell = |what: &str, wanted: bool, happened: Result<String, String>| {
        let (worked, words) = match happened {
            Ok(words) => (true, words),
            Err(words) => (false, words),
        };
        as_meant &= worked == wanted;
        let verdict = if worked { "it worked" } else { "it did not" };
        out::data(&format!("agent: {what}: {verdict} ({words})"));
    };
    runtime.block_on(async {
        tell("call the tool `greet`", true, call(&url, "greet").await);
        tell("call the tool `delete_everything`", false, call(&url, "delete_everything").await);
    });
    tell(
        "reach not-listed.example through the proxy",
        false,
        through_proxy("not-listed.example:443"),
    );
    tell("reach 1.1.1.1:443 directly", false, directly(SocketAddr::from(([1, 1, 1, 1], 443))));
    tell(
        "read a secret of the host",
        false,
        std::env::var(SECRET).map_err(|_| format!("{SECRET} is not set here")),
    );
    tell("write out/greeting.txt", true, write("out/greeting.txt"));
    tell("write README.md of the project", false, write("README.md"));
    tell("write .ringfence/ringfence.toml", false, write(".ringfence/ringfence.toml"));
    tell("write /usr/bin/ringfence-was-here", false, write("/usr/bin/ringfence-was-here"));
    Ok(if as_meant { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn call(url: &str, tool: &str) -> Result<String, String> {
    let client = HttpClient::connect(url).await.map_err(|e| e.to_string())?;
    let result =
        client.call_tool(tool, json!({ "name": "world" })).await.map_err(|e| e.to_string())?;
    Ok(result["content"][0]["text"].as_str().unwrap_or("no text").to_owned())
}

/// Asks the proxy for a tunnel, with the token that came with its address.
fn through_proxy(target: &str) -> Result<String, String> {
    let proxy = std::env::var("HTTPS_PROXY").map_err(|_| "no proxy is set".to_owned())?;
    let (login, address) = proxy
        .trim_start_matches("http://")
        .split_once('@')
        .ok_or("the proxy's address has no token")?;
    let address: SocketAddr = address.parse().map_err(|_| "the proxy's address is not one")?;
    let login = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(login));
    let mut stream = connect(address)?;
    let request = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: {login}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut answer = [0; 512];
    let length = stream.read(&mut answer).map_err(|e| e.to_string())?;
    let answer = String::from_utf8_lossy(&answer[..length]);
    let status = answer.lines().next().unwrap_or("no answer").to_owned();
    if status.split(' ').nth(1) == Some("200") { Ok(status) } else { Err(status) }
}

fn directly(address: SocketAddr) -> Result<String, String> {
    connect(address).map(|_| "connected".to_owned())
}

fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&address, WAIT).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(WAIT)).map_err(|e| e.to_string())?;
    Ok(stream)
}

/// Adds nothing to a file that it may not change: opening it for writing is the test.
fn write(path: &str) -> Result<String, String> {
    let mut open = std::fs::OpenOptions::new();
    open.append(true).create(!Path::new(path).exists());
    let mut file = open.open(path).map_err(|e| e.to_string())?;
    if path.starts_with("out/") {
        file.write_all(b"hello\n").map_err(|e| e.to_string())?;
    }
    Ok("opened for writing".into())
}
