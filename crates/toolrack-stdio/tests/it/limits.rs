//! Bounded everything, and deadlines that depend on nothing a server does.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use serde_json::json;
use tokio::time::Instant;
use toolrack_stdio::{StdioLine, StdioOptions};
use toolrack_testkit::{Journal, Marker, eventually_async};
use toolrack_transport::{Delivery, Line, TransportError};

use crate::fixture::{Heard, brisk, call, greeted, guarded, open, program, scripted, text};

const SLACK: Duration = Duration::from_millis(250);

#[tokio::test]
async fn an_oversize_answer_fails_its_call_and_nothing_else() {
    let marker = Marker::new();
    let options = StdioOptions { line_limit_bytes: 1 << 20, ..brisk() };
    let line = greeted(&scripted(&marker, &[]), options).await;
    let failure = call(&line, "big", json!({"bytes": 3 << 20}), 10_000).await.unwrap_err();
    assert!(
        matches!(failure.error, TransportError::Oversize { limit_bytes: 1_048_576 }),
        "{failure:?}"
    );
    assert_eq!(failure.delivery, Delivery::Answered);
    let result = call(&line, "big", json!({"bytes": 900_000}), 10_000).await.unwrap();
    assert_eq!(text(&result).len(), 900_000);
    assert_eq!(line.diagnosis().oversize, 1);
    line.close().await;
}

#[tokio::test]
async fn large_answers_arrive_whole() {
    let marker = Marker::new();
    let line = greeted(&scripted(&marker, &[]), guarded()).await;
    for n_bytes in [1, 1000, 65_000, 66_000, 1 << 20, 16 << 20] {
        let result = call(&line, "big", json!({"bytes": n_bytes}), 30_000).await.unwrap();
        assert_eq!(text(&result).len(), n_bytes);
    }
    line.close().await;
}

