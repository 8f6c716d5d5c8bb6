//! Clients of the server: negotiated revision, subscriptions, open calls, and the context of each message.
//!
//! Over stdio there is one client; over HTTP there is one per session, and one per request without a session.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use super::server::Server;
use super::subscriptions::Subscriptions;
use crate::jsonrpc::{self, Params, Response, error_code, insert};
use crate::message_sink::{MessageSink, PipeSink};
use crate::plan::Fault;
use crate::revision::{Era, Revision};

#[derive(Debug)]
pub(crate) struct Client {
    /// Sink for unsolicited messages.
    pub(super) sink: Arc<dyn MessageSink>,
    /// Calls that can be cancelled, by their ids as the client wrote them.
    pub(super) open: Mutex<HashMap<String, OpenCall>>,
    pub(super) subscriptions: Subscriptions,
    pub(super) negotiated: Mutex<Option<Revision>>,
}

impl Client {
    pub(super) fn new(sink: Arc<dyn MessageSink>) -> Arc<Self> {
        Arc::new(Self {
            sink,
            open: Mutex::default(),
            subscriptions: Subscriptions::default(),
            negotiated: Mutex::default(),
        })
    }

    /// Client for triggers before a client is known; it gets no messages.
    pub(super) fn detached() -> Arc<Self> {
        Self::new(Arc::new(PipeSink::new(io::sink())))
    }

    pub(super) fn negotiated(&self) -> Option<Revision> {
        *self.negotiated.lock()
    }
}

impl Server {
    /// Adds a client to the receivers of change notifications.
    pub(super) fn add_client(&self, client: &Arc<Client>) {
        let mut clients = self.clients.lock();
        if !clients.iter().any(|known| Arc::ptr_eq(known, client)) {
            clients.push(Arc::clone(client));
        }
    }

    /// Removes a client and cancels its calls.
    pub(super) fn remove_client(&self, client: &Arc<Client>) {
        self.clients.lock().retain(|known| !Arc::ptr_eq(known, client));
        let ids: Vec<String> = client.open.lock().keys().cloned().collect();
        for id in ids {
            self.cancel(client, &id);
        }
    }

    pub(super) fn clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().clone()
    }
}

/// Source of a message.
#[derive(Debug, Clone)]
pub(crate) struct MessageContext {
    pub(crate) server: Arc<Server>,
    pub(super) client: Arc<Client>,
    /// Sink for responses: the client's own, or the response to one HTTP request.
    pub(super) sink: Arc<dyn MessageSink>,
}

impl MessageContext {
    /// Context of a client with a single sink.
    pub(super) fn new(server: &Arc<Server>, client: &Arc<Client>) -> Self {
        let sink = Arc::clone(&client.sink);
        Self { server: Arc::clone(server), client: Arc::clone(client), sink }
    }
}

/// A request that waits for its response.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) context: MessageContext,
    /// The id as the client wrote it.
    pub(super) id: String,
    pub(crate) revision: Revision,
    /// The number of the call; 0 for other requests.
    pub(super) call: u64,
    pub(super) nonce: Option<String>,
    /// Faults of the response, and others.
    pub(super) faults: Vec<Fault>,
}

/// A call that takes its time: notifications at an interval, then the response after one more.
pub(crate) struct SlowCall {
    pub(crate) n_steps: u64,
    pub(crate) every: Duration,
    /// Notification of the step with this number, from 1.
    pub(crate) notification: Box<dyn Fn(u64) -> Option<Vec<u8>> + Send>,
    pub(crate) text: String,
}

impl PendingRequest {
    pub(crate) fn era(&self) -> Era {
        self.revision.era()
    }

    pub(crate) fn sink(&self) -> &dyn MessageSink {
        &*self.context.sink
    }

    /// Runs a slow call on the timer. Its client can cancel it; then it is never answered.
    pub(crate) fn respond_slowly(self, slow: SlowCall) {
        self.register_open(Vec::new());
        self.step(slow, 1);
    }

    fn step(self, slow: SlowCall, number: u64) {
        let server = Arc::clone(&self.context.server);
        let is_last = number > slow.n_steps;
        server.timer.after(slow.every, move || {
            let sink = Arc::clone(&self.context.sink);
            if is_last {
                if self.finish() {
                    self.respond(Response::text(&slow.text));
                }
            } else if self.context.client.open.lock().contains_key(&self.id) {
                if let Some(line) = (slow.notification)(number) {
                    sink.send(&line);
                }
                self.step(slow, number + 1);
            }
            sink.flush();
        });
    }

    /// Builds progress notifications; there are none without a token.
    pub(crate) fn progress_line(
        &self,
        params: &Params<'_>,
        total: u64,
        message: impl Fn(u64) -> String + Send + 'static,
    ) -> Box<dyn Fn(u64) -> Option<Vec<u8>> + Send> {
        let token = params.meta.progress_token.map(ToOwned::to_owned);
        let has_message = self.revision >= Revision::R2025_03_26;
        Box::new(move |step| {
            let mut params =
                json!({ "progressToken": token.as_ref()?, "progress": step, "total": total });
            insert(&mut params, "message", has_message.then(|| json!(message(step))));
            Some(jsonrpc::notification_line("notifications/progress", Some(&params)))
        })
    }

    /// Whether the client wants log messages of this severity.
    ///
    /// Spec 2026-07-28, logging: nothing is sent unless the request names a level.
    pub(crate) fn wants_log(&self, severity: usize, params: &Params<'_>) -> bool {
        match self.era() {
            Era::Legacy => self.context.client.subscriptions.log_level() <= severity,
            Era::Modern => {
                let least = params.meta.log_level.as_deref().map(jsonrpc::severity);
                matches!(least, Some(Ok(least)) if least <= severity)
            }
        }
    }

    /// Spec 2026-07-28, HTTP: some errors have their own status. Older revisions always use 200.
    pub(super) fn set_http_status(&self, response: &Response) {
        let Response::Error(rpc_error) = response else { return };
        match rpc_error.code {
            _ if self.era() == Era::Legacy => (),
            error_code::METHOD_NOT_FOUND => self.sink().set_status(404),
            error_code::HEADER_MISMATCH
            | error_code::MISSING_CLIENT_CAPABILITY
            | error_code::UNSUPPORTED_VERSION => {
                self.sink().set_status(400);
            }
            _ => (),
        }
    }

    /// Registers a call that can be cancelled from now on.
    pub(super) fn register_open(&self, client_requests: Vec<u64>) {
        let sink = Arc::clone(&self.context.sink);
        let call = OpenCall { call: self.call, nonce: self.nonce.clone(), client_requests, sink };
        self.context.client.open.lock().insert(self.id.clone(), call);
    }

    /// Removes the call from the open ones; returns `false` if it was cancelled.
    pub(super) fn finish(&self) -> bool {
        self.context.client.open.lock().remove(&self.id).is_some()
    }
}

#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) call: u64,
    pub(super) nonce: Option<String>,
    /// Ids of the requests to the client that this call waits for.
    pub(super) client_requests: Vec<u64>,
    /// Sink of its response.
    pub(super) sink: Arc<dyn MessageSink>,
}
