//! An authorization server and an MCP server that takes its tokens, strict in what they check and
//! made to misbehave by a script: a JSON object that is read anew at each request.

mod answers;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// One request as it arrived.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// `https` or `http`.
    pub scheme: String,
    /// Method.
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Query, as it came.
    pub query: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

impl Asked {
    /// A header's value, or "".
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// `https://host` as it was asked for.
    fn base(&self) -> String {
        format!("{}://{}", self.scheme, self.header("host"))
    }
}

/// A token that was given.
#[derive(Debug, Clone)]
struct Token {
    audience: String,
    scopes: Vec<String>,
    client: String,
}

/// What it keeps.
#[derive(Debug, Default)]
struct Books {
    clients: BTreeMap<String, Value>,
    codes: BTreeMap<String, Value>,
    access: BTreeMap<String, Token>,
    refresh: BTreeMap<String, Token>,
    asked: Vec<Asked>,
}

/// Both servers. `serve` speaks for them on a connection.
#[derive(Debug, Clone, Default)]
pub struct Authority {
    books: Arc<Mutex<Books>>,
    script: Arc<(Mutex<Value>, Condvar)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random() -> String {
    let mut bytes = [0; 16];
    let mut file = std::fs::File::open("/dev/urandom").expect("there is one");
    file.read_exact(&mut bytes).expect("it never ends");
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap_or(b'?'));
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The pairs of a form or a query.
#[must_use]
pub fn form(text: &str) -> BTreeMap<String, String> {
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

impl Authority {
    /// Both on loopback, in the test's own process. Gives the MCP address too.
    ///
    /// # Panics
    /// When loopback cannot be listened on.
    #[must_use]
    pub fn on_loopback() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be listened on");
        let port = listener.local_addr().expect("it is bound").port();
        let new = Self::default();
        let both = new.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let both = both.clone();
                std::thread::spawn(move || {
                    let mut stream: TcpStream = stream;
                    both.serve(&mut stream, "http");
                });
            }
        });
        (new, format!("http://127.0.0.1:{port}/mcp"))
    }

    /// How it is to behave from now on.
    pub fn script(&self, script: &Value) {
        *lock(&self.script.0) = script.clone();
        self.script.1.notify_all();
    }

    /// What has arrived so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.books).asked.clone()
    }

    /// What has arrived at this path.
    #[must_use]
    pub fn at(&self, path: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.path == path).collect()
    }

    /// Ends every access token, as if its time were over.
    pub fn end_access(&self) {
        lock(&self.books).access.clear();
    }

    /// Ends every refresh token.
    pub fn end_refresh(&self) {
        lock(&self.books).refresh.clear();
    }

    /// How many access tokens are good.
    #[must_use]
    pub fn live(&self) -> usize {
        lock(&self.books).access.len()
    }

    /// Every token that is good now.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        let books = lock(&self.books);
        books.access.keys().chain(books.refresh.keys()).cloned().collect()
    }

    /// The script, once it does not say `hold` of what is asked for.
    fn script_for(&self, asked: &Asked) -> Value {
        let (script, changed) = &*self.script;
        let script = changed.wait_while(lock(script), |script| script["hold"] == *asked.path);
        script.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers one request on a connection.
    pub fn serve(&self, stream: &mut (impl Read + Write), scheme: &str) -> Option<Asked> {
        let asked = read(stream, scheme)?;
        lock(&self.books).asked.push(asked.clone());
        let script = self.script_for(&asked);
        let told = self.answer(&asked, &script);
        let mut head = format!(
            "HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n",
            told.status,
            told.body.len()
        );
        for (name, value) in &told.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let _ = stream.write_all(format!("{head}\r\n{}", told.body).as_bytes());
        let _ = stream.flush();
        Some(asked)
    }
}

fn read(stream: &mut impl Read, scheme: &str) -> Option<Asked> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 65_536 {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut lines = text.lines();
    let first = lines.next()?;
    let mut words = first.split(' ');
    let method = words.next()?.to_owned();
    let target = words.next()?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Asked {
        scheme: scheme.to_owned(),
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// A script with these on top.
#[must_use]
pub fn with(base: &Value, over: &Value) -> Value {
    let mut all = base.as_object().cloned().unwrap_or_else(Map::new);
    all.extend(over.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}
