//! HTTP servers that go down and come back. No connection ends with them, so only a failed request shows the loss.

use std::path::PathBuf;

use futures_util::future::join_all;
use serde_json::json;
use tempfile::TempDir;
use toolrack_config::McpServerConfig;
use toolrack_manager::{ConnectionState, ErrorKind, ManagerEvent, McpManager, error_chain};
use toolrack_testkit::proxy::{ChaosProxy, ProxyPlan};
use toolrack_testkit::{HttpLog, HttpServer, HttpServerKind, skipped};

use crate::fixture::{LONG, builder, eventually, next, state, tools};

/// A server without an event stream, so that only a request can find it unreachable.
const SILENT: [&str; 4] = ["--shape", "stateless", "--revision", "2025-11-25"];

async fn connected(url: &str) -> McpManager {
    let manager = builder().build(vec![McpServerConfig::http("remote", url)]);
    manager.connect_all().await.unwrap();
    assert!(is_connected(&manager), "{}", state(&manager, "remote"));
    manager
}

fn is_connected(manager: &McpManager) -> bool {
    manager.server("remote").unwrap().is_connected()
}

fn launch(manager: &McpManager) -> Option<u64> {
    manager.server("remote").unwrap().launch()
}

async fn echo(manager: &McpManager) -> Result<String, String> {
    let outcome = manager.call_tool("remote", "echo", &json!({"text": "x"})).await;
    outcome.map(|result| result.content).map_err(|error| error_chain(&error))
}

/// Calls until the loss is noticed. A call may fail with a pooled connection first.
async fn notice_loss(manager: &McpManager) {
    let found = async {
        while is_connected(manager) {
            echo(manager).await.unwrap_err();
        }
    };
    tokio::time::timeout(LONG, found).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_failures_are_one_loss_and_the_server_reconnects() {
    let mut server = HttpServer::start(HttpServerKind::scripted(&SILENT)).unwrap();
    let manager = connected(&server.url()).await;
    assert_eq!(echo(&manager).await.unwrap(), "x");
    let known = tools(&manager);
    server.kill();
    // No request was sent since.
    assert!(is_connected(&manager));
    let mut events = manager.subscribe();
    let outcomes = join_all((0..20).map(|_| echo(&manager))).await;
    let errors: Vec<String> = outcomes.into_iter().map(Result::unwrap_err).collect();
    // One call may fail with a pooled connection.
    let is_unreachable = |error: &&String| error.contains("http://127.0.0.1");
    assert!(errors.iter().filter(is_unreachable).count() >= 19, "{errors:?}");
    let mut states = Vec::new();
    let lost = next(&mut events, |event| match event {
        ManagerEvent::StateChanged { state, .. } => Some(state),
        _ => None,
    });
    let ConnectionState::BackingOff { failure, .. } = lost.await else { panic!("not lost") };
    assert_eq!(failure.kind(), ErrorKind::Lost);
    let reason = failure.reason();
    assert!(reason.starts_with("connection lost: ") && reason.contains("http://"), "{reason}");
    assert_eq!(tools(&manager), known);
    server.launch().unwrap();
    // It reconnects without a call.
    let back = next(&mut events, |event| match event {
        ManagerEvent::StateChanged { state, .. } => {
            states.push(state.as_str());
            (state == ConnectionState::Connected).then_some(())
        }
        _ => None,
    });
    back.await;
    assert!(!states.contains(&"backing-off"), "lost more than once: {states:?}");
    let renewed = launch(&manager);
    assert_eq!(echo(&manager).await.unwrap(), "x");
    assert_eq!((launch(&manager), tools(&manager)), (renewed, known));
    manager.close().await;
}

/// The event stream breaks with the server, and reopening it fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_stream_detects_the_end_of_an_idle_server() {
    for args in [
        ["--shape", "session", "--revision", "2025-11-25"],
        ["--shape", "stateless", "--revision", "modern"],
        ["--shape", "sse", "--revision", "2024-11-05"],
    ] {
        let mut server = HttpServer::start(HttpServerKind::scripted(&args)).unwrap();
        let manager = connected(&server.url()).await;
        server.kill();
        eventually("the loss is noticed", || !is_connected(&manager)).await;
        server.launch().unwrap();
        eventually("the server is connected again", || is_connected(&manager)).await;
        assert_eq!(echo(&manager).await.unwrap(), "x", "{args:?}");
        manager.close().await;
    }
}

