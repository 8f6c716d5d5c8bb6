//! HTTP+SSE transport of 2024-11-05: messages are posted to one URL, responses arrive on an SSE stream from
//! another.
//!
//! **Invariant:** nothing is sent to an endpoint of another origin.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolrack_transport::{
    IncomingHandler as _, RawJson, RequestError, TransportError, sanitize_line,
};

use crate::endpoint_url::EndpointUrl;
use crate::request_headers::RequestHeaders;
use crate::request_sender::MessageContext;
use crate::response::{BodyKind, HttpResponse};
use crate::rpc_call::stream_ended;
use crate::session::{Flavor, SessionFailure, SseStream, session_failure};
use crate::sse::{SseEvent, SseParser};
use crate::status_mapping::{error_from_response, missing_message};
use crate::transport::{Inner, MAX_ERROR_BODY_BYTES};

/// How long a server may take to send the `endpoint` event.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

impl Inner {
    /// Starts an HTTP+SSE session.
    pub(crate) async fn initialize_sse(
        self: &Arc<Self>,
        body: &[u8],
        id: u64,
        context: &MessageContext<'_>,
    ) -> Result<RawJson, RequestError> {
        let stream = self.open_sse().await?;
        // Before the POST: the response may arrive on the stream before the POST returns.
        self.session.open(Flavor::Sse2024(stream.clone()));
        self.post_to_sse(context, &stream, &RequestHeaders::default(), body, id).await
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
            let body = response.read_prefix(MAX_ERROR_BODY_BYTES).await;
            return Err(RequestError::not_sent(error_from_response(response.status, &body).error));
        }
        if response.kind() != BodyKind::EventStream {
            return Err(RequestError::not_sent(missing_message(response.status, "no stream", b"")));
        }
        let mut parser = SseParser::new(self.max_message_bytes);
        let mut events = Vec::new();
        let endpoint = loop {
            let chunk = response.next_chunk(self.max_message_bytes).await;
            let chunk = chunk.map_err(|error| self.body_error(error))?.ok_or_else(stream_ended)?;
            parser.feed(&chunk, &mut |event| events.push(event));
            let found = events.iter().position(is_endpoint);
            if let Some(SseEvent::Other(_, reference)) = found.map(|index| events.remove(index)) {
                break self.parse_endpoint(&reference)?;
            }
            // Nothing was sent before the `endpoint` event, so an earlier event answers no request.
            events.clear();
        };
        let closed = CancellationToken::new();
        let stream = SseStream { endpoint: Arc::new(endpoint), closed: closed.clone() };
        // Events of the same chunk that came with the endpoint.
        for event in &events {
            self.route_event(event);
        }
        let inner = Arc::clone(self);
        self.tasks.spawn_until_stopped(async move {
            inner.serve_stream(response, parser, closed).await;
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
        context: &MessageContext<'_>,
        stream: &SseStream,
        headers: &RequestHeaders<'_>,
        body: &[u8],
        id: u64,
    ) -> Result<RawJson, RequestError> {
        let mut response = self.post(context, &stream.endpoint, headers, body).await?;
        if !response.status.is_success() {
            let body = response.read_prefix(MAX_ERROR_BODY_BYTES).await;
            return Err(error_from_response(response.status, &body));
        }
        // Some servers respond in the POST itself.
        if response.kind() == BodyKind::Json
            && let Ok(body) = response.read_all(self.max_message_bytes).await
            && let Some(outcome) = self.match_message(&body, id)
        {
            return outcome;
        }
        response.release(&self.tasks);
        stream.closed.cancelled().await;
        Err(stream_ended())
    }

    fn route_event(&self, event: &SseEvent) {
        match event {
            SseEvent::Message(message) => {
                self.router.route_owned(message);
            }
            SseEvent::TooLarge(head) => {
                self.router.route_oversize(head, b"", self.max_message_bytes);
            }
            SseEvent::Other(name, _) => tracing::trace!(name, "ignoring an SSE event"),
        }
    }

    /// Reads a long-lived stream to its end. Any byte resets the idle timeout, SSE comments included.
    pub(crate) async fn read_until_closed(
        &self,
        response: &mut HttpResponse,
        parser: &mut SseParser,
    ) {
        response.idle = Some(self.stream_idle);
        loop {
            match response.next_chunk(self.max_message_bytes).await {
                Ok(Some(chunk)) => parser.feed(&chunk, &mut |event| self.route_event(&event)),
                Ok(None) => return,
                Err(error) => {
                    let error = self.body_error(error);
                    tracing::debug!(error = ?error.error, "a server stream failed");
                    return;
                }
            }
        }
    }

    /// Reads a stream and starts a new session when it ends.
    async fn serve_stream(
        self: &Arc<Self>,
        mut response: HttpResponse,
        mut parser: SseParser,
        closed: CancellationToken,
    ) {
        tokio::select! {
            () = self.read_until_closed(&mut response, &mut parser) => {}
            // `Session::open` cancels the token of the session that it replaces.
            () = closed.cancelled() => return,
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
        // Before the new session is started, which may take long.
        drop(response);
        if !is_current || !self.session.try_start_renewal(state.epoch) {
            return;
        }
        let inner = Arc::clone(self);
        self.tasks.spawn_until_stopped(async move { reconnect(&inner).await });
    }
}

/// Starts a new session, retrying until it succeeds or a login is needed.
async fn reconnect(inner: &Arc<Inner>) {
    loop {
        inner.session.wait_for_retry().await;
        match inner.reinitialize().await {
            Ok(()) => return inner.handler.on_session_renewed(),
            Err(error) => {
                tracing::debug!(%error, "could not reopen the SSE stream");
                let failure = session_failure(error.error);
                let is_hopeless = matches!(failure, SessionFailure::Unauthorized(_));
                // Gives up the claim. The task takes it again below, unless a request has taken it
                // in between.
                inner.session.fail(failure);
                // Retrying does not help until the user logs in; the next request starts another attempt.
                if is_hopeless || !inner.session.try_start_renewal(inner.session.state().epoch) {
                    return;
                }
            }
        }
    }
}

fn is_endpoint(event: &SseEvent) -> bool {
    matches!(event, SseEvent::Other(name, _) if name == "endpoint")
}
