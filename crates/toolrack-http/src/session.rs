//! MCP session over HTTP: its state, `initialize`, and renewal after the server has lost it.
//!
//! **Invariant:** however many requests find the session expired, one of them starts a new one and the others
//! wait for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_mcp::ErrorCode;
use toolrack_transport::{
    AuthError, Backoff, BoxFuture, IncomingHandler as _, Params, ProtocolMode, RawJson,
    RequestError, RequestTimeout, TransportError, await_response, write_request,
};

use crate::endpoint_url::EndpointUrl;
use crate::http1::OutputBuffer;
use crate::request_headers::RequestHeaders;
use crate::request_sender::OutgoingMessage;
use crate::rpc_call::INITIALIZE;
use crate::status_mapping::error_from_response;
use crate::transport::{INITIALIZED, Inner, encode};

/// Extra failures counted for a session that was open and then lost: it costs an `initialize` and a
/// notification, not one request.
pub(crate) const SHORT_SESSION_PENALTY: u32 = 3;
/// Shortest delay between two attempts, even if a caller is waiting.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Limit for one renewal.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);

/// State of the session.
#[derive(Debug, Clone)]
pub(crate) struct SessionState {
    /// Counts sessions, so that an event of an old session has no effect on a new one.
    pub(crate) epoch: u64,
    pub(crate) phase: Phase,
    /// Counts failed attempts. A waiting caller sees only the latest state, which may be that of the next attempt.
    n_failures: u64,
    /// Why the last attempt failed, if a login is needed. Stays during the next attempt, for the callers that waited
    /// for the last one.
    login_error: Option<AuthError>,
    pub(crate) flavor: Flavor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// A task is starting a new session.
    Renewing,
    /// The last attempt failed. The next request starts another one.
    Lost,
}

/// How often a task tries to start a new session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempts {
    /// Once, for a request that waits.
    One,
    /// Until it succeeds or a login is needed.
    UntilOpen,
}

/// HTTP transport of the specification that the server speaks.
#[derive(Clone)]
pub(crate) enum Flavor {
    /// One URL for everything, since 2025-03-26.
    StreamableHttp { http_session_id: Option<HeaderValue> },
    /// HTTP+SSE of 2024-11-05: POST to one URL, responses on a separate SSE stream.
    Sse2024(SseStream),
}

/// Open SSE stream of an HTTP+SSE server.
#[derive(Clone)]
pub(crate) struct SseStream {
    /// URL to POST to.
    pub(crate) endpoint: Arc<EndpointUrl>,
    pub(crate) closed: CancellationToken,
}

/// Session with the data needed to start it again.
pub(crate) struct Session {
    pub(crate) state: watch::Sender<SessionState>,
    pub(crate) handshake: Mutex<HandshakeRecord>,
    /// Notified when a caller waits for the next attempt.
    retry_now: Notify,
}

/// Messages of the first handshake, repeated for a new session.
#[derive(Default)]
pub(crate) struct HandshakeRecord {
    /// Parameters of `initialize`.
    initialize_params: Option<Box<RawValue>>,
    /// The whole `notifications/initialized` message.
    pub(crate) initialized: OutputBuffer,
    backoff: Backoff,
    /// Whether a session was open since the last attempt.
    was_open: bool,
}

/// The only field of the `initialize` result that the transport needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult<'a> {
    #[serde(borrow)]
    protocol_version: std::borrow::Cow<'a, str>,
}

impl SessionState {
    /// The open session, or the error of the last attempt to start one. Another request may have started the next
    /// attempt already.
    fn require_open(self) -> Result<Self, RequestError> {
        if self.phase == Phase::Open {
            return Ok(self);
        }
        let login_error = self.login_error.map(TransportError::Unauthorized);
        Err(RequestError::not_sent(login_error.unwrap_or(TransportError::SessionLost)))
    }
}

impl Session {
    pub(crate) fn new() -> Self {
        let flavor = Flavor::StreamableHttp { http_session_id: None };
        let phase = Phase::Open;
        let state = SessionState { epoch: 0, phase, n_failures: 0, login_error: None, flavor };
        let state = watch::Sender::new(state);
        Self { state, handshake: Mutex::default(), retry_now: Notify::new() }
    }