/// Third-party servers, killed and started again. Those without an event stream need a call to notice the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_real_servers_reconnect() {
    for kind in [HttpServerKind::Everything, HttpServerKind::Mcp1Stateless, HttpServerKind::Mcp2] {
        if let Some(reason) = kind.unavailable_reason() {
            skipped(&format!("killed_real_servers_reconnect ({kind:?})"), &reason);
            continue;
        }
        let mut server = HttpServer::start(kind).unwrap();
        let manager = connected(&server.url()).await;
        let known = tools(&manager);
        server.kill();
        notice_loss(&manager).await;
        assert_eq!(tools(&manager), known);
        server.launch().unwrap();
        eventually("the server is connected again", || is_connected(&manager)).await;
        assert_eq!(tools(&manager), known);
        manager.close().await;
    }
}

/// A server behind a proxy that can refuse new connections and keep the open ones.
struct Proxied {
    _server: HttpServer,
    proxy: ChaosProxy,
    log: PathBuf,
    _dir: TempDir,
    manager: McpManager,
}

impl Proxied {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let args = [&SILENT[..], &["--http-log", log.to_str().unwrap()]].concat();
        let server = HttpServer::start(HttpServerKind::scripted(&args)).unwrap();
        let proxy = ChaosProxy::start(server.address(), ProxyPlan::default(), 1).unwrap();
        let manager = connected(&format!("http://{}/mcp", proxy.address())).await;
        Self { _server: server, proxy, log, _dir: dir, manager }
    }

    /// Refuses new connections as soon as a call is in flight, and sends more calls.
    async fn refuse_after_a_call(&self) {
        let n_calls = || HttpLog::read(&self.log).unwrap().with_method("tools/call").count();
        eventually("a call is in flight", || n_calls() > 0).await;
        self.proxy.set_plan(ProxyPlan::parse("refuse").unwrap()).unwrap();
        // Some may use a pooled connection.
        let outcomes = join_all((0..8).map(|_| echo(&self.manager))).await;
        let is_unreachable = |outcome: &Result<String, String>| {
            outcome.as_ref().is_err_and(|error| error.contains("http://"))
        };
        assert!(outcomes.iter().any(is_unreachable), "{outcomes:?}");
        eventually("the loss is noticed", || !is_connected(&self.manager)).await;
    }
}

/// A server that is being replaced refuses new connections and finishes its calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_finish_when_new_ones_find_the_server_unreachable() {
    let proxied = Proxied::start().await;
    let manager = &proxied.manager;
    let before = launch(manager);
    let arguments = json!({"ms": 2000});
    let slow_call = manager.call_tool("remote", "sleep", &arguments);
    let (slept, ()) = tokio::join!(slow_call, proxied.refuse_after_a_call());
    assert_eq!(slept.unwrap().content, "slept 2000 ms");
    assert!(!is_connected(manager));
    proxied.proxy.heal().unwrap();
    eventually("the server is connected again", || is_connected(manager)).await;
    assert!(launch(manager) > before);
    assert_eq!(echo(manager).await.unwrap(), "x");
    manager.close().await;
}

/// A stop does not wait for calls that may never get a response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_cancels_the_calls_of_a_lost_server() {
    let proxied = Proxied::start().await;
    let manager = &proxied.manager;
    let arguments = json!({"ms": 60_000});
    let slow_call = manager.call_tool("remote", "sleep", &arguments);
    let stopped = async {
        proxied.refuse_after_a_call().await;
        manager.disconnect("remote").await.unwrap();
        assert_eq!(state(manager, "remote"), ConnectionState::Disconnected);
    };
    let both = async { tokio::join!(slow_call, stopped) };
    let (cut, ()) = tokio::time::timeout(LONG, both).await.unwrap();
    let error = error_chain(&cut.unwrap_err());
    assert!(error.contains("shut down"), "{error}");
    manager.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_connection_does_not_close_the_next_one() {
    let mut server = HttpServer::start(HttpServerKind::scripted(&SILENT)).unwrap();
    let manager = connected(&server.url()).await;
    let old = manager.acquire_client("remote").await.unwrap();
    server.kill();
    notice_loss(&manager).await;
    server.launch().unwrap();
    // The held client delays the reconnect only until the drain timeout.
    eventually("the server is connected again", || is_connected(&manager)).await;
    let renewed = launch(&manager);
    for _ in 0..3 {
        old.call_tool("echo", &json!({"text": "x"})).await.unwrap_err();
        assert_eq!(echo(&manager).await.unwrap(), "x");
    }
    drop(old);
    assert_eq!((is_connected(&manager), launch(&manager)), (true, renewed));
    manager.close().await;
}
