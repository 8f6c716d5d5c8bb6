//! PKCE (RFC 7636): code verifier and S256 challenge. The verifier's generator also makes `state`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use toolrack_transport::AuthError;

use crate::error::unreachable;
use crate::secret::Secret;

/// 256 random bits as 43 URL-safe characters: a `state` or a code verifier.
pub(crate) fn random_token() -> Result<Secret, AuthError> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_unspecified| unreachable("the system random number generator failed"))?;
    Ok(Secret::new(URL_SAFE_NO_PAD.encode(bytes)))
}

/// The S256 challenge of a verifier (RFC 7636 §4.2).
pub(crate) fn s256_challenge(verifier: &Secret) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.reveal().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s256_challenge_matches_the_rfc() {
        let verifier = Secret::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(s256_challenge(&verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn random_tokens_are_unique_and_long_enough() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), 43);
    }
}
