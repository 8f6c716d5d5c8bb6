//! Signed statements of who we are, for token endpoints that want no password (RFC 7523 §2.2).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use toolrack_transport::AuthError;

use crate::error::refused;
use crate::pkce::random_token;
use crate::secret::Secret;

/// How long a statement holds. It is used at once.
const LIFETIME_SECONDS: u64 = 120;

/// What a private key signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// RSA with SHA-256.
    Rs256,
    /// Ed25519.
    EdDsa,
}

impl SigningAlgorithm {
    /// Reads the name that JSON Web Tokens use.
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Es256, Self::Es384, Self::Rs256, Self::EdDsa];
        all.into_iter().find(|it| it.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A statement that we are `client_id`, for `audience`, made at `now` (seconds since 1970).
pub(crate) fn sign_assertion(
    key: &Secret,
    algorithm: SigningAlgorithm,
    client_id: &str,
    audience: &str,
    now: u64,
) -> Result<Secret, AuthError> {
    let header = json!({ "alg": algorithm.name(), "typ": "JWT" });
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": random_token()?.reveal(),
        "iat": now,
        "exp": now + LIFETIME_SECONDS,
    });
    let encode = |it: &serde_json::Value| URL_SAFE_NO_PAD.encode(it.to_string());
    let text = format!("{}.{}", encode(&header), encode(&claims));
    let signature = signature(key, algorithm, text.as_bytes())?;
    Ok(Secret::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

fn signature(key: &Secret, algorithm: SigningAlgorithm, text: &[u8]) -> Result<Vec<u8>, AuthError> {
    let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
        .map_err(|_pem| refused("the private key is no PEM text"))?;
    match algorithm {
        SigningAlgorithm::Es256 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, text),
        SigningAlgorithm::Es384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING, &key, text),
        SigningAlgorithm::Rs256 => rsa(&key, text),
        SigningAlgorithm::EdDsa => {
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8(&key)?);
            Ok(pair.map_err(invalid_key)?.sign(text).as_ref().to_vec())
        }
    }
}

fn ecdsa(
    algorithm: &'static EcdsaSigningAlgorithm,
    key: &PrivateKeyDer<'_>,
    text: &[u8],
) -> Result<Vec<u8>, AuthError> {
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8(key)?, &random).map_err(invalid_key)?;
    let signature = pair.sign(&random, text).map_err(|_unspecified| signing_failed())?;
    Ok(signature.as_ref().to_vec())
}

fn rsa(key: &PrivateKeyDer<'_>, text: &[u8]) -> Result<Vec<u8>, AuthError> {
    let pair = match key {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        other => RsaKeyPair::from_pkcs8(pkcs8(other)?),
    };
    let pair = pair.map_err(invalid_key)?;
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut signature)
        .map_err(|_unspecified| signing_failed())?;
    Ok(signature)
}

fn pkcs8<'a>(key: &'a PrivateKeyDer<'_>) -> Result<&'a [u8], AuthError> {
    match key {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der()),
        _ => Err(refused(
            "the private key is not PKCS#8; `openssl pkcs8 -topk8 -nocrypt` converts it",
        )),
    }
}

fn invalid_key(reason: ring::error::KeyRejected) -> AuthError {
    refused(format_args!("the private key does not fit its algorithm: {reason}"))
}

fn signing_failed() -> AuthError {
    refused("the private key does not sign")
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};

    use super::*;

    fn pem(der: &[u8]) -> Secret {
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        Secret::new(format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"))
    }

    #[test]
    fn a_statement_is_signed_and_says_what_it_must() {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random).unwrap();
        let signed =
            sign_assertion(&pem(der.as_ref()), SigningAlgorithm::Es256, "me", "https://a", 1_000)
                .unwrap();

        let parts: Vec<&str> = signed.reveal().split('.').collect();
        let decode = |it: &str| URL_SAFE_NO_PAD.decode(it).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        public.verify(format!("{}.{}", parts[0], parts[1]).as_bytes(), &decode(parts[2])).unwrap();

        let mut claims: serde_json::Value = serde_json::from_slice(&decode(parts[1])).unwrap();
        assert_eq!(claims["jti"].take().as_str().map(str::len), Some(43));
        let expected = json!({
            "iss": "me", "sub": "me", "aud": "https://a", "jti": null, "iat": 1_000, "exp": 1_120,
        });
        assert_eq!(claims, expected);
    }

    #[test]
    fn ed25519_signs_too_and_other_keys_are_refused() {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let try_with =
            |key: &Secret, algorithm| sign_assertion(key, algorithm, "me", "a", 0).is_ok();
        assert!(try_with(&pem(der.as_ref()), SigningAlgorithm::EdDsa));
        assert!(!try_with(&pem(der.as_ref()), SigningAlgorithm::Es256));
        assert!(!try_with(&pem(der.as_ref()), SigningAlgorithm::Rs256));
        assert!(!try_with(&Secret::new("no key"), SigningAlgorithm::EdDsa));
    }

    #[test]
    fn algorithms_go_by_their_usual_names() {
        assert_eq!(SigningAlgorithm::parse("ES256"), Some(SigningAlgorithm::Es256));
        assert_eq!(SigningAlgorithm::parse("EdDSA"), Some(SigningAlgorithm::EdDsa));
        assert_eq!(SigningAlgorithm::parse("none"), None);
    }
}
