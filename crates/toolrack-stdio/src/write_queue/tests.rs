//! The write queue with a real pipe, and the write buffer with random operations.

use std::future::poll_fn;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinSet;

use super::*;

fn text(text: &str) -> impl Fn(&mut Vec<u8>) -> Result<(), serde_json::Error> {
    move |out| {
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[tokio::test]
async fn lone_caller_writes_immediately() {
    let (sender, mut server) = pipe::pipe().unwrap();
    let queue = WriteQueue::new(sender, 100);
    assert_eq!(queue.push(Some(1), &text("one")).unwrap(), WriteStatus::Done);
    let mut received = [0; 8];
    assert_eq!(server.read(&mut received).await.unwrap(), 3);
    assert!(!queue.withdraw(1));
}

#[tokio::test]
async fn concurrent_callers_share_one_write() {
    let (sender, mut server) = pipe::pipe().unwrap();
    let queue = WriteQueue::new(sender, 100);
    queue.expect_writers(3);
    assert_eq!(queue.push(Some(1), &text("one,")).unwrap(), WriteStatus::FlushLater);
    assert_eq!(queue.push(Some(2), &text("two,")).unwrap(), WriteStatus::Done);
    assert!(queue.withdraw(2));
    assert_eq!(queue.push(Some(3), &text("three")).unwrap(), WriteStatus::Done);
    assert_eq!(queue.flush(), WriteStatus::Done);
    let mut received = [0; 64];
    let n_bytes = server.read(&mut received).await.unwrap();
    assert_eq!(&received[..n_bytes], b"one,three");
}

#[tokio::test]
async fn io_task_writes_the_rest_when_the_pipe_is_full() {
    let (sender, mut server) = pipe::pipe().unwrap();
    let queue = WriteQueue::new(sender, 1 << 20);
    let large = "x".repeat(300_000);
    assert_eq!(queue.push(Some(1), &text(&large)).unwrap(), WriteStatus::Blocked);
    assert_eq!(queue.push(Some(2), &text("two")).unwrap(), WriteStatus::Done);
    assert!(!queue.withdraw(1), "partly sent");
    assert!(queue.withdraw(2));
    let mut received = Vec::new();
    let read = async {
        let mut part = vec![0; 70_000];
        while received.len() < large.len() {
            let n_bytes = server.read(&mut part).await.unwrap();
            received.extend_from_slice(&part[..n_bytes]);
        }
    };
    let (status, ()) = tokio::join!(poll_fn(|context| queue.poll_flush(context)), read);
    assert_eq!(status, WriteStatus::Done);
    assert_eq!(received.len(), large.len());
}

#[tokio::test]
async fn full_queue_rejects_messages_and_announces_room() {
    let (sender, mut server) = pipe::pipe().unwrap();
    let queue = WriteQueue::new(sender, 100_000);
    let large = "x".repeat(300_000);
    assert_eq!(queue.push(Some(1), &text(&large)).unwrap(), WriteStatus::Blocked);
    let rejected = queue.push(Some(2), &text("two"));
    assert!(
        matches!(rejected, Err(QueueError::Full { buffered_bytes }) if buffered_bytes > 100_000)
    );
    let room = queue.room();
    let read = async {
        let mut part = vec![0; 300_000];
        server.read_exact(&mut part).await.unwrap();
    };
    let (_, (), ()) = tokio::join!(poll_fn(|context| queue.poll_flush(context)), read, room);
    assert_eq!(queue.push(Some(2), &text("two")).unwrap(), WriteStatus::Done);
}

#[tokio::test]
async fn withdrawal_announces_room() {
    let (sender, _server) = pipe::pipe().unwrap();
    let queue = WriteQueue::new(sender, 100_000);
    let large = "x".repeat(150_000);
    assert_eq!(queue.push(Some(1), &text(&large)).unwrap(), WriteStatus::Blocked);
    assert_eq!(queue.push(Some(2), &text(&large)).unwrap(), WriteStatus::Done);
    assert!(matches!(queue.push(Some(3), &text("three")), Err(QueueError::Full { .. })));
    let room = queue.room();
    assert!(queue.withdraw(2));
    room.now_or_never().expect("room is announced at once");
    assert_eq!(queue.push(Some(3), &text("three")).unwrap(), WriteStatus::Done);
}

#[tokio::test]
async fn broken_pipe_rejects_messages() {
    let (sender, server) = pipe::pipe().unwrap();
    let queue = WriteQueue::new(sender, 100);
    drop(server);
    assert_eq!(queue.push(Some(1), &text("one")).unwrap(), WriteStatus::Broken);
    assert!(queue.withdraw(1), "nothing was sent");
    assert_eq!(poll_fn(|context| queue.poll_flush(context)).await, WriteStatus::Broken);
    let rejected = queue.push(Some(2), &text("two"));
    assert!(matches!(rejected, Err(QueueError::Failed(TransportError::StdinNotAvailable))));
    queue.close();
    let rejected = queue.push(Some(3), &text("three"));
    assert!(matches!(rejected, Err(QueueError::Failed(TransportError::Shutdown))));
}

/// Many callers write, alone and together, while the IO task flushes and the server reads slowly: every message arrives
/// whole, and those of one caller in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_messages_are_sent_whole_and_in_order() {
    const CALLERS: usize = 8;
    const MESSAGES: usize = 500;
    let (sender, mut server) = pipe::pipe().unwrap();
    let queue = Arc::new(WriteQueue::new(sender, 1 << 20));
    let wakeup = Arc::new(Notify::new());
    let (mut io_task, mut callers) = (JoinSet::new(), JoinSet::new());
    io_task.spawn({
        let (queue, wakeup) = (Arc::clone(&queue), Arc::clone(&wakeup));
        async move {
            loop {
                wakeup.notified().await;
                let status = poll_fn(|context| queue.poll_flush(context)).await;
                assert_eq!(status, WriteStatus::Done);
            }
        }
    });
    for caller in 0..CALLERS {
        let (queue, wakeup) = (Arc::clone(&queue), Arc::clone(&wakeup));
        callers.spawn(async move {
            for number in 0..MESSAGES {
                queue.expect_writers((number + caller) % 3);
                let message = format!("{caller} {number} {}\n", "x".repeat(number));
                let has_rest = match queue.push(None, &text(&message)).unwrap() {
                    WriteStatus::Done => false,
                    WriteStatus::FlushLater => {
                        tokio::task::yield_now().await;
                        queue.flush() != WriteStatus::Done
                    }
                    WriteStatus::Blocked | WriteStatus::Broken => true,
                };
                if has_rest {
                    wakeup.notify_one();
                }
            }
        });
    }
    let mut received = Vec::new();
    let mut n_lines = 0;
    while n_lines < CALLERS * MESSAGES {
        let mut part = [0; 3000];
        let read = tokio::time::timeout(std::time::Duration::from_secs(30), server.read(&mut part));
        let n_bytes = read.await.expect("no message is lost").unwrap();
        n_lines += memchr::memchr_iter(b'\n', &part[..n_bytes]).count();
        received.extend_from_slice(&part[..n_bytes]);
    }
    while let Some(joined) = callers.join_next().await {
        joined.unwrap();
    }
    let mut next = [0; CALLERS];
    for line in String::from_utf8(received).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [caller, number, padding] = words[..] else { panic!("not whole: {line}") };
        let (caller, number): (usize, usize) = (caller.parse().unwrap(), number.parse().unwrap());
        assert_eq!((number, padding.len()), (next[caller], number), "of caller {caller}");
        next[caller] += 1;
    }
    assert_eq!(next, [MESSAGES; CALLERS]);
}

