//! Callers, a pipe, and a server that reads or does not.

use std::future::poll_fn;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

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
