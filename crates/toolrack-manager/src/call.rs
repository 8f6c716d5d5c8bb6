//! Tool calls: resolve a name, send the call to a server that is ready, retry it if that is safe, and render its
//! result.
//!
//! **Invariant:** every call has one outcome. A call that may have reached its server is sent again only if the config
//! says that the tool is repeatable.
//! **Invariant:** rendered text is truncated at a character boundary, and says how much is missing.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::Instrument as _;

use toolrack_client::{CallError, CallOptions, McpToolResult};
use toolrack_mcp::{
    Arguments, Content, DecodeError, Progress, ResourceBody, ResourceContents, SingleText,
    ToolCallResult,
};
use toolrack_transport::{RawJson, TransportError, sanitize_text};

use crate::error::{ManagerError, shorten_name, suggestions};
use crate::lifecycle::Epoch;
use crate::manager::McpManager;
use crate::retry_policy::should_retry;
use crate::snapshot::{ResolvedTool, Snapshot};
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

impl<'a> From<&'a str> for CallTarget<'a> {
    fn from(name: &'a str) -> Self {
        Self::PublicName(name)
    }
}

impl<'a> From<&'a String> for CallTarget<'a> {
    fn from(name: &'a String) -> Self {
        Self::PublicName(name)
    }
}

impl<'a, S, T> From<(&'a S, &'a T)> for CallTarget<'a>
where
    S: AsRef<str> + ?Sized,
    T: AsRef<str> + ?Sized,
{
    /// A server, and its own name for the tool.
    fn from((server, tool): (&'a S, &'a T)) -> Self {
        Self::OnServer { server: server.as_ref(), tool: tool.as_ref() }
    }
}

/// Arguments of a call.
#[derive(Debug, Clone)]
pub enum CallArguments<'a> {
    /// A JSON object.
    Value(Cow<'a, Value>),
    /// The text of a JSON object, which is sent unchanged.
    Raw(&'a RawValue),
}

impl From<Value> for CallArguments<'_> {
    fn from(value: Value) -> Self {
        Self::Value(Cow::Owned(value))
    }
}

impl<'a> From<&'a Value> for CallArguments<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Value(Cow::Borrowed(value))
    }
}

impl<'a> From<&'a RawValue> for CallArguments<'a> {
    fn from(raw: &'a RawValue) -> Self {
        Self::Raw(raw)
    }
}

impl<'a> From<&'a Box<RawValue>> for CallArguments<'a> {
    fn from(raw: &'a Box<RawValue>) -> Self {
        Self::Raw(raw)
    }
}

/// A tool call, made by [`McpManager::call`].
///
/// A lazy server is started. A call to a server that is connecting waits for it.
#[must_use = "does nothing until it is sent"]
#[derive(Debug)]
pub struct ToolCall<'a> {
    manager: &'a McpManager,
    target: CallTarget<'a>,
    arguments: CallArguments<'a>,
    options: CallOptions,
    /// Reserved id, if the caller has one.
    id: Option<u64>,
}

/// Why an attempt is not the outcome of its call.
struct RetryReason {
    /// The launch of the attempt. The snapshot may still show it as connected.
    avoid: Option<Epoch>,
    /// The error, if the call was sent.
    error: Option<ManagerError>,
}

impl McpManager {
    /// A call of a tool: by its public name, as `server.tool` or `server/tool`, or by a pair of a server and the
    /// server's own name for the tool.
    pub fn call<'a>(&'a self, tool: impl Into<CallTarget<'a>>) -> ToolCall<'a> {
        ToolCall {
            manager: self,
            target: tool.into(),
            arguments: Value::Object(serde_json::Map::new()).into(),
            options: CallOptions::default(),
            id: None,
        }
    }

    /// Calls a tool of a server by its name on that server, and returns its text.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<McpToolResult, ManagerError> {
        Ok(self.call((server, tool)).args(arguments).send().await?.rendered)
    }

    /// Calls a tool of a server by its name on that server, and returns its content blocks: text, images, audio and
    /// resources, not sanitized and not truncated.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call_tool_full(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<ToolCallResult<'static>, ManagerError> {
        let raw = self.call((server, tool)).args(arguments).send_raw().await?;
        let result = ToolCallResult::parse(raw.as_bytes()).map(ToolCallResult::into_owned);
        result.map_err(|source| {
            let (server, tool) = (server.to_owned(), tool.to_owned());
            ManagerError::Undecodable { server, tool, source }
        })
    }

    /// Reserves an id for a later call, under which its events are emitted.
    pub fn reserve_call_id(&self) -> u64 {
        self.shared.next_call_id.fetch_add(1, Ordering::Relaxed)
    }
}

impl<'a> ToolCall<'a> {
    /// Sets the arguments. The default is an empty object.
    pub fn args(self, arguments: impl Into<CallArguments<'a>>) -> Self {
        Self { arguments: arguments.into(), ..self }
    }

    /// Sets the idle timeout, which each progress notification restarts. The default is the server's `timeout`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Sets the progress callback, which runs in the caller's task.
    pub fn on_progress(mut self, callback: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.options.on_progress = Some(Arc::new(callback));
        self
    }

