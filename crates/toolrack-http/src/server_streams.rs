//! Streams of the server: the standing GET stream of Streamable HTTP (2025-03-26 to 2025-11-25), and the HTTP+SSE
//! transport of 2024-11-05, where messages are posted to one URL and responses arrive on an SSE stream from another.
//!
//! **Invariant:** a stream is opened no more often than [`Backoff`] allows.
//! **Invariant:** nothing is sent to an endpoint of another origin.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_transport::{
    Backoff, IncomingHandler as _, RawJson, RequestError, Routed, TransportError, sanitize_line,
};

use crate::endpoint_url::EndpointUrl;
use crate::event_budget::{EventBudget, SLICE_BYTES, SliceContent, pause};
use crate::request_headers::RequestHeaders;
use crate::request_sender::OutgoingMessage;
use crate::response::{BodyKind, HttpResponse};
use crate::rpc_call::stream_ended;
use crate::session::{
    Attempts, Flavor, Phase, SHORT_SESSION_PENALTY, SessionState, SseStream, add_failures,
};
use crate::sse::{SseEvent, SseParser};
use crate::status_mapping::missing_message;
use crate::transport::Inner;

/// How long a server may take to send the `endpoint` event.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);
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

    /// Starts an HTTP+SSE session.
    pub(crate) async fn initialize_sse(
        self: &Arc<Self>,
        message: &OutgoingMessage<'_>,
    ) -> Result<RawJson, RequestError> {
        let stream = self.open_sse().await?;
        // Before the POST: the response may arrive on the stream before the POST returns.
        self.session.open(Flavor::Sse2024(stream.clone()));
        self.post_to_sse(message, &stream, &RequestHeaders::default()).await
    }

    /// Opens the stream and waits for the `endpoint` event.
    pub(crate) async fn open_sse(self: &Arc<Self>) -> Result<SseStream, RequestError> {
        let timed_out =
            |_elapsed| RequestError::not_sent(TransportError::timed_out(ENDPOINT_TIMEOUT));
        timeout(ENDPOINT_TIMEOUT, self.open_sse_now()).await.map_err(timed_out)?
    }

    async fn open_sse_now(self: &Arc<Self>) -> Result<SseStream, RequestError> {
        let mut response = self.get(&RequestHeaders::default()).await?;
        if !response.status.is_success() {
            return Err(RequestError::not_sent(response.read_error().await.error));
        }
        if response.content.kind != BodyKind::EventStream {
            return Err(RequestError::not_sent(missing_message(response.status, "no stream", b"")));
        }
        let mut parser = SseParser::new(self.max_message_bytes);
        let mut budget = EventBudget::new(Instant::now());
        let (mut events, mut chunk) = (Vec::new(), Bytes::new());
        let endpoint = loop {
            if chunk.is_empty() {
                let next = response.next_chunk(self.max_message_bytes).await;
                chunk = next.map_err(|error| self.body_error(error))?.ok_or_else(stream_ended)?;
            }
            let slice = chunk.split_to(chunk.len().min(SLICE_BYTES));
            let other_bytes = parser.feed(&slice, &mut |event| events.push(event));
            let found = events
                .iter()
                .position(|event| matches!(event, SseEvent::Other(name, _) if name == "endpoint"));
            if let Some(SseEvent::Other(_, reference)) = found.map(|index| events.remove(index)) {
                break self.parse_endpoint(&reference)?;
            }
            let content = SliceContent { n_events: events.len(), n_responses: 0, other_bytes };
            // Nothing was sent before the `endpoint` event, so an earlier event answers no request.
            events.clear();
            pause(budget.spend(Instant::now(), content)).await;
        };
        let closed = CancellationToken::new();
        let stream = SseStream { endpoint: Arc::new(endpoint), closed: closed.clone() };
        // Events of the same slice that came with the endpoint.
        for event in &events {
            self.route_event(event);
        }
        let inner = Arc::clone(self);
        self.tasks.spawn_until_stopped(async move {
            inner.serve_stream(response, parser, chunk, closed).await;
        });
        Ok(stream)
    }

    /// Resolves the endpoint. Spec 2024-11-05, transports §HTTP with SSE, does not restrict its origin; without
    /// a restriction, a server could send our credentials anywhere.
    fn parse_endpoint(&self, reference: &[u8]) -> Result<EndpointUrl, RequestError> {
        let text = String::from_utf8_lossy(reference);
        self.sender.url.join(text.trim()).map_err(|error| {
            let reason = format!("the `endpoint` event: {}", sanitize_line(&error, 200));
            RequestError::not_sent(io::Error::new(io::ErrorKind::InvalidData, reason))
        })
    }

    /// Posts a request and waits until the stream closes. The response itself reaches the caller through the
    /// pending requests.
    pub(crate) async fn post_to_sse(
        &self,
        message: &OutgoingMessage<'_>,
        stream: &SseStream,
        headers: &RequestHeaders<'_>,
    ) -> Result<RawJson, RequestError> {
        let mut response = self.post(message, &stream.endpoint, headers).await?;
        if !response.status.is_success() {
            return Err(response.read_error().await);
        }
        // Some servers respond in the POST itself.
        if response.content.kind == BodyKind::Json
            && let Ok(body) = response.read_all(self.max_message_bytes).await
            && let Some(outcome) = self.match_message(&body, message.id)
        {
            return outcome;
        }
        response.release(&self.tasks);
        stream.closed.cancelled().await;
        Err(stream_ended())
    }

    pub(crate) fn route_event(&self, event: &SseEvent) -> Routed {
        match event {
            SseEvent::Message(message) => self.router.route_owned(message),
            SseEvent::TooLarge(head) => {
                self.router.route_oversize(head, b"", self.max_message_bytes)
            }
            SseEvent::Other(name, _) => {
                tracing::trace!(name, "ignoring an SSE event");
                Routed::Other
            }
        }
    }

    /// Reads a long-lived stream to its end, starting with a chunk that was read before. Any byte resets the idle
    /// timeout, SSE comments included.
    pub(crate) async fn read_until_closed(
        &self,
        response: &mut HttpResponse,
        parser: &mut SseParser,
        mut chunk: Bytes,
    ) {
        response.idle = Some(self.stream_idle);
        let mut budget = EventBudget::new(Instant::now());
        loop {
            for slice in chunk.chunks(SLICE_BYTES) {
                let mut content = SliceContent::default();
                content.other_bytes = parser.feed(slice, &mut |event| {
                    content.n_events += 1;
                    content.n_responses +=
                        usize::from(self.route_event(&event) == Routed::Response);
                });
                pause(budget.spend(Instant::now(), content)).await;
            }
            chunk = match response.next_chunk(self.max_message_bytes).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return,
                Err(error) => {
                    let error = self.body_error(error);
                    tracing::debug!(error = ?error.error, "a server stream failed");
                    return;
                }
            };
        }
    }

    /// Reads a stream and starts a new session when it ends.
    async fn serve_stream(
        self: &Arc<Self>,
        mut response: HttpResponse,
        mut parser: SseParser,
        first: Bytes,
        closed: CancellationToken,
    ) {
        let reading = self.read_until_closed(&mut response, &mut parser, first);
        // `Session::open` cancels the token of the session that it replaces.
        if closed.run_until_cancelled(reading).await.is_none() {
            return;
        }
        // Fails the requests that wait for a response on this stream.
        closed.cancel();
        let state = self.session.state();
        // This stream is that of the current session only if the token in the state is now cancelled too: a
        // session that has replaced it has a token of its own.
        let is_current = match &state.flavor {
            Flavor::Sse2024(stream) => stream.closed.is_cancelled(),
            Flavor::StreamableHttp { .. } => false,
        };
        if is_current {
            self.renew(state.epoch, Attempts::UntilOpen);
        }
    }
}

async fn run(inner: &Arc<Inner>) {
    let mut changes = inner.session.state.subscribe();
    let mut parser = SseParser::new(inner.max_message_bytes);
    let mut backoff = Backoff::default();
    // Epoch of the last session that had a stream.
    let mut opened = None;
    let mut epoch = 0;
    loop {
        let is_open = |state: &SessionState| state.phase == Phase::Open;
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
                inner.renew(epoch, Attempts::One);
            }
            StreamOutcome::Closed => opened = Some(epoch),
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
            if matches!(error.error, TransportError::Unauthorized(_)) {
                add_failures(backoff, UNAUTHORIZED_PENALTY);
            }
            return StreamOutcome::RetryLater;
        }
    };
    if response.is_event_stream() {
        backoff.record_success(Instant::now());
        // Notifications may have been lost before the stream opened: the handler refreshes as after a new session.
        if inner.stream_is_late.swap(false, Ordering::AcqRel) {
            inner.handler.on_session_renewed();
        }
        inner.read_until_closed(&mut response, parser, Bytes::new()).await;
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
