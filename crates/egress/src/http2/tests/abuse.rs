//! What a peer can hold, and what ends its connection.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::Method;
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::{client, read, request, send, tunnel};
use crate::http2::{PREFACE, RESETS, STREAMS};
use crate::support::{PATIENCE, Setup, World, accepted, read_all, untouched, upstream};

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

async fn still_serves(world: &World) {
    let (listener, port) = upstream().await;
    let mut sender = client(world).await;
    let _tunnel = tunnel(world, &mut sender, &format!("api.localhost:{port}")).await;
    accepted(&listener).await;
}

#[tokio::test]
async fn a_client_that_takes_back_what_it_asks_for_is_cut_off() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let (mut sender, connection) = h2::client::handshake(world.connect().await).await.unwrap();
    let connection = tokio::spawn(connection);
    let to = format!("api.localhost:{port}");
    let mut opened = 0;
    loop {
        let connect = request(&world, Method::CONNECT, &to).body(()).unwrap();
        match send(&mut sender, connect, false).await {
            Ok((_, mut up)) => up.send_reset(Reason::CANCEL),
            Err(_) => break,
        }
        drop(accepted(&listener).await);
        opened += 1;
        assert!(opened < 4 * RESETS, "it may go on for ever");
    }
    assert!(opened >= RESETS / 2, "{opened}");
    let cut = timeout(PATIENCE, connection).await.expect("in time").unwrap().unwrap_err();
    assert_eq!(cut.reason(), Some(Reason::ENHANCE_YOUR_CALM), "{cut}");
    still_serves(&world).await;
}

#[tokio::test]
async fn a_client_that_ends_its_tunnels_abruptly_is_not() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    for number in 1..=2 * u64::from(RESETS) {
        let to = format!("opaque.localhost:{port}");
        let (mut from, mut up) = tunnel(&world, &mut sender, &to).await;
        accepted(&listener).await.write_all(b"x").await.unwrap();
        assert_eq!(from.data().await.unwrap().unwrap(), "x");
        up.send_reset(Reason::CANCEL);
        world.notes.closed(number).await;
    }
}

#[tokio::test]
async fn streams_count_as_connections() {
    let (listener, port) = upstream().await;
    let mut setup = Setup::default();
    setup.limits.connections = 3;
    let world = World::with(setup).await;
    let mut sender = client(&world).await;
    let to = format!("api.localhost:{port}");
    let first = tunnel(&world, &mut sender, &to).await;
    let second = tunnel(&world, &mut sender, &to).await;
    let third = request(&world, Method::CONNECT, &to).body(()).unwrap();
    let error = send(&mut sender, third, false).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
    drop(first);
    world.notes.closed(1).await;
    // The place is free a moment after the end is noted.
    let third = async {
        loop {
            let third = request(&world, Method::CONNECT, &to).body(()).unwrap();
            if let Ok((answer, _)) = send(&mut sender, third, false).await {
                return answer;
            }
        }
    };
    assert_eq!(timeout(PATIENCE, third).await.expect("in time").status(), 200);
    drop((second, listener));
}

#[tokio::test]
async fn no_more_streams_than_were_offered() {
    let (_listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let mut held = Vec::new();
    for _ in 0..STREAMS {
        held.push(tunnel(&world, &mut sender, &format!("api.localhost:{port}")).await);
    }
    // A client of good faith waits for room.
    assert_eq!(sender.current_max_send_streams(), STREAMS as usize);
    let more = request(&world, Method::CONNECT, &format!("api.localhost:{port}"));
    let (mut answer, _to) = sender.send_request(more.body(()).unwrap(), false).unwrap();
    assert!(timeout(Duration::from_millis(200), &mut answer).await.is_err());
    held.pop();
    let answer = timeout(PATIENCE, answer).await.expect("there is room again").unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_connection_without_a_stream_ends_and_is_no_event() {
    let mut setup = Setup::default();
    setup.limits.waiting = Duration::from_millis(300);
    setup.limits.head = Duration::from_millis(300);
    let world = World::with(setup).await;
    for bytes in [PREFACE.to_vec(), [PREFACE, &frame(4, 0, 0, &[])].concat()] {
        let mut stream = world.connect().await;
        stream.write_all(&bytes).await.unwrap();
        let _settings = read_all(&mut stream).await;
    }
    assert!(world.notes.all().is_empty());
    still_serves(&world).await;
}

#[tokio::test]
async fn a_flood_of_pings_and_settings_that_nobody_reads_is_not_stored() {
    let world = World::new().await;
    for flood in [frame(6, 0, 0, &[7; 8]), frame(4, 0, 0, &[0, 4, 0, 0, 0xff, 0xff])] {
        let mut stream = world.connect().await;
        stream.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).await.unwrap();
        let many = flood.repeat(4096);
        let mut written = 0;
        // The answers fill every buffer on the way back, and then nothing more is taken.
        let stalled = Duration::from_millis(500);
        while let Ok(more) = timeout(stalled, stream.write(&many)).await {
            let Ok(more) = more else { break };
            written += more;
            assert!(written < 64 << 20, "its answers are stored without bound");
        }
        still_serves(&world).await;
    }
}

#[tokio::test]
async fn fields_beyond_their_bound_are_refused_and_the_next_request_is_served() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let uri = format!("http://api.localhost:{port}/");
    let long = request(&world, Method::GET, &uri).header("x", "a".repeat(65_000));
    let long = long.header("y", "a".repeat(2_000)).body(()).unwrap();
    match send(&mut sender, long, true).await {
        Ok((answer, _)) => assert_eq!(answer.status(), 431),
        Err(error) => assert!(error.is_reset(), "{error}"),
    }
    assert!(untouched(&listener).await);
    let mut sender = client(&world).await;
    let (mut from, mut up) = tunnel(&world, &mut sender, &format!("opaque.localhost:{port}")).await;
    up.send_data(Bytes::new(), true).unwrap();
    drop(accepted(&listener).await);
    assert_eq!(read(&mut from).await.unwrap(), b"");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever follows the preface, nothing leaves, the connection ends with its client, and others
    /// are served.
    #[test]
    fn arbitrary_frames_do_no_harm(
        frames in prop::collection::vec(
            (0_u8..12, any::<u8>(), 0_u32..8, prop::collection::vec(any::<u8>(), 0..64)),
            0..16,
        ),
        tail in prop::collection::vec(any::<u8>(), 0..32),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            let mut stream = world.connect().await;
            let mut bytes = [PREFACE, &frame(4, 0, 0, &[])].concat();
            for (kind, flags, id, payload) in &frames {
                bytes.extend(frame(*kind, *flags, *id, payload));
            }
            bytes.extend(&tail);
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it ends");
            // No token was among them.
            let let_through = world.notes.all().iter().any(|event| {
                matches!(event, ringfence_record::Event::EgressDecided { outcome, .. }
                    if *outcome == ringfence_record::Outcome::Allowed)
            });
            assert!(!let_through);
            still_serves(&world).await;
        });
    }
}
