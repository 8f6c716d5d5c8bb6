//! Session: an open connection with a negotiated version, its requests, and its background task.
//!
//! The background task ([`SessionTask`]) answers server requests, fetches changed tools, extends the deadlines
//! of calls that wait for the user, and restores state in a new HTTP session.
//!
//! [`detect_result_type`] finds the result type without decoding. Spec 2026-07-28, basic §Result Types: every
//! result has a `resultType`; absent means complete, and an unknown one makes the response invalid.
//!
//! **Invariant:** the revision never changes; a modern session never becomes a legacy one.
//!
//! **Invariant:** no arm of the background task's loop blocks. The task ends when the transport has closed or
//! the client is dropped, and ends everything it started.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use memchr::memmem::Finder;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_mcp::{
    Era, Implementation, ListKind, LogLevel, Method, Request, RequestResult, ResultType, Revision,
    ServerCapabilities, Tool,
};
use toolrack_transport::{
    BoxFuture, CloseReason, JsonRpcError, OnCancel, OutgoingRequest, RawJson, RequestId,
    RequestTimeout, Transport, TransportKind,
};

use crate::client::CallOptions;
use crate::error::CallError;
use crate::event::Event;
use crate::incoming::IncomingRouter;
use crate::pagination::{ListCache, ListDebounce};
use crate::request_meta::{
    MetaTemplate, PerRequestMeta, RequestWithMeta, ToolParamHeaders, WantProgress,
};
use crate::server_requests::{ServerRequestHandler, ServerRequests};
use crate::subscriptions::Subscription;
use crate::timeouts::{Limits, Timeouts};

/// An open connection.
pub(crate) struct Session {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) incoming: Arc<IncomingRouter>,
    pub(crate) meta: MetaTemplate,
    pub(crate) request_handler: ServerRequestHandler,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) server: ServerInfo,
    pub(crate) list_cache: ListCache,
    /// Tool arguments to repeat in HTTP headers.
    pub(crate) param_headers: ToolParamHeaders,
    /// Whether any tool must be called as a task.
    pub(crate) has_task_tools: AtomicBool,
    /// The server listed tools without declaring them.
    pub(crate) has_undeclared_tools: AtomicBool,
    /// Requested log level. Modern requests repeat it.
    pub(crate) log_level: Mutex<Option<LogLevel>>,
    /// Subscription to list changes.
    pub(crate) list_subscription: Mutex<Option<Subscription>>,
    /// Resource subscriptions of a modern server, by URI.
    pub(crate) resource_subscriptions: Mutex<HashMap<String, Subscription>>,
    /// Resource subscriptions of a legacy server, to renew in a new HTTP session.
    pub(crate) legacy_subscriptions: Mutex<BTreeSet<String>>,
    /// All tasks of the session.
    pub(crate) tasks: TaskTracker,
    /// Pending `tasks/cancel` requests, which `close` waits for.
    pub(crate) task_cancellations: TaskTracker,
    /// Ends all tasks of the session.
    pub(crate) stop: CancellationToken,
}

/// The server's self-description from the handshake.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerInfo {
    pub(crate) implementation: Option<Implementation>,
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) instructions: Option<String>,
}

impl Session {
    pub(crate) fn revision(&self) -> Revision {
        self.request_handler.revision
    }

    pub(crate) fn era(&self) -> Era {
        self.revision().era()
    }

    /// Spec 2025-06-18, lifecycle §Operation: use only declared features. Earlier revisions only recommended
    /// that, and many old servers declare less than they have.
    pub(crate) fn require(
        &self,
        feature: &'static str,
        is_declared: impl FnOnce(&ServerCapabilities) -> bool,
    ) -> Result<(), CallError> {
        if is_declared(&self.server.capabilities) || self.revision() < Revision::R2025_06_18 {
            return Ok(());
        }
        Err(CallError::Unsupported { feature })
    }

