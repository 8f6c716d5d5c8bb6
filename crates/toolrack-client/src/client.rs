//! One server, typed: the handle that programs hold.
//!
//! **Invariant:** when `close` returns, the transport and every task of the connection have ended. Dropping
//! the client ends them too, without waiting.
//!
//! Calls of tools, from raw and fast to plain and easy.
//!
//! What servers have besides calls of tools: lists, resources, prompts, completion, log levels.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;
use toolrack_mcp::{
    Arguments, CallToolParams, CompleteParams, Completion, CompletionArgument, CompletionContext,
    CompletionRef, DiscoverParams, Era, ErrorCode, GetPromptParams, GetPromptResult,
    Implementation, LogLevel, Method, Notification, PingParams, Prompt, ReadResourceParams,
    ReadResourceResult, Resource, ResourceTemplate, Revision, RootsListChanged, ServerCapabilities,
    SetLevelParams, SubscribeParams, SubscriptionFilter, Tool, ToolCallResult, UnsubscribeParams,
};
use toolrack_transport::{Diagnosis, Ending, NoParams, RawJson};
use tracing::Instrument as _;
use tracing::level_filters::LevelFilter;

use crate::builder::ClientBuilder;
use crate::error::CallError;
use crate::event::Events;
use crate::pagination::List;
use crate::progress::OnProgress;
use crate::request_meta::ForwardedFor;
use crate::session::{Feature, Session, decode, lock};
use crate::subscriptions::Subscription;
use crate::task_polling::CANCEL_TIMEOUT;
use crate::tool::{McpToolDef, McpToolResult};
use crate::version_detection::DetectedVersion;

/// Subscriptions to resources of one modern server. Each is an open request.
const MAX_SUBSCRIPTIONS: usize = 256;

/// A connection to one MCP server, of whatever era.
///
/// The runtime in which it is connected has to run for as long as it is used. When that is dropped the connection ends,
/// and calls fail.
#[derive(Debug)]
pub struct McpClient {
    session: Arc<Session>,
}

/// What a caller may want of one call. The default is what the client was set to.
#[derive(Clone, Default)]
pub struct CallOptions {
    /// How long to wait without a sign of work from the server.
    pub timeout: Option<Duration>,
    /// How long to wait in all.
    pub total_timeout: Option<Duration>,
    /// Called with each report of progress, in the caller's own task and before the call returns.
    pub on_progress: Option<OnProgress>,
    /// From which level on the server may send log messages while it works. In the legacy era this is set
    /// for the whole conversation instead.
    pub log_level: Option<LogLevel>,
    /// Set by a program that passes a request on for its own client. A result that asks something is then
    /// given back instead of being answered here.
    pub forwarded_for: Option<Arc<ForwardedFor>>,
}

impl McpClient {
    /// Begins a connection to a server that will be called `name` in spans, questions and errors.
    pub fn builder(name: &str) -> ClientBuilder {
        ClientBuilder::new(name)
    }

    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// What we call the server.
    pub fn name(&self) -> &str {
        &self.session.request_handler.server_name
    }

    /// What the server calls itself. For display only.
    pub fn server_info(&self) -> Option<&Implementation> {
        self.session.server.implementation.as_ref()
    }

    /// What the server offers.
    pub fn capabilities(&self) -> &ServerCapabilities {
        &self.session.server.capabilities
    }

    /// How to use the server, for a model to read.
    pub fn instructions(&self) -> Option<&str> {
        self.session.server.instructions.as_deref()
    }

    /// What was agreed.
    pub fn revision(&self) -> Revision {
        self.session.revision()
    }

    /// The era of the server.
    pub fn era(&self) -> Era {
        self.session.era()
    }

    /// What to remember about the server, for [`ClientBuilder::remembered`].
    pub fn detected_version(&self) -> DetectedVersion {
        DetectedVersion::new(self.revision())
    }

    /// What has been odd on the transport so far.
    pub fn transport_stats(&self) -> Diagnosis {
        self.session.transport.diagnosis()
    }

    /// How many requests of the server were left without an answer, because its era does not have them or
    /// because there were too many.
    pub fn n_ignored_requests(&self) -> u64 {
        self.session.incoming.ignored()
    }

    /// The tools as they were fetched last. ListChanges that the server tells are fetched by themselves.
    pub fn tools(&self) -> Arc<List<Tool>> {
        self.session.cached_list()
    }

    /// The tools in their plainest form.
    pub fn tool_defs(&self) -> Vec<McpToolDef> {
        self.tools().items.iter().map(McpToolDef::from).collect()
    }

    /// Everything that happens from now on.
    pub fn subscribe(&self) -> Events {
        self.session.incoming.events.subscribe()
    }

