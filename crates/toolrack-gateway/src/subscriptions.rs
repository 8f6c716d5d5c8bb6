//! Who is told of changes: legacy sessions, and subscriptions of modern clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use toolrack_mcp::{ListKind, LogLevel, Method, SubscriptionFilter};
use toolrack_transport::RequestId;

use crate::encode::{bare_notification, notification};
use crate::lock::lock;
use crate::message_queue::{Notice, Outbox};

/// Everybody who is told.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    listeners: Mutex<Vec<Weak<Listener>>>,
}

/// Somebody who is told.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) out: Arc<Outbox>,
    /// The request that opened the subscription; none in the legacy era.
    subscription: Option<RequestId>,
    lists: SubscriptionFilter,
    /// The resources that are told of. Nothing once the session has ended, so that none is added any more.
    uris: Mutex<Option<BTreeMap<String, Hold>>>,
    notice: u64,
}

/// How far a client has come with the subscription to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It has asked, and nobody has counted it yet.
    Asked,
    /// It counts among those who want to hear of the resource, and whoever ends this counts it out.
    Counted,
}

/// A client that has asked for a resource. When this is dropped before it was counted, it has not asked.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    listener: &'a Listener,
    uri: &'a str,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(uris) = lock(&self.listener.uris).as_mut()
            && uris.get(self.uri) == Some(&Hold::Asked)
        {
            uris.remove(self.uri);
        }
    }
}

impl Asking<'_> {
    /// Takes note that the client is counted. `false` if it no longer wants that, and has to be counted out again.
    pub(crate) fn counted(&self) -> bool {
        let mut uris = lock(&self.listener.uris);
        let hold = uris.as_mut().and_then(|it| it.get_mut(self.uri));
        hold.is_some_and(|it| std::mem::replace(it, Hold::Counted) == Hold::Asked)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.out.forget(self.notice);
    }
}

impl Listener {
    /// A legacy session, which is told of all lists.
    pub(crate) fn session(out: Arc<Outbox>) -> Self {
        let (lists, notice) = (every_list(), out.on_loss(session_notice()));
        let uris = Mutex::new(Some(BTreeMap::new()));
        Self { out, subscription: None, lists, uris, notice }
    }

    /// A subscription of a modern client.
    pub(crate) fn subscription(
        out: Arc<Outbox>,
        id: RequestId,
        granted: SubscriptionFilter,
    ) -> Self {
        let uris = granted.resource_subscriptions.iter().map(|it| (it.clone(), Hold::Counted));
        let uris = Mutex::new(Some(uris.collect()));
        let notice = out.on_loss(subscription_notice(id.clone(), granted.clone()));
        Self { out, subscription: Some(id), lists: granted, uris, notice }
    }

    /// Begins to tell of a resource, unless it is told of already or the session has ended.
    pub(crate) fn add<'a>(&'a self, uri: &'a str) -> Option<Asking<'a>> {
        let mut uris = lock(&self.uris);
        let uris = uris.as_mut().filter(|it| !it.contains_key(uri))?;
        uris.insert(uri.to_owned(), Hold::Asked);
        Some(Asking { listener: self, uri })
    }

    /// Stops to tell of a resource. `true` if that was counted, and has to be counted out.
    pub(crate) fn remove(&self, uri: &str) -> bool {
        let removed = lock(&self.uris).as_mut().and_then(|it| it.remove(uri));
        removed == Some(Hold::Counted)
    }

    /// Stops to tell of resources, for good, and gives those that have to be counted out.
    pub(crate) fn end(&self) -> Vec<String> {
        let uris = lock(&self.uris).take().unwrap_or_default();
        uris.into_iter().filter(|(_, it)| *it == Hold::Counted).map(|(uri, _)| uri).collect()
    }

    fn list_changed(&self, kind: ListKind) {
        if is_in(&self.lists, kind) {
            self.out.tell(list_changed(kind, self.subscription.as_ref()));
        }
    }

    /// What changed may be a part of what is subscribed to.
    fn updated(&self, uri: &str) {
        let is_part = |it: &String| uri.starts_with(it.as_str());
        if lock(&self.uris).iter().flat_map(BTreeMap::keys).any(is_part) {
            self.out.tell(updated(uri, self.subscription.as_ref()));
        }
    }
}

impl Audience {
    pub(crate) fn admit(&self, listener: &Arc<Listener>) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|it| it.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    pub(crate) fn list_changed(&self, kind: ListKind) {
        self.each(|it| it.list_changed(kind));
    }

    pub(crate) fn updated(&self, uri: &str) {
        self.each(|it| it.updated(uri));
    }

    fn each(&self, tell: impl Fn(&Listener)) {
        let listeners: Vec<_> = lock(&self.listeners).iter().filter_map(Weak::upgrade).collect();
        for listener in &listeners {
            tell(listener);
        }
    }
}

fn is_in(filter: &SubscriptionFilter, kind: ListKind) -> bool {
    match kind {
        ListKind::Tools => filter.tools_list_changed,
        ListKind::Prompts => filter.prompts_list_changed,
        ListKind::Resources => filter.resources_list_changed,
    }
}

