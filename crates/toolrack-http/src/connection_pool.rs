//! HTTP connection pool for one origin: reuses connections and closes idle ones.
//!
//! **Invariant:** a request is sent a second time only if the server cannot have received any of it, or if its
//! method is idempotent by the MCP specification.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{TrySendError, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use toolrack_transport::{RequestError, TransportError};

use crate::connect::{Connector, HttpVersion};
use crate::http1::{AttemptError, Http1Connection};
use crate::request_sender::HttpRequest;
use crate::response::{BodySource, ContentInfo, HttpResponse};
use crate::transport::TaskGroup;

/// Many servers close idle connections after a few seconds; few keep them longer than this.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// Connections beyond this are closed after their exchange.
const MAX_IDLE_CONNECTIONS: usize = 64;
/// HTTP/2 keep-alive: interval of pings, and how long the server may take to acknowledge one.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

type RequestBody = Full<Bytes>;

/// Connections to one origin.
pub(crate) struct ConnectionPool {
    connector: Connector,
    /// Tasks of the connections. They outlive those of the transport, because the DELETE of the session still
    /// needs a connection.
    pub(crate) tasks: TaskGroup,
    idle_connections: Mutex<IdleConnections>,
    /// Exchanges that wait for their response head.
    n_in_flight: AtomicUsize,
}

/// Counts one exchange that waits for its response head.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
#[expect(clippy::vec_box, reason = "they are large and change places with every exchange")]
struct IdleConnections {
    http1: Vec<Box<Http1Connection>>,
    http2: Option<http2::SendRequest<RequestBody>>,
    has_reaper: bool,
}

/// Connection that an exchange runs on.
enum Connection {
    Http1(Box<Http1Connection>),
    Http2(http2::SendRequest<RequestBody>),
}

impl ConnectionPool {
    pub(crate) fn new(connector: Connector, tasks: TaskGroup) -> Self {
        Self {
            connector,
            tasks,
            idle_connections: Mutex::default(),
            n_in_flight: AtomicUsize::new(0),
        }
    }

