//! HTTP/1.1 server: accept loop, connection limit and graceful shutdown, over TCP and a Unix socket.
//!
//! **Invariant:** an idle connection is closed, and every connection has ended once the tracker reports so.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum number of connections per listener. Further ones wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 2048;
/// Timeout for a request head. It also closes idle keep-alive connections.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request head.
const MAX_HEADER_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 64;
/// Delay after a failed `accept`, which mostly means that the process is out of file descriptors. Without it the loop
/// would spin.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

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
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection. `None` if its peer was rejected.
    fn accept_allowed(&self) -> impl Future<Output = io::Result<Option<Self::Stream>>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept_allowed(&self) -> io::Result<Option<TcpStream>> {
        let (stream, _) = self.accept().await?;
        // Responses are small; Nagle's algorithm would delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        Ok(Some(stream))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

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

/// Accepts and serves connections until shutdown.
pub(crate) async fn serve(listener: impl Listener, router: Router, shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let next = async {
            // The slot comes first, so that at the limit no connection is accepted and left unserved.
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept_allowed().await)
        };
        let (slot, accepted) = tokio::select! {
            biased;
            // The listener is dropped here, so new clients are refused instead of waiting.
            () = shutdown.graceful.cancelled() => return,
            next = next => next,
        };
        match accepted {
            Ok(Some(stream)) => {
                let connection = serve_connection(stream, router.clone(), shutdown.clone());
                shutdown.connections.spawn(async move {
                    connection.await;
                    // After the connection has ended, however it ended.
                    drop(slot);
                });
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
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    shutdown: Shutdown,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS);
    let connection =
        builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let served = async {
        tokio::select! {
            biased;
            result = connection.as_mut() => result,
            () = shutdown.graceful.cancelled() => {
                // Ends the connection after the current response; keep-alive would hold
                // it open otherwise.
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if let Some(Err(error)) = shutdown.force.run_until_cancelled(served).await {
        // Debug level: clients that disconnect in the middle of a request are normal.
        tracing::debug!(%error, "connection error");
    }
}
