use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::HeaderParam;

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "size": {"type": "integer", "x-mcp-header": "Size"},
        "in": {"properties": {"side": {"type": "boolean", "x-mcp-header": "Side"}}},
        "bad": {"type": "string", "x-mcp-header": "not a token"},
        "twice": {"type": "string", "x-mcp-header": "REGION"},
        "plain": {"type": "string"},
    }})
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

#[test]
fn a_header_must_say_what_the_argument_says() {
    let params = HeaderParam::of_schema(&schema());
    assert_eq!(params.len(), 3);
    let all = |headers: &HeaderMap, arguments: Value| {
        params.iter().all(|param| param.matches(headers, Some(&arguments)))
    };
    let good = json!({"region": "eu", "size": 42, "in": {"side": true}, "plain": "x"});
    let same = [("mcp-param-region", "eu"), ("mcp-param-size", "42"), ("mcp-param-side", "true")];
    assert!(all(&headers(&same), good.clone()));
    assert!(all(&headers(&[]), json!({})));
    assert!(all(&headers(&[]), json!({"region": null})));
    assert!(all(&headers(&[("mcp-param-region", "=?base64?ZXU=?=")]), json!({"region": "eu"})));
    assert!(all(&headers(&[("mcp-param-region", "ZXU=")]), json!({"region": "ZXU="})));
    for (headers, arguments) in [
        (headers(&same[..2]), good.clone()),
        (headers(&same), json!({"region": "eu", "size": 43, "in": {"side": true}})),
        (headers(&same), json!({})),
        (headers(&[("mcp-param-region", "EU")]), json!({"region": "eu"})),
        (headers(&[("mcp-param-region", "=?base64?ZXU?=")]), json!({"region": "eu"})),
        (headers(&[("mcp-param-region", "=?base64?Z!U=?=")]), json!({"region": "eu"})),
        (headers(&[("mcp-param-region", "eu")]), json!({"region": ["eu"]})),
    ] {
        assert!(!all(&headers, arguments.clone()), "{headers:?} {arguments}");
    }
}