    /// Sends a request and returns the response with its head read.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, RequestError> {
        let sent = &request.message.sent;
        let n_before = self.n_in_flight.fetch_add(1, Ordering::Relaxed);
        let _in_flight = InFlight(&self.n_in_flight);
        if n_before > 0 {
            // Yield once, so that other ready callers write too and the server wakes up once for all of them.
            yield_now().await;
        }
        let mut may_reuse = true;
        loop {
            let reused = if may_reuse { self.take_idle() } else { None };
            let was_reused = reused.is_some();
            let connection = match reused {
                Some(connection) => connection,
                // Boxed: connecting is rare, and its state would enlarge the future of every call.
                None => Box::pin(self.connect()).await.map_err(|error| {
                    let address = request.url.to_string();
                    // Not always unsent: an idempotent request may have been written to a reused connection.
                    sent.failure(TransportError::Unreachable { address, error })
                })?,
            };
            // Before the first byte is written: a caller that drops this future in the middle of the write
            // cannot know how much was sent.
            sent.mark();
            let failure = match self.send(connection, request).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            if failure.is_unsent {
                sent.clear();
            }
            // A server may close an idle connection at any time, so a failure on a reused connection says
            // nothing about the server: try once more, on a new connection.
            if !was_reused || !(failure.is_unsent || request.is_idempotent()) {
                return Err(sent.failure(TransportError::Io(failure.error)));
            }
            may_reuse = false;
        }
    }

    async fn send(
        self: &Arc<Self>,
        connection: Connection,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, AttemptError> {
        match connection {
            Connection::Http1(mut connection) => {
                let head = connection.send(request, self.connector.forward_proxy()).await?;
                let source = BodySource::Http1(connection, Some(Arc::clone(self)));
                Ok(HttpResponse::new(head.status, head.headers, head.content, source))
            }
            Connection::Http2(mut sender) => {
                let response = Box::pin(sender.try_send_request(request.to_request())).await;
                let (head, body) = response.map_err(unsent_or_lost)?.into_parts();
                let content = ContentInfo::from_headers(&head.headers);
                let source = BodySource::Http2(body);
                Ok(HttpResponse::new(head.status, head.headers, content, source))
            }
        }
    }

    /// Takes a connection back after its exchange.
    pub(crate) fn return_connection(self: &Arc<Self>, mut connection: Box<Http1Connection>) {
        // After `close` a returned connection would stay open: the pool is emptied only once.
        if !connection.is_complete() || self.tasks.stop.is_cancelled() {
            return;
        }
        connection.release_buffers();
        let mut idle_connections = self.idle_connections.lock();
        if idle_connections.http1.len() >= MAX_IDLE_CONNECTIONS {
            return;
        }
        idle_connections.http1.push(connection);
        if !std::mem::replace(&mut idle_connections.has_reaper, true) {
            drop(idle_connections);
            self.tasks.spawn(reap_idle(Arc::clone(self)));
        }
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.tasks.stop.cancel();
        *self.idle_connections.lock() = IdleConnections::default();
    }

    /// Takes the most recently used connection that is still open.
    fn take_idle(&self) -> Option<Connection> {
        let mut idle_connections = self.idle_connections.lock();
        if let Some(sender) = &idle_connections.http2 {
            if !sender.is_closed() {
                // Not taken out: an HTTP/2 connection carries many requests at once.
                return Some(Connection::Http2(sender.clone()));
            }
            idle_connections.http2 = None;
        }
        while let Some(mut connection) = idle_connections.http1.pop() {
            // The checks only avoid a likely failure: a server that closes right after them is
            // handled in `exchange`.
            if connection.idle_since.elapsed() < MAX_IDLE && connection.is_usable() {
                return Some(Connection::Http1(connection));
            }
        }
        None
    }

    async fn connect(self: &Arc<Self>) -> io::Result<Connection> {
        let (stream, version) = self.connector.open().await?;
        if version == HttpVersion::Http1 {
            return Ok(Connection::Http1(Box::new(Http1Connection::new(stream))));
        }
        // hyper pings only while a stream is open, so an idle connection causes no traffic.
        let (sender, driver) = http2::Builder::new(self.tasks.clone())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(to_io_error)?;
        self.tasks.spawn_until_stopped(async move {
            if let Err(error) = driver.await {
                tracing::trace!(%error, "an HTTP/2 connection failed");
            }
        });
        // Several callers may have connected at once; they share the first HTTP/2 connection.
        let mut idle_connections = self.idle_connections.lock();
        match &idle_connections.http2 {
            // Dropping the new sender closes the second connection.
            Some(sender) if !sender.is_closed() => Ok(Connection::Http2(sender.clone())),
            _ => {
                idle_connections.http2 = Some(sender.clone());
                Ok(Connection::Http2(sender))
            }
        }
    }
}

fn unsent_or_lost<T>(mut failure: TrySendError<T>) -> AttemptError {
    // hyper gives the message back only if it has not written any of it.
    let is_unsent = failure.take_message().is_some();
    AttemptError { error: to_io_error(failure.into_error()), is_unsent }
}

/// Closes idle connections; exits when the pool is empty.
async fn reap_idle(pool: Arc<ConnectionPool>) {
    loop {
        // Connections are pushed and popped at the end, so the first one is the oldest.
        let oldest =
            pool.idle_connections.lock().http1.first().map(|connection| connection.idle_since);
        let next = oldest.unwrap_or_else(Instant::now) + MAX_IDLE;
        tokio::select! {
            () = pool.tasks.stop.cancelled() => return pool.close(),
            () = sleep_until(next) => {}
        }
        let mut idle_connections = pool.idle_connections.lock();
        idle_connections.http1.retain(|connection| connection.idle_since.elapsed() < MAX_IDLE);
        if idle_connections.http1.is_empty() {
            // An idle transport holds no buffer.
            idle_connections.http1 = Vec::new();
            // Under the lock: a connection returned after this starts a new reaper.
            idle_connections.has_reaper = false;
            return;
        }
    }
}

/// The cause from the operating system has the telling kind; hyper's own error has none.
pub(crate) fn to_io_error(error: hyper::Error) -> io::Error {
    let source = std::error::Error::source(&error);
    let kind = source.and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    let ended = error.is_incomplete_message();
    let default = if ended { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::Other };
    io::Error::new(kind.unwrap_or(default), error)
}
