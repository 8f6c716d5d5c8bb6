//! Clients of the server: negotiated revision, subscriptions, open calls, and the sink for each message.
//!
//! Over stdio there is one client; over HTTP there is one per session, and one per request without a session.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::faulty_response::ResponseFaults;
use super::server::Server;
use super::subscriptions::Subscriptions;
use crate::jsonrpc::{Response, error_code};
use crate::message_sink::MessageSink;
use crate::revision::{Era, Revision};

#[derive(Debug)]
pub(super) struct Client {
    /// Sink for unsolicited messages.
    pub(super) sink: Arc<dyn MessageSink>,
    pub(super) open: OpenCalls,
    pub(super) subscriptions: Subscriptions,
    negotiated: Mutex<Option<Revision>>,
}

impl Client {
    pub(super) fn new(sink: Arc<dyn MessageSink>) -> Arc<Self> {
        Arc::new(Self {
            sink,
            open: OpenCalls::default(),
            subscriptions: Subscriptions::default(),
            negotiated: Mutex::new(None),
        })
    }

    pub(super) fn set_negotiated(&self, revision: Revision) {
        *self.negotiated.lock() = Some(revision);
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
        let mut clients = self.clients.lock();
        clients.retain(|known| !Arc::ptr_eq(known, client));
        drop(clients);
        for id in client.open.ids() {
            self.cancel(client, &id);
        }
    }

    pub(super) fn clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().clone()
    }
}

/// Source of a message.
#[derive(Debug, Clone)]
pub(super) struct MessageContext {
    pub(super) client: Arc<Client>,
    /// Sink for responses: the client's own, or the response to one HTTP request.
    pub(super) sink: Arc<dyn MessageSink>,
}

impl MessageContext {
    /// Context of a client with a single sink.
    pub(super) fn for_client(client: &Arc<Client>) -> Self {
        Self { client: Arc::clone(client), sink: Arc::clone(&client.sink) }
    }
}

/// A request that waits for its response.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) context: MessageContext,
    /// The id as the client wrote it.
    pub(super) id: String,
    pub(super) revision: Revision,
    /// The number of the call; 0 for other requests.
    pub(super) call: u64,
    pub(super) nonce: Option<String>,
    pub(super) response_faults: Option<Box<ResponseFaults>>,
}

impl PendingRequest {
    pub(super) fn era(&self) -> Era {
        self.revision.era()
    }

    pub(super) fn sink(&self) -> &dyn MessageSink {
        &*self.context.sink
    }

    /// Spec 2026-07-28, HTTP: some errors have their own status. Older revisions always use 200.
    pub(super) fn set_http_status(&self, response: &Response) {
        let Response::Error(rpc_error) = response else { return };
        if self.era() == Era::Legacy {
            return;
        }
        match rpc_error.code {
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
    pub(super) fn register_open(&self, client_request: Option<u64>) {
        let sink = Arc::clone(&self.context.sink);
        let call = OpenCall { call: self.call, nonce: self.nonce.clone(), client_request, sink };
        self.context.client.open.begin(&self.id, call);
    }

    /// Removes the call from the open ones; `None` if it was cancelled.
    pub(super) fn finish(&self) -> Option<OpenCall> {
        self.context.client.open.finish(&self.id)
    }
}

#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    calls: Mutex<HashMap<String, OpenCall>>,
}

#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) call: u64,
    pub(super) nonce: Option<String>,
    /// Id of the request to the client that this call waits for.
    pub(super) client_request: Option<u64>,
    /// Sink of its response.
    pub(super) sink: Arc<dyn MessageSink>,
}

impl OpenCalls {
    pub(super) fn begin(&self, id: &str, call: OpenCall) {
        self.lock().insert(id.to_owned(), call);
    }

    /// Removes the call; `None` if it was cancelled.
    pub(super) fn finish(&self, id: &str) -> Option<OpenCall> {
        self.lock().remove(id)
    }

    pub(super) fn is_open(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OpenCall>> {
        self.calls.lock()
    }
}
