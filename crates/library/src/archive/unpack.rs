//! Reading an archive into an empty folder: each member is compared with the attestation while it is
//! written, and the first difference ends it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use ringfence_identity::Did;
use sha2::{Digest as _, Sha256};

use super::Fault;
use super::attest::{ATTESTATION, About, MAX_ATTESTATION, MAX_TOTAL, Row, read_attestation};
use super::frame::Frame;
use super::header::{BLOCK, END, describe, header, padding};
use super::member::cut;
use crate::sign::hex;

/// An archive whose members lie in a folder, each as its attestation says.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// Whose signature is on it.
    pub(crate) by: Did,
    /// What it states.
    pub(crate) about: About,
    /// SHA-256 of the archive itself.
    pub(crate) sha256: String,
}

/// Reads a whole archive into a folder that is there and empty. When it fails, what was written is
/// the caller's to remove.
pub(crate) fn unpack(input: impl Read, folder: &Path) -> Result<Unpacked, Fault> {
    let mut hash = Sha256::new();
    let bounded = input.take(2 * MAX_TOTAL);
    let mut frame = Frame::new(Hashing { input: bounded, hash: &mut hash })?;
    let bytes = attestation(&mut frame)?;
    let (signed, about) = read_attestation(&bytes)?;
    put(&folder.join(ATTESTATION), false, |file| Ok(file.write_all(&bytes)?))?;
    for row in &about.members {
        member(&mut frame, row, folder)?;
    }
    let mut end = [1; END.len()];
    let found = frame.read(&mut end)?;
    if end[..found].iter().any(|byte| *byte != 0) {
        let begin = String::from_utf8_lossy(&end[..100.min(found)]).into_owned();
        let name = cut(begin.trim_end_matches('\0'));
        return Err(Fault::Trailing(format!("`{name}` is not in the attestation")));
    }
    if found < end.len() {
        return Err(Fault::Short("its last blocks".to_owned()));
    }
    frame.finish()?;
    sync(folder)?;
    Ok(Unpacked { by: signed.by().clone(), about, sha256: hex(&hash.finalize()) })
}

fn attestation(frame: &mut Frame<impl Read>) -> Result<Vec<u8>, Fault> {
    let mut block = [0; BLOCK];
    if frame.read(&mut block)? < BLOCK {
        return Err(Fault::Short(ATTESTATION.to_owned()));
    }
    let size = tar::Header::from_byte_slice(&block).entry_size().unwrap_or(u64::MAX);
    if size > MAX_ATTESTATION as u64 {
        return Err(Fault::First("it has more than 32 MiB, or no size".to_owned()));
    }
    let expected = header(ATTESTATION, false, size).expect("a short path fits");
    if block != expected {
        return Err(Fault::First(describe(&block, &expected)));
    }
    let mut bytes = Vec::new();
    content(frame, ATTESTATION, size, |part| {
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    Ok(bytes)
}

fn member(frame: &mut Frame<impl Read>, row: &Row, folder: &Path) -> Result<(), Fault> {
    let Some(expected) = header(&row.path, row.executable, row.size) else {
        let reason = "its path does not fit a tar header".to_owned();
        return Err(Fault::Member { path: cut(&row.path), reason });
    };
    let mut block = [0; BLOCK];
    if frame.read(&mut block)? < BLOCK {
        return Err(Fault::Short(cut(&row.path)));
    }
    if block != expected {
        let found = describe(&block, &expected);
        return Err(Fault::Header { path: cut(&row.path), found });
    }
    let path = folder.join(&row.path);
    let parent = path.parent().unwrap_or(folder);
    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let mut hash = Sha256::new();
    put(&path, row.executable, |file| {
        content(frame, &row.path, row.size, |part| {
            hash.update(part);
            Ok(file.write_all(part)?)
        })
    })?;
    if hex(&hash.finalize()) == row.sha256 { Ok(()) } else { Err(Fault::Bytes(cut(&row.path))) }
}

/// Hands out `size` bytes and takes the zeroes after them.
fn content(
    frame: &mut Frame<impl Read>,
    path: &str,
    size: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut buffer = vec![0; 1 << 16];
    let mut left = size;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let found = frame.read(&mut buffer[..most])?;
        if found == 0 {
            return Err(Fault::Short(cut(path)));
        }
        take(&buffer[..found])?;
        left -= found as u64;
    }
    let zeroes = padding(size);
    let found = frame.read(&mut buffer[..zeroes])?;
    if found < zeroes {
        return Err(Fault::Short(cut(path)));
    }
    if buffer[..zeroes].iter().any(|byte| *byte != 0) {
        return Err(Fault::Trailing(format!("bytes stand after the end of `{}`", cut(path))));
    }
    Ok(())
}

/// A new file for the owner alone, synced.
fn put(
    path: &Path,
    executable: bool,
    fill: impl FnOnce(&mut File) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mode = if executable { 0o700 } else { 0o600 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    fill(&mut file)?;
    Ok(file.sync_all()?)
}

/// Folders below, then the folder itself.
fn sync(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Hashes what is read.
struct Hashing<'h, R> {
    input: R,
    hash: &'h mut Sha256,
}

impl<R: Read> Read for Hashing<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.hash.update(&buffer[..length]);
        Ok(length)
    }
}
