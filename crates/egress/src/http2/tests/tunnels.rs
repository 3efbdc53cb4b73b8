//! CONNECT (RFC 9113, section 8.5).

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::{client, read, request, reset, send, tunnel};
use crate::support::{PATIENCE, Setup, World, accepted, hello, read_all, untouched, upstream};

#[tokio::test]
async fn one_side_of_a_tunnel_may_end_before_the_other() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let (mut from, mut to) = tunnel(&world, &mut sender, &format!("api.localhost:{port}")).await;
    let mut server = accepted(&listener).await;
    let bytes = hello("api.localhost");
    to.send_data(Bytes::from(bytes.clone()), true).unwrap();
    server.write_all(b"x").await.unwrap();
    assert_eq!(read_all(&mut server).await.len(), String::from_utf8_lossy(&bytes).len());
    let late = vec![b'x'; 1_000_000];
    let (written, got) = tokio::join!(
        async move {
            server.write_all(&late[1..]).await.unwrap();
            drop(server);
        },
        read(&mut from)
    );
    let () = written;
    assert!(got.unwrap() == vec![b'x'; 1_000_000]);
    assert_eq!(world.notes.closed(1).await, (bytes.len() as u64, 1_000_000, "closed".to_owned()));
    assert_eq!(
        world.notes.decided(1).await,
        format!("CONNECT api.localhost {port} +token +name +ruleset +resolve +address")
    );

    // The other way round.
    let (mut from, mut to) = tunnel(&world, &mut sender, &format!("opaque.localhost:{port}")).await;
    let mut server = accepted(&listener).await;
    server.write_all(b"greeting").await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(read(&mut from).await.unwrap(), b"greeting");
    to.send_data(Bytes::from_static(b"farewell"), true).unwrap();
    assert_eq!(read_all(&mut server).await, "farewell");
    assert_eq!(world.notes.closed(2).await, (8, 8, "closed".to_owned()));
}

#[tokio::test]
async fn tunnels_of_one_connection_are_judged_one_by_one() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let (mut from, mut to) = tunnel(&world, &mut sender, &format!("api.localhost:{port}")).await;
    let mut server = accepted(&listener).await;
    // A hello for another host goes nowhere, and the client of TLS is told.
    to.send_data(Bytes::from(hello("evil.localhost")), false).unwrap();
    assert_eq!(read(&mut from).await.unwrap(), [21, 3, 3, 0, 2, 2, 49]);
    assert_eq!(world.notes.closed(1).await, (0, 0, "sni-mismatch: evil.localhost".to_owned()));
    assert_eq!(read_all(&mut server).await, "");
    for (to, status, decided) in [
        (format!("refused.localhost:{port}"), 403, "refused.localhost PORT +token +name -ruleset"),
        ("api.localhost".to_owned(), 400, "api.localhost 0 +token -name"),
        (format!("user:secret@api.localhost:{port}"), 400, "...@api.localhost:PORT 0 +token -name"),
        (format!("0x7f.1:{port}"), 400, "0x7f.1:PORT 0 +token -name"),
    ] {
        let connect = request(&world, Method::CONNECT, &to).body(()).unwrap();
        let number = world.notes.all().len() as u64;
        let (answer, _to) = send(&mut sender, connect, false).await.unwrap();
        assert_eq!(answer.status(), status, "{to}");
        let text = String::from_utf8(read(&mut answer.into_body()).await.unwrap()).unwrap();
        assert!(text.starts_with("ringfence: "), "{text}");
        let decided = format!("CONNECT {}", decided.replace("PORT", &port.to_string()));
        assert_eq!(world.notes.decided(number).await, decided, "{to}");
    }
    assert!(untouched(&listener).await);
    // And the next one goes through.
    let _tunnel = tunnel(&world, &mut sender, &format!("api.localhost:{port}")).await;
    assert!(!untouched(&listener).await);
}

#[tokio::test]
async fn without_the_token_nothing_is_judged() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let to = format!("api.localhost:{port}");
    let connect = http::Request::builder().method(Method::CONNECT).uri(&to).body(()).unwrap();
    let (answer, _to) = send(&mut sender, connect, false).await.unwrap();
    assert_eq!(answer.status(), 407);
    assert_eq!(answer.headers()["proxy-authenticate"], "Basic realm=\"ringfence\"");
    assert_eq!(world.notes.decided(1).await, format!("CONNECT {to} 0 -token"));
    assert!(untouched(&listener).await);
}

