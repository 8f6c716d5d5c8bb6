//! Telemetry of a call: its tracing span, and its `CallStarted` and `CallFinished` events.
//!
//! Span attributes follow the OpenTelemetry conventions for MCP.
//!
//! **Invariant:** neither arguments nor results are recorded.
//! **Invariant:** every call that starts also finishes, even if its caller drops it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;

use toolrack_client::CallError;
use toolrack_config::McpTransport;
use toolrack_mcp::Arguments;
use toolrack_transport::{Delivery, RawJson};

use crate::call::is_tool_error;
use crate::error::{ManagerError, shorten_name};
use crate::events::{CallOutcome, EventSender, ManagerEvent};
use crate::manager::Shared;
use crate::snapshot::McpConnection;

/// Whether any subscriber may want spans of calls. A disabled span has a cost too.
pub(crate) fn is_enabled() -> bool {
    LevelFilter::current() >= LevelFilter::INFO
}

/// Longest tool name in events and spans, which listeners keep. A caller can call any name.
const MAX_EVENT_NAME_BYTES: usize = 256;

/// The name of a called tool for events and spans.
fn event_name(tool: &str) -> Cow<'_, str> {
    if tool.len() <= MAX_EVENT_NAME_BYTES { tool.into() } else { shorten_name(tool).into() }
}

/// Span of a call. Names of spans are static, so exporters show `otel.name`: `mcp.{server}.{tool}`.
pub(crate) fn span(connection: &McpConnection, tool: &str) -> Span {
    let (server, tool) = (connection.name(), event_name(tool));
    let transport = match connection.config.transport {
        McpTransport::Http { .. } => "tcp",
        _ => "pipe",
    };
    tracing::info_span!(
        "mcp.tool",
        otel.name = %format_args!("mcp.{server}.{tool}"),
        otel.kind = "client",
        otel.status_code = Empty,
        "mcp.method.name" = "tools/call",
        "mcp.protocol.version" =
            connection.client().map(|client| tracing::field::display(client.revision())),
        "mcp.server.name" = server,
        "gen_ai.operation.name" = "execute_tool",
        "gen_ai.tool.name" = &*tool,
        "network.transport" = transport,
        "error.type" = Empty,
        "rpc.response.status_code" = Empty,
    )
}

/// Records the outcome of a call in its span.
pub(crate) fn record_outcome(span: &Span, outcome: &Result<RawJson, ManagerError>) {
    if span.is_disabled() {
        return;
    }
    let error_type = match outcome {
        Ok(raw) if is_tool_error(raw) => "tool_error",
        Ok(_) => return,
        Err(error) => error_type(error),
    };
    if let Some(error) = outcome.as_ref().err().and_then(ManagerError::json_rpc_error) {
        span.record("rpc.response.status_code", error.code);
    }
    span.record("error.type", error_type);
    span.record("otel.status_code", "ERROR");
}

fn error_type(error: &ManagerError) -> &'static str {
    match error {
        ManagerError::NoSuchServer { .. } => "no_such_server",
        ManagerError::NoSuchTool { .. } => "no_such_tool",
        ManagerError::Ambiguous { .. } => "ambiguous",
        ManagerError::Denied { .. } => "denied",
        ManagerError::NotConnected { .. } | ManagerError::NotReady { .. } => "not_connected",
        ManagerError::Call { source, .. } => match **source {
            CallError::Refused(_) => "refused",
            CallError::TimedOut { .. } => "timeout",
            CallError::Transport(_) => "connection_lost",
            _ => "call_failed",
        },
        ManagerError::Undecodable { .. } => "malformed",
        ManagerError::Closed => "closed",
    }
}

/// Emits the events of one call. Dropping it emits `CallFinished`.
pub(crate) struct CallEventGuard<'a> {
    events: &'a EventSender,
    id: u64,
    server: Arc<str>,
    tool: Arc<str>,
    started: Instant,
    argument_bytes: usize,
    outcome: CallOutcome,
    delivery: Delivery,
    result_bytes: usize,
}

impl<'a> CallEventGuard<'a> {
    /// Emits `CallStarted`. `None` without subscribers.
    pub(crate) fn start(
        shared: &'a Shared,
        connection: &McpConnection,
        id: Option<u64>,
        tool: &str,
        arguments: Arguments<'_>,
    ) -> Option<Self> {
        if !shared.events.has_subscribers() {
            return None;
        }
        let guard = Self {
            events: &shared.events,
            id: id.unwrap_or_else(|| shared.next_call_id.fetch_add(1, Ordering::Relaxed)),
            server: Arc::clone(&connection.name),
            tool: event_name(tool).into(),
            started: Instant::now(),
            argument_bytes: match arguments {
                Arguments::Raw(raw) => raw.get().len(),
                Arguments::Value(value) => value.to_string().len(),
            },
            // Holds if the caller drops the call before `finish`.
            outcome: CallOutcome::Cancelled,
            delivery: Delivery::Unknown,
            result_bytes: 0,
        };
        guard.events.emit(|| ManagerEvent::CallStarted {
            id: guard.id,
            server: Arc::clone(&guard.server),
            tool: Arc::clone(&guard.tool),
        });
        Some(guard)
    }

    /// Emits `CallFinished` with the outcome of the call.
    pub(crate) fn finish(mut self, outcome: &Result<RawJson, ManagerError>) {
        match outcome {
            Ok(raw) => {
                let is_error = is_tool_error(raw);
                self.outcome = if is_error { CallOutcome::ToolError } else { CallOutcome::Done };
                self.delivery = Delivery::Answered;
                self.result_bytes = raw.as_bytes().len();
            }
            Err(error) => {
                self.outcome = CallOutcome::Failed;
                self.delivery = error.delivery();
            }
        }
    }
}

impl Drop for CallEventGuard<'_> {
    fn drop(&mut self) {
        self.events.emit(|| ManagerEvent::CallFinished {
            id: self.id,
            server: Arc::clone(&self.server),
            tool: Arc::clone(&self.tool),
            outcome: self.outcome,
            delivery: self.delivery,
            duration: self.started.elapsed(),
            argument_bytes: self.argument_bytes,
            result_bytes: self.result_bytes,
        });
    }
}
