//! The inbox as many tasks use it: one at a time, and never after its end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use toolrack_transport::{Ending, Inbox, TransportError};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

/// Stands before the inbox of a line.
pub(crate) struct Gate {
    inbox: Arc<dyn Inbox>,
    ended: Mutex<bool>,
    /// Whether servers may ask, which the stateless era does not allow.
    is_shut_to_requests: AtomicBool,
    n_dropped: AtomicU64,
}

impl Gate {
    pub(crate) fn new(inbox: Arc<dyn Inbox>) -> Self {
        Self {
            inbox,
            ended: Mutex::new(false),
            is_shut_to_requests: AtomicBool::new(false),
            n_dropped: AtomicU64::new(0),
        }
    }

    /// From now on the server must not ask anything.
    pub(crate) fn shut_to_requests(&self) {
        self.is_shut_to_requests.store(true, Ordering::Release);
    }

    /// From now on the server may ask.
    pub(crate) fn open_to_requests(&self) {
        self.is_shut_to_requests.store(false, Ordering::Release);
    }

    /// Requests that the server should not have sent.
    pub(crate) fn n_dropped(&self) -> u64 {
        self.n_dropped.load(Ordering::Relaxed)
    }

    /// Spec 2026-07-28, transports: servers must not ask; what they ask is not answered.
    fn admits(&self, method: &str) -> bool {
        let is_shut = self.is_shut_to_requests.load(Ordering::Acquire);
        if is_shut {
            self.n_dropped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(method, "a request of the server was dropped");
        }
        !is_shut
    }

    fn pass(&self, tell: impl FnOnce(&dyn Inbox)) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*ended {
            tell(&*self.inbox);
        }
    }
}

impl Inbox for Gate {
    fn request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        if self.admits(method) {
            self.pass(|inbox| inbox.request(id, method, params));
        }
    }

    fn request_about(&self, about: u64, id: RequestId, method: &str, params: Option<RawJson>) {
        if self.admits(method) {
            self.pass(|inbox| inbox.request_about(about, id, method, params));
        }
    }

    fn notification(&self, method: &str, params: Option<RawJson>) {
        self.pass(|inbox| inbox.notification(method, params));
    }

    fn stray(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        self.pass(|inbox| inbox.stray(id, outcome));
    }

    fn unreadable(&self, sample: &str) {
        self.pass(|inbox| inbox.unreadable(sample));
    }

    fn renewed(&self) {
        self.pass(|inbox| inbox.renewed());
    }

    fn unreachable(&self, reason: &TransportError) {
        self.pass(|inbox| inbox.unreachable(reason));
    }

    fn ended(&self, ending: &Ending) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *ended, true) {
            self.inbox.ended(ending);
        }
    }
}
