//! One host type for manifest, policy, egress and gateway alike.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize};

use crate::text;

#[cfg(test)]
mod tests;

/// Why a host was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a host: {reason}")]
pub struct HostError {
    /// The refused text, escaped for display.
    pub given: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// A host in its one canonical form: a DNS name in lower-case A-labels without a trailing dot, or
/// an address literal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Host {
    /// A DNS name, lower case, A-labels, no trailing dot.
    Name(String),
    /// An IPv4 literal, dotted quad.
    V4(Ipv4Addr),
    /// An IPv6 literal, never an IPv4-mapped one.
    V6(Ipv6Addr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::V4(address) => write!(f, "{address}"),
            Self::V6(address) => write!(f, "[{address}]"),
        }
    }
}

impl TryFrom<String> for Host {
    type Error = HostError;
    fn try_from(text: String) -> Result<Self, HostError> {
        Self::parse(&text)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

/// A host or a suffix with the ports it covers, as `allowed_hosts` spells it: `api.example.com`,
/// `.example.com:443`. Without a port, 443 and 80.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct HostRule {
    /// True for `.suffix`: any name below it, at a label boundary, not the suffix itself.
    pub suffix: bool,
    /// The host or the suffix without its leading dot.
    pub host: Host,
    /// One port, or `None` for 443 and 80.
    pub port: Option<u16>,
    /// What goes through a tunnel there is not looked at: it may be no TLS, name no server, or hide
    /// the name. Only by [`HostRule::opaque`], so always one host and one port.
    pub opaque: bool,
}

/// A rule as it is written: a string, or a table where there is more to say.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Plain(String),
    Full(Full),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Full {
    host: String,
    opaque: bool,
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.suffix { "." } else { "" }, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl TryFrom<Written> for HostRule {
    type Error = HostError;
    fn try_from(written: Written) -> Result<Self, HostError> {
        match written {
            Written::Plain(host) | Written::Full(Full { host, opaque: false }) => {
                Self::parse(&host)
            }
            Written::Full(Full { host, opaque: true }) => Self::opaque(&host),
        }
    }
}

impl From<HostRule> for Written {
    fn from(rule: HostRule) -> Self {
        let host = rule.to_string();
        if rule.opaque { Self::Full(Full { host, opaque: true }) } else { Self::Plain(host) }
    }
}

impl HostError {
    fn new(given: &str, reason: &'static str) -> Self {
        Self { given: text::shown(given), reason }
    }
}

impl Host {
    /// Parses a host strictly: one canonical form, every ambiguous spelling refused (NUL, percent
    /// encoding, octal, hex and short IPv4, zones, empty labels, over-long names). IDNA (UTS 46)
    /// names become A-labels, one trailing dot is dropped, an IPv4-mapped IPv6 literal becomes IPv4.
    ///
    /// # Errors
    /// [`HostError`] that says what is wrong.
    ///
    /// ```
    /// use ringfence_bundle::Host;
    /// assert_eq!(Host::parse("BÜCHER.example.").unwrap().to_string(), "xn--bcher-kva.example");
    /// assert!(Host::parse("0x7f.1").is_err());
    /// ```
    pub fn parse(given: &str) -> Result<Self, HostError> {
        parse_host(given).map_err(|reason| HostError::new(given, reason))
    }

    /// Whether this spelling means the machine itself or the host of a container: `localhost` and
    /// names under it, the gateway names of container engines, loopback and unspecified addresses,
    /// also where an IPv6 literal carries an IPv4 address (RFC 4291, 6052, 3056).
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Name(name) => {
                LOCAL_NAMES.contains(&name.as_str())
                    || LOCAL_NAMES.iter().any(|local| is_below(name, local))
            }
            Self::V4(address) => is_local_v4(*address),
            Self::V6(address) => {
                address.is_loopback()
                    || address.is_unspecified()
                    || embedded_v4(*address).is_some_and(is_local_v4)
            }
        }
    }

    /// Whether nobody outside this network can be meant: local spellings, private and link-local
    /// addresses, single-label names, and the top-level names reserved for private or test use
    /// (RFC 6761, 6762, 8375; `.internal`, ICANN 2024).
    #[must_use]
    pub fn is_private(&self) -> bool {
        const PRIVATE: [&str; 6] =
            ["internal", "local", "test", "home.arpa", "localdomain", "example"];
        self.is_local()
            || match self {
                Self::Name(name) => {
                    !name.contains('.') || PRIVATE.iter().any(|suffix| is_below(name, suffix))
                }
                Self::V4(address) => address.is_private() || address.is_link_local(),
                Self::V6(address) => {
                    let first = address.segments()[0];
                    first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80
                }
            }
    }
}

/// Names that mean the machine itself or a container's host. `localhost` stands for RFC 6761 and
/// its `hosts`-file cousins, the rest for Docker, Podman, Rancher, Lima, OrbStack and minikube.
const LOCAL_NAMES: [&str; 13] = [
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
    "docker.internal",
    "containers.internal",
    "rancher-desktop.internal",
    "lima.internal",
    "orb.internal",
    "minikube.internal",
    "localdomain",
];

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
}

fn is_local_v4(address: Ipv4Addr) -> bool {
    address.is_loopback() || address.octets()[0] == 0
}

