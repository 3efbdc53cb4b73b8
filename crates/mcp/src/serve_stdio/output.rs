//! One writer, which many tasks feed.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::sync::mpsc;

/// How long the client may read nothing before it is given up.
const UNREAD: Duration = Duration::from_secs(120);

/// Writes lines until nobody has any more. Ends early when the client does not read.
pub(super) async fn write(
    output: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Bytes>,
) -> std::io::Result<()> {
    let mut output = BufWriter::new(output);
    while let Some(line) = lines.recv().await {
        let written = async {
            output.write_all(&line).await?;
            output.write_all(b"\n").await?;
            while let Ok(line) = lines.try_recv() {
                output.write_all(&line).await?;
                output.write_all(b"\n").await?;
            }
            output.flush().await
        };
        tokio::time::timeout(UNREAD, written)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
    }
    output.shutdown().await
}