    pub(crate) fn state(&self) -> SessionState {
        self.state.borrow().clone()
    }

    /// Records that a session has started.
    pub(crate) fn open(&self, flavor: Flavor) {
        self.handshake.lock().was_open = true;
        self.state.send_modify(|state| {
            if let Flavor::Sse2024(stream) = &state.flavor {
                // Requests that still wait on the old stream fail now instead of timing out.
                stream.closed.cancel();
            }
            state.epoch += 1;
            state.phase = Phase::Open;
            state.login_error = None;
            state.flavor = flavor;
        });
    }

    /// Takes the session id, so that only one task deletes the session.
    pub(crate) fn take_session_id(&self) -> Option<HeaderValue> {
        let mut taken = None;
        self.state.send_if_modified(|state| {
            if let Flavor::StreamableHttp { http_session_id } = &mut state.flavor {
                taken = http_session_id.take();
            }
            // No receiver has to wake up: epoch and phase are unchanged.
            false
        });
        taken
    }

    /// Claims the renewal. `false` if another task has it, or the session is no longer that of `epoch`.
    fn try_start_renewal(&self, epoch: u64) -> bool {
        // Check and claim are one step under the lock of the channel, so two tasks cannot both win.
        self.state.send_if_modified(|state| {
            let is_ours = state.phase != Phase::Renewing && state.epoch == epoch;
            if is_ours {
                state.phase = Phase::Renewing;
            }
            is_ours
        })
    }

    fn fail(&self, login_error: Option<AuthError>) {
        self.state.send_modify(|state| {
            state.phase = Phase::Lost;
            state.n_failures += 1;
            state.login_error = login_error;
        });
    }

    /// Delay before the next attempt. The first attempt after a long time has none.
    fn next_delay(&self) -> Duration {
        let mut handshake = self.handshake.lock();
        let now = Instant::now();
        let wait = handshake.backoff.record_failure(now, fastrand::f64());
        // Read before the penalty, which would delay the first attempt after a long session.
        let is_first = handshake.backoff.n_failures() == 1;
        if std::mem::take(&mut handshake.was_open) {
            add_failures(&mut handshake.backoff, SHORT_SESSION_PENALTY);
        }
        if is_first { Duration::ZERO } else { wait }
    }

    /// Waits for the next attempt. A waiting caller shortens the delay to [`MIN_RETRY_DELAY`].
    async fn wait_for_retry(&self) {
        let wait = self.next_delay();
        sleep(wait.min(MIN_RETRY_DELAY)).await;
        tokio::select! {
            () = sleep(wait.saturating_sub(MIN_RETRY_DELAY)) => {}
            () = self.retry_now.notified() => {}
        }
    }

    pub(crate) fn record_success(&self) {
        self.handshake.lock().backoff.record_success(Instant::now());
    }
}

impl Inner {
    /// Returns the open session, waiting for a renewal if needed. The caller's timeout bounds the wait.
    pub(crate) async fn ready_session(self: &Arc<Self>) -> Result<SessionState, RequestError> {
        let state = self.session.state();
        match state.phase {
            Phase::Open => return Ok(state),
            // `notify_one` keeps its permit if the renewal is not waiting yet, so the wake-up is not lost.
            Phase::Renewing => self.session.retry_now.notify_one(),
            Phase::Lost => self.renew(state.epoch, Attempts::One),
        }
        // `wait_for` checks the current value first, so a renewal that ends before this line is
        // seen.
        let mut changes = self.session.state.subscribe();
        let is_settled =
            |now: &SessionState| now.phase != Phase::Renewing || now.n_failures != state.n_failures;
        let settled = changes.wait_for(is_settled).await;
        let state = settled.map_err(|_closed| RequestError::not_sent(TransportError::Shutdown))?;
        state.clone().require_open()
    }

