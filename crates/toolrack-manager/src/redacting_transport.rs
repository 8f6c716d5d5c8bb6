//! Transport wrapper that redacts secrets from everything the server sends.
//!
//! A server knows the secrets that it was given, and may repeat them in results, errors, lists and messages. They are
//! removed here, below every layer that could display or store them.
//!
//! **Invariant:** a secret that the redactor knows when a message arrives does not leave this module.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use toolrack_transport::{
    AuthError, BoxFuture, CloseReason, IncomingHandler, OutgoingRequest, ProtocolMode, Redactor,
    RequestError, ResponseFuture, Transport, TransportError, TransportKind, TransportStats,
};
use toolrack_transport::{JsonRpcError, Params, RawJson, RequestId};

use crate::error::Failure;
use crate::events::ManagerEvent;
use crate::manager::Shared;
use crate::rate_limit::RateLimiter;

/// Wraps a transport, if there are secrets or may be. Stdio without secrets is not wrapped; over HTTP, the redactor
/// may learn tokens later.
pub(crate) fn redacting(transport: Arc<dyn Transport>, redactor: &Redactor) -> Arc<dyn Transport> {
    if transport.kind() == TransportKind::Stream && redactor.is_empty() {
        return transport;
    }
    Arc::new(RedactingTransport { transport, redactor: redactor.clone() })
}

/// Redacts JSON. Without a match nothing is copied.
fn redact_json(raw: RawJson, redactor: &Redactor) -> RawJson {
    RawJson::new(redactor.redact_json(raw.into_bytes()))
}

/// Redacts text of the server in an error.
fn redact_error(error: TransportError, redactor: &Redactor) -> TransportError {
    let redact = |text: String| redactor.redact(&text).into_owned();
    match error {
        TransportError::JsonRpc(error) => {
            TransportError::JsonRpc(redact_rpc_error(error, redactor))
        }
        TransportError::Parse(reason) => TransportError::Parse(redact(reason)),
        TransportError::Status { code, text } => {
            TransportError::Status { code, text: redact(text) }
        }
        TransportError::Unauthorized(AuthError::Rejected { reason }) => {
            TransportError::Unauthorized(AuthError::Rejected { reason: redact(reason) })
        }
        other => other,
    }
}

fn redact_rpc_error(error: JsonRpcError, redactor: &Redactor) -> JsonRpcError {
    let data = error.data.map(|data| {
        let redacted = redactor.redact_json(Bytes::from(data.to_string()));
        serde_json::from_slice(&redacted).unwrap_or(data)
    });
    let message = redactor.redact(&error.message).into_owned();
    JsonRpcError { message, data, ..error }
}

#[derive(Debug)]
struct RedactingTransport {
    transport: Arc<dyn Transport>,
    redactor: Redactor,
}

impl Transport for RedactingTransport {
    fn request<'a>(&'a self, request: OutgoingRequest<'a>) -> ResponseFuture<'a> {
        let response = self.transport.request(request);
        ResponseFuture::Boxed(Box::pin(async move {
            match response.await {
                Ok(raw) => Ok(redact_json(raw, &self.redactor)),
                Err(failure) => Err(RequestError {
                    error: redact_error(failure.error, &self.redactor),
                    delivery: failure.delivery,
                }),
            }
        }))
    }

    // Outgoing messages are not redacted.
    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        self.transport.notify(method, params)
    }

    fn respond(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), RequestError> {
        self.transport.respond(id, outcome)
    }

    fn extend_deadline(&self, id: Option<u64>) {
        self.transport.extend_deadline(id);
    }

    fn set_protocol_mode(&self, mode: ProtocolMode) {
        self.transport.set_protocol_mode(mode);
    }

    fn kind(&self) -> TransportKind {
        self.transport.kind()
    }

    fn stats(&self) -> TransportStats {
        self.transport.stats()
    }

    fn close(&self) -> BoxFuture<'_, CloseReason> {
        self.transport.close()
    }
}

