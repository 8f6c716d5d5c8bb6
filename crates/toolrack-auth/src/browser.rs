//! Browser login: the trait that opens the authorization URL and receives the redirect, with a loopback port (RFC
//! 8252 §7.3) or by copy and paste.
//!
//! This crate starts no program: the caller supplies the function that opens a URL.
//!
//! **Invariant:** the port is open on 127.0.0.1 only, during one login; requests without the right state get an
//! error and have no effect; the first request with the right state closes the port.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use toolrack_transport::{AuthError, BoxFuture};
use url::Url;

use crate::authorization_code::callback_params;
use crate::error::{login_needed, untrusted};
use crate::secret::Secret;

/// How long the user may take.
const LOGIN_TIMEOUT: Duration = Duration::from_mins(5);
/// How long a connection may take to send its request. Browsers open speculative connections that stay silent.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Concurrent connections; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 16;
/// No process listens there: the browser shows an error, and the address bar has the query.
const PASTED_REDIRECT_URI: &str = "http://127.0.0.1:33418/callback";

/// Opens a URL in the user's browser, without a shell, and does not wait for the browser.
pub type UrlOpener = Arc<dyn Fn(&Url) -> io::Result<()> + Send + Sync>;

/// Opens an authorization URL for the user and receives the redirect.
pub trait Browser: Send + Sync + fmt::Debug {
    /// Prepares one login. `preferred` is the redirect URI of an earlier login; using it again saves a new
    /// registration.
    fn prepare<'a>(
        &'a self,
        preferred: Option<&'a str>,
    ) -> BoxFuture<'a, Result<PreparedLogin, AuthError>>;
}

/// A login that has not started.
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
pub struct PreparedLogin {
    /// Redirect URI of the login.
    pub redirect_uri: String,
    /// Opens the authorization URL and waits for the redirect. Dropping the future stops waiting.
    pub run: Box<dyn FnOnce(LoginRequest) -> LoginFuture + Send>,
}

/// A running login.
pub type LoginFuture = BoxFuture<'static, Result<AuthorizationResponse, AuthError>>;

/// The redirect from the authorization server; the user still waits for the outcome.
#[expect(missing_debug_implementations, reason = "its query is secret")]
pub struct AuthorizationResponse {
    /// Query of the redirect.
    pub query: Secret,
    /// Shows the user whether there is a token.
    pub finish: Box<dyn FnOnce(Result<(), AuthError>) -> BoxFuture<'static, ()> + Send>,
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
    pub(crate) state: Secret,
}

impl LoginRequest {
    /// Whether the query of a redirect belongs to this request. Listeners ignore all others.
    pub fn matches_redirect(&self, query: &str) -> bool {
        let params = callback_params(query).unwrap_or_default();
        params.get("state").map(String::as_str) == Some(self.state.reveal())
    }
}

/// Waits for the user, at most `limit`. `failure` describes an IO error.
async fn wait_for_user<T>(
    limit: Duration,
    failure: &str,
    input: impl Future<Output = io::Result<T>>,
) -> Result<T, AuthError> {
    match timeout(limit, input).await {
        Ok(Ok(input)) => Ok(input),
        Ok(Err(error)) => Err(login_needed(format_args!("{failure}: {error}"))),
        Err(_elapsed) => Err(login_needed("the login timed out")),
    }
}

type Prompt = Arc<dyn Fn(LoginRequest) -> BoxFuture<'static, io::Result<String>> + Send + Sync>;

/// Login without a browser on this machine: the user opens the URL elsewhere and pastes the redirect.
#[derive(Clone)]
pub struct PastedRedirect {
    prompt: Prompt,
    /// Redirect URI of the login, for a client registered with another one.
    pub redirect_uri: String,
}

impl PastedRedirect {
    /// `prompt` shows the URL of the request and returns the text that the user pastes.
    pub fn new(
        prompt: impl Fn(LoginRequest) -> BoxFuture<'static, io::Result<String>> + Send + Sync + 'static,
    ) -> Self {
        Self { prompt: Arc::new(prompt), redirect_uri: PASTED_REDIRECT_URI.to_owned() }
    }

    async fn run(self, request: LoginRequest) -> Result<AuthorizationResponse, AuthError> {
        let prompt = (self.prompt)(request);
        let pasted = wait_for_user(LOGIN_TIMEOUT, "could not read the pasted URL", prompt).await?;
        let query = pasted_query(&Secret::new(pasted), &self.redirect_uri)?;
        // The user sees the outcome in the program that prompted.
        Ok(AuthorizationResponse { query, finish: Box::new(|_outcome| Box::pin(async {})) })
    }
}

