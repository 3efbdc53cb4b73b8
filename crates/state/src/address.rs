//! The address of a PostgreSQL server: never sent over a network in the clear.

use std::net::IpAddr;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::Error;

/// The longest address.
const MAX_BYTES: usize = 4096;
/// Each session's settings, in milliseconds where they are times: how long a lock is waited for, how
/// long a statement may take, and how long a host that hangs may hold what it has locked. A commit is
/// on disk when it is told, whatever the server's default is, and names mean our tables.
const SESSION: [(&str, &str); 5] = [
    ("lock_timeout", "5000"),
    ("statement_timeout", "10000"),
    ("idle_in_transaction_session_timeout", "10000"),
    ("synchronous_commit", "on"),
    ("search_path", "ringfence"),
];

/// An address that may be used.
#[derive(Clone)]
pub(crate) struct Address {
    options: PgConnectOptions,
    shown: String,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let refused = |reason: &str| Error::Address { reason: reason.to_owned() };
        if url.len() > MAX_BYTES {
            return Err(refused("it is longer than 4096 bytes"));
        }
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(refused("it does not begin with `postgres://`"));
        }
        // What the parser says could hold a part of the address.
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| refused("it is not `postgres://user:password@host:port/database`"))?;
        let local = options.get_socket().is_some() || is_local(options.get_host());
        let options = if local {
            options
        } else {
            if declines_tls(url) {
                return Err(refused("another machine's database without TLS: remove `sslmode`"));
            }
            options.ssl_mode(PgSslMode::VerifyFull)
        };
        let shown = match options.get_socket() {
            Some(socket) => format!("postgres at {}", socket.display()),
            None => format!("postgres at {}:{}", options.get_host(), options.get_port()),
        };
        let options =
            options.options(SESSION).application_name("ringfence").disable_statement_logging();
        Ok(Self { options, shown })
    }

    pub(crate) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// Without credentials.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

/// A Unix socket's folder, or a loopback address. The name `localhost` counts: it is this machine's
/// by RFC 6761, section 6.3.
fn is_local(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether the address asks for a connection that may be without TLS.
fn declines_tls(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter_map(|pair| pair.split_once('=')).any(|(key, value)| {
        matches!(key, "sslmode" | "ssl-mode") && matches!(value, "disable" | "allow" | "prefer")
    })
}

#[cfg(test)]
mod tests;
