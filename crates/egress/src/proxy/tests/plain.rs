//! Plain HTTP: request after request, each forwarded as it was judged.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{World, accepted, read_all, read_head, untouched, upstream};

/// Takes one request (head, and a body of so many bytes) and answers it.
async fn serve(listener: &TcpListener, body: usize, answer: &[u8]) -> String {
    let mut stream = accepted(listener).await;
    let mut request = read_head(&mut stream).await;
    let mut bytes = vec![0; body];
    stream.read_exact(&mut bytes).await.unwrap();
    request.push_str(std::str::from_utf8(&bytes).unwrap());
    stream.write_all(answer).await.unwrap();
    request
}

fn get(world: &World, to: &str, more: &str) -> String {
    format!("GET http://{to}/p?q HTTP/1.1\r\nHost: {to}\r\n{}{more}\r\n", world.authorization())
}

async fn read_exactly(stream: &mut TcpStream, want: &str) {
    let mut got = vec![0; want.len()];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&got), want);
}

#[tokio::test]
async fn every_request_of_a_kept_connection_is_judged() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("api.localhost:{port}");
    let mut client = world.connect().await;
    for number in [1, 2] {
        client.write_all(get(&world, &to, "").as_bytes()).await.unwrap();
        let request = serve(&listener, 0, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        assert_eq!(
            request,
            format!("GET /p?q HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n")
        );
        assert_eq!(read_head(&mut client).await, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
        read_exactly(&mut client, "ok").await;
        let (sent, received, reason) = world.notes.closed(number).await;
        assert!(sent > 50 && received >= 40 && reason == "closed", "{sent} {received} {reason}");
    }
    let other = get(&world, &format!("refused.localhost:{port}"), "Connection: close\r\n");
    client.write_all(other.as_bytes()).await.unwrap();
    assert!(read_all(&mut client).await.starts_with("HTTP/1.1 403 "));
    assert_eq!(
        world.notes.decided(3).await,
        format!("GET refused.localhost {port} +token +name -ruleset")
    );
    assert!(untouched(&listener).await);
}

#[tokio::test]
async fn a_refusal_keeps_the_connection_and_the_next_request_is_served() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut client = world.connect().await;
    let both = [
        get(&world, "refused.localhost", "").replace("GET", "HEAD"),
        get(&world, &format!("api.localhost:{port}"), ""),
    ];
    client.write_all(both.concat().as_bytes()).await.unwrap();
    serve(&listener, 0, b"HTTP/1.1 204 No Content\r\n\r\n").await;
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 403 "));
    assert_eq!(read_head(&mut client).await, "HTTP/1.1 204 No Content\r\n\r\n");
}

#[tokio::test]
async fn a_tunnel_after_other_requests_is_judged_like_the_first() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("api.localhost:{port}");
    let mut client = world.connect().await;
    client.write_all(get(&world, &to, "").as_bytes()).await.unwrap();
    serve(&listener, 0, b"HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(read_head(&mut client).await, "HTTP/1.1 204 No Content\r\n\r\n");

    let connect = |to: &str, lines: &str| format!("CONNECT {to} HTTP/1.1\r\n{lines}\r\n");
    let authorization = world.authorization();
    let mut requests = connect(&to, &authorization);
    requests.push_str(&connect(&to, ""));
    client.write_all(requests.as_bytes()).await.unwrap();
    assert_eq!(read_head(&mut client).await, "HTTP/1.1 200 OK\r\n\r\n");
    let mut server = accepted(&listener).await;
    // In a tunnel another request is no hello: it goes nowhere.
    assert_eq!(world.notes.closed(2).await, (0, 0, "not-tls".to_owned()));
    assert_eq!(read_all(&mut server).await, "");

    let mut client = world.connect().await;
    client.write_all(get(&world, &to, "").as_bytes()).await.unwrap();
    serve(&listener, 0, b"HTTP/1.1 204 No Content\r\n\r\n").await;
    read_head(&mut client).await;
    let refused = connect("refused.localhost:443", &authorization);
    client.write_all(refused.as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 403 "));
    assert!(untouched(&listener).await);
}

#[tokio::test]
async fn what_two_servers_would_read_in_two_ways_never_leaves() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("api.localhost:{port}");
    for lines in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Upgrade: websocket\r\nConnection: upgrade\r\n",
        "Host: evil.localhost\r\n",
        "Content-Length : 3\r\n",
        "X: y\n",
    ] {
        let answer = world.ask(get(&world, &to, lines) + "abc").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{lines:?}: {answer}");
    }
    for line in [
        format!("GET / HTTP/1.1\r\nHost: {to}"),
        format!("GET https://{to}/ HTTP/1.1\r\nHost: {to}"),
    ] {
        let answer = world.ask(format!("{line}\r\n{}\r\n", world.authorization())).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{line:?}: {answer}");
    }
    let answer = world.ask(get(&world, &to, "Expect: something\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 417 "), "{answer}");
    assert!(untouched(&listener).await);
}

