//! Connecting: handshake, list subscription, first tool list; cleanup after a failed attempt.
//!
//! **Invariant:** when an error is returned, the transport has closed and nothing is left running.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_mcp::{Era, Method, Revision, SubscriptionFilter, Tool};
use toolrack_transport::{CloseReason, ExitStatus, ProcessExit, TransportError, TransportStats};

use crate::builder::{ClientBuilder, ListChanges};
use crate::client::McpClient;
use crate::connector::Connector;
use crate::error::{CallError, ConnectError, NotMcp};
use crate::handshake::{Handshake, HandshakeError, Negotiated, OpenTransport, noise_error};
use crate::pagination::ListCache;
use crate::request_meta::ToolParamHeaders;
use crate::server_requests::ServerRequestHandler;
use crate::session::{Session, run_session_task};
use crate::subscriptions::Subscription;
use crate::timeouts::deadline_after;

#[tracing::instrument(name = "mcp.connect", skip_all, fields(server = &*options.name))]
pub(crate) async fn connect(
    options: ClientBuilder,
    connector: Arc<dyn Connector>,
) -> Result<McpClient, ConnectError> {
    let waited = options.timeouts.startup_for(connector.launcher());
    let deadline = deadline_after(waited);
    let mut handshake = Handshake::new(&options, &*connector, deadline);
    // `run` borrows the handshake, so a timeout leaves the open transport here to be closed.
    let outcome =
        timeout_at(deadline, handshake.run()).await.unwrap_or(Err(HandshakeError::TimedOut));
    let (last_method, open) = (handshake.last_method, handshake.open);
    let attempt = FailedAttempt { connector: &*connector, last_method, waited };
    let (negotiated, open) = match (outcome, open) {
        (Ok(negotiated), Some(open)) => (negotiated, open),
        (Err(error), Some(OpenTransport { transport, .. })) => {
            let stats = transport.stats();
            return Err(attempt.connect_error(error, stats, transport.close().await));
        }
        // The transport did not open, so there is nothing to close.
        (outcome, None) => {
            let error = outcome.err().unwrap_or(HandshakeError::TimedOut);
            return Err(attempt.connect_error(
                error,
                TransportStats::default(),
                CloseReason::Closed,
            ));
        }
    };
    let list_changes = options.list_changes;
    options.report_step(ConnectStep::ListingTools);
    let client = McpClient { session: start_session(options, negotiated, open) };
    let Err(error) = subscribe_and_list(&client, list_changes, deadline).await else {
        return Ok(client);
    };
    let attempt = FailedAttempt { last_method: Method::ListTools, ..attempt };
    let stats = client.transport_stats();
    Err(attempt.connect_error(error, stats, client.close().await))
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
async fn subscribe_and_list(
    client: &McpClient,
    list_changes: ListChanges,
    deadline: Instant,
) -> Result<(), HandshakeError> {
    let session = &client.session;
    let work = async {
        let filter = list_filter(session, list_changes);
        if filter != SubscriptionFilter::default() {
            let mut subscription = Subscription::open(session, filter);
            subscription.established(session.transport.kind()).await;
            *session.list_subscription.lock() = Some(subscription);
        }
        fetch_first_tools(session).await
    };
    match timeout_at(deadline, work).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(list_error(error)),
        Err(_elapsed) => Err(HandshakeError::TimedOut),
    }
}

/// The list changes to subscribe to: those the modern server declares.
fn list_filter(session: &Session, list_changes: ListChanges) -> SubscriptionFilter {
    if session.era() == Era::Legacy || list_changes == ListChanges::Ignore {
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

/// Servers before 2025-06-18 often have tools without declaring them, so they are asked; an error then
/// means "no tools".
async fn fetch_first_tools(session: &Session) -> Result<(), CallError> {
    let declared = session.server.capabilities.tools.is_some();
    let may_have_tools = session.revision() < Revision::R2025_06_18;
    if !declared && !may_have_tools {
        return Ok(());
    }
    match session.fetch_list::<Tool>().await {
        Err(CallError::Refused(_)) if !declared => Ok(()),
        outcome => outcome.map(drop),
    }
}

fn list_error(error: CallError) -> HandshakeError {
    let method = Method::ListTools;
    HandshakeError::Failed(match error {
        CallError::Refused(source) => ConnectError::Refused { method, source },
        CallError::Undecodable { method, source } => ConnectError::Undecodable { method, source },
        CallError::TimedOut { .. } => return HandshakeError::TimedOut,
        CallError::Transport(source) => return HandshakeError::Closed(source.error),
        other => ConnectError::Transport(TransportError::Parse(other.to_string())),
    })
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
        match error {
            HandshakeError::Failed(error) => error,
            HandshakeError::TimedOut => {
                noise_error(&stats, 1).unwrap_or_else(|| self.timed_out(stats))
            }
            // A failed write is often only the symptom of an exited process, so the exit
            // status comes first.
            HandshakeError::Closed(error) => match (error, reason) {
                (TransportError::ProcessExited(exit), _) | (_, CloseReason::Exited(exit)) => {
                    exit_error(exit, stats)
                }
                (TransportError::Unauthorized(error), _) => ConnectError::NeedsAuth(error),
                (error, _) => noise_error(&stats, 1).unwrap_or(ConnectError::Transport(error)),
            },
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
