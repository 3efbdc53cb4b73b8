//! Tunnels: the hello is judged, the bytes are the client's, and both ends are seen.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{World, accepted, hello, read_all, upstream};

struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

fn tls() -> Tls {
    tls_with(rustls::crypto::ring::default_provider())
}

/// With a server that has these algorithms alone; the client has all.
fn tls_with(servers: rustls::crypto::CryptoProvider) -> Tls {
    let made = rcgen::generate_simple_self_signed([
        "api.localhost".to_owned(),
        "evil.localhost".to_owned(),
    ])
    .unwrap();
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(Arc::new(servers))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Tls { acceptor: Arc::new(server).into(), connector: Arc::new(client).into() }
}

fn name(text: &str) -> ServerName<'static> {
    ServerName::try_from(text.to_owned()).unwrap()
}

/// Answers one TLS client with what it has read up to its end.
async fn answer_once(listener: TcpListener, acceptor: TlsAcceptor) -> Vec<u8> {
    let mut stream = acceptor.accept(accepted(&listener).await).await.unwrap();
    let mut read = Vec::new();
    stream.read_to_end(&mut read).await.unwrap();
    stream.write_all(&read).await.unwrap();
    stream.shutdown().await.unwrap();
    read
}

#[tokio::test]
async fn a_tls_client_talks_with_the_host_it_named() {
    let (listener, port) = upstream().await;
    let (world, tls) = (World::new().await, tls());
    let server = tokio::spawn(answer_once(listener, tls.acceptor));
    let (stream, answer) = world.tunnel(&format!("API.localhost:{port}")).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\n\r\n");
    let mut stream = tls.connector.connect(name("api.localhost"), stream).await.unwrap();
    let payload: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut reads, mut writes) = tokio::io::split(&mut stream);
    let mut back = Vec::new();
    let (sent, received) = tokio::join!(
        async {
            writes.write_all(&payload).await?;
            writes.shutdown().await
        },
        reads.read_to_end(&mut back)
    );
    sent.unwrap();
    received.unwrap();
    assert!(back == payload && server.await.unwrap() == payload);
    drop(stream);
    let (sent, received, reason) = world.notes.closed(1).await;
    assert!(sent > 3_000_000 && received > 3_000_000, "{sent} {received}");
    assert_eq!(reason, "closed");
    assert_eq!(
        world.notes.decided(1).await,
        format!("CONNECT api.localhost {port} +token +name +ruleset +resolve +address")
    );
}

#[tokio::test]
async fn curl_goes_through() {
    let (listener, port) = upstream().await;
    let (world, tls) = (World::new().await, tls());
    let server = tokio::spawn(async move {
        let mut stream = tls.acceptor.accept(accepted(&listener).await).await.unwrap();
        let mut head = [0; 4096];
        let read = stream.read(&mut head).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            .await
            .unwrap();
        stream.shutdown().await.unwrap();
        String::from_utf8(head[..read].to_vec()).unwrap()
    });
    let curl = tokio::process::Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--insecure",
            "--noproxy",
            "",
            "--max-time",
            "15",
            "--proxy",
        ])
        .arg(world.token.proxy_url(([127, 0, 0, 1], world.port).into()))
        .arg(format!("https://api.localhost:{port}/path"))
        .output()
        .await
        .expect("curl is installed");
    assert_eq!(String::from_utf8_lossy(&curl.stdout), "hello", "{curl:?}");
    let head = server.await.unwrap();
    assert!(head.starts_with("GET /path HTTP/1.1\r\n"), "{head}");
    assert!(!head.to_ascii_lowercase().contains("proxy"), "{head}");
}

/// Opens a tunnel, sends these bytes, and gives the connection, the server's side and the number 1.
async fn opened(world: &World, listener: &TcpListener, to: &str) -> (TcpStream, TcpStream) {
    let (stream, answer) = world.tunnel(to).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\n\r\n");
    (stream, accepted(listener).await)
}

