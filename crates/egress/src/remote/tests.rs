use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::time::Duration;

use ringfence_bundle::{HostRule, Manifest};
use ringfence_policy::{MachinePolicy, Ruleset};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use tokio::time::timeout;

use super::wire::{self, Begin, Order, Word};
use super::{Attending, Ended, Relay, Remote, Setup, far};
use crate::support::{self as world, PATIENCE, World, read_head, shown};
use crate::{Error, Token};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn rules(hosts: &[&str]) -> Ruleset {
    let mut manifest = Manifest::default();
    let hosts = hosts.iter().map(|host| HostRule::parse(host).unwrap());
    manifest.sandbox.network.allowed_hosts = hosts.collect();
    Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap()
}

/// A port that is free for the moment.
async fn free() -> u16 {
    TcpListener::bind((HERE, 0)).await.unwrap().local_addr().unwrap().port()
}

/// A sidecar in this process: its end of the line, its proxy's port, and how it ended.
struct Beside {
    remote: Remote,
    attending: Attending,
    sidecar: tokio::task::JoinHandle<std::io::Error>,
    token: Token,
    proxy: u16,
    relay: u16,
    once: u16,
    folder: tempfile::TempDir,
}

async fn beside(world: &World, rules: &Ruleset, strict: bool) -> Result<Beside, Error> {
    let folder = tempfile::tempdir().unwrap();
    let (near, theirs) = StdUnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let theirs = UnixStream::from_std(theirs).unwrap();
    let place = folder.path().to_owned();
    let sidecar = tokio::spawn(async move {
        match far::attend(theirs, &place).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    });
    let (token, proxy) = (Token::fresh().unwrap(), free().await);
    let (relay, once) = (free().await, free().await);
    let setup = Setup {
        ruleset: rules,
        token: &token,
        address: HERE,
        proxy,
        relays: vec![
            Relay { port: relay, socket: "gate".into(), once: false },
            Relay { port: once, socket: "once".into(), once: true },
        ],
        strict,
    };
    let (remote, attending) = Remote::begin(&world.proxy, near, setup).await?;
    Ok(Beside { remote, attending, sidecar, token, proxy, relay, once, folder })
}

impl Beside {
    async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect((HERE, self.proxy)).await.unwrap();
        let shown = shown(&self.token);
        let text = format!("{request}\r\n{shown}\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        read_head(&mut stream).await
    }
}

#[tokio::test]
async fn it_judges_by_the_ruleset_and_its_evidence_is_in_the_run_s_record() {
    let world = World::new().await;
    let mut beside = beside(&world, &rules(&["allowed.localhost"]), false).await.unwrap();
    // Before it begins nothing is judged and nothing is recorded.
    assert!(beside.ask("CONNECT allowed.localhost:443 HTTP/1.1").await.contains(" 407 "));
    assert!(world.notes.all().is_empty());
    beside.remote.go().await.unwrap();

    let refused = beside.ask("CONNECT other.localhost:443 HTTP/1.1").await;
    assert!(refused.contains(" 403 "), "{refused}");
    let first = world.notes.decided(1).await;
    assert_eq!(first, "CONNECT other.localhost 443 +token +name -ruleset");
    // An allowed name is looked up on this side, and its address is refused on the other: loopback is
    // no address of the world.
    let local = beside.ask("CONNECT allowed.localhost:443 HTTP/1.1").await;
    assert!(local.contains(" 403 "), "{local}");
    let second = world.notes.decided(2).await;
    assert_eq!(second, "CONNECT allowed.localhost 443 +token +name +ruleset +resolve -address");

    beside.remote.stop();
    let ended = timeout(PATIENCE, beside.attending).await.unwrap().unwrap();
    assert!(matches!(ended, Ended::Whole), "{ended}");
}

#[tokio::test]
async fn a_strict_one_refuses_what_cannot_be_told() {
    let world = World::new().await;
    let rules = rules(&["93.184.216.34"]);
    let mut lax = beside(&world, &rules, false).await.unwrap();
    lax.remote.go().await.unwrap();
    let mut strict = beside(&world, &rules, true).await.unwrap();
    strict.remote.go().await.unwrap();
    assert!(strict.ask("CONNECT 93.184.216.34:443 HTTP/1.1").await.contains(" 403 "));
    let line = world.notes.decided(1).await;
    assert!(!line.contains("+ruleset"), "{line}");
    // The control: by the rules alone it may be dialled, and there is no way to it here.
    let control = timeout(PATIENCE, lax.ask("CONNECT 93.184.216.34:443 HTTP/1.1")).await.unwrap();
    assert!(!control.contains(" 403 "), "{control}");
}

