//! Key files: read with every check on the opened descriptor, made so that two makers agree.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, KeypairBytes};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::Error;
use crate::folder::{check_owner_and_mode, io_at, unsafe_path};

/// The file of an identity's key, in its folder.
pub(crate) const NAME: &str = "key.pem";

/// A PKCS#8 PEM file of one Ed25519 key has about 120 bytes, with its public part 170.
const MAX_BYTES: u64 = 4096;

/// Reads a key file of an opened folder. `Ok(None)` when there is none.
pub(crate) fn load(folder: &OwnedFd, path: &Path, name: &str) -> Result<Option<SigningKey>, Error> {
    let path = &path.join(name);
    // NONBLOCK so that a pipe put there cannot hold us; it is refused below.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(unsafe_path(path, "is a symlink, which is not followed")),
        Err(errno) => return Err(io_at(path, errno.into())),
    };
    let stat = fs::fstat(&file).map_err(|errno| io_at(path, errno.into()))?;
    if !fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(unsafe_path(path, "is not a regular file"));
    }
    check_owner_and_mode(path, &file, Mode::RWXG | Mode::RWXO, "chmod 600")?;

    let mut text = Zeroizing::new(String::with_capacity(4096));
    let malformed = || Error::Malformed { path: path.clone() };
    match File::from(file).take(MAX_BYTES).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Err(malformed()),
        Err(error) => return Err(io_at(path, error)),
    }
    SigningKey::from_pkcs8_pem(&text).map(Some).map_err(|_| malformed())
}

/// Makes a key file in an opened folder unless one is there, and says whether it did. Whoever is first wins: the file appears
/// whole and synced under its name or not at all, and nothing is ever replaced.
pub(crate) fn make(folder: &OwnedFd, path: &Path, name: &str) -> Result<bool, Error> {
    let mut seed = Zeroizing::new([0_u8; 32]);
    getrandom::fill(seed.as_mut())
        .map_err(|error| io_at(path, std::io::Error::other(error.to_string())))?;
    let target = path.join(name);
    // Without the public part (RFC 5958 version 1): OpenSSL 3.0 reads no other.
    let key = KeypairBytes { secret_key: *seed, public_key: None };
    let text =
        key.to_pkcs8_pem(LineEnding::LF).map_err(|_| Error::Malformed { path: target.clone() })?;

    let (temporary, file) = temporary(folder, &target)?;
    let result = write(file, &text).and_then(|()| publish(folder, &temporary, name));
    if result.is_err() {
        // Best effort: the name is random and the content is nobody's key.
        let _ = fs::unlinkat(folder, &temporary, AtFlags::empty());
    }
    match result {
        Ok(()) => fs::fsync(folder).map(|()| true).map_err(|errno| io_at(path, errno.into())),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(io_at(&target, error)),
    }
}

fn temporary(folder: &OwnedFd, target: &Path) -> Result<(PathBuf, OwnedFd), Error> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random)
        .map_err(|error| io_at(target, std::io::Error::other(error.to_string())))?;
    let name = PathBuf::from(format!(".key-{:016x}", u64::from_le_bytes(random)));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(folder, &name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| io_at(target, errno.into()))?;
    Ok((name, file))
}

fn write(file: OwnedFd, text: &str) -> std::io::Result<()> {
    let mut file = File::from(file);
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn publish(folder: &OwnedFd, temporary: &Path, name: &str) -> std::io::Result<()> {
    match fs::renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
        // Some file systems know no rename without replacing; a hard link refuses just as well.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs::linkat(folder, temporary, folder, name, AtFlags::empty())?;
            fs::unlinkat(folder, temporary, AtFlags::empty())?;
            Ok(())
        }
        other => Ok(other?),
    }
}
