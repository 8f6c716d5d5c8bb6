//! Text that must not be seen: tokens, client secrets, codes.
//!
//! **Invariant:** a secret has no `Display` and no `Serialize`, its `Debug` shows nothing, and its bytes are
//! overwritten when it is dropped. The only way out is [`Secret::reveal`].

use std::fmt;

use zeroize::Zeroize;

/// A text that cannot be printed by accident.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Takes a text into custody.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Named so that every use can be found.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
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

/// Takes every one of `secrets` out of a text that somebody else wrote, before it is shown.
///
/// Authorization servers have been seen to quote the token they refuse.
pub(crate) fn redact_secrets(text: &str, secrets: &[&Secret]) -> String {
    let long_enough = secrets.iter().filter(|it| it.reveal().len() >= 4);
    long_enough.fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), "…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Some(Secret::new("s3cret"))), "Some(Secret(…))");
    }

    #[test]
    fn what_somebody_quotes_is_taken_out() {
        let (token, short) = (Secret::new("s3cret"), Secret::new("s"));
        assert_eq!(
            redact_secrets("the token s3cret is stale", &[&token, &short]),
            "the token … is stale"
        );
    }
}
