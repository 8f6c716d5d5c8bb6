//! Size limits, and timeouts that do not depend on the behavior of a server.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use serde_json::json;
use tokio::time::Instant;
use toolrack_stdio::{StdioClientTransport, StdioOptions};
use toolrack_testkit::{Journal, Marker, eventually_async};
use toolrack_transport::{Delivery, Transport, TransportError};

use crate::fixture::{
    RecordingHandler, call, connect, fast_shutdown, guarded, initialized, program, scripted_server,
    text,
};

const SLACK: Duration = Duration::from_millis(250);

#[tokio::test]
async fn oversize_response_fails_only_its_call() {
    let marker = Marker::new();
    let options = StdioOptions { max_message_bytes: 1 << 20, ..fast_shutdown() };
    let transport = initialized(&scripted_server(&marker, &[]), options).await;
    let error = call(&transport, "big", json!({"bytes": 3 << 20}), 10_000).await.unwrap_err();
    assert!(
        matches!(error.error, TransportError::Oversize { limit_bytes: 1_048_576 }),
        "{error:?}"
    );
    assert_eq!(error.delivery, Delivery::Answered);
    let result = call(&transport, "big", json!({"bytes": 900_000}), 10_000).await.unwrap();
    assert_eq!(text(&result).len(), 900_000);
    assert_eq!(transport.stats().oversize, 1);
    transport.close().await;
}

#[tokio::test]
async fn large_responses_arrive_whole() {
    let marker = Marker::new();
    let transport = initialized(&scripted_server(&marker, &[]), guarded()).await;
    for n_bytes in [1, 1000, 65_000, 66_000, 1 << 20, 16 << 20] {
        let result = call(&transport, "big", json!({"bytes": n_bytes}), 30_000).await.unwrap();
        assert_eq!(text(&result).len(), n_bytes);
    }
    transport.close().await;
}

