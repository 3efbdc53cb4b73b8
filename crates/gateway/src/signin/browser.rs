//! A person's browser, and the place on this machine that it comes back to.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ringfence_mcp::oauth::{Browser, Callback, StateCheck, Visit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::seams::Boxed;

/// How long a person may take.
const WAIT: Duration = Duration::from_secs(300);
/// How long one connection may take.
const CONNECTION: Duration = Duration::from_secs(10);
/// Connections at once.
const MOST: usize = 16;
/// Bytes of a request's head: the code and the state are in it.
const MAX_HEAD: usize = 32 * 1024;

/// Says a line to the person.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// A person at a desk.
#[derive(Clone)]
pub struct Desk {
    /// Says a line to them.
    pub say: Say,
    /// Whether a browser is opened for them.
    pub open: bool,
    /// The port that the browser comes back to; any, where there is none.
    pub port: Option<u16>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk")
            .field("open", &self.open)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Browser for Desk {
    fn tell(&self, words: &str) {
        (self.say)(words);
    }

    fn prepare(&self, fixed: bool) -> Boxed<'_, Result<Box<dyn Visit>, String>> {
        Box::pin(async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port.unwrap_or(0)))
                .await
                .map_err(|error| format!("loopback cannot be listened on: {error}"))?;
            let port = listener.local_addr().map_err(|error| error.to_string())?.port();
            let mut random = [0_u8; 16];
            getrandom::fill(&mut random).map_err(|error| error.to_string())?;
            let path = match fixed {
                true => "/callback".to_owned(),
                false => format!("/callback/{}", BASE64_URL_SAFE_NO_PAD.encode(random)),
            };
            let authority = format!("127.0.0.1:{port}");
            let redirect = format!("http://{authority}{path}");
            let visit = OneVisit { desk: self.clone(), listener, redirect, path, authority };
            Ok(Box::new(visit) as Box<dyn Visit>)
        })
    }
}

struct OneVisit {
    desk: Desk,
    listener: TcpListener,
    redirect: String,
    path: String,
    authority: String,
}

impl Visit for OneVisit {
    fn redirect(&self) -> &str {
        &self.redirect
    }

    fn answer<'a>(
        self: Box<Self>,
        url: &'a str,
        state: &'a StateCheck,
    ) -> Boxed<'a, Result<Callback, String>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            // Before anybody is told where to go: the address is what it was checked to be.
            let url = page_address(url)?;
            (self.desk.say)("open this address in a browser to sign in:");
            (self.desk.say)(&format!("  {url}"));
            if self.desk.open {
                match open(url) {
                    Ok(()) => (self.desk.say)("a browser was asked to open it"),
                    Err(why) => (self.desk.say)(&format!("no browser was opened: {why}")),
                }
            }
            let minutes = WAIT.as_secs() / 60;
            (self.desk.say)(&format!("waiting for the answer, {minutes} minutes at most"));
            let waited = tokio::time::timeout(WAIT, self.hear(state)).await;
            waited.unwrap_or_else(|_| Err(format!("no answer came within {minutes} minutes")))
        })
    }
}

impl OneVisit {
    async fn hear(&self, state: &StateCheck) -> Result<Callback, String> {
        let (tell, mut told) = oneshot::channel();
        let ear = Arc::new(Ear {
            path: self.path.clone(),
            authority: self.authority.clone(),
            state: state.clone(),
            tell: Mutex::new(Some(tell)),
        });
        let mut talks = JoinSet::new();
        let callback = loop {
            tokio::select! {
                biased;
                callback = &mut told => break callback,
                _ = talks.join_next(), if !talks.is_empty() => {}
                accepted = self.listener.accept(), if talks.len() < MOST => {
                    if let Ok((stream, _)) = accepted {
                        let ear = Arc::clone(&ear);
                        talks.spawn(tokio::time::timeout(CONNECTION, talk(stream, ear)));
                    }
                }
            }
        };
        // The page that says so is still on its way.
        let written = async { while talks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_secs(2), written).await;
        callback.map_err(|_| "the answer was lost".to_owned())
    }
}

