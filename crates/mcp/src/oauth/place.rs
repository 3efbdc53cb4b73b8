//! Addresses that somebody else names, and which of them may be reached.

use std::fmt;
use std::net::IpAddr;

use reqwest::Url;

use super::OAuthError;
use super::error::shown;

/// Bytes of one address, at most.
const MAX_TEXT: usize = 2048;

/// On which step of a sign-in an address is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The MCP server itself.
    Server,
    /// Its metadata (RFC 9728).
    ResourceMetadata,
    /// The authorization server's name.
    Issuer,
    /// The authorization server's metadata (RFC 8414).
    IssuerMetadata,
    /// Registration of a client (RFC 7591).
    Registration,
    /// Where the browser goes.
    Authorization,
    /// Where tokens come from.
    Token,
    /// Where tokens are taken back (RFC 7009).
    Revocation,
    /// The document that describes us, by its address.
    ClientDocument,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "the server's address",
            Self::ResourceMetadata => "the server's metadata",
            Self::Issuer => "the authorization server",
            Self::IssuerMetadata => "the authorization server's metadata",
            Self::Registration => "registration",
            Self::Authorization => "the sign-in page",
            Self::Token => "the token endpoint",
            Self::Revocation => "revocation",
            Self::ClientDocument => "the client's document",
        })
    }
}

/// Which addresses a name on the way may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Globally routable ones.
    Public,
    /// This machine's loopback: only where the declared server is there itself.
    Loopback,
    /// Whichever it has: it is the declared server's own origin, as good as the person made it.
    Declared,
}

/// A checked address. Made by [`Ground`] alone, and only what is one can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    text: String,
    url: Url,
    reach: Reach,
    step: Step,
}

impl Place {
    /// As it was given: names are compared character by character (RFC 8414, section 3.3).
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Which addresses it may lead to.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// What it is for.
    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// Whether TLS is spoken.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The host, an IPv6 address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(443)
    }

    /// `host` or `host:port`, as the `Host` header has it.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.url.port() {
            Some(port) => format!("{}:{port}", self.host()),
            None => self.host().to_owned(),
        }
    }

    /// Path and query, as the request line has them.
    #[must_use]
    pub fn target(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// `scheme://host:port`, without a path.
    pub(super) fn origin(&self) -> String {
        format!("{}://{}", self.url.scheme(), self.authority())
    }
}

/// What a person declared, by which every other address is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    server: Place,
    loopback: bool,
}

impl Ground {
    /// The ground of a server at this declared address.
    ///
    /// # Errors
    /// [`OAuthError::Place`].
    pub fn new(server: &str) -> Result<Self, OAuthError> {
        let url = strict(server).map_err(|why| refused(Step::Server, server, why))?;
        let loopback = is_loopback(&url);
        let server =
            Place { text: server.to_owned(), url, reach: Reach::Declared, step: Step::Server };
        Ok(Self { server, loopback })
    }

    /// The declared server.
    #[must_use]
    pub fn server(&self) -> &Place {
        &self.server
    }

    /// Judges an address that somebody else named: `https`, plain ASCII in one spelling, without
    /// userinfo or fragment. `http` only to the declared server's own origin, or to loopback where
    /// the declared server is on loopback too.
    ///
    /// # Errors
    /// [`OAuthError::Place`].
    pub fn place(&self, step: Step, given: &str) -> Result<Place, OAuthError> {
        let refuse = |why| refused(step, given, why);
        let url = strict(given).map_err(refuse)?;
        let reach = if same_origin(&url, &self.server.url) {
            Reach::Declared
        } else if is_loopback(&url) {
            if !self.loopback {
                return Err(refuse("it is on this machine, and the declared server is not"));
            }
            Reach::Loopback
        } else if url.scheme() == "https" {
            Reach::Public
        } else {
            return Err(refuse("it is not `https`"));
        };
        if step == Step::Authorization && !given.bytes().all(plain) {
            return Err(refuse("it holds characters that a shell could act on"));
        }
        Ok(Place { text: given.to_owned(), url, reach, step })
    }

    /// An address on the origin of another.
    pub(super) fn beside(&self, step: Step, of: &Place, path: &str) -> Result<Place, OAuthError> {
        self.place(step, &format!("{}{path}", of.origin()))
    }
}

fn refused(step: Step, given: &str, why: &'static str) -> OAuthError {
    OAuthError::Place { step, given: shown(given), why }
}

/// Reads an address in one way, or not at all.
fn strict(given: &str) -> Result<Url, &'static str> {
    if given.len() > MAX_TEXT {
        return Err("it is longer than 2048 bytes");
    }
    // RFC 3986, appendix A: nothing else stands in an address.
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b);
    if !given.bytes().all(legal) {
        return Err("it holds characters that do not stand in an address");
    }
    if !given.starts_with("https://") && !given.starts_with("http://") {
        return Err("it is not `https`");
    }
    if given.contains('#') {
        return Err("it has a fragment");
    }
    let url = Url::parse(given).map_err(|_| "it is not an address")?;
    if url.has_host() && (!url.username().is_empty() || url.password().is_some()) {
        return Err("it holds a user's name");
    }
    let authority = given.split('/').nth(2).unwrap_or_default();
    let authority = authority.split('?').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("it holds a user's name");
    }
    // Whatever a reader would put in another spelling, another reader may take for something else.
    let own = url.as_str();
    let same = own == given
        || own.strip_suffix('/') == Some(given)
        || default_port(&url, authority)
            .is_some_and(|short| own == given.replacen(authority, short, 1));
    if !same {
        return Err("it is not in its plain spelling");
    }
    Ok(url)
}

/// The authority without a port that goes without saying.
fn default_port<'a>(url: &Url, authority: &'a str) -> Option<&'a str> {
    authority.strip_suffix(if url.scheme() == "https" { ":443" } else { ":80" })
}

/// Characters that nobody gives another meaning to, on a command line or in a program's own words.
fn plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._~:/?[]@&=+,%".contains(&b)
}

fn same_origin(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme()
        && a.host_str() == b.host_str()
        && a.port_or_known_default() == b.port_or_known_default()
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let name = host.strip_suffix('.').unwrap_or(host);
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    literal.is_ok_and(|address| address.to_canonical().is_loopback())
        || name == "localhost"
        || name.ends_with(".localhost")
}
