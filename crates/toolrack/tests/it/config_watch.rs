//! Config file changes: servers from code stay, and an invalid edit changes nothing.

use std::time::Duration;

use toolrack::{ManagerEvent, Toolrack};
use toolrack_testkit::Marker;

use crate::fixture::{builder, connected, entry, eventually, next, scripted, tools, write_file};

async fn pid(rack: &Toolrack, server: &str) -> String {
    rack.call((server, "pid")).send().await.unwrap().text().to_owned()
}

#[tokio::test]
async fn config_edit_affects_only_changed_servers() {
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("toolrack.toml");
    let a = entry("defaults.mcp", "a", &marker, "");
    write_file(&path, &a);
    let rack = builder()
        .file(&path)
        .server(scripted("code", &marker, &[]))
        .deny("echo")
        .open()
        .await
        .unwrap();
    assert_eq!(connected(&rack), ["a", "code"]);
    let before = (pid(&rack, "a").await, pid(&rack, "code").await);
    let mut events = rack.events();

    write_file(
        &path,
        &format!("{a}{}", entry("defaults.mcp", "b", &marker, "allow = [\"pid\", \"echo\"]")),
    );
    let plan = next(&mut events, |event| match event {
        ManagerEvent::ConfigApplied { plan } => Some(plan),
        _ => None,
    });
    assert_eq!(plan.await.connect, ["b"]);
    eventually("the new server connects", || tools(&rack).contains(&"b_pid".to_owned())).await;
    assert!(
        !tools(&rack).iter().any(|tool| tool.ends_with("_echo")),
        "tools denied in code stay denied"
    );

    write_file(&path, "[[defaults.mcp]]\nname = \"a\"\n");
    let message = next(&mut events, |event| match event {
        ManagerEvent::ConfigRejected { message } => Some(message),
        _ => None,
    });
    let message = message.await;
    assert!(message.contains("toolrack.toml:1:"), "{message}");

    write_file(&path, &a);
    eventually("the new server is removed", || connected(&rack) == ["a", "code"]).await;
    assert_eq!((pid(&rack, "a").await, pid(&rack, "code").await), before);
    rack.shutdown().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// After shutdown the file is no longer watched.
#[tokio::test]
async fn file_changes_after_shutdown_start_nothing() {
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("toolrack.toml");
    write_file(&path, &entry("defaults.mcp", "a", &marker, ""));
    let rack = builder().file(&path).open().await.unwrap();
    let edits = entry("defaults.mcp", "b", &marker, "");
    write_file(&path, &edits);
    rack.shutdown().await;
    write_file(&path, &format!("{edits}{}", entry("defaults.mcp", "c", &marker, "")));
    marker.assert_no_processes_left(Duration::ZERO);
    assert!(connected(&rack).is_empty());
}
