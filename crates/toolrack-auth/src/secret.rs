//! Secret strings: tokens, client secrets, authorization codes.
//!
//! **Invariant:** a secret has no `Display` and no `Serialize`, its `Debug` shows nothing, and its bytes are
//! zeroed when it is dropped. The only access is [`Secret::reveal`].

use std::fmt;

use serde::Deserialize;
use zeroize::Zeroizing;

/// A string that cannot be printed by accident.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "String")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a string.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The string itself. Named so that every use can be found.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// Removes `secrets` from a text that another party wrote, before it is shown.
///
/// Some authorization servers quote the token that they reject.
pub(crate) fn redact_secrets(text: &str, secrets: &[&Secret]) -> String {
    // A very short secret would remove parts of ordinary words.
    let long_enough = secrets.iter().filter(|secret| secret.reveal().len() >= 4);
    long_enough.fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), "…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_debug_shows_nothing() {
        assert_eq!(format!("{:?}", Some(Secret::new("s3cret"))), "Some(Secret(…))");
    }

    #[test]
    fn quoted_secrets_are_redacted() {
        let (token, short) = (Secret::new("s3cret"), Secret::new("s"));
        assert_eq!(
            redact_secrets("the token s3cret is stale", &[&token, &short]),
            "the token … is stale"
        );
    }
}
