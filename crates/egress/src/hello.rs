//! A strict reader of the TLS ClientHello, fed as bytes arrive. Pure.
//!
//! It answers one question: which host does this hello name? It follows RFC 8446 (sections 4.1.2 and
//! 5.1) and RFC 6066 (section 3), takes the legacy versions too, and refuses what two readers could
//! understand in two ways.

use ringfence_bundle::Host;

/// Most bytes that are read for one hello, record headers included.
const MAX_HELLO: usize = 64 * 1024;

const RECORD_HEADER: usize = 5;
const RECORD_CHANGE_CIPHER: u8 = 20;
const RECORD_HANDSHAKE: u8 = 22;
const RECORD_DATA: u8 = 23;
/// Longest plaintext fragment of a record (RFC 8446, section 5.1).
const RECORD_MAX: usize = 1 << 14;
/// By how much encryption may make it longer (section 5.2).
const RECORD_EXPANSION: usize = 256;
/// Some sixty extensions are known; a hello of 64 KiB could hold 16,000 empty ones.
const MAX_EXTENSIONS: usize = 256;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const MESSAGE_SERVER_HELLO: u8 = 2;
const EXTENSION_SERVER_NAME: u16 = 0;

/// What a whole hello says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The server name, when there is one.
    pub sni: Option<Host>,
    /// An encrypted hello is inside (RFC 9849; drafts and their forerunner ESNI as well), so that the
    /// name outside means nothing. A decoy of the same form (GREASE) cannot be told apart.
    pub ech: bool,
}

/// How far the reader is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    NeedMore,
    /// The hello is whole. It ends at a record's end.
    Hello(Hello),
    /// The bytes are not TLS.
    NotTls,
    /// They look like TLS and are not a well-formed hello.
    Malformed(&'static str),
}

/// Reads one ClientHello out of any number of records and segments.
#[derive(Debug, Default)]
pub struct HelloReader {
    held: Vec<u8>,
    /// Where the next record begins in `held`.
    next: usize,
    /// The handshake message so far.
    message: Vec<u8>,
    /// Records of these types are passed over before the hello begins.
    passed_over: &'static [u8],
}

impl HelloReader {
    /// A reader that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader for the hello that answers a HelloRetryRequest. A change of cipher for old middleboxes
    /// and early data that the server has declined may stand before it (RFC 8446, sections 4.2.10 and
    /// D.4).
    #[must_use]
    pub fn after_retry() -> Self {
        Self { passed_over: &[RECORD_CHANGE_CIPHER, RECORD_DATA], ..Self::default() }
    }

    /// Takes bytes as they came and says how far it is. After anything but
    /// [`Progress::NeedMore`] the answer is final.
    pub fn push(&mut self, bytes: &[u8]) -> Progress {
        self.held.extend_from_slice(bytes);
        match self.advance() {
            Ok(Some(hello)) => Progress::Hello(hello),
            Ok(None) if self.held.len() > MAX_HELLO => {
                Progress::Malformed("the hello is longer than 64 KiB")
            }
            Ok(None) => Progress::NeedMore,
            Err(Flaw::NotTls) => Progress::NotTls,
            Err(Flaw::Malformed(reason)) => Progress::Malformed(reason),
        }
    }

    /// The bytes that were pushed, unchanged: those up to the end of what was read, and those behind.
    #[must_use]
    pub fn into_parts(mut self) -> (Vec<u8>, Vec<u8>) {
        let behind = self.held.split_off(self.next);
        (self.held, behind)
    }

    fn advance(&mut self) -> Result<Option<Hello>, Flaw> {
        loop {
            let record = &self.held[self.next..];
            let passed_over = self.message.is_empty()
                && record.first().is_some_and(|kind| self.passed_over.contains(kind));
            check_record_start(record, passed_over, self.next == 0)?;
            let Some((header, body)) = record.split_at_checked(RECORD_HEADER) else {
                return Ok(None);
            };
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            let longest = if passed_over { RECORD_MAX + RECORD_EXPANSION } else { RECORD_MAX };
            if length == 0 || length > longest {
                return Err(Flaw::Malformed("a record's length is out of range"));
            }
            let Some(fragment) = body.get(..length) else { return Ok(None) };
            self.next += RECORD_HEADER + length;
            if passed_over {
                continue;
            }
            self.message.extend_from_slice(fragment);
            if let Some(hello) = whole(&self.message)? {
                return Ok(Some(hello));
            }
        }
    }
}

/// Whether a server's first bytes are a HelloRetryRequest, which the client answers with a second
/// ClientHello in the clear. `None` when more bytes are needed. A HelloRetryRequest is a ServerHello
/// with one fixed random value (RFC 8446, section 4.1.3).
#[must_use]
pub fn asks_for_retry(bytes: &[u8]) -> Option<bool> {
    // Type, version and length of the record, type and length of the message, version, random.
    let fixed = [(0, RECORD_HANDSHAKE), (1, 3), (5, MESSAGE_SERVER_HELLO)];
    let random = RETRY_RANDOM.iter().enumerate().map(|(at, byte)| (11 + at, *byte));
    for (at, want) in fixed.into_iter().chain(random) {
        match bytes.get(at) {
            Some(byte) if *byte == want => {}
            Some(_) => return Some(false),
            None => return None,
        }
    }
    Some(true)
}

