//! `StdioTransport`: the API of founding document 001 (docs/internal/specs.md) over the stdio transport.
//!
//! Names and signatures are those of the document. Responses are matched by id, so requests can run concurrently, which
//! the document deferred. Messages that are not responses wait in a queue for [`StdioTransport::receive`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use toolrack_transport::{
    CloseReason, IncomingHandler, JsonRpcError, JsonRpcNotification, JsonRpcRequest,
    JsonRpcResponse, OnCancel, OutgoingRequest, RawJson, RequestId, RequestTimeout, ResponseId,
    Transport, TransportError,
};

use crate::options::{McpServerDef, StdioOptions};
use crate::transport::StdioClientTransport;

/// The capacity of the queue for [`StdioTransport::receive`]. When it is full, the oldest message is dropped.
const QUEUE_CAPACITY: usize = 1024;

/// The timeout of [`StdioTransport::request_with_default_timeout`].
const DEFAULT_TIMEOUT_MS: u64 = 30_000;

/// JSON-RPC with a child process, one message per line.
#[derive(Debug)]
pub struct StdioTransport {
    transport: StdioClientTransport,
    incoming: Arc<IncomingQueue>,
    is_shutdown: AtomicBool,
}

/// A message that is not the response to a pending request.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// A request of the server.
    Request {
        /// The id for the response.
        id: RequestId,
        /// The method.
        method: String,
        /// The parameters.
        params: Option<Value>,
    },
    /// A notification of the server.
    Notification {
        /// The method.
        method: String,
        /// The parameters.
        params: Option<Value>,
    },
    /// A response without a pending request, for example to a request of [`StdioTransport::send`].
    Response(JsonRpcResponse),
    /// A line that is not a JSON-RPC message: its beginning, redacted and sanitized. After the first sixteen, such lines
    /// are only counted. [`StdioTransport::receive`] skips them.
    Unreadable(String),
}

impl Incoming {
    /// The response, as founding document 001 expects every message to be one. Anything else is
    /// [`TransportError::Parse`].
    pub fn into_response(self) -> Result<JsonRpcResponse, TransportError> {
        let found = match self {
            Incoming::Response(response) => return Ok(response),
            Incoming::Request { method, .. } => format!("request `{method}` instead of a response"),
            Incoming::Notification { method, .. } => {
                format!("notification `{method}` instead of a response")
            }
            Incoming::Unreadable(line) => format!("not a JSON-RPC message: {line}"),
        };
        Err(TransportError::Parse(found))
    }
}

impl StdioTransport {
    /// Starts a server.
    ///
    /// # Cancel safety
    /// Dropping the future ends every process that was started.
    pub async fn spawn(definition: &McpServerDef) -> Result<Self, TransportError> {
        Self::spawn_with(definition, StdioOptions::default()).await
    }

    /// Starts a server with the given options.
    ///
    /// # Cancel safety
    /// Dropping the future ends every process that was started.
    pub async fn spawn_with(
        definition: &McpServerDef,
        options: StdioOptions,
    ) -> Result<Self, TransportError> {
        let incoming = Arc::new(IncomingQueue::default());
        let handler = Arc::clone(&incoming) as Arc<dyn IncomingHandler>;
        let transport = StdioClientTransport::spawn(definition, options, handler).await?;
        Ok(Self { transport, incoming, is_shutdown: AtomicBool::new(false) })
    }

    /// Sends a request. Its response arrives through [`StdioTransport::receive`]. The id must not be in use by
    /// [`StdioTransport::request`], whose ids count up from one.
    pub async fn send(&self, request: &JsonRpcRequest) -> Result<(), TransportError> {
        self.check_open()?;
        self.transport.send_value(request).await
    }

    /// Sends a notification.
    pub async fn send_notification(
        &self,
        notification: &JsonRpcNotification,
    ) -> Result<(), TransportError> {
        self.check_open()?;
        self.transport.send_value(notification).await
    }

    /// Receives the next message that is not the response to a pending request, and skips unreadable lines. Fails once
    /// the server is gone and all earlier messages were received, or after a [shutdown](StdioTransport::shutdown).
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    pub async fn receive(&self) -> Result<Incoming, TransportError> {
        loop {
            match self.next_message().await? {
                Incoming::Unreadable(_) => {}
                message => return Ok(message),
            }
        }
    }

