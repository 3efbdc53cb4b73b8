//! Waiting for a descriptor within the async runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor for being readable.
///
/// # Errors
/// What epoll says.
///
/// # Panics
/// Outside of a tokio runtime with its I/O driver on.
pub(crate) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the AsyncFd, stays open as long as that lives, and
    // `OwnedFd::as_raw_fd` gives the same number each time.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}