#[tokio::test]
async fn a_hello_for_another_host_never_leaves() {
    let encrypted = {
        let mut bytes = hello("api.localhost");
        // An empty extension of type 0xfe0d at the end, and every length around it grown by four.
        bytes.extend([0xfe, 0x0d, 0, 0]);
        let grow = |bytes: &mut Vec<u8>, at: usize| {
            let grown = u16::from_be_bytes([bytes[at], bytes[at + 1]]) + 4;
            bytes[at..at + 2].copy_from_slice(&grown.to_be_bytes());
        };
        grow(&mut bytes, 3);
        grow(&mut bytes, 7);
        let session = 43 + 1 + usize::from(bytes[43]);
        let suites =
            session + 2 + usize::from(u16::from_be_bytes([bytes[session], bytes[session + 1]]));
        let extensions = suites + 1 + usize::from(bytes[suites]);
        grow(&mut bytes, extensions);
        bytes
    };
    for (bytes, reason, alert) in [
        (hello("evil.localhost"), "sni-mismatch: evil.localhost", true),
        (hello("192.0.2.1"), "no-sni", true),
        (encrypted, "encrypted-hello", true),
        (b"GET / HTTP/1.1\r\nHost: evil.localhost\r\n\r\n".to_vec(), "not-tls", false),
        (b"SSH-2.0-OpenSSH\r\n".to_vec(), "not-tls", false),
        (
            vec![22, 3, 1, 0, 4, 2, 0, 0, 0],
            "malformed-hello: the first message is not a ClientHello",
            true,
        ),
        (Vec::new(), "closed by the client before its hello", false),
    ] {
        let (listener, port) = upstream().await;
        let world = World::new().await;
        let (mut client, mut server) =
            opened(&world, &listener, &format!("api.localhost:{port}")).await;
        client.write_all(&bytes).await.unwrap();
        if bytes.is_empty() {
            client.shutdown().await.unwrap();
        }
        assert_eq!(world.notes.closed(1).await, (0, 0, reason.to_owned()));
        assert_eq!(read_all(&mut server).await, "", "not one byte of: {reason}");
        let told = read_all(&mut client).await;
        assert_eq!(told.as_bytes() == [21, 3, 3, 0, 2, 2, 49], alert, "{reason}: {told:?}");
    }
}

#[tokio::test]
async fn the_hello_goes_on_unchanged_however_it_came() {
    let bytes = hello("api.localhost");
    for cut in [1, 5, 6, 40, bytes.len() - 1, bytes.len()] {
        let (listener, port) = upstream().await;
        let world = World::new().await;
        let (mut client, mut server) =
            opened(&world, &listener, &format!("api.localhost:{port}")).await;
        client.set_nodelay(true).unwrap();
        client.write_all(&bytes[..cut]).await.unwrap();
        tokio::task::yield_now().await;
        client.write_all(&bytes[cut..]).await.unwrap();
        client.write_all(b"and more").await.unwrap();
        let mut got = vec![0; bytes.len()];
        server.read_exact(&mut got).await.unwrap();
        assert!(got == bytes, "{cut}");
        server.write_all(b"answer").await.unwrap();
        let mut more = [0; 8];
        server.read_exact(&mut more).await.unwrap();
        assert_eq!(&more, b"and more");
    }
    // In one segment with the request, before the answer.
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut client = world.connect().await;
    let head = format!("CONNECT api.localhost:{port} HTTP/1.1\r\n{}\r\n", world.authorization());
    client.write_all(&[head.as_bytes(), &bytes].concat()).await.unwrap();
    let mut got = vec![0; bytes.len()];
    accepted(&listener).await.read_exact(&mut got).await.unwrap();
    assert!(got == bytes);
}

#[tokio::test]
async fn an_address_literal_is_reached_without_a_server_name_only() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("127.0.0.1:{port}");
    let (mut client, mut server) = opened(&world, &listener, &to).await;
    let bytes = hello("192.0.2.1");
    client.write_all(&bytes).await.unwrap();
    let mut got = vec![0; bytes.len()];
    server.read_exact(&mut got).await.unwrap();
    assert!(got == bytes);

    let (mut client, mut server) = opened(&world, &listener, &to).await;
    client.write_all(&hello("evil.localhost")).await.unwrap();
    assert_eq!(world.notes.closed(2).await.2, "sni-mismatch: evil.localhost");
    assert_eq!(read_all(&mut server).await, "");
}