    /// Starts a renewal of the session of `epoch`, unless one is under way.
    pub(crate) fn renew(self: &Arc<Self>, epoch: u64, attempts: Attempts) {
        if self.session.try_start_renewal(epoch) {
            let inner = Arc::clone(self);
            self.tasks.spawn_until_stopped(async move { inner.start_session(attempts).await });
        }
    }

    /// Starts a new session in place of the lost one. The caller has claimed the renewal.
    async fn start_session(self: &Arc<Self>, attempts: Attempts) {
        loop {
            match attempts {
                Attempts::One => sleep(self.session.next_delay()).await,
                Attempts::UntilOpen => self.session.wait_for_retry().await,
            }
            let error = match self.reinitialize().await {
                Ok(()) => return self.handler.on_session_renewed(),
                Err(error) => error,
            };
            tracing::debug!(%error, "could not start a new session");
            let login_error = match error.error {
                TransportError::Unauthorized(error) => Some(error),
                _ => None,
            };
            // Retrying does not help until the user logs in; the next request starts another attempt.
            let is_last = login_error.is_some() || attempts == Attempts::One;
            // Gives up the claim. The task takes it again, unless a request has taken it in between.
            self.session.fail(login_error);
            if is_last || !self.session.try_start_renewal(self.session.state().epoch) {
                return;
            }
        }
    }

    /// Sends `initialize` and detects whether the server speaks Streamable HTTP or HTTP+SSE.
    pub(crate) async fn initialize(
        self: &Arc<Self>,
        params: &dyn Params,
        message: &OutgoingMessage<'_>,
    ) -> Result<RawJson, RequestError> {
        let params = encode(|out| params.write(message.id, out))?;
        self.session.handshake.lock().initialize_params = serde_json::from_slice(&params.0).ok();
        // A second `initialize` replaces the session. The server would keep the old one until it
        // expires.
        if let Some(previous_id) = self.session.take_session_id() {
            self.discard_session(previous_id);
        }
        // By convention `/sse` is the stream URL of an HTTP+SSE server. Trying GET first saves a failing POST.
        let is_sse_url = self.sender.url.path.path().ends_with("/sse");
        if is_sse_url {
            match self.initialize_sse(message).await {
                // Without a GET stream, the URL may be Streamable HTTP after all.
                Err(RequestError {
                    error: TransportError::Status { code: 404 | 405, .. }, ..
                }) => {}
                outcome => return outcome,
            }
        }
        let headers = RequestHeaders::default();
        let mut response = self.post(message, &self.sender.url, &headers).await?;
        let http_session_id = response.session_id();
        // Spec 2025-11-25, transports §Backwards Compatibility: HTTP+SSE servers have no POST at this URL.
        if is_sse_url || !matches!(response.status.as_u16(), 400 | 404 | 405) {
            let outcome = self.read_response(&mut response, message.id, None).await;
            if outcome.is_ok() {
                self.session.open(Flavor::StreamableHttp { http_session_id });
            }
            return outcome;
        }
        let rejected = response.read_error().await;
        response.release(&self.tasks);
        // A stateless server also rejects `initialize` with 400, and it has no SSE stream to try.
        if let TransportError::JsonRpc(error) = &rejected.error
            && ErrorCode(error.code).is_modern_only()
        {
            return Err(rejected);
        }
        // The server rejected the POST, so it is safe to send `initialize` again.
        message.sent.clear();
        match self.initialize_sse(message).await {
            Ok(outcome) => Ok(outcome),
            // The error of the first attempt is the more telling one.
            Err(error) => {
                tracing::debug!(%error, "the server has no HTTP+SSE stream either");
                Err(rejected)
            }
        }
    }