/// Hears one answer, and tells it once.
struct Ear {
    path: String,
    authority: String,
    state: StateCheck,
    tell: Mutex<Option<oneshot::Sender<Callback>>>,
}

async fn talk(stream: TcpStream, ear: Arc<Ear>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let page = ear.hear(request.method(), request.uri(), request.headers());
        std::future::ready(Ok::<_, std::convert::Infallible>(page))
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl Ear {
    fn hear(&self, method: &Method, uri: &http::Uri, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|value| value.to_str().ok());
        // A page that rebinds a name of its own to this address does not get past this.
        if host != Some(&self.authority) || hosts.next().is_some() || uri.authority().is_some() {
            return page(StatusCode::MISDIRECTED_REQUEST, "This is not the address of this place.");
        }
        if uri.path() != self.path {
            return page(StatusCode::NOT_FOUND, "There is nothing here.");
        }
        if method != Method::GET {
            return page(StatusCode::METHOD_NOT_ALLOWED, "There is nothing here.");
        }
        let Some(callback) = self.state.read(uri.query().unwrap_or_default()) else {
            return page(
                StatusCode::BAD_REQUEST,
                "This is not the answer to the question that was asked.",
            );
        };
        let words = match callback.is_yes() {
            true => {
                "The answer has arrived. Ringfence says in the terminal what became of it. This \
                     page can be closed."
            }
            false => {
                "The answer was no, or an error. The terminal says more. This page can be \
                      closed."
            }
        };
        let tell = self.tell.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        match tell.map(|tell| tell.send(callback)) {
            Some(Ok(())) => page(StatusCode::OK, words),
            _ => page(StatusCode::GONE, "The answer has been heard already."),
        }
    }
}

fn page(status: StatusCode, words: &str) -> Response<Full<Bytes>> {
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ringfence</title>\
         <p>{words}</p></html>\n"
    );
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let value = http::HeaderValue::from_static;
    headers.insert(CONTENT_TYPE, value("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, value("no-store"));
    headers.insert("referrer-policy", value("no-referrer"));
    headers.insert("content-security-policy", value("default-src 'none'; frame-ancestors 'none'"));
    headers.insert("x-content-type-options", value("nosniff"));
    response
}

/// The address as one of a page, which it is when no program can take it for anything else: an option, a
/// file, a scheme that starts something, or words for a terminal.
fn page_address(url: &str) -> Result<&str, String> {
    if !url.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("the address of the sign-in page is not plain ASCII".into());
    }
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match rest {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') => Ok(url),
        _ => Err("the address of the sign-in page is not one of http or https".into()),
    }
}

/// Has the person's own program open it: one argument, no shell. What becomes of it is its matter.
fn open(url: &str) -> Result<(), String> {
    let url = page_address(url)?;
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut child = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C here is not meant for the browser.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    std::thread::spawn(move || {
        let _ = child.wait();
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{open, page_address};

    #[test]
    fn a_browser_is_given_addresses_of_pages_alone() {
        for good in ["https://auth.example.com/a?b=c", "http://127.0.0.1:80/", "https://[::1]/"] {
            assert_eq!(page_address(good), Ok(good));
        }
        for bad in [
            "",
            "-e",
            "--help",
            "-https://auth.example.com/",
            " https://auth.example.com/",
            "https://",
            "https:///etc/passwd",
            "https://-x/",
            "https:auth.example.com",
            "HTTPS://auth.example.com/",
            "file:///etc/passwd",
            "/etc/passwd",
            "javascript:alert(1)",
            "ssh://host/",
            "https://auth.example.com/\u{1b}[2J",
            "https://auth.example.com/\r\n-x",
            "https://auth.example.com/a b",
            "https://auth.example.com/\0",
            "https://auth.example.com/\u{202e}",
        ] {
            assert!(page_address(bad).is_err() && open(bad).is_err(), "{bad:?}");
        }
    }
}
