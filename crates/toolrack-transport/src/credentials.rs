//! Credentials for transports that authenticate their requests, such as HTTP with OAuth.
//!
//! **Invariant:** `Debug` never shows a secret. Only [`Authorization::reveal`] returns it.

use std::fmt;
use std::sync::Arc;

use crate::transport::BoxFuture;

/// The value of the `Authorization` header.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorization(Arc<str>);

/// The credential that is available without waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedCredential {
    /// Send the request without a credential.
    None,
    /// Send this credential.
    Ready(Authorization),
    /// Call [`Credentials::obtain`], which may take a while.
    Obtain,
}

/// A 401 or 403 response of a server.
#[derive(Debug, Clone, Copy)]
pub struct AuthChallenge<'a> {
    /// The status code, 401 or 403.
    pub status: u16,
    /// The values of `WWW-Authenticate`, unchanged.
    pub challenges: &'a [String],
    /// The credential that was sent.
    pub sent: Option<&'a Authorization>,
    /// The method of the request and the name of its target, so that failures are counted per operation.
    pub operation: (&'a str, Option<&'a str>),
}

/// Source of credentials for one server.
pub trait Credentials: Send + Sync + fmt::Debug {
    /// The credential to send now. Called for every request, so it must be fast.
    fn cached(&self) -> CachedCredential;

    /// Obtains a credential. The caller's timeout bounds it.
    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>>;

    /// Handles a 401 or 403 response. Returns `Ok` if the same request should be sent again.
    fn on_challenge<'a>(
        &'a self,
        challenge: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<(), AuthError>>;
}

/// Why authentication failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The user has to log in, for the first time or again.
    #[error("login required: {reason}")]
    LoginRequired {
        /// Why.
        reason: String,
    },
    /// Logged in, but not authorized for this operation.
    #[error("permission denied: {reason}")]
    Forbidden {
        /// The missing permission.
        reason: String,
    },
    /// Metadata of the server or its authorization server fails a security check.
    #[error("rejected for security: {reason}")]
    Untrusted {
        /// The failed check.
        reason: String,
    },
    /// The authorization server rejected the request.
    #[error("the authorization server rejected the request: {reason}")]
    Rejected {
        /// The server's error, sanitized.
        reason: String,
    },
    /// The authorization server does not know this client and does not register it. A client id that it knows helps,
    /// or a token that the user creates there.
    #[error("not registered with the authorization server: {reason}")]
    Unregistered {
        /// Why registration is not possible.
        reason: String,
    },
    /// The authorization server is unreachable.
    #[error("cannot reach the authorization server: {reason}")]
    Unreachable {
        /// The failure.
        reason: String,
    },
}

impl Authorization {
    /// A header value, sent unchanged.
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        Self(value.into())
    }

    /// A bearer token.
    pub fn bearer(token: &str) -> Self {
        Self(format!("Bearer {token}").into())
    }

    /// The header value. Only for the code that sends it.
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
    fn debug_hides_the_secret() {
        let secret = Authorization::bearer("s3cret");
        assert_eq!(secret.reveal(), "Bearer s3cret");
        assert_eq!(
            format!("{secret:?} {:?}", CachedCredential::Ready(secret.clone())).find("s3cret"),
            None
        );
    }
}