    /// How the transport ended, if it has.
    pub fn close_reason(&self) -> Option<&Ending> {
        self.session.incoming.events.close_reason()
    }

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
        let raw = self.call_tool_with(tool, Arguments::Value(arguments), &options).await?;
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
        let raw = self.call_tool_with(tool, Arguments::Value(arguments), options).await?;
        parse(&raw).map(ToolCallResult::into_owned)
    }

    /// Calls a tool and gives the result as the server wrote it. Nothing is decoded on the way: the
    /// arguments are written as they are, and the result is cut out of its transport.
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
        self.call_tool_with(tool, Arguments::Raw(arguments), options).await
    }

    /// The same, with arguments in the form in which the caller has them.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_tool_with(
        &self,
        tool: &str,
        arguments: Arguments<'_>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let session = self.session();
        session.require(Feature::Tools)?;
        let params = CallToolParams::new(tool, Some(or_empty_object(arguments)));
        if session.needs_task(tool) {
            return Box::pin(session.call_as_task(params, options)).await;
        }
        let calling = session.send_multi_round_trip(params, options);
        // Whoever manages many servers has a span of its own for each call; this one is for debugging. A span
        // that nobody wants costs something too, so it is not even made.
        if LevelFilter::current() < LevelFilter::DEBUG {
            return calling.await;
        }
        let span = tracing::debug_span!("mcp.call", server = self.name(), tool);
        Box::pin(calling.instrument(span)).await
    }

    /// The tools, fresh: fetched now, unless the server says that the last list is still good.
    pub async fn list_tools(&self) -> Result<Arc<List<Tool>>, CallError> {
        let session = self.session();
        session.require(Feature::Tools)?;
        session.list().await
    }

    /// The resources, fresh.
    pub async fn list_resources(&self) -> Result<Arc<List<Resource>>, CallError> {
        self.session().require(Feature::Resources)?;
        self.session().list().await
    }

    /// The families of resources, fresh.
    pub async fn list_resource_templates(&self) -> Result<Arc<List<ResourceTemplate>>, CallError> {
        self.session().require(Feature::Resources)?;
        self.session().list().await
    }

    /// The prompts, fresh.
    pub async fn list_prompts(&self) -> Result<Arc<List<Prompt>>, CallError> {
        self.session().require(Feature::Prompts)?;
        self.session().list().await
    }

    /// What a resource holds. The URI goes out as it is.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request, and the server is told.
    #[tracing::instrument(name = "mcp.read", skip_all, fields(server = self.name()))]
    pub async fn read_resource(
        &self,
        uri: &str,
        options: &CallOptions,
    ) -> Result<ReadResourceResult<'static>, CallError> {
        let outcome = self.read_resource_raw(uri, options).await;
        // Spec 2026-07-28, resources §Error Handling: either code means that there is none.
        let raw = outcome.map_err(|error| match error {
            CallError::Refused(source) if ErrorCode(source.code).may_mean_no_resource() => {
                CallError::NoSuchResource { uri: uri.to_owned(), source }
            }
            other => other,
        })?;
        decode::<ReadResourceParams<'_>>(&raw)
    }

    /// The same as the server wrote it.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request, and the server is told.
    pub async fn read_resource_raw(
        &self,
        uri: &str,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        self.session().require(Feature::Resources)?;
        self.session().send_multi_round_trip(ReadResourceParams::new(uri), options).await
    }

    /// A prompt, filled in.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request, and the server is told.
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

    /// The same as the server wrote it.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request, and the server is told.
    pub async fn get_prompt_raw(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        self.session().require(Feature::Prompts)?;
        let arguments = (!arguments.is_empty()).then_some(arguments);
        self.session().send_multi_round_trip(GetPromptParams::new(name, arguments), options).await
    }

    /// What an argument could be, given what has been typed and what was resolved before.
    pub async fn complete(
        &self,
        reference: CompletionRef<'_>,
        argument: CompletionArgument<'_>,
        resolved: &BTreeMap<String, String>,
    ) -> Result<Completion, CallError> {
        let raw = self.complete_raw(reference, argument, resolved, &CallOptions::default()).await?;
        Ok(decode::<CompleteParams<'_>>(&raw)?.completion)
    }

    /// The same as the server wrote it.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request, and the server is told.
    pub async fn complete_raw(
        &self,
        reference: CompletionRef<'_>,
        argument: CompletionArgument<'_>,
        resolved: &BTreeMap<String, String>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let session = self.session();
        session.require(Feature::Completion)?;
        let has_context = session.revision().has_completion_context() && !resolved.is_empty();
        let context = has_context.then_some(CompletionContext { arguments: resolved });
        let params = CompleteParams { reference, argument, context };
        let raw = session.send_without_progress(&params, options).await?;
        session.require_complete(Method::Complete, raw)
    }

    /// Asks to be told when a resource changes; the news come as
    /// [`Event::ResourceUpdated`](crate::Event::ResourceUpdated).
    pub async fn subscribe_resource(&self, uri: &str) -> Result<(), CallError> {
        let session = self.session();
        session.require(Feature::ResourceSubscriptions)?;
        if session.era() == Era::Legacy {
            session.call(&SubscribeParams { uri }, session.default_timeout()).await?;
            lock(&session.legacy_subscriptions).insert(uri.to_owned());
            return Ok(());
        }
        if lock(&session.resource_subscriptions).len() >= MAX_SUBSCRIPTIONS {
            return Err(CallError::Unsupported { feature: "so many subscriptions" });
        }
        let filter = SubscriptionFilter {
            resource_subscriptions: vec![uri.to_owned()],
            ..SubscriptionFilter::default()
        };
        let mut subscription = Subscription::open(session, filter);
        let missing = subscription.acknowledged(session.timeouts.call).await?;
        if !missing.resource_subscriptions.is_empty() {
            return Err(CallError::NotGranted { uri: uri.to_owned() });
        }
        lock(&session.resource_subscriptions).insert(uri.to_owned(), subscription);
        Ok(())
    }

    /// Asks to be told no more.
    pub async fn unsubscribe_resource(&self, uri: &str) -> Result<(), CallError> {
        let session = self.session();
        if session.era() == Era::Legacy {
            lock(&session.legacy_subscriptions).remove(uri);
            session.call(&UnsubscribeParams { uri }, session.default_timeout()).await?;
            return Ok(());
        }
        lock(&session.resource_subscriptions).remove(uri);
        Ok(())
    }

    /// From which level on log messages are wanted. A legacy server is told now, a modern one with every
    /// call from now on.
    pub async fn set_log_level(&self, level: LogLevel) -> Result<(), CallError> {
        let session = self.session();
        session.require(Feature::Logging)?;
        if session.era() == Era::Legacy {
            session.call(&SetLevelParams { level }, session.default_timeout()).await?;
        }
        *lock(&session.log_level) = Some(level);
        Ok(())
    }

    /// Asks a modern server to send log messages from `level` on also while no call is under way, as far as it tells
    /// of changes at all. A legacy one does so by itself.
    pub fn subscribe_log(&self, level: LogLevel) {
        let session = self.session();
        let mut lists = lock(&session.list_subscription);
        let replacement = lists.as_ref().map(|current| current.with_log_level(session, level));
        if replacement.is_some() {
            *lists = replacement;
        }
    }

    /// Asks whether the server still subscriptions. The modern era has no `ping`, so it is asked what it
    /// offers.
    pub async fn ping(&self) -> Result<(), CallError> {
        let session = self.session();
        match session.era() {
            Era::Legacy => session.call(&PingParams {}, session.default_timeout()).await.map(drop),
            Era::Modern => {
                session.call(&DiscoverParams {}, session.default_timeout()).await.map(drop)
            }
        }
    }

    /// Tells the server that the roots are others now, if it was declared to be told.
    pub async fn notify_roots_changed(&self) -> Result<(), CallError> {
        let session = self.session();
        let declared =
            session.request_handler.capabilities.roots.is_some_and(|roots| roots.list_changed);
        if !declared || session.era() == Era::Modern {
            return Ok(());
        }
        Ok(session.transport.notify(RootsListChanged::METHOD.as_str(), &NoParams).await?)
    }

    /// Ends the connection and the server behind it, and says how it ended. Calls that are open fail.
    ///
    /// # Cancel safety
    /// Once called, the connection ends even if the future is dropped.
    pub async fn close(&self) -> Ending {
        self.session.task_cancellations.close();
        drop(timeout(CANCEL_TIMEOUT, self.session.task_cancellations.wait()).await);
        self.session.stop.cancel();
        self.session.tasks.close();
        let ending = self.session.transport.close().await;
        self.session.tasks.wait().await;
        ending
    }

    /// Like [`close`](Self::close), for the last holder.
    pub async fn shutdown(self) {
        let ending = self.close().await;
        tracing::debug!(server = self.name(), %ending, "connection closed");
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.session.stop.cancel();
    }
}

/// Some servers want `{}` rather than nothing.
fn or_empty_object(arguments: Arguments<'_>) -> Arguments<'_> {
    static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(serde_json::Map::new()));
    match arguments {
        Arguments::Value(Value::Null) => Arguments::Value(&EMPTY_OBJECT),
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
            .field("total_timeout", &self.total_timeout)
            .field("log_level", &self.log_level)
            .finish_non_exhaustive()
    }
}
