//! Credentials of one server: OAuth ([`Authorizer`]) or a configured token ([`StaticBearer`]).
//!
//! **Invariant:** reading the cached token never waits. Slow work runs in a task that continues if its caller
//! is dropped, because a refresh token that was used and not saved is lost; each such task is bounded by the
//! timeouts of its requests, and a login also ends with the last [`Authorizer`].

mod flow;
mod token_cache;

use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolrack_transport::{
    AuthChallenge, AuthError, Authorization, BoxFuture, CachedCredential, Credentials,
};
use url::Url;

use self::flow::AuthFlow;
use crate::browser::Browser;
use crate::error::{forbidden, login_needed, refused, unreachable};
use crate::secret::Secret;
use crate::settings::AuthSettings;
use crate::token_store::TokenStore;
use crate::www_authenticate::BearerChallenge;

/// OAuth client of one server: logs in and keeps the token fresh.
#[derive(Debug)]
pub struct Authorizer {
    flow: Arc<AuthFlow>,
    tasks: TaskTracker,
    _cancel_on_drop: DropGuard,
}

/// Login state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoginStatus {
    /// There is no token.
    LoggedOut,
    /// There is a token.
    LoggedIn {
        /// The authorization server.
        issuer: String,
        /// Our client id there.
        client_id: String,
        /// The granted scopes.
        scopes: Vec<String>,
        /// Expiry of the token in milliseconds since 1970, if the authorization server declared it.
        expires_at: Option<u64>,
        /// Whether the next token needs no user.
        renewable: bool,
    },
}

impl Authorizer {
    /// For the server at `server`. Without a browser, a needed login is an error.
    pub fn new(
        server: &Url,
        settings: AuthSettings,
        store: Arc<dyn TokenStore>,
        browser: Option<Arc<dyn Browser>>,
    ) -> Result<Arc<Self>, AuthError> {
        if !matches!(server.scheme(), "http" | "https") || server.host().is_none() {
            return Err(refused("OAuth needs an http or https server URL"));
        }
        settings.validate()?;
        let cancel = CancellationToken::new();
        let flow = Arc::new(AuthFlow::new(server, settings, store, browser, cancel.clone()));
        Ok(Arc::new(Self { flow, tasks: TaskTracker::new(), _cancel_on_drop: cancel.drop_guard() }))
    }

    /// Logs in now, even if there is a token, with the user if the grant needs one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel the login; dropping the last [`Authorizer`] does.
    pub async fn login(&self) -> Result<LoginStatus, AuthError> {
        self.run(|flow| async move { flow.login().await }).await
    }

    /// Deletes tokens and registrations, and revokes the token at the authorization server, best effort.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel it.
    pub async fn logout(&self) -> Result<(), AuthError> {
        self.run(|flow| async move { flow.logout().await }).await
    }

    /// Login state according to the store.
    ///
    /// # Cancel safety
    ///
    /// Has no effect.
    pub async fn status(&self) -> Result<LoginStatus, AuthError> {
        self.flow.status().await
    }

    /// Waits until no task is running. A program that exits in the middle of a refresh loses the login, so it
    /// calls this first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only stops waiting.
    pub async fn wait_idle(&self) {
        // `wait` returns only on a closed tracker. It is reopened for later refreshes.
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Runs `work` in a task, so that it completes even if the caller is dropped.
    async fn run<T: Send + 'static, F: Future<Output = Result<T, AuthError>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<AuthFlow>) -> F,
    ) -> Result<T, AuthError> {
        let task = self.tasks.spawn(work(Arc::clone(&self.flow)));
        task.await.unwrap_or_else(|_join_error| Err(unreachable("the program is shutting down")))
    }
}

impl Credentials for Authorizer {
    fn cached(&self) -> CachedCredential {
        self.flow.cached()
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(self.run(|flow| async move { flow.obtain().await }))
    }

    fn on_challenge<'a>(
        &'a self,
        rejection: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        let AuthChallenge { status, challenges, sent, operation: (method, subject) } = rejection;
        let challenge = BearerChallenge::from_headers(challenges);
        let (sent, operation) = (sent.cloned(), (method.to_owned(), subject.map(str::to_owned)));
        Box::pin(self.run(move |flow| async move {
            flow.handle_challenge(status, sent, challenge, operation).await
        }))
    }
}

/// A configured bearer token: sent as it is, never refreshed.
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
    fn cached(&self) -> CachedCredential {
        CachedCredential::Ready(self.token.clone())
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(Some(self.token.clone())) })
    }

    fn on_challenge<'a>(
        &'a self,
        rejection: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        let challenge = BearerChallenge::from_headers(rejection.challenges);
        let error = match (rejection.status, &challenge.scopes) {
            (403, Some(scopes)) if challenge.is_insufficient_scope() => forbidden(format_args!(
                "the configured token lacks the scopes {}",
                scopes.join(" ")
            )),
            (403, _) => forbidden("the server rejected the configured token with status 403"),
            _ => login_needed("the server rejected the configured token"),
        };
        Box::pin(async { Err(error) })
    }
}

#[cfg(test)]
mod static_bearer_tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, challenge: &str, expected: &str) {
        let bearer = StaticBearer::new(&Secret::new("s3cret"));
        assert!(
            matches!(bearer.cached(), CachedCredential::Ready(token) if token.reveal() == "Bearer s3cret")
        );
        let challenges = [challenge.to_owned()];
        let rejection = AuthChallenge {
            status,
            challenges: &challenges,
            sent: None,
            operation: ("tools/list", None),
        };
        let mut outcome = bearer.on_challenge(rejection);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(Err(error)) = outcome.as_mut().poll(&mut context) else {
            panic!("it waits, or succeeds");
        };
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn static_bearer_is_sent_and_not_refreshed() {
        check(401, "Bearer", "login required: the server rejected the configured token");
        check(
            403,
            "",
            "permission denied: the server rejected the configured token with status 403",
        );
        check(
            403,
            "Bearer error=\"insufficient_scope\", scope=\"a b\"",
            "permission denied: the configured token lacks the scopes a b",
        );
    }
}
