//! Login in the user's own browser: it is sent to a page, and comes back to a port of this machine.
//!
//! **Invariant:** the port is open on 127.0.0.1 only, while one login lasts; what does not carry its state is
//! answered with an error and changes nothing; the first that does closes the port.

use std::fmt;
use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use toolrack_transport::{AuthError, BoxFuture};
use url::Url;

use super::{Browser, Errand, Landing, Opener, Outcome, Visit, callback_page as page};
use crate::error::login_needed;
use crate::secret::Secret;

/// How long a person may take.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long a connection may take to say what it wants. Browsers open some that say nothing.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Connections at the same time; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 16;

/// The user's browser, and a port of this machine where it comes back to.
#[derive(Clone)]
pub struct SystemBrowser {
    opener: Opener,
    port: u16,
    path: String,
    patience: Duration,
}

/// A port that is open, and nobody on the way yet.
struct Waiting {
    listener: TcpListener,
    redirect_uri: String,
    browser: SystemBrowser,
}

/// A browser that has come back and shows a page that is still loading.
struct Arrived {
    query: Secret,
    stream: TcpStream,
}

impl SystemBrowser {
    /// Opens pages with `opener`, and listens on any free port, at `/callback`, for five minutes.
    pub fn new(opener: Opener) -> Self {
        Self { opener, port: 0, path: "/callback".to_owned(), patience: PATIENCE }
    }

    /// Listens on this port and path, for a client that was registered with them.
    #[must_use]
    pub fn at(mut self, port: u16, path: &str) -> Self {
        self.port = port;
        path.clone_into(&mut self.path);
        self
    }

    /// Waits this long for the person.
    #[must_use]
    pub fn patient_for(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// A free port, the one of an earlier visit if it is free.
    async fn listen(&self, wish: Option<&str>) -> io::Result<TcpListener> {
        let wished = wish.and_then(|it| Url::parse(it).ok()).and_then(|it| it.port());
        if let (0, Some(port)) = (self.port, wished)
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
        wish: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Box<dyn Visit>, AuthError>> {
        Box::pin(async move {
            let deaf =
                |error: io::Error| login_needed(format_args!("no port to listen on: {error}"));
            let listener = self.listen(wish).await.map_err(deaf)?;
            let port = listener.local_addr().map_err(deaf)?.port();
            let redirect_uri = format!("http://127.0.0.1:{port}{}", self.path);
            let visit = Waiting { listener, redirect_uri, browser: self.clone() };
            Ok(Box::new(visit) as Box<dyn Visit>)
        })
    }
}

impl Visit for Waiting {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn go(
        self: Box<Self>,
        errand: Errand,
    ) -> BoxFuture<'static, Result<Box<dyn Landing>, AuthError>> {
        Box::pin(async move {
            (self.browser.opener)(&errand.url).map_err(|error| {
                login_needed(format_args!("the browser cannot be opened: {error}"))
            })?;
            match timeout(self.browser.patience, self.arrival(&errand)).await {
                Ok(Ok(arrived)) => Ok(Box::new(arrived) as Box<dyn Landing>),
                Ok(Err(error)) => Err(login_needed(format_args!("nobody can come back: {error}"))),
                Err(_elapsed) => Err(login_needed("nobody has logged in in time")),
            }
        })
    }
}

impl Waiting {
    /// Serves everybody who connects until one of them answers the errand.
    async fn arrival(&self, errand: &Errand) -> io::Result<Arrived> {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                connection = self.listener.accept(), if open.len() < MAX_CONNECTIONS => match connection {
                    Ok((stream, _peer)) => open.push(receive(stream, &self.browser.path, errand)),
                    Err(error) if is_passing(&error) => {}
                    Err(error) => return Err(error),
                },
                Some(arrived) = open.next() => if let Some(arrived) = arrived {
                    return Ok(arrived);
                },
            }
        }
    }
}

/// True for faults of one connection, which say nothing about the port.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Reads one request. `None` if it is not the one we wait for; whoever sent it is told so.
async fn receive(mut stream: TcpStream, path: &str, errand: &Errand) -> Option<Arrived> {
    let head = timeout(REQUEST_LIMIT, read_head(&mut stream)).await.ok()?.ok()??;
    let refusal = match page::query(head.reveal(), path) {
        Ok(query) if errand.is_answered_by(query) => {
            return Some(Arrived { query: Secret::new(query), stream });
        }
        Ok(_) => "400 Bad Request",
        Err(status) => status,
    };
    let text =
        page::answer(refusal, refusal, "This does not belong to the login that is waiting here.");
    write_out(stream, &text).await;
    None
}

/// Everything before the empty line, if it comes and is not too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Secret>> {
    let mut head = Vec::new();
    let mut chunk = [0_u8; 1024];
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        let n_read = stream.read(&mut chunk).await?;
        head.extend_from_slice(chunk.get(..n_read).unwrap_or_default());
        if n_read == 0 || head.len() > MAX_REQUEST_BYTES {
            return Ok(None);
        }
    }
    Ok(String::from_utf8(head).ok().map(Secret::new))
}

/// Whoever has gone away before reading has nothing to read.
async fn write_out(mut stream: TcpStream, text: &str) {
    let writing = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    };
    if !matches!(timeout(REQUEST_LIMIT, writing).await, Ok(Ok(()))) {
        tracing::debug!("the browser has gone before it was answered");
    }
}

impl Landing for Arrived {
    fn query(&self) -> &Secret {
        &self.query
    }

    fn conclude(self: Box<Self>, outcome: Outcome) -> BoxFuture<'static, ()> {
        Box::pin(async move { write_out(self.stream, &page::outcome(&outcome)).await })
    }
}

impl fmt::Debug for SystemBrowser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemBrowser").field("port", &self.port).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
