//! A request's body: taken off the client's connection piece by piece, and handed upstream.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::head::Framing;

/// Largest piece that is handed on at a time.
pub(crate) const PIECE: usize = 16 * 1024;
/// Longest chunk-size line, its line end included: 15 hexadecimal digits.
const SIZE_LINE: usize = 17;

/// Why a body could not be taken to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// Not in chunks as RFC 9112, section 7.1, has them; extensions and trailers, which nothing
    /// needs, are refused with the rest.
    #[error("the body is not in plain chunks")]
    Chunks,
    /// The client went away in the middle.
    #[error("the body ended early")]
    Cut,
}

/// What stands at the front of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(Bytes),
    /// More must be read first.
    More,
    End,
}

/// Finds the end of a body.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// So many bytes are left.
    Left(u64),
    /// A chunk's size line comes next.
    Size,
    /// So many bytes of a chunk are left.
    Chunk(u64),
    /// The line end behind a chunk comes next; true behind the last one.
    LineEnd(bool),
    Done,
}

impl Decoder {
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Empty => Self::Done,
            Framing::Length(length) => Self::Left(length),
            Framing::Chunked => Self::Size,
        }
    }

    /// Takes the next piece off the buffer.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, BodyError> {
        loop {
            match self {
                Self::Done => return Ok(Piece::End),
                Self::Left(0) => *self = Self::Done,
                Self::Chunk(0) => *self = Self::LineEnd(false),
                Self::Left(left) | Self::Chunk(left) => {
                    if buffer.is_empty() {
                        return Ok(Piece::More);
                    }
                    let limit = usize::try_from(*left).unwrap_or(usize::MAX).min(PIECE);
                    let data = buffer.split_to(limit.min(buffer.len())).freeze();
                    *left -= data.len() as u64;
                    return Ok(Piece::Data(data));
                }
                Self::Size => {
                    let line = &buffer[..buffer.len().min(SIZE_LINE)];
                    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
                        return if line.len() < SIZE_LINE {
                            Ok(Piece::More)
                        } else {
                            Err(BodyError::Chunks)
                        };
                    };
                    let size = chunk_size(&line[..end]).ok_or(BodyError::Chunks)?;
                    buffer.advance(end + 1);
                    *self = if size == 0 { Self::LineEnd(true) } else { Self::Chunk(size) };
                }
                Self::LineEnd(last) => {
                    let last = *last;
                    if buffer.len() < 2 {
                        return Ok(Piece::More);
                    }
                    if !buffer.starts_with(b"\r\n") {
                        return Err(BodyError::Chunks);
                    }
                    buffer.advance(2);
                    *self = if last { Self::Done } else { Self::Size };
                }
            }
        }
    }
}

/// Hexadecimal digits and a carriage return.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.strip_suffix(b"\r")?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The sending end of an [`UploadBody`].
pub(crate) type Feed = mpsc::Sender<Fed>;

/// What is fed to an [`UploadBody`].
#[derive(Debug)]
pub(crate) enum Fed {
    Data(Bytes),
    /// The body is whole. A feed that is dropped without this has failed.
    End,
}

/// A body that another part of the same task feeds. One piece waits at most.
#[derive(Debug)]
pub(crate) struct UploadBody {
    pieces: mpsc::Receiver<Fed>,
    length: Option<u64>,
    ended: bool,
}

impl UploadBody {
    pub(crate) fn new(framing: Framing) -> (Feed, Self) {
        let (feed, pieces) = mpsc::channel(1);
        let (length, ended) = match framing {
            Framing::Empty | Framing::Length(0) => (Some(0), true),
            Framing::Length(length) => (Some(length), false),
            Framing::Chunked => (None, false),
        };
        (feed, Self { pieces, length, ended })
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(context).map(|fed| match fed {
            Some(Fed::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Fed::End) => {
                self.ended = true;
                None
            }
            None => Some(Err(BodyError::Cut)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests;
