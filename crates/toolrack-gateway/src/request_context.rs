//! Request context and method dispatch: one client request from its method name to its outcome.
//!
//! Lists, completion, log level and subscriptions are handled here; `tools/call`, `prompts/get` and `resources/read`
//! are forwarded by [`forward`](crate::forward).
//!
//! **Invariant:** merged lists keep the order of the servers and of each server's own list, for every client alike. A
//! URI that several servers list belongs to the first.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;
use toolrack_client::{CallOptions, ForwardedFor};
use toolrack_mcp::{
    CompletionArgument, CompletionRef, Era, ListEntry as _, LogLevel, MetaKey, Method, MethodKind,
    Prompt, Resource, ResourceTemplate, Revision, Sender, SubscriptionFilter, Tool,
};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

use crate::active_request::{ActiveRequest, ClientId, NotificationSink, ServerRequest};
use crate::client_session::ClientSession;
use crate::encode::{
    Outcome, invalid_params, invalid_request, method_not_found, notification, to_result,
};
use crate::error_mapping::{self, ErrorStyle};
use crate::gateway::{Shared, Upstream, encode_all};
use crate::list_cache::ServerList;
use crate::message_queue::{MessageQueue, StreamContent};
use crate::params::{ClientInfo, Params, Reference};
use crate::result_compat::adapt_result;
use crate::server_request_owner::{Completion, MAX_TURN};
use crate::subscriptions::{LogFilter, LogSubscriber, Subscriber, subscription_meta};

/// Resources of one `subscriptions/listen` request. Further ones are not granted.
const MAX_LISTEN_URIS: usize = 256;

/// One client request that is being handled.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) client_id: ClientId,
    /// Session of a legacy client, which accepts server requests. `None` for a modern client.
    pub(crate) session: Option<Arc<ClientSession>>,
    /// Stream on which the client gets the response and what precedes it.
    pub(crate) queue: Arc<MessageQueue>,
    pub(crate) id: RequestId,
    /// Timeout that the client sets. It replaces the configured one.
    pub(crate) timeout: Option<Duration>,
}

/// Unsubscribes from its resources when the `subscriptions/listen` request ends.
struct ListenGuard {
    shared: Arc<Shared>,
    uris: Vec<String>,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        self.uris.iter().for_each(|uri| self.shared.unsubscribe(uri));
    }
}

/// The method, if clients may send it as a request in this revision.
fn parse_client_method(method: &str, revision: Revision) -> Option<Method> {
    let method = Method::parse(method)?;
    let is_request = method.kind() == MethodKind::Request && method.sender() != Sender::Server;
    (is_request && method.is_in(revision)).then_some(method)
}

impl RequestContext {
    /// Handles the request.
    pub(crate) async fn handle(&self, name: &str, raw: Option<Bytes>) -> Outcome {
        let method = parse_client_method(name, self.client.revision);
        let method = method.ok_or_else(|| method_not_found(name))?;
        let params = &Params::parse(raw.as_deref())?;
        if !self.shared.offers(method) {
            return Err(method_not_found(name));
        }
        match method {
            Method::Ping => to_result(&json!({})),
            Method::Discover => self.discover(),
            Method::ListTools => self.list_tools(params).await,
            Method::ListPrompts => self.list_prompts(params).await,
            Method::ListResources => self.list_resources(params).await,
            Method::ListResourceTemplates => self.list_templates(params).await,
            // The large futures are boxed, so that the frequent small ones stay small.
            Method::CallTool | Method::GetPrompt | Method::ReadResource => {
                Box::pin(self.forward(method, params)).await
            }
            Method::Complete => self.complete(params).await,
            Method::SetLevel => self.set_level(params).await,
            Method::Subscribe => self.subscribe(params).await,
            Method::Unsubscribe => self.unsubscribe(params),
            Method::Listen => Box::pin(self.listen(params)).await,
            _ => Err(method_not_found(name)),
        }
    }

    pub(crate) fn era(&self) -> Era {
        self.client.era()
    }

    pub(crate) fn error_style(&self) -> ErrorStyle {
        self.shared.error_style(self.era())
    }

