//! The one tar header (POSIX ustar) that a member of given path, mode and size has.

use tar::{EntryType, Header};

/// Bytes of a block.
pub(super) const BLOCK: usize = 512;

/// Two empty blocks end a tar.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// The header; `None` when the path does not fit (155 and 100 bytes, split at a slash).
pub(super) fn header(path: &str, executable: bool, size: u64) -> Option<[u8; BLOCK]> {
    let mut header = Header::new_ustar();
    header.set_path(path).ok()?;
    header.set_mode(if executable { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_entry_type(EntryType::Regular);
    header.set_device_major(0).ok()?;
    header.set_device_minor(0).ok()?;
    if header.path_bytes().as_ref() != path.as_bytes() {
        return None;
    }
    let mut bytes = *header.as_bytes();
    // Six digits, a zero and a space, as tar has always had it.
    bytes[148..156].fill(b' ');
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    bytes[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    Some(bytes)
}

/// How many bytes of zeroes follow content of this size.
pub(super) fn padding(size: u64) -> usize {
    let over = usize::try_from(size % BLOCK as u64).expect("less than a block");
    (BLOCK - over) % BLOCK
}

/// What a header that is not the expected one is, in words for a person.
pub(super) fn describe(block: &[u8; BLOCK], expected: &[u8; BLOCK]) -> String {
    if block.iter().all(|byte| *byte == 0) {
        return "the archive ends: the member is missing".to_owned();
    }
    let header = Header::from_byte_slice(block);
    let kind = match block[156] {
        b'0' => None,
        0 => Some("a regular file in the spelling of an older format".to_owned()),
        b'1' => Some("a hard link".to_owned()),
        b'2' => Some("a symbolic link".to_owned()),
        b'3' => Some("a character device".to_owned()),
        b'4' => Some("a block device".to_owned()),
        b'5' => Some("a folder, which no archive lists".to_owned()),
        b'6' => Some("a named pipe".to_owned()),
        b'7' => Some("a contiguous file".to_owned()),
        b'g' | b'x' => Some("a pax header, which could change names and sizes".to_owned()),
        b'L' | b'K' => Some("a GNU long name".to_owned()),
        b'S' => Some("a sparse file".to_owned()),
        other => Some(format!("a member of the unknown type {other:#04x}")),
    };
    if let Some(kind) = kind {
        return format!("there is {kind}");
    }
    let wanted = Header::from_byte_slice(expected);
    if header.path_bytes() != wanted.path_bytes() {
        let path = String::from_utf8_lossy(&header.path_bytes()).into_owned();
        return format!("there is `{}`", super::member::cut(&path));
    }
    if header.mode().ok() != wanted.mode().ok() {
        return "there is another mode".to_owned();
    }
    if header.size().ok() != wanted.size().ok() {
        return "there is another size".to_owned();
    }
    "there is a header in another form: an owner, a time, a device, a checksum".to_owned()
}
