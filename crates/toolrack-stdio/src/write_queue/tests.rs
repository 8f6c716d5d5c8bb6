//! Callers, a pipe, and a server that reads or does not.

use std::future::poll_fn;

use futures_util::FutureExt as _;
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
