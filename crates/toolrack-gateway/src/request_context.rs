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
use serde::Serialize;
use serde_json::json;
use toolrack_mcp::{
    Era, ListEntry, LogLevel, MetaKey, Method, MethodKind, Prompt, Revision, Sender,
    SubscriptionFilter, Tool,
};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

use crate::client_session::ClientSession;
use crate::encode::{
    Outcome, invalid_params, invalid_request, method_not_found, notification, to_result,
    without_hidden_text,
};
use crate::error_mapping::ErrorStyle;
use crate::forward::{forward_for_legacy, forward_for_modern};
use crate::gateway::{Shared, encode_all};
use crate::list_cache::CachedLists;
use crate::message_queue::{MessageQueue, StreamContent};
use crate::params::{ClientInfo, Params};
use crate::server_requests::{ClientId, LogFilter, NotificationSink};
use crate::subscriptions::{CountedSubscription, Subscriber, subscription_meta};

/// Resources of one `subscriptions/listen` request. Further ones are not granted.
const MAX_LISTEN_URIS: usize = 256;

/// One client request that is being handled: parsed once, and checked against its HTTP headers if it has any.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) client_id: ClientId,
    /// Session of a legacy client, which accepts server requests. `None` for a modern client.
    pub(crate) session: Option<Arc<ClientSession>>,
    /// Stream on which the client gets the response and what precedes it.
    pub(crate) queue: Arc<MessageQueue>,
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: Params,
    /// Timeout that the client sets. It replaces the configured one.
    pub(crate) timeout: Option<Duration>,
}

/// The method, if clients may send it as a request in this revision.
fn parse_client_method(method: &str, revision: Revision) -> Option<Method> {
    let method = Method::parse(method)?;
    let is_request = method.kind() == MethodKind::Request && method.sender() != Sender::Server;
    (is_request && method.is_in(revision)).then_some(method)
}

impl RequestContext {
    /// Handles the request.
    pub(crate) async fn handle(self: &Arc<Self>) -> Outcome {
        let method = parse_client_method(&self.method, self.client.revision);
        let method = method.filter(|method| self.shared.offers(*method));
        match method.ok_or_else(|| method_not_found(&self.method))? {
            Method::Ping => to_result(&json!({})),
            Method::Discover => self.discover(),
            Method::ListTools => self.list_tools().await,
            Method::ListPrompts => self.list_prompts().await,
            Method::ListResources => {
                self.list(&self.shared.list_cache.resources, |resource| &resource.uri).await
            }
            Method::ListResourceTemplates => {
                let templates = &self.shared.list_cache.templates;
                self.list(templates, |template| &template.uri_template).await
            }
            // The large futures are boxed, so that the frequent small ones stay small.
            method @ (Method::CallTool
            | Method::GetPrompt
            | Method::ReadResource
            | Method::Complete) => match &self.session {
                Some(session) => Box::pin(forward_for_legacy(self, method, session)).await,
                None => Box::pin(forward_for_modern(self, method)).await,
            },
            Method::SetLevel => self.set_level().await,
            Method::Subscribe => self.subscribe().await,
            Method::Unsubscribe => self.unsubscribe(),
            Method::Listen => Box::pin(self.listen()).await,
            _ => Err(method_not_found(&self.method)),
        }
    }

    pub(crate) fn error_style(&self) -> ErrorStyle {
        ErrorStyle { era: self.client.revision.era(), upstream: self.shared.options.upstream }
    }

    /// Where notifications about this request go.
    pub(crate) fn notification_sink(&self) -> Result<NotificationSink, JsonRpcError> {
        let log_filter = match &self.session {
            Some(session) => LogFilter::Session(Arc::clone(&session.log_level)),
            None => LogFilter::Request(self.params.meta(MetaKey::LOG_LEVEL)?),
        };
        let (queue, scope) = (Arc::clone(&self.queue), Arc::clone(&self.shared.scope));
        let progress_token = self.params.meta(MetaKey::PROGRESS_TOKEN)?;
        Ok(NotificationSink { queue, scope, progress_token, log_filter })
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
        self.shared.add_instructions(&mut result);
        to_result(&result).map(without_hidden_text)
    }

    async fn set_level(&self) -> Outcome {
        let level = self.params.level.as_ref();
        let level = level.and_then(|raw| serde_json::from_str::<LogLevel>(raw.get()).ok());
        let level = level.ok_or_else(|| invalid_params("`level` is missing or unknown"))?;
        if let Some(session) = &self.session {
            *session.log_level.lock() = Some(level);
        }
        self.shared.set_log_level(level).await;
        to_result(&json!({}))
    }

    async fn subscribe(&self) -> Outcome {
        let uri = self.params.required_uri()?;
        if let Some(subscriber) = self.session.as_ref().and_then(|session| session.subscriber()) {
            subscriber.subscribe(&self.shared, uri, self.error_style()).await?;
        }
        to_result(&json!({}))
    }