fn append(buffer: &mut WriteBuffer, id: u64, text: &str) {
    let write = |out: &mut Vec<u8>| -> Result<(), ()> {
        out.extend_from_slice(text.as_bytes());
        Ok(())
    };
    buffer.append(Some(id), &write).unwrap();
}

#[test]
fn message_can_be_withdrawn_until_its_first_byte_is_sent() {
    let mut buffer = WriteBuffer::default();
    for (id, text) in [(1, "one;"), (2, "two;"), (3, "three;")] {
        append(&mut buffer, id, text);
    }
    buffer.advance(2);
    assert!(!buffer.withdraw(1), "partly sent");
    assert!(buffer.withdraw(2));
    assert!(!buffer.withdraw(2), "only once");
    assert_eq!(buffer.unsent(), b"e;three;");
    buffer.advance(2);
    assert!(buffer.withdraw(3));
    assert_eq!((buffer.unsent(), buffer.n_messages()), (b"".as_slice(), 0));
}

#[test]
fn failed_append_leaves_the_buffer_unchanged() {
    let mut buffer = WriteBuffer::default();
    append(&mut buffer, 1, "one;");
    let write = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"half");
        Err(())
    };
    assert_eq!(buffer.append(Some(2), &write), Err(()));
    assert_eq!((buffer.unsent(), buffer.n_messages()), (b"one;".as_slice(), 1));
}

