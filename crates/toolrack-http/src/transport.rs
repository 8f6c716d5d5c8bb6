//! HTTP transport: sends every JSON-RPC message as an HTTP request of its own.
//!
//! The caller's task drives its own HTTP exchange. Tasks of the transport serve only work without a caller:
//! server streams, session renewal, cancellations and session deletion.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use http::{HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_platform::certificates_from_pem;
use toolrack_transport::{
    BoxFuture, CANCELLED, CancelledParams, CloseReason, Deadline, IncomingHandler, JsonRpcError,
    MessageRouter, OnCancel, OutgoingRequest, Params, PendingResponse, ProtocolMode, RawJson,
    Redactor, RequestError, RequestId, Response, ResponseFuture, Transport, TransportError,
    TransportKind, TransportStats, await_response, write_notification, write_request,
    write_response,
};

use crate::connect::Connector;
use crate::connection_pool::ConnectionPool;
use crate::endpoint_url::{EndpointUrl, redact_url};
use crate::http1::{OutputBuffer, SentFlag};
use crate::options::{HttpOptions, HttpServerDef};
use crate::request_headers::RequestHeaders;
use crate::request_sender::{HttpRequest, OutgoingMessage, RequestSender};
use crate::response::HttpResponse;
use crate::session::{Flavor, Session, SessionState};
use crate::status_mapping::{error_from_response, is_server_absent};

/// How long `notifications/initialized` waits for the notification stream to open. Some servers send the
/// response head only with the first event, so waiting longer would stall every connect to them.
const STREAM_OPEN_WAIT: Duration = Duration::from_secs(1);

pub(crate) const INITIALIZED: &str = "notifications/initialized";

/// Responses to server requests in flight at once. When the limit is reached, the server is not reading them.
const MAX_RESPONSES_IN_FLIGHT: usize = 64;
/// Limit for closing: the DELETE of the session and the end of all tasks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a server may take over a message without a waiting caller.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(5);

/// Open transport to a server over HTTP.
///
/// Dropping it closes it without waiting; `close` closes it and waits. It also closes when the runtime
/// that opened it shuts down.
pub struct HttpTransport {
    inner: Arc<Inner>,
}

impl HttpTransport {
    /// Prepares a transport; sends nothing yet. Unsolicited messages go to `handler`. Fails if the definition
    /// or the options are invalid; the reason names the part.
    ///
    /// # Cancel safety
    /// Has no effect until it completes.
    #[expect(clippy::unused_async, reason = "needs a runtime, which an async function shows")]
    pub async fn open(
        definition: &HttpServerDef,
        options: HttpOptions,
        handler: Arc<dyn IncomingHandler>,
    ) -> Result<Self, TransportError> {
        let invalid = |reason: String| {
            let error = io::Error::new(io::ErrorKind::InvalidInput, reason);
            TransportError::Unreachable { address: redact_url(&definition.url), error }
        };
        let url = EndpointUrl::parse(&definition.url).map_err(invalid)?;
        let headers = definition.checked_headers(&options).map_err(invalid)?;
        certificates_from_pem(&options.extra_roots)
            .map_err(|error| invalid(format!("invalid extra root certificates: {error}")))?;
        let proxy = options.proxy.proxy_for(&url.origin).map_err(invalid)?;
        if url.is_exposed() {
            tracing::warn!(%url, "requests to this server are not encrypted");
        }
        let (tasks, connection_tasks) = TaskGroup::pair();
        let connector = Connector {
            origin: url.origin.clone(),
            proxy,
            extra_roots: options.extra_roots,
            connect_timeout: options.connect_timeout,
            tls: OnceCell::new(),
        };
        let pool = Arc::new(ConnectionPool::new(connector, connection_tasks));
        let handler = Arc::new(HandlerGuard {
            target: Mutex::new(Some(handler)),
            mode: Mutex::new(ProtocolMode::Initialize),
        });
        let inner = Arc::new(Inner {
            sender: RequestSender::new(pool, url, options.credentials, headers),
            router: MessageRouter::new(Arc::clone(&handler) as _, Redactor::default()),
            handler,
            tasks,
            session: Session::new(),
            max_message_bytes: options.max_message_bytes,
            stream_idle: options.stream_idle,
            has_notification_stream: AtomicBool::new(false),
            stream_answered: CancellationToken::new(),
            stream_is_late: AtomicBool::new(false),
            response_slots: Arc::new(Semaphore::new(MAX_RESPONSES_IN_FLIGHT)),
        });
        let guard = RuntimeGuard(Arc::clone(&inner));
        inner.tasks.spawn(async move { guard.0.tasks.stop.cancelled().await });
        Ok(Self { inner })
    }
}

