//! Callers, a pipe, and a server that reads or does not.

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
async fn a_lone_caller_writes_at_once() {
    let (sender, mut server) = pipe::pipe().unwrap();
    let outbox = Outbox::new(sender, 100);
    assert_eq!(outbox.post(Some(1), &text("one")).unwrap(), Posted::Done);
    let mut heard = [0; 8];
    assert_eq!(server.read(&mut heard).await.unwrap(), 3);
    assert!(!outbox.withdraw(1));
}

#[tokio::test]
async fn a_crowd_is_written_together() {
    let (sender, mut server) = pipe::pipe().unwrap();
    let outbox = Outbox::new(sender, 100);
    outbox.expect(3);
    assert_eq!(outbox.post(Some(1), &text("one,")).unwrap(), Posted::FlushSoon);
    assert_eq!(outbox.post(Some(2), &text("two,")).unwrap(), Posted::Done);
    assert!(outbox.withdraw(2));
    assert_eq!(outbox.post(Some(3), &text("three")).unwrap(), Posted::Done);
    assert_eq!(outbox.flush(), Flushed::All);
    let mut heard = [0; 64];
    let n_bytes = server.read(&mut heard).await.unwrap();
    assert_eq!(&heard[..n_bytes], b"one,three");
}

#[tokio::test]
async fn what_the_pipe_does_not_take_waits_for_the_driver() {
    let (sender, mut server) = pipe::pipe().unwrap();
    let outbox = Outbox::new(sender, 1 << 20);
    let large = "x".repeat(300_000);
    assert_eq!(outbox.post(Some(1), &text(&large)).unwrap(), Posted::CallDriver);
    assert_eq!(outbox.post(Some(2), &text("two")).unwrap(), Posted::Done);
    assert!(!outbox.withdraw(1), "some of it has left");
    assert!(outbox.withdraw(2));
    let mut heard = Vec::new();
    let read = async {
        let mut part = vec![0; 70_000];
        while heard.len() < large.len() {
            let n_bytes = server.read(&mut part).await.unwrap();
            heard.extend_from_slice(&part[..n_bytes]);
        }
    };
    let (flushed, ()) = tokio::join!(poll_fn(|context| outbox.poll_flush(context)), read);
    assert_eq!(flushed, Flushed::All);
    assert_eq!(heard.len(), large.len());
}

#[tokio::test]
async fn a_full_outbox_refuses_and_announces_room() {
    let (sender, mut server) = pipe::pipe().unwrap();
    let outbox = Outbox::new(sender, 100_000);
    let large = "x".repeat(300_000);
    assert_eq!(outbox.post(Some(1), &text(&large)).unwrap(), Posted::CallDriver);
    let refused = outbox.post(Some(2), &text("two"));
    assert!(matches!(refused, Err(Refusal::Full { buffered_bytes }) if buffered_bytes > 100_000));
    let room = outbox.room();
    let read = async {
        let mut part = vec![0; 300_000];
        server.read_exact(&mut part).await.unwrap();
    };
    let (_, (), ()) = tokio::join!(poll_fn(|context| outbox.poll_flush(context)), read, room);
    assert_eq!(outbox.post(Some(2), &text("two")).unwrap(), Posted::Done);
}

#[tokio::test]
async fn room_that_is_made_by_taking_back_is_announced() {
    let (sender, _server) = pipe::pipe().unwrap();
    let outbox = Outbox::new(sender, 100_000);
    let large = "x".repeat(150_000);
    assert_eq!(outbox.post(Some(1), &text(&large)).unwrap(), Posted::CallDriver);
    assert_eq!(outbox.post(Some(2), &text(&large)).unwrap(), Posted::Done);
    assert!(matches!(outbox.post(Some(3), &text("three")), Err(Refusal::Full { .. })));
    let room = outbox.room();
    assert!(outbox.withdraw(2));
    room.now_or_never().expect("it is told at once");
    assert_eq!(outbox.post(Some(3), &text("three")).unwrap(), Posted::Done);
}

#[tokio::test]
async fn a_server_that_is_gone_takes_nothing() {
    let (sender, server) = pipe::pipe().unwrap();
    let outbox = Outbox::new(sender, 100);
    drop(server);
    assert_eq!(outbox.post(Some(1), &text("one")).unwrap(), Posted::CallDriver);
    assert!(outbox.withdraw(1), "it never left");
    assert_eq!(poll_fn(|context| outbox.poll_flush(context)).await, Flushed::Broken);
    let refused = outbox.post(Some(2), &text("two"));
    assert!(matches!(refused, Err(Refusal::Failed(TransportError::StdinNotAvailable))));
    outbox.close();
    let refused = outbox.post(Some(3), &text("three"));
    assert!(matches!(refused, Err(Refusal::Failed(TransportError::Shutdown))));
}

