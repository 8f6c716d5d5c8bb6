//! Tool calls: resolve a name, send the call to a server that is ready, retry it if that is safe, and render its
//! result.
//!
//! **Invariant:** every call has one outcome. A call that may have reached its server is sent again only if the config
//! says that the tool is repeatable.
//! **Invariant:** rendered text is truncated at a character boundary, and says how much is missing.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use serde_json::value::RawValue;
use tracing::Instrument as _;

use toolrack_client::{CallError, CallOptions, McpToolResult};
use toolrack_mcp::{
    Arguments, Content, DecodeError, ResourceBody, ResourceContents, SingleText, ToolCallResult,
};
use toolrack_transport::{RawJson, TransportError, sanitize_text};

use crate::error::{ManagerError, suggestions};
use crate::lifecycle::Epoch;
use crate::manager::{McpManager, Shared};
use crate::retry_policy::{Repeatable, should_retry};
use crate::snapshot::{McpConnection, ResolvedTool, Snapshot};
use crate::telemetry::{self, CallEventGuard};
use crate::tool_filter::glob_matches;

/// The tool of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallTarget<'a> {
    /// Public name, `server.tool` or `server/tool`.
    PublicName(&'a str),
    /// A tool of a server, by its name on that server.
    OnServer {
        /// Name of the server.
        server: &'a str,
        /// Name of the tool on the server.
        tool: &'a str,
    },
}

/// One call.
struct Call<'a> {
    /// Reserved id, if the caller has one.
    id: Option<u64>,
    tool: &'a str,
    arguments: Arguments<'a>,
    options: Option<&'a CallOptions>,
}

/// Why an attempt is not the outcome of its call.
struct RetryReason {
    /// The launch of the attempt. The snapshot may still show it as connected.
    avoid: Option<Epoch>,
    /// The error, if the call was sent.
    error: Option<ManagerError>,
}

/// The tool is in no known list.
struct UnknownTool;