impl Transport for HttpTransport {
    fn request<'a>(&'a self, request: OutgoingRequest<'a>) -> ResponseFuture<'a> {
        let inner = &self.inner;
        ResponseFuture::Boxed(Box::pin(async move {
            let deadline = request.timeout.start();
            let mut pending = inner.register(deadline)?;
            let id = pending.id();
            let message = OutgoingMessage {
                method: request.method,
                name: request.params.target_name(),
                id,
                body: encode(|out| write_request(out, id, request.method, request.params))?,
                deadline: Some(Instant::from_std(deadline.expires_at)),
                sent: SentFlag::default(),
            };
            let sent = &message.sent;
            let mut cancel_guard = CancelGuard { inner, id, on_cancel: request.on_cancel, sent };
            let outcome = tokio::select! {
                // Biased: a response that arrived on another stream wins over the end of this exchange.
                biased;
                response = await_response(&mut pending, deadline) => match response {
                    Ok(Ok(outcome)) => outcome.map_err(RequestError::answered),
                    Ok(Err(reason)) => Err(sent.failure(reason.to_error())),
                    // `cancel_guard` sends the cancellation when it is dropped.
                    Err(elapsed) => return Err(sent.failure(TransportError::timed_out(elapsed))),
                },
                outcome = inner.exchange_request(&request, &message) => outcome,
            };
            // The server has answered, or the exchange has ended: nothing is left to cancel.
            cancel_guard.on_cancel = OnCancel::Silent;
            outcome
        }))
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async move {
            let inner = &self.inner;
            inner.check_open()?;
            let is_stateless = matches!(inner.mode(), ProtocolMode::Stateless(_));
            if is_stateless && method == CANCELLED {
                // Spec 2026-07-28, cancellation: over HTTP, closing the response stream is the cancellation.
                return Ok(());
            }
            let body = encode(|out| write_notification(out, method, params))?;
            if method == INITIALIZED {
                inner.session.handshake.lock().initialized = body.clone();
            }
            inner.post_notification(method, params.target_name(), body).await?;
            let is_streamable =
                matches!(inner.session.state().flavor, Flavor::StreamableHttp { .. });
            if method == INITIALIZED && !is_stateless && is_streamable {
                inner.session.record_success();
                inner.start_notification_stream();
                // Many servers discard notifications until the stream is open. If it opens after this wait, the
                // handler is told to refresh its lists (`stream_is_late`).
                if timeout(STREAM_OPEN_WAIT, inner.stream_answered.cancelled()).await.is_err() {
                    inner.stream_is_late.store(true, Ordering::Release);
                }
            }
            Ok(())
        })
    }

    fn respond(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), RequestError> {
        let inner = &self.inner;
        inner.check_open()?;
        let body = encode(|out| write_response(out, id, outcome))?;
        // Rejected, not queued: a server that reads no responses must not fill our memory.
        let Ok(slot) = Arc::clone(&inner.response_slots).try_acquire_owned() else {
            let buffered_bytes = MAX_RESPONSES_IN_FLIGHT.saturating_mul(body.0.len());
            return Err(RequestError::not_sent(TransportError::QueueFull { buffered_bytes }));
        };
        inner.post_in_background("answer", body, Some(slot));
        Ok(())
    }

    fn extend_deadline(&self, id: Option<u64>) {
        self.inner.router.extend_deadline(id);
    }

    fn set_protocol_mode(&self, mode: ProtocolMode) {
        *self.inner.handler.mode.lock() = mode;
    }

    fn kind(&self) -> TransportKind {
        TransportKind::RequestResponse
    }

    fn stats(&self) -> TransportStats {
        self.inner.router.counters().stats()
    }

    fn close(&self) -> BoxFuture<'_, CloseReason> {
        self.inner.close();
        Box::pin(async {
            if timeout(CLOSE_TIMEOUT, self.inner.tasks.wait()).await.is_err() {
                tracing::warn!("transport tasks did not stop in time");
            }
            self.inner.router.pending.close_reason().unwrap_or(CloseReason::Closed)
        })
    }
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.inner.close();
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport")
            .field("url", &self.inner.sender.url)
            .field("session", &self.inner.session.state())
            .field("router", &self.inner.router)
            .finish_non_exhaustive()
    }
}

