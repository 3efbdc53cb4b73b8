//! What client and server say to each other in a tunnel: the first flight of TLS, and then plain bytes,
//! so that the proxies are measured and not a cipher.

/// The host that is asked for.
pub(super) const HOST: &str = "api.example.com";
/// What the server answers a hello with: an alert of TLS that only warns.
pub(super) const ANSWER: [u8; 7] = [21, 3, 3, 0, 2, 1, 0];
/// Orders behind the hello: send bytes for ever, or nothing.
pub(super) const FLOOD: u8 = b'f';
pub(super) const HOLD: u8 = b'h';

/// A ClientHello that names the host (RFC 8446, section 4.1.2).
pub(super) fn hello() -> Vec<u8> {
    let pair = |value: usize| u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes();
    let name = [&[0][..], &pair(HOST.len()), HOST.as_bytes()].concat();
    let names = [&pair(name.len())[..], &name].concat();
    let extension = [&[0, 0][..], &pair(names.len()), &names].concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(pair(extension.len()));
    body.extend(extension);
    let message = [&[1, 0][..], &pair(body.len()), &body].concat();
    [&[22, 3, 1][..], &pair(message.len()), &message].concat()
}