/// Many write at once, alone and in crowds, while the driver flushes and the server reads slowly: every
/// message arrives whole, and those of one caller in their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_many_put_in_at_once_leaves_whole_and_in_order() {
    const CALLERS: usize = 8;
    const MESSAGES: usize = 500;
    let (sender, mut server) = pipe::pipe().unwrap();
    let outbox = Arc::new(Outbox::new(sender, 1 << 20));
    let rung = Arc::new(Notify::new());
    let (mut driver, mut callers) = (JoinSet::new(), JoinSet::new());
    driver.spawn({
        let (outbox, rung) = (Arc::clone(&outbox), Arc::clone(&rung));
        async move {
            loop {
                rung.notified().await;
                let flushed = poll_fn(|context| outbox.poll_flush(context)).await;
                assert_eq!(flushed, Flushed::All);
            }
        }
    });
    for caller in 0..CALLERS {
        let (outbox, rung) = (Arc::clone(&outbox), Arc::clone(&rung));
        callers.spawn(async move {
            for number in 0..MESSAGES {
                outbox.expect((number + caller) % 3);
                let message = format!("{caller} {number} {}\n", "x".repeat(number));
                let left = match outbox.post(None, &text(&message)).unwrap() {
                    Posted::Done => false,
                    Posted::FlushSoon => {
                        tokio::task::yield_now().await;
                        outbox.flush() != Flushed::All
                    }
                    Posted::CallDriver => true,
                };
                if left {
                    rung.notify_one();
                }
            }
        });
    }
    let mut heard = Vec::new();
    let mut n_lines = 0;
    while n_lines < CALLERS * MESSAGES {
        let mut part = [0; 3000];
        let read = tokio::time::timeout(std::time::Duration::from_secs(30), server.read(&mut part));
        let n_bytes = read.await.expect("nothing is left behind").unwrap();
        n_lines += memchr::memchr_iter(b'\n', &part[..n_bytes]).count();
        heard.extend_from_slice(&part[..n_bytes]);
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let mut next = [0; CALLERS];
    for line in String::from_utf8(heard).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [caller, number, padding] = words[..] else { panic!("not whole: {line}") };
        let (caller, number): (usize, usize) = (caller.parse().unwrap(), number.parse().unwrap());
        assert_eq!((number, padding.len()), (next[caller], number), "of caller {caller}");
        next[caller] += 1;
    }
    assert_eq!(next, [MESSAGES; CALLERS]);
}

fn append(buffer: &mut Buffer, id: u64, text: &str) {
    let write = |out: &mut Vec<u8>| -> Result<(), ()> {
        out.extend_from_slice(text.as_bytes());
        Ok(())
    };
    buffer.append(Some(id), &write).unwrap();
}

#[test]
fn a_message_can_be_taken_back_until_its_first_byte_leaves() {
    let mut buffer = Buffer::default();
    for (id, text) in [(1, "one;"), (2, "two;"), (3, "three;")] {
        append(&mut buffer, id, text);
    }
    buffer.advance(2);
    assert!(!buffer.withdraw(1), "it has begun to leave");
    assert!(buffer.withdraw(2));
    assert!(!buffer.withdraw(2), "only once");
    assert_eq!(buffer.unsent(), b"e;three;");
    buffer.advance(2);
    assert!(buffer.withdraw(3));
    assert_eq!((buffer.unsent(), buffer.n_messages()), (b"".as_slice(), 0));
}

#[test]
fn a_failed_write_leaves_nothing() {
    let mut buffer = Buffer::default();
    append(&mut buffer, 1, "one;");
    let write = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"half");
        Err(())
    };
    assert_eq!(buffer.append(Some(2), &write), Err(()));
    assert_eq!((buffer.unsent(), buffer.n_messages()), (b"one;".as_slice(), 1));
}

#[test]
fn the_memory_of_a_buffer_at_rest_serves_the_next() {
    let mut first = Buffer::default();
    append(&mut first, 1, &"x".repeat(10_000));
    first.advance(10_000);
    first.rest();
    let mut second = Buffer::default();
    assert_eq!(second.bytes.capacity(), 0, "it takes nothing before it needs it");
    append(&mut second, 2, "two;");
    assert_eq!((second.unsent(), second.n_messages()), (b"two;".as_slice(), 1));
    assert!(second.bytes.capacity() >= 10_000);
}

#[test]
fn a_thread_keeps_little_memory() {
    let mut buffer = Buffer::default();
    append(&mut buffer, 1, &"x".repeat(2 * SPARE_BYTES));
    buffer.rest();
    assert!(SPARE.take().bytes.capacity() <= SPARE_BYTES);
}

#[test]
fn what_was_left_goes_before_what_came_later() {
    let (mut first, mut later) = (Buffer::default(), Buffer::default());
    append(&mut first, 1, "one;");
    append(&mut first, 2, "two;");
    first.advance(5);
    append(&mut later, 3, "three;");
    first.absorb(later);
    assert!(!first.withdraw(2), "it has begun to leave");
    assert_eq!((first.unsent(), first.n_messages()), (b"wo;three;".as_slice(), 2));
    assert!(first.withdraw(3));
    assert_eq!(first.unsent(), b"wo;");
}

proptest! {
    /// Whatever is put in, taken back and sent in whatever pieces: what leaves is whole messages
    /// in order, without those that were taken back.
    #[test]
    fn what_leaves_is_what_was_not_taken_back(
        steps in proptest::collection::vec((0_u8..3, 1_usize..40), 1..60),
    ) {
        let (mut buffer, mut sent, mut expected) = (Buffer::default(), Vec::new(), Vec::new());
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