/// State shared by the transport and its tasks.
pub(crate) struct Inner {
    pub(crate) sender: RequestSender,
    pub(crate) router: MessageRouter,
    pub(crate) handler: Arc<HandlerGuard>,
    pub(crate) tasks: TaskGroup,
    pub(crate) session: Session,
    pub(crate) max_message_bytes: usize,
    pub(crate) stream_idle: Duration,
    pub(crate) has_notification_stream: AtomicBool,
    /// Cancelled when the first GET for the notification stream got a response, or never will.
    pub(crate) stream_answered: CancellationToken,
    /// The wait for the notification stream timed out, so notifications may have been lost before it opened.
    pub(crate) stream_is_late: AtomicBool,
    /// Permits for responses to server requests in flight.
    pub(crate) response_slots: Arc<Semaphore>,
}

impl Inner {
    pub(crate) fn mode(&self) -> ProtocolMode {
        *self.handler.mode.lock()
    }

    fn check_open(&self) -> Result<(), RequestError> {
        match self.router.pending.close_reason() {
            Some(reason) => Err(RequestError::not_sent(reason.to_error())),
            None => Ok(()),
        }
    }

    pub(crate) fn register(
        &self,
        deadline: Deadline,
    ) -> Result<PendingResponse<'_, Response, CloseReason>, RequestError> {
        let registered = self.router.pending.register(deadline);
        registered.map_err(|reason| RequestError::not_sent(reason.to_error()))
    }

    pub(crate) async fn post(
        &self,
        message: &OutgoingMessage<'_>,
        url: &EndpointUrl,
        headers: &RequestHeaders<'_>,
    ) -> Result<HttpResponse, RequestError> {
        self.send(&self.sender.request(&Method::POST, url, headers, message)).await
    }

    /// Opens an SSE stream.
    pub(crate) async fn get(
        &self,
        headers: &RequestHeaders<'_>,
    ) -> Result<HttpResponse, RequestError> {
        let message = &OutgoingMessage { method: "GET", ..OutgoingMessage::default() };
        self.send(&self.sender.request(&Method::GET, &self.sender.url, headers, message)).await
    }

    /// Sends a request and tells the handler if the server could not be reached.
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, RequestError> {
        self.sender.send(request).await.inspect_err(|failure| {
            if is_server_absent(&failure.error) {
                self.handler.on_unreachable(&failure.error);
            }
        })
    }

    /// Posts a message that has no JSON-RPC response and waits briefly for the HTTP response.
    pub(crate) async fn post_notification(
        self: &Arc<Self>,
        method: &str,
        name: Option<&str>,
        body: OutputBuffer,
    ) -> Result<(), RequestError> {
        let message = OutgoingMessage { method, name, body, ..OutgoingMessage::default() };
        let posted = async {
            match self.mode() {
                ProtocolMode::Stateless(version) => {
                    let headers = RequestHeaders::for_stateless(version, method, name);
                    self.post(&message, &self.sender.url, &headers).await
                }
                ProtocolMode::Initialize | ProtocolMode::Session(_) => {
                    self.post_in_session(&message, &self.ready_session().await?).await
                }
            }
        };
        let Ok(response) = timeout(BACKGROUND_TIMEOUT, posted).await else {
            // Some servers hold such a request open. The message was written, so it counts as delivered.
            tracing::debug!(method, "the server accepted a message without responding");
            let timed_out = TransportError::timed_out(BACKGROUND_TIMEOUT);
            return if message.sent.get() {
                Ok(())
            } else {
                Err(RequestError::not_sent(timed_out))
            };
        };
        let mut response = response?;
        if response.status.is_success() {
            response.release(&self.tasks);
            return Ok(());
        }
        let error = timeout(BACKGROUND_TIMEOUT, response.read_error()).await;
        Err(error.unwrap_or_else(|_elapsed| error_from_response(response.status, b"")))
    }

    pub(crate) async fn post_in_session(
        &self,
        message: &OutgoingMessage<'_>,
        state: &SessionState,
    ) -> Result<HttpResponse, RequestError> {
        let url = match &state.flavor {
            Flavor::StreamableHttp { .. } => &self.sender.url,
            Flavor::Sse2024(stream) => &stream.endpoint,
        };
        self.post(message, url, &self.session_headers(state)).await
    }

    pub(crate) fn session_headers(&self, state: &SessionState) -> RequestHeaders<'static> {
        let http_session_id = match &state.flavor {
            Flavor::StreamableHttp { http_session_id } => http_session_id.clone(),
            Flavor::Sse2024(_) => None,
        };
        RequestHeaders::for_session(self.mode(), http_session_id)
    }

    /// Deletes, in the background, a session that no version was negotiated for.
    pub(crate) fn discard_session(self: &Arc<Self>, http_session_id: HeaderValue) {
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            inner.delete_session(http_session_id, ProtocolMode::Initialize).await;
        });
    }

    /// Deletes a session on the server, best effort.
    pub(crate) async fn delete_session(&self, http_session_id: HeaderValue, mode: ProtocolMode) {
        let headers = RequestHeaders::for_session(mode, Some(http_session_id));
        let message = &OutgoingMessage { method: "DELETE", ..OutgoingMessage::default() };
        let request = self.sender.request(&Method::DELETE, &self.sender.url, &headers, message);
        // Half, so that the DELETE ends within `CLOSE_TIMEOUT`.
        match timeout(BACKGROUND_TIMEOUT / 2, self.sender.send(&request)).await {
            // Not `tasks`, which has already stopped if the transport is closing.
            Ok(Ok(mut response)) => response.release(&self.sender.pool.tasks),
            Ok(Err(error)) => tracing::debug!(%error, "could not delete the session on the server"),
            Err(_elapsed) => tracing::debug!("deleting the session on the server timed out"),
        }
    }

    /// Closes the transport: ends all requests, deletes the session on the server, then closes the connections.
    fn close(self: &Arc<Self>) {
        if self.tasks.stop.is_cancelled() {
            return;
        }
        // First, so that callers get `Closed` and not the error of a stream that is torn down.
        self.router.close(&CloseReason::Closed);
        self.tasks.stop.cancel();
        // The connections stay open until the DELETE has been sent.
        let Some(http_session_id) = self.session.take_session_id() else {
            return self.sender.pool.close();
        };
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            inner.delete_session(http_session_id, inner.mode()).await;
            inner.sender.pool.close();
        });
    }

    /// Posts a message without a waiting caller.
    fn post_in_background(
        self: &Arc<Self>,
        method: &'static str,
        body: OutputBuffer,
        slot: Option<tokio::sync::OwnedSemaphorePermit>,
    ) {
        let inner = Arc::clone(self);
        self.tasks.spawn_until_stopped(async move {
            let _slot = slot;
            if let Err(error) = inner.post_notification(method, None, body).await {
                tracing::debug!(%error, method, "could not send a background message");
            }
        });
    }
}

