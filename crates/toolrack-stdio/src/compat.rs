//! A line to a child process under the names of the founding documents.
//!
//! Requests are matched to their answers, so any number can be under way at once. Whatever nobody asked
//! for waits here until somebody takes it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use toolrack_transport::{Abandon, Ending, Inbox, Line, Outgoing, Patience, TransportError};
use toolrack_transport::{
    JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, RawJson, RequestId,
};

use crate::options::{McpServerDef, StdioOptions};
use crate::transport::StdioLine;

/// Unasked messages that wait for [`StdioTransport::receive`]. When it is full the oldest is dropped.
const MAX_WAITING: usize = 1024;

/// How long [`StdioTransport::request_with_default_timeout`] waits.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;

/// JSON-RPC with a child process, one message per line.
#[derive(Debug)]
pub struct StdioTransport {
    line: StdioLine,
    mailbox: Arc<Mailbox>,
}

/// A message that answers none of the requests we wait for.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// The server asks something.
    Request {
        /// To be given back in the answer.
        id: RequestId,
        /// What is asked for.
        method: String,
        /// With what.
        params: Option<Value>,
    },
    /// The server tells something.
    Notification {
        /// What happened.
        method: String,
        /// More of it.
        params: Option<Value>,
    },
    /// An answer, for instance to what went out with [`StdioTransport::send`].
    Response(JsonRpcResponse),
}

impl StdioTransport {
    /// Starts a server.
    ///
    /// # Cancel safety
    /// Dropping the future ends whatever has been started.
    pub async fn spawn(definition: &McpServerDef) -> Result<Self, TransportError> {
        Self::spawn_with(definition, StdioOptions::default()).await
    }

    /// Starts a server with other than the default options.
    ///
    /// # Cancel safety
    /// Dropping the future ends whatever has been started.
    pub async fn spawn_with(
        definition: &McpServerDef,
        options: StdioOptions,
    ) -> Result<Self, TransportError> {
        let mailbox = Arc::new(Mailbox::default());
        let inbox = Arc::clone(&mailbox) as Arc<dyn Inbox>;
        Ok(Self { line: StdioLine::open(definition, options, inbox).await?, mailbox })
    }

    /// Sends a request whose answer comes out of [`StdioTransport::receive`]. Its id must not be one
    /// that [`StdioTransport::request`] has in use; those count up from one.
    pub async fn send(&self, request: &JsonRpcRequest) -> Result<(), TransportError> {
        self.line.send_value(request).await
    }

    /// Sends something that nobody answers.
    pub async fn send_notification(
        &self,
        notification: &JsonRpcNotification,
    ) -> Result<(), TransportError> {
        self.line.send_value(notification).await
    }

    /// The next message that nobody asked for. Fails once the line has ended and everything that
    /// came before has been taken.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    pub async fn receive(&self) -> Result<Incoming, TransportError> {
        loop {
            let news = self.mailbox.news.notified();
            match self.mailbox.take() {
                Taken::Message(message) => return Ok(message),
                Taken::Ended(ending) => return Err(ending.to_error()),
                Taken::Nothing => news.await,
            }
        }
    }

    /// Sends a request and waits for its result.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request, and the server is told.
    pub async fn request(
        &self,
        method: impl Into<String>,
        params: Option<Value>,
        timeout_ms: u64,
    ) -> Result<Value, TransportError> {
        let method = method.into();
        let result = self
            .line
            .request(Outgoing {
                method: &method,
                params: &params,
                patience: Patience::exactly(Duration::from_millis(timeout_ms)),
                abandon: Abandon::Tell,
            })
            .await?;
        result.decode().map_err(|error| TransportError::Parse(error.to_string()))
    }

    /// The same with 30 seconds of patience.
    pub async fn request_with_default_timeout(
        &self,
        method: impl Into<String>,
        params: Option<Value>,
    ) -> Result<Value, TransportError> {
        self.request(method, params, DEFAULT_TIMEOUT_MS).await
    }

    /// Ends the server and everything it has started. Returns within six seconds whatever it does.
    pub async fn shutdown(&self) -> Result<(), TransportError> {
        match self.line.close().await {
            Ending::Failed(error) => {
                Err(TransportError::Io(std::io::Error::new(error.kind(), error)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the line has ended, by us or by the server.
    pub fn is_shutdown(&self) -> bool {
        self.mailbox.state().ending.is_some()
    }

    /// Whether the server's process runs.
    #[expect(clippy::unused_async, reason = "the founding document has it so")]
    pub async fn is_running(&self) -> bool {
        !self.is_shutdown() && self.line.is_running()
    }
}

/// Unasked messages, until somebody takes them.
#[derive(Debug, Default)]
struct Mailbox {
    state: Mutex<MailboxState>,
    news: Notify,
}

#[derive(Debug, Default)]
struct MailboxState {
    waiting: VecDeque<Incoming>,
    ending: Option<Ending>,
}

enum Taken {
    Message(Incoming),
    Ended(Ending),
    Nothing,
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, message: Incoming) {
        let mut state = self.state();
        if state.waiting.len() == MAX_WAITING {
            state.waiting.pop_front();
            tracing::debug!("an unasked message was dropped, because nobody receives them");
        }
        state.waiting.push_back(message);
        drop(state);
        self.news.notify_waiters();
    }

    fn take(&self) -> Taken {
        let mut state = self.state();
        match (state.waiting.pop_front(), &state.ending) {
            (Some(message), _) => Taken::Message(message),
            (None, Some(ending)) => Taken::Ended(ending.clone()),
            (None, None) => Taken::Nothing,
        }
    }
}

/// Reads what may or may not be JSON; the message is worth having either way.
fn value(raw: &RawJson) -> Value {
    raw.decode().unwrap_or_else(|error| {
        tracing::debug!(%error, "an unasked message holds broken JSON");
        Value::Null
    })
}

impl Inbox for Mailbox {
    fn request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        let params = params.as_ref().map(value);
        self.put(Incoming::Request { id, method: method.to_owned(), params });
    }

    fn notification(&self, method: &str, params: Option<RawJson>) {
        let params = params.as_ref().map(value);
        self.put(Incoming::Notification { method: method.to_owned(), params });
    }

    fn stray(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        let (result, error) = match outcome {
            Ok(result) => (Some(value(&result)), None),
            Err(error) => (None, Some(error)),
        };
        let jsonrpc = "2.0".to_owned();
        self.put(Incoming::Response(JsonRpcResponse { jsonrpc, id, result, error }));
    }

    fn ended(&self, ending: &Ending) {
        self.state().ending = Some(ending.clone());
        self.news.notify_waiters();
    }
}
