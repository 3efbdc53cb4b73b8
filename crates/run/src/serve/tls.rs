//! The certificate and key of an HTTPS listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;

/// Where they are.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Reads both, and makes what accepts TLS 1.2 and 1.3 with them.
pub(super) fn acceptor(files: &Files) -> Result<TlsAcceptor, Error> {
    let fail = |path: &Path, reason: String| Error::Tls { path: path.to_owned(), reason };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| fail(&files.certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(fail(&files.certificate, "holds no certificate in PEM form".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| fail(&files.key, error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(&files.key, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.map_err(|error| fail(&files.key, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
