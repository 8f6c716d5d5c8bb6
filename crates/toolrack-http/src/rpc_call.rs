//! One request and its answer, in an exchange of its own.
//!
//! **Invariant:** whatever an exchange brings, only its own request fails of it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::{Instant, sleep};
use toolrack_transport::{
    Backoff, Dialect, Frame, FrameError, LineError, Lost, Outgoing, Patience, RawJson,
    TransportError, elements, write_request,
};

use crate::request_headers::{HTTP_SESSION_ID, RequestHeaders, parse_session_id};
use crate::request_sender::ScratchBuffer;
use crate::response::{BodyError, HttpResponse};
use crate::response_headers::BodyKind;
use crate::session::Flavor;
use crate::sse::{SseEvent, SseParser};
use crate::status_mapping::{error_from_response, mentions_session, missing_message};
use crate::transport::{Inner, MAX_ERROR_BODY_BYTES, MessageContext};

pub(crate) const INITIALIZE: &str = "initialize";

/// What one message turned out to be for the request that waits.
pub(crate) enum Matched {
    /// Its answer.
    Response(Result<RawJson, LineError>),
    /// Something else, which has wait where it belongs.
    Other,
}

impl Inner {
    /// Sends a request and gives its answer, if that comes on the exchange itself.
    pub(crate) async fn exchange_request(
        self: &Arc<Self>,
        request: &Outgoing<'_>,
        id: u64,
        context: &MessageContext<'_>,
    ) -> Result<RawJson, LineError> {
        match self.dialect() {
            Dialect::Stateless(version) => self.send_stateless(request, id, version, context).await,
            Dialect::Greeting if request.method == INITIALIZE => {
                Box::pin(self.initialize(request, id, context)).await
            }
            Dialect::Greeting | Dialect::Session(_) => {
                self.send_in_session(request, id, context).await
            }
        }
    }

    async fn send_stateless(
        self: &Arc<Self>,
        request: &Outgoing<'_>,
        id: u64,
        version: &'static str,
        context: &MessageContext<'_>,
    ) -> Result<RawJson, LineError> {
        let mut headers = RequestHeaders::for_stateless(version, request.method, context.name);
        headers.add_param_headers(request.params);
        let body = encode_request(request, id)?;
        let mut response = self.post(context, &self.sender.url, &headers, &body).await?;
        if request.patience == Patience::endless() {
            // Nothing else would end the wait for a server that is wait without a word.
            response.idle = Some(self.stream_idle);
        }
        let unwanted = response.headers.get(&HTTP_SESSION_ID).and_then(parse_session_id);
        let outcome = self.read_response(&mut response, id, None).await;
        // A server of the era before may have begun a session before it said no.
        if let (Err(_), Some(unwanted)) = (&outcome, unwanted) {
            let inner = Arc::clone(self);
            self.tasks
                .spawn(async move { inner.delete_session(unwanted, Dialect::Greeting).await });
        }
        outcome
    }

    async fn send_in_session(
        self: &Arc<Self>,
        request: &Outgoing<'_>,
        id: u64,
        context: &MessageContext<'_>,
    ) -> Result<RawJson, LineError> {
        let body = encode_request(request, id)?;
        let mut has_renewed = false;
        loop {
            let state = self.ready_session().await?;
            let headers = self.session_headers(&state);
            if let Flavor::Sse2024 { endpoint, stream_closed } = &state.flavor {
                let mut response = self.post(context, endpoint, &headers, &body).await?;
                return self.wait_for_sse_response(&mut response, id, stream_closed).await;
            }
            let mut response = self.post(context, &self.sender.url, &headers, &body).await?;
            let is_suspicious =
                headers.has_session_id() && matches!(response.status.as_u16(), 400 | 404);
            let refused =
                if is_suspicious { expired_session_error(&mut response).await } else { None };
            let Some(refused) = refused else {
                return self.read_response(&mut response, id, Some(&ResumeHeaders(&headers))).await;
            };
            // The server did not know whom it was for, so it did nothing.
            context.sent.clear();
            self.renew(state.epoch);
            if has_renewed {
                tracing::debug!(error = %refused, "a new session is unknown too");
                return Err(LineError::not_sent(TransportError::SessionLost));
            }
            has_renewed = true;
        }
    }