impl McpManager {
    /// Calls a tool by its public name, as `server.tool` or as `server/tool`. Returns its text: joined, sanitized, and
    /// truncated to the server's `max_output_bytes`.
    ///
    /// A lazy server is started. A call to a server that is connecting waits for it.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call(&self, name: &str, arguments: &Value) -> Result<McpToolResult, ManagerError> {
        let snapshot = match self.snapshot_with(CallTarget::PublicName(name)) {
            Ok(snapshot) => snapshot,
            Err(UnknownTool) => Box::pin(self.refreshed_snapshot()).await,
        };
        let ResolvedTool { connection, tool } = self.shared.resolve(&snapshot, name)?;
        self.shared.call_text(connection, tool, arguments).await
    }

    /// Like [`call`](Self::call), for a tool of a server by its name on that server.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<McpToolResult, ManagerError> {
        let snapshot = match self.snapshot_with(CallTarget::OnServer { server, tool }) {
            Ok(snapshot) => snapshot,
            Err(UnknownTool) => Box::pin(self.refreshed_snapshot()).await,
        };
        let connection = self.shared.find_server(&snapshot, server)?;
        self.shared.call_text(connection, tool, arguments).await
    }

    /// Calls a tool by its public name and returns the result as the server sent it: not decoded, not sanitized, not
    /// truncated.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call_raw(
        &self,
        name: &str,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, ManagerError> {
        let snapshot = match self.snapshot_with(CallTarget::PublicName(name)) {
            Ok(snapshot) => snapshot,
            Err(UnknownTool) => Box::pin(self.refreshed_snapshot()).await,
        };
        let ResolvedTool { connection, tool } = self.shared.resolve(&snapshot, name)?;
        let arguments = Arguments::Raw(arguments);
        let call = Call { id: None, tool, arguments, options: Some(options) };
        self.shared.run(connection, &call).await
    }

    /// Calls a tool by its public name and returns the decoded result: not sanitized, not truncated.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call_full(
        &self,
        name: &str,
        arguments: &Value,
        options: &CallOptions,
    ) -> Result<ToolCallResult<'static>, ManagerError> {
        let snapshot = match self.snapshot_with(CallTarget::PublicName(name)) {
            Ok(snapshot) => snapshot,
            Err(UnknownTool) => Box::pin(self.refreshed_snapshot()).await,
        };
        let ResolvedTool { connection, tool } = self.shared.resolve(&snapshot, name)?;
        let arguments = Arguments::Value(arguments);
        let call = Call { id: None, tool, arguments, options: Some(options) };
        let raw = self.shared.run(connection, &call).await?;
        let result = ToolCallResult::parse(raw.as_bytes()).map(ToolCallResult::into_owned);
        result.map_err(|source| undecodable(connection, tool, source))
    }

    /// Like [`call_raw`](Self::call_raw), for a tool of a server by its name on that server.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call_tool_raw(
        &self,
        server: &str,
        tool: &str,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, ManagerError> {
        let snapshot = match self.snapshot_with(CallTarget::OnServer { server, tool }) {
            Ok(snapshot) => snapshot,
            Err(UnknownTool) => Box::pin(self.refreshed_snapshot()).await,
        };
        let arguments = Arguments::Raw(arguments);
        let call = Call { id: None, tool, arguments, options: Some(options) };
        let connection = self.shared.find_server(&snapshot, server)?;
        self.shared.run(connection, &call).await
    }

    /// Reserves an id for a later call, under which its events are emitted.
    pub fn reserve_call_id(&self) -> u64 {
        self.shared.next_call_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Like [`call_raw`](Self::call_raw), under an id from [`reserve_call_id`](Self::reserve_call_id).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call_with_id(
        &self,
        id: u64,
        target: CallTarget<'_>,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, ManagerError> {
        let snapshot = match self.snapshot_with(target) {
            Ok(snapshot) => snapshot,
            Err(UnknownTool) => Box::pin(self.refreshed_snapshot()).await,
        };
        let (connection, tool) = match target {
            CallTarget::PublicName(name) => {
                let ResolvedTool { connection, tool } = self.shared.resolve(&snapshot, name)?;
                (connection, tool)
            }
            CallTarget::OnServer { server, tool } => {
                (self.shared.find_server(&snapshot, server)?, tool)
            }
        };
        let arguments = Arguments::Raw(arguments);
        let call = Call { id: Some(id), tool, arguments, options: Some(options) };
        self.shared.run(connection, &call).await
    }

    /// The current snapshot, if it has the tool.
    fn snapshot_with(&self, target: CallTarget<'_>) -> Result<Arc<Snapshot>, UnknownTool> {
        // A full `Arc`, because the call holds it across awaits.
        let snapshot = self.shared.snapshot.load_full();
        if is_unknown(&snapshot, target) { Err(UnknownTool) } else { Ok(snapshot) }
    }

    /// A snapshot after a refresh: a server without `listChanged` may have added the tool since its last list.
    async fn refreshed_snapshot(&self) -> Arc<Snapshot> {
        self.refresh_tools().await;
        self.shared.snapshot.load_full()
    }
}

fn is_unknown(snapshot: &Snapshot, target: CallTarget<'_>) -> bool {
    let exists = |server: &McpConnection, tool: &str| server.tools.contains(tool);
    match target {
        CallTarget::PublicName(name) => match snapshot.resolve(name) {
            Ok(resolved) => !exists(resolved.connection, resolved.tool),
            Err(error) => matches!(error, ManagerError::NoSuchTool { .. }),
        },
        CallTarget::OnServer { server, tool } => {
            snapshot.server(server).is_ok_and(|server| !exists(server, tool))
        }
    }
}

