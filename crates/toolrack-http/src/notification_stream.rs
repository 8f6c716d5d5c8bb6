//! Standing GET stream for server notifications and requests (Streamable HTTP, 2025-03-26 to 2025-11-25).
//!
//! **Invariant:** the stream is opened no more often than [`Backoff`] allows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::StatusCode;
use tokio::time::{Instant, sleep};
use toolrack_transport::{Backoff, IncomingHandler as _, TransportError};

use crate::session::{Flavor, Phase, SHORT_SESSION_PENALTY, SessionState, add_failures};
use crate::sse::SseParser;
use crate::transport::Inner;

/// Extra failures counted for a rejected login: it took several requests, and a user has to act first.
const UNAUTHORIZED_PENALTY: u32 = 8;

/// Outcome of opening the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamOutcome {
    /// It was open and has ended.
    Closed,
    /// It could not be opened this time.
    RetryLater,
    /// The server does not know the session.
    SessionUnknown,
    /// Authentication failed.
    Unauthorized,
    /// The server has no such stream.
    NotOffered,
}

impl Inner {
    /// Starts the stream task, once for all sessions of the transport.
    pub(crate) fn start_notification_stream(self: &Arc<Self>) {
        if self.has_notification_stream.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = Arc::clone(self);
        // Dropped with the task, so `notifications/initialized` stops waiting even if the task ends early.
        let answered = inner.stream_answered.clone().drop_guard();
        self.tasks.spawn_until_stopped(async move {
            let _answered = answered;
            run(&inner).await;
        });
    }
}

async fn run(inner: &Arc<Inner>) {
    let mut changes = inner.session.subscribe();
    let mut parser = SseParser::new(inner.max_message_bytes);
    let mut backoff = Backoff::default();
    // Epoch of the last session that had a stream.
    let mut opened = None;
    let mut epoch = 0;
    loop {
        let is_open = |state: &SessionState| matches!(state.phase, Phase::Open);
        let Ok(state) = changes.wait_for(is_open).await.map(|state| state.clone()) else {
            return;
        };
        if matches!(state.flavor, Flavor::Sse2024(_)) {
            // HTTP+SSE has its own stream.
            return;
        }
        if std::mem::replace(&mut epoch, state.epoch) != state.epoch {
            // Event ids are valid only within their session.
            parser = SseParser::new(inner.max_message_bytes);
        }
        // The start of a broken event must not become part of the new stream.
        parser.restart();
        // The stream of a replaced session is dropped, and the loop opens one for the new session.
        let new_session = changes.wait_for(|now| now.epoch != state.epoch);
        let outcome = tokio::select! {
            outcome = open_once(inner, &state, &mut parser, &mut backoff) => outcome,
            _changed = new_session => StreamOutcome::Closed,
        };
        match outcome {
            StreamOutcome::NotOffered => return,
            // A server without this stream often responds 404 instead of 405. That is a lost session only if
            // this stream worked before.
            StreamOutcome::SessionUnknown if opened.is_none() => return,
            // Only if this session had a stream. A renewed session without one is retried, not
            // renewed again.
            StreamOutcome::SessionUnknown if opened == Some(epoch) => {
                add_failures(&mut backoff, SHORT_SESSION_PENALTY);
                inner.renew(epoch);
            }
            StreamOutcome::Closed => opened = Some(epoch),
            StreamOutcome::Unauthorized => add_failures(&mut backoff, UNAUTHORIZED_PENALTY),
            StreamOutcome::RetryLater | StreamOutcome::SessionUnknown => {}
        }
        // Also after a stream that worked: a server may close every stream at once.
        let wait = backoff.record_failure(Instant::now(), fastrand::f64());
        sleep(wait.max(parser.retry().unwrap_or_default())).await;
    }
}

/// Opens the stream and reads it to its end.
async fn open_once(
    inner: &Arc<Inner>,
    state: &SessionState,
    parser: &mut SseParser,
    backoff: &mut Backoff,
) -> StreamOutcome {
    let headers = inner.session_headers(state).with_last_event_id(parser.last_id());
    let opened = inner.get(&headers).await;
    // Any outcome ends the wait of `notifications/initialized`.
    inner.stream_answered.cancel();
    let mut response = match opened {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(%error, "could not open the notification stream");
            let is_unauthorized = matches!(error.error, TransportError::Unauthorized(_));
            return if is_unauthorized {
                StreamOutcome::Unauthorized
            } else {
                StreamOutcome::RetryLater
            };
        }
    };
    if response.is_event_stream() {
        backoff.record_success(Instant::now());
        // Notifications may have been lost before the stream opened: the handler refreshes as after a new session.
        if inner.stream_is_late.swap(false, Ordering::AcqRel) {
            inner.handler.on_session_renewed();
        }
        inner.read_until_closed(&mut response, parser).await;
        return StreamOutcome::Closed;
    }
    let status = response.status;
    tracing::debug!(%status, "could not open the notification stream");
    response.release(&inner.tasks);
    match status {
        // Spec 2025-11-25, transports §Listening: 405 means not offered, which is normal.
        StatusCode::METHOD_NOT_ALLOWED => StreamOutcome::NotOffered,
        StatusCode::NOT_FOUND => StreamOutcome::SessionUnknown,
        _ => StreamOutcome::RetryLater,
    }
}
