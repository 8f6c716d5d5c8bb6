//! The connections to one server: used again while they are good, and closed when they are idle.
//!
//! **Invariant:** a request is sent a second time only if no byte of it can have been acted on, or if
//! repeating it is harmless by the rules of the protocol.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::connect::Wire;
use crate::connect::{Dialer, Version};
use crate::http1::{Lane, Sent, Silence};
use crate::request_sender::Dispatch;
use crate::response::Reply;
use crate::transport::Staff;

/// Many servers close idle connections after a few seconds; few keep them for longer than this.
const MAX_IDLE: Duration = Duration::from_secs(30);
/// Further ones are closed after their exchange.
const MAX_IDLE_LANES: usize = 64;
/// How often a shared connection is checked, and how long it may take to answer.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);

type Payload = Full<Bytes>;

/// The connections to one origin.
pub(crate) struct Pool {
    dialer: Dialer,
    staff: Staff,
    stock: Mutex<Stock>,
    /// Exchanges that wait for the head of their answer.
    n_out: AtomicUsize,
}

/// One exchange that waits for the head of its answer.
struct Out<'a>(&'a AtomicUsize);

impl Drop for Out<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
#[expect(clippy::vec_box, reason = "they are large and change places with every exchange")]
struct Stock {
    idle: Vec<Box<Lane>>,
    shared: Option<http2::SendRequest<Payload>>,
    has_janitor: bool,
}

/// What an exchange runs on.
enum Way {
    Own(Box<Lane>),
    Shared(http2::SendRequest<Payload>),
}

/// Whether sending a request twice does no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Harmless,
    Never,
}

/// Why an exchange brought nothing.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Nobody was reached.
    Unreachable(io::Error),
    /// The server was reached and did not answer.
    Lost(io::Error),
}

impl Pool {
    pub(crate) fn new(dialer: Dialer, staff: Staff) -> Self {
        Self { dialer, staff, stock: Mutex::default(), n_out: AtomicUsize::new(0) }
    }

    /// Sends a request and gives the head of the answer.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        dispatch: &Dispatch<'_>,
        repeat: Repeat,
        sent: &Sent,
    ) -> Result<Reply, Broken> {
        let n_others = self.n_out.fetch_add(1, Ordering::Relaxed);
        let _out = Out(&self.n_out);
        if n_others > 0 {
            // Whoever else is ready sends as well, and the server is woken for all of them.
            yield_now().await;
        }
        let mut reuse = true;
        loop {
            let used = if reuse { self.used() } else { None };
            let was_used = used.is_some();
            let way = match used {
                Some(way) => way,
                // Behind a pointer: it is rare, and every call would be as large as it.
                None => Box::pin(self.fresh()).await.map_err(Broken::Unreachable)?,
            };
            sent.mark();
            let silence = match self.send(way, dispatch).await {
                Ok(reply) => return Ok(reply),
                Err(silence) => silence,
            };
            if silence.is_unsent {
                sent.clear();
            }
            if !was_used || !(silence.is_unsent || repeat == Repeat::Harmless) {
                return Err(Broken::Lost(silence.error));
            }
            reuse = false;
        }
    }

    async fn send(self: &Arc<Self>, way: Way, dispatch: &Dispatch<'_>) -> Result<Reply, Silence> {
        match way {
            Way::Own(mut lane) => {
                let head = lane.send(dispatch, self.dialer.forwarding()).await?;
                Ok(Reply::own(head, lane, Arc::clone(self)))
            }
            Way::Shared(sender) => Box::pin(send_shared(sender, dispatch)).await,
        }
    }

    /// Takes a connection back after its exchange.
    pub(crate) fn give_back(self: &Arc<Self>, mut lane: Box<Lane>) {
        if !lane.is_done() || self.staff.stop.is_cancelled() {
            return;
        }
        lane.rest();
        let mut stock = self.stock();
        if stock.idle.len() >= MAX_IDLE_LANES {
            return;
        }
        stock.idle.push(lane);
        if !std::mem::replace(&mut stock.has_janitor, true) {
            drop(stock);
            self.staff.employ(tidy_up(Arc::clone(self)));
        }
    }

    /// Closes everything that is not in use.
    pub(crate) fn close(&self) {
        *self.stock() = Stock::default();
    }

    /// The connection used last that is still good.
    fn used(&self) -> Option<Way> {
        let mut stock = self.stock();
        if let Some(shared) = &stock.shared {
            if !shared.is_closed() {
                return Some(Way::Shared(shared.clone()));
            }
            stock.shared = None;
        }
        while let Some(mut lane) = stock.idle.pop() {
            if lane.idle_since.elapsed() < MAX_IDLE && lane.is_fit() {
                return Some(Way::Own(lane));
            }
        }
        None
    }

    async fn fresh(self: &Arc<Self>) -> io::Result<Way> {
        let (wire, version) = self.dialer.dial().await?;
        match version {
            Version::Http1 => Ok(Way::Own(Box::new(Lane::new(wire)))),
            Version::Http2 => self.share(wire).await.map_err(as_io),
        }
    }

    /// Several callers may have dialed at once; one connection is enough for all of them.
    async fn share(self: &Arc<Self>, wire: Wire) -> Result<Way, hyper::Error> {
        let (sender, driver) = http2::Builder::new(self.staff.clone())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .handshake(TokioIo::new(wire))
            .await?;
        self.staff.employ(drive_shared(driver, self.staff.stop.clone()));
        let mut stock = self.stock();
        match &stock.shared {
            Some(shared) if !shared.is_closed() => Ok(Way::Shared(shared.clone())),
            _ => {
                stock.shared = Some(sender.clone());
                Ok(Way::Shared(sender))
            }
        }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send_shared(
    mut sender: http2::SendRequest<Payload>,
    dispatch: &Dispatch<'_>,
) -> Result<Reply, Silence> {
    let answered = sender.try_send_request(dispatch.to_request()).await;
    answered.map(Reply::shared).map_err(|mut failure| {
        let is_unsent = failure.take_message().is_some();
        Silence { error: as_io(failure.into_error()), is_unsent }
    })
}

/// Closes connections that nobody has used for a while, and goes home when there are none.
async fn tidy_up(pool: Arc<Pool>) {
    loop {
        let oldest = pool.stock().idle.first().map(|lane| lane.idle_since);
        let next = oldest.unwrap_or_else(Instant::now) + MAX_IDLE;
        tokio::select! {
            () = pool.staff.stop.cancelled() => return pool.close(),
            () = sleep_until(next) => {}
        }
        let mut stock = pool.stock();
        stock.idle.retain(|lane| lane.idle_since.elapsed() < MAX_IDLE);
        if stock.idle.is_empty() {
            // An idle line holds no buffer.
            stock.idle = Vec::new();
            stock.has_janitor = false;
            return;
        }
    }
}

async fn drive_shared(
    driver: http2::Connection<TokioIo<Wire>, Payload, Staff>,
    stop: CancellationToken,
) {
    tokio::select! {
        end = driver => end.unwrap_or_else(|error| tracing::trace!(%error, "a connection broke")),
        () = stop.cancelled() => {}
    }
}

/// What the system said is more telling than what hyper makes of it.
pub(crate) fn as_io(error: hyper::Error) -> io::Error {
    let source = std::error::Error::source(&error);
    let kind = source.and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    let ended = error.is_incomplete_message();
    let usual = if ended { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::Other };
    io::Error::new(kind.unwrap_or(usual), error)
}
