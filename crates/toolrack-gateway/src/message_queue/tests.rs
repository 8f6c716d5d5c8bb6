//! Order, loss and replay of messages.

use toolrack_mcp::SubscriptionFilter;

use super::*;

fn new_queue(replay: Replay) -> Arc<MessageQueue> {
    let queue = MessageQueue::new(replay, StreamContent::All, &Redactor::default());
    queue.report_losses();
    queue
}

async fn read_rest(queue: &MessageQueue, reader: &Reader) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some((number, message)) = queue.next(reader).await {
        seen.push(format!("{number} {}", String::from_utf8_lossy(&message)));
    }
    seen
}

#[tokio::test]
async fn messages_arrive_in_order() {
    let queue = new_queue(Replay::No);
    let reader = queue.attach_reader(None);
    queue.push(Bytes::from_static(b"a"));
    queue.push_lossy(Bytes::from_static(b"b"));
    queue.finish();
    assert_eq!(read_rest(&queue, &reader).await, ["0 a", "1 b"]);
}

#[tokio::test]
async fn slow_client_loses_notifications_and_is_told() {
    let queue = new_queue(Replay::No);
    let reader = queue.attach_reader(None);
    for _ in 0..MAX_UNREAD + 7 {
        queue.push_lossy(Bytes::from_static(b"n"));
    }
    queue.push(Bytes::from_static(b"response"));
    queue.finish();
    let seen = read_rest(&queue, &reader).await;
    assert_eq!(seen.len(), MAX_UNREAD + 2);
    assert!(seen[MAX_UNREAD].ends_with("response"), "{seen:?}");
    assert!(seen[MAX_UNREAD + 1].contains("\"7 notifications were lost"), "{seen:?}");
}

#[tokio::test]
async fn read_messages_are_replayed_to_the_next_reader() {
    let queue = new_queue(Replay::Yes);
    let first = queue.attach_reader(None);
    for text in ["a", "b", "c"] {
        queue.push(Bytes::from_static(text.as_bytes()));
    }
    assert!(queue.next(&first).await.is_some());
    assert!(queue.next(&first).await.is_some());
    let second = queue.attach_reader(Some(1));
    assert!(queue.next(&first).await.is_none(), "the first reader is detached");
    queue.finish();
    assert_eq!(read_rest(&queue, &second).await, ["1 b", "2 c"]);
    let third = queue.attach_reader(Some(99));
    assert_eq!(read_rest(&queue, &third).await, Vec::<String>::new());
}

#[tokio::test]
async fn replay_buffer_is_bounded() {
    let queue = new_queue(Replay::Yes);
    let reader = queue.attach_reader(None);
    for _ in 0..MAX_REPLAY * 2 {
        queue.push(Bytes::from_static(b"x"));
        assert!(queue.next(&reader).await.is_some());
    }
    let again = queue.attach_reader(Some(0));
    queue.finish();
    assert_eq!(read_rest(&queue, &again).await.len(), MAX_REPLAY);
}

#[tokio::test]
async fn secrets_are_redacted() {
    let redactor = Redactor::default();
    redactor.add_secret("key", "s3cr3t");
    let queue = MessageQueue::new(Replay::No, StreamContent::All, &redactor);
    let resource_subscriptions = vec!["s3cr3t".to_owned()];
    let filter = SubscriptionFilter { resource_subscriptions, ..SubscriptionFilter::default() };
    let _subscriber = Subscriber::new(Arc::clone(&queue), None, filter, Vec::new());
    let reader = queue.attach_reader(None);
    queue.push(Bytes::from_static(b"\"s3cr3t\""));
    for _ in 0..MAX_UNREAD {
        queue.push_lossy(Bytes::from_static(b"[\"s3cr3t\"]"));
    }
    queue.push_last(Bytes::from_static(b"\"s3cr3t\""));
    let seen = read_rest(&queue, &reader).await;
    assert_eq!(seen.len(), MAX_UNREAD + 2);
    assert!(
        seen.iter().all(|text| text.contains("[secret key]") && !text.contains("s3cr3t")),
        "{seen:?}"
    );
}
