//! Who speaks for the user at a server, for lines that carry credentials beside their messages.
//!
//! **Invariant:** nothing here shows a secret: what is sent can be sent, and not be printed.

use std::fmt;
use std::sync::Arc;

use crate::transport::BoxFuture;

/// What is sent to prove who asks: the value of the `Authorization` header.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorization(Arc<str>);

/// What can be said about credentials without waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtHand {
    /// Send without any.
    Nothing,
    /// Send this.
    Ready(Authorization),
    /// There may be some after [`Credentials::obtain`], which takes its time.
    Ask,
}

/// A server's answer that our credentials, or their absence, do not do.
#[derive(Debug, Clone, Copy)]
pub struct Rebuff<'a> {
    /// 401 or 403.
    pub status: u16,
    /// The values of `WWW-Authenticate`, as they came.
    pub challenges: &'a [String],
    /// What was sent.
    pub sent: Option<&'a Authorization>,
    /// The method of the message and what it was about, so that one hopeless operation does not spoil
    /// the others.
    pub operation: (&'a str, Option<&'a str>),
}

/// Whoever has credentials for one server, or can get them.
pub trait Credentials: Send + Sync + fmt::Debug {
    /// What to send now. Called for every request, so it must be quick.
    fn at_hand(&self) -> AtHand;

    /// What to send, after whatever it takes to have it. The caller's patience bounds it.
    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>>;

    /// Takes note that the server said no. `Ok` if the same request is worth sending again.
    fn rebuffed<'a>(&'a self, rebuff: Rebuff<'a>) -> BoxFuture<'a, Result<(), AuthError>>;
}

/// Why we are not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// Somebody has to log in, for the first time or again.
    #[error("login needed: {reason}")]
    LoginNeeded {
        /// Why.
        reason: String,
    },
    /// Logged in, and still not allowed to do this.
    #[error("not allowed: {reason}")]
    Forbidden {
        /// What is missing.
        reason: String,
    },
    /// What the server or its authorization server says must not be trusted.
    #[error("refused for safety: {reason}")]
    Untrusted {
        /// What is wrong with it.
        reason: String,
    },
    /// The authorization server said no.
    #[error("the authorization server refused: {reason}")]
    Refused {
        /// What it said, cleaned.
        reason: String,
    },
    /// The authorization server does not know us, and does not take us in. A client id that it knows helps, or a
    /// token that somebody makes there.
    #[error("the authorization server does not know us: {reason}")]
    Unregistered {
        /// Why it stays so.
        reason: String,
    },
    /// The authorization server does not answer.
    #[error("the authorization server does not answer: {reason}")]
    Unreachable {
        /// What happened.
        reason: String,
    },
}

impl Authorization {
    /// A header value as it goes out.
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        Self(value.into())
    }

    /// A bearer token.
    pub fn bearer(token: &str) -> Self {
        Self(format!("Bearer {token}").into())
    }

    /// The header value, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_cannot_be_printed() {
        let secret = Authorization::bearer("s3cret");
        assert_eq!(secret.reveal(), "Bearer s3cret");
        assert_eq!(format!("{secret:?} {:?}", AtHand::Ready(secret.clone())).find("s3cret"), None);
    }
}