fn every_list() -> SubscriptionFilter {
    SubscriptionFilter {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        ..SubscriptionFilter::default()
    }
}

fn list_changed(kind: ListKind, subscription: Option<&RequestId>) -> Bytes {
    let method = match kind {
        ListKind::Tools => Method::ToolListChanged,
        ListKind::Prompts => Method::PromptListChanged,
        ListKind::Resources => Method::ResourceListChanged,
    };
    match subscription {
        None => bare_notification(method.as_str()),
        Some(id) => notification(method.as_str(), &json!({ "_meta": tag(id) })),
    }
}

fn updated(uri: &str, subscription: Option<&RequestId>) -> Bytes {
    let method = Method::ResourceUpdated.as_str();
    match subscription {
        None => notification(method, &json!({ "uri": uri })),
        Some(id) => notification(method, &json!({ "_meta": tag(id), "uri": uri })),
    }
}

/// Spec 2026-07-28, subscriptions: every message names its subscription.
pub(crate) fn tag(id: &RequestId) -> serde_json::Value {
    json!({ toolrack_mcp::MetaKey::SUBSCRIPTION_ID: id })
}

/// What a legacy session is told that has lost messages: how many, and that any list may be another now.
fn session_notice() -> Notice {
    Box::new(|n_lost| {
        let lists = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];
        let mut notices = vec![loss(n_lost)];
        notices.extend(lists.map(|it| list_changed(it, None)));
        notices
    })
}

/// What the reader of one answer is told that has lost reports on the way to it.
pub(crate) fn answer_notice() -> Notice {
    Box::new(|n_lost| vec![loss(n_lost)])
}

/// What a subscription is told that has lost messages: that everything it is about may be another now.
fn subscription_notice(id: RequestId, granted: SubscriptionFilter) -> Notice {
    Box::new(move |_n_lost| {
        let kinds = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];
        let lists = kinds.into_iter().filter(|it| is_in(&granted, *it));
        let lists = lists.map(|it| list_changed(it, Some(&id)));
        let uris = granted.resource_subscriptions.iter().map(|uri| updated(uri, Some(&id)));
        lists.chain(uris).collect()
    })
}

fn loss(n_lost: u64) -> Bytes {
    #[derive(Serialize)]
    struct Line {
        level: LogLevel,
        logger: &'static str,
        data: String,
    }
    let data = format!("{n_lost} notifications were lost because they were not read in time");
    notification(
        Method::LogMessage.as_str(),
        &Line { level: LogLevel::Warning, logger: "toolrack", data },
    )
}

#[cfg(test)]
mod tests {
    use toolrack_transport::Mask;

    use super::*;
    use crate::message_queue::Replay;

    async fn told(granted: SubscriptionFilter) -> Vec<String> {
        let out = Arc::new(Outbox::new(Replay::No, &Mask::default()));
        let listener =
            Arc::new(Listener::subscription(Arc::clone(&out), RequestId::from(7), granted));
        let audience = Audience::default();
        audience.admit(&listener);
        audience.list_changed(ListKind::Tools);
        audience.list_changed(ListKind::Prompts);
        audience.updated("a:/b/c");
        audience.updated("x:");
        out.finish();
        let reader = out.read(None);
        let mut seen = Vec::new();
        while let Some((_, message)) = out.next(&reader).await {
            seen.push(String::from_utf8_lossy(&message).trim_end().to_owned());
        }
        seen
    }

    #[test]
    fn only_what_was_counted_is_counted_out() {
        let listener = || Listener::session(Arc::new(Outbox::new(Replay::No, &Mask::default())));
        let it = listener();
        drop(it.add("u:"));
        assert!(!it.remove("u:"), "given up before it was counted");
        let asking = it.add("u:").unwrap();
        assert!(it.add("u:").is_none(), "asked for already");
        assert!(asking.counted() && !asking.counted());
        drop(asking);
        assert!(it.remove("u:") && !it.remove("u:"));

        let it = listener();
        let (counted, asked) = (it.add("a:").unwrap(), it.add("b:").unwrap());
        assert!(counted.counted());
        assert_eq!(it.end(), ["a:"]);
        assert_eq!(it.end(), Vec::<String>::new());
        assert!(!asked.counted(), "the session ended first, and whoever counts counts out again");
        assert!(it.add("c:").is_none());

        let it = listener();
        let asking = it.add("u:").unwrap();
        assert!(!it.remove("u:"), "unsubscribed while it was asked for");
        assert!(!asking.counted());
    }

    #[tokio::test]
    async fn a_subscription_hears_what_it_was_granted_under_its_id() {
        let granted = SubscriptionFilter {
            tools_list_changed: true,
            resource_subscriptions: vec!["a:/b".to_owned()],
            ..SubscriptionFilter::default()
        };
        let meta = r#""_meta":{"io.modelcontextprotocol/subscriptionId":7}"#;
        let tools = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{meta}}}}}"#
        );
        let update = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{{meta},"uri":"a:/b/c"}}}}"#
        );
        assert_eq!(told(granted).await, [tools, update]);
        assert_eq!(told(SubscriptionFilter::default()).await, Vec::<String>::new());
    }
}
