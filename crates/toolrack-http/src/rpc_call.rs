//! JSON-RPC request over one HTTP request: sends it and reads the response as JSON or as an SSE stream, which
//! is resumed if it breaks.
//!
//! **Invariant:** a failed exchange fails only its own request.
//! **Invariant:** a stream is resumed only with `Last-Event-ID`, never sooner than the server's `retry` (which
//! counts up to five minutes), and no more often than [`Backoff`] allows.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::{Instant, sleep};
use toolrack_transport::{
    Backoff, Message, MessageError, OutgoingRequest, ProtocolMode, RawJson, RequestError,
    RequestTimeout, TransportError, TruncatedMessage, split_batch,
};

use crate::event_budget::{EventBudget, SLICE_BYTES, SliceContent, pause};
use crate::request_headers::RequestHeaders;
use crate::request_sender::OutgoingMessage;
use crate::response::{BodyKind, HttpResponse, MAX_ERROR_BODY_BYTES, is_too_large, too_large};
use crate::session::{Attempts, Flavor};
use crate::sse::{SseEvent, SseParser};
use crate::status_mapping::{error_from_response, mentions_session, missing_message};
use crate::transport::Inner;

pub(crate) const INITIALIZE: &str = "initialize";

impl Inner {
    /// Sends a request and returns its response, if that comes on the same exchange.
    pub(crate) async fn exchange_request(
        self: &Arc<Self>,
        request: &OutgoingRequest<'_>,
        message: &OutgoingMessage<'_>,
    ) -> Result<RawJson, RequestError> {
        match self.mode() {
            ProtocolMode::Stateless(version) => {
                self.send_stateless(request, version, message).await
            }
            ProtocolMode::Initialize if request.method == INITIALIZE => {
                Box::pin(self.initialize(request.params, message)).await
            }
            ProtocolMode::Initialize | ProtocolMode::Session(_) => {
                self.send_in_session(message).await
            }
        }
    }

    async fn send_stateless(
        self: &Arc<Self>,
        request: &OutgoingRequest<'_>,
        version: &'static str,
        message: &OutgoingMessage<'_>,
    ) -> Result<RawJson, RequestError> {
        let mut headers = RequestHeaders::for_stateless(version, request.method, message.name);
        headers.add_param_headers(request.params);
        let mut response = self.post(message, &self.sender.url, &headers).await?;
        if request.timeout == RequestTimeout::unlimited() {
            // A request without a timeout (a subscription) would otherwise wait forever for a server that
            // vanished without closing the connection.
            response.idle = Some(self.stream_idle);
        }
        let unwanted = response.session_id();
        let outcome = self.read_response(&mut response, message.id, None).await;
        // A server of an older protocol may have created a session before it rejected the request.
        if let (Err(_), Some(unwanted)) = (&outcome, unwanted) {
            self.discard_session(unwanted);
        }
        outcome
    }

    async fn send_in_session(
        self: &Arc<Self>,
        message: &OutgoingMessage<'_>,
    ) -> Result<RawJson, RequestError> {
        let mut has_retried = false;
        loop {
            let state = self.ready_session().await?;
            let headers = self.session_headers(&state);
            if let Flavor::Sse2024(stream) = &state.flavor {
                return self.post_to_sse(message, stream, &headers).await;
            }
            let mut response = self.post(message, &self.sender.url, &headers).await?;
            let status = response.status;
            if headers.http_session_id.is_none() || !matches!(status.as_u16(), 400 | 404) {
                return self.read_response(&mut response, message.id, Some(&headers)).await;
            }
            let text = response.read_prefix(MAX_ERROR_BODY_BYTES).await;
            let rejected = error_from_response(status, &text);
            if status != StatusCode::NOT_FOUND && !mentions_session(&text) {
                return Err(rejected);
            }
            // The server did not know the session, so it did not process the request: sending it again is safe.
            message.sent.clear();
            // Has no effect if another request has already renewed the session of this epoch.
            self.renew(state.epoch, Attempts::One);
            if has_retried {
                tracing::debug!(error = %rejected, "the server rejects the new session too");
                return Err(RequestError::not_sent(TransportError::SessionLost));
            }
            has_retried = true;
        }
    }

