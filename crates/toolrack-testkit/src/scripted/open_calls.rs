//! The calls that are not answered yet and so can be cancelled.
//!
//! **Invariant:** a call leaves the table once, by its answer or by its cancellation; only who took it out answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::message_sink::Outlet;

#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    calls: Mutex<HashMap<String, OpenCall>>,
}

#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) call: u64,
    pub(super) nonce: Option<String>,
    /// The request to the client that this call waits for.
    pub(super) asked: Option<u64>,
    /// Where its answer would have gone.
    pub(super) outlet: Arc<dyn Outlet>,
}

impl OpenCalls {
    pub(super) fn begin(&self, id: &str, call: OpenCall) {
        self.lock().insert(id.to_owned(), call);
    }

    /// Takes the call out; nothing when it was cancelled meanwhile.
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
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
