//! Constructors of [`AuthError`] that sanitize their reason. Reasons never contain secrets.

use std::fmt::Display;

use toolrack_transport::{AuthError, sanitize_line};

/// Length of a reason, which may quote another party.
const MAX_REASON_CHARS: usize = 300;

pub(crate) fn untrusted(reason: impl Display) -> AuthError {
    AuthError::Untrusted { reason: sanitize(reason) }
}

pub(crate) fn refused(reason: impl Display) -> AuthError {
    AuthError::Rejected { reason: sanitize(reason) }
}

pub(crate) fn unregistered(reason: impl Display) -> AuthError {
    AuthError::Unregistered { reason: sanitize(reason) }
}

pub(crate) fn unreachable(reason: impl Display) -> AuthError {
    AuthError::Unreachable { reason: sanitize(reason) }
}

pub(crate) fn login_needed(reason: impl Display) -> AuthError {
    AuthError::LoginRequired { reason: sanitize(reason) }
}

pub(crate) fn forbidden(reason: impl Display) -> AuthError {
    AuthError::Forbidden { reason: sanitize(reason) }
}

/// Reasons quote servers, so control characters are removed.
fn sanitize(reason: impl Display) -> String {
    sanitize_line(&reason.to_string(), MAX_REASON_CHARS)
}
