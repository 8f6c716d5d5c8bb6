//! Config file watcher: edits, replacements, deletions, rapid writes and invalid files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toolrack_manager::{FileWatch, ManagerEvent, ManagerEvents, McpManager};
use toolrack_testkit::{Marker, program};

use crate::fixture::{LONG, builder, eventually, next, pid, put};
use crate::real_servers::parse;

/// Text of a config file with servers of these names.
fn text(marker: &Marker, names: &[&str]) -> String {
    let (variable, value) = marker.env_var();
    let command = program("scripted-server").display().to_string();
    let entry = |name: &&str| {
        format!(
            "[[defaults.mcp]]\nname = \"{name}\"\ntransport = \"stdio\"\ncommand = \"{command}\"\n\
             env = {{ {variable} = \"{value}\" }}\n"
        )
    };
    names.iter().map(entry).collect()
}

fn names(manager: &McpManager) -> Vec<String> {
    let connected = manager.servers().into_iter().filter(|server| server.is_connected());
    connected.map(|server| server.name().to_owned()).collect()
}

async fn watch(path: &Path, text: &str) -> (McpManager, FileWatch, ManagerEvents) {
    put(path, text);
    let servers = parse(path, text).unwrap();
    let manager = builder().build(servers.clone());
    manager.connect_all().await.unwrap();
    let watch = manager.watch_file(path, servers, Arc::new(parse)).unwrap();
    let events = manager.subscribe();
    (manager, watch, events)
}

#[tokio::test]
async fn edits_replacements_and_deletions_are_noticed() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toolrack.toml");
    let (manager, watch, mut events) = watch(&path, &text(&marker, &["a"])).await;
    let first = pid(&manager, "a").await;

    put(&path, &text(&marker, &["a", "b"]));
    eventually("an edit", || names(&manager) == ["a", "b"]).await;

    let draft = dir.path().join("draft");
    put(&draft, &text(&marker, &["a", "c"]));
    std::fs::rename(&draft, &path).unwrap();
    eventually("an atomic replacement", || names(&manager) == ["a", "c"]).await;

    std::fs::remove_file(&path).unwrap();
    let rejected = next(&mut events, |event| match event {
        ManagerEvent::ConfigRejected { message } => Some(message),
        _ => None,
    });
    let message = rejected.await;
    assert!(message.contains("toolrack.toml"), "{message}");
    assert_eq!(names(&manager), ["a", "c"]);
    put(&path, &text(&marker, &["a", "d"]));
    eventually("a file that came back", || names(&manager) == ["a", "d"]).await;

    assert_eq!(pid(&manager, "a").await, first, "an unchanged server was restarted");
    drop(watch);
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// A config is often a symlink into a dotfiles directory, and the edit happens there.
#[tokio::test]
async fn symlink_target_is_watched() {
    let marker = Marker::new();
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, target) = (dir.path().join("toolrack.toml"), elsewhere.path().join("config.toml"));
    put(&target, "");
    std::os::unix::fs::symlink(&target, &path).unwrap();
    let (manager, _watch, _events) = watch(&path, &text(&marker, &["a"])).await;
    put(&target, &text(&marker, &["a", "b"]));
    eventually("an edit of the target", || names(&manager) == ["a", "b"]).await;
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn invalid_edit_is_rejected_and_reported() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toolrack.toml");
    let (manager, _watch, mut events) = watch(&path, &text(&marker, &["a"])).await;
    let first = pid(&manager, "a").await;
    for broken in ["[[defaults.mcp]\n", "[[defaults.mcp]]\nname = \"x\"\ntransport = \"stdio\"\n"] {
        put(&path, broken);
        let rejected = next(&mut events, |event| match event {
            ManagerEvent::ConfigRejected { message } => Some(message),
            ManagerEvent::ConfigApplied { plan } => panic!("{plan:?}"),
            _ => None,
        });
        let message = rejected.await;
        assert!(message.contains("toolrack.toml:"), "{message}");
        assert_eq!(names(&manager), ["a"]);
        assert_eq!(pid(&manager, "a").await, first);
    }
    put(&path, &text(&marker, &["a", "b"]));
    eventually("a good edit", || names(&manager) == ["a", "b"]).await;
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// A hundred edits within a second are applied a few times, and the last one always.
#[tokio::test]
async fn rapid_edits_are_debounced() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toolrack.toml");
    let (manager, _watch, mut events) = watch(&path, &text(&marker, &["a"])).await;
    for number in 0..100 {
        let name = format!("n{number}");
        put(&path, &text(&marker, &["a", &name]));
        tokio::time::sleep(Duration::from_millis(8)).await;
    }
    eventually("the last edit", || names(&manager) == ["a", "n99"]).await;
    let mut n_applied = 0;
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(50), events.next()).await
    {
        n_applied += usize::from(matches!(event, ManagerEvent::ConfigApplied { .. }));
    }
    assert!((1..=20).contains(&n_applied), "{n_applied} times");
    tokio::time::timeout(LONG, manager.close()).await.unwrap();
    marker.assert_no_processes_left(Duration::ZERO);
}