    /// Reads the JSON-RPC response from the HTTP response.
    pub(crate) async fn read_response(
        self: &Arc<Self>,
        response: &mut HttpResponse,
        id: u64,
        resume: Option<&RequestHeaders<'static>>,
    ) -> Result<RawJson, RequestError> {
        if !response.status.is_success() {
            return Err(response.read_error().await);
        }
        match response.content.kind {
            BodyKind::EventStream => self.read_sse_response(response, id, resume).await,
            BodyKind::Json => {
                if let Some(result) = response.parse_buffered(|body| self.parse_success(body, id)) {
                    return Ok(result);
                }
                let body = response.read_all(self.max_message_bytes).await;
                let body = body.map_err(|error| self.body_error(error))?;
                self.find_response(&body, id)
                    .unwrap_or_else(|| Err(missing_response(response, &body)))
            }
            BodyKind::Other => {
                let body = response.read_prefix(MAX_ERROR_BODY_BYTES).await;
                Err(missing_response(response, &body))
            }
        }
    }

    /// Result of request `id`, if `body` is just that and not too large.
    fn parse_success(&self, body: &[u8], id: u64) -> Option<RawJson> {
        let Ok(Message::Success { id: message_id, result }) = Message::parse(body.trim_ascii())
        else {
            return None;
        };
        if message_id.as_local_id() != Some(id) || body.len() > self.max_message_bytes {
            return None;
        }
        self.router.counters().count_message();
        Some(RawJson::new(Bytes::copy_from_slice(result)))
    }

    /// Finds the response in a body with one message or a batch.
    fn find_response(&self, body: &Bytes, id: u64) -> Option<Result<RawJson, RequestError>> {
        // Batches exist only in 2025-03-26, but the parser does not depend on the version.
        if let Some(messages) = split_batch(body) {
            let mut found = None;
            for message in messages {
                // The first response counts. The loop goes on, because the other messages must be routed.
                let response = self.match_message(&body.slice_ref(message), id);
                found = found.or(response);
            }
            return found;
        }
        self.match_message(body, id)
    }

    /// Returns the message if it is the response to request `id`; routes it otherwise.
    pub(crate) fn match_message(
        &self,
        message: &Bytes,
        id: u64,
    ) -> Option<Result<RawJson, RequestError>> {
        let stats = self.router.counters();
        match Message::parse(message.trim_ascii()) {
            Ok(Message::Success { id: message_id, result })
                if message_id.as_local_id() == Some(id) =>
            {
                stats.count_message();
                Some(Ok(RawJson::new(message.slice_ref(result))))
            }
            // An error without an id can only belong to the request of this exchange.
            Ok(Message::Failure { id: message_id, error })
                if message_id
                    .as_ref()
                    .is_none_or(|message_id| message_id.as_local_id() == Some(id)) =>
            {
                stats.count_message();
                Some(Err(RequestError::answered(error)))
            }
            // A response with our id but without a valid outcome: without this arm its caller would
            // wait until the timeout.
            Err(MessageError::Shape { id: Some(message_id) })
                if message_id.as_local_id() == Some(id) =>
            {
                let reason = MessageError::Shape { id: None }.to_string();
                Some(Err(RequestError::answered(TransportError::Parse(reason))))
            }
            _ => {
                // A server request on this stream belongs to this call, so it is routed together
                // with its id.
                self.router.route_related(id, message);
                None
            }
        }
    }

    pub(crate) fn body_error(&self, error: io::Error) -> RequestError {
        if !is_too_large(&error) {
            return RequestError::unknown(error);
        }
        // `answered`: the server has processed the request, so no policy may send it again.
        self.router.counters().count_oversize();
        RequestError::answered(TransportError::Oversize { limit_bytes: self.max_message_bytes })
    }

    /// Reads an SSE stream until the response comes, resuming the stream if it breaks.
    pub(crate) async fn read_sse_response(
        self: &Arc<Self>,
        response: &mut HttpResponse,
        id: u64,
        resume: Option<&RequestHeaders<'static>>,
    ) -> Result<RawJson, RequestError> {
        let mut parser = SseParser::new(self.max_message_bytes);
        let mut backoff = Backoff::default();
        loop {
            let end = match self.read_events(response, &mut parser, id).await {
                Ok(found) => {
                    // The server should end the stream now; draining it keeps the connection.
                    response.release(&self.tasks);
                    return found;
                }
                Err(end) => end,
            };
            // A broken stream leaves its connection in the middle of a body.
            response.abort();
            let (Some(resume), true) = (resume, parser.last_id().is_some()) else {
                return Err(end);
            };
            tracing::debug!(error = %end, "the response stream ended; resuming");
            *response = Box::pin(self.reopen_stream(&mut parser, resume, &mut backoff)).await?;
        }
    }

