//! The client: one for both proxies. It takes an order a line on standard input.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::wire::{ANSWER, FLOOD, HOLD, HOST, hello};
use crate::Result;

/// Does orders until there are no more. The proxy is where `HTTPS_PROXY` says.
pub(super) fn main() -> Result {
    let url = std::env::var("HTTPS_PROXY").map_err(|_| "no HTTPS_PROXY")?;
    let proxy = Proxy::parse(&url).ok_or("HTTPS_PROXY is no URL with a user")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| e.to_string())?.block_on(async {
        let mut held = Vec::new();
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let order: Value = serde_json::from_str(&line).map_err(|e| e.to_string())?;
            let reply = match proxy.carry_out(&order, &mut held).await {
                Ok(reply) => reply,
                Err(error) => json!({ "error": error }),
            };
            println!("{reply}");
        }
        Ok(())
    })
}

/// A proxy, and the request that opens a tunnel.
#[derive(Clone)]
struct Proxy {
    address: String,
    request: String,
}

impl Proxy {
    fn parse(url: &str) -> Option<Self> {
        let (user, address) = url.strip_prefix("http://")?.trim_end_matches('/').split_once('@')?;
        let request = format!(
            "CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\nProxy-Authorization: Basic {}\r\n\r\n",
            base64(user.as_bytes())
        );
        Some(Self { address: address.to_owned(), request })
    }

    async fn carry_out(&self, order: &Value, held: &mut Vec<TcpStream>) -> Result<Value> {
        let number = |name: &str| order[name].as_u64().unwrap_or(0);
        let window = Duration::from_millis(number("ms"));
        match order["do"].as_str() {
            Some("connect") => {
                let mut times = Vec::new();
                for _ in 0..number("calls") {
                    let start = Instant::now();
                    let stream = self.connect().await?;
                    times.push(nanoseconds(start.elapsed()));
                    drop(stream);
                }
                Ok(json!({ "ns": times }))
            }
            Some("rate") => {
                let count = |deadline| {
                    let proxy = self.clone();
                    async move {
                        let mut count = 0_u64;
                        while Instant::now() < deadline {
                            proxy.open().await?;
                            count += 1;
                        }
                        Ok(count)
                    }
                };
                together(number("clients"), window, count).await
            }
            Some("bulk") => {
                let count = |deadline: Instant| {
                    let proxy = self.clone();
                    async move {
                        let mut stream = proxy.open().await?;
                        stream.write_all(&[FLOOD]).await.map_err(|e| e.to_string())?;
                        let mut bytes = vec![0; 256 * 1024];
                        let mut count = 0_u64;
                        while Instant::now() < deadline {
                            count +=
                                stream.read(&mut bytes).await.map_err(|e| e.to_string())? as u64;
                        }
                        Ok(count)
                    }
                };
                together(number("tunnels"), window, count).await
            }
            Some("hold") => {
                for _ in 0..number("tunnels") {
                    let mut stream = self.open().await?;
                    stream.write_all(&[HOLD]).await.map_err(|e| e.to_string())?;
                    held.push(stream);
                }
                Ok(json!({ "held": held.len() }))
            }
            Some("let-go") => {
                held.clear();
                Ok(json!({}))
            }
            _ => Err("an order that is unknown".into()),
        }
    }

    /// Asks for a tunnel and waits for the answer.
    async fn connect(&self) -> Result<TcpStream> {
        let fail = |e: std::io::Error| format!("CONNECT: {e}");
        let mut stream = TcpStream::connect(&self.address).await.map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        stream.write_all(self.request.as_bytes()).await.map_err(fail)?;
        let mut head = Vec::with_capacity(512);
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await.map_err(fail)? == 0 {
                break;
            }
        }
        if head.starts_with(b"HTTP/1.1 200 ") {
            Ok(stream)
        } else {
            Err(format!("CONNECT: {}", String::from_utf8_lossy(&head)))
        }
    }

    /// A tunnel through which hello and answer have gone.
    async fn open(&self) -> Result<TcpStream> {
        let mut stream = self.connect().await?;
        let fail = |e: std::io::Error| format!("in the tunnel: {e}");
        stream.write_all(&hello()).await.map_err(fail)?;
        let mut answer = [0; ANSWER.len()];
        stream.read_exact(&mut answer).await.map_err(fail)?;
        Ok(stream)
    }
}

/// Many at once for a while, and what they have counted.
async fn together<F>(many: u64, window: Duration, one: impl Fn(Instant) -> F) -> Result<Value>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let start = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..many {
        all.spawn(one(start + window));
    }
    let mut count = 0;
    while let Some(done) = all.join_next().await {
        count += done.map_err(|e| e.to_string())??;
    }
    Ok(json!({ "count": count, "ns": nanoseconds(start.elapsed()) }))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for at in 0..4_usize {
            let letter = LETTERS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}