    /// The answer that a response holds.
    pub(crate) async fn read_response(
        self: &Arc<Self>,
        response: &mut HttpResponse,
        id: u64,
        resume: Option<&ResumeHeaders<'_>>,
    ) -> Result<RawJson, LineError> {
        if !response.status.is_success() {
            let body = match response.peeked_body.take() {
                Some(said) => said,
                None => response.read_prefix(MAX_ERROR_BODY_BYTES).await,
            };
            return Err(error_from_response(response.status, &body));
        }
        match response.kind() {
            BodyKind::EventStream => self.read_sse_response(response, id, resume).await,
            BodyKind::Json => {
                let at_hand =
                    response.buffered_body().filter(|body| body.len() <= self.max_message_bytes);
                if let Some(answer) = at_hand.and_then(|body| self.parse_buffered_body(body, id)) {
                    response.consume_buffered_body();
                    return Ok(answer);
                }
                let body = response.read_all(self.max_message_bytes).await;
                let body = body.map_err(|fault| self.body_error(fault))?;
                self.find_response(&body, id).unwrap_or_else(|| Err(empty(response, &body)))
            }
            BodyKind::Other => {
                let body = response.read_prefix(MAX_ERROR_BODY_BYTES).await;
                Err(empty(response, &body))
            }
        }
    }

    /// The answer in a body that has come with its head. Whatever is not the plain case is left to others.
    fn parse_buffered_body(&self, body: &[u8], id: u64) -> Option<RawJson> {
        let Ok(Frame::Success { id: its, result }) = Frame::parse(body.trim_ascii()) else {
            return None;
        };
        if its.as_ours() != Some(id) {
            return None;
        }
        self.inbound.tally().message();
        Some(RawJson::new(Bytes::copy_from_slice(result)))
    }

    /// The answer in a body that is one message, or several.
    fn find_response(&self, body: &Bytes, id: u64) -> Option<Result<RawJson, LineError>> {
        if let Some(messages) = elements(body) {
            let mut answer = None;
            for message in messages {
                if let Matched::Response(ours) = self.match_message(&body.slice_ref(message), id) {
                    answer.get_or_insert(ours);
                }
            }
            return answer;
        }
        match self.match_message(body, id) {
            Matched::Response(answer) => Some(answer),
            Matched::Other => None,
        }
    }

    /// Sorts one message: what is for the waiting request, and what is for others.
    pub(crate) fn match_message(&self, message: &Bytes, id: u64) -> Matched {
        let tally = self.inbound.tally();
        match Frame::parse(message.trim_ascii()) {
            Ok(Frame::Success { id: its, result }) if its.as_ours() == Some(id) => {
                tally.message();
                Matched::Response(Ok(RawJson::new(message.slice_ref(result))))
            }
            // An error without an id can only be for the request of this exchange.
            Ok(Frame::Failure { id: its, error })
                if its.as_ref().is_none_or(|its| its.as_ours() == Some(id)) =>
            {
                tally.message();
                Matched::Response(Err(LineError::answered(error)))
            }
            Err(FrameError::Shape { id: Some(its) }) if its.as_ours() == Some(id) => {
                let fault = FrameError::Shape { id: None };
                Matched::Response(Err(LineError::answered(TransportError::Parse(
                    fault.to_string(),
                ))))
            }
            _ => {
                self.inbound.accept_beside(id, message);
                Matched::Other
            }
        }
    }

    pub(crate) fn body_error(&self, fault: BodyError) -> LineError {
        match fault {
            BodyError::TooLarge => {
                self.inbound.tally().oversize();
                let limit_bytes = self.max_message_bytes;
                LineError::answered(TransportError::Oversize { limit_bytes })
            }
            BodyError::Io(error) => LineError::unknown(error),
        }
    }
}

/// The error_from_response, if it says that the session is wait.
async fn expired_session_error(response: &mut HttpResponse) -> Option<LineError> {
    let body = response.read_prefix(MAX_ERROR_BODY_BYTES).await;
    if response.status == StatusCode::NOT_FOUND || mentions_session(&body) {
        return Some(error_from_response(response.status, &body));
    }
    response.peeked_body = Some(body);
    None
}

/// The message as it goes out.
pub(crate) fn encode_request(request: &Outgoing<'_>, id: u64) -> Result<ScratchBuffer, LineError> {
    let mut body = ScratchBuffer::new();
    write_request(&mut body, id, request.method, request.params)
        .map_err(|fault| LineError::not_sent(TransportError::Serialize(fault)))?;
    Ok(body)
}

