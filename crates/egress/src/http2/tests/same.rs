//! A request means the same in both versions, or is refused in the newer one.

use http::request::Parts;
use http::{Method, Request};
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};

use crate::head::Head;
use crate::http2::head::{head, target};
use crate::request::Request as Judged;

fn parts(method: &Method, uri: &str, fields: &[(String, String)]) -> Option<Parts> {
    let mut request = Request::builder().method(method.clone()).uri(uri);
    for (name, value) in fields {
        request = request.header(name, value);
    }
    Some(request.body(()).ok()?.into_parts().0)
}

/// What was understood, in words.
fn meaning(judged: Result<Judged, crate::request::RequestError>) -> String {
    match judged {
        Ok(Judged::Tunnel(to)) => format!("tunnel {to:?}"),
        Ok(Judged::Exchange(exchange)) => {
            let mut headers: Vec<String> =
                exchange.headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
            headers.sort();
            let (to, path, method) = (exchange.authority, exchange.path, exchange.method);
            format!("{method} {to:?} {path} {headers:?} {:?}", exchange.framing)
        }
        Err(error) => format!("{} {} {}", error.status, error.check, error.reason),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn both_versions_are_judged_alike(
        connect: bool,
        host in "(api\\.example|API\\.example\\.|0x7f\\.1|127\\.1|\\[2001:db8::1\\]|u@a\\.b|a_b\\.c)",
        port in "(|:443|:80|:0443|:0|:99999)",
        path in "/[a-z?/]{0,6}",
        fields in prop::collection::vec(
            ("(host|x-a|cookie|expect|content-length)", "(a\\.b|api\\.example|1|100-continue)"),
            0..3,
        ),
    ) {
        let method = if connect { Method::CONNECT } else { Method::GET };
        let authority = format!("{host}{port}");
        let uri = if connect { authority.clone() } else { format!("http://{authority}{path}") };
        let Some(parts) = parts(&method, &uri, &fields) else { return Ok(()) };
        let shown = target(&parts);
        let newer = match head(parts, true) {
            Ok(head) => meaning(Judged::new(head)),
            // More is refused in form, as RFC 9113 does: never less.
            Err(unfit) => {
                prop_assert_eq!(unfit.status, 400);
                return Ok(());
            }
        };
        let mut text = format!("{method} {shown} HTTP/1.1\r\n");
        if !fields.iter().any(|(name, _)| name == "host") {
            text.push_str(&format!("host: {authority}\r\n"));
        }
        let cookies: Vec<&str> =
            fields.iter().filter(|(n, _)| n == "cookie").map(|(_, v)| v.as_str()).collect();
        if !cookies.is_empty() {
            text.push_str(&format!("cookie: {}\r\n", cookies.join("; ")));
        }
        for (name, value) in fields.iter().filter(|(name, _)| name != "cookie") {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let older = match Head::parse(text.as_bytes()) {
            Ok(head) => meaning(Judged::new(head)),
            Err(error) => format!("malformed: {error}"),
        };
        prop_assert_eq!(newer, older, "{}", text);
    }

    #[test]
    fn no_head_is_read_in_two_ways(
        authority in "[ -~]{0,12}",
        path in "[!-~]{0,12}",
        ended in any::<bool>(),
    ) {
        let uri = format!("http://{authority}{path}");
        let Some(parts) = parts(&Method::GET, &uri, &[]) else { return Ok(()) };
        let named = parts.uri.host().map(str::to_owned);
        if let Ok(head) = head(parts, ended)
            && let Ok(Judged::Exchange(exchange)) = Judged::new(head)
        {
            let host = exchange.authority.host;
            let named = named.map(|named| ringfence_bundle::Host::parse(&named));
            prop_assert!(matches!(named, Some(Ok(named)) if named == host), "{uri}");
        }
    }
}
