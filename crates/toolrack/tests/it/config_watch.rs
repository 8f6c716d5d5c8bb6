//! A file that changes under a rack: what code added stays, and a broken edit changes nothing.

use std::time::Duration;

use serde_json::json;
use toolrack::{RackEvent, Toolrack};
use toolrack_testkit::Marker;

use crate::fixture::{builder, connected, entry, eventually, next, put, scripted, tools};

async fn pid(rack: &Toolrack, server: &str) -> String {
    rack.call_tool(server, "pid", &json!({})).await.unwrap().content
}

#[tokio::test]
async fn config_edit_affects_only_changed_servers() {
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("toolrack.toml");
    let a = entry("defaults.mcp", "a", &marker, "");
    put(&path, &a);
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

    put(
        &path,
        &format!("{a}{}", entry("defaults.mcp", "b", &marker, "allow = [\"pid\", \"echo\"]")),
    );
    let plan = next(&mut events, |event| match event {
        RackEvent::ConfigApplied { plan } => Some(plan),
        _ => None,
    });
    assert_eq!(plan.await.connect, ["b"]);
    eventually("the new one", || tools(&rack).contains(&"b_pid".to_owned())).await;
    assert!(
        !tools(&rack).iter().any(|tool| tool.ends_with("_echo")),
        "what code denies stays denied"
    );

    put(&path, "[[defaults.mcp]]\nname = \"a\"\n");
    let message = next(&mut events, |event| match event {
        RackEvent::ConfigRejected { message } => Some(message),
        _ => None,
    });
    let message = message.await;
    assert!(message.contains("toolrack.toml:1:"), "{message}");

    put(&path, &a);
    eventually("the new one is gone", || connected(&rack) == ["a", "code"]).await;
    assert_eq!((pid(&rack, "a").await, pid(&rack, "code").await), before);
    rack.shutdown().await;
    marker.assert_nobody_left(Duration::ZERO);
}

/// After the end nobody listens to the file any more.
#[tokio::test]
async fn file_changes_after_shutdown_start_nothing() {
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join("toolrack.toml");
    put(&path, &entry("defaults.mcp", "a", &marker, ""));
    let rack = builder().file(&path).open().await.unwrap();
    let edits = entry("defaults.mcp", "b", &marker, "");
    put(&path, &edits);
    rack.shutdown().await;
    put(&path, &format!("{edits}{}", entry("defaults.mcp", "c", &marker, "")));
    marker.assert_nobody_left(Duration::ZERO);
    assert!(connected(&rack).is_empty());
}
