//! HTTP/1.1 server: accept loop, connection limits, write timeout and graceful shutdown, over TCP and a Unix socket.
//!
//! Over TCP, a connection is unauthenticated until one of its requests has passed the token check. Any user of the
//! machine can open such connections, so they have a small limit of their own, and a new one replaces the oldest,
//! first of those that have had a response. It keeps its place until its peer has read everything and has closed it:
//! otherwise the kernel would keep the unread data of connections that are no longer counted.
//!
//! **Invariant:** an idle connection is closed, a connection whose peer does not read is closed, and every connection
//! has ended once the tracker reports so.
//!
//! **Invariant:** connections without a token never keep out those with one. A connection whose key is revoked ends.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustix::net::{getpeername, sockopt};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::active_keys::ActiveKey;

/// Timeout for a request head. It also closes idle keep-alive connections.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request head. hyper refuses one that does not fit into its buffer, but lets some larger ones
/// through; the guard of the routes checks the exact size.
pub(crate) const MAX_HEADER_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 64;
/// Send buffer of a TCP connection; the kernel doubles it. Without a fixed size it grows to 4 MiB for a peer that
/// does not read.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The kernel drops data that a peer has not read for this time, also that of a connection that is closed already.
#[cfg(target_os = "linux")]
const UNREAD_DATA_TIMEOUT_MS: u32 = 30_000;
/// Time for the peer of an unauthenticated connection to read the last response and close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the daemon looks whether a peer that sends nothing more has received everything.
const CLOSE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// While the daemon has not looked at any unauthenticated connection yet, the accept loop waits that long. A longer
/// pause would fill the kernel's backlog, which then refuses clients.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);
/// Delay after a failed `accept`, which mostly means that the process is out of file descriptors. Without it the loop
/// would spin.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Limits of the connections of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Maximum number of connections that have sent a valid token, or come over the Unix socket. Further connections
    /// wait in the kernel's backlog.
    pub max_connections: usize,
    /// Maximum number of TCP connections that have not sent a valid token yet. A further one replaces the oldest.
    pub max_unauthenticated: usize,
    /// A connection is closed if its peer reads nothing for this time while data is waiting for it.
    pub write_timeout: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            max_connections: 2048,
            max_unauthenticated: 256,
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Shutdown signals for connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shutdown {
    /// Stops accepting; open connections end after their current request, and endless responses such as event
    /// streams end.
    pub(crate) graceful: CancellationToken,
    /// Aborts open connections.
    pub(crate) force: CancellationToken,
    pub(crate) connections: TaskTracker,
}

/// A listening socket.
pub(crate) trait Listener: Send + Sync + 'static {
    /// An accepted connection.
    type Stream: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static;

    /// The stage of a new connection.
    const FIRST_STAGE: Stage;

    /// Accepts the next connection. `None` if its peer was rejected.
    fn accept_allowed(&self) -> impl Future<Output = io::Result<Option<Self::Stream>>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    const FIRST_STAGE: Stage = Stage::New;

    async fn accept_allowed(&self) -> io::Result<Option<TcpStream>> {
        let (stream, _) = self.accept().await?;
        // Responses are small; Nagle's algorithm would delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        if let Err(error) = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES) {
            tracing::debug!(%error, "cannot set SO_SNDBUF");
        }
        #[cfg(target_os = "linux")]
        if let Err(error) = sockopt::set_tcp_user_timeout(&stream, UNREAD_DATA_TIMEOUT_MS) {
            tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT");
        }
        Ok(Some(stream))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    // The kernel has verified the user.
    const FIRST_STAGE: Stage = Stage::Authenticated;

    async fn accept_allowed(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.accept().await?;
        Ok(Some(stream).filter(is_same_user))
    }
}

/// Whether the peer runs as the same user, according to the kernel.
fn is_same_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let peer = stream.peer_cred();
    let is_same_user = peer.as_ref().is_ok_and(|peer| peer.uid() == own);
    if !is_same_user {
        tracing::warn!(?peer, "rejected a connection that is not known to be from the same user");
    }
    is_same_user
}

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    options: ConnectionOptions,
    open: Mutex<OpenConnections>,
    /// Notified when an authenticated connection has ended.
    authenticated_ended: Notify,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next_id: u64,
    /// Unauthenticated connections by stage and age, and how to abort them.
    unauthenticated: BTreeMap<(Stage, u64), CancellationToken>,
    n_authenticated: usize,
}

/// What a connection has shown. The first unauthenticated one in this order is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It has made a request without a valid token. A client with a token is not kept waiting for these.
    Anonymous,
    /// The daemon has looked for a request, and there was none yet.
    Idle,
    /// The daemon has not looked yet. Its request may have arrived.
    New,
    /// It has made a request with a valid token, or comes over the Unix socket.
    Authenticated,
}

