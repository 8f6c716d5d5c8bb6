//! Servers that are started by their first call, ended when unused, and remembered in between.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use toolrack_config::StartMode;
use toolrack_manager::ConnectionState;
use toolrack_testkit::{Marker, eventually_async};

use crate::fixture::{builder, eventually, pid, scripted, state, tools};

#[tokio::test]
async fn remembered_tools_are_listed_at_once_and_the_first_call_starts_the_server() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let mut config = scripted("one", &marker, &[]);
    config.start = StartMode::Lazy;
    let manager = builder().catalog(dir.path()).build(vec![config.clone()]);
    assert_eq!(manager.all_tools().len(), 0);
    // Nobody knows its tools yet, so it is started to learn them.
    manager.connect_all().await.unwrap();
    assert!(manager.server("one").unwrap().is_connected());
    let known = tools(&manager);
    eventually("it is written down", || std::fs::read_dir(dir.path()).unwrap().count() > 0).await;
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);

    let manager = builder().catalog(dir.path()).build(vec![config]);
    manager.connect_all().await.unwrap();
    assert_eq!(state(&manager, "one"), ConnectionState::Disconnected);
    assert_eq!(tools(&manager), known);
    assert!(manager.get_tools().is_empty());
    marker.assert_nobody_left(Duration::ZERO);
    // Many callers at once, one process.
    let mut pids = join_all((0..20).map(|_| pid(&manager, "one"))).await;
    pids.dedup();
    assert_eq!(pids.len(), 1);
    assert_eq!(manager.server("one").unwrap().launch(), Some(1));
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

/// A server that does not say when its tools change, and not for how long a list of them holds.
#[tokio::test]
async fn tools_of_a_server_that_does_not_announce_them_are_found() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("one", &marker, &["--silent-changes"])]);
    manager.connect_all().await.unwrap();
    manager.call("one_mutate_tools", &json!({"add": "late"})).await.unwrap();
    // Whoever calls it finds it, and so does whoever asks for the list.
    let called = manager.call("one_late", &json!({})).await.unwrap();
    assert_eq!(called.content, "late");
    assert!(tools(&manager).contains(&"one_late".to_owned()));
    manager.call("one_mutate_tools", &json!({"add": "later"})).await.unwrap();
    assert!(!tools(&manager).contains(&"one_later".to_owned()), "nobody has asked yet");
    eventually_async(Duration::from_secs(10), "it is listed", tokio::time::sleep, async || {
        manager.refresh().await;
        tools(&manager).contains(&"one_later".to_owned())
    })
    .await;
    // A list that says the same is no news. The second question comes when the first was answered long enough ago.
    let before = manager.all_tools();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(600)).await;
        manager.refresh().await;
    }
    assert!(Arc::ptr_eq(&before, &manager.all_tools()));
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn an_unused_server_is_ended_and_a_used_one_is_not() {
    let marker = Marker::new();
    let mut config = scripted("one", &marker, &[]);
    config.idle = Some(Duration::from_millis(300));
    let manager = builder().build(vec![config]);
    manager.connect_all().await.unwrap();
    let before = pid(&manager, "one").await;
    // A call that takes longer than the server may be unused is not cut short.
    let slept = manager.call("one_sleep", &json!({"ms": 900})).await.unwrap();
    assert_eq!(slept.content, "slept 900 ms");
    assert_eq!(pid(&manager, "one").await, before);
    eventually("it is ended", || state(&manager, "one") == ConnectionState::Disconnected).await;
    assert!(!tools(&manager).is_empty());
    assert_ne!(pid(&manager, "one").await, before);
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}
