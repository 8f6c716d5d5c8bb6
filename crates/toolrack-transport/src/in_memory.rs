//! In-memory transport, for tests and for servers in the same process.
//!
//! The two ends are an [`InMemoryTransport`], which implements [`Transport`], and an [`InMemoryPeer`], which sees every
//! message as text, as it would be on the wire.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout_at};

use crate::close_reason::CloseReason;
use crate::encode::{Params, write_notification, write_request, write_response};
use crate::error::{RequestError, TransportError};
use crate::json_rpc::{JsonRpcError, RequestId};
use crate::message_router::MessageRouter;
use crate::redact::Redactor;
use crate::timeout::await_response;
use crate::transport::{
    BoxFuture, CANCELLED, CancelledParams, IncomingHandler, OnCancel, OutgoingRequest,
    ResponseFuture, Transport, TransportStats,
};

/// The capacity of the queue to the peer. When it is full, requests and notifications wait, and responses fail.
const CAPACITY: usize = 64;

/// The client's end.
#[derive(Debug)]
pub struct InMemoryTransport {
    router: Arc<MessageRouter>,
    outgoing: mpsc::Sender<String>,
}

/// The server's end.
#[derive(Debug)]
pub struct InMemoryPeer {
    router: Arc<MessageRouter>,
    received: mpsc::Receiver<String>,
}

/// Creates a connected pair. Messages that are not responses go to `handler`.
pub fn in_memory_pair(handler: Arc<dyn IncomingHandler>) -> (InMemoryTransport, InMemoryPeer) {
    let router = Arc::new(MessageRouter::new(handler, Redactor::default()));
    let (outgoing, received) = mpsc::channel(CAPACITY);
    (InMemoryTransport { router: Arc::clone(&router), outgoing }, InMemoryPeer { router, received })
}

impl InMemoryPeer {
    /// The next message of the client, without its line break. `None` once the client is gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    pub async fn recv(&mut self) -> Option<String> {
        self.received.recv().await
    }

    /// Sends one line to the client.
    pub fn send(&self, line: &str) {
        self.router.route(line.as_bytes());
    }

    /// Closes the transport from the server's side.
    pub fn close(&self, reason: &CloseReason) {
        self.router.close(reason);
    }
}

impl Drop for InMemoryPeer {
    fn drop(&mut self) {
        self.router.close(&CloseReason::OutputClosed);
    }
}

impl Drop for InMemoryTransport {
    fn drop(&mut self) {
        self.router.close(&CloseReason::Closed);
    }
}

impl InMemoryTransport {
    fn try_send(&self, text: String) -> Result<(), RequestError> {
        self.outgoing.try_send(text).map_err(|rejected| {
            RequestError::not_sent(match rejected {
                TrySendError::Full(text) => {
                    TransportError::QueueFull { buffered_bytes: text.len() }
                }
                TrySendError::Closed(_) => TransportError::StdinNotAvailable,
            })
        })
    }
}

impl Transport for InMemoryTransport {
    fn request<'a>(&'a self, request: OutgoingRequest<'a>) -> ResponseFuture<'a> {
        ResponseFuture::Boxed(Box::pin(async move {
            let deadline = request.timeout.start();
            let mut response = self
                .router
                .pending
                .register(deadline)
                .map_err(|reason| RequestError::not_sent(reason.to_error()))?;
            let id = response.id();
            let text = to_line(|out| write_request(out, id, request.method, request.params))?;
            // A permit, not `send`: if the wait for it times out, the message was certainly not sent.
            let expires_at = Instant::from_std(deadline.expires_at);
            let permit =
                timeout_at(expires_at, self.outgoing.reserve()).await.map_err(|_late| {
                    let waited = deadline.expires_at - deadline.started;
                    RequestError::not_sent(TransportError::timed_out(waited))
                })?;
            permit
                .map_err(|_closed| RequestError::not_sent(TransportError::StdinNotAvailable))?
                .send(text);
            // Armed after the send, because a request that the peer has not seen needs no cancellation.
            let mut cancel_guard =
                CancelGuard { transport: self, id, on_cancel: request.on_cancel };
            let outcome = await_response(&mut response, deadline)
                .await
                .map_err(|waited| RequestError::unknown(TransportError::timed_out(waited)))?;
            cancel_guard.on_cancel = OnCancel::Silent;
            match outcome {
                Ok(response) => response.map_err(RequestError::answered),
                Err(reason) => Err(RequestError::unknown(reason.to_error())),
            }
        }))
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async move {
            let text = to_line(|out| write_notification(out, method, params))?;
            let sent = self.outgoing.send(text).await;
            sent.map_err(|_closed| RequestError::not_sent(TransportError::StdinNotAvailable))
        })
    }

    fn respond(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), RequestError> {
        self.try_send(to_line(|out| write_response(out, id, outcome))?)
    }

    fn extend_deadline(&self, id: Option<u64>) {
        self.router.extend_deadline(id);
    }

    fn stats(&self) -> TransportStats {
        self.router.counters().stats()
    }

    fn close(&self) -> BoxFuture<'_, CloseReason> {
        self.router.close(&CloseReason::Closed);
        Box::pin(async move { self.router.pending.close_reason().unwrap_or(CloseReason::Closed) })
    }
}

/// Sends a cancel notification on drop, unless a response disarmed it.
struct CancelGuard<'a> {
    transport: &'a InMemoryTransport,
    id: u64,
    on_cancel: OnCancel,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if self.on_cancel == OnCancel::Silent {
            return;
        }
        // `drop` cannot wait, so a full queue loses the cancellation.
        let sent = to_line(|out| write_notification(out, CANCELLED, &CancelledParams(self.id)))
            .and_then(|text| self.transport.try_send(text));
        sent.unwrap_or_else(|error| tracing::trace!(%error, "cancel notification not sent"));
    }
}

/// Encodes a message without its line break.
fn to_line(
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<String, RequestError> {
    let mut out = Vec::new();
    write(&mut out).map_err(|error| RequestError::not_sent(TransportError::Serialize(error)))?;
    out.pop();
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests;
