//! Servers over HTTP that go away and come back. No line ends with them, so somebody has to find nobody there.

use std::path::PathBuf;

use futures_util::future::join_all;
use serde_json::json;
use tempfile::TempDir;
use toolrack_config::McpServerConfig;
use toolrack_manager::{ConnectionState, FailureKind, ManagerEvent, McpManager, error_chain};
use toolrack_testkit::proxy::{ChaosProxy, ProxyPlan};
use toolrack_testkit::{HttpLog, HttpServer, HttpServerKind, skipped};

use crate::fixture::{LONG, builder, eventually, next, state, tools};

/// A server without a stream of its own, so that nothing but a request can find it gone.
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
    outcome.map(|it| it.content).map_err(|error| error_chain(&error))
}

/// Calls until the server is known to be gone. A call may be cut with a connection that was used before.
async fn find_gone(manager: &McpManager) {
    let found = async {
        while is_connected(manager) {
            echo(manager).await.unwrap_err();
        }
    };
    tokio::time::timeout(LONG, found).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_find_nobody_are_one_loss_and_the_server_comes_back_by_itself() {
    let mut server = HttpServer::start(HttpServerKind::scripted(&SILENT)).unwrap();
    let manager = connected(&server.url()).await;
    assert_eq!(echo(&manager).await.unwrap(), "x");
    let known = tools(&manager);
    server.kill();
    // Nobody has asked it anything since.
    assert!(is_connected(&manager));
    let mut events = manager.subscribe();
    let outcomes = join_all((0..20).map(|_| echo(&manager))).await;
    let errors: Vec<String> = outcomes.into_iter().map(|it| it.unwrap_err()).collect();
    // One may be cut with the connection that was used before.
    let n_told =
        errors.iter().filter(|it| it.contains("no connection to http://127.0.0.1")).count();
    assert!(n_told >= 19, "{errors:?}");
    let mut words = Vec::new();
    let lost = next(&mut events, |event| match event {
        ManagerEvent::StateChanged { state, .. } => Some(state),
        _ => None,
    });
    let ConnectionState::BackingOff { failure, .. } = lost.await else { panic!("not lost") };
    assert_eq!(failure.kind(), FailureKind::Lost);
    assert!(failure.reason().starts_with("the connection was lost: no connection to"), "{failure}");
    assert_eq!(tools(&manager), known);
    server.launch().unwrap();
    // Nobody calls, and it comes back.
    let back = next(&mut events, |event| match event {
        ManagerEvent::StateChanged { state, .. } => {
            words.push(state.word());
            (state == ConnectionState::Connected).then_some(())
        }
        _ => None,
    });
    back.await;
    assert!(!words.contains(&"backing-off"), "lost more than once: {words:?}");
    let renewed = launch(&manager);
    assert_eq!(echo(&manager).await.unwrap(), "x");
    assert_eq!((launch(&manager), tools(&manager)), (renewed, known));
    manager.close().await;
}

/// Whatever stays open by design breaks with the server, and its next attempt finds nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unused_server_that_goes_away_is_noticed_by_its_stream() {
    for args in [
        ["--shape", "session", "--revision", "2025-11-25"],
        ["--shape", "stateless", "--revision", "modern"],
        ["--shape", "sse", "--revision", "2024-11-05"],
    ] {
        let mut server = HttpServer::start(HttpServerKind::scripted(&args)).unwrap();
        let manager = connected(&server.url()).await;
        server.kill();
        eventually("it is known to be gone", || !is_connected(&manager)).await;
        server.launch().unwrap();
        eventually("it is back", || is_connected(&manager)).await;
        assert_eq!(echo(&manager).await.unwrap(), "x", "{args:?}");
        manager.close().await;
    }
}

/// Servers of others, killed and started again, with a call to find them gone where they have no stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_servers_that_are_killed_come_back_as_soon_as_they_are_there() {
    for kind in [HttpServerKind::Everything, HttpServerKind::Mcp1Stateless, HttpServerKind::Mcp2] {
        if let Some(reason) = kind.missing() {
            skipped(&format!("real_servers_that_are_killed_come_back ({kind:?})"), &reason);
            continue;
        }
        let mut server = HttpServer::start(kind).unwrap();
        let manager = connected(&server.url()).await;
        let known = tools(&manager);
        server.kill();
        find_gone(&manager).await;
        assert_eq!(tools(&manager), known);
        server.launch().unwrap();
        eventually("it is back", || is_connected(&manager)).await;
        assert_eq!(tools(&manager), known);
        manager.close().await;
    }
}

