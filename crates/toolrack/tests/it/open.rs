//! Opening from a file and from code, and all its errors.

use std::error::Error as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use toolrack::config::{EnvValue, McpTransport, VariableSource};
use toolrack::{ConnectionState, ManagerError, McpServerConfig, OpenError, Toolrack};
use toolrack_testkit::Marker;

use crate::fixture::{LONG, builder, connected, entry, eventually, scripted, tools, write_file};

#[tokio::test]
async fn missing_config_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toolrack.toml");
    let error = Toolrack::open(&path).await.unwrap_err();
    let expected = format!("cannot read the config file {}", path.display());
    assert_eq!(error.to_string(), expected);
    assert!(error.source().unwrap().to_string().contains("No such file"));
}

#[tokio::test]
async fn invalid_config_reports_every_error_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toolrack.toml");
    let text = "[[defaults.mcp]]\nname = \"a\"\ntransport = \"stdio\"\n\n[[defaults.mcp]]\n\
                name = \"b\"\ntransport = \"http\"\nurl = 5\n\n[[defaults.mcp]]\nname = \"c\"\n\
                transport = \"stdio\"\ncommand = \"x\"\ntimeuot = \"3s\"\n";
    write_file(&path, text);
    let error = Toolrack::open(&path).await.unwrap_err();
    let OpenError::Invalid { diagnostics } = &error else { panic!("{error:?}") };
    let shown = error.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), diagnostics.len(), "{shown}");
    for (line, place) in [("command", ":1:"), ("url", ":8:"), ("timeuot", ":14:")] {
        let begins = format!("{}{place}", path.display());
        let is_reported =
            lines.iter().any(|shown| shown.starts_with(&begins) && shown.contains(line));
        assert!(is_reported, "{line} at {place} in\n{shown}");
    }
}