/// Drop guard held by a task: dropped when the transport closes, or when the runtime shuts down. In the second
/// case no task is left to complete the pending requests or to delete the session, so the guard closes the transport.
struct RuntimeGuard(Arc<Inner>);

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        // After `close`, which ends the task that holds the guard, nothing is left to do.
        if !self.0.tasks.stop.is_cancelled() {
            self.0.router.close(&CloseReason::runtime_dropped());
            self.0.tasks.stop.cancel();
            self.0.sender.pool.close();
        }
    }
}

/// Drop guard that sends `notifications/cancelled` for a request whose caller stopped waiting.
struct CancelGuard<'a> {
    inner: &'a Arc<Inner>,
    id: u64,
    on_cancel: OnCancel,
    sent: &'a SentFlag,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        // Spec 2025-11-25, cancellation: a client must not cancel `initialize`, which is sent
        // before the session.
        let is_in_session = matches!(self.inner.mode(), ProtocolMode::Session(_));
        // Stateless mode has no such message: dropping the response closes its stream, which is the cancellation.
        let is_wanted = self.on_cancel == OnCancel::Notify && is_in_session && self.sent.get();
        if !is_wanted || self.inner.tasks.stop.is_cancelled() {
            return;
        }
        match encode(|out| write_notification(out, CANCELLED, &CancelledParams(self.id))) {
            Ok(body) => self.inner.post_in_background(CANCELLED, body, None),
            Err(error) => tracing::trace!(%error, "could not write a cancellation"),
        }
    }
}

