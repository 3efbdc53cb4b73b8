//! What is refused, before and after the ruleset, and that nothing goes out then.

use std::net::Ipv4Addr;

use tokio::io::AsyncWriteExt as _;

use crate::support::{Setup, World, dns_server, read_all, read_head, untouched, upstream};

#[tokio::test]
async fn without_the_token_nothing_is_judged() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let good = world.authorization();
    let other = World::new().await.authorization();
    for (number, lines) in [
        String::new(),
        other.clone(),
        format!("{good}{good}"),
        format!("{good}{other}"),
        good.replace("Basic", "Bearer"),
        good.replace("Proxy-Authorization", "Authorization"),
    ]
    .iter()
    .enumerate()
    {
        let number = number as u64 * 2 + 1;
        let to = format!("api.localhost:{port}");
        let answer =
            world.ask(format!("CONNECT {to} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 407 "), "{lines}: {answer}");
        assert!(answer.contains("\r\nProxy-Authenticate: Basic realm=\"ringfence\"\r\n"));
        assert_eq!(world.notes.decided(number).await, format!("CONNECT {to} 0 -token"));
        let get = format!(
            "GET http://{to}/?secret HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{lines}\r\n"
        );
        assert!(world.ask(get).await.starts_with("HTTP/1.1 407 "), "{lines}");
        assert_eq!(world.notes.decided(number + 1).await, format!("GET http://{to}/ 0 -token"));
    }
    assert!(untouched(&listener).await);

    let (_stream, answer) = world.tunnel(&format!("api.localhost:{port}")).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\n\r\n");
    assert!(!untouched(&listener).await, "the control reaches it");
}

#[tokio::test]
async fn before_anything_was_started_nothing_goes_out_and_nothing_is_recorded() {
    let (listener, port) = upstream().await;
    let world = World::with(Setup { before_it_begins: true, ..Setup::default() }).await;
    let to = format!("api.localhost:{port}");
    let probe = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned();
    assert!(world.ask(probe.clone()).await.starts_with("HTTP/1.1 407 "));
    let good = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{}\r\n", world.authorization());
    assert!(world.ask(good).await.starts_with("HTTP/1.1 407 "), "not even with the token");
    assert!(untouched(&listener).await);
    // The first request after the start is the first that is in the record.
    world.begun.begin();
    assert!(world.ask(probe).await.starts_with("HTTP/1.1 407 "));
    assert_eq!(world.notes.decided(1).await, "GET / 0 -token");
    let (_stream, answer) = world.tunnel(&to).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\n\r\n");
    assert!(!untouched(&listener).await, "the control reaches it");
}

