//! Filters, and counting of subscribers.

use toolrack_manager::McpManager;
use toolrack_transport::Redactor;

use super::*;
use crate::gateway::{Gateway, Scope};
use crate::message_queue::{Replay, StreamContent};
use crate::server_requests::ServerRequestRouter;

fn new_queue() -> Arc<MessageQueue> {
    MessageQueue::new(Replay::No, StreamContent::All, &Redactor::default())
}

/// A gateway without servers.
fn new_gateway() -> Gateway {
    let manager = Arc::new(McpManager::builder().build(Vec::new()));
    Gateway::new(manager, ServerRequestRouter::new(), Scope::All)
}

/// A client that subscribes at a server, which has agreed.
fn counted(gateway: &Gateway, server: &str, uri: &str) -> CountedSubscription {
    let key = (server.to_owned(), uri.to_owned());
    *gateway.shared.subscriptions.counts.lock().entry(key).or_default() += 1;
    let (server, uri) = (server.to_owned(), uri.to_owned());
    CountedSubscription { shared: Arc::clone(&gateway.shared), server, uri }
}

fn n_counted(gateway: &Gateway, server: &str, uri: &str) -> usize {
    gateway.shared.subscriptions.count(&(server.to_owned(), uri.to_owned()))
}

async fn received(granted: SubscriptionFilter) -> Vec<String> {
    let (queue, gateway) = (new_queue(), new_gateway());
    let uris = granted.resource_subscriptions.iter();
    let resources = uris.map(|uri| counted(&gateway, "s", uri)).collect();
    let id = Some(RequestId::from(7));
    let subscriber = Subscriber::new(Arc::clone(&queue), id, granted, resources);
    let subscribers = WeakList::default();
    subscribers.add(&subscriber);
    for subscriber in subscribers.to_vec() {
        subscriber.list_changed(ListKind::Tools);
        subscriber.list_changed(ListKind::Prompts);
        // The server adds hidden text to the URI that the client knows.
        subscriber.resource_updated("a:/b/\u{202e}c\u{200b}");
        subscriber.resource_updated("x:");
    }
    queue.finish();
    let reader = queue.attach_reader(None);
    let mut messages = Vec::new();
    while let Some((_, message)) = queue.next(&reader).await {
        messages.push(String::from_utf8_lossy(&message).trim_end().to_owned());
    }
    messages
}

#[tokio::test]
async fn only_counted_subscriptions_are_uncounted() {
    let gateway = new_gateway();
    let new = || Subscriber::for_session(new_queue());
    let check = |uri: &str, expected: usize| assert_eq!(n_counted(&gateway, "s", uri), expected);
    // Another client, whose subscriptions stay.
    let _others = ["u:", "a:", "b:"].map(|uri| counted(&gateway, "s", uri));
    let confirm = |slot: &Slot, uri: &str| drop(slot.set(counted(&gateway, "s", uri)));
    let subscriber = new();
    drop(subscriber.begin_subscribe("u:"));
    subscriber.unsubscribe("u:");
    check("u:", 1);
    drop(subscriber.begin_subscribe("u:"));
    let pending = subscriber.begin_subscribe("u:").unwrap();
    assert!(subscriber.begin_subscribe("u:").is_none(), "subscribed already");
    confirm(&pending, "u:");
    check("u:", 2);
    confirm(&pending, "u:");
    check("u:", 2);
    drop(pending);
    check("u:", 2);
    subscriber.unsubscribe("u:");
    subscriber.unsubscribe("u:");
    check("u:", 1);

    let subscriber = new();
    confirm(&subscriber.begin_subscribe("a:").unwrap(), "a:");
    let pending = subscriber.begin_subscribe("b:").unwrap();
    check("a:", 2);
    subscriber.close();
    subscriber.close();
    check("a:", 1);
    confirm(&pending, "b:");
    drop(pending);
    check("b:", 1);
    assert!(subscriber.begin_subscribe("c:").is_none(), "the session is closed");

    let subscriber = new();
    let pending = subscriber.begin_subscribe("u:").unwrap();
    subscriber.unsubscribe("u:");
    let newer = subscriber.begin_subscribe("u:").unwrap();
    confirm(&pending, "u:");
    drop(pending);
    check("u:", 1);
    assert!(subscriber.begin_subscribe("u:").is_none(), "the newer one is not withdrawn");
    confirm(&newer, "u:");
    drop(newer);
    check("u:", 2);
}

#[test]
fn update_of_a_sub_resource_reaches_its_subscribers() {
    let check = |subscribed: &str, uri: &str, expected: bool| {
        assert_eq!(path_below(uri, subscribed).is_some(), expected, "{subscribed} {uri}");
    };
    check("a:/b", "a:/b", true);
    check("a:/b", "a:/b/c", true);
    check("a:/b", "a:/b?q", true);
    check("a:/b/", "a:/b/c", true);
    check("a:/b", "a:/bc", false);
    check("a:/b/c", "a:/b", false);
}

#[test]
fn renewal_starts_over_after_another_restart() {
    let (subscriptions, server) = (ResourceSubscriptions::default(), Arc::from("s"));
    assert!(subscriptions.begin_renew(&server));
    assert!(!subscriptions.begin_renew(&server), "one task at a time");
    assert!(!subscriptions.end_renew(&server), "the server was restarted meanwhile");
    assert!(!subscriptions.starts_over("s"));
    assert!(!subscriptions.begin_renew(&server), "the task goes on");
    assert!(subscriptions.starts_over("s") && subscriptions.end_renew(&server));
    assert!(subscriptions.begin_renew(&server), "the task has ended");
}

#[tokio::test]
async fn listen_request_gets_granted_changes_under_its_id() {
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
    assert_eq!(received(granted).await, [tools, update]);
    assert_eq!(received(SubscriptionFilter::default()).await, Vec::<String>::new());
}

#[tokio::test]
async fn last_subscriber_releases_the_resource() {
    let gateway = new_gateway();
    let (first, last) = (counted(&gateway, "s", "u:"), counted(&gateway, "s", "u:"));
    drop(first);
    assert_eq!(gateway.shared.subscriptions.uris("s"), ["u:"]);
    drop(last);
    assert_eq!(n_counted(&gateway, "s", "u:"), 0);
    assert!(gateway.shared.subscriptions.counts.lock().is_empty());
}

#[test]
fn subscription_can_be_dropped_after_its_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let gateway = runtime.block_on(async { new_gateway() });
    let counted = counted(&gateway, "s", "u:");
    drop(runtime);
    drop(counted);
    assert_eq!(n_counted(&gateway, "s", "u:"), 0);
}

#[tokio::test]
async fn same_uri_at_two_servers_is_counted_for_each() {
    let gateway = new_gateway();
    for ended in ["a", "b"] {
        let [a, b] = ["a", "b"].map(|server| counted(&gateway, server, "u:"));
        let (dropped, _kept) = if ended == "a" { (a, b) } else { (b, a) };
        drop(dropped);
        for server in ["a", "b"] {
            let expected = usize::from(server != ended);
            assert_eq!(n_counted(&gateway, server, "u:"), expected, "{server} after {ended}");
        }
    }
}
