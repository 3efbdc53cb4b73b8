//! What a server says on stderr: kept in the run's folder, without the secrets that the server has.
//!
//! A server that prints its environment when it fails is an ordinary one, and the file outlives the
//! run. So it writes into a pipe, and what comes out is scrubbed before it is kept.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ringfence_secrets::Scrubber;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use zeroize::Zeroizing;

/// Bytes that are kept of one server.
const MOST: usize = 16 << 20;
/// Bytes that are scrubbed at once, where no line ends.
const CHUNK: usize = 64 * 1024;
/// Bytes that are read at once.
const PIECE: usize = 4096;

/// The end that a server is given. It must live until the server has its own copy.
pub(crate) struct Mouth(OwnedFd);

impl Mouth {
    /// A path by which this process can open it.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// The other end, and where it goes.
struct Kept {
    pipe: Receiver,
    file: File,
    scrubber: Scrubber,
    held: Zeroizing<Vec<u8>>,
    left: usize,
}

/// That everything is kept: every copy of the [`Mouth`] was closed.
#[derive(Clone)]
pub(crate) struct Whole(watch::Receiver<()>);

impl Whole {
    /// Waits for that.
    pub(crate) async fn wait(mut self) {
        // Nothing is ever sent: the other end goes.
        while self.0.changed().await.is_ok() {}
    }
}

/// Keeps what is said until every copy of the [`Mouth`] is closed, or the runtime ends.
pub(crate) fn keep(path: &Path, scrubber: Scrubber) -> std::io::Result<(Mouth, Whole)> {
    let (pipe, mouth) = pipe_with(PipeFlags::CLOEXEC)?;
    let pipe = Receiver::from_owned_fd(pipe)?;
    let file = File::options().append(true).create(true).mode(0o600).open(path)?;
    let held = Zeroizing::new(Vec::with_capacity(2 * CHUNK));
    let mut kept = Kept { pipe, file, scrubber, held, left: MOST };
    let (working, whole) = watch::channel(());
    tokio::spawn(async move {
        while kept.pipe.readable().await.is_ok() {
            let mut piece = Zeroizing::new([0; PIECE]);
            match kept.pipe.try_read(&mut *piece) {
                Ok(0) => break,
                Ok(read) => kept.add(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        drop(kept);
        drop(working);
    });
    Ok((Mouth(mouth), Whole(whole)))
}

impl Kept {
    /// Whole lines are kept at once, so that a person can follow them.
    fn add(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
        if self.held.ends_with(b"\n") || self.held.len() >= CHUNK {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let clean = self.scrubber.bytes(&self.held);
        let some = &clean[..clean.len().min(self.left)];
        // Where it cannot be written it is lost; the run does not depend on it.
        let _ = self.file.write_all(some);
        self.left -= some.len();
        self.held.clear();
    }
}

impl Drop for Kept {
    /// What was said last, when the run ends before it was read.
    fn drop(&mut self) {
        let mut piece = Zeroizing::new([0; PIECE]);
        // As much as a pipe holds.
        for _ in 0..256 {
            match rustix::io::read(&self.pipe, &mut *piece) {
                Ok(read) if read > 0 => self.add(&piece[..read]),
                _ => break,
            }
        }
        self.flush();
    }
}
