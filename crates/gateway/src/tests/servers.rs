//! Servers that are slow, die, or say what they should not.

use std::future::Future;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringfence_bundle::{ServerId, Template, Transport};
use ringfence_mcp::{UpstreamError, serve_stdio};
use serde_json::json;

use super::memory::Memory;
use super::world::{SECRET, World, new_tools, stdio};
use crate::{Error, Launched, Launcher};

#[tokio::test]
async fn calls_share_one_connection_and_do_not_wait_for_each_other() {
    let world = Arc::new(World::new());
    let hang = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.call("hang", json!({})).await }
    });
    world.tools.hanging.notified().await;
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.call("echo", json!({ "n": n })).await })
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap()["echo"]["arguments"]["n"], n);
    }
    assert_eq!(world.pipes.launches.load(Ordering::SeqCst), 1);
    assert!(!hang.is_finished());
    hang.abort();
}

#[tokio::test]
async fn a_slow_call_fails_in_time_and_the_server_is_told() {
    let world = World::with(stdio(), Duration::from_millis(100));
    let error = world.call("hang", json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Upstream { error: UpstreamError::Timeout { .. } }), "{error:?}");
    world.tools.dropped.notified().await;
    let (_, result, detail) = world.journal.settled().pop().unwrap();
    assert_eq!(result, "failed");
    assert!(detail.contains("did not answer"), "{detail}");
    world.call("echo", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled_at_the_server_and_settled() {
    let world = World::new();
    {
        let call = world.call("hang", json!({}));
        tokio::pin!(call);
        tokio::select! {
            done = &mut call => panic!("{done:?}"),
            () = world.tools.hanging.notified() => {}
        }
    }
    world.tools.dropped.notified().await;
    assert_eq!(world.journal.settled().pop().unwrap().1, "cancelled");
}

#[tokio::test]
async fn a_server_that_dies_fails_its_calls_and_is_started_again() {
    let world = Arc::new(World::new());
    let hang = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.call("hang", json!({})).await }
    });
    world.tools.hanging.notified().await;
    world.kill().await;
    let error = hang.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("ended the connection"), "{error}");
    assert_eq!(world.journal.settled().pop().unwrap().1, "failed");
    world.call("echo", json!({})).await.unwrap();
    assert_eq!(world.pipes.launches.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_server_that_cannot_start_is_tried_less_and_less_and_its_path_stays_here() {
    let world = World::new();
    world.pipes.broken.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        let error = world.call("echo", json!({})).await.unwrap_err();
        assert!(!error.to_rpc().message.contains("/home"), "{error}");
        assert_eq!(error.to_rpc().code, -32003);
    }
    assert_eq!(world.pipes.launches.load(Ordering::SeqCst), 2);
    assert!(world.journal.settled().iter().any(|(.., detail)| detail.contains("/home/someone")));
    world.pipes.broken.store(false, Ordering::SeqCst);
    let again = async {
        while world.call("echo", json!({})).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), again).await.unwrap();
}

#[tokio::test]
async fn errors_of_a_server_pass_as_they_are() {
    let world = World::new();
    let Err(Error::Answered(error)) = world.call("fail", json!({})).await else { panic!() };
    assert_eq!((error.code, error.data), (-32050, Some(json!({"own": true}))));
    assert_eq!(world.journal.settled().pop().unwrap().1, "error");
}

#[tokio::test]
async fn an_http_server_is_reached_and_neither_its_address_nor_a_secret_comes_back() {
    // The server is a gateway's door of its own: its backend is the same as over a pipe.
    let journal = Arc::<Memory>::default();
    let tools = new_tools(&journal);
    let address = serve_tools(Arc::clone(&tools)).await;
    let url = format!("http://{address}/s/mcp");
    let key = Template::parse("Bearer ${KEY}").unwrap();
    let headers = [("Authorization".to_owned(), key)].into();
    let transport = Transport::Http { url: url.clone(), headers };
    let world = World::from_parts(transport, Duration::from_secs(10), journal, tools);
    assert_eq!(world.call("echo", json!({"a": 1})).await.unwrap()["echo"]["arguments"]["a"], 1);
    *world.tools.says.lock().unwrap() =
        json!({"k": [format!("at {url}: {SECRET}")], url.clone(): 1});
    let said = world.call("say", json!({})).await.unwrap();
    assert!(said["said"]["k"][0].as_str().unwrap().starts_with("at "), "{said}");
    let error = world.call("fail", json!({})).await.unwrap_err();
    for text in [said.to_string(), format!("{:?}", error.to_rpc())] {
        assert!(!text.contains(&url) && !text.contains(SECRET), "{text}");
    }
    assert!(!error.to_rpc().message.contains("127.0.0.1"), "{error}");
}

