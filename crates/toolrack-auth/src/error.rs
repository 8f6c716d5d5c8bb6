//! Short ways to say why we are not let in. What is said never holds a secret.

use std::fmt::Display;

use toolrack_transport::{AuthError, plain_text};

/// How much of somebody else's text is shown.
const MAX_SHOWN: usize = 300;

pub(crate) fn untrusted(reason: impl Display) -> AuthError {
    AuthError::Untrusted { reason: clean(reason) }
}

pub(crate) fn refused(reason: impl Display) -> AuthError {
    AuthError::Refused { reason: clean(reason) }
}

pub(crate) fn unregistered(reason: impl Display) -> AuthError {
    AuthError::Unregistered { reason: clean(reason) }
}

pub(crate) fn unreachable(reason: impl Display) -> AuthError {
    AuthError::Unreachable { reason: clean(reason) }
}

pub(crate) fn login_needed(reason: impl Display) -> AuthError {
    AuthError::LoginNeeded { reason: clean(reason) }
}

pub(crate) fn forbidden(reason: impl Display) -> AuthError {
    AuthError::Forbidden { reason: clean(reason) }
}

/// Reasons quote what servers wrote, so they are cleaned like any text of theirs.
fn clean(reason: impl Display) -> String {
    plain_text(&reason.to_string(), MAX_SHOWN)
}