impl Shared {
    fn resolve<'a>(
        &self,
        snapshot: &'a Snapshot,
        name: &'a str,
    ) -> Result<ResolvedTool<'a>, ManagerError> {
        snapshot.resolve(name).map_err(|error| self.closed_or(error))
    }

    fn find_server<'a>(
        &self,
        snapshot: &'a Snapshot,
        server: &str,
    ) -> Result<&'a Arc<McpConnection>, ManagerError> {
        snapshot.server(server).map_err(|error| self.closed_or(error))
    }

    async fn call_text(
        &self,
        connection: &Arc<McpConnection>,
        tool: &str,
        arguments: &Value,
    ) -> Result<McpToolResult, ManagerError> {
        let arguments = Arguments::Value(arguments);
        let call = Call { id: None, tool, arguments, options: None };
        let raw = self.run(connection, &call).await?;
        render_tool_result(&raw, connection.config.max_output_bytes)
            .map_err(|source| undecodable(connection, tool, source))
    }

    /// Runs a call to its outcome.
    async fn run(
        &self,
        connection: &McpConnection,
        call: &Call<'_>,
    ) -> Result<RawJson, ManagerError> {
        if telemetry::is_enabled() || self.events.has_subscribers() {
            // Boxed like everything that not every call needs, so that the future of a call stays small.
            return Box::pin(self.run_with_telemetry(connection, call)).await;
        }
        self.send(connection, call).await
    }

    async fn run_with_telemetry(
        &self,
        connection: &McpConnection,
        call: &Call<'_>,
    ) -> Result<RawJson, ManagerError> {
        let span = telemetry::span(connection, call.tool);
        // Before the await: if the caller drops the call, the guard's drop
        // still emits `CallFinished`.
        let guard = CallEventGuard::start(self, connection, call.id, call.tool, call.arguments);
        let outcome = self.send(connection, call).instrument(span.clone()).await;
        telemetry::record_outcome(&span, &outcome);
        if let Some(guard) = guard {
            guard.finish(&outcome);
        }
        outcome
    }

    /// Sends a call, and retries it if the first attempt gives a reason to.
    async fn send(
        &self,
        connection: &McpConnection,
        call: &Call<'_>,
    ) -> Result<RawJson, ManagerError> {
        // The first attempt uses the snapshot that the caller resolved the name with, and
        // needs no lookup.
        match call.attempt(connection, None, 1).await {
            Ok(outcome) => outcome,
            Err(reason) => Box::pin(self.retry(connection, call, reason)).await,
        }
    }

    /// Waits for the server and sends the call again, until it has an outcome.
    async fn retry(
        &self,
        connection: &McpConnection,
        call: &Call<'_>,
        mut reason: RetryReason,
    ) -> Result<RawJson, ManagerError> {
        // The deadlines start once: retries do not extend them.
        let wait = self.start_wait(connection);
        // Attempts that found no connection are not counted: the call was not sent.
        let mut n_sent = u32::from(reason.error.is_some());
        loop {
            let ready = match self.wait_for_server(&connection.name, reason.avoid, wait).await {
                Ok(ready) => ready,
                // The error of the attempt says more than the fact that no second attempt is possible.
                Err(error) => return Err(reason.error.unwrap_or(error)),
            };
            match call.attempt(&ready, reason.avoid, n_sent + 1).await {
                Ok(outcome) => return outcome,
                Err(next) => {
                    // Keeps the last error of a sent attempt, which tells the caller whether the server may have acted.
                    n_sent += u32::from(next.error.is_some());
                    reason = RetryReason { avoid: next.avoid, error: next.error.or(reason.error) };
                }
            }
        }
    }
}

fn undecodable(connection: &McpConnection, tool: &str, source: DecodeError) -> ManagerError {
    let (server, tool) = (connection.name().to_owned(), tool.to_owned());
    ManagerError::Undecodable { server, tool, source }
}

/// Whether an error means that the connection has ended, so that another one will follow. The HTTP transport fails
/// single requests, and has retried them itself where that is possible.
fn is_connection_lost(error: &CallError) -> bool {
    let CallError::Transport(failure) = error else { return false };
    matches!(
        failure.error,
        TransportError::Shutdown
            | TransportError::ProcessExited(_)
            | TransportError::StdinNotAvailable
            | TransportError::StdoutNotAvailable
    )
}