#[tokio::test]
async fn a_server_that_stops_reading_does_not_stop_the_clock() {
    let marker = Marker::new();
    let line = greeted(&scripted(&marker, &["--plan", "initialized=stopread"]), brisk()).await;
    let large = json!({"text": "x".repeat(2 << 20)});
    let started = Instant::now();
    let failure = call(&line, "echo", large, 300).await.unwrap_err();
    assert!(matches!(failure.error, TransportError::Timeout(300)), "{failure:?}");
    assert!(started.elapsed() < Duration::from_millis(300) + SLACK);
    // What waits behind the stuck message never leaves, and says so.
    let failure = call(&line, "echo", json!({"text": "x"}), 100).await.unwrap_err();
    assert_eq!(failure.delivery, Delivery::NotSent, "{failure:?}");
    line.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_flood_of_nonsense_does_not_stop_the_clock() {
    let marker = Marker::new();
    let line = greeted(&scripted(&marker, &["--plan", "call:1=nonsense(forever)"]), brisk()).await;
    let started = Instant::now();
    let failure = call(&line, "echo", json!({"text": "x"}), 300).await.unwrap_err();
    assert!(matches!(failure.error, TransportError::Timeout(300)), "{failure:?}");
    assert!(started.elapsed() < Duration::from_millis(300) + SLACK, "{:?}", started.elapsed());
    assert!(line.diagnosis().unreadable > 100);
    line.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

/// On one thread, so that reading the flood and everything else have to take turns.
#[tokio::test]
async fn a_flood_of_nonsense_does_not_hold_up_another_line() {
    let marker = Marker::new();
    let plan = ["--plan", "call:1=nonsense(forever)"];
    let flooding = greeted(&scripted(&marker, &plan), brisk()).await;
    let healthy = greeted(&scripted(&marker, &[]), brisk()).await;
    let mut unanswered = pin!(call(&flooding, "echo", json!({"text": "x"}), 60_000));
    assert!(poll!(unanswered.as_mut()).is_pending());
    let n_read = || flooding.diagnosis().unreadable;
    // Enough for it to be known as a flood.
    let is_flood = async || n_read() > 20_000;
    eventually_async(Duration::from_secs(20), "it floods", tokio::time::sleep, is_flood).await;
    let before = n_read();
    for _ in 0..20 {
        let result = call(&healthy, "echo", json!({"text": "x"}), 10_000).await.unwrap();
        assert_eq!(text(&result), "x");
    }
    // A runtime that only looks at pipes between sixty turns of the flood would have read 300,000.
    let n_meanwhile = n_read() - before;
    assert!(n_meanwhile < 100_000, "{n_meanwhile} lines were read during twenty calls");
    assert!(poll!(unanswered.as_mut()).is_pending());
    healthy.close().await;
    flooding.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_flood_on_stderr_holds_nobody_up_and_leaves_its_last_lines() {
    let marker = Marker::new();
    let line = greeted(&scripted(&marker, &["--plan", "call:1=stderr(10MiB)"]), brisk()).await;
    let result = call(&line, "echo", json!({"text": "through"}), 10_000).await.unwrap();
    assert_eq!(text(&result), "through");
    assert!(!line.diagnosis().stderr.is_empty());
    line.close().await;
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_and_the_line_goes_on() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--journal", journal.to_str().unwrap()];
    let line = greeted(&scripted(&marker, &args), guarded()).await;
    let slow = call(&line, "sleep", json!({"ms": 20_000, "nonce": "slow"}), 30_000);
    assert!(tokio::time::timeout(Duration::from_millis(100), slow).await.is_err());
    let result = call(&line, "echo", json!({"text": "next"}), 10_000).await.unwrap();
    assert_eq!(text(&result), "next");
    let cancelled = || Journal::read(&journal).unwrap().cancellations("slow") == 1;
    toolrack_testkit::eventually(Duration::from_secs(5), "the server heard of it", cancelled);
    line.close().await;
}

#[tokio::test]
async fn late_and_double_answers_are_counted_and_dropped() {
    let marker = Marker::new();
    let line =
        greeted(&scripted(&marker, &["--plan", "call:1=late(300ms); call:2=dup"]), guarded()).await;
    assert!(call(&line, "echo", json!({"text": "late"}), 100).await.is_err());
    let result = call(&line, "echo", json!({"text": "twice"}), 10_000).await.unwrap();
    assert_eq!(text(&result), "twice");
    let counted = || line.diagnosis().late == 2;
    while !counted() {
        tokio::task::yield_now().await;
    }
    line.close().await;
}

/// Spec 2025-11-25, cancellation: only requests that are believed to be in flight are cancelled.
#[tokio::test]
async fn a_call_that_never_left_is_dropped_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("read");
    let script = format!("sleep 0.5; cat > {}", file.display());
    let options = StdioOptions { outbox_limit_bytes: 64 << 10, ..brisk() };
    let line = open(&program("sh", &["-c", &script]), options).await;
    let large = json!({"text": "x".repeat(1 << 20)});
    let mut stuck = pin!(call(&line, "echo", large, 20_000));
    let mut waiting = Box::pin(call(&line, "echo", json!({"text": "y"}), 20_000));
    assert!(poll!(stuck.as_mut()).is_pending());
    assert!(poll!(waiting.as_mut()).is_pending());
    let read = || std::fs::read(&file).unwrap_or_default();
    // Nobody polls the one that waits while room is made for it.
    while !read().ends_with(b"\n") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(waiting);
    line.notify("notifications/last", &None::<()>).await.unwrap();
    while !read().windows(4).any(|it| it == b"last") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!read().windows(9).any(|it| it == b"cancelled"));
    line.close().await;
}

/// What it says while it ends is often why, and it is heard before closing returns.
#[tokio::test]
async fn error_output_is_heard_to_its_end() {
    let check = async |script: &str, expected: &[&str]| {
        let heard = Arc::new(Heard::default());
        let inbox = Arc::clone(&heard);
        let line = StdioLine::open(&program("sh", &["-c", script]), brisk(), inbox).await.unwrap();
        line.close().await;
        assert_eq!((heard.stderr(), heard.endings().len()), (words(expected), 1), "{script}");
    };
    check("echo one >&2; echo two >&2", &["one", "two"]).await;
    check("cat > /dev/null; echo bye >&2", &["bye"]).await;
    // One that closes its output and ends later: the line has ended long before the last words.
    check("exec >&-; cat > /dev/null; sleep 0.1; echo late >&2", &["late"]).await;
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&it| it.to_owned()).collect()
}