/// A server behind a door that can be closed to whoever comes, while those who are inside stay.
struct Doored {
    _server: HttpServer,
    door: ChaosProxy,
    log: PathBuf,
    _dir: TempDir,
    manager: McpManager,
}

impl Doored {
    async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let args = [&SILENT[..], &["--http-log", log.to_str().unwrap()]].concat();
        let server = HttpServer::start(HttpServerKind::scripted(&args)).unwrap();
        let door = ChaosProxy::start(server.address(), ProxyPlan::default(), 1).unwrap();
        let manager = connected(&format!("http://{}/mcp", door.address())).await;
        Self { _server: server, door, log, _dir: dir, manager }
    }

    /// Closes the door as soon as a call is inside, and lets others stand before it.
    async fn close_behind_a_call(&self) {
        let n_calls = || HttpLog::read(&self.log).unwrap().with_method("tools/call").count();
        eventually("a call is on its way", || n_calls() > 0).await;
        self.door.set_plan(ProxyPlan::parse("refuse").unwrap()).unwrap();
        // Some may find a connection that was used before.
        let outcomes = join_all((0..8).map(|_| echo(&self.manager))).await;
        let is_told = |it: &Result<String, String>| {
            it.as_ref().is_err_and(|error| error.contains("no connection to"))
        };
        assert!(outcomes.iter().any(is_told), "{outcomes:?}");
        eventually("it is known to be gone", || !is_connected(&self.manager)).await;
    }
}

/// A server that is being replaced takes nobody new, and finishes what it has begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_on_their_way_end_well_although_a_new_one_finds_nobody() {
    let doored = Doored::open().await;
    let manager = &doored.manager;
    let before = launch(manager);
    let nap = json!({"ms": 2000});
    let long = manager.call_tool("remote", "sleep", &nap);
    let (slept, ()) = tokio::join!(long, doored.close_behind_a_call());
    assert_eq!(slept.unwrap().content, "slept 2000 ms");
    assert!(!is_connected(manager));
    doored.door.heal().unwrap();
    eventually("it is back", || is_connected(manager)).await;
    assert!(launch(manager) > before);
    assert_eq!(echo(manager).await.unwrap(), "x");
    manager.close().await;
}

/// A stop does not wait for calls that nobody may answer any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_lost_is_stopped_with_its_last_calls() {
    let doored = Doored::open().await;
    let manager = &doored.manager;
    let nap = json!({"ms": 60_000});
    let long = manager.call_tool("remote", "sleep", &nap);
    let stopped = async {
        doored.close_behind_a_call().await;
        manager.disconnect("remote").await.unwrap();
        assert_eq!(state(manager, "remote"), ConnectionState::Disconnected);
    };
    let both = async { tokio::join!(long, stopped) };
    let (cut, ()) = tokio::time::timeout(LONG, both).await.unwrap();
    let error = error_chain(&cut.unwrap_err());
    assert!(error.contains("shut down"), "{error}");
    manager.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_before_does_not_end_the_next_one() {
    let mut server = HttpServer::start(HttpServerKind::scripted(&SILENT)).unwrap();
    let manager = connected(&server.url()).await;
    let old = manager.borrow("remote").await.unwrap();
    server.kill();
    find_gone(&manager).await;
    server.launch().unwrap();
    // Whoever holds it is waited for, and not for long.
    eventually("it is back", || is_connected(&manager)).await;
    let renewed = launch(&manager);
    for _ in 0..3 {
        old.call_tool("echo", &json!({"text": "x"})).await.unwrap_err();
        assert_eq!(echo(&manager).await.unwrap(), "x");
    }
    drop(old);
    assert_eq!((is_connected(&manager), launch(&manager)), (true, renewed));
    manager.close().await;
}
