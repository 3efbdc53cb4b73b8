//! Lists of tools that change while they are made, and arguments that stand in headers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_bundle::{ServerId, ToolPin, ToolPins};
use ringfence_mcp::HeaderParam;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use super::world::{World, check_of, id, stdio, tool};
use crate::{Launched, Launcher};

/// A server whose tools change while its first list is under way: it says so, and goes on with the
/// list when it is told.
#[derive(Default)]
struct Changing {
    lists: Arc<AtomicUsize>,
    announced: Arc<Notify>,
    go_on: Arc<Notify>,
    quiet: bool,
}

impl Launcher for Changing {
    fn launch<'a>(
        &'a self,
        _server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (lists, quiet) = (Arc::clone(&self.lists), self.quiet);
        let (announced, go_on) = (Arc::clone(&self.announced), Arc::clone(&self.go_on));
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(theirs);
            let mut lines = tokio::io::BufReader::new(read).lines();
            let mut waiting = None;
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).unwrap();
                let (method, mut id) = (message["method"].as_str(), message["id"].clone());
                let result = match method {
                    Some("initialize") => json!({"protocolVersion": "2025-11-25",
                        "capabilities": {"tools": {"listChanged": true}}}),
                    Some("tools/list") if lists.fetch_add(1, Ordering::SeqCst) == 0 => {
                        if !quiet {
                            let note = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                            write.write_all(format!("{note}\n").as_bytes()).await.unwrap();
                        }
                        // Its answer shows that what was said before it was heard.
                        let ping = json!({"jsonrpc": "2.0", "id": "heard", "method": "ping"});
                        write.write_all(format!("{ping}\n").as_bytes()).await.unwrap();
                        waiting = Some(id);
                        continue;
                    }
                    Some("tools/list") => json!({"tools": [tool("echo", "another one")]}),
                    None if id == "heard" => {
                        announced.notify_one();
                        go_on.notified().await;
                        id = waiting.take().unwrap();
                        json!({"tools": [tool("echo", "a tool")]})
                    }
                    _ if id.is_null() => continue,
                    _ => json!({"content": []}),
                };
                let reply = json!({"jsonrpc": "2.0", "id": id, "result": result});
                write.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
            }
        });
        Box::pin(async move {
            let (stdout, stdin) = tokio::io::split(ours);
            let (stdin, stdout) = (Box::new(stdin), Box::new(stdout));
            Ok(Launched { stdin, stdout, secrets: Vec::new(), guard: Box::new(()), fate: None })
        })
    }
}

fn world(changing: &Arc<Changing>) -> Arc<World> {
    let World { journal, tools, pipes, .. } = World::new();
    let launcher = Arc::clone(changing) as Arc<dyn Launcher>;
    Arc::new(World::launched(stdio(), Duration::from_secs(10), journal, tools, pipes, launcher))
}

#[tokio::test]
async fn a_change_that_is_told_while_a_list_is_under_way_is_not_lost() {
    for looked in [true, false] {
        let changing = Arc::new(Changing::default());
        let world = world(&changing);
        let first = {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.call("echo", json!({})).await })
        };
        changing.announced.notified().await;
        if looked {
            // Whoever looks meanwhile takes note of the change, for everybody.
            assert!(!world.gateway.stands(&id("s")));
        }
        changing.go_on.notify_one();
        // It was judged by what was known when it was listed.
        first.await.unwrap().unwrap();
        let error = world.call("echo", json!({})).await.unwrap_err();
        assert_eq!(check_of(&error), "pin", "{looked}");
        assert_eq!(changing.lists.load(Ordering::SeqCst), 2, "{looked}");
    }
    // The control: where nothing changed, one list is enough.
    let changing = Arc::new(Changing { quiet: true, ..Changing::default() });
    let world = world(&changing);
    changing.go_on.notify_one();
    for _ in 0..2 {
        world.call("echo", json!({})).await.unwrap();
    }
    assert_eq!(changing.lists.load(Ordering::SeqCst), 1);
}

fn with_header() -> Value {
    let mut tool = tool("echo", "a tool");
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    tool["inputSchema"] = json!({"type": "object", "properties": {"region": region}});
    tool
}

#[tokio::test]
async fn arguments_that_stand_in_headers_are_known_by_the_lock_or_by_the_last_list() {
    let expected = HeaderParam::of_schema(&with_header()["inputSchema"]);
    assert_eq!(expected.len(), 1);
    // By the lock: nobody is asked.
    let pins = ToolPins {
        server: id("s"),
        instructions: Some("be kind".into()),
        tools: vec![ToolPin::of(with_header()).unwrap()],
    };
    let pinned = World::pinned(&pins);
    assert_eq!(pinned.gateway.header_params(&id("s"), "echo").await, expected);
    assert!(pinned.gateway.header_params(&id("s"), "say").await.is_empty());
    assert_eq!(pinned.pipes.launches.load(Ordering::SeqCst), 0);
    // By the server, which is asked once.
    let world = World::new();
    *world.tools.list.lock().unwrap() = vec![with_header(), tool("say", "a tool")];
    for _ in 0..2 {
        assert_eq!(world.gateway.header_params(&id("s"), "echo").await, expected);
        assert!(world.gateway.header_params(&id("s"), "say").await.is_empty());
    }
    let lists = world.tools.calls.lock().unwrap().iter().filter(|(m, _)| m == "tools/list").count();
    assert_eq!(lists, 1);
    // From its next list on, what that says.
    *world.tools.list.lock().unwrap() = vec![tool("echo", "a tool"), tool("say", "a tool")];
    world.gateway.look_again(&id("s"));
    let _ = world.call("say", json!({})).await;
    assert!(world.gateway.header_params(&id("s"), "echo").await.is_empty());
    // Of one that is down nothing is known.
    let down = World::new();
    down.pipes.broken.store(true, Ordering::SeqCst);
    assert!(down.gateway.header_params(&id("s"), "echo").await.is_empty());
}

#[tokio::test]
async fn a_call_whose_header_says_other_than_its_argument_reaches_no_server() {
    let world = World::new();
    *world.tools.list.lock().unwrap() = vec![with_header()];
    let (address, _stop, _serving) = world.serve();
    let post = async |path: &str, tool: &str, header: &str, region: Option<&str>| {
        let params = json!({"name": tool, "arguments": {"region": region}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let body = body.to_string();
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n\
             {header}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply[9..12].parse::<u16>().unwrap()
    };
    for (path, tool) in [("/s/mcp", "echo"), ("/mcp", "s__echo")] {
        let before = world.reached().len();
        for (header, region) in [
            ("mcp-param-region: us\r\n", Some("eu")),
            ("", Some("eu")),
            ("mcp-param-region: eu\r\n", None),
        ] {
            assert_eq!(post(path, tool, header, region).await, 400, "{path} {header}");
        }
        assert_eq!(world.reached().len(), before, "{path}");
        assert_eq!(post(path, tool, "mcp-param-region: eu\r\n", Some("eu")).await, 200, "{path}");
        assert_eq!(world.reached().len(), before + 1, "{path}");
    }
}
