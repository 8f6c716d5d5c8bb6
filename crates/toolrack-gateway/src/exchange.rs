//! One request of one client, from its method to its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use toolrack_client::CallOptions;
use toolrack_mcp::{
    CompletionArgument, CompletionRef, Era, LogLevel, MetaKey, Method, MethodKind, Revision, Sender,
};
use toolrack_rpc::RequestId;

use crate::caller::Caller;
use crate::conversation::Conversation;
use crate::failure;
use crate::gateway::Shared;
use crate::outbox::Outbox;
use crate::params::{Params, Reference};
use crate::reshape::reshape;
use crate::seat::{Place, Wanted};
use crate::wire::{Outcome, invalid_params, no_method, result};

/// One request that is being answered.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) shared: Arc<Shared>,
    pub(crate) caller: Arc<Caller>,
    /// The session it belongs to, which can be asked back. None in the modern era.
    pub(crate) home: Option<Arc<Conversation>>,
    pub(crate) out: Arc<Outbox>,
    pub(crate) id: RequestId,
    /// How long a server may take, if the client says so. Otherwise the config does.
    pub(crate) patience: Option<Duration>,
}

/// The request that a name stands for, if the revision has it and a client may send it.
fn known(method: &str, revision: Revision) -> Option<Method> {
    let method = Method::parse(method)?;
    let is_asked = method.kind() == MethodKind::Request && method.sender() != Sender::Server;
    (is_asked && method.is_in(revision)).then_some(method)
}

impl Exchange {
    /// Answers the request.
    pub(crate) async fn serve(&self, name: &str, raw: Option<Bytes>) -> Outcome {
        let method = known(name, self.caller.revision).ok_or_else(|| no_method(name))?;
        let params = &Params::read(raw.as_deref())?;
        if !self.shared.offers(method) {
            return Err(no_method(name));
        }
        match method {
            Method::Ping => result(&json!({})),
            Method::Discover => self.discover(),
            Method::ListTools => self.list_tools(params),
            Method::ListPrompts => self.list_prompts(params).await,
            Method::ListResources => self.list_resources(params).await,
            Method::ListResourceTemplates => self.list_templates(params).await,
            // The long ways are boxed, so that the short ones stay small.
            Method::CallTool | Method::GetPrompt | Method::ReadResource => {
                Box::pin(self.relay(method, params)).await
            }
            Method::Complete => self.complete(params).await,
            Method::SetLevel => self.set_level(params).await,
            Method::Subscribe => self.subscribe(params).await,
            Method::Unsubscribe => self.unsubscribe(params),
            Method::Listen => Box::pin(self.listen(params)).await,
            _ => Err(no_method(name)),
        }
    }

    pub(crate) fn era(&self) -> Era {
        self.caller.era()
    }

    /// Where what servers say about this request goes.
    pub(crate) fn place(&self, params: &Params<'_>) -> Result<Place, toolrack_rpc::JsonRpcError> {
        let wanted = match &self.home {
            Some(home) => Wanted::BySession(Arc::clone(home.level())),
            None => Wanted::ByRequest(params.log_level()?),
        };
        Ok(Place { out: Arc::clone(&self.out), token: params.progress_token()?, wanted })
    }

    /// Spec 2026-07-28, discovery. Legacy revisions are listed too: `initialize` works as well.
    fn discover(&self) -> Outcome {
        let revision = self.caller.revision;
        let versions: Vec<&str> = Revision::ALL.iter().rev().map(|it| it.as_str()).collect();
        let mut found = json!({
            "resultType": "complete",
            "supportedVersions": versions,
            "capabilities": self.shared.capabilities(revision),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": { MetaKey::SERVER_INFO: self.shared.server_info(revision) },
        });
        if let (Some(members), Some(text)) = (found.as_object_mut(), self.shared.instructions()) {
            members.insert("instructions".to_owned(), text.into());
        }
        result(&found)
    }

    async fn complete(&self, params: &Params<'_>) -> Outcome {
        let (Some(reference), Some(argument)) = (&params.reference, &params.argument) else {
            return Err(invalid_params("`ref` and `argument` are needed"));
        };
        let (server, raw_name);
        let reference = match reference {
            Reference::Prompt { name } => {
                (server, raw_name) = self.shared.prompt(name).await?;
                CompletionRef::Prompt { name: &raw_name }
            }
            Reference::Resource { uri } => {
                server = self.shared.owner(uri).await?;
                CompletionRef::Resource { uri }
            }
        };
        let argument = CompletionArgument { name: &argument.name, value: &argument.value };
        let chosen = params.context.as_ref().map(|it| it.arguments.clone()).unwrap_or_default();
        let on_behalf = Some(Arc::new(self.caller.behalf(params)?));
        let options = CallOptions { on_behalf, ..CallOptions::default() };
        let client = self.shared.borrow(&server, self.era()).await?;
        let completed = client.complete_raw(reference, argument, &chosen, &options).await;
        let raw = completed.map_err(|error| failure::of_call(error, self.era()))?;
        Ok(reshape(raw, self.era(), Method::Complete))
    }

    async fn set_level(&self, params: &Params<'_>) -> Outcome {
        let level = params.level.and_then(|it| serde_json::from_str::<LogLevel>(it.get()).ok());
        let level = level.ok_or_else(|| invalid_params("`level` is missing or unknown"))?;
        if let Some(home) = &self.home {
            *crate::lock::lock(home.level()) = Some(level);
        }
        self.shared.set_level(level).await;
        result(&json!({}))
    }

    async fn subscribe(&self, params: &Params<'_>) -> Outcome {
        let uri = params.required_uri()?;
        let listener = self.home.as_ref().and_then(|it| it.listener());
        if let Some(asking) = listener.and_then(|it| it.add(uri)) {
            self.shared.subscribe(uri, self.era()).await?;
            // The client may have changed its mind or gone meanwhile.
            if !asking.counted() {
                self.shared.unsubscribe(uri);
            }
        }
        result(&json!({}))
    }

    fn unsubscribe(&self, params: &Params<'_>) -> Outcome {
        let uri = params.required_uri()?;
        if let Some(listener) = self.home.as_ref().and_then(|it| it.listener())
            && listener.remove(uri)
        {
            self.shared.unsubscribe(uri);
        }
        result(&json!({}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protocol facts §7.1.
    #[test]
    fn each_revision_has_its_methods() {
        let check = |method: &str, legacy: bool, modern: bool| {
            let in_legacy = known(method, Revision::R2025_11_25).is_some();
            let in_modern = known(method, Revision::R2026_07_28).is_some();
            assert_eq!((in_legacy, in_modern), (legacy, modern), "{method}");
        };
        check("tools/call", true, true);
        check("ping", true, false);
        check("initialize", true, false);
        check("logging/setLevel", true, false);
        check("resources/subscribe", true, false);
        check("server/discover", false, true);
        check("subscriptions/listen", false, true);
        check("elicitation/create", false, false);
        check("notifications/cancelled", false, false);
        check("made/up", false, false);
    }
}
