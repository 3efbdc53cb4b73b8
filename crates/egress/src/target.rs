//! Where a request wants to go: an authority or an absolute `http://` URI, parsed strictly.

use ringfence_bundle::Host;

/// Why a target was refused. Says nothing of what was given, which may be hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TargetError(pub(crate) &'static str);

/// A host and a port, both explicit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl Authority {
    /// Parses `host:port` (RFC 9112, section 3.2.3). Userinfo, a path, percent-encoding, a zone and
    /// anything but visible ASCII are refused; without a port `default` is meant, and where there is
    /// no default the port is required.
    pub(crate) fn parse(text: &str, default: Option<u16>) -> Result<Self, TargetError> {
        for byte in text.bytes() {
            match byte {
                b'@' => return Err(TargetError("user information is not allowed before the host")),
                b'%' => return Err(TargetError("percent-encoding and zones are not allowed")),
                b'/' | b'\\' | b'?' | b'#' => {
                    return Err(TargetError("only a host and a port are allowed here"));
                }
                0x21..=0x7e => {}
                _ => return Err(TargetError("only visible ASCII is allowed in a host")),
            }
        }
        let after_host = match text.strip_prefix('[') {
            Some(rest) => {
                2 + rest.find(']').ok_or(TargetError("the bracket of the address is not closed"))?
            }
            None => text.find(':').unwrap_or(text.len()),
        };
        let (host, rest) = text.split_at(after_host);
        let port = match (rest.strip_prefix(':'), default) {
            (Some(digits), _) => port(digits)?,
            (None, Some(default)) if rest.is_empty() => default,
            (None, None) if rest.is_empty() => return Err(TargetError("the port is missing")),
            (None, _) => return Err(TargetError("something stands between the host and the port")),
        };
        let host = Host::parse(host).map_err(|error| TargetError(error.reason))?;
        Ok(Self { host, port })
    }
}

/// One to five digits without a leading zero, 1 to 65535.
fn port(digits: &str) -> Result<u16, TargetError> {
    const BAD: TargetError = TargetError("the port is not a number from 1 to 65535");
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || digits.starts_with('0') {
        return Err(BAD);
    }
    digits.parse().map_err(|_| BAD)
}

/// Splits an absolute `http://` URI into its authority and the origin form that goes upstream.
pub(crate) fn absolute(target: &str) -> Result<(Authority, String), TargetError> {
    const SCHEME: &str = "http://";
    let rest = target
        .split_at_checked(SCHEME.len())
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME))
        .map(|(_, rest)| rest)
        .ok_or(TargetError("the target is not an absolute http:// URI"))?;
    if rest.contains('#') {
        return Err(TargetError("a fragment is not allowed in a request target"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = Authority::parse(authority, Some(80))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((authority, path))
}

#[cfg(test)]
mod tests;
