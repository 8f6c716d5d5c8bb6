//! Calls of tools, from raw and fast to plain and easy.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use toolrack_mcp::{Arguments, CallToolParams, LogLevel, Method, ToolCallResult};
use toolrack_transport::RawJson;
use tracing::Instrument as _;
use tracing::level_filters::LevelFilter;

use crate::client::McpClient;
use crate::error::CallError;
use crate::forwarded::Behalf;
use crate::progress::OnProgress;
use crate::session::Feature;
use crate::tool::McpToolResult;

/// What a caller may want of one call. The default is what the client was set to.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// How long to wait without a sign of work from the server.
    pub timeout: Option<Duration>,
    /// How long to wait in all.
    pub at_most: Option<Duration>,
    /// Called with each report of progress, in the caller's own task and before the call returns.
    pub on_progress: Option<OnProgress>,
    /// From which level on the server may send log messages while it works. In the legacy era this is set
    /// for the whole conversation instead.
    pub log_level: Option<LogLevel>,
    /// Set by a program that passes a request on for its own client. A result that asks something is then
    /// given back instead of being answered here.
    pub on_behalf: Option<Arc<Behalf>>,
}

impl McpClient {
    /// Calls a tool and gives its text: the text blocks and nothing else, as the founding document has it. Embedded
    /// resources, images and structured content are in [`call_tool_full`](Self::call_tool_full).
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_tool(
        &self,
        tool: &str,
        arguments: &Value,
    ) -> Result<McpToolResult, CallError> {
        let options = CallOptions::default();
        let raw = self.call_tool_as(tool, Arguments::Value(arguments), &options).await?;
        McpToolResult::read(raw)
    }

    /// Calls a tool and gives everything it answered.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_tool_full(
        &self,
        tool: &str,
        arguments: &Value,
        options: &CallOptions,
    ) -> Result<ToolCallResult<'static>, CallError> {
        let raw = self.call_tool_as(tool, Arguments::Value(arguments), options).await?;
        parse(&raw).map(ToolCallResult::into_owned)
    }

    /// Calls a tool and gives the result as the server wrote it. Nothing is decoded on the way: the
    /// arguments are written as they are, and the result is cut out of its line.
    ///
    /// Departs from spec 2025-06-18, tools §Output Schema: whether structured content fits its schema
    /// is left to whoever decodes it, because most callers hand it on.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_tool_raw(
        &self,
        tool: &str,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        self.call_tool_as(tool, Arguments::Raw(arguments), options).await
    }

    /// The same, with arguments in the form in which the caller has them.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_tool_as(
        &self,
        tool: &str,
        arguments: Arguments<'_>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let session = self.session();
        session.require(Feature::Tools)?;
        let params = CallToolParams::new(tool, Some(written(arguments)));
        if session.needs_task(tool) {
            return Box::pin(session.call_as_task(params, options)).await;
        }
        let calling = session.converse(params, options);
        // Whoever manages many servers has a span of its own for each call; this one is for debugging. A span
        // that nobody wants costs something too, so it is not even made.
        if LevelFilter::current() < LevelFilter::DEBUG {
            return calling.await;
        }
        let span = tracing::debug_span!("mcp.call", server = self.name(), tool);
        Box::pin(calling.instrument(span)).await
    }
}

/// Some servers want `{}` rather than nothing.
fn written(arguments: Arguments<'_>) -> Arguments<'_> {
    static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));
    match arguments {
        Arguments::Value(Value::Null) => Arguments::Value(&NOTHING),
        arguments => arguments,
    }
}

pub(crate) fn parse(raw: &RawJson) -> Result<ToolCallResult<'_>, CallError> {
    ToolCallResult::parse(raw.as_bytes())
        .map_err(|fault| CallError::undecodable(Method::CallTool, fault))
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("timeout", &self.timeout)
            .field("at_most", &self.at_most)
            .field("log_level", &self.log_level)
            .finish_non_exhaustive()
    }
}