    /// Repeats the handshake. Boxed, because the stream that it opens calls it again when it ends.
    fn reinitialize(self: &Arc<Self>) -> BoxFuture<'_, Result<(), RequestError>> {
        let limit = || RequestError::not_sent(TransportError::timed_out(INITIALIZE_TIMEOUT));
        let initialized = timeout(INITIALIZE_TIMEOUT, self.reinitialize_now());
        Box::pin(async move { initialized.await.map_err(|_late| limit())? })
    }

    async fn reinitialize_now(self: &Arc<Self>) -> Result<(), RequestError> {
        let ProtocolMode::Session(version) = self.mode() else {
            return Err(RequestError::not_sent(TransportError::SessionLost));
        };
        let params = self.session.handshake.lock().initialize_params.clone();
        let deadline = RequestTimeout::fixed(INITIALIZE_TIMEOUT).start();
        let mut pending = self.register(deadline)?;
        let id = pending.id();
        let body = encode(|out| write_request(out, id, INITIALIZE, &params))?;
        let method = INITIALIZE;
        let message = OutgoingMessage { method, id, body, ..OutgoingMessage::default() };
        let headers = RequestHeaders::default();
        let (flavor, result) = match self.session.state().flavor {
            Flavor::StreamableHttp { .. } => {
                // Spec 2025-11-25, transports §Session Management: without the old session id.
                let mut response = self.post(&message, &self.sender.url, &headers).await?;
                let http_session_id = response.session_id();
                let result = self.read_response(&mut response, id, None).await?;
                (Flavor::StreamableHttp { http_session_id }, result)
            }
            Flavor::Sse2024(_) => {
                let stream = self.open_sse().await?;
                let result = tokio::select! {
                    biased;
                    response = await_response(&mut pending, deadline) => match response {
                        Ok(Ok(outcome)) => outcome.map_err(RequestError::answered)?,
                        Ok(Err(reason)) => return Err(RequestError::unknown(reason.to_error())),
                        Err(elapsed) => return Err(RequestError::unknown(TransportError::timed_out(elapsed))),
                    },
                    outcome = self.post_to_sse(&message, &stream, &headers) => outcome?,
                };
                (Flavor::Sse2024(stream), result)
            }
        };
        // A session in another protocol version is rejected: its client has negotiated features for `version`.
        let decoded = result.decode::<InitializeResult<'_>>();
        if !decoded.is_ok_and(|decoded| decoded.protocol_version == version) {
            // Otherwise the rejected session would stay on the server until it expires.
            if let Flavor::StreamableHttp { http_session_id: Some(id) } = flavor {
                self.delete_session(id, ProtocolMode::Initialize).await;
            }
            return Err(RequestError::not_sent(TransportError::SessionLost));
        }
        // Not published yet: waiting requests must not overtake `notifications/initialized`.
        let state = SessionState { flavor, ..self.session.state() };
        let body = self.session.handshake.lock().initialized.clone();
        let message = OutgoingMessage { method: INITIALIZED, body, ..OutgoingMessage::default() };
        let mut response = self.post_in_session(&message, &state).await?;
        if !response.status.is_success() {
            return Err(error_from_response(response.status, b""));
        }
        response.release(&self.tasks);
        self.session.open(state.flavor);
        self.session.record_success();
        Ok(())
    }
}

/// Counts extra failures, for attempts that cost more than one request.
pub(crate) fn add_failures(backoff: &mut Backoff, n_more: u32) {
    for _ in 0..n_more {
        backoff.record_failure(Instant::now(), 0.0);
    }
}

/// A session id is a secret.
impl fmt::Debug for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flavor::StreamableHttp { http_session_id } => {
                write!(f, "StreamableHttp(has session id: {})", http_session_id.is_some())
            }
            Flavor::Sse2024(stream) => write!(f, "Sse2024({})", stream.endpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_error_is_kept_during_the_next_attempt() {
        let session = Session::new();
        let outcome =
            || session.state().require_open().map(drop).map_err(|error| error.to_string());
        assert_eq!(outcome(), Ok(()));
        assert!(session.try_start_renewal(0));
        session.fail(Some(AuthError::LoginRequired { reason: "no token".to_owned() }));
        assert_eq!(outcome(), Err("login required: no token".to_owned()));
        // Another request starts the next attempt before the waiting callers run.
        assert!(session.try_start_renewal(0));
        assert_eq!(outcome(), Err("login required: no token".to_owned()));
        session.fail(None);
        assert_eq!(outcome(), Err("the server ended the session".to_owned()));
    }
}
