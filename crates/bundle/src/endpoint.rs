//! The address of an MCP server or a peer.

use std::fmt;

use crate::Host;
use crate::host::split_port;

#[cfg(test)]
mod tests;

/// A parsed `http` or `https` address: one host, one port, no userinfo, no fragment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Whether it is `https`.
    pub tls: bool,
    /// The host.
    pub host: Host,
    /// The port, 443 or 80 where the address names none.
    pub port: u16,
    /// Path and query, beginning with `/`.
    pub path: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual) = if self.tls { ("https", 443) } else { ("http", 80) };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port != usual {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

impl Endpoint {
    /// Parses an address strictly (RFC 3986, with the host as in [`Host::parse`]).
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    ///
    /// ```
    /// use ringfence_bundle::Endpoint;
    /// let endpoint = Endpoint::parse("https://MCP.example.com./mcp").unwrap();
    /// assert_eq!(endpoint.to_string(), "https://mcp.example.com/mcp");
    /// ```
    pub fn parse(given: &str) -> Result<Self, String> {
        if given.len() > 2048 {
            return Err("the address is longer than 2048 bytes".to_owned());
        }
        let (scheme, rest) =
            given.split_once("://").ok_or("expected `https://host/…` or `http://host/…`")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err("only `https` and `http` addresses are understood".to_owned()),
        };
        if rest.contains('#') {
            return Err("an address here has no fragment (`#…`)".to_owned());
        }
        if rest.contains("${") {
            return Err(
                "an address takes no `${NAME}` reference: put secrets in `headers`".to_owned()
            );
        }
        let cut = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(cut);
        if authority.contains('@') {
            return Err("an address here has no userinfo (`user@`)".to_owned());
        }
        if let Some(bad) =
            tail.chars().find(|c| !c.is_ascii_graphic() || "\\\"<>^`{|}".contains(*c))
        {
            return Err(format!(
                "`{}` must be percent-encoded in an address",
                crate::text::shown(&bad.to_string())
            ));
        }
        let (host, port) = split_port(authority).map_err(str::to_owned)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err("an IPv6 address stands in `[` and `]`".to_owned());
        }
        let host = Host::parse(host).map_err(|error| error.to_string())?;
        let path = if tail.starts_with('/') { tail.to_owned() } else { format!("/{tail}") };
        Ok(Self { tls, host, port: port.unwrap_or(if tls { 443 } else { 80 }), path })
    }
}
