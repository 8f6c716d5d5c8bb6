//! How a person is sent to a page, and how the answer comes back.
//!
//! Nothing here starts a program: who has a browser says how it is opened.

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

// FOLDED browser/manual.rs
// DOC Login without a browser on this machine: the person opens the page elsewhere and pastes where it led.

const LOGIN_TIMEOUT: Duration = Duration::from_mins(5);

/// Where pages lead that nobody serves: the browser shows an error, and the address bar has what we need.
const DEFAULT_REDIRECT_URI: &str = "http://127.0.0.1:33418/callback";

type Prompt = Arc<dyn Fn(LoginRequest) -> BoxFuture<'static, io::Result<String>> + Send + Sync>;

/// A person who is shown a URL and pastes the one that it led to.
#[derive(Clone)]
pub struct PastedRedirect {
    prompt: Prompt,
    redirect_uri: String,
}

/// A question that has not been asked yet.
struct PastedLogin(PastedRedirect);

/// What was pasted.
struct PastedResponse(Secret);

impl PastedRedirect {
    /// `ask` shows the URL of the errand and gives back what the person pastes.
    pub fn new(
        prompt: impl Fn(LoginRequest) -> BoxFuture<'static, io::Result<String>> + Send + Sync + 'static,
    ) -> Self {
        Self { prompt: Arc::new(prompt), redirect_uri: DEFAULT_REDIRECT_URI.to_owned() }
    }

    /// Uses this redirect, for a client that was registered with it.
    #[must_use]
    pub fn with_redirect_uri(mut self, redirect_uri: &str) -> Self {
        redirect_uri.clone_into(&mut self.redirect_uri);
        self
    }
}

impl Browser for PastedRedirect {
    fn prepare<'a>(
        &'a self,
        _wish: Option<&'a str>,
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
                    return Err(login_needed(format_args!("nothing was pasted: {error}")));
                }
                Err(_elapsed) => return Err(login_needed("nobody has logged in in time")),
            };
            let query = query(&pasted, &self.0.redirect_uri)?;
            Ok(Box::new(PastedResponse(query)) as Box<dyn AuthorizationResponse>)
        })
    }
}

/// The query of a pasted redirect: the whole URL, or only its query.
fn query(pasted: &Secret, redirect_uri: &str) -> Result<Secret, AuthError> {
    let text = pasted.reveal().trim().trim_matches(['"', '\'', '<', '>']);
    if let Some(query) = text.strip_prefix('?') {
        return Ok(Secret::new(query));
    }
    let wrong_url =
        || untrusted(format_args!("what was pasted does not begin with {redirect_uri}"));
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
        // Whoever pasted it sits at the program that asked.
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
    fn what_is_pasted_must_be_our_redirect() {
        let check = |text: &str, expected: Option<&str>| {
            let found = query(&Secret::new(text), DEFAULT_REDIRECT_URI);
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
    async fn a_person_who_never_pastes_is_not_waited_for_for_ever() {
        let silent = PastedRedirect::new(|_errand| Box::pin(std::future::pending()));
        let login = silent.prepare(None).await.unwrap();
        let url = Url::parse("https://a/authorize").unwrap();
        let outcome = login.run(LoginRequest::new(url, "https://a", &[], Secret::new("s"))).await;
        assert!(matches!(outcome.err(), Some(AuthError::LoginNeeded { .. })));
    }
}
