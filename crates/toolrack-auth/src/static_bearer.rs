//! A token from the configuration: sent as it is, and never renewed.

use std::sync::Arc;

use toolrack_transport::{AtHand, AuthError, Authorization, BoxFuture, Credentials, Rebuff};

use crate::error::{forbidden, login_needed};
use crate::secret::Secret;
use crate::www_authenticate::BearerChallenge;

/// Credentials that somebody has configured.
#[derive(Debug, Clone)]
pub struct StaticBearer {
    token: Authorization,
}

impl StaticBearer {
    /// Sends `token` with every request.
    pub fn new(token: &Secret) -> Arc<Self> {
        Arc::new(Self { token: Authorization::bearer(token.reveal()) })
    }
}

impl Credentials for StaticBearer {
    fn at_hand(&self) -> AtHand {
        AtHand::Ready(self.token.clone())
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(Some(self.token.clone())) })
    }

    fn rebuffed<'a>(&'a self, rebuff: Rebuff<'a>) -> BoxFuture<'a, Result<(), AuthError>> {
        let challenge = BearerChallenge::from_headers(rebuff.challenges);
        let fault = match (rebuff.status, challenge.scopes) {
            (403, Some(scopes)) if challenge.error.as_deref() == Some("insufficient_scope") => {
                forbidden(format_args!(
                    "the configured token lacks the scopes {}",
                    scopes.join(" ")
                ))
            }
            (403, _) => forbidden("the server answered 403 to the configured token"),
            _ => login_needed("the server refused the configured token"),
        };
        Box::pin(async { Err(fault) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, challenge: &str, expected: &str) {
        let bearer = StaticBearer::new(&Secret::new("s3cret"));
        assert!(matches!(bearer.at_hand(), AtHand::Ready(it) if it.reveal() == "Bearer s3cret"));
        let challenges = [challenge.to_owned()];
        let rebuff =
            Rebuff { status, challenges: &challenges, sent: None, operation: ("tools/list", None) };
        let mut answer = bearer.rebuffed(rebuff);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(Err(error)) = answer.as_mut().poll(&mut context) else {
            panic!("it waits, or agrees");
        };
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_configured_token_is_sent_and_not_renewed() {
        check(401, "Bearer", "login needed: the server refused the configured token");
        check(403, "", "not allowed: the server answered 403 to the configured token");
        check(
            403,
            "Bearer error=\"insufficient_scope\", scope=\"a b\"",
            "not allowed: the configured token lacks the scopes a b",
        );
    }
}