fn empty(response: &HttpResponse, body: &[u8]) -> LineError {
    LineError::answered(missing_message(response.status, response.content_type(), body))
}

// FOLDED sse_response.rs
// DOC Answers that come on a stream, and streams that break before the answer.
// DOC
// DOC **Invariant:** a stream is taken up again only with the slot where it broke off, never sooner than the
// DOC server wants, and no oftener than [`Backoff`] allows.

/// What a stream of a session needs to be taken up again: the headers of the session.
pub(crate) struct ResumeHeaders<'a>(pub(crate) &'a RequestHeaders<'static>);

impl Inner {
    /// Reads a stream until the answer comes.
    pub(crate) async fn read_sse_response(
        self: &Arc<Self>,
        response: &mut HttpResponse,
        id: u64,
        resume: Option<&ResumeHeaders<'_>>,
    ) -> Result<RawJson, LineError> {
        let mut parser = SseParser::new(self.max_message_bytes);
        let mut backoff = Backoff::default();
        loop {
            let ended = match self.read_events(response, &mut parser, id).await {
                Ok(answer) => {
                    response.release(&self.tasks);
                    return answer;
                }
                Err(ended) => ended,
            };
            response.abort();
            let (Some(resume), true) = (resume, parser.last_id().is_some()) else {
                return Err(ended);
            };
            tracing::debug!(error = %ended, "a stream broke and is taken up again");
            *response = Box::pin(self.reopen_stream(&mut parser, resume, &mut backoff)).await?;
        }
    }

    /// Reads until the answer (`Ok`) or the end of the stream (`Err`).
    async fn read_events(
        &self,
        response: &mut HttpResponse,
        parser: &mut SseParser,
        id: u64,
    ) -> Result<Result<RawJson, LineError>, LineError> {
        loop {
            let chunk = match response.next_chunk(self.max_message_bytes).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Err(stream_ended()),
                Err(fault @ BodyError::TooLarge) => return Ok(Err(self.body_error(fault))),
                Err(fault) => return Err(self.body_error(fault)),
            };
            let mut answer = None;
            parser.feed(&chunk, &mut |event| match self.match_event(&event, id) {
                Matched::Response(ours) => {
                    answer.get_or_insert(ours);
                }
                Matched::Other => {}
            });
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    fn match_event(&self, event: &SseEvent, id: u64) -> Matched {
        match event {
            SseEvent::Message(message) => self.match_message(message, id),
            SseEvent::Other(name, _) => {
                tracing::trace!(name, "an event of no use");
                Matched::Other
            }
            SseEvent::TooLarge(head) if Lost::identify(head, b"") == Lost::Unasked => {
                self.inbound.oversize(head, b"", self.max_message_bytes);
                Matched::Other
            }
            SseEvent::TooLarge(_) => Matched::Response(Err(self.body_error(BodyError::TooLarge))),
        }
    }

    /// Spec 2025-11-25, transports §Resumability: with a GET that names the last event, after the time the
    /// server asked for.
    async fn reopen_stream(
        &self,
        parser: &mut SseParser,
        resume: &ResumeHeaders<'_>,
        backoff: &mut Backoff,
    ) -> Result<HttpResponse, LineError> {
        loop {
            let wait = backoff.failed(Instant::now(), fastrand::f64());
            sleep(wait.max(parser.retry().unwrap_or_default())).await;
            let headers = resume.0.clone().with_last_event_id(parser.last_id());
            if !headers.has_last_event_id() {
                return Err(stream_ended());
            }
            match self.get(&headers).await {
                Ok(response)
                    if response.status.is_success() && response.kind() == BodyKind::EventStream =>
                {
                    parser.restart();
                    return Ok(response);
                }
                Ok(mut response) if is_retryable(response.status) => response.release(&self.tasks),
                Ok(mut response) => {
                    let refused = error_from_response(response.status, b"");
                    response.release(&self.tasks);
                    return Err(LineError::unknown(refused.error));
                }
                Err(error) if matches!(error.error, TransportError::Unauthorized(_)) => {
                    return Err(LineError::unknown(error.error));
                }
                Err(error) => tracing::debug!(%error, "a stream cannot be taken up yet"),
            }
        }
    }
}

fn is_retryable(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// A stream that ended without an answer: nobody can say what became of the request.
pub(crate) fn stream_ended() -> LineError {
    let reason = "the stream ended before the answer";
    LineError::unknown(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
}
