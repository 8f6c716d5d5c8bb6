//! Whom we trust: the certificates of the platform, and those a user adds.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// The platform's certificates, read once for all lines.
static PLATFORM: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();

/// What makes connections safe. HTTP/2 is offered, and the server chooses.
pub(crate) async fn connector(extra_roots: &[u8]) -> io::Result<TlsConnector> {
    let platform = tokio::task::spawn_blocking(|| PLATFORM.get_or_init(read_platform));
    let platform = platform.await.map_err(io::Error::other)?;
    let mut roots = RootCertStore::empty();
    let (_n_added, n_ignored) = roots.add_parsable_certificates(platform.iter().cloned());
    if n_ignored > 0 {
        tracing::debug!(n_ignored, "certificates of the platform cannot be read");
    }
    for certificate in CertificateDer::pem_slice_iter(extra_roots) {
        let certificate = certificate.map_err(io::Error::other)?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Whether a text holds certificates, all of which can be read.
pub(crate) fn check_roots(extra_roots: &[u8]) -> Result<(), String> {
    for certificate in CertificateDer::pem_slice_iter(extra_roots) {
        certificate.map_err(|fault| format!("the added certificates cannot be read: {fault}"))?;
    }
    Ok(())
}

fn read_platform() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "certificates of the platform cannot be read");
    }
    found.certs
}
