//! Connecting: handshake, list subscription, first tool list; cleanup after a failed attempt.
//!
//! **Invariant:** when an error is returned, the transport has closed and nothing is left running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_mcp::{Era, Method, Revision, SubscriptionFilter, Tool};
use toolrack_transport::{
    CloseReason, Delivery, ExitStatus, ProcessExit, TransportError, TransportStats, deadline_after,
};

use crate::builder::ClientBuilder;
use crate::client::McpClient;
use crate::connector::Connector;
use crate::error::{CallError, ConnectError, NotMcp};
use crate::handshake::{Handshake, HandshakeError, Negotiated, OpenTransport, noise_error};
use crate::pagination::ListCache;
use crate::request_meta::ToolParamHeaders;
use crate::server_requests::ServerRequestHandler;
use crate::session::{Session, run_session_task};
use crate::subscriptions::Subscription;

/// How long a server that declares no tools may take to list some.
const UNDECLARED_LIST_TIMEOUT: Duration = Duration::from_secs(1);

impl ClientBuilder {
    /// Opens a transport, negotiates a version, and lists the tools. [`Timeouts::startup`](crate::Timeouts::startup) limits the whole
    /// attempt; after a failure, closing the transport comes on top.
    ///
    /// # Cancel safety
    /// Dropping the future drops the transport and ends the server process, if one was started.
    #[tracing::instrument(name = "mcp.connect", skip_all, fields(server = &*self.name))]
    pub async fn connect_with(
        self,
        connector: Arc<dyn Connector>,
    ) -> Result<McpClient, ConnectError> {
        let waited = self.timeouts.startup_for(connector.launcher());
        let deadline = deadline_after(Instant::now(), waited);
        let timed_out =
            || HandshakeError::from(CallError::TimedOut { waited, delivery: Delivery::Unknown });
        let attempt =
            FailedAttempt { connector: &*connector, last_method: Method::Discover, waited };
        let open = match timeout_at(deadline, OpenTransport::new(&self, &*connector)).await {
            Ok(open) => open?,
            // The transport did not open, so there is nothing to close.
            Err(_elapsed) => return Err(attempt.timed_out(TransportStats::default())),
        };
        let mut handshake = Handshake::new(&self, &*connector, deadline, open);
        // `run` borrows the handshake, so a timeout leaves the open transport here to be closed.
        let outcome =
            timeout_at(deadline, handshake.run()).await.unwrap_or_else(|_elapsed| Err(timed_out()));
        let Handshake { open, last_method, .. } = handshake;
        let negotiated = match outcome {
            Ok(negotiated) => negotiated,
            Err(error) => {
                let attempt = FailedAttempt { last_method, ..attempt };
                let stats = open.transport.stats();
                return Err(attempt.connect_error(error, stats, open.transport.close().await));
            }
        };
        self.report_step(ConnectStep::ListingTools);
        let client = McpClient { session: start_session(self, negotiated, open) };
        let listing = timeout_at(deadline, subscribe_and_list(&client.session));
        let error = match listing.await {
            Ok(Ok(())) => return Ok(client),
            Ok(Err(error)) => error.into(),
            Err(_elapsed) => timed_out(),
        };
        let attempt = FailedAttempt { last_method: Method::ListTools, ..attempt };
        let stats = client.transport_stats();
        Err(attempt.connect_error(error, stats, client.close().await))
    }
}

/// Creates the session and spawns its background task.
fn start_session(
    options: ClientBuilder,
    negotiated: Negotiated,
    open: OpenTransport,
) -> Arc<Session> {
    let Negotiated { revision, server, meta } = negotiated;
    let session = Arc::new(Session {
        transport: open.transport,
        incoming: open.incoming,
        meta,
        request_handler: ServerRequestHandler {
            server_name: options.name,
            handler: options.handler,
            capabilities: options.capabilities,
            revision,
            timeout: options.timeouts.server_request,
        },
        timeouts: options.timeouts,
        limits: options.limits,
        server,
        list_cache: ListCache::default(),
        param_headers: ToolParamHeaders::default(),
        has_task_tools: AtomicBool::new(false),
        has_undeclared_tools: AtomicBool::new(false),
        log_level: Mutex::default(),
        list_subscription: Mutex::default(),
        resource_subscriptions: Mutex::default(),
        legacy_subscriptions: Mutex::default(),
        tasks: TaskTracker::new(),
        task_cancellations: TaskTracker::new(),
        stop: CancellationToken::new(),
    });
    session.tasks.spawn(run_session_task(Arc::clone(&session)));
    session
}

