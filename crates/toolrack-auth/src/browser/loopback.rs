//! Loopback redirect (RFC 8252 §7.3): opens the user's browser and receives the redirect on a local port.
//!
//! **Invariant:** the port is open on 127.0.0.1 only, during one login; requests without the right state get an
//! error and have no effect; the first request with the right state closes the port.

use std::time::Duration;
use std::{fmt, io};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use toolrack_transport::{AuthError, BoxFuture};
use url::Url;

use super::{AuthorizationResponse, Browser, LoginOutcome, LoginRequest, PreparedLogin, UrlOpener};
use crate::error::login_needed;
use crate::secret::Secret;

/// How long the user may take.
const LOGIN_TIMEOUT: Duration = Duration::from_mins(5);
/// How long a connection may take to send its request. Browsers open speculative connections that stay silent.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Concurrent connections; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 16;

/// The user's browser with a loopback redirect.
#[derive(Clone)]
pub struct SystemBrowser {
    opener: UrlOpener,
    port: u16,
    path: String,
    login_timeout: Duration,
}

/// An open port, before the browser is opened.
struct LoopbackLogin {
    listener: TcpListener,
    redirect_uri: String,
    browser: SystemBrowser,
}

/// The browser's request, still waiting for the response.
struct LoopbackResponse {
    query: Secret,
    stream: TcpStream,
}

impl SystemBrowser {
    /// Opens URLs with `opener` and listens on any free port, at `/callback`, for five minutes.
    pub fn new(opener: UrlOpener) -> Self {
        Self { opener, port: 0, path: "/callback".to_owned(), login_timeout: LOGIN_TIMEOUT }
    }

    /// Listens on this port and path, for a client registered with them.
    #[must_use]
    pub fn with_callback(mut self, port: u16, path: &str) -> Self {
        self.port = port;
        path.clone_into(&mut self.path);
        self
    }

    /// Sets how long to wait for the user.
    #[must_use]
    pub fn with_timeout(mut self, login_timeout: Duration) -> Self {
        self.login_timeout = login_timeout;
        self
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
}

impl Browser for SystemBrowser {
    fn prepare<'a>(
        &'a self,
        preferred: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Box<dyn PreparedLogin>, AuthError>> {
        Box::pin(async move {
            let no_port = |error: io::Error| {
                login_needed(format_args!("could not open a callback port: {error}"))
            };
            let listener = self.listen(preferred).await.map_err(no_port)?;
            let port = listener.local_addr().map_err(no_port)?.port();
            // RFC 8252 §8.3: the address and not `localhost`, which may resolve to another
            // interface.
            let redirect_uri = format!("http://127.0.0.1:{port}{}", self.path);
            let login = LoopbackLogin { listener, redirect_uri, browser: self.clone() };
            Ok(Box::new(login) as Box<dyn PreparedLogin>)
        })
    }
}

impl PreparedLogin for LoopbackLogin {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn run(
        self: Box<Self>,
        request: LoginRequest,
    ) -> BoxFuture<'static, Result<Box<dyn AuthorizationResponse>, AuthError>> {
        Box::pin(async move {
            // The port is already open, so even an immediate redirect is received.
            (self.browser.opener)(&request.url).map_err(|error| {
                login_needed(format_args!("could not open the browser: {error}"))
            })?;
            match timeout(self.browser.login_timeout, self.accept_response(&request)).await {
                Ok(Ok(response)) => Ok(Box::new(response) as Box<dyn AuthorizationResponse>),
                Ok(Err(error)) => {
                    Err(login_needed(format_args!("could not receive the redirect: {error}")))
                }
                Err(_elapsed) => Err(login_needed("the login timed out")),
            }
        })
    }
}

impl LoopbackLogin {
    /// Serves all connections until one belongs to the login.
    async fn accept_response(&self, request: &LoginRequest) -> io::Result<LoopbackResponse> {
        // Concurrent, so that a silent connection does not block the redirect.
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                connection = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => match connection {
                    Ok((stream, _peer)) => connections.push(read_request(stream, &self.browser.path, request)),
                    Err(error) if is_transient(&error) => {}
                    Err(error) => return Err(error),
                },
                // An empty set yields `None`, which only disables this branch for the round.
                Some(response) = connections.next() => if let Some(response) = response {
                    return Ok(response);
                },
            }
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
) -> Option<LoopbackResponse> {
    let head = timeout(REQUEST_TIMEOUT, read_head(&mut stream)).await.ok()?.ok()??;
    let status = match callback_query(head.reveal(), path) {
        Ok(query) if request.matches_redirect(query) => {
            return Some(LoopbackResponse { query: Secret::new(query), stream });
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

impl AuthorizationResponse for LoopbackResponse {
    fn query(&self) -> &Secret {
        &self.query
    }

    fn finish(self: Box<Self>, outcome: LoginOutcome) -> BoxFuture<'static, ()> {
        Box::pin(async move { write_response(self.stream, &outcome_page(&outcome)).await })
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
fn outcome_page(outcome: &LoginOutcome) -> String {
    match outcome {
        LoginOutcome::Success => html_response("200 OK", "Logged in", "You can close this window."),
        LoginOutcome::Failed(reason) => html_response("200 OK", "Not logged in", reason),
    }
}

/// Query of a request for `path`, or the error status.
fn callback_query<'a>(head: &'a str, path: &str) -> Result<&'a str, &'static str> {
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
        let page = outcome_page(&LoginOutcome::Failed("<script>alert(\"x\")</script>".to_owned()));
        assert!(!page.contains("<script>"), "{page}");
        assert!(page.contains("&lt;script&gt;"), "{page}");
    }
}