#[tokio::test]
async fn blocked_stdin_does_not_delay_timeouts() {
    let marker = Marker::new();
    let transport = initialized(
        &scripted_server(&marker, &["--plan", "initialized=stopread"]),
        fast_shutdown(),
    )
    .await;
    let large = json!({"text": "x".repeat(2 << 20)});
    let started = Instant::now();
    let error = call(&transport, "echo", large, 300).await.unwrap_err();
    assert!(matches!(error.error, TransportError::Timeout(300)), "{error:?}");
    assert!(started.elapsed() < Duration::from_millis(300) + SLACK);
    // A message that is queued behind the blocked one is not sent, and its error says so.
    let error = call(&transport, "echo", json!({"text": "x"}), 100).await.unwrap_err();
    assert_eq!(error.delivery, Delivery::NotSent, "{error:?}");
    transport.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn stdout_flood_does_not_delay_timeouts() {
    let marker = Marker::new();
    let transport = initialized(
        &scripted_server(&marker, &["--plan", "call:1=nonsense(forever)"]),
        fast_shutdown(),
    )
    .await;
    let started = Instant::now();
    let error = call(&transport, "echo", json!({"text": "x"}), 300).await.unwrap_err();
    assert!(matches!(error.error, TransportError::Timeout(300)), "{error:?}");
    assert!(started.elapsed() < Duration::from_millis(300) + SLACK, "{:?}", started.elapsed());
    assert!(transport.stats().unreadable > 100);
    transport.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// A timeout above five seconds gets its timer only at the second look, one second after the call.
#[tokio::test]
async fn long_timeouts_fire_in_time() {
    let marker = Marker::new();
    let plan = ["--plan", "call:1=hang; call:2=hang"];
    let transport = initialized(&scripted_server(&marker, &plan), fast_shutdown()).await;
    let started = Instant::now();
    let echo = || json!({"text": "x"});
    // The second call comes while the look for the first one is under way, and expires first.
    let calls = tokio::join!(call(&transport, "echo", echo(), 7_000), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let outcome = call(&transport, "echo", echo(), 5_500).await;
        (outcome, started.elapsed())
    });
    let (long, (short, short_elapsed)) = calls;
    assert!(matches!(short.unwrap_err().error, TransportError::Timeout(5_500)));
    assert!(short_elapsed < Duration::from_millis(5_800) + SLACK, "{short_elapsed:?}");
    assert!(matches!(long.unwrap_err().error, TransportError::Timeout(7_000)));
    assert!(started.elapsed() < Duration::from_secs(7) + SLACK, "{:?}", started.elapsed());
    transport.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// Runs on one thread, so that the flood and all other tasks have to take turns.
#[tokio::test]
async fn stdout_flood_does_not_delay_other_servers() {
    let marker = Marker::new();
    let plan = ["--plan", "call:1=nonsense(forever)"];
    let flooding = initialized(&scripted_server(&marker, &plan), fast_shutdown()).await;
    let healthy = initialized(&scripted_server(&marker, &[]), fast_shutdown()).await;
    let mut pending_call = pin!(call(&flooding, "echo", json!({"text": "x"}), 60_000));
    assert!(poll!(pending_call.as_mut()).is_pending());
    let n_read = || flooding.stats().unreadable;
    // Enough for the IO task to detect the flood.
    let is_flood = async || n_read() > 20_000;
    eventually_async(
        Duration::from_secs(20),
        "the server floods its stdout",
        tokio::time::sleep,
        is_flood,
    )
    .await;
    let before = n_read();
    for _ in 0..20 {
        let result = call(&healthy, "echo", json!({"text": "x"}), 10_000).await.unwrap();
        assert_eq!(text(&result), "x");
    }
    // A runtime that polled its IO only after sixty turns of the flood would have read 300,000 lines.
    let n_meanwhile = n_read() - before;
    assert!(n_meanwhile < 100_000, "{n_meanwhile} lines were read during twenty calls");
    assert!(poll!(pending_call.as_mut()).is_pending());
    healthy.close().await;
    flooding.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn stderr_flood_does_not_block_and_keeps_the_last_lines() {
    let marker = Marker::new();
    let transport = initialized(
        &scripted_server(&marker, &["--plan", "call:1=stderr(10MiB)"]),
        fast_shutdown(),
    )
    .await;
    let result = call(&transport, "echo", json!({"text": "through"}), 10_000).await.unwrap();
    assert_eq!(text(&result), "through");
    assert!(!transport.stats().stderr.is_empty());
    transport.close().await;
}

#[tokio::test]
async fn dropped_call_is_cancelled_and_the_transport_stays_open() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--journal", journal.to_str().unwrap()];
    let transport = initialized(&scripted_server(&marker, &args), guarded()).await;
    let slow = call(&transport, "sleep", json!({"ms": 20_000, "nonce": "slow"}), 30_000);
    assert!(tokio::time::timeout(Duration::from_millis(100), slow).await.is_err());
    let result = call(&transport, "echo", json!({"text": "next"}), 10_000).await.unwrap();
    assert_eq!(text(&result), "next");
    let cancelled = || Journal::read(&journal).unwrap().cancellations("slow") == 1;
    toolrack_testkit::eventually(
        Duration::from_secs(5),
        "the server receives the cancellation",
        cancelled,
    );
    transport.close().await;
}

#[tokio::test]
async fn late_and_duplicate_responses_are_counted_and_discarded() {
    let marker = Marker::new();
    let transport = initialized(
        &scripted_server(&marker, &["--plan", "call:1=late(300ms); call:2=dup"]),
        guarded(),
    )
    .await;
    assert!(call(&transport, "echo", json!({"text": "late"}), 100).await.is_err());
    let result = call(&transport, "echo", json!({"text": "twice"}), 10_000).await.unwrap();
    assert_eq!(text(&result), "twice");
    let is_counted = || transport.stats().late == 2;
    while !is_counted() {
        tokio::task::yield_now().await;
    }
    transport.close().await;
}

/// Spec 2025-11-25, cancellation: only requests that are believed to be in flight are cancelled.
#[tokio::test]
async fn unsent_call_is_dropped_without_a_cancel_notification() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("read");
    let script = format!("sleep 0.5; cat > {}", file.display());
    let options = StdioOptions { max_queued_bytes: 64 << 10, ..fast_shutdown() };
    let transport = connect(&program("sh", &["-c", &script]), options).await;
    let large = json!({"text": "x".repeat(1 << 20)});
    let mut blocked = pin!(call(&transport, "echo", large, 20_000));
    let mut waiting = Box::pin(call(&transport, "echo", json!({"text": "y"}), 20_000));
    assert!(poll!(blocked.as_mut()).is_pending());
    assert!(poll!(waiting.as_mut()).is_pending());
    let read = || std::fs::read(&file).unwrap_or_default();
    // The waiting call is not polled while room is made for it.
    while !read().ends_with(b"\n") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(waiting);
    transport.notify("notifications/last", &None::<()>).await.unwrap();
    while !read().windows(4).any(|window| window == b"last") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!read().windows(9).any(|window| window == b"cancelled"));
    transport.close().await;
}

/// The last lines often say why a server exits, and they arrive before `close` returns.
#[tokio::test]
async fn stderr_is_read_to_its_end() {
    let check = async |script: &str, expected: &[&str]| {
        let recorder = Arc::new(RecordingHandler::default());
        let handler = Arc::clone(&recorder);
        let transport =
            StdioClientTransport::spawn(&program("sh", &["-c", script]), fast_shutdown(), handler)
                .await
                .unwrap();
        transport.close().await;
        assert_eq!(
            (recorder.stderr(), recorder.close_reasons().len()),
            (to_strings(expected), 1),
            "{script}"
        );
    };
    check("echo one >&2; echo two >&2", &["one", "two"]).await;
    check("cat > /dev/null; echo bye >&2", &["bye"]).await;
    // The server closes its stdout and exits later: the transport closes long before the last line.
    check("exec >&-; cat > /dev/null; sleep 0.1; echo late >&2", &["late"]).await;
}

fn to_strings(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}