    /// A server that listed tools has them, declared or not.
    pub(crate) fn require_tools(&self) -> Result<(), CallError> {
        self.require("tools", |has| {
            has.tools.is_some() || self.has_undeclared_tools.load(Ordering::Relaxed)
        })
    }

    /// Sends a request and returns its raw result of any type.
    pub(crate) async fn send<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
        progress: WantProgress<'_>,
    ) -> Result<RawJson, CallError> {
        if let (Some(on_progress), WantProgress::Yes) = (&options.on_progress, progress) {
            let receiver = self.incoming.progress.receiver(on_progress);
            let call = self.send(params, options, WantProgress::To(&receiver));
            // Boxed, so that the future of a call without progress stays small.
            return Box::pin(receiver.run_with(call)).await;
        }
        // Over stdio the table is always empty, and this is one atomic load.
        let param_headers = self.param_headers.for_tool(params.subject());
        let log_level = match progress {
            WantProgress::No => None,
            WantProgress::Yes | WantProgress::To(_) => options.log_level.or(*self.log_level.lock()),
        };
        let meta = PerRequestMeta {
            progress,
            log_level,
            on_id: None,
            param_headers: param_headers.as_deref(),
            forwarded_for: options.forwarded_for.as_deref(),
        };
        let request = OutgoingRequest {
            method: P::METHOD.as_str(),
            params: &RequestWithMeta { template: &self.meta, params, meta },
            timeout: self.timeout_for(options),
            on_cancel: OnCancel::Notify,
        };
        Ok(self.transport.request(request).await?)
    }

    /// Sends a request that must complete in one round, and decodes its result.
    pub(crate) async fn call<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
    ) -> Result<P::Result, CallError> {
        let raw = self.send(params, options, WantProgress::No).await?;
        let raw = self.require_complete(P::METHOD, raw)?;
        decode::<P>(&raw)
    }

    /// Spec 2026-07-28, basic §Result Types: any other type is invalid here.
    pub(crate) fn require_complete(
        &self,
        method: Method,
        raw: RawJson,
    ) -> Result<RawJson, CallError> {
        match self.result_type(&raw) {
            ResultType::Complete => Ok(raw),
            kind => Err(CallError::unexpected(method, format!("unexpected result type {kind:?}"))),
        }
    }

    /// The legacy era has one result type, even if a server writes `resultType`.
    pub(crate) fn result_type(&self, raw: &RawJson) -> ResultType {
        match self.era() {
            Era::Legacy => ResultType::Complete,
            Era::Modern => detect_result_type(raw.as_bytes()),
        }
    }

    /// Responds to a server request. A server that does not read loses the response.
    pub(crate) fn respond<T: Serialize>(&self, id: &RequestId, outcome: Result<T, JsonRpcError>) {
        respond(&*self.transport, id, outcome);
    }

    pub(crate) fn timeout_for(&self, options: &CallOptions) -> RequestTimeout {
        let answer = options.timeout.unwrap_or(self.timeouts.call);
        // An idle timeout above the default total raises the total, unless the call sets its own.
        let at_most = options.total_timeout.unwrap_or(self.timeouts.call_total.max(answer));
        RequestTimeout { idle: answer, total: at_most }
    }

    /// Stops the tasks and closes the transport; the future waits for the transport only.
    pub(crate) fn start_close(&self) -> BoxFuture<'_, CloseReason> {
        // Before the transport closes, so that subscriptions end quietly instead of being opened again.
        self.stop.cancel();
        self.tasks.close();
        self.transport.close()
    }

    /// Whether each request is an independent HTTP request: modern era over HTTP.
    pub(crate) fn is_stateless(&self) -> bool {
        self.era() == Era::Modern && self.transport.kind() == TransportKind::RequestResponse
    }
}

/// Decodes a result.
pub(crate) fn decode<P: Request>(raw: &RawJson) -> Result<P::Result, CallError> {
    P::Result::decode(raw.as_bytes()).map_err(|error| CallError::undecodable(P::METHOD, error))
}