    fn unsubscribe(&self) -> Outcome {
        let uri = self.params.required_uri()?;
        if let Some(subscriber) = self.session.as_ref().and_then(|session| session.subscriber()) {
            subscriber.unsubscribe(uri);
        }
        to_result(&json!({}))
    }

    /// `subscriptions/listen`: runs until the client cancels it, which drops the future, or the gateway drains.
    ///
    /// Spec 2026-07-28, subscriptions: the first message acknowledges the granted filter, and every message names the
    /// subscription.
    async fn listen(&self) -> Outcome {
        if self.queue.content == StreamContent::ResponsesOnly {
            return Err(invalid_request("subscriptions need text/event-stream"));
        }
        let requested = self.params.notifications.as_ref();
        let requested = requested.ok_or_else(|| invalid_params("`notifications` is missing"))?;
        let requested: SubscriptionFilter = serde_json::from_str(requested.get())
            .map_err(|error| invalid_params(format!("invalid `notifications`: {error}")))?;
        // Collected one by one: a request that is cancelled half-way drops what it has, and so unsubscribes.
        let mut resources = Vec::new();
        for uri in requested.resource_subscriptions.iter().take(MAX_LISTEN_URIS) {
            match CountedSubscription::open(&self.shared, uri, self.error_style()).await {
                Ok(counted) => resources.push(counted),
                Err(error) => tracing::debug!(%error, "resource subscription not granted"),
            }
        }
        let uris = resources.iter().map(|counted| counted.uri.clone()).collect();
        let granted = SubscriptionFilter { resource_subscriptions: uris, ..requested };
        let acknowledged =
            json!({ "_meta": subscription_meta(&self.id), "notifications": granted });
        let method = Method::SubscriptionAcknowledged.as_str();
        // Before the subscriber is added: the acknowledgement has to be the first message.
        self.queue.push(notification(method, Some(&acknowledged)));
        let (queue, id) = (Arc::clone(&self.queue), self.id.clone());
        let subscriber = Subscriber::new(queue, Some(id), granted, resources);
        self.shared.subscribers.add(&subscriber);
        // Log messages also come while the client has no other request.
        let log_sink = Arc::new(self.notification_sink()?);
        self.shared.router.log_sinks.add(&log_sink);
        if let LogFilter::Request(Some(level)) = log_sink.log_filter {
            self.shared.set_log_level(level).await;
        }
        self.shared.draining.cancelled().await;
        to_result(&json!({ "resultType": "complete", "_meta": subscription_meta(&self.id) }))
    }

    async fn list_tools(&self) -> Outcome {
        self.shared.refresh_tools().await;
        self.page(Tool::MEMBER, &self.shared.tools(self.client.revision.era()))
    }

    async fn list_prompts(&self) -> Outcome {
        let lists = &self.shared.list_cache.prompts;
        let lists = lists.for_client(&self.shared, self.error_style()).await?;
        let named = self.shared.name_prompts(&lists);
        let prompts = named.into_iter().map(|(name, (_, prompt))| Prompt { name, ..prompt });
        self.page(Prompt::MEMBER, &encode_all(prompts))
    }

    /// The resources or templates of all servers, of those with the same key the first.
    async fn list<T: ListEntry + Serialize>(
        &self,
        lists: &CachedLists<T>,
        key: fn(&T) -> &str,
    ) -> Outcome {
        let lists = lists.for_client(&self.shared, self.error_style()).await?;
        let mut seen = HashSet::new();
        let entries = lists.iter().flat_map(|(_, list)| &list.items);
        let entries = entries.filter(|entry| seen.insert(key(entry)));
        self.page(T::MEMBER, &encode_all(entries))
    }

    /// One page of a list, in the form of the client's era.
    fn page(&self, member: &str, entries: &[Bytes]) -> Outcome {
        let page_size = self.shared.options.page_size;
        let (start, end) = page_range(entries.len(), self.params.cursor.as_deref(), page_size)?;
        let page = entries.get(start..end).unwrap_or_default();
        let mut out = format!(r#"{{"{member}":["#).into_bytes();
        out.extend_from_slice(&page.join(&b','));
        out.push(b']');
        if end < entries.len() {
            out.extend_from_slice(format!(r#","nextCursor":"from-{end}""#).as_bytes());
        }
        if self.client.revision.era() == Era::Modern {
            let info = self.shared.server_info(self.client.revision);
            let meta = json!({ MetaKey::SERVER_INFO: info }).to_string();
            let meta = without_hidden_text(RawJson::new(meta));
            // Modern results must have cache hints; these two values promise nothing.
            let members = r#","resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":"#;
            out.extend_from_slice(members.as_bytes());
            out.extend_from_slice(meta.as_bytes());
        }
        out.push(b'}');
        Ok(RawJson::new(out))
    }
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
    }
}
