//! The manager as founding document 003 describes it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use toolrack_config::McpServerConfig;
use toolrack_manager::{ErrorKind, ManagerError, McpManager};
use toolrack_mcp::Content;
use toolrack_testkit::Marker;

use crate::fixture::{builder, eventually, put, scripted, tools};

/// Tasks that use one manager at the same time, on four threads.
const N_TASKS: usize = 16;

#[tokio::test]
async fn connect_is_an_error_until_the_server_is_connected() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("server");
    let manager = builder().build(Vec::new());
    let config = McpServerConfig::stdio("one", program.display().to_string(), &[]);
    let error = manager.connect("one", config.clone()).await.unwrap_err();
    let ManagerError::NotConnected { server, state } = &error else { panic!("{error:?}") };
    assert_eq!(server, "one");
    assert!(state.failure().unwrap().reason().contains("server"), "{error}");
    assert_eq!(error.kind(), ErrorKind::PackageNotFound);
    assert!(error.to_string().starts_with("server `one` is not connected (failed: "), "{error}");
    // It stays known, and is tried again without being asked.
    assert_eq!(manager.servers().len(), 1);
    let scripted = toolrack_testkit::program("scripted-server");
    put(&program, &format!("#!/bin/sh\nexec '{}'\n", scripted.display()));
    make_executable(&program);
    eventually("the retry", || manager.server("one").unwrap().is_connected()).await;
    assert!(manager.connect("one", config).await.unwrap().is_connected());
    manager.close().await;
}

fn make_executable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn tools_denied_before_connect_stay_denied() {
    let marker = Marker::new();
    let manager = builder().build(Vec::new());
    manager.set_denied_tools("one", &["echo"]).await.unwrap();
    let config = scripted("one", &marker, &[]);
    for _ in 0..2 {
        manager.connect("one", config.clone()).await.unwrap();
        let names = tools(&manager);
        assert!(!names.is_empty() && !names.contains(&"one_echo".to_owned()), "{names:?}");
        let error = manager.call_tool("one", "echo", &json!({})).await.unwrap_err();
        assert!(matches!(error, ManagerError::Denied { .. }), "{error}");
        manager.remove("one").await.unwrap();
    }
    manager.set_denied_tools("one", &[]).await.unwrap();
    manager.connect("one", config).await.unwrap();
    assert!(tools(&manager).contains(&"one_echo".to_owned()));
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn call_by_server_and_tool_returns_typed_content() {
    let marker = Marker::new();
    let manager = builder().build(Vec::new());
    manager.connect("one", scripted("one", &marker, &[])).await.unwrap();
    let found = manager.find_tool("echo").unwrap();
    let arguments = json!({"text": "hello"});
    let result = manager.call_tool_full(found.server(), "echo", &arguments).await.unwrap();
    assert!(!result.is_error);
    let [Content::Text { text, .. }] = &*result.content else { panic!("{result:?}") };
    assert_eq!(text, &manager.call_tool("one", "echo", &arguments).await.unwrap().content);
    assert!(text.contains("hello"), "{text}");
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// Every task calls both servers with values of its own. A response that reaches the wrong caller fails it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_calls_from_several_threads_are_not_crossed() {
    let marker = Marker::new();
    let manager = Arc::new(
        builder().build(vec![scripted("one", &marker, &[]), scripted("two", &marker, &[])]),
    );
    manager.connect_all().await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..N_TASKS {
        let manager = Arc::clone(&manager);
        tasks.spawn(async move {
            let mut threads = HashSet::new();
            for turn in 0..50 {
                let (server, text) = (["one", "two"][turn % 2], format!("<{task}:{turn}>"));
                let arguments = json!({"text": text});
                let result = manager.call_tool(server, "echo", &arguments).await.unwrap();
                assert!(result.content.contains(&text), "{text} got {}", result.content);
                threads.insert(std::thread::current().id());
            }
            threads
        });
    }
    let threads: HashSet<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert!(threads.len() > 1, "all tasks ran on one thread");
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// Tasks add, deny, call, list and remove at once. Each one sees its own server as it left it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_are_connected_and_removed_from_several_threads() {
    let marker = Arc::new(Marker::new());
    let manager = Arc::new(builder().build(Vec::new()));
    let mut tasks = JoinSet::new();
    for task in 0..N_TASKS {
        let (manager, marker) = (Arc::clone(&manager), Arc::clone(&marker));
        tasks.spawn(async move { use_own_server(&manager, &marker, task).await });
    }
    tasks.join_all().await;
    let left: Vec<_> = manager.servers().iter().map(|server| server.name().to_owned()).collect();
    assert_eq!(left.len(), N_TASKS / 2, "{left:?}");
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

async fn use_own_server(manager: &McpManager, marker: &Marker, task: usize) {
    let name = format!("server-{task}");
    manager.set_denied_tools(&name, &["add"]).await.unwrap();
    manager.connect(&name, scripted(&name, marker, &[])).await.unwrap();
    let own = |tool: &toolrack_manager::ToolWithServer| **tool.server() == *name;
    let listed = manager.all_tools();
    let listed: Vec<_> =
        listed.iter().filter(|tool| own(tool)).map(|tool| &*tool.tool().name).collect();
    assert!(listed.contains(&"echo") && !listed.contains(&"add"), "{name}: {listed:?}");
    let result = manager.call_tool(&name, "echo", &json!({"text": name})).await.unwrap();
    assert!(result.content.contains(&name), "{}", result.content);
    if task % 2 == 1 {
        manager.remove(&name).await.unwrap();
        assert!(manager.server(&name).is_err());
    }
}