/// Responds to a server request on `transport`.
pub(crate) fn respond<T: Serialize>(
    transport: &dyn Transport,
    id: &RequestId,
    outcome: Result<T, JsonRpcError>,
) {
    let written = outcome.and_then(|result| {
        // The server waits for a response, so an unserializable result becomes an error response.
        to_raw_value(&result).map_err(|error| JsonRpcError::new(-32603, error.to_string()))
    });
    let sent = transport.respond(id, written.as_deref());
    sent.unwrap_or_else(|error| tracing::debug!(%id, %error, "response not sent"));
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("server", &self.request_handler.server_name)
            .field("revision", &self.revision())
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// Interval for extending deadlines while the user or a model is busy.
const EXTEND_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the session ends.
pub(crate) async fn run_session_task(session: Arc<Session>) {
    let mut task = SessionTask {
        server_requests: ServerRequests::default(),
        debounce: ListDebounce::default(),
        fetching: JoinSet::new(),
        restoring: JoinSet::new(),
        changes_seen: session.incoming.changes(ListKind::Tools),
        renewals_seen: session.incoming.session_renewals.load(Ordering::Acquire),
        extend_at: None,
        session,
    };
    task.run().await;
    // These children are not in the session's tracker, so they must end before this task does:
    // `close` waits for the tracker only.
    task.server_requests.shutdown().await;
    task.fetching.shutdown().await;
    task.restoring.shutdown().await;
}

/// Background task of a session.
struct SessionTask {
    session: Arc<Session>,
    server_requests: ServerRequests,
    debounce: ListDebounce,
    fetching: JoinSet<Result<(), CallError>>,
    restoring: JoinSet<()>,
    changes_seen: u64,
    renewals_seen: u64,
    extend_at: Option<Instant>,
}

impl SessionTask {
    async fn run(&mut self) {
        loop {
            if self.session.incoming.events.close_reason().is_some() {
                return;
            }
            // Queue and counters are read before waiting. A message that arrives in between is not lost:
            // `notify_one` stores a permit, so `notified` returns at once.
            self.take_server_requests();
            self.take_renewals();
            self.take_changes();
            tokio::select! {
                biased;
                () = self.session.stop.cancelled() => return,
                () = self.session.incoming.wakeup.notified() => {}
                Some(finished) = self.server_requests.work.join_next_with_id(), if !self.server_requests.work.is_empty() => {
                    self.server_requests.finish(&self.session, finished);
                }
                Some(fetched) = self.fetching.join_next(), if !self.fetching.is_empty() => {
                    self.fetched(fetched);
                }
                Some(_done) = self.restoring.join_next(), if !self.restoring.is_empty() => {}
                () = wait_until(self.debounce.next_fetch()), if self.debounce.next_fetch().is_some() => self.fetch(),
                () = wait_until(self.extend_at), if self.extend_at.is_some() => {
                    self.session.transport.extend_deadline(None);
                    self.extend_at = Some(Instant::now() + EXTEND_INTERVAL);
                }
            }
        }
    }

    fn take_server_requests(&mut self) {
        while let Some(request) = self.session.incoming.next_request() {
            self.server_requests.handle(&self.session, request);
        }
        // The server waits for our user, so the call that waits for the server must not time out.
        self.extend_at = match (self.server_requests.n_user() > 0, self.extend_at) {
            (true, None) => Some(Instant::now()),
            (true, scheduled) => scheduled,
            (false, _) => None,
        };
    }

    /// A counter instead of a queue: any number of notifications is one change.
    fn take_changes(&mut self) {
        let changes = self.session.incoming.changes(ListKind::Tools);
        if changes != self.changes_seen {
            self.changes_seen = changes;
            if self.session.require_tools().is_ok() {
                self.debounce.on_changed(Instant::now());
            }
        }
    }

    /// One restore at a time: an older attempt cannot serve a newer session.
    fn take_renewals(&mut self) {
        let renewals = self.session.incoming.session_renewals.load(Ordering::Acquire);
        if renewals != self.renewals_seen {
            self.renewals_seen = renewals;
            // Not awaited: `join_next` in the loop reaps the aborted task.
            self.restoring.abort_all();
            let session = Arc::clone(&self.session);
            self.restoring.spawn(async move { session.restore().await });
        }
    }

    fn fetch(&mut self) {
        self.debounce.fetch_started(Instant::now());
        let session = Arc::clone(&self.session);
        // In a task of its own: a slow `tools/list` must not delay the answers to server requests.
        self.fetching.spawn(async move { session.fetch_list::<Tool>().await.map(drop) });
    }

    /// After a failure the old list stays, which is better than none.
    fn fetched(&mut self, outcome: Result<Result<(), CallError>, JoinError>) {
        self.debounce.fetch_finished(Instant::now());
        match outcome {
            // After the fetch, so that a listener that reads `tools()` on this event sees
            // the new list.
            Ok(Ok(())) => self.session.incoming.events.emit(Event::ToolsChanged),
            Ok(Err(error)) => tracing::warn!(%error, "cannot refresh tools"),
            Err(panic) => tracing::error!(%panic, "tool refresh panicked"),
        }
    }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""resultType""#));
/// The two usual positions. The quotes cannot be part of a longer string, because a quote inside a JSON
/// string is escaped.
const IN_FRONT: &[u8] = br#"{"resultType":"complete""#;
const AT_END: &[u8] = br#","resultType":"complete"}"#;

/// Finds the result type, usually from the first or last bytes alone.
pub(crate) fn detect_result_type(raw: &[u8]) -> ResultType {
    let decided = raw.starts_with(IN_FRONT) || raw.ends_with(AT_END) || KEY.find(raw).is_none();
    if decided { ResultType::Complete } else { ResultType::read(raw) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::run_session_task;

    fn size_of_future<F: Future>(_: impl Fn(Arc<Session>) -> F) -> usize {
        size_of::<F>()
    }

    /// Hundreds of servers may be connected and idle. The server's self-description comes on top.
    #[test]
    fn idle_session_is_small() {
        let sizes =
            [size_of::<Session>(), size_of::<IncomingRouter>(), size_of_future(run_session_task)];
        assert!(sizes.iter().sum::<usize>() < 3 << 10, "{sizes:?} bytes");
    }
}

#[cfg(test)]
mod result_type_tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, expected: ResultType) {
        assert_eq!(detect_result_type(raw.as_bytes()), expected, "{raw}");
    }

    #[test]
    fn result_type_is_found_anywhere() {
        check("{}", ResultType::Complete);
        check(r#"{"content":[]}"#, ResultType::Complete);
        check(r#"{"resultType":"complete"}"#, ResultType::Complete);
        check(r#"{"resultType":"complete","content":[]}"#, ResultType::Complete);
        check(r#"{"content":[],"resultType":"complete"}"#, ResultType::Complete);
        check(r#"{ "resultType" : "complete" }"#, ResultType::Complete);
        check(r#"{"a":1,"resultType":"input_required","b":2}"#, ResultType::InputRequired);
        check(r#"{"resultType":"task","taskId":"1"}"#, ResultType::Task);
        check(r#"{"resultType":"completely"}"#, ResultType::Other);
        check(r#"{"resultType":7}"#, ResultType::Other);
    }

    #[test]
    fn nested_result_type_is_ignored() {
        check(r#"{"a":{"resultType":"task"}}"#, ResultType::Complete);
        check(r#"{"a":"\"resultType\":\"task\""}"#, ResultType::Complete);
        check(
            r#"{"a":"x,\"resultType\":\"complete\"}","resultType":"input_required"}"#,
            ResultType::InputRequired,
        );
    }
}