impl Browser for PastedRedirect {
    fn prepare<'a>(
        &'a self,
        _preferred: Option<&'a str>,
    ) -> BoxFuture<'a, Result<PreparedLogin, AuthError>> {
        let (browser, redirect_uri) = (self.clone(), self.redirect_uri.clone());
        let run = Box::new(|request| Box::pin(browser.run(request)) as LoginFuture);
        Box::pin(async { Ok(PreparedLogin { redirect_uri, run }) })
    }
}

/// Query of the pasted redirect: the whole URL, or only its query.
pub(crate) fn pasted_query(pasted: &Secret, redirect_uri: &str) -> Result<Secret, AuthError> {
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

impl fmt::Debug for PastedRedirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastedRedirect")
            .field("redirect_uri", &self.redirect_uri)
            .finish_non_exhaustive()
    }
}

/// The user's browser with a loopback redirect.
#[derive(Clone)]
pub struct SystemBrowser {
    /// Opens the authorization URL.
    pub opener: UrlOpener,
    /// Callback port, for a client registered with it; 0 for any free port.
    pub port: u16,
    /// Callback path.
    pub path: String,
    /// How long to wait for the user.
    pub login_timeout: Duration,
}

impl SystemBrowser {
    /// Opens URLs with `opener` and listens on any free port, at `/callback`, for five minutes.
    pub fn new(opener: UrlOpener) -> Self {
        Self { opener, port: 0, path: "/callback".to_owned(), login_timeout: LOGIN_TIMEOUT }
    }

    /// Binds a free port: that of an earlier login if possible.
    async fn listen(&self, preferred: Option<&str>) -> io::Result<TcpListener> {
        let preferred_port =
            preferred.and_then(|uri| Url::parse(uri).ok()).and_then(|url| url.port());
        // The same port as before lets the registration be used again. If it is taken, any port
        // will do.
        if let (0, Some(port)) = (self.port, preferred_port)
            && let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await
        {
            return Ok(listener);
        }
        TcpListener::bind(("127.0.0.1", self.port)).await
    }

    /// Opens the browser and waits for the redirect.
    async fn run(
        self,
        listener: TcpListener,
        request: LoginRequest,
    ) -> Result<AuthorizationResponse, AuthError> {
        // The port is already open, so even an immediate redirect is received.
        (self.opener)(&request.url)
            .map_err(|error| login_needed(format_args!("could not open the browser: {error}")))?;
        let redirect = accept_redirect(&listener, &self.path, &request);
        let failure = "could not receive the redirect";
        let (query, stream) = wait_for_user(self.login_timeout, failure, redirect).await?;
        let finish = |outcome| {
            Box::pin(async move { write_response(stream, &outcome_page(outcome)).await })
                as BoxFuture<'static, ()>
        };
        Ok(AuthorizationResponse { query, finish: Box::new(finish) })
    }
}

impl Browser for SystemBrowser {
    fn prepare<'a>(
        &'a self,
        preferred: Option<&'a str>,
    ) -> BoxFuture<'a, Result<PreparedLogin, AuthError>> {
        Box::pin(async move {
            let no_port = |error: io::Error| {
                login_needed(format_args!("could not open a callback port: {error}"))
            };
            let listener = self.listen(preferred).await.map_err(no_port)?;
            let port = listener.local_addr().map_err(no_port)?.port();
            // RFC 8252 §8.3: the address and not `localhost`, which may resolve to another
            // interface.
            let redirect_uri = format!("http://127.0.0.1:{port}{}", self.path);
            let browser = self.clone();
            let run = Box::new(|request| Box::pin(browser.run(listener, request)) as LoginFuture);
            Ok(PreparedLogin { redirect_uri, run })
        })
    }
}

/// Serves all connections until one belongs to the login. Its request still waits for the response.
async fn accept_redirect(
    listener: &TcpListener,
    path: &str,
    request: &LoginRequest,
) -> io::Result<(Secret, TcpStream)> {
    // Concurrent, so that a silent connection does not block the redirect.
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            connection = listener.accept(), if connections.len() < MAX_CONNECTIONS => match connection {
                Ok((stream, _peer)) => connections.push(read_request(stream, path, request)),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            },
            // An empty set yields `None`, which only disables this branch for the round.
            Some(redirect) = connections.next() => if let Some(redirect) = redirect {
                return Ok(redirect);
            },
        }
    }
}