    /// Where notifications about this request go.
    pub(crate) fn notification_sink(
        &self,
        params: &Params<'_>,
    ) -> Result<NotificationSink, JsonRpcError> {
        let log_filter = match &self.session {
            Some(session) => LogFilter::Session(Arc::clone(session.log_level())),
            None => LogFilter::Request(params.log_level()?),
        };
        let progress_token = params.progress_token()?;
        Ok(NotificationSink { queue: Arc::clone(&self.queue), progress_token, log_filter })
    }

    /// The `_meta` with which this request is forwarded. Only another gateway learns which client it is from.
    pub(crate) fn forwarded_for(&self, params: &Params<'_>) -> Result<ForwardedFor, JsonRpcError> {
        let client_name = match self.shared.options.upstream {
            Upstream::Servers => None,
            Upstream::Gateway => Some(format!("{}:{}", self.shared.instance_id, self.client_id)),
        };
        self.client.forwarded_for(params, client_name.as_deref())
    }

    /// The active request for the server's queue. For a modern client, server requests arrive at the receiver.
    pub(crate) fn to_active_request(
        &self,
        params: &Params<'_>,
    ) -> Result<(Arc<ActiveRequest>, Option<mpsc::Receiver<ServerRequest>>), JsonRpcError> {
        let client = (Arc::clone(&self.client), self.client_id.clone());
        let (sink, naming) = (self.notification_sink(params)?, self.shared.scope.naming());
        Ok(match &self.session {
            Some(session) => (ActiveRequest::in_session(session, client, sink, naming), None),
            None => {
                let (request, incoming) = ActiveRequest::new(client, sink, naming);
                (request, Some(incoming))
            }
        })
    }

