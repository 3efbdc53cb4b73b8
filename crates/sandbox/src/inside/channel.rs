//! Frames with descriptors over a Unix stream socket, between supervisor and init.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of the longest frame that is read.
const FRAME_MAX: usize = 16 << 20;

/// Descriptors that one frame may carry (the kernel's `SCM_MAX_FD`).
pub(crate) const FDS_MAX: usize = 253;

/// One end of the control channel.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// How long an answer may take; for ever without one.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub(crate) fn patience(&self, patience: Option<std::time::Duration>) -> io::Result<()> {
        use rustix::net::sockopt::{Timeout, set_socket_timeout};
        Ok(set_socket_timeout(&self.socket, Timeout::Recv, patience)?)
    }

    /// Sends one message, with descriptors.
    ///
    /// # Errors
    /// `EPIPE` when the other side is gone.
    pub(crate) fn send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = serde_json::to_vec(message).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut frame = length.to_ne_bytes().to_vec();
        frame.extend_from_slice(&body);
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut sent = 0;
        while sent < frame.len() {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if sent == 0 && !fds.is_empty() {
                let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
                if !pushed {
                    return Err(io::Error::from(io::ErrorKind::ArgumentListTooLong));
                }
            }
            let slices = [IoSlice::new(&frame[sent..])];
            match rustix::net::sendmsg(&self.socket, &slices, &mut control, SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives one message and the descriptors that came with it. `None` at the end.
    ///
    /// # Errors
    /// A frame that is cut, too long, or not what was expected.
    pub(crate) fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut fds = Vec::new();
        let mut length = [0; 4];
        if !self.fill(&mut length, &mut fds)? {
            return Ok(None);
        }
        let length = usize::try_from(u32::from_ne_bytes(length)).map_err(io::Error::other)?;
        if length > FRAME_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; length];
        if !self.fill(&mut body, &mut fds)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let message = serde_json::from_slice(&body).map_err(io::Error::other)?;
        Ok(Some((message, fds)))
    }

    /// Fills the buffer. `false` when the other side closed before the first byte.
    fn fill(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut filled = 0;
        while filled < buffer.len() {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut buffer[filled..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let received =
                match rustix::net::recvmsg(&self.socket, &mut slices, &mut control, flags) {
                    Ok(received) => received,
                    Err(rustix::io::Errno::INTR) => continue,
                    // A peer that died with bytes unread resets the stream: for us that is its end.
                    Err(rustix::io::Errno::CONNRESET) if filled == 0 => return Ok(false),
                    Err(error) => return Err(error.into()),
                };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(passed) = message {
                    fds.extend(passed);
                }
            }
            if received.flags.contains(ReturnFlags::CTRUNC) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match received.bytes {
                0 if filled == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(true)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
