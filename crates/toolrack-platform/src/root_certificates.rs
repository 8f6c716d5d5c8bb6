//! Root certificates for TLS: those of the system, which include a company's own, and extra ones.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The system's root certificates, and those of the PEM text `extra`.
fn root_certificates(extra: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = system_roots().clone();
    for certificate in certificates_from_pem(extra)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

/// TLS settings of a client that trusts the system's root certificates, and those of the PEM text `extra`.
///
/// # Errors
///
/// A certificate of `extra` is invalid.
pub fn tls_client_config(extra: &[u8]) -> Result<ClientConfig, String> {
    // Named here, because the process-wide default may be missing or set by another crate.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(root_certificates(extra)?).with_no_client_auth())
}

/// Parses every certificate of a PEM text.
///
/// # Errors
///
/// A certificate is invalid.
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    parsed.map_err(|error| error.to_string())
}

/// Loaded once: there are hundreds of them.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let loaded = rustls_native_certs::load_native_certs();
        for error in &loaded.errors {
            tracing::warn!(%error, "could not read some system certificates");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(loaded.certs);
        roots
    })
}
