//! `McpClient`: handle of one MCP server, with all requests a client can send.
//!
//! Tool calls come in three forms: text only, decoded, and raw JSON.
//!
//! **Invariant:** when `close` returns, the transport and every task of the connection have ended. Dropping
//! the client ends them too, without waiting.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;
use toolrack_mcp::{
    Arguments, CallToolParams, CompleteParams, Completion, CompletionArgument, CompletionContext,
    CompletionRef, DiscoverParams, Era, ErrorCode, GetPromptParams, GetPromptResult,
    Implementation, LogLevel, Method, PingParams, Prompt, ReadResourceParams, ReadResourceResult,
    Resource, ResourceTemplate, Revision, ServerCapabilities, SetLevelParams, SubscribeParams,
    SubscriptionFilter, Tool, ToolCallResult, UnsubscribeParams,
};
use toolrack_transport::{CloseReason, NoParams, RawJson, TransportStats};
use tracing::Instrument as _;
use tracing::level_filters::LevelFilter;

use crate::builder::ClientBuilder;
use crate::error::CallError;
use crate::event::Events;
use crate::pagination::List;
use crate::progress::OnProgress;
use crate::request_meta::{ForwardedFor, WantProgress};
use crate::session::{Session, decode};
use crate::subscriptions::Subscription;
use crate::task_polling::CANCEL_TIMEOUT;
use crate::tool::{McpToolDef, McpToolResult};

/// Maximum number of resource subscriptions of one modern server. Each is an open request.
const MAX_SUBSCRIPTIONS: usize = 256;

/// A connection to one MCP server of either era.
///
/// The Tokio runtime that made the connection must outlive the client. When the runtime is dropped, the
/// connection closes and calls fail.
#[derive(Debug)]
pub struct McpClient {
    pub(crate) session: Arc<Session>,
}

/// Options of one call. Unset fields use the client's settings.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// Idle timeout. Each progress notification restarts it.
    pub timeout: Option<Duration>,
    /// Total timeout, regardless of progress.
    pub total_timeout: Option<Duration>,
    /// Progress callback. Runs in the caller's task, before the call returns.
    pub on_progress: Option<OnProgress>,
    /// Minimum level of log messages the server sends during this call. Modern era only; a legacy server has
    /// one level per session.
    pub log_level: Option<LogLevel>,
    /// Set by a gateway that forwards a request of its own client. An `input_required` result is then returned
    /// instead of being answered here.
    pub forwarded_for: Option<Arc<ForwardedFor>>,
}

impl CallOptions {
    /// One timeout, which progress does not extend.
    pub(crate) fn within(wait: Duration) -> Self {
        Self { timeout: Some(wait), total_timeout: Some(wait), ..Self::default() }
    }
}

impl McpClient {
    /// Starts building a connection. `name` identifies the server in spans, server requests and errors.
    pub fn builder(name: &str) -> ClientBuilder {
        ClientBuilder::new(name)
    }

    /// Configured name of the server.
    pub fn name(&self) -> &str {
        &self.session.request_handler.server_name
    }

    /// The server's own name and version. For display only.
    pub fn server_info(&self) -> Option<&Implementation> {
        self.session.server.implementation.as_ref()
    }

    /// Declared server capabilities.
    pub fn capabilities(&self) -> &ServerCapabilities {
        &self.session.server.capabilities
    }

    /// The server's usage instructions for a model.
    pub fn instructions(&self) -> Option<&str> {
        self.session.server.instructions.as_deref()
    }

    /// Negotiated protocol revision. Worth storing while the server's configuration is unchanged, for
    /// [`ClientBuilder::known_version`]; a legacy one only for some days, because the server may be upgraded.
    pub fn revision(&self) -> Revision {
        self.session.revision()
    }

    /// Protocol era of the negotiated revision.
    pub fn era(&self) -> Era {
        self.session.era()
    }

    /// Counters of malformed, late and oversize messages.
    pub fn transport_stats(&self) -> TransportStats {
        self.session.transport.stats()
    }