    /// Sets all options. Unset ones come from the server's config.
    pub fn options(self, options: CallOptions) -> Self {
        Self { options, ..self }
    }

    /// Emits the events of the call under an id from [`McpManager::reserve_call_id`].
    pub fn id(self, id: u64) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Sends the call and returns its result. A tool that ran and failed is a result: see [`ToolResult::is_error`].
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn send(mut self) -> Result<ToolResult, ManagerError> {
        let snapshot = self.snapshot_with_tool().await;
        let found = self.find(&snapshot)?;
        let raw = self.deliver(found).await?;
        match render_tool_result(&raw, found.connection.config.max_output_bytes) {
            Ok(rendered) => Ok(ToolResult { raw, rendered }),
            Err(source) => {
                let (server, tool) = (found.connection.name().to_owned(), found.tool.to_owned());
                Err(ManagerError::Undecodable { server, tool, source })
            }
        }
    }

    /// Sends the call and returns its result as the server sent it: not decoded, not sanitized, not truncated.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn send_raw(mut self) -> Result<RawJson, ManagerError> {
        let snapshot = self.snapshot_with_tool().await;
        let found = self.find(&snapshot)?;
        self.deliver(found).await
    }

    /// The current snapshot. If it does not have the tool, it is refreshed first: a server without `listChanged` may
    /// have added the tool since its last list.
    async fn snapshot_with_tool(&self) -> Arc<Snapshot> {
        // A full `Arc`, because the call holds it across awaits.
        let snapshot = self.manager.shared.snapshot.load_full();
        let is_unknown = match self.find(&snapshot) {
            Ok(found) => !found.connection.tools.contains(found.tool),
            Err(error) => matches!(error, ManagerError::NoSuchTool { .. }),
        };
        if !is_unknown {
            return snapshot;
        }
        // Boxed like everything that not every call needs, so that the future of a call stays small.
        Box::pin(self.manager.refresh_tools()).await;
        self.manager.shared.snapshot.load_full()
    }

    fn find<'s>(&self, snapshot: &'s Snapshot) -> Result<ResolvedTool<'s>, ManagerError>
    where
        'a: 's,
    {
        let found = match self.target {
            CallTarget::PublicName(name) => snapshot.resolve(name),
            CallTarget::OnServer { server, tool } => {
                snapshot.server(server).map(|connection| ResolvedTool { connection, tool })
            }
        };
        let is_closed = || self.manager.shared.stop.is_cancelled();
        found.map_err(|error| if is_closed() { ManagerError::Closed } else { error })
    }

    /// Runs the call to its outcome, with telemetry if anyone wants it.
    async fn deliver(&mut self, found: ResolvedTool<'_>) -> Result<RawJson, ManagerError> {
        let config = &found.connection.config;
        let is_unset = (self.options.timeout.is_none(), self.options.total_timeout.is_none());
        self.options.timeout.get_or_insert(config.timeout);
        self.options.total_timeout.get_or_insert(config.max_timeout);
        let shared = &*self.manager.shared;
        let call = &*self;
        let attempts = async move {
            // The first attempt uses the snapshot that the name was resolved with, and needs no lookup.
            match call.attempt(found, &call.options, None, 1).await {
                Ok(outcome) => outcome,
                Err(reason) => Box::pin(call.retry(found, is_unset, reason)).await,
            }
        };
        if !telemetry::is_enabled() && !shared.events.has_subscribers() {
            return attempts.await;
        }
        let span = telemetry::span(found.connection, found.tool);
        // Before the await: if the caller drops the call, the guard's drop
        // still emits `CallFinished`.
        let arguments = call.arguments();
        let guard = CallEventGuard::start(shared, found.connection, call.id, found.tool, arguments);
        let outcome = Box::pin(attempts.instrument(span.clone())).await;
        telemetry::record_outcome(&span, &outcome);
        if let Some(guard) = guard {
            guard.finish(&outcome);
        }
        outcome
    }

    /// Waits for the server and sends the call again, until it has an outcome.
    async fn retry(
        &self,
        found: ResolvedTool<'_>,
        (is_timeout_unset, is_total_unset): (bool, bool),
        mut reason: RetryReason,
    ) -> Result<RawJson, ManagerError> {
        let shared = &*self.manager.shared;
        let mut options = self.options.clone();
        // The deadlines start once: retries do not extend them.
        let wait = shared.start_wait(found.connection);
        // Attempts that found no connection are not counted: the call was not sent.
        let mut n_sent = u32::from(reason.error.is_some());
        loop {
            let name = &found.connection.name;
            let ready = match shared.wait_for_server(name, reason.avoid, wait).await {
                Ok(ready) => ready,
                // The error of the attempt says more than the fact that no second attempt is possible.
                Err(error) => return Err(reason.error.unwrap_or(error)),
            };
            // Timeouts of the current config, which may be newer than that of the first attempt.
            if is_timeout_unset {
                options.timeout = Some(ready.config.timeout);
            }
            if is_total_unset {
                options.total_timeout = Some(ready.config.max_timeout);
            }
            let ready = ResolvedTool { connection: &ready, tool: found.tool };
            match self.attempt(ready, &options, reason.avoid, n_sent + 1).await {
                Ok(outcome) => return outcome,
                Err(next) => {
                    // Keeps the last error of a sent attempt, which tells the caller whether the server may have acted.
                    n_sent += u32::from(next.error.is_some());
                    reason = RetryReason { avoid: next.avoid, error: next.error.or(reason.error) };
                }
            }
        }
    }

    /// Sends the call, unless the server is not connected or its launch is the one to `avoid`.
    async fn attempt(
        &self,
        found: ResolvedTool<'_>,
        options: &CallOptions,
        avoid: Option<Epoch>,
        number: u32,
    ) -> Result<Result<RawJson, ManagerError>, RetryReason> {
        let ResolvedTool { connection, tool } = found;
        // On each attempt: a reconnected server may have another list, and the filter
        // may have changed.
        if let Err(error) = check_allowed(found) {
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
        let calling = active.client.call_tool_raw(tool, self.arguments(), options);
        let error = match calling.await {
            Ok(result) => return Ok(Ok(result)),
            Err(error) => error,
        };
        let is_final = is_final(found, &error, number);
        let (server, tool) = (connection.name().to_owned(), tool.to_owned());
        let error = ManagerError::Call { server, tool, source: Box::new(error) };
        if is_final { Ok(Err(error)) } else { Err(RetryReason { avoid, error: Some(error) }) }
    }

    fn arguments(&self) -> Arguments<'_> {
        match &self.arguments {
            CallArguments::Value(value) => Arguments::Value(value),
            CallArguments::Raw(raw) => Arguments::Raw(raw),
        }
    }
}