/// What happens to the next connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// It waits in the kernel's backlog until an authenticated connection ends.
    Wait,
    /// It waits there for a moment: all others are as new.
    Pause,
    /// It is accepted.
    Accept,
    /// It is accepted, and the oldest unauthenticated connection is aborted, in whatever state it is: one that waits
    /// for its peer would otherwise hold its place until the write timeout.
    ReplaceOldest,
}

/// `oldest` is the stage of the connection that would be replaced.
fn admission(
    options: &ConnectionOptions,
    n_authenticated: usize,
    n_unauthenticated: usize,
    oldest: Option<Stage>,
) -> Admission {
    if n_authenticated >= options.max_connections {
        // All of these are the user's own.
        return Admission::Wait;
    }
    if n_unauthenticated < options.max_unauthenticated {
        return Admission::Accept;
    }
    match oldest {
        // Otherwise the accept loop would replace connections whose requests have arrived and are not read yet.
        Some(Stage::New) => Admission::Pause,
        _ => Admission::ReplaceOldest,
    }
}

impl ConnectionTable {
    fn new(options: ConnectionOptions) -> Arc<Self> {
        let (open, authenticated_ended) = (Mutex::default(), Notify::new());
        Arc::new(Self { options, open, authenticated_ended })
    }

    fn admission(&self) -> Admission {
        let open = self.open.lock();
        let (n_authenticated, n_unauthenticated) =
            (open.n_authenticated, open.unauthenticated.len());
        let oldest = open.unauthenticated.first_key_value();
        let oldest = oldest.map(|((stage, _), _)| *stage);
        admission(&self.options, n_authenticated, n_unauthenticated, oldest)
    }

    /// Waits until a connection may be accepted.
    async fn wait_for_room(&self) {
        loop {
            match self.admission() {
                // One task accepts, and `notify_one` stores a permit, so no end of a connection is missed.
                Admission::Wait => self.authenticated_ended.notified().await,
                Admission::Pause => sleep(ACCEPT_PAUSE).await,
                Admission::Accept | Admission::ReplaceOldest => return,
            }
        }
    }

    /// Adds an accepted connection.
    fn add(self: &Arc<Self>, stage: Stage) -> Arc<ConnectionEntry> {
        let mut open = self.open.lock();
        if stage != Stage::Authenticated
            && open.unauthenticated.len() >= self.options.max_unauthenticated
            && let Some((_, abort)) = open.unauthenticated.pop_first()
        {
            abort.cancel();
        }
        let (id, abort) = (open.next_id, CancellationToken::new());
        open.next_id += 1;
        open.insert(stage, id, &abort);
        let (table, stage, key) = (Arc::clone(self), Mutex::new(stage), watch::Sender::new(None));
        Arc::new(ConnectionEntry { table, id, stage, abort, key })
    }
}

impl OpenConnections {
    fn insert(&mut self, stage: Stage, id: u64, abort: &CancellationToken) {
        match stage {
            Stage::Authenticated => self.n_authenticated += 1,
            Stage::Anonymous | Stage::Idle | Stage::New => {
                self.unauthenticated.insert((stage, id), abort.clone());
            }
        }
    }
}

/// A connection in the table. Its requests have it as an extension. Removed on drop.
#[derive(Debug)]
pub(crate) struct ConnectionEntry {
    table: Arc<ConnectionTable>,
    id: u64,
    /// Locked before the table.
    stage: Mutex<Stage>,
    abort: CancellationToken,
    /// The key of its last request with one.
    key: watch::Sender<Option<Arc<ActiveKey>>>,
}

impl ConnectionEntry {
    /// Notes that a request with a valid key came. The connection ends when this key is revoked: its place may be
    /// needed, and a peer that has lost its key must not keep it.
    pub(crate) fn set_key(&self, key: &Arc<ActiveKey>) {
        self.key.send_if_modified(|last| {
            let is_new = last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, key));
            if is_new {
                *last = Some(Arc::clone(key));
            }
            is_new
        });
    }

    /// Waits until the key of this connection is revoked.
    async fn key_revoked(&self) {
        let mut keys = self.key.subscribe();
        loop {
            let key = keys.borrow_and_update().clone();
            let revoked = async {
                match &key {
                    Some(key) => key.revoked.cancelled().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = revoked => return,
                // The sender is in `self`, so it is never closed here.
                _changed = keys.changed() => {}
            }
        }
    }

    fn is_authenticated(&self) -> bool {
        *self.stage.lock() == Stage::Authenticated
    }

    /// Notes what a request has shown about its connection. An authenticated connection stays so.
    pub(crate) fn set_stage(&self, shown: Stage) {
        let mut stage = self.stage.lock();
        let stays_authenticated = *stage == Stage::Authenticated;
        // `Idle` is only for the time before the first request.
        let is_idle_again = shown == Stage::Idle && *stage != Stage::New;
        if *stage == shown || stays_authenticated || is_idle_again {
            return;
        }
        let mut open = self.table.open.lock();
        // One that was replaced already is not counted again, unless it has authenticated: then its drop counts.
        let is_open = open.unauthenticated.remove(&(*stage, self.id)).is_some();
        if is_open || shown == Stage::Authenticated {
            open.insert(shown, self.id, &self.abort);
        }
        *stage = shown;
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let stage = *self.stage.lock();
        let mut open = self.table.open.lock();
        if stage == Stage::Authenticated {
            open.n_authenticated = open.n_authenticated.saturating_sub(1);
            self.table.authenticated_ended.notify_one();
        } else {
            open.unauthenticated.remove(&(stage, self.id));
        }
    }
}