/// SHA-256 of `HelloRetryRequest`.
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Why bytes are not a hello.
#[derive(Debug, Clone, Copy)]
enum Flaw {
    NotTls,
    Malformed(&'static str),
}

/// Judges a record's type and version as soon as their bytes are there.
fn check_record_start(record: &[u8], passed_over: bool, first: bool) -> Result<(), Flaw> {
    let kind_ok = passed_over || record.first().is_none_or(|&kind| kind == RECORD_HANDSHAKE);
    let version_ok = record.get(1).is_none_or(|&major| major == 3)
        && record.get(2).is_none_or(|&minor| minor <= 4);
    match (kind_ok && version_ok, first) {
        (true, _) => Ok(()),
        (false, true) => Err(Flaw::NotTls),
        (false, false) => Err(Flaw::Malformed("another record stands inside the hello")),
    }
}

/// The hello, once the handshake message is whole.
fn whole(message: &[u8]) -> Result<Option<Hello>, Flaw> {
    if message.first().is_some_and(|&kind| kind != MESSAGE_CLIENT_HELLO) {
        return Err(Flaw::Malformed("the first message is not a ClientHello"));
    }
    let Some((header, body)) = message.split_at_checked(4) else { return Ok(None) };
    let length =
        usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
    if length > MAX_HELLO {
        return Err(Flaw::Malformed("the hello is longer than 64 KiB"));
    }
    match body.len().cmp(&length) {
        std::cmp::Ordering::Less => Ok(None),
        std::cmp::Ordering::Equal => client_hello(body).map(Some),
        std::cmp::Ordering::Greater => Err(Flaw::Malformed("bytes follow the hello in its record")),
    }
}

fn client_hello(body: &[u8]) -> Result<Hello, Flaw> {
    let mut fields = Fields(body);
    if fields.take(2)?[0] != 3 {
        return Err(Flaw::Malformed("the version is not one of TLS"));
    }
    fields.take(32)?;
    if fields.vector8()?.len() > 32 {
        return Err(Flaw::Malformed("the session id is too long"));
    }
    let suites = fields.vector16()?;
    if suites.is_empty() || suites.len() % 2 != 0 {
        return Err(Flaw::Malformed("the cipher suites are not a list of pairs"));
    }
    if fields.vector8()?.is_empty() {
        return Err(Flaw::Malformed("there is no compression method"));
    }
    let mut hello = Hello { sni: None, ech: false };
    if fields.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Fields(fields.vector16()?);
    fields.end("bytes follow the extensions")?;
    let mut seen = Vec::new();
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let value = extensions.vector16()?;
        if seen.len() == MAX_EXTENSIONS {
            return Err(Flaw::Malformed("there are more than 256 extensions"));
        }
        if seen.contains(&kind) {
            return Err(Flaw::Malformed("an extension stands there twice"));
        }
        seen.push(kind);
        if kind == EXTENSION_SERVER_NAME {
            hello.sni = Some(server_name(value)?);
        }
        hello.ech |= is_encrypted_hello(kind);
    }
    Ok(hello)
}

/// `encrypted_client_hello`, its inner helper `ech_outer_extensions`, the code points of its drafts,
/// and `encrypted_server_name` before it.
fn is_encrypted_hello(kind: u16) -> bool {
    matches!(kind, 0xfe02 | 0xfe03 | 0xfe08..=0xfe0d | 0xfd00 | 0xffce)
}

/// One `host_name` and nothing else (RFC 6066, section 3): no address, no trailing dot.
fn server_name(value: &[u8]) -> Result<Host, Flaw> {
    const BAD: Flaw = Flaw::Malformed("the server name is not a DNS name");
    let mut value = Fields(value);
    let mut list = Fields(value.vector16()?);
    value.end("bytes follow the server name list")?;
    if list.take(1)?[0] != 0 {
        return Err(Flaw::Malformed("the server name is of an unknown type"));
    }
    let name = list.vector16()?;
    list.end("more than one server name is given")?;
    let name = std::str::from_utf8(name).ok().filter(|name| name.is_ascii()).ok_or(BAD)?;
    if name.ends_with('.') {
        return Err(BAD);
    }
    match Host::parse(name) {
        Ok(host @ Host::Name(_)) => Ok(host),
        _ => Err(BAD),
    }
}

/// What is left to read of a structure.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Flaw> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Flaw::Malformed("a length reaches past the end"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number16(&mut self) -> Result<u16, Flaw> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector8(&mut self) -> Result<&'a [u8], Flaw> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    fn vector16(&mut self) -> Result<&'a [u8], Flaw> {
        let length = self.number16()?;
        self.take(length.into())
    }

    fn end(&self, otherwise: &'static str) -> Result<(), Flaw> {
        if self.0.is_empty() { Ok(()) } else { Err(Flaw::Malformed(otherwise)) }
    }
}

#[cfg(test)]
mod tests;