#[test]
fn recycled_buffer_memory_is_reused() {
    let mut first = WriteBuffer::default();
    append(&mut first, 1, &"x".repeat(10_000));
    first.advance(10_000);
    first.recycle();
    let mut second = WriteBuffer::default();
    assert_eq!(second.bytes.capacity(), 0, "allocates nothing before the first append");
    append(&mut second, 2, "two;");
    assert_eq!((second.unsent(), second.n_messages()), (b"two;".as_slice(), 1));
    assert!(second.bytes.capacity() >= 10_000);
}

#[test]
fn recycled_buffer_memory_is_bounded() {
    let mut buffer = WriteBuffer::default();
    append(&mut buffer, 1, &"x".repeat(2 * SPARE_BYTES));
    buffer.recycle();
    assert!(SPARE.take().bytes.capacity() <= SPARE_BYTES);
}

#[test]
fn unsent_messages_precede_later_ones() {
    let (mut first, mut later) = (WriteBuffer::default(), WriteBuffer::default());
    append(&mut first, 1, "one;");
    append(&mut first, 2, "two;");
    first.advance(5);
    append(&mut later, 3, "three;");
    first.append_buffer(later);
    assert!(!first.withdraw(2), "partly sent");
    assert_eq!((first.unsent(), first.n_messages()), (b"wo;three;".as_slice(), 2));
    assert!(first.withdraw(3));
    assert_eq!(first.unsent(), b"wo;");
}

proptest! {
    /// Any sequence of appends, withdrawals and partial writes sends whole messages in order, without the withdrawn ones.
    #[test]
    fn sent_bytes_are_whole_messages_without_withdrawn_ones(
        steps in proptest::collection::vec((0_u8..3, 1_usize..40), 1..60),
    ) {
        let (mut buffer, mut sent, mut expected) = (WriteBuffer::default(), Vec::new(), Vec::new());
        for (id, (kind, size)) in steps.into_iter().enumerate() {
            let id = id as u64;
            match kind {
                0 => {
                    let text = format!("{id}:{};", "x".repeat(size));
                    append(&mut buffer, id, &text);
                    expected.push((id, text));
                }
                1 => {
                    let n_bytes = size.min(buffer.unsent().len());
                    sent.extend_from_slice(&buffer.unsent()[..n_bytes]);
                    buffer.advance(n_bytes);
                }
                _ => {
                    let chosen = id.saturating_sub(size as u64);
                    if buffer.withdraw(chosen) {
                        expected.retain(|(id, _)| *id != chosen);
                    }
                }
            }
        }
        sent.extend_from_slice(buffer.unsent());
        let expected: String = expected.into_iter().map(|(_, text)| text).collect();
        prop_assert_eq!(String::from_utf8(sent).unwrap(), expected);
    }
}
