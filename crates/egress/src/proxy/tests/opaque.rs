//! Tunnels that are not looked at, and runs that have none.

use std::sync::Arc;

use ringfence_bundle::{Endpoint, Host, HostRule, Id, Manifest, Server, Transport};
use ringfence_policy::{MachinePolicy, Ruleset};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::Strictness;
use crate::support::{Setup, World, accepted, hello, read_all, untouched, upstream};

#[tokio::test]
async fn in_an_opaque_tunnel_either_side_speaks_first_and_nothing_is_waited_for() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let (mut client, answer) = world.tunnel(&format!("opaque.localhost:{port}")).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\n\r\n");
    let mut server = accepted(&listener).await;
    let mut got = [0; 12];
    server.write_all(b"220 who's it").await.unwrap();
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"220 who's it");
    client.write_all(b"not TLS").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut server).await, "not TLS");
    server.write_all(b"late").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await, "late");
    assert_eq!(world.notes.closed(1).await, (7, 16, "closed".to_owned()));
    assert_eq!(
        world.notes.decided(1).await,
        format!("CONNECT opaque.localhost {port} +token +name +ruleset +opaque +resolve +address")
    );

    // The control: any other host gets not one byte of it.
    let (mut client, _) = world.tunnel(&format!("api.localhost:{port}")).await;
    client.write_all(b"not TLS").await.unwrap();
    assert_eq!(world.notes.closed(2).await, (0, 0, "not-tls".to_owned()));
    assert_eq!(read_all(&mut accepted(&listener).await).await, "");
}

#[tokio::test]
async fn a_connection_that_breaks_on_one_side_does_not_look_ended_on_the_other() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("opaque.localhost:{port}");
    let (mut client, _) = world.tunnel(&to).await;
    let server = accepted(&listener).await;
    server.set_zero_linger().unwrap();
    drop(server);
    let error = client.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let (.., reason) = world.notes.closed(1).await;
    assert!(reason.starts_with("server: Connection reset"), "{reason}");

    let (client, _) = world.tunnel(&to).await;
    let mut server = accepted(&listener).await;
    client.set_zero_linger().unwrap();
    drop(client);
    let error = server.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let (.., reason) = world.notes.closed(2).await;
    assert!(reason.starts_with("client: Connection reset"), "{reason}");

    // The control: an end is an end.
    let (mut client, _) = world.tunnel(&to).await;
    drop(accepted(&listener).await);
    assert_eq!(read_all(&mut client).await, "");
    client.shutdown().await.unwrap();
    assert_eq!(world.notes.closed(3).await.2, "closed");
}

#[tokio::test]
async fn a_server_that_takes_no_more_can_still_answer() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let (mut client, _) = world.tunnel(&format!("opaque.localhost:{port}")).await;
    let mut server = accepted(&listener).await;
    server.write_all(b"enough").await.unwrap();
    server.shutdown().await.unwrap();
    let mut got = [0; 6];
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"enough");
    assert_eq!(client.read(&mut got).await.unwrap(), 0, "its end is passed on");
    client.write_all(b"still here").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut server).await, "still here");
    assert_eq!(world.notes.closed(1).await, (10, 6, "closed".to_owned()));
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_server_and_loses_nothing() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let (mut client, _) = world.tunnel(&format!("opaque.localhost:{port}")).await;
    let mut server = accepted(&listener).await;
    let chunk = vec![7; 65_536];
    let mut written = 0_usize;
    let stalled = std::time::Duration::from_millis(500);
    while let Ok(more) = tokio::time::timeout(stalled, server.write(&chunk)).await {
        written += more.unwrap();
        assert!(written < 64 << 20, "it is buffered without bound");
    }
    drop(server);
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert_eq!(got.len(), written);
}

#[tokio::test]
async fn what_came_with_the_request_goes_through_an_opaque_tunnel_too() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut client = world.connect().await;
    let head = format!("CONNECT opaque.localhost:{port} HTTP/1.1\r\n{}\r\n", world.authorization());
    client.write_all(&[head.as_bytes(), &hello("evil.localhost")].concat()).await.unwrap();
    let mut got = vec![0; hello("evil.localhost").len()];
    accepted(&listener).await.read_exact(&mut got).await.unwrap();
    assert_eq!(got[..3], [22, 3, 1]);
}