pub(super) async fn serve_tools(tools: Arc<super::world::Tools>) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = ringfence_mcp::strict::Limits::default();
    let door = Arc::new(ringfence_mcp::HttpDoor::new(tools, address.port(), limits));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let door = Arc::clone(&door);
            let service = hyper::service::service_fn(move |request: http::Request<_>| {
                let door = Arc::clone(&door);
                async move {
                    let request: http::Request<hyper::body::Incoming> = request;
                    let key = request.headers()[http::header::AUTHORIZATION].to_str();
                    assert_eq!(key.unwrap(), format!("Bearer {SECRET}"));
                    Ok::<_, std::convert::Infallible>(door.handle(request).await)
                }
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    address
}

const CHILD: &str = "RINGFENCE_TEST_CHILD";

/// Not a test unless it was started as a server: then it serves until its input ends. What the test
/// harness prints around it is chatter on stdout, which a server may make.
#[test]
fn child_server() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let journal = Arc::<Memory>::default();
    journal.events.lock().unwrap().push(ringfence_record::Event::CallDecided {
        call: 0,
        principal: String::new(),
        server: String::new(),
        method: "tools/list".into(),
        tool: None,
        arguments: None,
        other_params: None,
        outcome: ringfence_record::Outcome::Allowed,
        steps: Vec::new(),
    });
    let mut call = journal.events.lock().unwrap()[0].clone();
    if let ringfence_record::Event::CallDecided { method, .. } = &mut call {
        *method = "tools/call".into();
    }
    journal.events.lock().unwrap().push(call);
    let tools = new_tools(&journal);
    tools.list.lock().unwrap().push(super::world::tool("die", "a tool"));
    runtime.block_on(async {
        use std::os::fd::AsFd as _;
        use tokio::net::unix::pipe::{Receiver, Sender};
        let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        let stdout = std::io::stdout().as_fd().try_clone_to_owned().unwrap();
        let stdin = Receiver::from_owned_fd(stdin).unwrap();
        serve_stdio(tools, stdin, Sender::from_owned_fd(stdout).unwrap()).await.unwrap();
    });
    std::process::exit(0);
}

struct Processes;
impl Launcher for Processes {
    fn launch<'a>(
        &'a self,
        _server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>> {
        Box::pin(async {
            let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::servers::child_server", "--nocapture"])
                .env(CHILD, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| error.to_string())?;
            Ok(Launched {
                stdin: Box::new(child.stdin.take().unwrap()),
                stdout: Box::new(child.stdout.take().unwrap()),
                secrets: Vec::new(),
                guard: Box::new(child),
                fate: None,
            })
        })
    }
}

#[tokio::test]
async fn a_process_is_a_server_and_may_die_in_a_call() {
    let journal = Arc::<Memory>::default();
    let tools = new_tools(&journal);
    let base = World::from_parts(stdio(), Duration::from_secs(20), journal, tools);
    let world = World::launched(
        stdio(),
        Duration::from_secs(20),
        base.journal,
        base.tools,
        base.pipes,
        Arc::new(Processes),
    );
    assert_eq!(world.call("echo", json!({"a": 1})).await.unwrap()["echo"]["arguments"]["a"], 1);
    let error = world.call("die", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("ended the connection"), "{error}");
    world.call("echo", json!({})).await.unwrap();
}

