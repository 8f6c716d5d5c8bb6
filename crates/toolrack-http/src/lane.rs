//! One connection that carries one exchange at a time, driven by whoever waits for the answer.
//!
//! **Invariant:** no task of ours stands between a caller and its HTTP/1.1 connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use crate::wire::Wire;

pub(crate) type Payload = Full<Bytes>;

/// A connection and what moves its bytes.
pub(crate) struct Lane {
    sender: SendRequest<Payload>,
    /// `None` once the connection has ended.
    driver: Option<Connection<TokioIo<Wire>, Payload>>,
    pub(crate) idle_since: Instant,
}

/// Whether the server may have heard of a message.
#[derive(Debug, Default)]
pub(crate) struct Sent(AtomicBool);

/// Why there is no answer, and the request if it never left.
pub(crate) struct Unsent {
    pub(crate) error: hyper::Error,
    pub(crate) request: Option<Request<Payload>>,
}

impl Sent {
    pub(crate) fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// What was sent has come back untouched.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Lane {
    pub(crate) async fn open(wire: Wire) -> Result<Box<Self>, hyper::Error> {
        let (sender, driver) = Builder::new().handshake(TokioIo::new(wire)).await?;
        Ok(Box::new(Self { sender, driver: Some(driver), idle_since: Instant::now() }))
    }

    /// Whether the connection can take a request, as far as can be known without waiting.
    pub(crate) fn is_fit(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<Payload>,
    ) -> Result<Response<Incoming>, Unsent> {
        let mut response = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|context| {
            drive(&mut self.driver, context);
            response.as_mut().poll(context)
        });
        answered.await.map_err(|mut failure| {
            let request = failure.take_message();
            Unsent { error: failure.into_error(), request }
        })
    }

    pub(crate) fn drive(&mut self, context: &mut Context<'_>) {
        drive(&mut self.driver, context);
    }
}

/// Moves bytes. How a connection ended is told by the exchange on it.
fn drive(driver: &mut Option<Connection<TokioIo<Wire>, Payload>>, context: &mut Context<'_>) {
    let Some(connection) = driver else { return };
    if let Poll::Ready(end) = Pin::new(connection).poll(context) {
        end.unwrap_or_else(|error| tracing::trace!(%error, "a connection broke"));
        *driver = None;
    }
}