/// Checks that the tool is allowed, and exists as far as is known.
fn check_allowed(found: ResolvedTool<'_>) -> Result<(), ManagerError> {
    let ResolvedTool { connection, tool } = found;
    let tools = &connection.tools;
    if tools.contains(tool) {
        return Ok(());
    }
    if let Some(rule) = connection.denied_by(tool) {
        let (server, tool) = (connection.name().to_owned(), tool.to_owned());
        return Err(ManagerError::Denied { server, tool, rule });
    }
    // A cached list may be out of date; the list of a connection is not.
    if connection.active.is_none() || tools.list.is_none() {
        return Ok(());
    }
    let suggestions = suggestions(tool, tools.allowed().map(|(_, tool)| tool.name.as_str()));
    let tool = format!("{}.{}", connection.name(), shorten_name(tool));
    Err(ManagerError::NoSuchTool { tool, suggestions })
}

/// Whether an error is the outcome of its call. Only a call that failed with its connection is worth a retry: another
/// connection will follow. The HTTP transport fails single requests, and has retried them itself where that is possible.
fn is_final(found: ResolvedTool<'_>, error: &CallError, n_attempts: u32) -> bool {
    let CallError::Transport(failure) = error else { return true };
    let is_connection_lost = matches!(
        failure.error,
        TransportError::Shutdown
            | TransportError::ProcessExited(_)
            | TransportError::StdinNotAvailable
            | TransportError::StdoutNotAvailable
    );
    let patterns = &found.connection.config.repeatable;
    let is_repeatable = || patterns.iter().any(|pattern| glob_matches(pattern, found.tool));
    !is_connection_lost || !should_retry(error.delivery(), is_repeatable, n_attempts)
}

/// Result of a tool call.
#[derive(Debug, Clone)]
pub struct ToolResult {
    raw: RawJson,
    rendered: McpToolResult,
}

impl ToolResult {
    /// The text for an agent: joined, sanitized, and truncated to the server's `max_output_bytes`.
    ///
    /// Embedded text resources count as text. Images and other blocks become one line each, such as
    /// `[image: image/png, 300 bytes]`; [`content`](Self::content) has them. A result with only structured content
    /// becomes JSON text.
    pub fn text(&self) -> &str {
        &self.rendered.content
    }

    /// Whether the tool ran and failed. The text says why.
    pub fn is_error(&self) -> bool {
        self.rendered.is_error
    }

    /// The content blocks: text, images, audio, resources. Nothing is sanitized or truncated.
    ///
    /// # Errors
    ///
    /// A block is malformed.
    pub fn content(&self) -> Result<Vec<Content<'_>>, DecodeError> {
        Ok(ToolCallResult::parse(self.raw.as_bytes())?.content)
    }

    /// The structured content as a type of yours. Without structured content, the text is read as JSON.
    ///
    /// # Errors
    ///
    /// The content does not have this shape.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        let result = ToolCallResult::parse(self.raw.as_bytes())?;
        Ok(match &result.structured_content {
            Some(structured) => serde_json::from_str(structured.get())?,
            None => serde_json::from_str(&result.text())?,
        })
    }

    /// The result as the server sent it.
    pub fn raw(&self) -> &RawJson {
        &self.raw
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
        assert!(size_of_val(&manager.call("name").args(&arguments).send()) <= 1408);
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
