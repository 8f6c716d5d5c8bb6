//! Browser login: the traits that open the authorization URL and receive the redirect, and the copy-and-paste
//! variant.
//!
//! This crate starts no program: the caller supplies the function that opens a URL.

mod loopback;

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use tokio::time::timeout;
use toolrack_transport::{AuthError, BoxFuture};
use url::Url;

pub use self::loopback::SystemBrowser;
use crate::authorization_code::has_state;
use crate::error::{login_needed, untrusted};
use crate::secret::Secret;

/// Opens a URL in the user's browser, without a shell, and does not wait for the browser.
pub type UrlOpener = Arc<dyn Fn(&Url) -> io::Result<()> + Send + Sync>;

/// Opens an authorization URL for the user and receives the redirect.
pub trait Browser: Send + Sync + fmt::Debug {
    /// Prepares one login. `preferred` is the redirect URI of an earlier login; using it again saves a new
    /// registration.
    fn prepare<'a>(
        &'a self,
        preferred: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Box<dyn PreparedLogin>, AuthError>>;
}

/// A login that has not started.
pub trait PreparedLogin: Send {
    /// Redirect URI of the login.
    fn redirect_uri(&self) -> &str;

    /// Opens the authorization URL and waits for the redirect. Dropping the future stops waiting.
    fn run(
        self: Box<Self>,
        request: LoginRequest,
    ) -> BoxFuture<'static, Result<Box<dyn AuthorizationResponse>, AuthError>>;
}

/// The redirect from the authorization server; the user still waits for the outcome.
pub trait AuthorizationResponse: Send {
    /// Query of the redirect.
    fn query(&self) -> &Secret;

    /// Shows the outcome to the user.
    fn finish(self: Box<Self>, outcome: LoginOutcome) -> BoxFuture<'static, ()>;
}

/// An authorization request for the user.
#[derive(Debug, Clone)]
pub struct LoginRequest {
    /// URL to open: `https`, or `http` on this machine.
    pub url: Url,
    /// The authorization server.
    pub issuer: String,
    /// Requested scopes.
    pub scopes: Vec<String>,
    state: Secret,
}

/// Outcome of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginOutcome {
    /// There is a token.
    Success,
    /// There is none, for this reason.
    Failed(String),
}

impl LoginRequest {
    pub(crate) fn new(url: Url, issuer: &str, scopes: &[String], state: Secret) -> Self {
        Self { url, issuer: issuer.to_owned(), scopes: scopes.to_vec(), state }
    }

    /// Whether the query of a redirect belongs to this request. Listeners ignore all others.
    pub fn matches_redirect(&self, query: &str) -> bool {
        has_state(query, &self.state)
    }
}

const LOGIN_TIMEOUT: Duration = Duration::from_mins(5);

/// No process listens there: the browser shows an error, and the address bar has the query.
const DEFAULT_REDIRECT_URI: &str = "http://127.0.0.1:33418/callback";

type Prompt = Arc<dyn Fn(LoginRequest) -> BoxFuture<'static, io::Result<String>> + Send + Sync>;

/// Login without a browser on this machine: the user opens the URL elsewhere and pastes the redirect.
#[derive(Clone)]
pub struct PastedRedirect {
    prompt: Prompt,
    redirect_uri: String,
}

/// A login that has not started.
struct PastedLogin(PastedRedirect);

/// Query of the pasted redirect.
struct PastedResponse(Secret);

impl PastedRedirect {
    /// `prompt` shows the URL of the request and returns the text that the user pastes.
    pub fn new(
        prompt: impl Fn(LoginRequest) -> BoxFuture<'static, io::Result<String>> + Send + Sync + 'static,
    ) -> Self {
        Self { prompt: Arc::new(prompt), redirect_uri: DEFAULT_REDIRECT_URI.to_owned() }
    }

    /// Uses this redirect URI, for a client registered with it.
    #[must_use]
    pub fn with_redirect_uri(mut self, redirect_uri: &str) -> Self {
        redirect_uri.clone_into(&mut self.redirect_uri);
        self
    }
}