    /// Receives the next line as a response, as founding document 001 does: an unreadable line, a request and a
    /// notification are [`TransportError::Parse`]. Responses to [`StdioTransport::request`] do not arrive here.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    pub async fn receive_response(&self) -> Result<JsonRpcResponse, TransportError> {
        self.next_message().await?.into_response()
    }

    async fn next_message(&self) -> Result<Incoming, TransportError> {
        loop {
            // Created before the check, so that a message in between is not missed.
            let changed = self.incoming.changed.notified();
            self.check_open()?;
            {
                let mut state = self.incoming.state.lock();
                if let Some(message) = state.messages.pop_front() {
                    return Ok(message);
                }
                if let Some(reason) = &state.close_reason {
                    return Err(reason.to_error());
                }
            }
            changed.await;
        }
    }

    /// Sends a request and waits for its result. A request that times out is abandoned: its late response is discarded,
    /// and the server is not told, because JSON-RPC has no message for that.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request.
    pub async fn request(
        &self,
        method: impl Into<String>,
        params: Option<Value>,
        timeout_ms: u64,
    ) -> Result<Value, TransportError> {
        self.check_open()?;
        let method = method.into();
        let result = self
            .transport
            .request(OutgoingRequest {
                method: &method,
                params: &params,
                timeout: RequestTimeout::fixed(Duration::from_millis(timeout_ms)),
                on_cancel: OnCancel::Silent,
            })
            .await?;
        result.decode().map_err(|error| TransportError::Parse(error.to_string()))
    }

    /// Sends a request with a timeout of 30 seconds.
    pub async fn request_with_default_timeout(
        &self,
        method: impl Into<String>,
        params: Option<Value>,
    ) -> Result<Value, TransportError> {
        self.request(method, params, DEFAULT_TIMEOUT_MS).await
    }

    /// Ends the server and every process that it has started. Returns within six seconds.
    pub async fn shutdown(&self) -> Result<(), TransportError> {
        self.is_shutdown.store(true, Ordering::Release);
        match self.transport.close().await {
            CloseReason::Failed(error) => {
                Err(TransportError::Io(std::io::Error::new(error.kind(), error)))
            }
            _ => Ok(()),
        }
    }

    /// Whether [`StdioTransport::shutdown`] was called. A server that exits by itself does not count.
    pub fn is_shutdown(&self) -> bool {
        self.is_shutdown.load(Ordering::Acquire)
    }

    /// Whether the server's process runs.
    #[expect(clippy::unused_async, reason = "the signature of the founding document")]
    pub async fn is_running(&self) -> bool {
        !self.is_shutdown() && self.transport.is_running()
    }

    fn check_open(&self) -> Result<(), TransportError> {
        if self.is_shutdown() { Err(TransportError::Shutdown) } else { Ok(()) }
    }
}

/// Queue of received messages.
#[derive(Debug, Default)]
struct IncomingQueue {
    state: Mutex<QueueState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<Incoming>,
    close_reason: Option<CloseReason>,
}

impl IncomingQueue {
    fn push(&self, message: Incoming) {
        let mut state = self.state.lock();
        if state.messages.len() == QUEUE_CAPACITY {
            state.messages.pop_front();
            tracing::debug!("incoming queue is full; dropped the oldest message");
        }
        state.messages.push_back(message);
        drop(state);
        self.changed.notify_waiters();
    }
}

/// Decodes a payload. Invalid JSON becomes `null`, so that the rest of the message is not lost.
fn to_value(raw: &RawJson) -> Value {
    raw.decode().unwrap_or_else(|error| {
        tracing::debug!(%error, "incoming message contains invalid JSON");
        Value::Null
    })
}

impl IncomingHandler for IncomingQueue {
    fn on_request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        let params = params.as_ref().map(to_value);
        self.push(Incoming::Request { id, method: method.to_owned(), params });
    }

    fn on_notification(&self, method: &str, params: Option<RawJson>) {
        let params = params.as_ref().map(to_value);
        self.push(Incoming::Notification { method: method.to_owned(), params });
    }

    fn on_unmatched_response(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        let (result, error) = match outcome {
            Ok(result) => (Some(to_value(&result)), None),
            Err(error) => (None, Some(error)),
        };
        let jsonrpc = "2.0".to_owned();
        let id = ResponseId(id);
        self.push(Incoming::Response(JsonRpcResponse { jsonrpc, id, result, error }));
    }

    fn on_unreadable(&self, sample: &str) {
        self.push(Incoming::Unreadable(sample.to_owned()));
    }

    fn on_close(&self, reason: &CloseReason) {
        self.state.lock().close_reason = Some(reason.clone());
        self.changed.notify_waiters();
    }
}
