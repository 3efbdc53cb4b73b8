//! One host type for manifest, policy, egress and gateway alike.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

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
#[serde(try_from = "String", into = "String")]
pub struct HostRule {
    /// True for `.suffix`: any name below it, at a label boundary, not the suffix itself.
    pub suffix: bool,
    /// The host or the suffix without its leading dot.
    pub host: Host,
    /// One port, or `None` for 443 and 80.
    pub port: Option<u16>,
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.suffix { "." } else { "" }, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl TryFrom<String> for HostRule {
    type Error = HostError;
    fn try_from(text: String) -> Result<Self, HostError> {
        Self::parse(&text)
    }
}

impl From<HostRule> for String {
    fn from(rule: HostRule) -> Self {
        rule.to_string()
    }
}

impl Host {
    /// Parses a host strictly: one canonical form, every ambiguous spelling refused (NUL, percent
    /// encoding, octal, hex and short IPv4, zones, empty labels, over-long names). IDNA (UTS 46)
    /// names become A-labels, one trailing dot is dropped, an IPv4-mapped IPv6 literal becomes IPv4.
    ///
    /// # Errors
    /// [`HostError`] that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let refuse = |reason| Err(HostError { given: text.escape_debug().to_string(), reason });
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            return match inner.parse::<Ipv6Addr>() {
                Ok(v6) => Ok(v6.to_ipv4_mapped().map_or(Self::V6(v6), Self::V4)),
                Err(_) => refuse("not an IPv6 address"),
            };
        }
        if let Ok(v4) = text.parse::<Ipv4Addr>() {
            return Ok(Self::V4(v4));
        }
        let Ok(name) = idna::domain_to_ascii_strict(text.strip_suffix('.').unwrap_or(text)) else {
            return refuse("not a host name");
        };
        let last = name.rsplit('.').next().unwrap_or("");
        if name.is_empty() || name.len() > 253 || last.bytes().all(|b| b.is_ascii_digit()) {
            return refuse("not a host name");
        }
        Ok(Self::Name(name))
    }
}

impl HostRule {
    /// Parses a rule.
    ///
    /// # Errors
    /// [`HostError`] as for [`Host::parse`], or for a bad port.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let (suffix, rest) = text.strip_prefix('.').map_or((false, text), |rest| (true, rest));
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => {
                return Err(HostError {
                    given: text.escape_debug().to_string(),
                    reason: "bad port",
                });
            }
        };
        Ok(Self { suffix, host: Host::parse(host)?, port })
    }

    /// Whether a connection to this host and port is covered.
    #[must_use]
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        let ports = self.port.map_or(matches!(port, 443 | 80), |one| one == port);
        let hosts = match (self.suffix, &self.host, host) {
            (false, rule, host) => rule == host,
            (true, Host::Name(rule), Host::Name(name)) => {
                name.strip_suffix(rule.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            _ => false,
        };
        ports && hosts
    }
}
