//! Exactly one zstd frame (RFC 8878), read in bounded memory, and nothing after it.

use std::io::{self, Read};

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};
use zstd::zstd_safe::DParameter;

use super::Fault;

/// A frame's window is at most 8 MiB: what a reader keeps in memory.
const WINDOW_LOG: u32 = 23;

/// How a frame begins (RFC 8878, 3.1.1). Skippable frames and older formats begin otherwise.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Reads what one frame holds.
pub(super) struct Frame<R> {
    input: R,
    decoder: Decoder<'static>,
    /// Compressed bytes that were read and not yet taken.
    held: Vec<u8>,
    taken: usize,
    ended: bool,
    begun: bool,
}

impl<R: Read> Frame<R> {
    pub(super) fn new(input: R) -> Result<Self, Fault> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        Ok(Self { input, decoder, held: Vec::new(), taken: 0, ended: false, begun: false })
    }

    /// Fills the buffer as far as the frame reaches.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut filled = 0;
        while filled < buffer.len() && !self.ended {
            if self.taken == self.held.len() && !self.refill()? {
                return Err(Fault::Frame("it is cut off".to_owned()));
            }
            let mut input = InBuffer::around(&self.held[self.taken..]);
            let mut output = OutBuffer::around(&mut buffer[filled..]);
            let hint = self.decoder.run(&mut input, &mut output);
            let hint = hint.map_err(|error| Fault::Frame(error.to_string()))?;
            self.taken += input.pos();
            filled += output.pos();
            self.ended = hint == 0;
        }
        Ok(filled)
    }

    /// The frame must have ended, and the input with it.
    pub(super) fn finish(mut self) -> Result<(), Fault> {
        let mut more = [0; 1];
        if self.read(&mut more)? > 0 {
            return Err(Fault::Trailing("something follows the end of the archive".to_owned()));
        }
        if self.taken < self.held.len() || self.refill()? {
            let what = "something follows the compressed frame";
            return Err(Fault::Trailing(what.to_owned()));
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<bool, Fault> {
        self.held.resize(1 << 16, 0);
        let mut length = 0;
        while length < self.held.len() {
            match self.input.read(&mut self.held[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.held.truncate(length);
        self.taken = 0;
        if !self.begun && length > 0 {
            if !self.held.starts_with(&MAGIC) {
                return Err(Fault::Frame("it does not begin like one".to_owned()));
            }
            self.begun = true;
        }
        Ok(length > 0)
    }
}