#[tokio::test]
async fn another_protocol_is_refused_and_recorded() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    // Settings come before anything else.
    let ready = async {
        while !sender.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, ready).await.expect("the proxy knows what `:protocol` is");
    for (number, protocol) in ["websocket", "connect-udp", "connect-tcp"].into_iter().enumerate() {
        let uri = format!("http://api.localhost:{port}/chat");
        let mut connect = request(&world, Method::CONNECT, &uri).body(()).unwrap();
        connect.extensions_mut().insert(h2::ext::Protocol::from_static(protocol));
        let (answer, _to) = send(&mut sender, connect, false).await.unwrap();
        assert_eq!(answer.status(), 501, "{protocol}");
        assert_eq!(
            world.notes.decided(number as u64 + 1).await,
            format!("CONNECT api.localhost:{port} 0 -request")
        );
    }
    assert!(untouched(&listener).await);
}

#[tokio::test]
async fn who_does_not_read_stops_who_sends_and_nobody_else() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let to = format!("opaque.localhost:{port}");
    let stalled = Duration::from_millis(300);

    // A server that does not read: the client's window closes.
    let (_from, mut up) = tunnel(&world, &mut sender, &to).await;
    let mut deaf_server = accepted(&listener).await;
    let mut sent = 0;
    loop {
        up.reserve_capacity(16_384);
        let room = std::future::poll_fn(|context| up.poll_capacity(context));
        let Ok(room) = timeout(stalled, room).await else { break };
        let room = room.unwrap().unwrap();
        up.send_data(Bytes::from(vec![7; room]), false).unwrap();
        sent += room;
        assert!(sent < 64 << 20, "it is buffered without bound");
    }

    // A client that does not read: the server's buffers fill.
    let (mut deaf_client, _up) = tunnel(&world, &mut sender, &to).await;
    let mut server = accepted(&listener).await;
    let mut written = 0_usize;
    while let Ok(more) = timeout(stalled, server.write(&[7; 65_536])).await {
        written += more.unwrap();
        assert!(written < 64 << 20, "it is buffered without bound");
    }

    // Meanwhile others of the same connection get on.
    let (mut from, mut to) = tunnel(&world, &mut sender, &to).await;
    let mut other = accepted(&listener).await;
    to.send_data(Bytes::from_static(b"ping"), true).unwrap();
    assert_eq!(read_all(&mut other).await, "ping");
    other.write_all(b"pong").await.unwrap();
    drop(other);
    assert_eq!(read(&mut from).await.unwrap(), b"pong");

    // And nothing is lost.
    up.send_data(Bytes::new(), true).unwrap();
    let mut got = Vec::new();
    timeout(PATIENCE, deaf_server.read_to_end(&mut got)).await.expect("in time").unwrap();
    assert_eq!(got.len(), sent);
    drop(server);
    assert_eq!(read(&mut deaf_client).await.unwrap().len(), written);
}

#[tokio::test]
async fn a_broken_connection_is_no_end_on_either_side() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let to = format!("opaque.localhost:{port}");
    let (mut from, mut up) = tunnel(&world, &mut sender, &to).await;
    let server = accepted(&listener).await;
    server.set_zero_linger().unwrap();
    drop(server);
    assert_eq!(reset(&mut up).await, Reason::CONNECT_ERROR);
    assert!(read(&mut from).await.is_err());
    let (.., reason) = world.notes.closed(1).await;
    assert!(reason.starts_with("server: Connection reset"), "{reason}");

    let (_from, mut up) = tunnel(&world, &mut sender, &to).await;
    let mut server = accepted(&listener).await;
    up.send_reset(Reason::CANCEL);
    let error = timeout(PATIENCE, server.read_u8()).await.expect("in time").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let (.., reason) = world.notes.closed(2).await;
    assert!(reason.starts_with("client: "), "{reason}");
}

#[tokio::test]
async fn a_tunnel_ends_when_it_is_idle_and_when_the_run_is_over() {
    let (listener, port) = upstream().await;
    let mut setup = Setup::default();
    setup.limits.idle = Duration::from_millis(200);
    let world = World::with(setup).await;
    let mut sender = client(&world).await;
    let to = format!("api.localhost:{port}");
    let (_from, mut up) = tunnel(&world, &mut sender, &to).await;
    assert_eq!(world.notes.closed(1).await.2, "idle for 0 s");
    reset(&mut up).await;
    drop(accepted(&listener).await);

    let world = World::new().await;
    let mut sender = client(&world).await;
    let (_from, mut up) = tunnel(&world, &mut sender, &to).await;
    world.stop.send(true).unwrap();
    timeout(PATIENCE, world.served).await.expect("it ends").unwrap().unwrap();
    assert_eq!(world.notes.all().len(), 2, "the end is noted before serve returns");
    assert_eq!(world.notes.closed(1).await.2, "stopped");
    let gone = timeout(PATIENCE, std::future::poll_fn(|context| up.poll_reset(context))).await;
    assert!(gone.expect("in time").is_err(), "the connection is gone");
}