/// A stream whose writes fail if the peer reads nothing for a time.
struct TimedStream<S: AsFd> {
    stream: S,
    entry: Arc<ConnectionEntry>,
    /// Ends a write that waits for the peer. Only valid while one waits.
    timer: Pin<Box<Sleep>>,
    is_waiting: bool,
    has_timed_out: bool,
}

impl<S: AsFd> TimedStream<S> {
    fn new(stream: S, entry: Arc<ConnectionEntry>) -> Self {
        let timer = Box::pin(sleep(entry.table.options.write_timeout));
        Self { stream, entry, timer, is_waiting: false, has_timed_out: false }
    }

    /// Applies the write timeout to the result of a write.
    fn with_timeout<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.is_waiting = false;
            return result;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            let ends_at = Instant::now() + self.entry.table.options.write_timeout;
            self.timer.as_mut().reset(ends_at);
        }
        ready!(self.timer.as_mut().poll(context));
        self.has_timed_out = true;
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<S: AsyncRead + AsyncWrite + AsFd + Unpin> TimedStream<S> {
    /// Ends an unauthenticated connection after its last response: waits until its peer has read everything and has
    /// closed its side too. Meanwhile it can be replaced. Cancel safe.
    async fn close(&mut self) {
        self.entry.set_stage(Stage::Anonymous);
        // Fails if the peer has closed it.
        let Ok(()) = self.stream.shutdown().await else { return };
        let closed = async {
            let mut discarded = [0; 512];
            while self.stream.read(&mut discarded).await.is_ok_and(|n_bytes| n_bytes > 0) {}
            // A peer may end its side without reading. The kernel forgets the peer when all data is acknowledged.
            while getpeername(&self.stream).is_ok() {
                sleep(CLOSE_CHECK_INTERVAL).await;
            }
        };
        self.has_timed_out |= timeout(CLOSE_TIMEOUT, closed).await.is_err();
    }
}

impl<S: AsyncRead + AsFd + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if result.is_pending() {
            self.entry.set_stage(Stage::Idle);
        }
        result
    }
}

impl<S: AsyncWrite + AsFd + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.with_timeout(result, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.with_timeout(result, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.with_timeout(result, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.with_timeout(result, context)
    }
}

impl<S: AsFd> Drop for TimedStream<S> {
    fn drop(&mut self) {
        // The kernel would keep unread data for minutes after the close, in memory that an attacker can multiply.
        if (self.has_timed_out || self.entry.abort.is_cancelled())
            && let Err(error) = sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))
        {
            tracing::debug!(%error, "cannot set SO_LINGER");
        }
    }
}

/// The router, which learns on which connection a request came.
struct ConnectionService {
    router: TowerToHyperService<Router>,
    entry: Arc<ConnectionEntry>,
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.entry));
        self.router.call(request)
    }
}