pub(crate) fn encode(
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<OutputBuffer, RequestError> {
    let mut out = OutputBuffer::take();
    write(&mut out.0).map_err(|error| RequestError::not_sent(TransportError::Serialize(error)))?;
    Ok(out)
}

/// Task tracker and stop token. Spawns from inside and outside of the runtime.
#[derive(Debug, Clone)]
pub(crate) struct TaskGroup {
    tracker: TaskTracker,
    handle: Handle,
    /// Cancelled when the transport closes. Every task selects on it.
    pub(crate) stop: CancellationToken,
}

impl TaskGroup {
    /// Two groups on the current runtime with one tracker: for the transport, and for its connections, which
    /// stop later.
    pub(crate) fn pair() -> (Self, Self) {
        let first = Self {
            tracker: TaskTracker::new(),
            handle: Handle::current(),
            stop: CancellationToken::new(),
        };
        let second = Self { stop: CancellationToken::new(), ..first.clone() };
        (first, second)
    }

    /// Spawns a task that is dropped when the group stops.
    pub(crate) fn spawn_until_stopped(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Spawns a task, which must end soon after `stop`.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Not `tokio::spawn`, because `Drop` may run on a thread outside of the runtime.
        self.tracker.spawn_on(task, &self.handle);
    }

    /// Waits until every task of both groups has ended.
    pub(crate) async fn wait(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl<F> hyper::rt::Executor<F> for TaskGroup
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn_until_stopped(async move {
            let _output = task.await;
        });
    }
}

/// Serializes calls into the handler, and makes none after `on_close`.
pub(crate) struct HandlerGuard {
    /// Locked during a call, so that no call overlaps or follows `on_close`, which takes it.
    target: Mutex<Option<Arc<dyn IncomingHandler>>>,
    /// Protocol mode of the transport, which decides whether the server may send requests.
    mode: Mutex<ProtocolMode>,
}

impl HandlerGuard {
    /// Spec 2026-07-28, transports: servers must not send requests, and clients do not answer them.
    fn allows_request(&self, method: &str) -> bool {
        let is_forbidden = matches!(*self.mode.lock(), ProtocolMode::Stateless(_));
        if is_forbidden {
            tracing::debug!(method, "dropped a request from the server");
        }
        !is_forbidden
    }

    fn call(&self, notify: impl FnOnce(&dyn IncomingHandler)) {
        if let Some(handler) = &*self.target.lock() {
            notify(&**handler);
        }
    }
}

impl IncomingHandler for HandlerGuard {
    fn on_request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        if self.allows_request(method) {
            self.call(|handler| handler.on_request(id, method, params));
        }
    }

    fn on_related_request(&self, about: u64, id: RequestId, method: &str, params: Option<RawJson>) {
        if self.allows_request(method) {
            self.call(|handler| handler.on_related_request(about, id, method, params));
        }
    }

    fn on_notification(&self, method: &str, params: Option<RawJson>) {
        self.call(|handler| handler.on_notification(method, params));
    }

    fn on_unmatched_response(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        self.call(|handler| handler.on_unmatched_response(id, outcome));
    }

    fn on_unreadable(&self, sample: &str) {
        self.call(|handler| handler.on_unreadable(sample));
    }

    fn on_session_renewed(&self) {
        self.call(|handler| handler.on_session_renewed());
    }

    fn on_unreachable(&self, reason: &TransportError) {
        self.call(|handler| handler.on_unreachable(reason));
    }

    fn on_close(&self, reason: &CloseReason) {
        // Dropped after the lock, which its own drop may need.
        let handler;
        let mut target = self.target.lock();
        handler = target.take();
        if let Some(handler) = &handler {
            handler.on_close(reason);
        }
    }
}
