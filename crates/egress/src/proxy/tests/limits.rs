//! What a peer can hold, for how long, and what stops it.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::engine::Limits;
use crate::support::{PATIENCE, Setup, World, accepted, read_all, upstream};

const SHORT: Duration = Duration::from_millis(200);

async fn with(change: impl FnOnce(&mut Limits)) -> World {
    let mut setup = Setup::default();
    change(&mut setup.limits);
    World::with(setup).await
}

#[tokio::test]
async fn stop_cuts_tunnels_and_records_them() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let (mut client, _) = world.tunnel(&format!("api.localhost:{port}")).await;
    let mut server = accepted(&listener).await;
    world.stop.send(true).unwrap();
    timeout(PATIENCE, world.served).await.expect("it ends").unwrap().unwrap();
    assert_eq!(world.notes.all().len(), 2, "the end is noted before serve returns");
    assert_eq!(world.notes.closed(1).await.2, "stopped");
    assert_eq!(read_all(&mut client).await, "");
    assert_eq!(read_all(&mut server).await, "");
}

#[tokio::test]
async fn a_lost_sender_stops_it_too() {
    let world = World::new().await;
    drop(world.stop);
    timeout(PATIENCE, world.served).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn a_hello_that_does_not_come_is_not_waited_for() {
    let (listener, port) = upstream().await;
    let world = with(|limits| limits.hello = SHORT).await;
    let (mut client, _) = world.tunnel(&format!("api.localhost:{port}")).await;
    client.write_all(&[22, 3, 1]).await.unwrap();
    assert_eq!(world.notes.closed(1).await, (0, 0, "hello-timeout".to_owned()));
    assert_eq!(read_all(&mut accepted(&listener).await).await, "");
}

#[tokio::test]
async fn a_head_that_does_not_end_is_not_waited_for() {
    let world = with(|limits| limits.head = SHORT).await;
    let mut client = world.connect().await;
    client.write_all(b"CONNECT api.localhost:443 HTT").await.unwrap();
    assert!(read_all(&mut client).await.starts_with("HTTP/1.1 400 "));
    assert_eq!(world.notes.decided(1).await, "? CONNECT api.localhost:443 HTT 0 -request");
}

#[tokio::test]
async fn nothing_is_judged_while_the_record_is_far_behind() {
    let world = World::new().await;
    world.notes.behind.send_replace(true);
    let mut client = world.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    assert!(timeout(SHORT, client.read_exact(&mut answer)).await.is_err());
    assert!(world.notes.all().is_empty());
    world.notes.behind.send_replace(false);
    timeout(PATIENCE, client.read_exact(&mut answer)).await.expect("it is answered").unwrap();
    assert_eq!((&answer[..], world.notes.all().len()), (&b"HTTP/1.1 407"[..], 1));
}

#[tokio::test]
async fn a_connection_without_a_request_ends_and_is_no_event() {
    let world = with(|limits| limits.waiting = SHORT).await;
    let mut client = world.connect().await;
    assert_eq!(read_all(&mut client).await, "");
    assert!(world.notes.all().is_empty());
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_moves_is_cut_and_so_is_one_that_is_open_too_long() {
    for (world, reason) in [
        (with(|limits| limits.idle = SHORT).await, "idle for 0 s"),
        (with(|limits| limits.total = SHORT).await, "open for 0 s"),
    ] {
        let (listener, port) = upstream().await;
        let (mut client, _) = world.tunnel(&format!("api.localhost:{port}")).await;
        let mut server = accepted(&listener).await;
        assert_eq!(world.notes.closed(1).await.2, reason);
        assert_eq!(read_all(&mut client).await, "");
        assert_eq!(read_all(&mut server).await, "");
    }
}

#[tokio::test]
async fn an_exchange_in_which_nothing_moves_is_cut() {
    let (listener, port) = upstream().await;
    let world = with(|limits| limits.idle = SHORT).await;
    let to = format!("api.localhost:{port}");
    let get = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{}\r\n", world.authorization());
    let (answer, server) = tokio::join!(world.ask(get), accepted(&listener));
    assert_eq!(answer, "");
    drop(server);
    assert_eq!(world.notes.closed(1).await.2, "idle for 0 s");
}

#[tokio::test]
async fn one_connection_more_than_the_limit_waits_its_turn() {
    let world = with(|limits| limits.connections = 2).await;
    let bad = b"nonsense\n\n";
    let (first, mut second) = (world.connect().await, world.connect().await);
    let mut third = world.connect().await;
    third.write_all(bad).await.unwrap();
    // The second is served while the third waits: its answer is the event that shows it.
    second.write_all(bad).await.unwrap();
    let mut byte = [0];
    second.read_exact(&mut byte).await.unwrap();
    assert_eq!(world.notes.all().len(), 1);
    drop(second);
    assert!(read_all(&mut third).await.starts_with("HTTP/1.1 400 "));
    drop(first);
}
