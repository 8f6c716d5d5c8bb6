//! Sockets: who may connect, how many at once, and how a connection ends.
//!
//! **Invariant:** a connection that sends nothing ends, and every connection has ended when the tracker says so.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
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

/// Connections at once, for each socket. Further ones wait in the kernel.
const MAX_CONNECTIONS: usize = 2048;
/// How long the head of a request may take, and how long a connection may idle.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// The largest head.
const HEAD_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 64;
/// How long to wait when no connection can be accepted, most likely because there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// What ends connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    /// No new ones; those there are end after the request they are at.
    pub(crate) soon: CancellationToken,
    /// At once.
    pub(crate) now: CancellationToken,
    pub(crate) connections: TaskTracker,
}

/// A socket that others connect to.
pub(crate) trait Listener: Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection. `None` if it is not to be served.
    fn poll_next(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<Self::Stream>>>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<TcpStream>>> {
        self.poll_accept(context).map_ok(|(stream, _)| {
            // Answers are small, and nobody should wait for the kernel to gather them.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "answers may be held back for a moment");
            }
            Some(stream)
        })
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<UnixStream>>> {
        self.poll_accept(context).map_ok(|(stream, _)| Some(stream).filter(is_own))
    }
}

/// Whether a process of the same user is at the other end. The kernel says so.
fn is_own(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own => true,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "somebody else is kept out");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "a peer nobody vouches for is kept out");
            false
        }
    }
}

/// Serves whoever connects, until it is to end.
pub(crate) async fn serve(listener: impl Listener, router: Router, ends: Ends) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, poll_fn(|context| listener.poll_next(context)).await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = ends.soon.cancelled() => return,
            next = next => next,
        };
        match accepted {
            Ok(Some(stream)) => {
                let connection = connection(stream, router.clone(), ends.clone());
                ends.connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted for a moment");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    ends: Ends,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = pin!(served);
    let ended = tokio::select! {
        biased;
        () = ends.now.cancelled() => return,
        ended = served.as_mut() => ended,
        () = ends.soon.cancelled() => {
            served.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                () = ends.now.cancelled() => return,
                ended = served => ended,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}
