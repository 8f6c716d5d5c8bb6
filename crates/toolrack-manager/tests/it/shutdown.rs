//! Shutdown of a manager: by its owner, or with its Tokio runtime.

use std::time::Duration;

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use toolrack_manager::{ConnectionState, ManagerError};
use toolrack_testkit::Marker;
use toolrack_transport::Delivery;

use crate::fixture::{LONG, builder, scripted};

/// A manager that is built on one runtime and used on another.
#[test]
fn manager_closes_with_its_runtime() {
    let marker = Marker::new();
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let slow = scripted("slow", &marker, &["--plan", "unknown=hang; initialize=hang"]);
    let manager = first.block_on(async {
        let configs = vec![scripted("a", &marker, &[]), slow];
        let manager = builder().ready_wait(Duration::ZERO).build(configs);
        manager.connect_all().await.unwrap();
        manager.start("a").await.unwrap();
        manager
    });
    let mut events = manager.subscribe();
    drop(first);
    second.block_on(async {
        let arguments = json!({"text": "x"});
        let echo = manager.call_tool("a", "echo", &arguments);
        let failed = timeout(LONG, echo).await.unwrap().unwrap_err();
        assert!(matches!(failed, ManagerError::Closed), "{failed}");
        assert_eq!(failed.delivery(), Delivery::NotSent);
        assert_eq!(*manager.server("a").unwrap().state(), ConnectionState::Disconnected);
        let waiting = manager.call_tool("slow", "echo", &arguments);
        let failed = timeout(LONG, waiting).await.unwrap().unwrap_err();
        assert!(matches!(failed, ManagerError::Closed), "{failed}");
        let failed = timeout(LONG, manager.reconnect("a")).await.unwrap().unwrap_err();
        assert!(matches!(failed, ManagerError::Closed), "{failed}");
        while timeout(LONG, events.next()).await.unwrap().is_some() {}
        timeout(LONG, manager.close()).await.unwrap();
    });
    marker.assert_no_processes_left(LONG);
}

#[tokio::test]
async fn closed_manager_rejects_calls() {
    let marker = Marker::new();
    let manager = builder().build(vec![scripted("a", &marker, &[])]);
    manager.connect_all().await.unwrap();
    let mut events = manager.subscribe();
    manager.close().await;
    for name in ["a_echo", "a.echo", "nothing_like_it"] {
        let refused = manager.call(name).args(json!({"text": "x"})).send().await.unwrap_err();
        assert!(matches!(refused, ManagerError::Closed), "{name}: {refused}");
    }
    let refused = manager.call_tool("unknown", "echo", &json!({})).await.unwrap_err();
    assert!(matches!(refused, ManagerError::Closed), "{refused}");
    while timeout(LONG, events.next()).await.unwrap().is_some() {}
    marker.assert_no_processes_left(Duration::ZERO);
}
