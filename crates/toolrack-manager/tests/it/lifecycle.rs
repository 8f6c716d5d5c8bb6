//! Starting, stopping and reconnecting real processes, one at a time per server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use toolrack_client::ClientHandler;
use toolrack_config::{EnvValue, McpServerConfig, McpTransport, Pin, Sandbox, VariableSource};
use toolrack_manager::{ConnectionState, ErrorKind, ManagerEvent};
use toolrack_mcp::ClientCapabilities;
use toolrack_testkit::{LogCapture, Marker};

use crate::fixture::{builder, eventually, next, pid, scripted, state, tools};

#[tokio::test]
async fn broken_server_does_not_block_the_others() {
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
    let states: Vec<_> =
        servers.iter().map(|server| (server.name(), server.state().as_str())).collect();
    let expected = [
        ("good", "connected"),
        ("missing", "failed"),
        ("dying", "failed"),
        ("disabled", "disabled"),
        ("other", "connected"),
    ];
    assert_eq!(states, expected);
    let failure = |name: &str| state(&manager, name).failure().unwrap().clone();
    let reason = failure("missing").reason().to_owned();
    assert!(reason.contains("`no-such-program-anywhere`"), "{reason}");
    assert!(failure("dying").reason().contains("code 3"), "{}", failure("dying"));
    assert!(failure("dying").hint().is_some(), "no stderr output");
    let is_expected = |name: &String| name.starts_with("good_") || name.starts_with("other_");
    assert!(tools(&manager).iter().all(is_expected));
    assert_eq!(manager.get_tools().await.len(), manager.all_tools().len());
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// Document 002: a server that fails to connect is logged as a warning, with its name and the reason.
#[tokio::test]
async fn connect_all_warns_about_a_failed_server() {
    let logged = LogCapture::default();
    let _default = tracing::subscriber::set_default(logged.clone());
    let marker = Marker::new();
    let missing = McpServerConfig::stdio("missing", "no-such-program-anywhere", &[]);
    let manager = builder().build(vec![scripted("good", &marker, &[]), missing]);
    manager.connect_all().await.unwrap();
    let text = logged.text();
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("WARN")).collect();
    let [warning] = &*warnings else { panic!("{warnings:?}") };
    for part in ["cannot connect to server", "missing", "no-such-program-anywhere"] {
        assert!(warning.contains(part), "{warning}");
    }
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn removing_the_last_server_removes_its_tools() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("only", &marker, &[])]);
    manager.connect_all().await.unwrap();
    assert!(!tools(&manager).is_empty());
    manager.remove("only").await.unwrap();
    assert_eq!(tools(&manager), Vec::<String>::new());
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// Spec 002: variables are resolved when the connection is made, so the next one sees a changed value.
#[tokio::test]
async fn variables_are_resolved_for_each_connection() {
    let marker = Marker::new();
    let mut config = scripted("one", &marker, &[]);
    let McpTransport::Stdio { env, .. } = &mut config.transport else {
        panic!("not a stdio server")
    };
    env.insert("SETTING".to_owned(), EnvValue::from("value-${COUNT}"));
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let lookup = move |_: VariableSource, name: &str| match counted.fetch_add(1, Ordering::Relaxed)
    {
        0 => Ok(None),
        number => Ok((name == "COUNT").then(|| number.to_string())),
    };
    let manager = builder().lookup(Arc::new(lookup)).build(vec![config]);
    manager.connect_all().await.unwrap();
    let state = state(&manager, "one");
    assert!(state.to_string().contains("COUNT"), "{state}");
    for expected in 1..=2 {
        // The server may have been retried meanwhile.
        let connected = manager.reconnect("one").await.unwrap();
        assert!(connected.is_connected(), "{}", connected.state());
        let result = manager.call("one_env").send().await.unwrap();
        let env = result.text();
        let number = count.load(Ordering::Relaxed) - 1;
        assert!(number >= expected && env.contains(&format!("value-{number}")), "{env}");
    }
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// Faults F13 and F14: any sequence of requests leaves at most one process.
#[tokio::test]
async fn rapid_stop_and_start_leave_at_most_one_process() {
    let marker = Marker::new();
    let manager =
        builder().build(vec![scripted("one", &marker, &["--plan", "initialize=late(50ms)"])]);
    for round in 0_u64..6 {
        let connecting = manager.connect_all();
        drop(tokio::time::timeout(Duration::from_millis(round * 15), connecting).await);
        let reconnecting = manager.reconnect("one");
        drop(tokio::time::timeout(Duration::from_millis(round * 10), reconnecting).await);
        manager.disconnect("one").await.unwrap();
        assert_eq!(state(&manager, "one"), ConnectionState::Disconnected);
        marker.assert_no_processes_left(Duration::ZERO);
    }
    let connected = manager.reconnect("one").await.unwrap();
    assert!(connected.is_connected(), "{}", connected.state());
    let servers =
        marker.survivors().into_iter().filter(|process| process.command_line.contains("scripted"));
    assert_eq!(servers.count(), 1);
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// Fault F14: a server that never finishes its start can be stopped.
#[tokio::test]
async fn hanging_start_can_be_stopped() {
    let marker = Marker::new();
    let hangs = ["--plan", "initialize=hang; discover=hang"];
    let manager = builder()
        .ready_wait(Duration::from_millis(300))
        .build(vec![scripted("one", &marker, &hangs), scripted("two", &marker, &[])]);
    manager.connect_all().await.unwrap();
    assert_eq!(state(&manager, "one"), ConnectionState::Connecting);
    eventually("the other server is connected", || manager.server("two").unwrap().is_connected())
        .await;
    manager.disconnect("one").await.unwrap();
    assert_eq!(state(&manager, "one"), ConnectionState::Disconnected);
    manager.disconnect_all().await.unwrap();
    marker.assert_no_processes_left(Duration::ZERO);
    manager.close().await;
}

/// Fault F88: a server that the user has stopped stays stopped.
#[tokio::test]
async fn stopped_server_is_not_started_by_calls_or_retries() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("one", &marker, &["--plan", "call:1=exit(1)"])]);
    manager.connect_all().await.unwrap();
    manager.call("one_echo").args(json!({"text": "x"})).send().await.unwrap_err();
    manager.disconnect("one").await.unwrap();
    let error = manager.call_tool("one", "echo", &json!({"text": "x"})).await.unwrap_err();
    assert_eq!(error.to_string(), "server `one` is not connected (disconnected)");
    // Longer than the first backoff, after which it would have been restarted.
    tokio::time::sleep(Duration::from_millis(600)).await;
    marker.assert_no_processes_left(Duration::ZERO);
    manager.close().await;
}

