//! HTTP/2 to the proxy: the same verdicts, and the same bounds.

mod abuse;
mod exchanges;
mod same;
mod tunnels;

use std::future::poll_fn;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Method, Request, Response};
use tokio::time::timeout;

use crate::support::{PATIENCE, World};

/// A client's end of a connection that is driven meanwhile.
async fn client(world: &World) -> SendRequest<Bytes> {
    let mut builder = Builder::new();
    // A stream that is not read takes its own window, and leaves some of the connection's.
    builder.initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(world.connect().await).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender.ready().await.unwrap()
}

/// A request with the token.
fn request(world: &World, method: Method, uri: &str) -> http::request::Builder {
    let line = world.authorization();
    let value = line.trim_end().split_once(": ").unwrap().1.to_owned();
    Request::builder().method(method).uri(uri).header("proxy-authorization", value)
}

/// Sends a request; gives the answer and the sending side.
async fn send(
    sender: &mut SendRequest<Bytes>,
    request: Request<()>,
    ended: bool,
) -> Result<(Response<RecvStream>, SendStream<Bytes>), h2::Error> {
    *sender = sender.clone().ready().await?;
    let (answer, to) = sender.send_request(request, ended)?;
    Ok((timeout(PATIENCE, answer).await.expect("an answer in time")?, to))
}

/// A tunnel's two directions.
async fn tunnel(
    world: &World,
    sender: &mut SendRequest<Bytes>,
    to: &str,
) -> (RecvStream, SendStream<Bytes>) {
    let connect = request(world, Method::CONNECT, to).body(()).unwrap();
    let (answer, to) = send(sender, connect, false).await.unwrap();
    assert_eq!(answer.status(), 200);
    (answer.into_body(), to)
}

/// What comes, to its end or to a reset.
async fn read(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    let reading = async {
        while let Some(data) = body.data().await {
            let data = data?;
            all.extend_from_slice(&data);
            let _ = body.flow_control().release_capacity(data.len());
        }
        Ok::<(), h2::Error>(())
    };
    timeout(PATIENCE, reading).await.expect("an end in time")?;
    Ok(all)
}

/// Waits for the client's stream to be reset, and says why.
async fn reset(to: &mut SendStream<Bytes>) -> h2::Reason {
    timeout(PATIENCE, poll_fn(|context| to.poll_reset(context))).await.expect("in time").unwrap()
}
