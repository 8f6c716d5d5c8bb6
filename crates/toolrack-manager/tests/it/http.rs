//! HTTP servers beside stdio servers: the same states, names and calls.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolrack_config::{McpServerConfig, McpTransport, VariableSource};
use toolrack_manager::ConnectionState;
use toolrack_testkit::{HttpLog, Marker, program};

use crate::fixture::{builder, eventually, scripted, state};

/// A scripted HTTP server. It exits when its stdin is closed.
struct Remote {
    child: Child,
    url: String,
}

impl Remote {
    #[expect(clippy::disallowed_methods, reason = "the server of this test is not ours to manage")]
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(program("scripted-server"))
            .args(["--http", "127.0.0.1:0"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening ").unwrap().to_owned();
        Self { child, url }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_and_stdio_servers_work_side_by_side() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let remote = Remote::start(&["--shape", "dual", "--http-log", log.to_str().unwrap()]);
    let mut config = McpServerConfig::http("remote", &remote.url);
    let McpTransport::Http { headers, .. } = &mut config.transport else { panic!("not http") };
    headers.insert("X-Token".to_owned(), "Bearer ${TOKEN}".to_owned());
    // The port of a server that has exited refuses connections.
    let gone = Remote::start(&[]).url.clone();
    let lookup = |_: VariableSource, name: &str| Ok((name == "TOKEN").then(|| "t0ken".to_owned()));
    let manager = builder().lookup(Arc::new(lookup)).build(vec![
        config,
        scripted("local", &marker, &[]),
        McpServerConfig::http("gone", gone),
    ]);
    manager.connect_all().await.unwrap();
    for name in ["remote", "local"] {
        eventually(name, || manager.server(name).unwrap().is_connected()).await;
        let result =
            manager.call(&format!("{name}_echo")).args(json!({"text": name})).send().await.unwrap();
        assert_eq!(result.text(), name);
    }
    let failed = state(&manager, "gone");
    assert!(matches!(failed, ConnectionState::Failed(_)), "{failed}");
    assert!(failed.to_string().contains("127.0.0.1"), "{failed}");
    let log = HttpLog::read(&log).unwrap();
    assert!(log.with_verb("POST").all(|request| format!("{request:?}").contains("t0ken")));
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// A server that requires a login is not retried.
#[tokio::test]
async fn status_401_becomes_needs_auth() {
    let remote = Remote::start(&["--shape", "session", "--plan", "http=status(401)"]);
    let manager = builder().build(vec![McpServerConfig::http("locked", &remote.url)]);
    manager.connect_all().await.unwrap();
    let is_locked = || matches!(state(&manager, "locked"), ConnectionState::NeedsAuth(_));
    eventually("the server requires a login", is_locked).await;
    manager.close().await;
}
