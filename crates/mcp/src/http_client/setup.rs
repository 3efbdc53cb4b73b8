//! The HTTP client and the headers that each request has.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::upstream::{HttpOptions, UpstreamError};

/// Idle connections to one server, at most.
const IDLE: usize = 64;
/// How long a connection may idle.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// Redirects are not followed, proxy variables are not read, and nothing is unpacked.
pub(super) fn client(
    url: &reqwest::Url,
    options: &HttpOptions,
) -> Result<reqwest::Client, UpstreamError> {
    let https = url.scheme() == "https";
    // Plain HTTP needs no roots, and reading the machine's costs memory and time.
    let roots = if https { roots(&options.extra_roots)? } else { rustls::RootCertStore::empty() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| down("TLS cannot be set up", error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .connect_timeout(options.connect_timeout)
        .pool_idle_timeout(IDLE_FOR)
        .pool_max_idle_per_host(IDLE)
        .tcp_nodelay(true)
        .tls_backend_preconfigured(tls)
        .https_only(https)
        .build()
        .map_err(|error| down("the HTTP client cannot be made", error))
}

/// The machine's certificate authorities, and those given.
fn roots(extra: &[Vec<u8>]) -> Result<rustls::RootCertStore, UpstreamError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(extra.iter().map(|der| der.clone().into()));
    if roots.is_empty() {
        return Err(UpstreamError::Down {
            reason: "no CA certificates are installed on this machine".into(),
            detail: "install the package ca-certificates".into(),
        });
    }
    Ok(roots)
}

pub(super) fn headers(options: &HttpOptions) -> Result<HeaderMap, UpstreamError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let refuse = || UpstreamError::Down {
            reason: format!("the header {} cannot be sent", name.escape_debug()),
            detail: "its name is reserved, or its name or value is not valid in HTTP".into(),
        };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?;
        let text = name.as_str();
        let reserved =
            ["host", "connection", "accept", "expect", "te", "trailer", "upgrade", "last-event-id"];
        if reserved.contains(&text)
            || ["mcp-", "content-", "transfer-", "proxy-"].iter().any(|p| text.starts_with(p))
        {
            return Err(refuse());
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| refuse())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

pub(super) fn down(reason: &str, error: impl std::fmt::Display) -> UpstreamError {
    UpstreamError::Down { reason: reason.into(), detail: error.to_string() }
}