#[tokio::test]
async fn one_side_may_end_before_the_other() {
    let bytes = hello("api.localhost");
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let (mut client, mut server) =
        opened(&world, &listener, &format!("api.localhost:{port}")).await;
    client.write_all(&bytes).await.unwrap();
    client.shutdown().await.unwrap();
    server.write_all(b"x").await.unwrap();
    assert_eq!(read_all(&mut server).await.len(), String::from_utf8_lossy(&bytes).len());
    let late = "x".repeat(1_000_000);
    server.write_all(&late.as_bytes()[1..]).await.unwrap();
    drop(server);
    assert!(read_all(&mut client).await == late);
    assert_eq!(world.notes.closed(1).await, (bytes.len() as u64, 1_000_000, "closed".to_owned()));
}

#[tokio::test]
async fn a_server_that_does_not_read_stops_the_client_and_loses_nothing() {
    let bytes = hello("api.localhost");
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let (mut client, mut server) =
        opened(&world, &listener, &format!("api.localhost:{port}")).await;
    client.write_all(&bytes).await.unwrap();
    server.write_all(b"x").await.unwrap();
    // Fill every buffer on the way, until a write has found no room for as long as a chunk takes.
    let chunk = vec![7; 65_536];
    let mut written = 0_usize;
    let stalled = std::time::Duration::from_millis(500);
    while let Ok(more) = tokio::time::timeout(stalled, client.write(&chunk)).await {
        written += more.unwrap();
        assert!(written < 64 << 20, "it is buffered without bound");
    }
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).await.unwrap();
    assert_eq!(got.len(), bytes.len() + written);
    assert!(got[bytes.len()..].iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn a_real_retry_goes_through() {
    let mut provider = rustls::crypto::ring::default_provider();
    // Not the group of which the client sends a share at once.
    provider.kx_groups = vec![rustls::crypto::ring::kx_group::SECP384R1];
    let (listener, port) = upstream().await;
    let (world, tls) = (World::new().await, tls_with(provider));
    let server = tokio::spawn(answer_once(listener, tls.acceptor));
    let (stream, _) = world.tunnel(&format!("api.localhost:{port}")).await;
    let mut stream = tls.connector.connect(name("api.localhost"), stream).await.unwrap();
    let kind = stream.get_ref().1.handshake_kind();
    assert_eq!(kind, Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(server.await.unwrap(), b"hello");
}

#[tokio::test]
async fn the_second_hello_must_name_the_same_host() {
    let mut retry = vec![22, 3, 3, 0, 90, 2, 0, 0, 86, 3, 3];
    retry.extend([
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8,
        0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8,
        0x33, 0x9c,
    ]);
    let first = hello("api.localhost");
    let cipher = [20, 3, 3, 0, 1, 1];
    for (second, reason) in [
        (hello("api.localhost"), None),
        (hello("evil.localhost"), Some("sni-mismatch: evil.localhost")),
        (hello("192.0.2.1"), Some("no-sni")),
        (vec![22, 3, 3, 0, 1, 16], Some("malformed-hello: the first message is not a ClientHello")),
    ] {
        let (listener, port) = upstream().await;
        let world = World::new().await;
        let (mut client, mut server) =
            opened(&world, &listener, &format!("api.localhost:{port}")).await;
        // Sent before the server has asked, as one who knows that it will ask could.
        client.write_all(&[&first[..], &cipher, &second].concat()).await.unwrap();
        let mut got = vec![0; first.len()];
        server.read_exact(&mut got).await.unwrap();
        assert!(got == first);
        server.write_all(&retry).await.unwrap();
        let mut told = vec![0; retry.len()];
        client.read_exact(&mut told).await.unwrap();
        assert!(told == retry);
        match reason {
            None => {
                let mut got = vec![0; cipher.len() + second.len()];
                server.read_exact(&mut got).await.unwrap();
                assert!(got == [&cipher[..], &second].concat());
            }
            Some(reason) => {
                assert_eq!(world.notes.closed(1).await.2, reason);
                assert_eq!(read_all(&mut server).await, "", "{reason}");
            }
        }
    }
}
