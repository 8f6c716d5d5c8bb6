//! Whom we believe to be who they say: the system's certificates, and what the user adds.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore, crypto};
use toolrack_transport::AuthError;

use crate::error::unreachable;

/// A TLS setup that trusts the system's certificates and those in `extra_roots`, which is PEM text.
pub(crate) fn tls_config(extra_roots: &[u8]) -> Result<ClientConfig, AuthError> {
    let mut roots = system_roots().clone();
    for certificate in CertificateDer::pem_slice_iter(extra_roots) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added
            .map_err(|error| unreachable(format_args!("a certificate cannot be used: {error}")))?;
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unreachable(format_args!("no TLS: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Read once: there are hundreds of them.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let loaded = rustls_native_certs::load_native_certs();
        for error in &loaded.errors {
            tracing::warn!(%error, "some of the system's certificates cannot be read");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(loaded.certs);
        roots
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused() {
        assert!(tls_config(b"").is_ok());
        let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(tls_config(broken).is_err());
    }
}