/// Whether an error concerns one connection and not the listener.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Reads one request. `None` if it does not belong to the login; the sender gets an error.
async fn read_request(
    mut stream: TcpStream,
    path: &str,
    request: &LoginRequest,
) -> Option<(Secret, TcpStream)> {
    let head = timeout(REQUEST_TIMEOUT, read_head(&mut stream)).await.ok()?.ok()??;
    let status = match callback_query(head.reveal(), path) {
        Ok(query) if request.matches_redirect(query) => {
            return Some((Secret::new(query), stream));
        }
        // Does not end the login: any page in the browser can send a request with a wrong state.
        Ok(_) => "400 Bad Request",
        Err(status) => status,
    };
    let text = html_response(status, status, "This request does not belong to the pending login.");
    write_response(stream, &text).await;
    None
}

/// Reads the request head, if it is complete and not too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Secret>> {
    let mut head = Vec::new();
    let mut chunk = [0_u8; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let n_read = stream.read(&mut chunk).await?;
        head.extend_from_slice(chunk.get(..n_read).unwrap_or_default());
        if n_read == 0 || head.len() > MAX_REQUEST_BYTES {
            return Ok(None);
        }
    }
    Ok(String::from_utf8(head).ok().map(Secret::new))
}

/// Writes the response. A browser that has disconnected is not an error.
async fn write_response(mut stream: TcpStream, text: &str) {
    let writing = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    };
    if !matches!(timeout(REQUEST_TIMEOUT, writing).await, Ok(Ok(()))) {
        tracing::debug!("the browser disconnected before the response was sent");
    }
}

impl fmt::Debug for SystemBrowser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemBrowser").field("port", &self.port).finish_non_exhaustive()
    }
}

/// HTTP response with an HTML page.
fn html_response(status: &str, title: &str, text: &str) -> String {
    let (title, text) = (escape(title), escape(text));
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <body style=\"font-family:sans-serif;margin:15vh auto;max-width:32em\">\
         <h1>{title}</h1><p>{text}</p></body></html>"
    );
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Connection: close\r\n\r\n{page}",
        page.len()
    )
}

/// Page that the user sees after the login.
fn outcome_page(outcome: Result<(), AuthError>) -> String {
    match outcome {
        Ok(()) => html_response("200 OK", "Logged in", "You can close this window."),
        Err(error) => html_response("200 OK", "Not logged in", &error.to_string()),
    }
}

/// Query of a request for `path`, or the error status.
pub(crate) fn callback_query<'a>(head: &'a str, path: &str) -> Result<&'a str, &'static str> {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (found, query) = target.split_once('?').unwrap_or((target, ""));
    match (method, found == path) {
        (_, false) => Err("404 Not Found"),
        ("GET", true) => Ok(query),
        (_, true) => Err("405 Method Not Allowed"),
    }
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod page_tests {
    use super::*;

    #[test]
    fn only_the_exact_callback_path_is_served() {
        let check = |head: &str, expected| {
            assert_eq!(callback_query(head, "/callback"), expected, "{head}");
        };
        check("GET /callback?code=c&state=s HTTP/1.1\r\nHost: x", Ok("code=c&state=s"));
        check("GET /callback HTTP/1.1", Ok(""));
        check("GET /callback/?code=c HTTP/1.1", Err("404 Not Found"));
        check("GET /favicon.ico HTTP/1.1", Err("404 Not Found"));
        check("POST /callback?code=c HTTP/1.1", Err("405 Method Not Allowed"));
        check("", Err("404 Not Found"));
    }

    #[test]
    fn error_text_is_html_escaped() {
        let page = outcome_page(Err(login_needed("<script>alert(\"x\")</script>")));
        assert!(!page.contains("<script>"), "{page}");
        assert!(page.contains("&lt;script&gt;"), "{page}");
    }
}

#[cfg(test)]
mod pasted_tests {
    use super::*;

    #[test]
    fn pasted_url_must_be_our_redirect() {
        let check = |text: &str, expected: Option<&str>| {
            let found = pasted_query(&Secret::new(text), PASTED_REDIRECT_URI);
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
        let (issuer, state) = ("https://a".to_owned(), Secret::new("s"));
        let outcome = (login.run)(LoginRequest { url, issuer, scopes: Vec::new(), state }).await;
        assert!(matches!(outcome.err(), Some(AuthError::LoginRequired { .. })));
    }
}
