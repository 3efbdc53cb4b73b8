//! Row 5: one reading of a request. Duplicate and case-folding keys, batches, nesting, numbers, text
//! that is not text, a second value, and every other way to be read twice.

use ringfence_tests::{Project, each_user};

use crate::bundles::{MIRROR, all_text};

/// Every body must be refused; `secret_tool` is the tool that is not on the list.
const BODIES: &str = r##"
m = Mcp("mirror")
def call(params, extra=b""):
    return b'{"jsonrpc":"2.0","id":7,' + extra + b'"method":"tools/call","params":' + params + b'}'
good = b'{"name":"raw","arguments":{"n":1}}'
bad = b'{"name":"secret_tool","arguments":{}}'
m.send("control", call(good))
# Odd spelling of an innocent message: allowed, and re-serialised on the way.
m.send("respelled", b' { "params" : {"arguments":{"n":1 },"n\\u0061me":"r\\u0061w"},\n"method":"tools\\/call", "id":7,"jsonrpc":"2.0" } ')

bodies = {
    "name twice, allowed first": call(b'{"name":"raw","name":"secret_tool","arguments":{}}'),
    "name twice, allowed last": call(b'{"name":"secret_tool","name":"raw","arguments":{}}'),
    "name twice, one escaped": call(b'{"name":"raw","n\\u0061me":"secret_tool","arguments":{}}'),
    "name in another case": call(b'{"name":"raw","Name":"secret_tool","arguments":{}}'),
    "name in capitals": call(b'{"NAME":"secret_tool","name":"raw","arguments":{}}'),
    "params twice": b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":' + good + b',"params":' + bad + b'}',
    "params in another case": b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":' + good + b',"Params":' + bad + b'}',
    "params with a long s": '{"jsonrpc":"2.0","id":7,"method":"tools/call","param\u017f":{"name":"secret_tool"},"params":{"name":"raw"}}'.encode(),
    "method twice": b'{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":' + bad + b'}',
    "method in another case": b'{"jsonrpc":"2.0","id":7,"method":"ping","METHOD":"tools/call","params":' + bad + b'}',
    "id twice": b'{"jsonrpc":"2.0","id":7,"id":8,"method":"tools/call","params":' + good + b'}',
    "arguments in another case, alone": call(b'{"name":"raw","Arguments":{"n":1}}'),
    "a notification with an id": b'{"jsonrpc":"2.0","id":7,"method":"notifications/cancelled","params":{"requestId":1}}',
    "more values than there is room for": call(b'{"name":"raw","arguments":{"a":[' + b'0,' * 200000 + b'0]}}'),
    "arguments twice": call(b'{"name":"raw","arguments":{"n":1},"arguments":{"n":2}}'),
    "a key twice in the arguments": call(b'{"name":"raw","arguments":{"amount":1,"amount":1000}}'),
    "a key twice, deep": call(b'{"name":"raw","arguments":{"a":[{"b":{"c":1,"c":2}}]}}'),
    "a batch": b'[' + call(good) + b',' + call(bad) + b']',
    "a batch of one": b'[' + call(bad) + b']',
    "an empty batch": b'[]',
    "a second value": call(good) + call(bad),
    "a second value on a line of its own": call(good) + b'\n' + call(bad),
    "a trailing word": call(good) + b' true',
    "a trailing NUL": call(good) + b'\0',
    "a record separator in front": b'\x1e' + call(good),
    "a byte-order mark": b'\xef\xbb\xbf' + call(good),
    "UTF-16": call(good).decode().encode("utf-16"),
    "bytes that are not text": call(b'{"name":"raw","arguments":{"t":"\xff\xfe"}}'),
    "an overlong encoding": call(b'{"name":"raw","arguments":{"t":"\xc0\xaf"}}'),
    "a lone surrogate": call(b'{"name":"raw","arguments":{"t":"\\ud800"}}'),
    "a raw control character": call(b'{"name":"raw","arguments":{"t":"a\x01b"}}'),
    "nesting of lists": call(b'{"name":"raw","arguments":{"a":' + b'[' * 20000 + b']' * 20000 + b'}}'),
    "nesting of objects": call(b'{"name":"raw","arguments":' + b'{"a":' * 20000 + b'1' + b'}' * 20000 + b'}'),
    "a number beyond a double": call(b'{"name":"raw","arguments":{"n":1e99999}}'),
    "a number of four hundred digits": call(b'{"name":"raw","arguments":{"n":' + b'9' * 400 + b'}}'),
    "not a number": call(b'{"name":"raw","arguments":{"n":NaN}}'),
    "a leading zero": call(b'{"name":"raw","arguments":{"n":01}}'),
    "a hexadecimal number": call(b'{"name":"raw","arguments":{"n":0x10}}'),
    "a comment": call(b'{"name":"raw",/* "name":"secret_tool", */"arguments":{}}'),
    "a trailing comma": call(b'{"name":"raw","arguments":{},}'),
    "single quotes": call(b"{'name':'raw'}"),
    "no closing brace": call(good)[:-1],
    "nothing": b'',
    "a string": b'"tools/call"',
    "another JSON-RPC": b'{"jsonrpc":"1.0","id":7,"method":"tools/call","params":' + good + b'}',
    "no JSON-RPC": b'{"id":7,"method":"tools/call","params":' + good + b'}',
    "an id that is an object": b'{"jsonrpc":"2.0","id":{},"method":"tools/call","params":' + good + b'}',
    "a name that is a list": call(b'{"name":["raw"],"arguments":{}}'),
    "a name with a NUL": call(b'{"name":"raw\\u0000","arguments":{}}'),
    "a name with a space": call(b'{"name":"raw ","arguments":{}}'),
    "a name in another case (value)": call(b'{"name":"RAW","arguments":{}}'),
    "a name with a zero-width space": call(b'{"name":"r\\u200baw","arguments":{}}'),
    "a full-width name": call('{"name":"\uff52aw","arguments":{}}'.encode()),
    "a tool that is not on the list": call(bad),
    "a method in capitals": b'{"jsonrpc":"2.0","id":7,"method":"TOOLS/CALL","params":' + bad + b'}',
    "a method with a slash at the end": b'{"jsonrpc":"2.0","id":7,"method":"tools/call/","params":' + bad + b'}',
    "a method that is not allowed": b'{"jsonrpc":"2.0","id":7,"method":"resources/list"}',
}
for case, body in bodies.items():
    m.send(case, body)

