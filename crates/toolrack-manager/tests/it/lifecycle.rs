//! Starting, stopping and reconnecting real processes, one at a time per server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use toolrack_client::ClientHandler;
use toolrack_config::{EnvValue, McpServerConfig, McpTransport, Pin, Sandbox, Source};
use toolrack_manager::{ConnectionState, FailureKind, ManagerEvent};
use toolrack_mcp::ClientCapabilities;
use toolrack_testkit::Marker;

use crate::fixture::{builder, eventually, next, pid, scripted, state, tools};

#[tokio::test]
async fn one_broken_server_does_not_hold_up_the_others() {
    let marker = Marker::new();
    let missing = McpServerConfig::stdio("missing", "no-such-program-anywhere", &[]);
    let mut disabled = scripted("disabled", &marker, &[]);
    disabled.enabled = false;
    let manager = builder().build(vec![
        scripted("good", &marker, &[]),
        missing,
        scripted("dying", &marker, &["--plan", "start=stderr(1KiB)+exit(3)"]),
        disabled,
        scripted("other", &marker, &["--revision", "modern"]),
    ]);
    let servers = manager.connect_all().await.unwrap();
    let words: Vec<_> = servers.iter().map(|it| (it.name(), it.state().word())).collect();
    let expected = [
        ("good", "connected"),
        ("missing", "failed"),
        ("dying", "failed"),
        ("disabled", "disabled"),
        ("other", "connected"),
    ];
    assert_eq!(words, expected);
    let failure = |name: &str| state(&manager, name).failure().unwrap().clone();
    let reason = failure("missing").reason().to_owned();
    assert!(reason.contains("`no-such-program-anywhere` was not found in PATH"), "{reason}");
    assert!(failure("dying").reason().contains("exited with code 3"), "{}", failure("dying"));
    assert!(failure("dying").hint().unwrap().starts_with("it said last:"));
    assert!(tools(&manager).iter().all(|it| it.starts_with("good_") || it.starts_with("other_")));
    let up = manager.get_tools();
    assert_eq!(up.len(), manager.all_tools().len());
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn the_tools_of_the_last_server_go_with_it() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("only", &marker, &[])]);
    manager.connect_all().await.unwrap();
    assert!(!tools(&manager).is_empty());
    manager.remove("only").await.unwrap();
    assert_eq!(tools(&manager), Vec::<String>::new());
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

/// Spec 002: values are filled in when the connection is made, so a change is seen by the next one.
#[tokio::test]
async fn values_are_looked_up_with_each_connection() {
    let marker = Marker::new();
    let mut config = scripted("one", &marker, &[]);
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!("no child") };
    env.insert("SETTING".to_owned(), EnvValue::from("value-${COUNT}"));
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let lookup = move |_: Source, name: &str| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(None),
        number => Ok((name == "COUNT").then(|| number.to_string())),
    };
    let manager = builder().lookup(Arc::new(lookup)).build(vec![config]);
    manager.connect_all().await.unwrap();
    let state = state(&manager, "one");
    assert!(state.to_string().contains("COUNT"), "{state}");
    for expected in 1..=2 {
        // The server may have been tried again by itself meanwhile.
        let connected = manager.reconnect("one").await.unwrap();
        assert!(connected.is_connected(), "{}", connected.state());
        let env = manager.call("one_env", &json!({})).await.unwrap().content;
        let number = count.load(Ordering::Relaxed) - 1;
        assert!(number >= expected && env.contains(&format!("value-{number}")), "{env}");
    }
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

