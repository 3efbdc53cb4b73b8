//! Requests with `:scheme` http, as a proxy gets them.

use bytes::Bytes;
use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{client, read, request, send};
use crate::support::{World, accepted, read_head, untouched, upstream};

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

#[tokio::test]
async fn a_request_goes_on_as_it_was_judged_and_its_answer_comes_back() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let to = format!("api.localhost:{port}");
    let get = request(&world, Method::GET, &format!("http://{to}/p?q"))
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nKeep-Alive: x\r\nX-End: 1\r\nContent-Length: 2\r\n\r\nok";
    let (got, request_line) =
        tokio::join!(send(&mut sender, get, true), serve(&listener, 0, answer));
    assert_eq!(
        request_line,
        format!("GET /p?q HTTP/1.1\r\nhost: {to}\r\ncookie: a=1; b=2\r\nconnection: close\r\n\r\n")
    );
    let (got, _) = got.unwrap();
    assert_eq!((got.status().as_u16(), &got.headers()["x-end"]), (200, &"1".parse().unwrap()));
    assert!(!got.headers().contains_key("keep-alive"));
    assert_eq!(got.headers()["content-length"], "2");
    assert_eq!(read(&mut got.into_body()).await.unwrap(), b"ok");
    assert_eq!(
        world.notes.decided(1).await,
        format!("GET api.localhost {port} +token +name +ruleset +resolve +address")
    );
    let (sent, received, reason) = world.notes.closed(1).await;
    assert!(sent > 50 && received >= 40 && reason == "closed", "{sent} {received} {reason}");
}

#[tokio::test]
async fn bodies_go_up_whole_or_are_seen_to_be_cut() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let uri = format!("http://api.localhost:{port}/");
    let created = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    for (length, body) in
        [(Some(4), "body".to_owned()), (None, "4\r\nbody\r\n0\r\n\r\n".to_owned())]
    {
        let mut post = request(&world, Method::POST, &uri);
        if let Some(length) = length {
            post = post.header("content-length", length);
        }
        sender = sender.ready().await.unwrap();
        let (answer, mut to) = sender.send_request(post.body(()).unwrap(), false).unwrap();
        to.send_data(Bytes::from_static(b"body"), true).unwrap();
        let (answer, got) = tokio::join!(answer, serve(&listener, body.len(), created));
        assert!(got.ends_with(&format!("\r\n\r\n{body}")), "{got}");
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 201);
        assert_eq!(read(&mut answer.into_body()).await.unwrap(), b"ok");
    }
    let post = request(&world, Method::POST, &uri).body(()).unwrap();
    sender = sender.ready().await.unwrap();
    let (_answer, mut to) = sender.send_request(post, false).unwrap();
    let mut server = accepted(&listener).await;
    to.send_data(Bytes::from_static(b"bo"), false).unwrap();
    read_head(&mut server).await;
    let mut chunk = [0; 7];
    server.read_exact(&mut chunk).await.unwrap();
    assert_eq!(&chunk, b"2\r\nbo\r\n");
    to.send_reset(h2::Reason::CANCEL);
    let mut rest = String::new();
    let _ = server.read_to_string(&mut rest).await;
    assert_eq!(rest, "", "no last chunk");
    assert!(world.notes.closed(3).await.2.starts_with("client: the body"));
}

#[tokio::test]
async fn an_answer_that_is_cut_is_not_taken_for_a_whole_one() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let get = request(&world, Method::GET, &format!("http://api.localhost:{port}/"));
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    let get = get.body(()).unwrap();
    let (got, _) = tokio::join!(send(&mut sender, get, true), serve(&listener, 0, short));
    assert!(read(&mut got.unwrap().0.into_body()).await.is_err());
    assert!(world.notes.closed(1).await.2.starts_with("server: "));
}

#[tokio::test]
async fn what_is_not_plainly_a_request_for_a_proxy_never_leaves() {
    let (listener, port) = upstream().await;
    let world = World::new().await;
    let mut sender = client(&world).await;
    let to = format!("api.localhost:{port}");
    let get = |uri: &str| request(&world, Method::GET, uri);
    let good = format!("http://{to}/");
    let mut many = get(&good);
    for n in 0..128 {
        many = many.header(format!("x-{n}"), "1");
    }
    for (name, status, request) in [
        ("https", 400, get(&format!("https://{to}/"))),
        ("another Host", 400, get(&good).header("host", "evil.localhost")),
        ("two Hosts", 400, get(&good).header("host", &to).header("host", &to)),
        ("an expectation", 417, get(&good).header("expect", "something")),
        ("two lengths", 400, get(&good).header("content-length", 3).header("content-length", 3)),
        ("a refused host", 403, get(&format!("http://refused.localhost:{port}/"))),
        ("too many fields", 400, many),
        (
            "CONNECT for another Host",
            400,
            request(&world, Method::CONNECT, &to).header("host", "evil.localhost"),
        ),
    ] {
        // The library refuses some by itself, by resetting the stream (RFC 9113, section 8.1.1).
        match send(&mut sender, request.body(()).unwrap(), false).await {
            Ok((answer, _)) => assert_eq!(answer.status(), status, "{name}"),
            Err(error) => {
                assert!(name == "two lengths" && error.is_reset(), "{name}: {error}");
            }
        }
    }
    assert!(untouched(&listener).await);
    // The control: an agreeing Host is no contradiction.
    let agreeing = get(&good).header("host", &to).body(()).unwrap();
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    let (got, _) = tokio::join!(send(&mut sender, agreeing, true), serve(&listener, 0, answer));
    assert_eq!(got.unwrap().0.status(), 204);
}