/// Accepts and serves connections until shutdown.
pub(crate) async fn serve<L: Listener>(
    listener: L,
    router: Router,
    options: ConnectionOptions,
    shutdown: Shutdown,
) {
    let table = ConnectionTable::new(options);
    loop {
        let next = async {
            // First, so that at the limit no connection is accepted and left unserved.
            table.wait_for_room().await;
            listener.accept_allowed().await
        };
        let accepted = tokio::select! {
            biased;
            // The listener is dropped here, so new clients are refused instead of waiting.
            () = shutdown.graceful.cancelled() => return,
            accepted = next => accepted,
        };
        match accepted {
            Ok(Some(stream)) => {
                let stream = TimedStream::new(stream, table.add(L::FIRST_STAGE));
                shutdown.connections.spawn(serve_connection(
                    stream,
                    router.clone(),
                    shutdown.clone(),
                ));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection, retrying");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

async fn serve_connection(
    stream: TimedStream<impl AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static>,
    router: Router,
    shutdown: Shutdown,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS);
    let entry = Arc::clone(&stream.entry);
    let router = TowerToHyperService::new(router);
    let service = ConnectionService { router, entry: Arc::clone(&entry) };
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    let served = async {
        let result = tokio::select! {
            biased;
            result = &mut connection => Some(result),
            () = shutdown.graceful.cancelled() => None,
            () = entry.key_revoked() => None,
        };
        let result = match result {
            Some(result) => result,
            None => {
                // Ends the connection after the current response; keep-alive would hold
                // it open otherwise.
                Pin::new(&mut connection).graceful_shutdown();
                (&mut connection).await
            }
        };
        if let Err(error) = result {
            // Debug level: clients that disconnect in the middle of a request are normal.
            tracing::debug!(%error, "connection error");
        }
        let mut stream = connection.into_parts().io.into_inner();
        if !entry.is_authenticated() {
            // Not during a shutdown, which such peers could delay.
            shutdown.graceful.run_until_cancelled(stream.close()).await;
        }
    };
    let served = entry.abort.run_until_cancelled(served);
    shutdown.force.run_until_cancelled(served).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unauthenticated_connections_never_keep_out_others() {
        let options = ConnectionOptions {
            max_connections: 4,
            max_unauthenticated: 2,
            ..ConnectionOptions::default()
        };
        let [idle, unread, anonymous] = [Stage::Idle, Stage::New, Stage::Anonymous].map(Some);
        let table = [
            ((0, 0), None, Admission::Accept),
            ((0, 1), unread, Admission::Accept),
            ((0, 2), idle, Admission::ReplaceOldest),
            ((0, 2), anonymous, Admission::ReplaceOldest),
            ((0, 2), unread, Admission::Pause),
            ((3, 2), idle, Admission::ReplaceOldest),
            ((3, 1), idle, Admission::Accept),
            ((4, 0), None, Admission::Wait),
            ((4, 2), idle, Admission::Wait),
            // A connection that authenticates late may exceed the limit for a moment.
            ((5, 2), idle, Admission::Wait),
        ];
        for ((n_authenticated, n_unauthenticated), oldest, expected) in table {
            let found = admission(&options, n_authenticated, n_unauthenticated, oldest);
            assert_eq!(found, expected, "{n_authenticated} {n_unauthenticated} {oldest:?}");
        }
    }

    #[test]
    fn oldest_unauthenticated_connection_is_replaced() {
        let options = ConnectionOptions { max_unauthenticated: 2, ..ConnectionOptions::default() };
        let table = ConnectionTable::new(options);
        let connections: Vec<_> = (0..3).map(|_| table.add(Stage::New)).collect();
        let aborted = |entries: &[Arc<ConnectionEntry>]| {
            entries.iter().map(|entry| entry.abort.is_cancelled()).collect::<Vec<_>>()
        };
        assert_eq!(aborted(&connections), [true, false, false]);
        // An authenticated one makes room, and stays.
        connections[1].set_stage(Stage::Authenticated);
        connections[1].set_stage(Stage::Anonymous);
        let more: Vec<_> = (0..3).map(|_| table.add(Stage::New)).collect();
        assert_eq!(aborted(&connections), [true, false, true]);
        assert_eq!(aborted(&more), [true, false, false]);
        // One that has had a response goes before an older one that has not.
        more[2].set_stage(Stage::Anonymous);
        let last = table.add(Stage::New);
        assert_eq!(aborted(&more), [true, false, true]);
        // One that was replaced is not counted, whatever it shows.
        more[0].set_stage(Stage::Anonymous);
        assert_eq!(table.open.lock().unauthenticated.len(), 2);
        drop((connections, more, last));
        let open = table.open.lock();
        assert_eq!((open.n_authenticated, open.unauthenticated.len()), (0, 0));
    }

    /// A peer that reads a little in time is not closed; one that stops is.
    #[tokio::test(start_paused = true)]
    async fn write_fails_when_the_peer_stops_reading() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let options = ConnectionOptions::default();
        let limit = options.write_timeout;
        let (own, mut peer) = UnixStream::pair().unwrap();
        let mut stream =
            TimedStream::new(own, ConnectionTable::new(options).add(Stage::Authenticated));
        let write = async {
            let started = Instant::now();
            let error = stream.write_all(&vec![7; 64 << 20]).await.unwrap_err();
            (error.kind(), started.elapsed())
        };
        let read = async {
            let mut buffer = vec![0; 256 << 10];
            for _ in 0..5 {
                sleep(limit * 3 / 4).await;
                peer.read_exact(&mut buffer).await.unwrap();
            }
        };
        let ((kind, elapsed), ()) = tokio::join!(write, read);
        assert_eq!(kind, io::ErrorKind::TimedOut);
        assert!(elapsed > limit * 4 && elapsed < limit * 5, "{elapsed:?}");
        drop(peer);
    }
}
