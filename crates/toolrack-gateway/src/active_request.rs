//! A forwarded request while a server works on it: where its progress and log messages go, and how its client is
//! reached when the server sends a request of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use toolrack_mcp::{LogLevel, LogMessage, Method, Progress, ProgressToken};
use toolrack_transport::RawJson;

use crate::client_session::ClientSession;
use crate::encode::{Outcome, notification};
use crate::gateway::Naming;
use crate::message_queue::MessageQueue;
use crate::params::ClientInfo;
use crate::subscriptions::{LogFilter, log_notification};

/// Server requests queued for one modern client request. When the queue is full, the server gets an error.
const MAX_SERVER_REQUESTS: usize = 8;

/// A request that a legacy server sends while it works on a request of a modern client.
#[derive(Debug)]
pub(crate) struct ServerRequest {
    pub(crate) method: String,
    pub(crate) params: Option<RawJson>,
    pub(crate) response: oneshot::Sender<Outcome>,
}

/// Identity of a client, by which its requests are recognized as belonging together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientId {
    Number(u64),
    /// Client of another gateway, under the name that this gateway sends.
    Forwarded(Arc<str>),
}

/// Destination of notifications about a request. A request that the client repeats gets a new one.
#[derive(Debug, Clone)]
pub(crate) struct NotificationSink {
    pub(crate) queue: Arc<MessageQueue>,
    pub(crate) progress_token: Option<ProgressToken>,
    pub(crate) log_filter: LogFilter,
}

/// A request that a server works on.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) client_id: ClientId,
    sink: Mutex<NotificationSink>,
    channel: ClientChannel,
    naming: Naming,
    /// Server requests that the client has not answered.
    n_awaiting: AtomicUsize,
    /// When `n_awaiting` last rose from zero. Meaningful only while it is above zero.
    awaiting_since: Mutex<Option<Instant>>,
    /// JSON-RPC id of the request at the server, and its position in the order of all requests sent.
    sent: Mutex<Option<(u64, u64)>>,
}

/// How server requests reach the client.
enum ClientChannel {
    /// As a JSON-RPC request in its session.
    Session(Arc<ClientSession>),
    /// Through the task that forwards the request, which returns an `input_required` result.
    InputRequired(mpsc::Sender<ServerRequest>),
}

impl fmt::Debug for ClientChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientChannel::Session(_) => "Session",
            ClientChannel::InputRequired(_) => "InputRequired",
        })
    }
}

/// Counts a server request as unanswered until it is dropped.
pub(crate) struct AwaitingClient<'a>(&'a AtomicUsize);

impl Drop for AwaitingClient<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ClientId {
    /// Id of a client that connects to this process.
    pub(crate) fn new() -> Self {
        static N_CLIENTS: AtomicU64 = AtomicU64::new(0);
        ClientId::Number(N_CLIENTS.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn forwarded(name: &str) -> Self {
        ClientId::Forwarded(name.into())
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientId::Number(number) => write!(f, "{number}"),
            ClientId::Forwarded(name) => f.write_str(name),
        }
    }
}

impl ActiveRequest {
    /// Request of a modern client. Server requests arrive at the returned receiver.
    pub(crate) fn new(
        client: (Arc<ClientInfo>, ClientId),
        sink: NotificationSink,
        naming: Naming,
    ) -> (Arc<Self>, mpsc::Receiver<ServerRequest>) {
        let (sender, incoming) = mpsc::channel(MAX_SERVER_REQUESTS);
        (Self::with_channel(client, sink, naming, ClientChannel::InputRequired(sender)), incoming)
    }

    /// Request of a legacy client, which accepts server requests in its session at any time.
    pub(crate) fn in_session(
        session: &Arc<ClientSession>,
        client: (Arc<ClientInfo>, ClientId),
        sink: NotificationSink,
        naming: Naming,
    ) -> Arc<Self> {
        Self::with_channel(client, sink, naming, ClientChannel::Session(Arc::clone(session)))
    }