/// Ends at the first message that is not of the stateless revision.
struct StatelessOnly(std::sync::atomic::AtomicUsize);
impl Launcher for StatelessOnly {
    fn launch<'a>(
        &'a self,
        _server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>> {
        use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
        self.0.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(theirs);
            let mut lines = tokio::io::BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: serde_json::Value = serde_json::from_str(&line).unwrap();
                let version =
                    &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
                if version != "2026-07-28" {
                    return;
                }
                let result = match message["method"].as_str().unwrap() {
                    "server/discover" => {
                        json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
                    }
                    "tools/list" => json!({"tools": [super::world::tool("echo", "a tool")]}),
                    _ => json!({"content": [], "resultType": "complete"}),
                };
                let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
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

#[tokio::test]
async fn a_server_that_knows_no_handshake_is_started_again_without_one() {
    let base = World::new();
    let launcher = Arc::new(StatelessOnly(0.into()));
    let launch = Arc::clone(&launcher) as Arc<dyn Launcher>;
    let wait = Duration::from_secs(10);
    let world = World::launched(stdio(), wait, base.journal, base.tools, base.pipes, launch);
    world.call("echo", json!({})).await.unwrap();
    world.call("echo", json!({})).await.unwrap();
    assert_eq!(launcher.0.load(Ordering::SeqCst), 2);
}

/// Reads, answers nothing, and is known to live.
struct Hangs;
impl Launcher for Hangs {
    fn launch<'a>(
        &'a self,
        _server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>> {
        Box::pin(async {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let (stdout, stdin) = tokio::io::split(ours);
            Ok(Launched {
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
                secrets: Vec::new(),
                guard: Box::new(theirs),
                fate: Some(Box::new(Lives)),
            })
        })
    }
}

struct Lives;
impl crate::Fate for Lives {
    fn learn(&self, patience: Duration) -> Pin<Box<dyn Future<Output = crate::Told> + Send + '_>> {
        assert_eq!(patience, Duration::ZERO, "nobody waits longer for a server that hangs");
        let stderr = format!("waiting for the disk with {SECRET}\n");
        let end = "it still runs".into();
        Box::pin(async { crate::Told { end, stderr, cut: false } })
    }
}

#[tokio::test]
async fn what_a_server_that_hangs_said_is_for_the_record_and_not_for_the_agent() {
    let base = World::new();
    // A handshake has less time than a call.
    let waits = crate::Waits { connect: Duration::from_millis(100), call: Duration::from_secs(20) };
    let launched = (base.journal, base.tools, base.pipes);
    let alone = super::world::s_alone(stdio(), &[]);
    let world =
        World::assembled(alone, Arc::new(super::world::Rules), waits, launched, Arc::new(Hangs));
    let error = world.call("echo", json!({})).await.unwrap_err();
    let seen = format!("{:?}", error.to_rpc());
    assert!(seen.contains("did not answer within") && !seen.contains("disk"), "{seen}");
    let events = world.journal.events.lock().unwrap();
    let told = events.iter().find_map(|event| match event {
        ringfence_record::Event::CallSettled { result, detail, .. } if result == "failed" => {
            detail.clone()
        }
        _ => None,
    });
    let told = told.expect("it failed");
    assert!(
        told.ends_with("; it still runs; its stderr ends: waiting for the disk with ***"),
        "{told}"
    );
}

/// Greets, and answers nothing else.
struct Greets;
impl Launcher for Greets {
    fn launch<'a>(
        &'a self,
        _server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>> {
        use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(theirs);
            let mut lines = tokio::io::BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: serde_json::Value = serde_json::from_str(&line).unwrap();
                if message["method"] == "initialize" {
                    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
                    let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": hello});
                    write.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
                }
            }
        });
        Box::pin(async move {
            let (stdout, stdin) = tokio::io::split(ours);
            let (stdin, stdout) = (Box::new(stdin), Box::new(stdout));
            let fate: Option<Box<dyn crate::Fate>> = Some(Box::new(Lives));
            Ok(Launched { stdin, stdout, secrets: Vec::new(), guard: Box::new(()), fate })
        })
    }
}

#[tokio::test]
async fn a_server_that_hangs_when_it_is_asked_what_it_offers_is_told_of_too() {
    let base = World::new();
    let wait = Duration::from_millis(500);
    let world =
        World::launched(stdio(), wait, base.journal, base.tools, base.pipes, Arc::new(Greets));
    let server = super::world::id("s");
    let Err(Error::Upstream { error }) = world.gateway.offer(&server).await else {
        panic!("it answered");
    };
    let told = world.gateway.detail(&server, &error);
    assert!(told.ends_with("its stderr ends: waiting for the disk with ***"), "{told}");
    assert!(!error.to_string().contains("disk"), "{error}");
}