    /// Number of server requests left unanswered, because the modern era has none or because the queue was full.
    pub fn n_ignored_requests(&self) -> u64 {
        self.session.incoming.ignored.load(Ordering::Relaxed)
    }

    /// The tools as last fetched. After a `list_changed` notification they are fetched again automatically.
    pub fn tools(&self) -> Arc<List<Tool>> {
        self.session.cached_list()
    }

    /// The tools as plain definitions.
    pub fn tool_defs(&self) -> Vec<McpToolDef> {
        self.tools().items.iter().map(McpToolDef::from).collect()
    }

    /// Subscribes to events from now on.
    pub fn subscribe(&self) -> Events {
        self.session.incoming.events.subscribe()
    }

    /// Why the connection closed, or `None` while it is open.
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.session.incoming.events.close_reason()
    }

    /// Calls a tool and returns the text of its text blocks, as founding document 000 defines it.
    /// [`call_tool_full`](Self::call_tool_full) also returns images, embedded resources and structured content.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call and notifies the server.
    pub async fn call_tool(
        &self,
        tool: &str,
        arguments: &Value,
    ) -> Result<McpToolResult, CallError> {
        let options = CallOptions::default();
        let raw = self.call_tool_raw(tool, Arguments::Value(arguments), &options).await?;
        McpToolResult::read(raw)
    }

    /// Calls a tool and returns the decoded result.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call and notifies the server.
    pub async fn call_tool_full(
        &self,
        tool: &str,
        arguments: &Value,
        options: &CallOptions,
    ) -> Result<ToolCallResult<'static>, CallError> {
        let raw = self.call_tool_raw(tool, Arguments::Value(arguments), options).await?;
        decode::<CallToolParams<'_>>(&raw)
    }

    /// Calls a tool and returns the result as raw JSON, undecoded. Raw arguments are not decoded either.
    ///
    /// Departs from spec 2025-06-18, tools §Output Schema: structured content is not validated against its
    /// schema here, because most callers forward it. The decoding caller validates.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call and notifies the server.
    pub async fn call_tool_raw(
        &self,
        tool: &str,
        arguments: Arguments<'_>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let session = &self.session;
        session.require_tools()?;
        let params =
            CallToolParams { name: tool, arguments: Some(or_empty_object(arguments)), task: None };
        if session.needs_task(tool) {
            // Boxed: few tools need a task, and the future of a plain call should stay small.
            return Box::pin(session.call_as_task(params, options)).await;
        }
        // The manager has its own span per call, so this one is for debugging only. Creating a disabled span
        // still costs time on every call, so the level is checked first.
        if LevelFilter::current() < LevelFilter::DEBUG {
            return session.send_multi_round_trip(&params, options).await;
        }
        let span = tracing::debug_span!("mcp.call", server = self.name(), tool);
        Box::pin(session.send_multi_round_trip(&params, options).instrument(span)).await
    }

    /// Lists the tools: from the cache while the server's TTL allows, else fetched now.
    pub async fn list_tools(&self) -> Result<Arc<List<Tool>>, CallError> {
        let session = &self.session;
        session.require_tools()?;
        session.list().await
    }

    /// Lists the resources.
    pub async fn list_resources(&self) -> Result<Arc<List<Resource>>, CallError> {
        self.session.require("resources", |has| has.resources.is_some())?;
        self.session.list().await
    }

    /// Lists the resource templates.
    pub async fn list_resource_templates(&self) -> Result<Arc<List<ResourceTemplate>>, CallError> {
        self.session.require("resources", |has| has.resources.is_some())?;
        self.session.list().await
    }

    /// Lists the prompts.
    pub async fn list_prompts(&self) -> Result<Arc<List<Prompt>>, CallError> {
        self.session.require("prompts", |has| has.prompts.is_some())?;
        self.session.list().await
    }

    /// Reads a resource. The URI is sent unchanged.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request and notifies the server.
    #[tracing::instrument(name = "mcp.read", skip_all, fields(server = self.name()))]
    pub async fn read_resource(
        &self,
        uri: &str,
        options: &CallOptions,
    ) -> Result<ReadResourceResult, CallError> {
        let outcome = self.read_resource_raw(uri, options).await;
        // Spec 2026-07-28, resources §Error Handling: both codes mean "resource not found".
        let raw = outcome.map_err(|error| match error {
            CallError::Refused(source) if ErrorCode(source.code).may_be_missing_resource() => {
                CallError::NoSuchResource { uri: uri.to_owned(), source }
            }
            other => other,
        })?;
        decode::<ReadResourceParams<'_>>(&raw)
    }

    /// Reads a resource and returns the result as raw JSON.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request and notifies the server.
    pub async fn read_resource_raw(
        &self,
        uri: &str,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        self.session.require("resources", |has| has.resources.is_some())?;
        self.session.send_multi_round_trip(&ReadResourceParams { uri }, options).await
    }

    /// Gets a prompt, filled in with `arguments`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request and notifies the server.
    #[tracing::instrument(name = "mcp.prompt", skip_all, fields(server = self.name(), prompt = name))]
    pub async fn get_prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        options: &CallOptions,
    ) -> Result<GetPromptResult, CallError> {
        let raw = self.get_prompt_raw(name, arguments, options).await?;
        decode::<GetPromptParams<'_>>(&raw)
    }

    /// Gets a prompt and returns the result as raw JSON.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request and notifies the server.
    pub async fn get_prompt_raw(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        self.session.require("prompts", |has| has.prompts.is_some())?;
        let arguments = (!arguments.is_empty()).then_some(arguments);
        self.session.send_multi_round_trip(&GetPromptParams { name, arguments }, options).await
    }

    /// Completes an argument. `resolved` holds the arguments that already have a value.
    pub async fn complete(
        &self,
        reference: CompletionRef<'_>,
        argument: CompletionArgument<'_>,
        resolved: &BTreeMap<String, String>,
    ) -> Result<Completion, CallError> {
        let raw = self.complete_raw(reference, argument, resolved, &CallOptions::default()).await?;
        Ok(decode::<CompleteParams<'_>>(&raw)?.completion)
    }

    /// Completes an argument and returns the result as raw JSON.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request and notifies the server.
    pub async fn complete_raw(
        &self,
        reference: CompletionRef<'_>,
        argument: CompletionArgument<'_>,
        resolved: &BTreeMap<String, String>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let session = &self.session;
        session.require("completion", |has| has.completions)?;
        let has_context = session.revision().has_completion_context() && !resolved.is_empty();
        let context = has_context.then_some(CompletionContext { arguments: resolved });
        let params = CompleteParams { reference, argument, context };
        let raw = session.send(&params, options, WantProgress::No).await?;
        session.require_complete(Method::Complete, raw)
    }

    /// Subscribes to updates of a resource; they arrive as
    /// [`Event::ResourceUpdated`](crate::Event::ResourceUpdated).
    pub async fn subscribe_resource(&self, uri: &str) -> Result<(), CallError> {
        let session = &self.session;
        session.require("resource subscriptions", |has| {
            has.resources.is_some_and(|resources| resources.subscribe)
        })?;
        if session.era() == Era::Legacy {
            session.call(&SubscribeParams { uri }, &CallOptions::default()).await?;
            // After the response: a rejected subscription must not be renewed in a new session.
            session.legacy_subscriptions.lock().insert(uri.to_owned());
            return Ok(());
        }
        if session.resource_subscriptions.lock().len() >= MAX_SUBSCRIPTIONS {
            return Err(CallError::TooManySubscriptions { limit: MAX_SUBSCRIPTIONS });
        }
        let filter = SubscriptionFilter {
            resource_subscriptions: vec![uri.to_owned()],
            ..SubscriptionFilter::default()
        };
        let subscription = Subscription::open(session, filter, None);
        // An early return drops the handle, which ends the subscription.
        let missing = subscription.acknowledged(session.timeouts.call).await?;
        if !missing.resource_subscriptions.is_empty() {
            return Err(CallError::NotGranted { uri: uri.to_owned() });
        }
        session.resource_subscriptions.lock().insert(uri.to_owned(), subscription);
        Ok(())
    }

    /// Ends a resource subscription.
    pub async fn unsubscribe_resource(&self, uri: &str) -> Result<(), CallError> {
        let session = &self.session;
        if session.era() == Era::Legacy {
            // First, so that a session restore in between does not renew it.
            session.legacy_subscriptions.lock().remove(uri);
            session.call(&UnsubscribeParams { uri }, &CallOptions::default()).await?;
            return Ok(());
        }
        session.resource_subscriptions.lock().remove(uri);
        Ok(())
    }

    /// Sets the minimum level of log messages. A legacy server gets a request now, a modern one gets the level
    /// with every later call.
    pub async fn set_log_level(&self, level: LogLevel) -> Result<(), CallError> {
        let session = &self.session;
        session.require("logging", |has| has.logging)?;
        if session.era() == Era::Legacy {
            session.call(&SetLevelParams { level }, &CallOptions::default()).await?;
        }
        *session.log_level.lock() = Some(level);
        Ok(())
    }

    /// Lets a modern server send log messages also between calls, if it has a list subscription. A legacy server
    /// does so anyway.
    pub fn subscribe_log(&self, level: LogLevel) {
        let session = &self.session;
        let mut subscription = session.list_subscription.lock();
        let replacement =
            subscription.as_ref().map(|current| current.with_log_level(session, level));
        if replacement.is_some() {
            // Assigning drops the old subscription, which ends it.
            *subscription = replacement;
        }
    }

    /// Checks that the server responds. The modern era has no `ping`, so `server/discover` takes its place.
    pub async fn ping(&self) -> Result<(), CallError> {
        let session = &self.session;
        let options = CallOptions::default();
        match session.era() {
            Era::Legacy => session.call(&PingParams {}, &options).await.map(drop),
            Era::Modern => session.call(&DiscoverParams {}, &options).await.map(drop),
        }
    }

    /// Notifies a legacy server of changed roots, if that capability was declared.
    pub async fn notify_roots_changed(&self) -> Result<(), CallError> {
        let session = &self.session;
        let declared =
            session.request_handler.capabilities.roots.is_some_and(|roots| roots.list_changed);
        if !declared || session.era() == Era::Modern {
            return Ok(());
        }
        Ok(session.transport.notify(Method::RootsListChanged.as_str(), &NoParams).await?)
    }

    /// Closes the connection, ends the server process, and returns the close reason. Open calls fail.
    ///
    /// # Cancel safety
    /// Once called, the connection closes even if the future is dropped.
    pub async fn close(&self) -> CloseReason {
        let session = &self.session;
        let mut close_on_drop = CloseOnDrop(Some(session));
        // `tasks/cancel` requests need the open transport, so they go first; a server that does not answer them
        // must not hold up the close.
        session.task_cancellations.close();
        drop(timeout(CANCEL_TIMEOUT, session.task_cancellations.wait()).await);
        close_on_drop.0 = None;
        let reason = session.start_close().await;
        session.tasks.wait().await;
        reason
    }

    /// Like [`close`](Self::close), consuming the client.
    pub async fn shutdown(self) {
        let reason = self.close().await;
        tracing::debug!(server = self.name(), %reason, "connection closed");
    }
}

/// Closes the connection if the caller of `close` stops waiting for the cancellation of its tasks.
struct CloseOnDrop<'a>(Option<&'a Session>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        drop(self.0.map(Session::start_close));
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.session.stop.cancel();
    }
}

/// Replaces missing arguments with `{}`: some servers reject a call without arguments.
fn or_empty_object(arguments: Arguments<'_>) -> Arguments<'_> {
    static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));
    match arguments {
        Arguments::Value(Value::Null) => Arguments::Value(&EMPTY_OBJECT),
        arguments => arguments,
    }
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("timeout", &self.timeout)
            .field("total_timeout", &self.total_timeout)
            .field("log_level", &self.log_level)
            .finish_non_exhaustive()
    }
}