impl Browser for PastedRedirect {
    fn prepare<'a>(
        &'a self,
        _preferred: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Box<dyn PreparedLogin>, AuthError>> {
        Box::pin(async { Ok(Box::new(PastedLogin(self.clone())) as Box<dyn PreparedLogin>) })
    }
}

impl PreparedLogin for PastedLogin {
    fn redirect_uri(&self) -> &str {
        &self.0.redirect_uri
    }

    fn run(
        self: Box<Self>,
        request: LoginRequest,
    ) -> BoxFuture<'static, Result<Box<dyn AuthorizationResponse>, AuthError>> {
        Box::pin(async move {
            let pasted = match timeout(LOGIN_TIMEOUT, (self.0.prompt)(request.clone())).await {
                Ok(Ok(text)) => Secret::new(text),
                Ok(Err(error)) => {
                    return Err(login_needed(format_args!(
                        "could not read the pasted URL: {error}"
                    )));
                }
                Err(_elapsed) => return Err(login_needed("the login timed out")),
            };
            let query = pasted_query(&pasted, &self.0.redirect_uri)?;
            Ok(Box::new(PastedResponse(query)) as Box<dyn AuthorizationResponse>)
        })
    }
}

/// Query of the pasted redirect: the whole URL, or only its query.
fn pasted_query(pasted: &Secret, redirect_uri: &str) -> Result<Secret, AuthError> {
    let text = pasted.reveal().trim().trim_matches(['"', '\'', '<', '>']);
    if let Some(query) = text.strip_prefix('?') {
        return Ok(Secret::new(query));
    }
    let wrong_url = || untrusted(format_args!("the pasted URL does not start with {redirect_uri}"));
    let url = Url::parse(text).map_err(|_syntax| wrong_url())?;
    let expected = Url::parse(redirect_uri).map_err(|_syntax| wrong_url())?;
    if url.origin() != expected.origin() || url.path() != expected.path() {
        return Err(wrong_url());
    }
    Ok(Secret::new(url.query().unwrap_or_default()))
}

impl AuthorizationResponse for PastedResponse {
    fn query(&self) -> &Secret {
        &self.0
    }

    fn finish(self: Box<Self>, _outcome: LoginOutcome) -> BoxFuture<'static, ()> {
        // The user sees the outcome in the program that prompted.
        Box::pin(async {})
    }
}

impl fmt::Debug for PastedRedirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastedRedirect")
            .field("redirect_uri", &self.redirect_uri)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_url_must_be_our_redirect() {
        let check = |text: &str, expected: Option<&str>| {
            let found = pasted_query(&Secret::new(text), DEFAULT_REDIRECT_URI);
            assert_eq!(found.as_ref().ok().map(Secret::reveal), expected, "{text}");
            if let Err(error) = found {
                assert!(!error.to_string().contains("c0de"), "{error}");
            }
        };
        check(" http://127.0.0.1:33418/callback?code=c0de&state=s\n", Some("code=c0de&state=s"));
        check("\"http://127.0.0.1:33418/callback?code=c0de\"", Some("code=c0de"));
        check("?code=c0de&state=s", Some("code=c0de&state=s"));
        check("http://127.0.0.1:33418/callback", Some(""));
        check("http://evil/callback?code=c0de", None);
        check("http://127.0.0.1:33418/other?code=c0de", None);
        check("c0de", None);
        check("", None);
    }

    #[tokio::test(start_paused = true)]
    async fn pasted_login_times_out() {
        let silent = PastedRedirect::new(|_login| Box::pin(std::future::pending()));
        let login = silent.prepare(None).await.unwrap();
        let url = Url::parse("https://a/authorize").unwrap();
        let outcome = login.run(LoginRequest::new(url, "https://a", &[], Secret::new("s"))).await;
        assert!(matches!(outcome.err(), Some(AuthError::LoginRequired { .. })));
    }
}