impl Call<'_> {
    /// Checks that the tool is allowed, and exists as far as is known.
    fn check(&self, connection: &McpConnection) -> Result<(), ManagerError> {
        let tools = &connection.tools;
        if tools.contains(self.tool) {
            return Ok(());
        }
        if let Some(rule) = connection.denied_by(self.tool) {
            let (server, tool) = (connection.name().to_owned(), self.tool.to_owned());
            return Err(ManagerError::Denied { server, tool, rule });
        }
        // A cached list may be out of date; the list of a connection is not.
        if connection.active.is_none() || tools.list().is_none() {
            return Ok(());
        }
        Err(ManagerError::NoSuchTool {
            tool: format!("{}.{}", connection.name(), self.tool),
            suggestions: suggestions(
                self.tool,
                tools.allowed().map(|(_, tool)| tool.name.as_str()),
            ),
        })
    }

    /// Sends the call, unless the server is not connected or its launch is the one to `avoid`.
    async fn attempt(
        &self,
        connection: &McpConnection,
        avoid: Option<Epoch>,
        number: u32,
    ) -> Result<Result<RawJson, ManagerError>, RetryReason> {
        // On each attempt: a reconnected server may have another list, and the filter
        // may have changed.
        if let Err(error) = self.check(connection) {
            return Ok(Err(error));
        }
        let not_avoided = connection.active.as_ref().filter(|active| avoid != Some(active.epoch));
        let Some(active) = not_avoided else {
            return Err(RetryReason { avoid, error: None });
        };
        let avoid = Some(active.epoch);
        // The connection is closing because it was idle or lost: the call goes to the next one.
        let Some(_in_flight) = active.in_flight.acquire() else {
            return Err(RetryReason { avoid, error: None });
        };
        // Timeouts of the current config, which may be newer than the connection.
        let mut options = self.options.cloned().unwrap_or_default();
        options.timeout.get_or_insert(connection.config.timeout);
        options.total_timeout.get_or_insert(connection.config.max_timeout);
        match active.client.call_tool_with(self.tool, self.arguments, &options).await {
            Ok(result) => Ok(Ok(result)),
            Err(error) if self.is_final(connection, &error, number) => {
                Ok(Err(self.failed(connection, error)))
            }
            Err(error) => Err(RetryReason { avoid, error: Some(self.failed(connection, error)) }),
        }
    }

    /// Whether an error is the outcome. Only a call that failed with its connection is worth a retry.
    fn is_final(&self, connection: &McpConnection, error: &CallError, n_attempts: u32) -> bool {
        let patterns = &connection.config.repeatable;
        let is_repeatable = patterns.iter().any(|pattern| glob_matches(pattern, self.tool));
        let repeatable = if is_repeatable { Repeatable::Yes } else { Repeatable::No };
        !is_connection_lost(error) || !should_retry(error.delivery(), repeatable, n_attempts)
    }

    fn failed(&self, connection: &McpConnection, source: CallError) -> ManagerError {
        let (server, tool) = (connection.name().to_owned(), self.tool.to_owned());
        ManagerError::Call { server, tool, source: Box::new(source) }
    }
}

/// Renders a tool result as text for an agent: joined, sanitized, truncated.
///
/// Embedded text resources count as text. Every other block becomes a one-line placeholder. A result without blocks
/// becomes its structured content.
pub fn render_tool_result(
    raw: &RawJson,
    max_output_bytes: usize,
) -> Result<McpToolResult, DecodeError> {
    let bytes = raw.as_bytes();
    // Fast path: most results are a single text block, which need not be decoded into a tree.
    if let Some(only) = SingleText::find(bytes)
        && let Some(Ok(text)) = bytes.get(only.text).map(std::str::from_utf8)
    {
        let content = truncate(text, max_output_bytes);
        return Ok(McpToolResult { content, is_error: only.is_error });
    }
    let result = ToolCallResult::parse(bytes)?;
    let content = truncate(&join_blocks(&result), max_output_bytes);
    Ok(McpToolResult { content, is_error: result.is_error })
}

/// Whether the result says that the tool failed.
pub(crate) fn is_tool_error(raw: &RawJson) -> bool {
    match SingleText::find(raw.as_bytes()) {
        Some(only) => only.is_error,
        None => ToolCallResult::parse(raw.as_bytes()).is_ok_and(|result| result.is_error),
    }
}

fn join_blocks(result: &ToolCallResult<'_>) -> String {
    if let (true, Some(structured)) = (result.content.is_empty(), &result.structured_content) {
        return structured.get().to_owned();
    }
    let blocks: Vec<Cow<'_, str>> = result.content.iter().filter_map(block_text).collect();
    blocks.join("\n")
}

