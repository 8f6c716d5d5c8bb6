//! The span of a call: its name, and attributes after the OpenTelemetry conventions for MCP.
//!
//! **Invariant:** neither arguments nor results are ever recorded.

use tracing::Span;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;

use toolrack_client::CallError;
use toolrack_config::McpTransport;
use toolrack_transport::RawJson;

use crate::error::RackError;
use crate::server_snapshot::McpConnection;
use crate::tool_output as output;

/// Whether anybody may want spans of calls. One that nobody wants costs something too.
pub(crate) fn is_wanted() -> bool {
    LevelFilter::current() >= LevelFilter::INFO
}

/// The span of a call. Exporters show it as `mcp.{server}.{tool}`; the names of spans themselves are fixed.
pub(crate) fn span(connection: &McpConnection, tool: &str) -> Span {
    let server = connection.name();
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
        "mcp.protocol.version" = connection.client().map(|it| tracing::field::display(it.revision())),
        "mcp.server.name" = server,
        "gen_ai.operation.name" = "execute_tool",
        "gen_ai.tool.name" = tool,
        "network.transport" = transport,
        "error.type" = Empty,
        "rpc.response.status_code" = Empty,
    )
}

/// Records how the call ended.
pub(crate) fn finish(span: &Span, outcome: &Result<RawJson, RackError>) {
    if span.is_disabled() {
        return;
    }
    let kind = match outcome {
        Ok(raw) if output::is_error(raw) => "tool_error",
        Ok(_) => return,
        Err(error) => kind(error),
    };
    if let Err(RackError::Call { source, .. }) = outcome
        && let CallError::Refused(refusal) = &**source
    {
        span.record("rpc.response.status_code", refusal.code);
    }
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

fn kind(error: &RackError) -> &'static str {
    match error {
        RackError::NoSuchServer { .. } => "no_such_server",
        RackError::NoSuchTool { .. } => "no_such_tool",
        RackError::Ambiguous { .. } => "ambiguous",
        RackError::Denied { .. } => "denied",
        RackError::NotConnected { .. } | RackError::NotReady { .. } => "not_connected",
        RackError::Call { source, .. } => match **source {
            CallError::Refused(_) => "refused",
            CallError::TimedOut { .. } => "timeout",
            CallError::Line(_) => "connection_lost",
            _ => "call_failed",
        },
        RackError::Undecodable { .. } => "malformed",
        RackError::Closed => "closed",
    }
}
