//! Lines, each bounded.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// In [`Input::text`].
    Whole,
    /// Longer than it may be; all of it was skipped.
    TooLong,
    End,
}

pub(super) struct Input<R> {
    read: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
    skipping: bool,
    /// The line was handed out.
    taken: bool,
}

impl<R: AsyncRead + Unpin> Input<R> {
    pub(super) fn new(read: R, limit: usize) -> Self {
        let read = BufReader::new(read);
        Self { read, limit, line: Vec::new(), skipping: false, taken: false }
    }

    /// The line that was read, without its end.
    pub(super) fn text(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// Reads on until there is a whole line. Dropping the future loses nothing. What stands after
    /// the last line break is no line.
    pub(super) async fn next(&mut self) -> Line {
        if std::mem::take(&mut self.taken) {
            self.line.clear();
            self.line.shrink_to(64 * 1024);
        }
        loop {
            // A pipe that breaks is as good as closed.
            let available = self.read.fill_buf().await.unwrap_or_default();
            if available.is_empty() {
                return Line::End;
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let take = newline.map_or(available.len(), |at| at + 1);
            if self.line.len() + take > self.limit + 1 {
                self.skipping = true;
                self.line.clear();
            }
            if !self.skipping {
                self.line.extend_from_slice(&available[..take]);
            }
            self.read.consume(take);
            if newline.is_some() {
                self.taken = true;
                let long = std::mem::take(&mut self.skipping);
                return if long { Line::TooLong } else { Line::Whole };
            }
        }
    }
}