/// The IPv4 address inside an IPv4-compatible, NAT64 or 6to4 literal.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(join(high, low))
        }
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

fn parse_host(given: &str) -> Result<Host, &'static str> {
    if given.is_empty() {
        return Err("it is empty");
    }
    if given.len() > 1024 {
        return Err("it is longer than a host can be");
    }
    for c in given.chars() {
        match c {
            '\0' => return Err("it holds a NUL"),
            '%' => return Err("percent-encoding and zones have no place in a host"),
            '@' => return Err("userinfo has no place in a host"),
            '/' | '\\' | '?' | '#' => return Err("only a host is expected, not an address"),
            c if c.is_whitespace() => return Err("it holds white space"),
            c if text::is_invisible(c) => return Err("it holds an invisible character"),
            _ => {}
        }
    }
    if let Some(inner) = given.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or("`[` without a closing `]`")?;
        return parse_v6(inner);
    }
    if given.contains(':') {
        return parse_v6(given);
    }
    let ascii = Uts46::new()
        .to_ascii(
            given.as_bytes(),
            AsciiDenyList::STD3,
            Hyphens::CheckFirstLast,
            DnsLength::VerifyAllowRootDot,
        )
        .map_err(|_| {
            "expected labels of letters, digits and `-`, each 1 to 63 long, 253 in all (UTS 46)"
        })?;
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if name.is_empty() || name.len() > 253 {
        return Err("expected a name of 1 to 253 characters");
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if is_numeric(last) {
        return name.parse().map(Host::V4).map_err(
            |_| "it ends in a number but is not an IPv4 address in four plain decimal parts",
        );
    }
    Ok(Host::Name(name.to_owned()))
}

/// What a resolver could take for part of an IPv4 address (WHATWG URL, "ends in a number").
fn is_numeric(label: &str) -> bool {
    label.bytes().all(|b| b.is_ascii_digit())
        || label.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn parse_v6(inner: &str) -> Result<Host, &'static str> {
    let address: Ipv6Addr = inner.parse().map_err(|_| "it is not an IPv6 address (RFC 4291)")?;
    Ok(address.to_ipv4_mapped().map_or(Host::V6(address), Host::V4))
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` and bare IPv6. The host is not parsed yet.
pub(crate) fn split_port(given: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = if given.starts_with('[') {
        let end = given.find(']').ok_or("`[` without a closing `]`")?;
        let (host, rest) = given.split_at(end + 1);
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err("only `:port` may follow `]`"),
        }
    } else {
        match given.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (given, None),
        }
    };
    let Some(port) = port else { return Ok((host, None)) };
    let plain = !port.is_empty()
        && port.len() <= 5
        && !port.starts_with('0')
        && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if plain => Ok((host, Some(number))),
        _ => Err("expected a port from 1 to 65535"),
    }
}

impl HostRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// [`HostError`] as for [`Host::parse`], or for a bad port.
    pub fn parse(given: &str) -> Result<Self, HostError> {
        let fault = |reason| HostError::new(given, reason);
        if given.contains('*') {
            return Err(fault("write `.example.com` for every name below example.com"));
        }
        let (host, port) = split_port(given).map_err(fault)?;
        let (suffix, host) = match host.strip_prefix('.') {
            Some(rest) => (true, rest),
            None => (false, host),
        };
        let host = parse_host(host).map_err(fault)?;
        if suffix && !matches!(host, Host::Name(_)) {
            return Err(fault("an address has no names below it"));
        }
        Ok(Self { suffix, host, port, opaque: false })
    }

    /// Parses a rule whose tunnels are not looked at. It names one host and one port: whoever agrees
    /// to what cannot be seen agrees to one place.
    ///
    /// # Errors
    /// [`HostError`] as for [`HostRule::parse`], or for a suffix or a missing port.
    pub fn opaque(given: &str) -> Result<Self, HostError> {
        let rule = Self::parse(given)?;
        if rule.suffix {
            return Err(HostError::new(given, "an opaque rule names one host, not a suffix"));
        }
        if rule.port.is_none() {
            return Err(HostError::new(given, "an opaque rule names its port: `host:port`"));
        }
        Ok(Self { opaque: true, ..rule })
    }

    /// As a person reads it: with the words of what `opaque` means.
    #[must_use]
    pub fn described(&self) -> String {
        if self.opaque {
            format!("{self} opaque: what goes through is not looked at")
        } else {
            self.to_string()
        }
    }

    /// Whether a connection to this host and port is covered.
    #[must_use]
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        self.covers_host(host) && self.port.map_or(matches!(port, 443 | 80), |own| own == port)
    }

    /// Whether the host is covered, on some port.
    #[must_use]
    pub fn covers_host(&self, host: &Host) -> bool {
        match (self.suffix, &self.host, host) {
            (true, Host::Name(suffix), Host::Name(name)) => is_below(name, suffix),
            (true, ..) => false,
            (false, own, host) => own == host,
        }
    }

    /// Whether it names, or reaches down to, the machine itself or a container's host.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.host.is_local()
            || self.suffix
                && LOCAL_NAMES
                    .iter()
                    .any(|local| self.covers_host(&Host::Name((*local).to_owned())))
    }
}