/// Handler wrapper that redacts incoming messages, emits stderr as events, and reports that the server is
/// unreachable.
pub(crate) struct RedactingHandler {
    pub(crate) inner: Arc<dyn IncomingHandler>,
    pub(crate) server: Arc<str>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) unreachable: mpsc::Sender<Failure>,
    pub(crate) stderr_limiter: RateLimiter,
}

impl RedactingHandler {
    fn redactor(&self) -> &Redactor {
        &self.shared.settings.stdio.redactor
    }

    fn redact(&self, params: Option<RawJson>) -> Option<RawJson> {
        params.map(|params| redact_json(params, self.redactor()))
    }

    fn emit_stderr(&self, line: &str) {
        let server = &self.server;
        let event = || ManagerEvent::Stderr { server: Arc::clone(server), line: line.into() };
        self.shared.events.emit(event);
    }

    fn emit_dropped(&self, n_lines: u64) {
        if n_lines > 0 {
            self.emit_stderr(&format!("({n_lines} lines omitted)"));
        }
    }
}

impl IncomingHandler for RedactingHandler {
    fn on_request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        self.inner.on_request(id, method, self.redact(params));
    }

    fn on_related_request(&self, about: u64, id: RequestId, method: &str, params: Option<RawJson>) {
        self.inner.on_related_request(about, id, method, self.redact(params));
    }

    fn on_notification(&self, method: &str, params: Option<RawJson>) {
        self.inner.on_notification(method, self.redact(params));
    }

    fn on_unmatched_response(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        let outcome = match outcome {
            Ok(result) => Ok(redact_json(result, self.redactor())),
            Err(error) => Err(redact_rpc_error(error, self.redactor())),
        };
        self.inner.on_unmatched_response(id, outcome);
    }

    fn on_unreadable(&self, sample: &str) {
        self.inner.on_unreadable(sample);
    }

    // The transport has redacted the line already.
    fn on_stderr(&self, line: &str) {
        if let Some(n_dropped) = self.stderr_limiter.admit(Instant::now()) {
            self.emit_dropped(n_dropped);
            self.emit_stderr(line);
        }
        self.inner.on_stderr(line);
    }

    fn on_session_renewed(&self) {
        self.inner.on_session_renewed();
    }

    fn on_unreachable(&self, reason: &TransportError) {
        // Full if another request has reported it: one report per launch is enough.
        let sent = self.unreachable.try_send(Failure::from_unreachable(reason));
        let reported = |_error| tracing::trace!(server = &*self.server, "already reported as lost");
        sent.unwrap_or_else(reported);
        self.inner.on_unreachable(reason);
    }

    fn on_close(&self, close_reason: &CloseReason) {
        self.emit_dropped(self.stderr_limiter.take_dropped());
        self.inner.on_close(close_reason);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor() -> Redactor {
        let redactor = Redactor::default();
        redactor.add_secret("key", "s3cr3t");
        redactor
    }

    #[test]
    fn errors_are_redacted_and_keep_their_variant() {
        let check = |error: TransportError, clean: TransportError| {
            assert_eq!(redact_error(error, &redactor()).to_string(), clean.to_string());
        };
        let error = JsonRpcError {
            data: Some(json!({"s3cr3t": ["s3cr3t"]})),
            ..JsonRpcError::new(-7, "no s3cr3t")
        };
        let redacted = redact_rpc_error(error.clone(), &redactor());
        assert_eq!(redacted.code, -7);
        assert_eq!(redacted.data, Some(json!({"[secret key]": ["[secret key]"]})));
        assert_eq!(redacted.message, "no [secret key]");
        check(TransportError::JsonRpc(error), TransportError::JsonRpc(redacted));
        let parse = |reason: &str| TransportError::Parse(reason.to_owned());
        check(parse("s3cr3t"), parse("[secret key]"));
        let status = |text: &str| TransportError::Status { code: 500, text: text.to_owned() };
        check(status("s3cr3t"), status("[secret key]"));
        check(TransportError::Timeout(5), TransportError::Timeout(5));
    }
}