/// Fault F85 with real processes: a crash loop slows down and is reported.
#[tokio::test]
async fn crash_loop_is_reported_and_ends_with_a_new_config() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("one", &marker, &["--plan", "start=exit(1)"])]);
    manager.connect_all().await.unwrap();
    eventually("five starts", || manager.server("one").unwrap().is_crash_looping()).await;
    assert!(manager.server("one").unwrap().launch().unwrap_or(5) <= 6);
    let good = scripted("one", &marker, &[]);
    let connected = manager.connect("one", good).await.unwrap();
    assert!(connected.is_connected() && !connected.is_crash_looping(), "{}", connected.state());
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn events_report_states_tools_and_stderr() {
    let marker = Marker::new();
    let manager = builder().build(Vec::new());
    let mut events = manager.subscribe();
    let noisy = scripted("one", &marker, &["--plan", "start=stderr(1KiB)"]);
    manager.connect("one", noisy).await.unwrap();
    let mut seen = Vec::new();
    let n_added = next(&mut events, |event| match event {
        ManagerEvent::StateChanged { server, state } => {
            seen.push(format!("{server} {}", state.as_str()));
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
    manager.call("one_mutate_tools").args(&mutate).send().await.unwrap();
    let changed = next(&mut events, |event| match event {
        ManagerEvent::ToolsChanged { added, removed, .. } => Some((added.len(), removed.len())),
        _ => None,
    });
    assert_eq!(changed.await, (1, 0));
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// The process ids show which servers were restarted.
#[tokio::test]
async fn reconcile_touches_only_changed_servers() {
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
    let all_connected = || manager.servers().iter().all(|server| server.is_connected());
    eventually("all are connected", all_connected).await;
    assert_eq!(pid(&manager, "keep").await, kept);
    assert_ne!(pid(&manager, "change").await, changed);
    assert!(!tools(&manager).contains(&"keep_sleep".to_owned()));
    assert_eq!(manager.server("keep").unwrap().launch(), Some(1));
    let names: Vec<String> =
        manager.servers().iter().map(|server| server.name().to_owned()).collect();
    assert_eq!(names, ["keep", "change", "new"]);
    drop(manager);
    eventually("nothing is left", || marker.survivors().is_empty()).await;
}

/// Clones are handles of one manager. Adapters hold one, too.
#[tokio::test]
async fn dropping_the_last_clone_ends_the_servers() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("one", &marker, &[])]);
    manager.connect_all().await.unwrap();
    let (clone, adapters) = (manager.clone(), manager.get_tools().await);
    drop(manager);
    let called = clone.call("one_echo").args(json!({"text": "clone"})).send().await.unwrap();
    assert_eq!(called.text(), "clone");
    drop(clone);
    let echo = adapters.iter().find(|adapter| adapter.name() == "one_echo").unwrap();
    assert_eq!(echo.call(json!({"text": "adapter"})).await.unwrap(), "adapter");
    assert!(!marker.survivors().is_empty());
    drop(adapters);
    eventually("nothing is left", || marker.survivors().is_empty()).await;
}

/// A server does not run without a protection that its config asks for.
#[tokio::test]
async fn unsupported_protection_fails_closed() {
    let marker = Marker::new();
    let mut sandboxed = scripted("sandboxed", &marker, &[]);
    sandboxed.sandbox = Some(Sandbox { read: None, write: Vec::new(), net: false });
    let mut pinned = scripted("pinned", &marker, &[]);
    pinned.pin = Pin::Hold;
    let manager = builder().build(vec![sandboxed, pinned]);
    manager.connect_all().await.unwrap();
    for (server, key) in [("sandboxed", "`sandbox`"), ("pinned", "`pin`")] {
        let state = format!("{:?}", state(&manager, server));
        assert!(state.contains("Failed") && state.contains(key), "{state}");
    }
    assert!(marker.survivors().is_empty());
    manager.close().await;
}

/// A keyring may wait for the user. The server can still be stopped.
#[tokio::test]
async fn hanging_lookup_blocks_only_its_server() {
    let marker = Marker::new();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let hang = move |_source: VariableSource, _name: &str| {
        // Returns when the sender is dropped.
        held.lock().unwrap().recv().unwrap_or_default();
        Ok(Some("value".to_owned()))
    };
    let mut config = scripted("slow", &marker, &["--plan", "${PLAN}"]);
    config.startup_timeout = Duration::from_millis(300);
    let manager = builder().lookup(Arc::new(hang)).build(vec![config]);
    manager.connect_all().await.unwrap();
    let failed = || format!("{:?}", state(&manager, "slow")).contains("timed out");
    eventually("the lookup has timed out", failed).await;
    manager.disconnect("slow").await.unwrap();
    drop(release);
    manager.close().await;
    assert!(marker.survivors().is_empty());
}

/// Callbacks of the application run while a server connects; a panic in them fails that server.
#[tokio::test]
async fn application_panic_fails_only_its_server() {
    struct PanickingHandler;
    impl ClientHandler for PanickingHandler {
        fn capabilities(&self) -> ClientCapabilities {
            panic!("capabilities")
        }
    }
    let marker = Marker::new();
    let panicking_handler =
        builder().handler(Arc::new(PanickingHandler)).build(vec![scripted("a", &marker, &[])]);
    let remote = McpServerConfig::http("b", "http://127.0.0.1:9/mcp");
    let panicking_credentials =
        builder().credentials(Arc::new(|_config| panic!("credentials"))).build(vec![remote]);
    for manager in [panicking_handler, panicking_credentials] {
        let servers = manager.connect_all().await.unwrap();
        let state = servers[0].state().to_string();
        assert!(state.starts_with("failed: connecting panicked"), "{state}");
        assert_eq!(servers[0].state().failure().unwrap().kind(), ErrorKind::Internal);
        manager.close().await;
    }
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn ready_returns_slow_and_failed_servers() {
    let marker = Marker::new();
    let mut disabled = McpServerConfig::stdio("disabled", "no-such-program-anywhere", &[]);
    disabled.enabled = false;
    let manager = builder().ready_wait(Duration::ZERO).build(vec![
        scripted("good", &marker, &[]),
        scripted("slow", &marker, &["--plan", "unknown=hang; initialize=hang"]),
        McpServerConfig::stdio("broken", "no-such-program-anywhere", &[]),
        disabled,
    ]);
    manager.connect_all().await.unwrap();
    eventually("the good server is connected", || {
        state(&manager, "good") == ConnectionState::Connected
    })
    .await;
    let late = manager.ready(Duration::from_millis(10)).await;
    let states: Vec<_> =
        late.iter().map(|server| (server.name(), server.state().as_str())).collect();
    assert_eq!(states, [("slow", "connecting"), ("broken", "failed")]);
    manager.remove("slow").await.unwrap();
    // The longest wait does not overflow, and ends at once because no server is connecting.
    let late = manager.ready(Duration::MAX).await;
    assert_eq!(late.iter().map(|server| server.name()).collect::<Vec<_>>(), ["broken"]);
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn maximum_durations_do_not_overflow() {
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
    marker.assert_no_processes_left(Duration::ZERO);
}