#[tokio::test]
async fn config_warnings_are_reported() {
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("toolrack.toml");
    write_file(&path, &entry("defaults.mcp", "a", &marker, "timeuot = \"3s\""));
    let rack = builder().file(&path).open().await.unwrap();
    let warnings: Vec<String> = rack.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("timeout"), "{warnings:?}");
    assert_eq!(connected(&rack), ["a"]);
    rack.shutdown().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn agent_has_default_and_own_servers() {
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("toolrack.toml");
    let text = format!(
        "[defaults]\nname_separator = \"__\"\n\n{}[[agents]]\nid = \"main\"\n{}",
        entry("defaults.mcp", "all", &marker, "allow = [\"echo\"]"),
        entry("agents.mcp", "own", &marker, "allow = [\"pid\"]"),
    );
    write_file(&path, &text);
    let defaults = builder().file(&path).open().await.unwrap();
    assert_eq!(tools(&defaults), ["all__echo"]);
    let main = builder().file(&path).agent("main").open().await.unwrap();
    assert_eq!(tools(&main), ["all__echo", "own__pid"]);
    tokio::join!(defaults.shutdown(), main.shutdown());
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn open_works_without_a_file() {
    let marker = Marker::new();
    let rack = builder()
        .server(scripted("one", &marker, &[]))
        .server(scripted("two", &marker, &[]))
        .deny("pid")
        .open()
        .await
        .unwrap();
    assert_eq!(connected(&rack), ["one", "two"]);
    let echo = rack.call("one_echo").args(json!({"text": "hello"})).send().await.unwrap();
    assert_eq!(echo.text(), "hello");
    let echo = rack.call(("two", "echo")).args(json!({"text": "there"})).send().await.unwrap();
    assert_eq!(echo.text(), "there");
    let denied = rack.call("two.pid").send().await.unwrap_err();
    assert!(matches!(denied, ManagerError::Denied { .. }), "{denied}");
    assert!(rack.find_tool("one_pid").is_none());
    let reconnected = rack.reconnect("one").await.unwrap();
    assert_eq!(*reconnected.state(), ConnectionState::Connected);
    rack.shutdown().await;
    let closed = rack.call("one_echo").args(json!({"text": "late"})).send().await.unwrap_err();
    assert!(matches!(closed, ManagerError::Closed), "{closed}");
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn lookup_resolves_secrets() {
    let marker = Marker::new();
    let mut server = scripted("a", &marker, &[]);
    let McpTransport::Stdio { env, .. } = &mut server.transport else { panic!("not stdio") };
    env.insert("GIVEN".to_owned(), EnvValue::from("<${secret:word}>"));
    let lookup = |source: VariableSource, name: &str| {
        Ok((source == VariableSource::Secret && name == "word").then(|| "s3cret".to_owned()))
    };
    let rack = builder().server(server.clone()).lookup(lookup).open().await.unwrap();
    let answer = rack.call(("a", "env")).send().await.unwrap();
    assert!(answer.text().contains("<s3cret>"), "{}", answer.text());
    rack.shutdown().await;

    // Without a lookup there are no secrets, and the error names the field.
    let rack = builder().server(server).open().await.unwrap();
    let state = rack.servers()[0].state().to_string();
    assert!(state.starts_with("failed: ") && state.contains("the secret `word`"), "{state}");
    rack.shutdown().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// A hanging server delays neither `open` nor the other servers.
#[tokio::test]
async fn hanging_server_does_not_delay_open() {
    let marker = Marker::new();
    let mut slow = scripted("slow", &marker, &["--plan", "unknown=hang; initialize=hang"]);
    slow.startup_timeout = Duration::from_mins(5);
    let started = Instant::now();
    let rack = builder()
        .server(slow)
        .server(scripted("good", &marker, &[]))
        .ready_wait(Duration::from_millis(100))
        .open()
        .await
        .unwrap();
    eventually("the good server connects", || connected(&rack) == ["good"]).await;
    let echo = rack.call("good_echo").args(json!({"text": "hello"})).send().await.unwrap();
    assert_eq!(echo.text(), "hello");
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
    assert_eq!(*rack.servers()[0].state(), ConnectionState::Connecting);
    rack.shutdown().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// `open` does not wait long; `ready` waits for all tools.
#[tokio::test]
async fn ready_waits_for_slow_servers_and_returns_failed_ones() {
    let marker = Marker::new();
    let rack = builder()
        .server(scripted("slow", &marker, &["--plan", "initialize=late(700ms)"]))
        .server(McpServerConfig::stdio("broken", "no-such-program-anywhere", &[]))
        .ready_wait(Duration::ZERO)
        .open()
        .await
        .unwrap();
    assert_eq!(tools(&rack), Vec::<String>::new());
    let late = rack.ready(LONG).await;
    assert_eq!(late.iter().map(|server| server.name()).collect::<Vec<_>>(), ["broken"]);
    assert!(tools(&rack).contains(&"slow_echo".to_owned()));
    rack.shutdown().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn server_names_from_code_are_validated() {
    let open = builder()
        .server(McpServerConfig::stdio("", "x", &[]))
        .server(McpServerConfig::stdio("a/b", "x", &[]))
        .server(McpServerConfig::stdio("fine", "x", &[]));
    let error = open.open().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "name: `` is required and must not be empty\n\
         name: `a/b` must not contain slashes or control characters"
    );
}

#[test]
fn open_requires_a_runtime() {
    let mut opening = pin!(Toolrack::builder().open());
    let outcome = opening.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(outcome, Poll::Ready(Err(OpenError::NoRuntime))), "{outcome:?}");
}

#[tokio::test]
async fn call_full_returns_the_decoded_result() {
    let marker = Marker::new();
    let rack = builder().server(scripted("a", &marker, &[])).open().await.unwrap();
    let arguments = json!({"text": "hello"});
    let full = rack.call("a_echo").args(&arguments).send().await.unwrap();
    assert_eq!((full.text(), full.is_error()), ("hello", false));
    rack.shutdown().await;
    let mut events = rack.events();
    assert!(events.next().await.is_none());
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn dropping_the_last_handle_stops_the_servers() {
    let marker = Marker::new();
    let rack = builder().server(scripted("a", &marker, &[])).open().await.unwrap();
    let other = rack.clone();
    drop(rack);
    let echo = other.call("a_echo").args(json!({"text": "still there"})).send().await.unwrap();
    assert_eq!(echo.text(), "still there");
    assert!(!marker.survivors().is_empty());
    drop(other);
    eventually("no process is left", || marker.survivors().is_empty()).await;
}
