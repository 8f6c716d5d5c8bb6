//! Lazy servers: start on the first call, idle shutdown, and the tool cache.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use toolrack_config::StartMode;
use toolrack_manager::{ConnectionState, adapters_of};
use toolrack_testkit::{Marker, eventually_async};

use crate::fixture::{builder, eventually, pid, scripted, state, tools};

#[tokio::test]
async fn cached_tools_are_listed_and_first_call_starts_the_server() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let mut config = scripted("one", &marker, &[]);
    config.start = StartMode::Lazy;
    let manager = builder().tool_cache(dir.path()).build(vec![config.clone()]);
    assert_eq!(manager.all_tools().len(), 0);
    // Its tools are not known yet, so it is started to fetch them.
    manager.connect_all().await.unwrap();
    assert!(manager.server("one").unwrap().is_connected());
    let known = tools(&manager);
    eventually("the cache is written", || std::fs::read_dir(dir.path()).unwrap().count() > 0).await;
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);

    let manager = builder().tool_cache(dir.path()).build(vec![config]);
    manager.connect_all().await.unwrap();
    assert_eq!(state(&manager, "one"), ConnectionState::Disconnected);
    assert_eq!(tools(&manager), known);
    assert!(manager.get_tools().await.is_empty());
    assert_eq!(adapters_of(&manager).len(), known.len());
    marker.assert_no_processes_left(Duration::ZERO);
    // Concurrent callers start one process.
    let mut pids = join_all((0..20).map(|_| pid(&manager, "one"))).await;
    pids.dedup();
    assert_eq!(pids.len(), 1);
    assert_eq!(manager.server("one").unwrap().launch(), Some(1));
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// A server without `listChanged` and without a cache hint.
#[tokio::test]
async fn tools_without_list_changed_are_found() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("one", &marker, &["--silent-changes"])]);
    manager.connect_all().await.unwrap();
    manager.call("one_mutate_tools").args(json!({"add": "late"})).send().await.unwrap();
    // A call finds the new tool, and it is listed afterwards.
    let called = manager.call("one_late").send().await.unwrap();
    assert_eq!(called.text(), "late");
    assert!(tools(&manager).contains(&"one_late".to_owned()));
    manager.call("one_mutate_tools").args(json!({"add": "later"})).send().await.unwrap();
    assert!(!tools(&manager).contains(&"one_later".to_owned()), "no refresh was requested yet");
    eventually_async(
        Duration::from_secs(10),
        "the tool is listed",
        tokio::time::sleep,
        async || {
            manager.refresh_tools().await;
            tools(&manager).contains(&"one_later".to_owned())
        },
    )
    .await;
    // An unchanged list publishes nothing. The second refresh comes after the minimum interval.
    let before = manager.all_tools();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(600)).await;
        manager.refresh_tools().await;
    }
    assert!(Arc::ptr_eq(&before, &manager.all_tools()));
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn idle_server_is_stopped_and_busy_one_is_not() {
    let marker = Marker::new();
    let mut config = scripted("one", &marker, &[]);
    config.idle = Some(Duration::from_millis(300));
    let manager = builder().build(vec![config]);
    manager.connect_all().await.unwrap();
    let before = pid(&manager, "one").await;
    // A call that takes longer than the idle timeout is not interrupted.
    let slept = manager.call("one_sleep").args(json!({"ms": 900})).send().await.unwrap();
    assert_eq!(slept.text(), "slept 900 ms");
    assert_eq!(pid(&manager, "one").await, before);
    eventually("the server is stopped", || state(&manager, "one") == ConnectionState::Disconnected)
        .await;
    assert!(!tools(&manager).is_empty());
    assert_ne!(pid(&manager, "one").await, before);
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}