    /// Spec 2026-07-28, discovery. Legacy revisions are listed too, because `initialize` works as well.
    fn discover(&self) -> Outcome {
        let revision = self.client.revision;
        let revisions = Revision::ALL.iter().rev();
        let versions: Vec<&str> = revisions.map(|revision| revision.as_str()).collect();
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": versions,
            "capabilities": self.shared.capabilities(revision),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": { MetaKey::SERVER_INFO: self.shared.server_info(revision) },
        });
        if let (Some(members), Some(text)) = (result.as_object_mut(), self.shared.instructions()) {
            members.insert("instructions".to_owned(), text.into());
        }
        to_result(&result)
    }

    async fn complete(&self, params: &Params<'_>) -> Outcome {
        let (Some(reference), Some(argument)) = (&params.reference, &params.argument) else {
            return Err(invalid_params("`ref` and `argument` are required"));
        };
        let (server, raw_name);
        let reference = match reference {
            Reference::Prompt { name } => {
                (server, raw_name) = self.shared.resolve_prompt(name).await?;
                CompletionRef::Prompt { name: &raw_name }
            }
            Reference::Resource { uri } => {
                server = self.shared.resource_server(uri).await?;
                CompletionRef::Resource { uri }
            }
        };
        let argument = CompletionArgument { name: &argument.name, value: &argument.value };
        let context = params.context.as_ref();
        let context = context.map(|context| context.arguments.clone()).unwrap_or_default();
        let on_behalf = Some(Arc::new(self.forwarded_for(params)?));
        let options = CallOptions { forwarded_for: on_behalf, ..CallOptions::default() };
        let client = self.shared.borrow(&server, self.error_style()).await?;
        // A completion cannot be suspended, so server requests to a modern client are rejected.
        let (request, incoming) = self.to_active_request(params)?;
        drop(incoming);
        let active = self.shared.router.begin(&server, &request, MAX_TURN).await;
        let completed = client.complete_raw(reference, argument, &context, &options).await;
        active.complete(Completion::from_call(&completed));
        let raw =
            completed.map_err(|error| error_mapping::from_call_error(error, self.error_style()))?;
        Ok(adapt_result(raw, self.era(), Method::Complete))
    }

    async fn set_level(&self, params: &Params<'_>) -> Outcome {
        let level = params.level.and_then(|raw| serde_json::from_str::<LogLevel>(raw.get()).ok());
        let level = level.ok_or_else(|| invalid_params("`level` is missing or unknown"))?;
        if let Some(session) = &self.session {
            *session.log_level().lock() = Some(level);
        }
        self.shared.set_log_level(level).await;
        to_result(&json!({}))
    }

    async fn subscribe(&self, params: &Params<'_>) -> Outcome {
        let uri = params.required_uri()?;
        let subscriber = self.session.as_ref().and_then(|session| session.subscriber());
        let pending = subscriber.and_then(|subscriber| subscriber.begin_subscribe(uri));
        if let Some(pending) = pending {
            self.shared.subscribe(uri, self.error_style()).await?;
            // The client may have unsubscribed or disconnected while the server was asked.
            if !pending.confirm() {
                self.shared.unsubscribe(uri);
            }
        }
        to_result(&json!({}))
    }

    fn unsubscribe(&self, params: &Params<'_>) -> Outcome {
        let uri = params.required_uri()?;
        if let Some(subscriber) = self.session.as_ref().and_then(|session| session.subscriber())
            && subscriber.unsubscribe(uri)
        {
            self.shared.unsubscribe(uri);
        }
        to_result(&json!({}))
    }

    /// `subscriptions/listen`: runs until the client cancels it, which drops the future, or the gateway drains.
    ///
    /// Spec 2026-07-28, subscriptions: the first message acknowledges the granted filter, and every message names the
    /// subscription.
    async fn listen(&self, params: &Params<'_>) -> Outcome {
        if self.queue.content() == StreamContent::ResponsesOnly {
            return Err(invalid_request("subscriptions need text/event-stream"));
        }
        let requested =
            params.notifications.ok_or_else(|| invalid_params("`notifications` is missing"))?;
        let requested: SubscriptionFilter = serde_json::from_str(requested.get())
            .map_err(|error| invalid_params(format!("invalid `notifications`: {error}")))?;
        // Collected in the guard one by one: a request that is cancelled half-way releases what it has.
        let mut guard = ListenGuard { shared: Arc::clone(&self.shared), uris: Vec::new() };
        for uri in requested.resource_subscriptions.iter().take(MAX_LISTEN_URIS) {
            match self.shared.subscribe(uri, self.error_style()).await {
                Ok(()) => guard.uris.push(uri.clone()),
                Err(error) => tracing::debug!(%error, "resource subscription not granted"),
            }
        }
        let granted =
            SubscriptionFilter { resource_subscriptions: guard.uris.clone(), ..requested };
        let acknowledged =
            json!({ "_meta": subscription_meta(&self.id), "notifications": granted });
        let method = Method::SubscriptionAcknowledged.as_str();
        // Before the subscriber is added: the acknowledgement has to be the first message.
        self.queue.push(notification(method, &acknowledged));
        let (queue, id) = (Arc::clone(&self.queue), self.id.clone());
        let subscriber = Arc::new(Subscriber::for_listen(queue, id, granted));
        self.shared.subscribers.add(&subscriber);
        let level = params.log_level()?;
        let log = level.map(|level| LogSubscriber::new(&self.shared, &self.queue, level));
        if let Some(log) = &log {
            self.shared.router.add_log_subscriber(log);
            self.shared.set_log_level(log.level).await;
        }
        self.shared.draining.cancelled().await;
        to_result(&json!({ "resultType": "complete", "_meta": subscription_meta(&self.id) }))
    }

    async fn list_tools(&self, params: &Params<'_>) -> Outcome {
        self.shared.wait_for_startup().await;
        self.shared.manager.refresh_tools().await;
        self.page(Tool::MEMBER, &self.shared.tools(self.era()), params)
    }

    async fn list_prompts(&self, params: &Params<'_>) -> Outcome {
        let Shared { manager, scope, list_cache, .. } = &*self.shared;
        let lists = list_cache.prompts.for_client(manager, scope, self.error_style()).await?;
        let named = self.shared.name_prompts(&lists);
        let prompts = named.into_iter().map(|(name, (_, prompt))| Prompt { name, ..prompt });
        self.page(Prompt::MEMBER, &encode_all(prompts), params)
    }

    async fn list_resources(&self, params: &Params<'_>) -> Outcome {
        let Shared { manager, scope, list_cache, .. } = &*self.shared;
        let lists = list_cache.resources.for_client(manager, scope, self.error_style()).await?;
        let resources = dedup(&lists, |resource: &Resource| &resource.uri);
        self.page(Resource::MEMBER, &encode_all(resources), params)
    }

    async fn list_templates(&self, params: &Params<'_>) -> Outcome {
        let Shared { manager, scope, list_cache, .. } = &*self.shared;
        let lists = list_cache.templates.for_client(manager, scope, self.error_style()).await?;
        let templates = dedup(&lists, |template: &ResourceTemplate| &template.uri_template);
        self.page(ResourceTemplate::MEMBER, &encode_all(templates), params)
    }

    /// One page of a list, in the form of the client's era.
    fn page(&self, member: &str, entries: &[Bytes], params: &Params<'_>) -> Outcome {
        let page_size = self.shared.options.page_size;
        let (start, end) = page_range(entries.len(), params.cursor.as_deref(), page_size)?;
        let page = entries.get(start..end).unwrap_or_default();
        let mut out = format!(r#"{{"{member}":["#).into_bytes();
        out.extend_from_slice(&page.join(&b','));
        out.push(b']');
        if end < entries.len() {
            out.extend_from_slice(format!(r#","nextCursor":"{}""#, cursor(end)).as_bytes());
        }
        if self.era() == Era::Modern {
            let info = self.shared.server_info(self.client.revision);
            let meta = json!({ MetaKey::SERVER_INFO: info });
            // Modern results must have cache hints; these two values promise nothing.
            let members = r#","resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":"#;
            out.extend_from_slice(format!("{members}{meta}").as_bytes());
        }
        out.push(b'}');
        Ok(RawJson::new(out))
    }
}

/// Cursor of the page that starts at this entry.
fn cursor(start: usize) -> String {
    format!("from-{start}")
}

/// Start and end of the page at a cursor.
fn page_range(
    n_entries: usize,
    cursor: Option<&str>,
    page_size: usize,
) -> Result<(usize, usize), JsonRpcError> {
    let start = match cursor {
        None => Some(0),
        Some(text) => text.strip_prefix("from-").and_then(|number| number.parse().ok()),
    };
    let start = start.filter(|start| *start <= n_entries);
    let start = start.ok_or_else(|| invalid_params("Invalid cursor"))?;
    Ok((start, n_entries.min(start.saturating_add(page_size.max(1)))))
}

/// The entries of all lists, of those with the same key the first.
fn dedup<T>(lists: &[ServerList<T>], key: impl Fn(&T) -> &str) -> Vec<&T> {
    let mut seen = HashSet::new();
    let entries = lists.iter().flat_map(|(_, list)| &list.items);
    entries.filter(|entry| seen.insert(key(entry).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protocol facts §7.1.
    #[test]
    fn each_revision_has_its_methods() {
        let check = |method: &str, legacy: bool, modern: bool| {
            let in_legacy = parse_client_method(method, Revision::R2025_11_25).is_some();
            let in_modern = parse_client_method(method, Revision::R2026_07_28).is_some();
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

    #[test]
    fn pages_follow_each_other() {
        let check = |n_entries, cursor: Option<&str>, expected: Option<(usize, usize)>| {
            assert_eq!(page_range(n_entries, cursor, 3).ok(), expected, "{n_entries} {cursor:?}");
        };
        check(0, None, Some((0, 0)));
        check(3, None, Some((0, 3)));
        check(7, None, Some((0, 3)));
        check(7, Some("from-3"), Some((3, 6)));
        check(7, Some("from-6"), Some((6, 7)));
        check(7, Some("from-7"), Some((7, 7)));
        check(7, Some("from-8"), None);
        check(7, Some(""), None);
        check(7, Some("3"), None);
        assert_eq!(page_range(7, Some(&cursor(3)), 3).unwrap(), (3, 6));
    }
}