#[tokio::test]
async fn bodies_go_up_with_the_length_they_had() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("api.localhost:{port}");
    let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";

    let sized = get(&world, &to, "Content-Length: 4\r\n").replace("GET", "POST") + "body";
    let mut client = world.connect().await;
    client.write_all(sized.as_bytes()).await.unwrap();
    let request = serve(&listener, 4, answer).await;
    assert!(
        request.contains("content-length: 4\r\n") && request.ends_with("\r\n\r\nbody"),
        "{request}"
    );
    read_head(&mut client).await;

    let chunked = get(&world, &to, "Transfer-Encoding: chunked\r\n").replace("GET", "PUT");
    client.write_all((chunked + "2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n").as_bytes()).await.unwrap();
    let request = serve(&listener, 19, answer).await;
    assert!(request.contains("transfer-encoding: chunked\r\n"), "{request}");
    assert!(request.contains("\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"), "{request}");
    read_head(&mut client).await;
}

#[tokio::test]
async fn a_client_that_waits_for_leave_to_send_gets_it_from_the_proxy() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("api.localhost:{port}");
    let head =
        get(&world, &to, "Content-Length: 4\r\nExpect: 100-continue\r\n").replace("GET", "POST");
    let mut client = world.connect().await;
    client.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_head(&mut client).await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"body").await.unwrap();
    let request = serve(&listener, 4, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert!(!request.contains("expect"), "{request}");
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_body_that_is_cut_or_malformed_is_not_taken_for_a_whole_one() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("api.localhost:{port}");
    let head = get(&world, &to, "Transfer-Encoding: chunked\r\n").replace("GET", "POST");
    for (number, (bytes, answered)) in
        [("2\r\nbo\r\nzz\r\n", true), ("2\r\nbo\r\n", false)].iter().enumerate()
    {
        let mut client = world.connect().await;
        client.write_all(format!("{head}{bytes}").as_bytes()).await.unwrap();
        let mut server = accepted(&listener).await;
        if !answered {
            client.shutdown().await.unwrap();
        }
        let got = read_all(&mut server).await;
        assert!(got.ends_with("2\r\nbo\r\n") || got.is_empty(), "no last chunk: {got}");
        let told = read_all(&mut client).await;
        assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
        let reason = world.notes.closed(number as u64 + 1).await.2;
        assert!(reason.starts_with("client: the body"), "{reason}");
    }
}

#[tokio::test]
async fn answers_come_back_in_every_framing() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("api.localhost:{port}");
    for (method, version, answer, want) in [
        (
            "GET",
            "1.1",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "transfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        (
            "GET",
            "1.1",
            "Connection: close\r\n\r\nabc",
            "transfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        ("GET", "1.0", "\r\nabc", "connection: close\r\n\r\nabc"),
        (
            "GET",
            "1.0",
            "Content-Length: 3\r\n\r\nabc",
            "content-length: 3\r\nconnection: close\r\n\r\nabc",
        ),
        (
            "HEAD",
            "1.1",
            "Content-Length: 3\r\n\r\n",
            "content-length: 3\r\nconnection: close\r\n\r\n",
        ),
        (
            "GET",
            "1.1",
            "Proxy-Authenticate: x\r\nConnection: x-hop\r\nX-Hop: 1\r\nX-End: 2\r\nContent-Length: 0\r\n\r\n",
            "x-end: 2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        ),
    ] {
        let request = get(&world, &to, "Connection: close\r\n")
            .replace("GET", method)
            .replace("HTTP/1.1", &format!("HTTP/{version}"));
        let raw = format!("HTTP/1.1 200 OK\r\n{answer}");
        let (told, _) = tokio::join!(world.ask(request), serve(&listener, 0, raw.as_bytes()));
        assert_eq!(told, format!("HTTP/1.1 200 OK\r\n{want}"), "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let to = format!("api.localhost:{port}");
    for (number, (raw, want)) in [
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ),
        ("nonsense\r\n\r\n", "HTTP/1.1 502 Bad Gateway\r\n"),
        ("", "HTTP/1.1 502 Bad Gateway\r\n"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "HTTP/1.1 502 Bad Gateway\r\n",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let (told, _) =
            tokio::join!(world.ask(get(&world, &to, "")), serve(&listener, 0, raw.as_bytes()));
        assert!(told.starts_with(want) && !told.ends_with("0\r\n\r\n"), "{raw:?}: {told}");
        let reason = world.notes.closed(number as u64 + 1).await.2;
        assert!(reason.starts_with("server: "), "{reason}");
    }
}

#[tokio::test]
async fn curl_sends_and_gets_large_bodies() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let body: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (sent, url) = (body.clone(), format!("http://api.localhost:{port}/"));
    let server = tokio::spawn(async move {
        let mut stream = accepted(&listener).await;
        let head = read_head(&mut stream).await;
        let mut got = vec![0; sent.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert!(got == sent, "{head}");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        stream.write_all(&got).await.unwrap();
    });
    let mut curl = tokio::process::Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--noproxy",
            "",
            "--max-time",
            "15",
            "--data-binary",
            "@-",
        ])
        .arg("--proxy")
        .arg(world.token.proxy_url(([127, 0, 0, 1], world.port).into()))
        .arg(url)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("curl is installed");
    let mut stdin = curl.stdin.take().unwrap();
    stdin.write_all(&body).await.unwrap();
    drop(stdin);
    let output = curl.wait_with_output().await.unwrap();
    server.await.unwrap();
    assert!(output.stdout == body, "{} of {}", output.stdout.len(), body.len());
}