/// Text of a block, or its placeholder.
fn block_text<'a>(block: &'a Content<'_>) -> Option<Cow<'a, str>> {
    match block {
        Content::Text { text, .. }
        | Content::Resource {
            resource: ResourceContents { body: ResourceBody::Text(text), .. },
            ..
        } => Some(Cow::Borrowed(text)),
        other => other.placeholder().map(Cow::Owned),
    }
}

/// Truncates before it sanitizes, so that sanitizing costs no more than the part that is kept.
fn truncate(text: &str, max_output_bytes: usize) -> String {
    let end = text.floor_char_boundary(max_output_bytes);
    let (kept, rest) = text.split_at(end);
    let sanitized = sanitize_text(kept);
    if rest.is_empty() {
        return sanitized.into_owned();
    }
    format!("{sanitized}\n[… truncated: {} of {} bytes omitted]", rest.len(), text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// A thousand calls in flight should fit into the nearest caches.
    #[tokio::test]
    async fn call_future_is_small() {
        let manager = McpManager::new(Vec::new());
        let arguments = Value::Null;
        assert!(size_of_val(&manager.call("name", &arguments)) <= 1408);
        assert!(size_of_val(&manager.call_tool("server", "tool", &arguments)) <= 1408);
    }

    #[track_caller]
    fn check(result: Value, max_output_bytes: usize, expected: &str, outcome: Result<(), ()>) {
        let raw = RawJson::new(result.to_string());
        let rendered = render_tool_result(&raw, max_output_bytes).unwrap();
        assert_eq!(
            (rendered.content.as_str(), rendered.is_error),
            (expected, outcome.is_err()),
            "{result}"
        );
        assert_eq!(is_tool_error(&raw), outcome.is_err());
    }

    #[test]
    fn text_is_joined_and_other_blocks_are_placeholders() {
        let blocks = json!([
            {"type": "text", "text": "first\nline"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "text", "text": "\u{1b}[1mlast"},
        ]);
        let expected = "first\nline\n[image: image/png, 3 bytes]\nlast";
        check(json!({"content": blocks}), 1000, expected, Ok(()));
        check(
            json!({"content": [{"type": "text", "text": "no"}], "isError": true}),
            9,
            "no",
            Err(()),
        );
        check(json!({"content": []}), 1000, "", Ok(()));
    }

    #[test]
    fn embedded_text_is_text() {
        let text = json!({"uri": "file:///a", "text": "\u{1b}[1mwords"});
        let bytes = json!({"uri": "file:///b", "blob": "AAAA"});
        let blocks = json!([
            {"type": "resource", "resource": text},
            {"type": "resource", "resource": bytes},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]);
        let expected = "words\n[resource: file:///b]\n[resource link: file:///c]";
        check(json!({"content": blocks}), 1000, expected, Ok(()));
    }

    #[test]
    fn structured_content_is_the_fallback() {
        let structured = json!({"n": 7});
        check(json!({"content": [], "structuredContent": structured}), 1000, "{\"n\":7}", Ok(()));
        check(
            json!({"structuredContent": structured, "isError": true}),
            1000,
            "{\"n\":7}",
            Err(()),
        );
        let text = json!([{"type": "text", "text": "seven"}]);
        check(json!({"content": text, "structuredContent": structured}), 1000, "seven", Ok(()));
    }

    #[test]
    fn long_text_is_truncated_and_says_so() {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        check(text("12345"), 5, "12345", Ok(()));
        check(text("123456"), 5, "12345\n[… truncated: 1 of 6 bytes omitted]", Ok(()));
        check(text("1234ü"), 5, "1234\n[… truncated: 2 of 6 bytes omitted]", Ok(()));
        check(text("abc"), 0, "\n[… truncated: 3 of 3 bytes omitted]", Ok(()));
    }

    proptest! {
        #[test]
        fn truncated_text_is_within_the_limit(text in any::<String>(), limit in 0_usize..64) {
            let truncated = truncate(&text, limit);
            let kept = truncated.split("\n[… truncated").next().unwrap_or_default();
            prop_assert!(text.len() <= limit || kept.len() <= limit);
        }
    }
}