#[tokio::test]
async fn a_client_may_show_the_token_in_a_second_request() {
    let (_listener, port) = upstream().await;
    let world = World::new().await;
    let mut stream = world.connect().await;
    let head = format!("CONNECT api.localhost:{port} HTTP/1.1\r\n");
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let answer = read_head(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 407 "));
    let length: usize = answer
        .split("Content-Length: ")
        .nth(1)
        .unwrap()
        .split("\r\n")
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let mut body = vec![0; length];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut body).await.unwrap();
    stream.write_all(format!("{head}{}\r\n", world.authorization()).as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_refused_name_is_never_resolved() {
    let (dns_port, asked) = dns_server(vec![Ipv4Addr::new(1, 1, 1, 1)]).await;
    let world = World::with(Setup { dns_port: Some(dns_port), ..Setup::default() }).await;
    let (mut stream, answer) = world.tunnel("channel.evil.example:443").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(
        world.notes.decided(1).await,
        "CONNECT channel.evil.example 443 +token +name -ruleset"
    );
    stream.shutdown().await.unwrap();
    let body = read_all(&mut stream).await;
    assert!(body.contains("channel.evil.example:443 is not allowed: test rule"), "{body}");
    assert!(
        body.contains("allowed_hosts of [sandbox.network]") && body.contains("ringfence trust"),
        "{body}"
    );

    let get = "GET http://channel.evil.example/ HTTP/1.1\r\nHost: channel.evil.example\r\nConnection: close\r\n";
    let answer = world.ask(format!("{get}{}\r\n", world.authorization())).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(asked.lock().unwrap().is_empty(), "{asked:?}");

    // The control: an allowed name does reach that server. It is answered from 127.0.0.1 alone below
    // `.localhost`, so this asks the resolver itself.
    let mut server = hickory_resolver::config::NameServerConfig::udp(Ipv4Addr::LOCALHOST.into());
    server.connections[0].port = dns_port;
    let config =
        hickory_resolver::config::ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    crate::resolve::Resolver::with_config_in_test(config).lookup("a.example").await.unwrap();
    assert!(!asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_allowed_name_with_a_private_address_is_refused_by_the_real_check() {
    let (listener, port) = upstream().await;
    let world = World::with(Setup { real_address_check: true, ..Setup::default() }).await;
    for (number, host) in ["api.localhost", "127.0.0.1", "127.9.9.9"].into_iter().enumerate() {
        let (_stream, answer) = world.tunnel(&format!("{host}:{port}")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        let decided = world.notes.decided(number as u64 + 1).await;
        assert!(decided.ends_with("-address"), "{decided}");
    }
    assert!(untouched(&listener).await);

    let control = World::new().await;
    let (_stream, answer) = control.tunnel(&format!("api.localhost:{port}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "));
    assert_eq!(
        control.notes.decided(1).await,
        format!("CONNECT api.localhost {port} +token +name +ruleset +resolve +address")
    );
}

#[tokio::test]
async fn without_evidence_nothing_goes_out() {
    let (listener, port) = upstream().await;
    let world = World::with(Setup { broken_record: true, ..Setup::default() }).await;
    let (_stream, answer) = world.tunnel(&format!("api.localhost:{port}")).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(untouched(&listener).await);
}

#[tokio::test]
async fn a_server_that_is_down_is_told_and_recorded() {
    let (listener, port) = upstream().await;
    drop(listener);
    let world = World::new().await;
    let (_stream, answer) = world.tunnel(&format!("api.localhost:{port}")).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let (sent, received, reason) = world.notes.closed(1).await;
    assert_eq!((sent, received), (0, 0));
    assert!(reason.starts_with("connect-failed: Connection refused"), "{reason}");
}

#[tokio::test]
async fn what_is_no_request_is_answered_and_recorded_escaped() {
    let world = World::new().await;
    let authorization = world.authorization();
    for (number, (bytes, decided)) in [
        ("\u{16}\u{3}\u{1}hello".to_owned(), r"? \u{16}\u{3}\u{1}hello 0 -request".to_owned()),
        ("GET / HTTP/1.1\n\n".to_owned(), "? GET / HTTP/1.1 0 -request".to_owned()),
        ("PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n".to_owned(), "? PRI * HTTP/2.0 0 -request".to_owned()),
        (
            format!("GET /?key=secret HTTP/1.1\r\nHost: api.localhost\r\n{authorization}\r\n"),
            "GET / 0 +token -request".to_owned(),
        ),
        (
            format!("CONNECT user:secret@api.localhost:443 HTTP/1.1\r\n{authorization}\r\n"),
            "CONNECT ...@api.localhost:443 0 +token -name".to_owned(),
        ),
        (
            format!("CONNECT api.localhost HTTP/1.1\r\n{authorization}\r\n"),
            "CONNECT api.localhost 0 +token -name".to_owned(),
        ),
        (
            format!(
                "GET http://api.localhost/ HTTP/1.1\r\nHost: evil.example\r\n{authorization}\r\n"
            ),
            "GET http://api.localhost/ 0 +token -request".to_owned(),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = world.ask(&bytes).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{bytes:?}: {answer}");
        assert_eq!(world.notes.decided(number as u64 + 1).await, decided);
    }
    let secrets = format!("{:?}", world.notes.all());
    assert!(!secrets.contains("secret") && !secrets.contains(authorization.trim_end()));
}