/// Faults F13 and F14: whatever is asked in whatever order, there is one process or none.
#[tokio::test]
async fn stop_and_start_in_a_hurry_leave_one_process_or_none() {
    let marker = Marker::new();
    let manager =
        builder().build(vec![scripted("one", &marker, &["--plan", "initialize=late(50ms)"])]);
    for round in 0_u64..6 {
        let begun = manager.connect_all();
        drop(tokio::time::timeout(Duration::from_millis(round * 15), begun).await);
        let again = manager.reconnect("one");
        drop(tokio::time::timeout(Duration::from_millis(round * 10), again).await);
        manager.disconnect("one").await.unwrap();
        assert_eq!(state(&manager, "one"), ConnectionState::Disconnected);
        marker.assert_nobody_left(Duration::ZERO);
    }
    let connected = manager.reconnect("one").await.unwrap();
    assert!(connected.is_connected(), "{}", connected.state());
    let servers = marker.survivors().into_iter().filter(|it| it.command_line.contains("scripted"));
    assert_eq!(servers.count(), 1);
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

/// Fault F14: a server that never finishes its start is stopped like any other.
#[tokio::test]
async fn a_server_that_hangs_while_starting_can_be_stopped() {
    let marker = Marker::new();
    let hangs = ["--plan", "initialize=hang; discover=hang"];
    let manager = builder()
        .ready_wait(Duration::from_millis(300))
        .build(vec![scripted("one", &marker, &hangs), scripted("two", &marker, &[])]);
    manager.connect_all().await.unwrap();
    assert_eq!(state(&manager, "one"), ConnectionState::Connecting);
    eventually("the other is there", || manager.server("two").unwrap().is_connected()).await;
    manager.disconnect("one").await.unwrap();
    assert_eq!(state(&manager, "one"), ConnectionState::Disconnected);
    manager.disconnect_all().await.unwrap();
    marker.assert_nobody_left(Duration::ZERO);
    manager.close().await;
}

/// Fault F88: what the user has stopped stays stopped.
#[tokio::test]
async fn a_stopped_server_is_not_started_by_calls_or_by_time() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("one", &marker, &["--plan", "call:1=exit(1)"])]);
    manager.connect_all().await.unwrap();
    manager.call("one_echo", &json!({"text": "x"})).await.unwrap_err();
    manager.disconnect("one").await.unwrap();
    let error = manager.call_tool("one", "echo", &json!({"text": "x"})).await.unwrap_err();
    assert_eq!(error.to_string(), "the server `one` is not connected (disconnected)");
    // Longer than the wait after a first failure, at whose end it would have come back.
    tokio::time::sleep(Duration::from_millis(600)).await;
    marker.assert_nobody_left(Duration::ZERO);
    manager.close().await;
}

