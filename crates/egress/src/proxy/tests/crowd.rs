//! More peers than there is room for.

use std::net::Ipv4Addr;
use std::time::Duration;

use ringfence_policy::Principal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::support::{PATIENCE, Setup, World, read_all, upstream};

/// Resident bytes of this process that no file stands behind.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn ten_thousand_connections_at_once_are_borne_and_then_it_serves() {
    let (soft, hard) = {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        (limit.current, limit.maximum)
    };
    if soft.is_some_and(|soft| soft < 16_384) {
        let limit = rustix::process::Rlimit { current: Some(16_384), maximum: hard };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)
            .expect("this user may open 16,384 descriptors");
    }
    let (_listener, port) = upstream().await;
    let mut setup = Setup::default();
    setup.limits.waiting = Duration::from_millis(500);
    setup.limits.connections = 256;
    let world = World::with(setup).await;
    let before = anonymous();
    let mut all = JoinSet::new();
    for _ in 0..10_000 {
        let proxy = (Ipv4Addr::LOCALHOST, world.port);
        all.spawn(async move {
            // The kernel's queue is shorter than this crowd: some are never let in.
            let connected = timeout(Duration::from_secs(5), TcpStream::connect(proxy)).await;
            let Ok(Ok(mut stream)) = connected else { return };
            // Half of them begin something, and none of them ends it.
            let _ = stream.write_all(b"CONNECT api.localhost:443 HTTP/1.1\r\nX: ").await;
            let mut byte = [0];
            let _ = timeout(Duration::from_secs(5), stream.read(&mut byte)).await;
        });
    }
    let mut most = 0;
    while all.join_next().await.is_some() {
        most = most.max(anonymous());
    }
    // The clients of this test are in it too: 10,000 of them.
    let each = most.saturating_sub(before) / 10_000;
    assert!(each < 8 * 1024, "{each} bytes a connection");
    let served = async {
        loop {
            let (_client, answer) = world.tunnel(&format!("api.localhost:{port}")).await;
            if answer.starts_with("HTTP/1.1 200 ") {
                break;
            }
        }
    };
    timeout(PATIENCE, served).await.expect("it serves again");
}

#[tokio::test]
async fn a_peer_that_sends_a_byte_at_a_time_is_cut_when_its_head_is_due() {
    let due = Duration::from_millis(400);
    let head =
        b"CONNECT api.localhost:443 HTTP/1.1\r\nX-Padding: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";
    for bytes in [&head[..], crate::http2::PREFACE] {
        let mut setup = Setup::default();
        setup.limits.head = due;
        let world = World::with(setup).await;
        let mut client = world.connect().await;
        client.set_nodelay(true).unwrap();
        let begun = Instant::now();
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        let (mut reads, mut writes) = client.split();
        let dribble = async {
            for byte in bytes {
                pace.tick().await;
                if writes.write_all(&[*byte]).await.is_err() {
                    break;
                }
            }
        };
        let mut answer = [0; 12];
        let (_, read) = tokio::join!(dribble, timeout(PATIENCE, reads.read_exact(&mut answer)));
        read.expect("it is cut").unwrap();
        assert_eq!(&answer, b"HTTP/1.1 400");
        assert!(begun.elapsed() >= due);
        // It was cut by then, and not by the end of what it had to say.
        let decided = world.notes.decided(1).await;
        assert!(decided.ends_with(" 0 -request") && !decided.contains("X-Padding"), "{decided}");
    }
}

#[tokio::test]
async fn all_listeners_of_a_run_share_one_bound() {
    let mut setup = Setup::default();
    setup.limits.connections = 2;
    setup.limits.all_connections = 3;
    let world = World::with(setup).await;
    let second = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = second.local_addr().unwrap().port();
    let (proxy, token, begun) = (world.proxy.clone(), world.token.clone(), world.begun.clone());
    let stopped = world.stop.subscribe();
    let who = Principal::Agent;
    tokio::spawn(async move { proxy.serve(second, who, token, begun, stopped).await });
    let bad = b"nonsense\n\n";
    // Two of the first listener and one of the second are in; another of the second waits.
    let first = [world.connect().await, world.connect().await];
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let mut third = connect().await.unwrap();
    let mut fourth = connect().await.unwrap();
    third.write_all(&bad[..1]).await.unwrap();
    fourth.write_all(bad).await.unwrap();
    let mut byte = [0];
    let waits = timeout(Duration::from_millis(300), fourth.read(&mut byte)).await;
    assert!(waits.is_err(), "it has its turn when there is room");
    drop(first);
    assert!(read_all(&mut fourth).await.starts_with("HTTP/1.1 400 "));
    drop(third);
}
