//! The server's end of a pair of byte streams, over any backend.

mod connection;
mod input;
mod output;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::strict::Limits;
use crate::{Backend, RpcError, code};

use connection::Connection;
use input::{Input, Line};

/// Lines that wait to be written; whoever has the next one waits.
const LINES: usize = 32;
/// How long what was in flight may take to end when the input has ended.
const ENDING: Duration = Duration::from_secs(5);

/// Serves a backend over stdio, in every revision, until the input ends: then what is in flight is
/// cancelled and what was said is written out. Messages are read as strictly as at a
/// [`crate::HttpDoor`], within the usual [`Limits`].
///
/// # Errors
/// When the output cannot be written.
pub async fn serve_stdio(
    backend: Arc<dyn Backend>,
    stdin: impl AsyncRead + Send + Unpin + 'static,
    stdout: impl AsyncWrite + Send + Unpin + 'static,
) -> std::io::Result<()> {
    let limits = Limits::default();
    let (lines, waiting) = mpsc::channel(LINES);
    // Both end with this future.
    let (mut writer, mut tasks) = (JoinSet::new(), JoinSet::new());
    writer.spawn(output::write(stdout, waiting));
    let connection = Arc::new(Connection::new(backend, lines));
    let mut input = Input::new(stdin, limits.bytes);
    let written = loop {
        let line = tokio::select! {
            line = input.next() => line,
            Some(_) = tasks.join_next() => continue,
            written = writer.join_next() => break written,
        };
        match line {
            Line::End => break None,
            Line::Whole if input.text().is_empty() => {}
            Line::Whole => connection.take(input.text(), limits, &mut tasks),
            Line::TooLong => {
                let words = format!("the message is larger than {} bytes", limits.bytes);
                connection.refuse(None, RpcError::new(code::PARSE, words), &mut tasks);
            }
        }
        if connection.is_overrun(&tasks) {
            break None;
        }
    };
    connection.end();
    let ended = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(ENDING, ended).await;
    tasks.shutdown().await;
    connection.ended();
    drop(connection);
    let written = match written {
        Some(written) => Some(written),
        None => tokio::time::timeout(ENDING, writer.join_next()).await.ok().flatten(),
    };
    match written {
        Some(Ok(written)) => written,
        Some(Err(error)) => Err(std::io::Error::other(error)),
        None => Err(std::io::ErrorKind::TimedOut.into()),
    }
}
