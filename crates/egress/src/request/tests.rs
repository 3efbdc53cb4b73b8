use super::{Exchange, Request, RequestError};
use crate::head::{Framing, Head};

fn request(text: &str) -> Result<Request, RequestError> {
    Request::new(Head::parse(text.as_bytes()).unwrap())
}

fn exchange(text: &str) -> Exchange {
    match request(text) {
        Ok(Request::Exchange(exchange)) => exchange,
        other => panic!("{other:?}"),
    }
}

#[test]
fn connect_names_one_host() {
    for host in ["", "Host: a.example\r\n", "Host: A.example.:443\r\n"] {
        let made = request(&format!("CONNECT a.example:443 HTTP/1.1\r\n{host}\r\n"));
        assert!(matches!(made, Ok(Request::Tunnel(_))), "{host}: {made:?}");
    }
    for lines in [
        "Host: b.example:443\r\n",
        "Host: a.example:80\r\n",
        "Host:\r\n",
        "Host: a.example\r\nHost: a.example\r\n",
        "Upgrade: websocket\r\n",
        "Content-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        let made = request(&format!("CONNECT a.example:443 HTTP/1.1\r\n{lines}\r\n"));
        assert_eq!(made.map(|_| ()).unwrap_err().check, "request", "{lines}");
    }
    let made = request("CONNECT a.example HTTP/1.1\r\n\r\n");
    assert_eq!(made.map(|_| ()).unwrap_err().check, "name");
}

#[test]
fn an_exchange_carries_end_to_end_headers_only() {
    let made = exchange(
        "POST http://A.example:8080/p?q HTTP/1.1\r\nHost: a.example:8080\r\n\
         Proxy-Authorization: Basic eA==\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\
         Keep-Alive: 5\r\nProxy-Connection: close\r\nContent-Length: 3\r\nX-End: 2\r\n\
         Authorization: Bearer t\r\nExpect: 100-Continue\r\n\r\n",
    );
    let mut names: Vec<&str> = made.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["authorization", "x-end"]);
    assert_eq!((made.authority.port, made.path.to_string().as_str()), (8080, "/p?q"));
    assert_eq!(made.framing, Framing::Length(3));
    assert!(made.expects_continue);
}

#[test]
fn contradictions_and_other_forms_are_refused() {
    for (line, headers, status) in [
        ("GET /x HTTP/1.1", "Host: a.example\r\n", 400),
        ("OPTIONS * HTTP/1.1", "Host: a.example\r\n", 400),
        ("GET a.example:80 HTTP/1.1", "Host: a.example\r\n", 400),
        ("GET https://a.example/ HTTP/1.1", "Host: a.example\r\n", 400),
        ("GET ftp://a.example/ HTTP/1.1", "Host: a.example\r\n", 400),
        ("GET http://a.example/ HTTP/1.1", "", 400),
        ("GET http://a.example/ HTTP/1.1", "Host: b.example\r\n", 400),
        ("GET http://a.example/ HTTP/1.1", "Host: a.example:8080\r\n", 400),
        ("GET http://a.example:8080/ HTTP/1.1", "Host: a.example\r\n", 400),
        ("GET http://a.example/ HTTP/1.1", "Host: a.example\r\nHost: b.example\r\n", 400),
        ("GET http://a.example/ HTTP/1.1", "Host: a.example, b.example\r\n", 400),
        ("GET http://a.example/ HTTP/1.1", "Host: a.example\r\nUpgrade: h2c\r\n", 400),
        ("GET http://a.example/ HTTP/1.1", "Host: a.example\r\nExpect: 200-ok\r\n", 417),
    ] {
        let made = request(&format!("{line}\r\n{headers}\r\n"));
        assert_eq!(made.map(|_| ()).unwrap_err().status, status, "{line} {headers}");
    }
    exchange("GET http://a.example/ HTTP/1.1\r\nHost: a.example:80\r\n\r\n");
}
