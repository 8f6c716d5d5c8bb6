//! Suspended requests: requests of modern clients that a legacy server interrupted with a request of its own.
//!
//! A modern client gets the server's request as an `input_required` result and repeats its own request with the
//! response. In between, the call to the server stays open here; a random `requestState` identifies it.
//!
//! **Invariant:** the number of suspended requests is bounded. Each is dropped, and so cancelled at its server, when
//! its client takes too long or the gateway closes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use toolrack_mcp::Method;
use toolrack_transport::{BoxFuture, JsonRpcError};
use uuid::Uuid;

use crate::encode::{Outcome, internal_error, invalid_params};
use crate::server_requests::{ActiveRequest, ServerRequest};

/// A request that waits for its client.
pub(crate) struct SuspendedRequest {
    /// The call to the server. It makes progress while it is polled, and is cancelled when it is dropped.
    pub(crate) call: BoxFuture<'static, Outcome>,
    pub(crate) active: Arc<ActiveRequest>,
    pub(crate) incoming: mpsc::Receiver<ServerRequest>,
    /// Server requests that the client has not answered, by the keys that it was given.
    pub(crate) pending: Vec<(String, ServerRequest)>,
    /// Number of keys given so far. A key is never reused, so that a late response cannot answer a later request.
    pub(crate) n_keys: usize,
    /// Method and name or URI, which the repeated request must share.
    pub(crate) subject: (Method, String),
}

/// All suspended requests of a gateway.
pub(crate) struct SuspendedRequests {
    /// Prefix of the states issued here. A server may be a gateway too, and its states must pass through unchanged, so
    /// the prefix is unique to this gateway.
    prefix: String,
    /// `None` once the gateway is closed. A suspended call holds an `Arc` of the gateway's shared state, of which this
    /// map is a part: without clearing it, the cycle would keep both alive.
    requests: Mutex<Option<HashMap<Uuid, (Instant, SuspendedRequest)>>>,
    limit: usize,
    timeout: Duration,
}

impl SuspendedRequests {
    pub(crate) fn new(limit: usize, timeout: Duration) -> Self {
        let prefix = format!("toolrack-parked:{}:", Uuid::new_v4().simple());
        Self { prefix, requests: Mutex::new(Some(HashMap::new())), limit, timeout }
    }

    /// Stores a request and returns the `requestState` that leads back to it.
    pub(crate) fn insert(&self, request: SuspendedRequest) -> Result<String, JsonRpcError> {
        // Requests that have expired must not count against the limit.
        self.drop_expired();
        let mut requests = self.requests.lock();
        let Some(requests) = requests.as_mut() else {
            return Err(internal_error("the gateway is closed"));
        };
        if requests.len() >= self.limit {
            return Err(internal_error("too many requests are waiting for client input"));
        }
        let id = Uuid::new_v4();
        requests.insert(id, (Instant::now() + self.timeout, request));
        Ok(format!("{}{id}", self.prefix))
    }

    /// Whether this gateway issued the state, as opposed to a server.
    pub(crate) fn is_own_state(&self, state: &str) -> bool {
        state.starts_with(&self.prefix)
    }

    /// Removes the request that the state leads to.
    pub(crate) fn take(
        &self,
        state: &str,
        subject: &(Method, String),
    ) -> Result<SuspendedRequest, JsonRpcError> {
        self.drop_expired();
        let id = state.strip_prefix(self.prefix.as_str()).and_then(|id| id.parse().ok());
        let mut requests = self.requests.lock();
        let requests = requests.as_mut().ok_or_else(Self::unknown_state)?;
        // Checked before the removal, so that a request for another subject does not consume the state.
        let found = id
            .filter(|id| requests.get(id).is_some_and(|(_, request)| request.subject == *subject));
        let found = found.and_then(|id| requests.remove(&id));
        found.map(|(_, request)| request).ok_or_else(Self::unknown_state)
    }

    /// Error for a state that leads to no request.
    pub(crate) fn unknown_state() -> JsonRpcError {
        invalid_params("unknown `requestState`: already used, expired, or never issued")
    }

    /// Drops the requests whose clients took too long.
    pub(crate) fn drop_expired(&self) {
        let now = Instant::now();
        let mut requests = self.requests.lock();
        let Some(map) = requests.as_mut() else { return };
        let dropped: Vec<_> = map.extract_if(|_, (deadline, _)| *deadline <= now).collect();
        drop(requests);
        // Dropping a call sends `notifications/cancelled` and takes locks of the router: not under this lock.
        drop(dropped);
    }

    /// Drops all requests and accepts no more.
    pub(crate) fn close(&self) {
        // Taken out first and dropped without the lock, as in `drop_expired`.
        let dropped = self.requests.lock().take();
        drop(dropped);
    }
}

impl fmt::Debug for SuspendedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuspendedRequests")
            .field("requests", &self.requests.lock().as_ref().map(HashMap::len))
            .finish_non_exhaustive()
    }
}