#[tokio::test]
async fn a_strict_run_looks_at_every_tunnel_and_reaches_nothing_by_an_address() {
    let (listener, port) = upstream().await;
    let strictness = Strictness { refuse_literals: true, tls_only: true };
    let world = World::with(Setup { strictness, ..Setup::default() }).await;
    let (mut client, _) = world.tunnel(&format!("opaque.localhost:{port}")).await;
    client.write_all(b"not TLS").await.unwrap();
    assert_eq!(world.notes.closed(1).await, (0, 0, "not-tls".to_owned()));
    assert_eq!(read_all(&mut accepted(&listener).await).await, "");
    // TLS that names the host passes.
    let bytes = hello("opaque.localhost");
    let (mut client, _) = world.tunnel(&format!("opaque.localhost:{port}")).await;
    client.write_all(&bytes).await.unwrap();
    let mut got = vec![0; bytes.len()];
    accepted(&listener).await.read_exact(&mut got).await.unwrap();
    assert!(got == bytes);

    let to = format!("127.0.0.1:{port}");
    let (_client, answer) = world.tunnel(&to).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let decided = world.notes.decided(3).await;
    assert_eq!(decided, format!("CONNECT 127.0.0.1 {port} +token +name -literal"));
    let get = format!(
        "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{}\r\n",
        world.authorization()
    );
    assert!(world.ask(get).await.starts_with("HTTP/1.1 403 "));
    // Nothing plain either, by whatever name.
    let named = format!("plain.localhost:{port}");
    let plain = |world: &World| {
        format!(
            "GET http://{named}/ HTTP/1.1\r\nHost: {named}\r\nConnection: close\r\n{}\r\n",
            world.authorization()
        )
    };
    let answer = world.ask(plain(&world)).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("TLS"), "{answer}");
    let decided = world.notes.decided(5).await;
    assert_eq!(decided, format!("GET plain.localhost {port} +token +name -plain"));
    assert!(untouched(&listener).await);
    let lax = World::new().await;
    let reached = async { drop(accepted(&listener).await) };
    let ((), answer) = tokio::join!(reached, lax.ask(plain(&lax)));
    assert!(!answer.starts_with("HTTP/1.1 403 "), "the control: {answer}");
    let (_client, answer) = World::new().await.tunnel(&to).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "the control: {answer}");
}

#[tokio::test]
async fn a_host_of_the_gateway_is_refused_on_every_port_and_in_every_form() {
    let mut manifest = Manifest::default();
    let url = "https://mcp.localhost:8443/mcp".to_owned();
    assert_eq!(Endpoint::parse(&url).unwrap().host, Host::parse("mcp.localhost").unwrap());
    let transport = Transport::Http { url, headers: Default::default() };
    let server = Server { transport, tools: None, methods: Vec::new(), pricing: None };
    manifest.servers.insert(Id::parse("mcp").unwrap(), server);
    let (listener, port) = upstream().await;
    let rules = ["mcp.localhost", "api.localhost"]
        .into_iter()
        .flat_map(|host| [format!("{host}:{port}"), format!("{host}:8443"), host.to_owned()]);
    manifest.sandbox.network.allowed_hosts =
        rules.map(|rule| HostRule::parse(&rule).unwrap()).collect();
    let ruleset = Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap();
    let judge: Option<Box<dyn crate::engine::Judge>> = Some(Box::new(Arc::new(ruleset)));
    let world = World::with(Setup { judge, ..Setup::default() }).await;
    for port in [443, 80, 8443, port, 1] {
        for host in ["mcp.localhost", "MCP.localhost."] {
            let (_client, answer) = world.tunnel(&format!("{host}:{port}")).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{host}:{port}: {answer}");
            let get = format!(
                "GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: \
                 close\r\n{}\r\n",
                world.authorization()
            );
            let answer = world.ask(get).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{host}:{port}: {answer}");
            assert!(answer.contains("through the gateway only"), "{answer}");
        }
    }
    assert!(untouched(&listener).await);
    let (_client, answer) = world.tunnel(&format!("api.localhost:{port}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "the control: {answer}");
}
