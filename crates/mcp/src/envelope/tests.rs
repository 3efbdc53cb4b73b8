use serde_json::{Value, json};

use super::{EnvelopeError, Id, Message};

fn read(value: Value) -> Result<Message, EnvelopeError> {
    Message::from_value(value)
}

#[test]
fn reads_the_four_kinds() {
    assert_eq!(
        read(json!({"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":1}})),
        Ok(Message::Request {
            id: Id::Number(7),
            method: "tools/call".into(),
            params: Some(json!({"x":1}))
        })
    );
    assert!(matches!(
        read(json!({"jsonrpc":"2.0","method":"notifications/initialized"})),
        Ok(Message::Notification { params: None, .. })
    ));
    assert!(matches!(
        read(json!({"jsonrpc":"2.0","id":"a","result":{}})),
        Ok(Message::Response { id: Some(Id::Text(_)), answer: Ok(_) })
    ));
    assert!(matches!(
        read(json!({"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":1}})),
        Ok(Message::Response { id: None, answer: Err(_) })
    ));
}

#[test]
fn refuses_everything_else() {
    let good = json!({"jsonrpc":"2.0","id":1,"method":"m","params":{}});
    assert!(read(good.clone()).is_ok());
    assert!(read(json!([good])).is_err());
    for (key, wrong) in [
        ("jsonrpc", json!("1.0")),
        ("jsonrpc", json!(2.0)),
        ("id", Value::Null),
        ("id", json!(1.5)),
        ("id", json!(true)),
        ("id", json!({})),
        ("id", json!(u64::MAX)),
        ("id", json!("x".repeat(257))),
        ("method", json!(1)),
        ("method", json!("")),
        ("method", json!("a b")),
        ("method", json!("tools/c\u{200b}all")),
        ("params", json!([])),
        ("params", Value::Null),
        ("result", json!({})),
        ("error", json!({"code":1,"message":"x"})),
        ("Method", json!("other")),
        ("extra", json!(1)),
    ] {
        let mut message = good.clone();
        message[key] = wrong.clone();
        assert!(read(message).is_err(), "{key}: {wrong}");
    }
    for text in [
        r#"{"id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#,
        "\"x\"",
    ] {
        assert!(read(serde_json::from_str(text).unwrap()).is_err(), "{text}");
    }
}
