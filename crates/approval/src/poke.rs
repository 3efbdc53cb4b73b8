//! An answer in another process wakes the run that waits: it writes a byte into the run's pipe in the
//! machine's folder, which nothing in a sandbox can reach.

use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use tokio::net::unix::pipe;

use crate::Error;

/// Where the pipes are.
fn file(home: &Path, run: &str) -> PathBuf {
    home.join("approvals").join(run)
}

/// A run's own pipe. Its name goes with it.
pub(crate) struct Ear {
    file: PathBuf,
    pipe: pipe::Receiver,
}

impl Ear {
    /// Makes the pipe and listens.
    pub(crate) fn new(home: &Path, run: &str) -> Result<Self, Error> {
        let file = file(home, run);
        let io = |source| Error::Io { path: file.clone(), source };
        let folder = file.parent().unwrap_or(home);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        rustix::fs::mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(|errno| io(errno.into()))?;
        // Open for writing too: it does not end when whoever answered closes it.
        match pipe::OpenOptions::new().read_write(true).open_receiver(&file) {
            Ok(pipe) => Ok(Self { file, pipe }),
            Err(source) => {
                let _ = std::fs::remove_file(&file);
                Err(Error::Io { path: file, source })
            }
        }
    }

    /// Waits for the next byte.
    pub(crate) async fn hear(&self) {
        let mut bytes = [0_u8; 4096];
        loop {
            if self.pipe.readable().await.is_err() {
                // The slow look goes on without it.
                return std::future::pending().await;
            }
            match self.pipe.try_read(&mut bytes) {
                Ok(read) if read > 0 => return,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return std::future::pending().await,
            }
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Wakes a run of this machine. Of another's there is no pipe here: it looks by itself.
pub(crate) fn wake(home: &Path, run: &str) {
    // A run's id is one path component; what a database says is believed no further.
    if run.contains(['/', '\0']) || run.starts_with('.') {
        return;
    }
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened =
        File::options().write(true).custom_flags(flags.bits().cast_signed()).open(file(home, run));
    // Nobody listens, or it is full: then the run wakes anyway, or is gone.
    if let Ok(mut pipe) = opened
        && pipe.metadata().is_ok_and(|meta| meta.file_type().is_fifo())
    {
        let _ = pipe.write(&[1]);
    }
}