/// Fault F85 with real processes: a crash loop gets slower and is shown as one.
#[tokio::test]
async fn a_crash_loop_is_shown_and_a_user_can_cut_it_short() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("one", &marker, &["--plan", "start=exit(1)"])]);
    manager.connect_all().await.unwrap();
    eventually("five starts", || manager.server("one").unwrap().is_crash_looping()).await;
    assert!(manager.server("one").unwrap().launch().unwrap_or(5) <= 6);
    let good = scripted("one", &marker, &[]);
    let connected = manager.connect("one", good).await.unwrap();
    assert!(connected.is_connected() && !connected.is_crash_looping(), "{}", connected.state());
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn events_tell_states_tools_and_error_output() {
    let marker = Marker::new();
    let manager = builder().build(Vec::new());
    let mut events = manager.subscribe();
    let noisy = scripted("one", &marker, &["--plan", "start=stderr(1KiB)"]);
    manager.connect("one", noisy).await.unwrap();
    let mut seen = Vec::new();
    let n_added = next(&mut events, |event| match event {
        ManagerEvent::StateChanged { server, state } => {
            seen.push(format!("{server} {}", state.word()));
            None
        }
        ManagerEvent::Stderr { server, .. } => {
            seen.push(format!("{server} stderr"));
            None
        }
        ManagerEvent::ToolsChanged { added, .. } => Some(added.len()),
        _ => None,
    });
    assert!(n_added.await > 5);
    seen.dedup();
    assert_eq!(seen.first().map(String::as_str), Some("one connecting"));
    assert!(seen.contains(&"one stderr".to_owned()), "{seen:?}");
    assert_eq!(seen.last().map(String::as_str), Some("one connected"));

    let mutate = json!({"add": "fresh"});
    manager.call("one_mutate_tools", &mutate).await.unwrap();
    let changed = next(&mut events, |event| match event {
        ManagerEvent::ToolsChanged { added, removed, .. } => Some((added.len(), removed.len())),
        _ => None,
    });
    assert_eq!(changed.await, (1, 0));
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

/// Exactly what changed is changed; processes prove it.
#[tokio::test]
async fn reconcile_touches_nothing_but_what_changed() {
    let marker = Marker::new();
    let config = |name: &str, args: &[&str]| scripted(name, &marker, args);
    let old = vec![config("keep", &[]), config("change", &[]), config("gone", &[])];
    let manager = builder().build(old.clone());
    manager.connect_all().await.unwrap();
    let (kept, changed) = (pid(&manager, "keep").await, pid(&manager, "change").await);
    let mut keep = config("keep", &[]);
    keep.deny = vec!["sleep".to_owned()];
    let new = vec![keep, config("change", &["--tools", "1"]), config("new", &[])];
    let plan = manager.reconcile(&old, &new).await.unwrap();
    assert_eq!(plan.connect, ["new"]);
    assert_eq!(plan.disconnect, ["gone"]);
    assert_eq!(plan.reconnect, ["change"]);
    assert_eq!(plan.adjust, ["keep"]);
    assert!(manager.server("gone").is_err());
    eventually("all are connected", || manager.servers().iter().all(|it| it.is_connected())).await;
    assert_eq!(pid(&manager, "keep").await, kept);
    assert_ne!(pid(&manager, "change").await, changed);
    assert!(!tools(&manager).contains(&"keep_sleep".to_owned()));
    assert_eq!(manager.server("keep").unwrap().launch(), Some(1));
    let names: Vec<String> = manager.servers().iter().map(|it| it.name().to_owned()).collect();
    assert_eq!(names, ["keep", "change", "new"]);
    drop(manager);
    eventually("nothing is left", || marker.survivors().is_empty()).await;
}

/// A wall that cannot be built is no reason to go without.
#[tokio::test]
async fn a_protection_that_is_not_there_is_not_left_out() {
    let marker = Marker::new();
    let mut walled = scripted("walled", &marker, &[]);
    walled.sandbox = Some(Sandbox { read: None, write: Vec::new(), net: false });
    let mut pinned = scripted("pinned", &marker, &[]);
    pinned.pin = Pin::Hold;
    let manager = builder().build(vec![walled, pinned]);
    manager.connect_all().await.unwrap();
    for (server, key) in [("walled", "`sandbox`"), ("pinned", "`pin`")] {
        let shown = format!("{:?}", state(&manager, server));
        assert!(shown.contains("Failed") && shown.contains(key), "{shown}");
    }
    assert!(marker.survivors().is_empty());
    manager.close().await;
}

/// A keyring may wait for a person. The server is stopped all the same, and can be started again.
#[tokio::test]
async fn a_lookup_that_hangs_holds_up_nothing_but_its_server() {
    let marker = Marker::new();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let hang = move |_source: Source, _name: &str| {
        // It ends when the other side is dropped.
        held.lock().unwrap().recv().unwrap_or_default();
        Ok(Some("value".to_owned()))
    };
    let mut config = scripted("slow", &marker, &["--plan", "${PLAN}"]);
    config.startup_timeout = Duration::from_millis(300);
    let manager = builder().lookup(Arc::new(hang)).build(vec![config]);
    manager.connect_all().await.unwrap();
    let failed = || format!("{:?}", state(&manager, "slow")).contains("in time");
    eventually("it has failed", failed).await;
    manager.disconnect("slow").await.unwrap();
    drop(release);
    manager.close().await;
    assert!(marker.survivors().is_empty());
}

/// Code of the program runs while a server is connected, and whoever waits for the server hears of its fault.
#[tokio::test]
async fn a_panic_of_the_program_is_a_failure_of_its_server() {
    struct Careless;
    impl ClientHandler for Careless {
        fn capabilities(&self) -> ClientCapabilities {
            panic!("capabilities")
        }
    }
    let marker = Marker::new();
    let careless = builder().handler(Arc::new(Careless)).build(vec![scripted("a", &marker, &[])]);
    let remote = McpServerConfig::http("b", "http://127.0.0.1:9/mcp");
    let unlucky =
        builder().credentials(Arc::new(|_config| panic!("credentials"))).build(vec![remote]);
    for manager in [careless, unlucky] {
        let servers = manager.connect_all().await.unwrap();
        let state = servers[0].state().to_string();
        assert!(state.starts_with("failed: connecting it panicked"), "{state}");
        assert_eq!(servers[0].state().failure().unwrap().kind(), FailureKind::Internal);
        manager.close().await;
    }
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn who_is_slow_or_broken_is_told_after_the_wait() {
    let marker = Marker::new();
    let mut lazy = McpServerConfig::stdio("disabled", "no-such-program-anywhere", &[]);
    lazy.enabled = false;
    let manager = builder().ready_wait(Duration::ZERO).build(vec![
        scripted("good", &marker, &[]),
        scripted("slow", &marker, &["--plan", "unknown=hang; initialize=hang"]),
        McpServerConfig::stdio("broken", "no-such-program-anywhere", &[]),
        lazy,
    ]);
    manager.connect_all().await.unwrap();
    eventually("the good one", || state(&manager, "good") == ConnectionState::Connected).await;
    let late = manager.ready(Duration::from_millis(10)).await;
    let words: Vec<_> = late.iter().map(|it| (it.name(), it.state().word())).collect();
    assert_eq!(words, [("slow", "connecting"), ("broken", "failed")]);
    manager.remove("slow").await.unwrap();
    // No wait is too long, and nobody is waited for who is not on the way.
    let late = manager.ready(Duration::MAX).await;
    assert_eq!(late.iter().map(|it| it.name()).collect::<Vec<_>>(), ["broken"]);
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn no_limit_is_too_long() {
    let marker = Marker::new();
    let mut endless = scripted("a", &marker, &[]);
    endless.startup_timeout = Duration::MAX;
    endless.timeout = Duration::MAX;
    endless.max_timeout = Duration::MAX;
    endless.idle = Some(Duration::MAX);
    let builder = builder().ready_wait(Duration::MAX).retry_wait(Duration::MAX);
    let manager = builder.build(vec![endless]);
    manager.connect_all().await.unwrap();
    pid(&manager, "a").await;
    let again = manager.reconnect("a").await.unwrap();
    assert_eq!(*again.state(), ConnectionState::Connected);
    pid(&manager, "a").await;
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}
