//! OAuth for one server: what to send, what to do when it is refused, and login and logout for people.
//!
//! **Invariant:** asking for what is at hand never waits. Everything that takes time runs in a task that goes on
//! when its caller goes away, because a refresh token that was used and not saved is lost; each such task is
//! bounded by the time limits of its requests, and a login also ends with the last [`Authorizer`].

mod flow;
mod token_cache;

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolrack_transport::{AtHand, AuthError, Authorization, BoxFuture, Credentials, Rebuff};
use url::Url;

use self::flow::AuthFlow;
use crate::browser::Browser;
use crate::error::{forbidden, refused, unreachable};
use crate::settings::AuthSettings;
use crate::token_store::TokenStore;
use crate::www_authenticate::BearerChallenge;

/// Whoever logs in at one server and keeps its tokens fresh.
#[derive(Debug)]
pub struct Authorizer {
    flow: Arc<AuthFlow>,
    tasks: TaskTracker,
    _cancel_on_drop: DropGuard,
}

/// Whether somebody is logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoginStatus {
    /// Nobody is.
    LoggedOut,
    /// Somebody is.
    LoginResult {
        /// Who let them in.
        issuer: String,
        /// Who we are there.
        client_id: String,
        /// What may be done.
        scopes: Vec<String>,
        /// When the token ends, in milliseconds since 1970, if the authorization server has said so.
        expires_at: Option<u64>,
        /// Whether the next token can be had without a person.
        renewable: bool,
    },
}

impl Authorizer {
    /// For the server at `server`. Without a browser, a login that is needed is an error that says what to run.
    pub fn new(
        server: &Url,
        settings: AuthSettings,
        store: Arc<dyn TokenStore>,
        browser: Option<Arc<dyn Browser>>,
    ) -> Result<Arc<Self>, AuthError> {
        if !matches!(server.scheme(), "http" | "https") || server.host().is_none() {
            return Err(refused("OAuth needs a server with an http or https URL"));
        }
        settings.validate()?;
        let cancel = CancellationToken::new();
        let flow = Arc::new(AuthFlow::new(server, settings, store, browser, cancel.clone()));
        Ok(Arc::new(Self { flow, tasks: TaskTracker::new(), _cancel_on_drop: cancel.drop_guard() }))
    }

    /// Logs in now, whatever is at hand, with a person if the grant needs one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not end the login; dropping the last [`Authorizer`] does.
    pub async fn login(&self) -> Result<LoginStatus, AuthError> {
        let flow = Arc::clone(&self.flow);
        self.run(async move { flow.login().await }).await
    }

    /// Forgets tokens and registrations, and tells the authorization server, if it can be told.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not end it.
    pub async fn logout(&self) -> Result<(), AuthError> {
        let flow = Arc::clone(&self.flow);
        self.run(async move { flow.logout().await }).await
    }

    /// Whether somebody is logged in, as far as the store knows.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    pub async fn status(&self) -> Result<LoginStatus, AuthError> {
        self.flow.status().await
    }

    /// Waits until nothing is under way any more. A program that ends in the middle of a refresh loses the login,
    /// so it calls this first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only ends the wait.
    pub async fn wait_idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Runs something to its end, whoever still waits for it.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, AuthError>> + Send + 'static,
    ) -> Result<T, AuthError> {
        let work = self.tasks.spawn(work);
        work.await.unwrap_or_else(|_cancel_on_drop| Err(unreachable("the program is ending")))
    }
}

impl Credentials for Authorizer {
    fn at_hand(&self) -> AtHand {
        self.flow.at_hand()
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        let flow = Arc::clone(&self.flow);
        Box::pin(self.run(async move { flow.obtain().await }))
    }

    fn rebuffed<'a>(&'a self, rebuff: Rebuff<'a>) -> BoxFuture<'a, Result<(), AuthError>> {
        let challenge = BearerChallenge::from_headers(rebuff.challenges);
        let sent = rebuff.sent.cloned();
        let (method, subject) = rebuff.operation;
        let operation = (method.to_owned(), subject.map(str::to_owned));
        let flow = Arc::clone(&self.flow);
        match rebuff.status {
            401 => Box::pin(
                self.run(async move { flow.handle_unauthorized(sent, challenge, operation).await }),
            ),
            403 if challenge.is_insufficient_scope() => {
                Box::pin(self.run(async move { flow.step_up(sent, challenge, operation).await }))
            }
            status => {
                Box::pin(
                    async move { Err(forbidden(format_args!("the server answered {status}"))) },
                )
            }
        }
    }
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoggedOut => f.write_str("logged out"),
            Self::LoginResult { issuer, .. } => write!(f, "logged in by {issuer}"),
        }
    }
}
