//! Order, loss and repetition of what is on its way to a client.

use super::*;

fn outbox(replay: Replay) -> Outbox {
    let outbox = Outbox::new(replay, &Mask::default());
    outbox.on_loss(Box::new(|n_lost| vec![Bytes::from(format!("lost {n_lost}"))]));
    outbox
}

async fn rest(outbox: &Outbox, reader: &Reader) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some((number, message)) = outbox.next(reader).await {
        seen.push(format!("{number} {}", String::from_utf8_lossy(&message)));
    }
    seen
}

#[tokio::test]
async fn messages_come_in_order_and_the_end_is_last() {
    let outbox = outbox(Replay::No);
    let reader = outbox.read(None);
    outbox.put(Bytes::from_static(b"a"));
    outbox.tell(Bytes::from_static(b"b"));
    outbox.finish();
    assert_eq!(rest(&outbox, &reader).await, ["0 a", "1 b"]);
}

#[tokio::test]
async fn a_slow_client_loses_notifications_and_is_told() {
    let outbox = outbox(Replay::No);
    let reader = outbox.read(None);
    for _ in 0..MAX_UNREAD + 7 {
        outbox.tell(Bytes::from_static(b"n"));
    }
    outbox.put(Bytes::from_static(b"answer"));
    outbox.finish();
    let seen = rest(&outbox, &reader).await;
    assert_eq!(seen.len(), MAX_UNREAD + 2);
    assert!(seen[MAX_UNREAD].ends_with("answer"), "{seen:?}");
    assert!(seen[MAX_UNREAD + 1].ends_with("lost 7"), "{seen:?}");
}

#[tokio::test]
async fn what_was_read_can_be_read_again_by_the_next_reader() {
    let outbox = outbox(Replay::Yes);
    let first = outbox.read(None);
    for text in ["a", "b", "c"] {
        outbox.put(Bytes::from_static(text.as_bytes()));
    }
    assert!(outbox.next(&first).await.is_some());
    assert!(outbox.next(&first).await.is_some());
    let second = outbox.read(Some(1));
    assert!(outbox.next(&first).await.is_none(), "only one reads");
    outbox.finish();
    assert_eq!(rest(&outbox, &second).await, ["1 b", "2 c"]);
    let third = outbox.read(Some(99));
    assert_eq!(rest(&outbox, &third).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_is_kept_has_a_bound() {
    let outbox = outbox(Replay::Yes);
    let reader = outbox.read(None);
    for _ in 0..MAX_KEPT * 2 {
        outbox.put(Bytes::from_static(b"x"));
        assert!(outbox.next(&reader).await.is_some());
    }
    let again = outbox.read(Some(0));
    outbox.finish();
    assert_eq!(rest(&outbox, &again).await.len(), MAX_KEPT);
}

#[tokio::test]
async fn what_must_not_be_seen_does_not_leave() {
    let mask = Mask::default();
    mask.learn("key", "s3cr3t");
    let outbox = Outbox::new(Replay::No, &mask);
    outbox.on_loss(Box::new(|_n_lost| vec![Bytes::from_static(b"\"s3cr3t\"")]));
    let reader = outbox.read(None);
    outbox.put(Bytes::from_static(b"\"s3cr3t\""));
    for _ in 0..MAX_UNREAD {
        outbox.tell(Bytes::from_static(b"[\"s3cr3t\"]"));
    }
    outbox.put_last(Bytes::from_static(b"\"s3cr3t\""));
    let seen = rest(&outbox, &reader).await;
    assert_eq!(seen.len(), MAX_UNREAD + 2);
    assert!(
        seen.iter().all(|it| it.contains("[secret key]") && !it.contains("s3cr3t")),
        "{seen:?}"
    );
}
