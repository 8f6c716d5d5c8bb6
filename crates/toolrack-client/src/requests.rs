//! What servers have besides calls of tools: lists, resources, prompts, completion, log levels.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolrack_mcp::{
    CompleteParams, Completion, CompletionArgument, CompletionContext, CompletionRef,
    DiscoverParams, Era, ErrorCode, GetPromptParams, GetPromptResult, LogLevel, Method,
    Notification, PingParams, Prompt, ReadResourceParams, ReadResourceResult, Resource,
    ResourceTemplate, RootsListChanged, SetLevelParams, SubscribeParams, SubscriptionFilter, Tool,
    UnsubscribeParams,
};
use toolrack_transport::{NoParams, RawJson};

use crate::call::CallOptions;
use crate::client::McpClient;
use crate::error::CallError;
use crate::lock::lock;
use crate::pagination::Listing;
use crate::session::{Feature, decode};
use crate::subscriptions::Subscription;

/// Subscriptions to resources of one modern server. Each is an open request.
const MAX_SUBSCRIPTIONS: usize = 256;

impl McpClient {
    /// The tools, fresh: fetched now, unless the server says that the last list is still good.
    pub async fn list_tools(&self) -> Result<Arc<Listing<Tool>>, CallError> {
        let session = self.session();
        session.require(Feature::Tools)?;
        session.list().await
    }

    /// The resources, fresh.
    pub async fn list_resources(&self) -> Result<Arc<Listing<Resource>>, CallError> {
        self.session().require(Feature::Resources)?;
        self.session().list().await
    }

    /// The families of resources, fresh.
    pub async fn list_resource_templates(
        &self,
    ) -> Result<Arc<Listing<ResourceTemplate>>, CallError> {
        self.session().require(Feature::Resources)?;
        self.session().list().await
    }

    /// The prompts, fresh.
    pub async fn list_prompts(&self) -> Result<Arc<Listing<Prompt>>, CallError> {
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
        self.session().converse(ReadResourceParams::new(uri), options).await
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
        self.session().converse(GetPromptParams::new(name, arguments), options).await
    }

    /// What an argument could be, given what has been typed and what was chosen before.
    pub async fn complete(
        &self,
        reference: CompletionRef<'_>,
        argument: CompletionArgument<'_>,
        chosen: &BTreeMap<String, String>,
    ) -> Result<Completion, CallError> {
        let raw = self.complete_raw(reference, argument, chosen, &CallOptions::default()).await?;
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
        chosen: &BTreeMap<String, String>,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let session = self.session();
        session.require(Feature::Completion)?;
        let known = session.revision().has_completion_context() && !chosen.is_empty();
        let context = known.then_some(CompletionContext { arguments: chosen });
        let params = CompleteParams { reference, argument, context };
        let raw = session.request(&params, options).await?;
        session.complete(Method::Complete, raw)
    }

    /// Asks to be told when a resource changes; the news come as
    /// [`Event::ResourceUpdated`](crate::Event::ResourceUpdated).
    pub async fn subscribe_resource(&self, uri: &str) -> Result<(), CallError> {
        let session = self.session();
        session.require(Feature::Subscriptions)?;
        if session.era() == Era::Legacy {
            session.ask(&SubscribeParams { uri }, session.usual_patience()).await?;
            lock(&session.subscribed).insert(uri.to_owned());
            return Ok(());
        }
        if lock(&session.resources).len() >= MAX_SUBSCRIPTIONS {
            return Err(CallError::Unsupported { feature: "so many subscriptions" });
        }
        let filter = SubscriptionFilter {
            resource_subscriptions: vec![uri.to_owned()],
            ..SubscriptionFilter::default()
        };
        let mut subscription = Subscription::open(session, filter);
        let missing = subscription.granted(session.timeouts.call).await?;
        if !missing.resource_subscriptions.is_empty() {
            return Err(CallError::NotGranted { uri: uri.to_owned() });
        }
        lock(&session.resources).insert(uri.to_owned(), subscription);
        Ok(())
    }

    /// Asks to be told no more.
    pub async fn unsubscribe_resource(&self, uri: &str) -> Result<(), CallError> {
        let session = self.session();
        if session.era() == Era::Legacy {
            lock(&session.subscribed).remove(uri);
            session.ask(&UnsubscribeParams { uri }, session.usual_patience()).await?;
            return Ok(());
        }
        lock(&session.resources).remove(uri);
        Ok(())
    }

    /// From which level on log messages are wanted. A legacy server is told now, a modern one with every
    /// call from now on.
    pub async fn set_log_level(&self, level: LogLevel) -> Result<(), CallError> {
        let session = self.session();
        session.require(Feature::Logging)?;
        if session.era() == Era::Legacy {
            session.ask(&SetLevelParams { level }, session.usual_patience()).await?;
        }
        *lock(&session.log_level) = Some(level);
        Ok(())
    }

    /// Asks a modern server to send log messages from `level` on also while no call is under way, as far as it tells
    /// of changes at all. A legacy one does so by itself.
    pub fn listen_to_log(&self, level: LogLevel) {
        let session = self.session();
        let mut lists = lock(&session.lists);
        let anew = lists.as_ref().map(|it| it.anew(session, level));
        if anew.is_some() {
            *lists = anew;
        }
    }

    /// Asks whether the server still listens. The modern era has no `ping`, so it is asked what it
    /// offers.
    pub async fn ping(&self) -> Result<(), CallError> {
        let session = self.session();
        match session.era() {
            Era::Legacy => session.ask(&PingParams {}, session.usual_patience()).await.map(drop),
            Era::Modern => {
                session.ask(&DiscoverParams {}, session.usual_patience()).await.map(drop)
            }
        }
    }

    /// Tells the server that the roots are others now, if it was promised to be told.
    pub async fn roots_changed(&self) -> Result<(), CallError> {
        let session = self.session();
        let promised = session.respondent.capabilities.roots.is_some_and(|it| it.list_changed);
        if !promised || session.era() == Era::Modern {
            return Ok(());
        }
        Ok(session.line.notify(RootsListChanged::METHOD.as_str(), &NoParams).await?)
    }
}
