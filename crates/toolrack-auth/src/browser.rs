//! How a person is sent to a page, and how the answer comes back.
//!
//! Nothing here starts a program: who has a browser says how it is opened.

mod callback_page;
mod loopback;
mod manual;

use std::fmt;
use std::io;
use std::sync::Arc;

use toolrack_transport::{AuthError, BoxFuture};
use url::Url;

pub use self::loopback::SystemBrowser;
pub use self::manual::PastedRedirect;
use crate::callback::has_state;
use crate::secret::Secret;

/// Opens a URL in the user's browser, without a shell, and does not wait for the browser.
pub type UrlOpener = Arc<dyn Fn(&Url) -> io::Result<()> + Send + Sync>;

/// Somebody who can send a person to a page and hear where the page sends them next.
pub trait Browser: Send + Sync + fmt::Debug {
    /// Gets ready for one visit. `wish` is where an earlier visit was sent back to; the same place again spares
    /// a new registration.
    fn prepare<'a>(
        &'a self,
        preferred: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Box<dyn PreparedLogin>, AuthError>>;
}

/// One visit, not yet begun.
pub trait PreparedLogin: Send {
    /// Where the person will be sent back to.
    fn redirect_uri(&self) -> &str;

    /// Sends the person off and waits for the answer. Dropping the future ends the wait.
    fn run(
        self: Box<Self>,
        request: LoginRequest,
    ) -> BoxFuture<'static, Result<Box<dyn AuthorizationResponse>, AuthError>>;
}

/// An answer that came back, with somebody who waits to hear how it went.
pub trait AuthorizationResponse: Send {
    /// The query of the redirect.
    fn query(&self) -> &Secret;

    /// Tells the person how it went.
    fn finish(self: Box<Self>, outcome: LoginOutcome) -> BoxFuture<'static, ()>;
}

/// What a person is sent off with.
#[derive(Debug, Clone)]
pub struct LoginRequest {
    /// The page to open: `https`, or `http` on this machine.
    pub url: Url,
    /// Who lets people in.
    pub issuer: String,
    /// What is asked for.
    pub scopes: Vec<String>,
    state: Secret,
}

/// How a login went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginOutcome {
    /// There is a token.
    Success,
    /// There is none, and why.
    Failed(String),
}

impl LoginRequest {
    pub(crate) fn new(url: Url, issuer: &str, scopes: &[String], state: Secret) -> Self {
        Self { url, issuer: issuer.to_owned(), scopes: scopes.to_vec(), state }
    }

    /// True if the query of a redirect answers this errand. Whoever listens ignores the others.
    pub fn matches_redirect(&self, query: &str) -> bool {
        has_state(query, &self.state)
    }
}