    /// Reads until the response (`Ok`) or the end of the stream (`Err`).
    async fn read_events(
        &self,
        response: &mut HttpResponse,
        parser: &mut SseParser,
        id: u64,
    ) -> Result<Result<RawJson, RequestError>, RequestError> {
        let mut budget = EventBudget::new(Instant::now());
        loop {
            let chunk = match response.next_chunk(self.max_message_bytes).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Err(stream_ended()),
                // Not resumed: too large is an outcome of the request, not an end of the stream.
                Err(error) if is_too_large(&error) => return Ok(Err(self.body_error(error))),
                Err(error) => return Err(self.body_error(error)),
            };
            let mut found = None;
            for slice in chunk.chunks(SLICE_BYTES) {
                let mut content = SliceContent::default();
                content.other_bytes = parser.feed(slice, &mut |event| {
                    content.n_events += 1;
                    let response = self.match_event(&event, id);
                    found = found.take().or(response);
                });
                let wait = budget.spend(Instant::now(), content);
                match found {
                    None => pause(wait).await,
                    // The whole chunk is parsed even after the response, so that its other messages are routed, but
                    // a flood does not delay the response.
                    Some(_) if wait.is_zero() => {}
                    Some(_) => break,
                }
            }
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    fn match_event(&self, event: &SseEvent, id: u64) -> Option<Result<RawJson, RequestError>> {
        match event {
            SseEvent::Message(message) => self.match_message(message, id),
            // An oversize notification is dropped alone; only an oversize response fails the
            // request.
            SseEvent::TooLarge(head)
                if TruncatedMessage::identify(head, b"") != TruncatedMessage::Unsolicited =>
            {
                Some(Err(self.body_error(too_large())))
            }
            other => {
                self.route_event(other);
                None
            }
        }
    }

    /// Spec 2025-11-25, transports §Resumability: GET with `Last-Event-ID`, after the `retry` delay.
    async fn reopen_stream(
        &self,
        parser: &mut SseParser,
        resume: &RequestHeaders<'static>,
        backoff: &mut Backoff,
    ) -> Result<HttpResponse, RequestError> {
        loop {
            // Also before the first attempt: a server that breaks every stream would be polled
            // without a pause. The number of attempts has no limit, because the timeout of the
            // caller ends the loop.
            let wait = backoff.record_failure(Instant::now(), fastrand::f64());
            sleep(wait.max(parser.retry().unwrap_or_default())).await;
            let headers = resume.clone().with_last_event_id(parser.last_id());
            // GET without the id opens a notification stream, which never brings the response.
            if headers.last_event_id.is_none() {
                return Err(stream_ended());
            }
            match self.get(&headers).await {
                Ok(response) if response.is_event_stream() => {
                    parser.restart();
                    return Ok(response);
                }
                Ok(mut response) if is_retryable(response.status) => response.release(&self.tasks),
                Ok(mut response) => {
                    // The server had accepted the request and only its response is lost, hence
                    // `unknown`.
                    let rejected = error_from_response(response.status, b"");
                    response.release(&self.tasks);
                    return Err(RequestError::unknown(rejected.error));
                }
                Err(error) if matches!(error.error, TransportError::Unauthorized(_)) => {
                    return Err(RequestError::unknown(error.error));
                }
                Err(error) => {
                    tracing::debug!(%error, "could not resume the response stream; retrying");
                }
            }
        }
    }
}

fn missing_response(response: &HttpResponse, body: &[u8]) -> RequestError {
    RequestError::answered(missing_message(response.status, response.content_type(), body))
}

fn is_retryable(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// The stream ended without a response: whether the server processed the request is unknown.
pub(crate) fn stream_ended() -> RequestError {
    let reason = "the stream ended before the response";
    RequestError::unknown(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
}