    fn with_channel(
        (client, client_id): (Arc<ClientInfo>, ClientId),
        sink: NotificationSink,
        naming: Naming,
        channel: ClientChannel,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            client_id,
            sink: Mutex::new(sink),
            channel,
            naming,
            n_awaiting: AtomicUsize::new(0),
            awaiting_since: Mutex::default(),
            sent: Mutex::default(),
        })
    }

    pub(crate) fn sink(&self) -> NotificationSink {
        self.sink.lock().clone()
    }

    pub(crate) fn set_sink(&self, sink: NotificationSink) {
        *self.sink.lock() = sink;
    }

    /// Records the JSON-RPC id under which the request is sent to the server.
    pub(crate) fn record_sent(&self, id: u64) {
        static N_SENT: AtomicU64 = AtomicU64::new(0);
        *self.sent.lock() = Some((id, N_SENT.fetch_add(1, Ordering::Relaxed)));
    }

    /// Position in the order of all requests sent, if this one was sent under `id`.
    pub(crate) fn send_order(&self, id: u64) -> Option<u64> {
        self.sent.lock().filter(|(sent_id, _)| *sent_id == id).map(|(_, order)| order)
    }

    /// Marks the request as waiting for its client until the guard is dropped.
    pub(crate) fn begin_server_request(&self) -> AwaitingClient<'_> {
        if self.n_awaiting.fetch_add(1, Ordering::AcqRel) == 0 {
            *self.awaiting_since.lock() = Some(Instant::now());
        }
        AwaitingClient(&self.n_awaiting)
    }

    /// Since when the request has been waiting for its client.
    pub(crate) fn awaiting_client_since(&self) -> Option<Instant> {
        (*self.awaiting_since.lock()).filter(|_| self.is_awaiting_client())
    }

    /// Whether a server request to the client is unanswered.
    pub(crate) fn is_awaiting_client(&self) -> bool {
        self.n_awaiting.load(Ordering::Acquire) > 0
    }

    /// Sends a server request to the client and waits for the response. `None` if it cannot be delivered, or the
    /// client's request ends first.
    pub(crate) async fn send_to_client(
        &self,
        method: &str,
        params: Option<&RawJson>,
    ) -> Option<Outcome> {
        let _awaiting = self.begin_server_request();
        match &self.channel {
            ClientChannel::Session(session) => {
                Some(session.send_request(&self.sink().queue, method, params).await)
            }
            ClientChannel::InputRequired(sender) => {
                let (response, received) = oneshot::channel();
                let (method, params) = (method.to_owned(), params.cloned());
                // A full queue and a request that has ended look alike: the router tries another
                // request.
                sender.try_send(ServerRequest { method, params, response }).ok()?;
                received.await.ok()
            }
        }
    }

    /// Forwards progress under the client's own token.
    pub(crate) fn send_progress(&self, progress: &Progress) {
        let NotificationSink { queue, progress_token, .. } = self.sink();
        let Some(progress_token) = progress_token else { return };
        let message = self.client.revision.has_progress_message().then_some(&progress.message);
        let params = ProgressParams {
            progress_token: &progress_token,
            progress: Number(progress.progress),
            total: progress.total.map(Number),
            message: message.and_then(Option::as_deref),
        };
        queue.push_lossy(notification(Method::Progress.as_str(), &params));
    }

    pub(crate) fn send_log(&self, server: &str, message: &LogMessage, default_level: LogLevel) {
        let NotificationSink { queue, log_filter, .. } = self.sink();
        if log_filter.admits(message.level, default_level) {
            queue.push_lossy(log_notification(server, message, self.naming));
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    progress_token: &'a ProgressToken,
    progress: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// Number that is written without a fraction if it is whole. Most servers count in integers, and some clients parse
/// only those.
#[derive(Clone, Copy)]
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // 2^53: every integer below it is exact in an `f64`.
        const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() < MAX_EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and small, checked above")]
            return serializer.serialize_i64(self.0 as i64);
        }
        serializer.serialize_f64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_fraction() {
        let check = |number: f64, expected: &str| {
            assert_eq!(serde_json::to_string(&Number(number)).unwrap(), expected);
        };
        check(50.0, "50");
        check(-3.0, "-3");
        check(0.5, "0.5");
        check(1e300, "1e+300");
    }
}
