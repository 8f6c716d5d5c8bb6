//! One request's place in the log, for whoever ends its reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::request::Request;
use crate::http_log::{HttpEnding, HttpLogWriter, News};
use crate::scripted::child_process;

/// Writes down what becomes of one request; without a log it does nothing.
#[derive(Debug)]
pub(super) struct Note {
    log: Option<Arc<HttpLogWriter>>,
    number: u64,
    /// Zero until the head has left.
    status: AtomicU16,
}

impl Note {
    pub(super) fn arrived(
        log: Option<&Arc<HttpLogWriter>>,
        number: u64,
        request: &Request,
    ) -> Self {
        let note = Self { log: log.map(Arc::clone), number, status: AtomicU16::new(0) };
        if let Some(log) = &note.log {
            let query = if request.query.is_empty() { "" } else { "?" };
            note.write(News::Arrived {
                at_ms: log.millis(),
                verb: request.verb.clone(),
                target: format!("{}{query}{}", request.path, request.query),
                method: method_of(&request.body),
                headers: request.headers.iter().cloned().collect(),
            });
        }
        note
    }

    pub(super) fn status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, ending: HttpEnding) {
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|some| *some > 0);
        self.write(News::Ended { status, ending });
    }

    fn write(&self, news: News) {
        let Some(log) = &self.log else { return };
        if log.write(self.number, news).is_err() {
            // A log that misses a request proves nothing, so the run must not go on.
            child_process::leave(3);
        }
    }
}

fn method_of(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Message {
        method: String,
    }
    serde_json::from_slice::<Message>(body).ok().map(|slice| slice.method)
}