/// Subscribes before listing, so that no change is missed between the first list and the subscription.
async fn subscribe_and_list(session: &Arc<Session>) -> Result<(), CallError> {
    let filter = list_filter(session);
    if filter != SubscriptionFilter::default() {
        let subscription = Subscription::open(session, filter, None);
        subscription.established(session.transport.kind()).await;
        *session.list_subscription.lock() = Some(subscription);
    }
    if session.server.capabilities.tools.is_some() {
        return session.fetch_list::<Tool>().await.map(drop);
    }
    // Some servers have tools without declaring them, so every server is asked once. Before 2025-06-18 that was
    // allowed; later ones may leave the request without a response.
    let is_allowed = session.revision() < Revision::R2025_06_18;
    let limit = if is_allowed { session.timeouts.call } else { UNDECLARED_LIST_TIMEOUT };
    match timeout(limit, session.fetch_list::<Tool>()).await {
        Ok(Ok(list)) => {
            session.has_undeclared_tools.store(!list.items.is_empty(), Ordering::Relaxed);
            Ok(())
        }
        // Anything but a broken connection means "no tools".
        Ok(Err(error @ CallError::Transport(_))) => Err(error),
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// The list changes to subscribe to: those the modern server declares.
fn list_filter(session: &Session) -> SubscriptionFilter {
    if session.era() == Era::Legacy {
        return SubscriptionFilter::default();
    }
    let capabilities = &session.server.capabilities;
    SubscriptionFilter {
        tools_list_changed: capabilities.tools.is_some_and(|tools| tools.list_changed),
        prompts_list_changed: capabilities.prompts.is_some_and(|prompts| prompts.list_changed),
        resources_list_changed: capabilities
            .resources
            .is_some_and(|resources| resources.list_changed),
        resource_subscriptions: Vec::new(),
    }
}

/// Context for the error of a failed attempt.
struct FailedAttempt<'a> {
    connector: &'a dyn Connector,
    last_method: Method,
    waited: Duration,
}

impl FailedAttempt<'_> {
    /// Builds the error, after the transport has closed: only then is the exit status known.
    fn connect_error(
        &self,
        error: HandshakeError,
        stats: TransportStats,
        reason: CloseReason,
    ) -> ConnectError {
        let error = match error {
            HandshakeError::Final(error) => return error,
            HandshakeError::Request(error) => error,
        };
        match error {
            CallError::Refused(source) => {
                ConnectError::Refused { method: self.last_method, source }
            }
            CallError::Undecodable { method, source } => {
                ConnectError::Undecodable { method, source }
            }
            CallError::TimedOut { .. } => {
                noise_error(&stats, 1).unwrap_or_else(|| self.timed_out(stats))
            }
            // A failed write is often only the symptom of an exited process, so the exit
            // status comes first.
            CallError::Transport(failure) => match (failure.error, reason) {
                (TransportError::ProcessExited(exit), _) | (_, CloseReason::Exited(exit)) => {
                    exit_error(exit, stats)
                }
                (TransportError::Unauthorized(error), _) => ConnectError::NeedsAuth(error),
                (error, _) => noise_error(&stats, 1).unwrap_or(ConnectError::Transport(error)),
            },
            other => ConnectError::Transport(TransportError::Parse(other.to_string())),
        }
    }

    fn timed_out(&self, stats: TransportStats) -> ConnectError {
        // A server that wrote any output is installed, so the launcher hint would be wrong.
        let is_silent = stats.messages == 0 && stats.unreadable == 0;
        let launcher = self.connector.launcher().filter(|_| is_silent);
        ConnectError::TimedOut {
            method: self.last_method,
            waited: self.waited,
            still_installing: launcher.map(str::to_owned),
            stats: Box::new(stats),
        }
    }
}

/// A program that wrote text, no message, and exited with 0 is not an MCP server.
fn exit_error(exit: ProcessExit, stats: TransportStats) -> ConnectError {
    match stats.sample {
        Some(sample) if exit.status == ExitStatus::Code(0) && stats.messages == 0 => {
            ConnectError::NotMcp(NotMcp::Noise { sample })
        }
        sample => ConnectError::Exited { exit, sample },
    }
}

/// A step of connecting, for progress display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectStep {
    /// Opening the transport: starting a process or connecting to a URL.
    Opening,
    /// Negotiating the protocol version.
    Handshake,
    /// Fetching the tools.
    ListingTools,
}

/// Connect progress callback. Called while connecting, so it must not block.
pub type OnConnectStep = Arc<dyn Fn(ConnectStep) + Send + Sync>;