#[tokio::test]
async fn rules_that_are_newer_than_it_are_refused() {
    let (near, theirs) = UnixStream::pair().unwrap();
    let sidecar = tokio::spawn(async move {
        far::attend(theirs, Path::new("/nonexistent")).await.map_err(|error| error.to_string())
    });
    let (mut words, mut orders) = near.into_split();
    let ruleset = String::from_utf8(rules(&[]).to_json()).unwrap();
    let newer = ruleset.replace("\"version\":", "\"version\":9");
    assert_ne!(newer, ruleset);
    let begin = Begin {
        version: wire::VERSION,
        ruleset: newer,
        token: "t".into(),
        address: HERE,
        proxy: free().await,
        relays: Vec::new(),
        strict: false,
    };
    let port = begin.proxy;
    wire::send(&mut orders, &Order::Begin(Box::new(begin))).await.unwrap();
    let Some(Word::Refused { reason }) = wire::receive(&mut words).await.unwrap() else { panic!() };
    assert!(reason.contains("newer") || reason.contains("version"), "{reason}");
    assert!(sidecar.await.unwrap().is_err());
    // It never listened.
    assert!(TcpStream::connect((HERE, port)).await.is_err());
}

#[tokio::test]
async fn it_passes_on_what_comes_to_a_relayed_port_and_ends_with_the_line() {
    let world = World::new().await;
    let beside = beside(&world, &rules(&[]), false).await.unwrap();
    let gate = UnixListener::bind(beside.folder.path().join("gate")).unwrap();
    let mut client = TcpStream::connect(SocketAddr::new(HERE, beside.relay)).await.unwrap();
    client.write_all(b"to the gate").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut server, _) = gate.accept().await.unwrap();
    let mut said = String::new();
    server.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "to the gate");
    // Half closed: the answer still arrives.
    server.write_all(b"and back").await.unwrap();
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "and back");
    // The supervisor is gone: so is the sidecar.
    beside.attending.abort();
    timeout(PATIENCE, beside.sidecar).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_relayed_port_for_one_connection_is_shut_behind_it() {
    let world = World::new().await;
    let beside = beside(&world, &rules(&[]), false).await.unwrap();
    let socket = UnixListener::bind(beside.folder.path().join("once")).unwrap();
    let mut first = TcpStream::connect((HERE, beside.once)).await.unwrap();
    first.write_all(b"1").await.unwrap();
    let (mut server, _) = socket.accept().await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'1', "the control");
    assert!(TcpStream::connect((HERE, beside.once)).await.is_err());
    // What came goes on.
    server.write_all(b"2").await.unwrap();
    assert_eq!(first.read_u8().await.unwrap(), b'2');
}

#[tokio::test]
async fn nothing_is_dialled_before_the_supervisor_has_the_decision() {
    let world = World::new().await;
    let mut beside = beside(&world, &rules(&["93.184.216.34"]), false).await.unwrap();
    beside.remote.go().await.unwrap();
    world.notes.behind.send_replace(true);
    let asked = beside.ask("CONNECT 93.184.216.34:443 HTTP/1.1");
    tokio::pin!(asked);
    // It would be answered at once.
    assert!(timeout(Duration::from_millis(300), &mut asked).await.is_err());
    world.notes.behind.send_replace(false);
    let answer = timeout(PATIENCE, asked).await.unwrap();
    assert!(answer.contains(" 200 "), "the control: {answer}");
    assert!(world.notes.decided(1).await.ends_with("+ruleset +address"));
}

#[tokio::test]
async fn silent_name_servers_hold_up_no_evidence() {
    let silent = UdpSocket::bind((HERE, 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let world = World::with(world::Setup { dns_port: Some(port), ..world::Setup::default() }).await;
    let mut beside = beside(&world, &rules(&[".example.com"]), false).await.unwrap();
    beside.remote.go().await.unwrap();
    // More questions than are answered at a time.
    let mut open = Vec::new();
    for number in 0..2 * far::QUESTIONS {
        let mut stream = TcpStream::connect((HERE, beside.proxy)).await.unwrap();
        let shown = shown(&beside.token);
        let head = format!("CONNECT a{number}.example.com:443 HTTP/1.1\r\n{shown}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        open.push(stream);
    }
    // The name server has heard of it: they wait.
    silent.recv(&mut [0; 512]).await.unwrap();
    let refused = timeout(PATIENCE, beside.ask("CONNECT other.localhost:443 HTTP/1.1"));
    assert!(refused.await.unwrap().contains(" 403 "));
    let decided = timeout(PATIENCE, world.notes.decided(1)).await.unwrap();
    assert_eq!(decided, "CONNECT other.localhost 443 +token +name -ruleset");
    // And it comes to its end, with all of them open.
    beside.remote.stop();
    let ended = timeout(PATIENCE, beside.attending).await.unwrap().unwrap();
    assert!(matches!(ended, Ended::Whole), "{ended}");
}

#[tokio::test]
async fn a_line_that_is_cut_is_no_end() {
    let world = World::new().await;
    let beside = beside(&world, &rules(&[]), false).await.unwrap();
    beside.sidecar.abort();
    let ended = timeout(PATIENCE, beside.attending).await.unwrap().unwrap();
    assert!(matches!(ended, Ended::Cut(_)), "{ended}");
}
