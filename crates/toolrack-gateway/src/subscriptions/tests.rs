//! Filters, and counting of subscribers.

use toolrack_transport::Redactor;

use super::*;
use crate::message_queue::{Replay, StreamContent};

fn new_queue() -> Arc<MessageQueue> {
    MessageQueue::new(Replay::No, StreamContent::All, &Redactor::default())
}

async fn received(granted: SubscriptionFilter) -> Vec<String> {
    let queue = new_queue();
    let subscriber = Subscriber::new(Arc::clone(&queue), Some(RequestId::from(7)), granted);
    let subscribers = WeakList::default();
    subscribers.add(&subscriber);
    for subscriber in subscribers.to_vec() {
        subscriber.list_changed(ListKind::Tools);
        subscriber.list_changed(ListKind::Prompts);
        subscriber.resource_updated("a:/b/c");
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

#[test]
fn only_counted_subscriptions_are_uncounted() {
    let new = || Subscriber::for_session(new_queue());
    let subscriber = new();
    drop(subscriber.begin_subscribe("u:"));
    assert!(!subscriber.unsubscribe("u:"), "withdrawn before it was counted");
    let pending = subscriber.begin_subscribe("u:").unwrap();
    assert!(subscriber.begin_subscribe("u:").is_none(), "subscribed already");
    assert!(pending.confirm() && !pending.confirm());
    drop(pending);
    assert!(subscriber.unsubscribe("u:") && !subscriber.unsubscribe("u:"));

    let subscriber = new();
    let counted = subscriber.begin_subscribe("a:").unwrap();
    let pending = subscriber.begin_subscribe("b:").unwrap();
    assert!(counted.confirm());
    assert_eq!(subscriber.close(), ["a:"]);
    assert_eq!(subscriber.close(), Vec::<String>::new());
    assert!(!pending.confirm(), "the session closed first, so the caller uncounts");
    assert!(subscriber.begin_subscribe("c:").is_none());

    let subscriber = new();
    let pending = subscriber.begin_subscribe("u:").unwrap();
    assert!(!subscriber.unsubscribe("u:"), "unsubscribed while pending");
    assert!(!pending.confirm());
    let newer = subscriber.begin_subscribe("u:").unwrap();
    assert!(!pending.confirm(), "the newer one is not confirmed for the older one");
    drop(pending);
    assert!(newer.confirm(), "the newer one is not withdrawn with the older one");
}

#[test]
fn update_of_a_sub_resource_reaches_its_subscribers() {
    let check = |subscribed: &str, uri: &str, expected: bool| {
        assert_eq!(is_same_or_below(uri, subscribed), expected, "{subscribed} {uri}");
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

#[test]
fn last_subscriber_releases_the_resource() {
    let subscriptions = ResourceSubscriptions::default();
    let key = ("s".to_owned(), "u:".to_owned());
    subscriptions.counts.lock().insert(key.clone(), 2);
    assert_eq!(subscriptions.release("u:"), None);
    assert_eq!(subscriptions.uris("s"), ["u:"]);
    assert_eq!(subscriptions.release("u:"), Some(key.clone()));
    assert_eq!(subscriptions.release("u:"), None);
    assert_eq!(subscriptions.count(&key), 0);
}
