//! One request of one client, from its method to its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;
use toolrack_client::{Behalf, CallOptions};
use toolrack_mcp::{
    CompletionArgument, CompletionRef, Era, LogLevel, MetaKey, Method, MethodKind, Revision, Sender,
};
use toolrack_transport::{JsonRpcError, RequestId};

use crate::active_request::{Asked, Owner, Seat, Spot, Wanted};
use crate::client_info::Caller;
use crate::client_session::Conversation;
use crate::encode::{Outcome, invalid_params, no_method, result};
use crate::error_mapping::{self as failure, Manner};
use crate::gateway::{Behind, Shared};
use crate::message_queue::Outbox;
use crate::params::{Params, Reference};
use crate::result_compat::reshape;
use crate::server_queue::{End, TURN};

/// One request that is being answered.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) shared: Arc<Shared>,
    pub(crate) caller: Arc<Caller>,
    /// Whose it is, as far as that can be told.
    pub(crate) owner: Owner,
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
            Method::ListTools => self.list_tools(params).await,
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

    pub(crate) fn manner(&self) -> Manner {
        self.shared.manner(self.era())
    }

    /// Where what servers say about this request goes.
    pub(crate) fn spot(&self, params: &Params<'_>) -> Result<Spot, JsonRpcError> {
        let wanted = match &self.home {
            Some(home) => Wanted::BySession(Arc::clone(home.level())),
            None => Wanted::ByRequest(params.log_level()?),
        };
        Ok(Spot { out: Arc::clone(&self.out), token: params.progress_token()?, wanted })
    }

    /// For whom this request is passed on.
    pub(crate) fn behalf(&self, params: &Params<'_>) -> Result<Behalf, JsonRpcError> {
        let name = match self.shared.options.behind {
            Behind::Servers => None,
            Behind::Gateway => Some(format!("{}:{:?}", self.shared.name, self.owner)),
        };
        self.caller.behalf(params, name.as_deref())
    }

    /// A place for this request at a server. Only the client of a session can be asked without a result.
    pub(crate) fn seat(
        &self,
        params: &Params<'_>,
    ) -> Result<(Arc<Seat>, Option<mpsc::Receiver<Asked>>), JsonRpcError> {
        let client = (Arc::clone(&self.caller), self.owner.clone());
        let (spot, naming) = (self.spot(params)?, self.shared.scope.naming());
        Ok(match &self.home {
            Some(home) => (Seat::in_session(home, client, spot, naming), None),
            None => {
                let (seat, asked) = Seat::new(client, spot, naming);
                (seat, Some(asked))
            }
        })
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
        let on_behalf = Some(Arc::new(self.behalf(params)?));
        let options = CallOptions { on_behalf, ..CallOptions::default() };
        let client = self.shared.borrow(&server, self.manner()).await?;
        // Nobody waits for questions, so a modern client is not asked.
        let (seat, questions) = self.seat(params)?;
        drop(questions);
        let seated = self.shared.switchboard.sit(&server, &seat, TURN).await;
        let completed = client.complete_raw(reference, argument, &chosen, &options).await;
        seated.ended(End::of_call(&completed));
        let raw = completed.map_err(|error| failure::of_call(error, self.manner()))?;
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
            self.shared.subscribe(uri, self.manner()).await?;
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
