//! An MCP server over HTTP on this host, in the test's own process, that remembers what it saw.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Request line.
    pub line: String,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as it was.
    pub body: String,
}

impl Seen {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// How the server behaves.
type Answer = dyn Fn(&Seen, &Value) -> Vec<u8> + Send + Sync;

/// The server. It ends with the test's process.
pub struct Upstream {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upstream({})", self.address)
    }
}

fn http(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A well-behaved server with the tools `echo` and `wipe`. `echo` returns its arguments and every
/// header it was sent, as a careless server might.
fn well_behaved(seen: &Seen, message: &Value) -> String {
    let Some(id) = message.get("id") else {
        return http("202 Accepted", "", "");
    };
    let tool =
        |name: &str| json!({"name": name, "description": name, "inputSchema": {"type": "object"}});
    let result = match message["method"].as_str().unwrap_or("") {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "upstream", "version": "0"},
        }),
        "tools/list" => json!({"tools": [tool("echo"), tool("wipe")]}),
        "tools/call" => {
            let text = format!("{} {:?}", message["params"]["arguments"], seen.headers);
            json!({"content": [{"type": "text", "text": text}]})
        }
        _ => json!({}),
    };
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    http("200 OK", "Content-Type: application/json\r\n", &body)
}

/// An answer with the right id in the place of `"id":7`, and a length that still fits.
fn with_id(answer: &str, id: &Value) -> String {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return answer.to_owned() };
    let new = body.replace("\"id\":7,", &format!("\"id\":{id},"));
    let length = |n: usize| format!("Content-Length: {n}");
    format!("{}\r\n\r\n{new}", head.replace(&length(body.len()), &length(new.len())))
}

impl Upstream {
    /// A well-behaved server.
    #[must_use]
    pub fn new() -> Self {
        Self::with(well_behaved)
    }

    /// A server that answers every request with the same bytes.
    #[must_use]
    pub fn saying(answer: &str) -> Self {
        let answer = answer.to_owned();
        Self::with(move |_, _| answer.clone())
    }

    /// A server that behaves until `method` is asked, and answers that with these bytes. `"id":7` in
    /// them stands for the id that was asked with.
    #[must_use]
    pub fn until(method: &'static str, answer: &str) -> Self {
        let answer = answer.to_owned();
        Self::with(move |seen, message| {
            if message["method"] == method {
                with_id(&answer, &message["id"])
            } else {
                well_behaved(seen, message)
            }
        })
    }

    /// A server that offers what this value says when it is asked: `instructions` and `tools`. Every
    /// tool returns its own name.
    #[must_use]
    pub fn offering(offer: &Arc<Mutex<Value>>) -> Self {
        let offer = Arc::clone(offer);
        Self::with(move |_, message| {
            let offer = offer.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(id) = message.get("id") else { return http("202 Accepted", "", "") };
            let result = match message["method"].as_str().unwrap_or("") {
                "initialize" => json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "upstream", "version": "0"},
                    "instructions": offer["instructions"],
                }),
                "tools/list" => json!({"tools": offer["tools"]}),
                "tools/call" => {
                    json!({"content": [{"type": "text", "text": message["params"]["name"]}]})
                }
                _ => {
                    let error = json!({"code": -32601, "message": "no such method"});
                    let body = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
                    return http("200 OK", "Content-Type: application/json\r\n", &body);
                }
            };
            let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
            http("200 OK", "Content-Type: application/json\r\n", &body)
        })
    }

    /// A server whose tools answer once it is told so; the rest at once.
    #[must_use]
    pub fn held(open: &Arc<(Mutex<bool>, Condvar)>) -> Self {
        let open = Arc::clone(open);
        Self::with(move |seen, message| {
            if message["method"] == "tools/call" {
                let (told, changed) = &*open;
                let told = told.lock().unwrap_or_else(PoisonError::into_inner);
                drop(changed.wait_while(told, |told| !*told));
            }
            well_behaved(seen, message)
        })
    }

    /// A server that behaves until a tool is called, and answers that with these bytes, made for the id
    /// that was asked with.
    #[must_use]
    pub fn answering(calls: impl Fn(&Value) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::sending(move |seen, message| {
            if message["method"] == "tools/call" {
                calls(&message["id"])
            } else {
                well_behaved(seen, message).into_bytes()
            }
        })
    }

    /// A server that takes connections and never says a word.
    #[must_use]
    pub fn silent() -> Self {
        Self::with(|_, _| {
            loop {
                std::thread::park();
            }
        })
    }

    fn with(answer: impl Fn(&Seen, &Value) -> String + Send + Sync + 'static) -> Self {
        Self::sending(move |seen, message| answer(seen, message).into_bytes())
    }

    /// # Panics
    /// When loopback cannot be listened on.
    fn sending(answer: impl Fn(&Seen, &Value) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be listened on");
        let address = listener.local_addr().expect("a bound socket has an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let answer: Arc<Answer> = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &log, answer.as_ref()));
            }
        });
        Self { address, seen }
    }

    /// A loopback address on which nobody listens.
    #[must_use]
    pub fn nobody() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be listened on");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        format!("http://127.0.0.1:{port}/mcp")
    }

    /// Its MCP address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// `host:port`
    #[must_use]
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    /// What has arrived so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Self::new()
    }
}

fn lock(seen: &Mutex<Vec<Seen>>) -> MutexGuard<'_, Vec<Seen>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Seen>>, answer: &Answer) {
    let Ok(copy) = stream.try_clone() else { return };
    let mut reader = BufReader::new(copy);
    let mut line = String::new();
    // A connection is a sighting too, even when nothing is said on it.
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        lock(log).push(Seen {
            line: "(connected, said nothing)".into(),
            headers: Vec::new(),
            body: String::new(),
        });
        return;
    }
    let mut headers = Vec::new();
    loop {
        let mut next = String::new();
        if reader.read_line(&mut next).unwrap_or(0) == 0 || next.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = next.split_once(':') {
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let length = headers
        .iter()
        .find(|(n, _)| n == "content-length")
        .and_then(|(_, v)| v.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    let seen = Seen {
        line: line.trim().to_owned(),
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    lock(log).push(seen.clone());
    let reply = if seen.line.starts_with("POST") {
        answer(&seen, &serde_json::from_str(&seen.body).unwrap_or(Value::Null))
    } else {
        http("405 Method Not Allowed", "", "").into_bytes()
    };
    let _ = (&stream).write_all(&reply);
}
