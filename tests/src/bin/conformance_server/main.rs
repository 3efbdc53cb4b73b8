//! An MCP server with everything that the conformance suites look for, over the gateway's own door.
//!
//! Over HTTP it prints its URL, and ends when its input does. With `--stdio` it speaks on its
//! standard streams. With `--handshake` or `--stateless` it speaks the revisions of one era alone.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the protocol with the parent is on standard output")]
#![allow(clippy::unwrap_used, reason = "a test server that cannot stand must end at once")]

mod fixture;
mod prompts;
mod questions;
mod resources;
mod tools;

use std::convert::Infallible;
use std::sync::Arc;

use fixture::{Fixture, Speaks};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use ringfence_mcp::strict::Limits;
use ringfence_mcp::{DoorBody, HttpDoor, route, serve_stdio};
use tokio::io::AsyncReadExt;

fn main() {
    let said = |flag: &str| std::env::args().any(|argument| argument == flag);
    let stdio = said("--stdio");
    let speaks = match (said("--handshake"), said("--stateless")) {
        (true, false) => Speaks::Handshake,
        (false, true) => Speaks::Stateless,
        _ => Speaks::All,
    };
    let fixture = Arc::new(Fixture::new(speaks));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if stdio {
        let streams = (tokio::io::stdin(), tokio::io::stdout());
        runtime.block_on(serve_stdio(fixture, streams.0, streams.1)).unwrap();
    } else {
        runtime.block_on(serve(fixture));
    }
    // A read of stdin that nobody can cancel must not hold the program.
    runtime.shutdown_background();
}

async fn serve(fixture: Arc<Fixture>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let door = Arc::new(HttpDoor::new(fixture, port, Limits::default()));
    println!("http://127.0.0.1:{port}/fixture/mcp");
    let accepting = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let _ = stream.set_nodelay(true);
            let door = Arc::clone(&door);
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| {
                    let door = Arc::clone(&door);
                    async move { Ok::<_, Infallible>(answer(&door, request).await) }
                });
                // Errors of a connection are its client's own.
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    };
    let mut input = tokio::io::stdin();
    let mut nothing = [0; 64];
    let ended = async { while input.read(&mut nothing).await.is_ok_and(|read| read > 0) {} };
    tokio::select! {
        () = accepting => {}
        () = ended => {}
    }
    door.close().await;
}

async fn answer(door: &HttpDoor, request: Request<Incoming>) -> Response<DoorBody> {
    match route(request.uri()).map(drop) {
        Ok(()) => door.handle(request).await,
        Err(refusal) => refusal.into_response(),
    }
}