import gzip
bad_call = call(bad)
m.send("a gzip body", gzip.compress(call(good)), headers={"Content-Encoding": "gzip"})
m.send("an unknown encoding", call(good), headers={"Content-Encoding": "x-none"})
m.send("two lengths", call(good), headers={"Content-length": "3"})
m.send("a length and chunks", b"0\r\n\r\n" + bad_call, headers={"Transfer-Encoding": "chunked"})
m.send("another content type", call(good), headers={"Content-Type": "text/plain"})
m.send("an upgrade", call(bad), headers={"Connection": "close, Upgrade", "Upgrade": "websocket"})
for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post"]:
    m.send("method " + method, call(good), method=method)
base = m.url.path
for n, path in enumerate(["/" + base, base + "/../mcp", base.replace("/mcp", "/%6dcp"), base + ";x=1", base + "\\..\\mcp", "http://127.0.0.1" + base + "#x", base.upper()]):
    m.send(f"path {n}", call(good), path=path)
m.send("a foreign Host", call(good), headers={"Host": "evil.example.com"})
m.send("a foreign Origin", call(good), headers={"Origin": "http://evil.example.com"})
m.send("a null Origin", call(good), headers={"Origin": "null"})
m.send("still alive", call(good))
"##;

#[test]
fn an_ambiguous_request_is_refused_and_the_judged_one_is_what_arrives() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        let cases = project.agent(BODIES);

        // Controls: before, in another spelling, and after all the abuse.
        let controls = ["control", "respelled", "still alive"];
        for case in controls {
            cases.answered(case);
            assert!(cases.body(case).contains("tools/call"), "{case} did not reach the server");
        }
        let arrived = cases.body("respelled");
        assert!(!arrived.contains("u0061"), "the agent's own bytes went on: {arrived}");

        let refused: Vec<&str> = cases.names().filter(|c| !controls.contains(c)).collect();
        assert!(refused.len() > 70, "only {} cases ran", refused.len());
        for case in refused {
            cases.not_answered(case);
            let seconds = cases.get(case)["seconds"].as_f64().unwrap_or(0.0);
            assert!(seconds < 5.0, "{case} held the gate for {seconds} s");
        }

        // What the server saw: nothing but judged messages, each on one line.
        let events = project.events();
        events.has("call_decided", &[("tool", "raw"), ("outcome", "allowed")]);
        events.has("call_decided", &[("tool", "secret_tool"), ("outcome", "refused")]);
        events.lacks("call_decided", &[("tool", "secret_tool"), ("outcome", "allowed")]);
        let rest = all_text(&project, &project.last_run(), "events.jsonl");
        assert!(rest.contains("tools/call"), "the mirror's stderr is kept in the run's folder");
        assert!(!rest.contains("secret_tool"), "the server was sent a refused call");
    });
}
