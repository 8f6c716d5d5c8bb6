//! Calls: names, filter rules, output, retries and events.

use std::time::Duration;

use serde_json::json;
use toolrack_manager::{CallOutcome, ManagerError, ManagerEvent, McpManager};
use toolrack_testkit::{Journal, Marker};
use toolrack_transport::Delivery;

use crate::fixture::{LONG, builder, eventually, next, pid, scripted, tools};

async fn connected_manager(args: &[&str], marker: &Marker) -> McpManager {
    let manager = builder().build(vec![scripted("one", marker, args)]);
    manager.connect_all().await.unwrap();
    eventually("the server is connected", || manager.server("one").unwrap().is_connected()).await;
    manager
}

async fn close(manager: McpManager, marker: &Marker) {
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn tool_is_callable_by_every_notation() {
    let marker = Marker::new();
    let manager = connected_manager(&[], &marker).await;
    let text = json!({"text": "hello"});
    for name in ["one_echo", "one.echo", "one/echo", "mcp__one__echo"] {
        let result = manager.call(name).args(&text).send().await.unwrap();
        assert_eq!((result.text(), result.is_error()), ("hello", false), "{name}");
    }
    assert_eq!(manager.call_tool("one", "echo", &text).await.unwrap().content, "hello");
    assert_eq!(&**manager.find_tool("echo").unwrap().server(), "one");
    let raw = serde_json::value::to_raw_value(&text).unwrap();
    let raw = manager.call("one_echo").args(&raw).send_raw().await.unwrap();
    assert!(String::from_utf8_lossy(raw.as_bytes()).contains("\"hello\""));
    assert!(manager.call("one_fail").send().await.unwrap().is_error());
    close(manager, &marker).await;
}

#[tokio::test]
async fn rejected_calls_say_why() {
    let marker = Marker::new();
    let mut config = scripted("one", &marker, &[]);
    config.deny = vec!["p*d".to_owned(), "nothing_*".to_owned()];
    let manager = builder().build(vec![config]);
    let mut events = manager.subscribe();
    manager.connect_all().await.unwrap();
    let warning = next(&mut events, |event| match event {
        ManagerEvent::Warning { message, .. } => Some(message),
        _ => None,
    });
    assert_eq!(warning.await, "pattern `nothing_*` matches no tool of server `one`");
    assert!(!tools(&manager).contains(&"one_pid".to_owned()));
    let error_of = async |name: &str| manager.call(name).send().await.unwrap_err().to_string();
    let denied = "tool `pid` of server `one` is denied: it matches `deny = \"p*d\"`";
    assert_eq!(error_of("one_pid").await, denied);
    assert_eq!(error_of("one.pid").await, denied);
    assert_eq!(error_of("one_ecoh").await, "no tool named `one_ecoh`; did you mean `one_echo`?");
    let error = manager.call_tool("one", "ecoh", &json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "no tool named `one.ecoh`; did you mean `echo`?");
    let error = manager.call_tool("onne", "echo", &json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "no server named `onne`; did you mean `one`?");

    manager.set_denied_tools("one", &["echo"]).await.unwrap();
    assert!(!tools(&manager).contains(&"one_echo".to_owned()));
    assert_eq!(
        error_of("one_echo").await,
        "tool `echo` of server `one` is denied: it matches `echo`, denied at runtime"
    );
    manager.set_denied_tools("one", &[]).await.unwrap();
    assert!(manager.call("one_echo").args(json!({"text": "x"})).send().await.is_ok());
    manager.disconnect("one").await.unwrap();
    assert_eq!(error_of("one.echo").await, "server `one` is not connected (disconnected)");
    assert_eq!(manager.all_tools().len(), 0);
    close(manager, &marker).await;
}

#[tokio::test]
async fn long_output_is_truncated_and_raw_result_is_not() {
    let marker = Marker::new();
    let mut config = scripted("one", &marker, &[]);
    config.max_output_bytes = 10;
    let manager = builder().build(vec![config]);
    manager.connect_all().await.unwrap();
    let text = json!({"text": "12345678\u{1b}[1mü and more"});
    let result = manager.call("one_echo").args(&text).send().await.unwrap();
    assert!(result.text().starts_with("12345678\n[… truncated: "), "{}", result.text());
    let raw = serde_json::value::to_raw_value(&text).unwrap();
    let raw = manager.call("one_echo").args(&raw).send_raw().await.unwrap();
    assert!(String::from_utf8_lossy(raw.as_bytes()).contains("and more"));
    close(manager, &marker).await;
}

/// Fault F86: the server is restarted after a crash, and a call during the restart waits for it.
#[tokio::test]
async fn call_waits_for_a_crashed_server_to_restart() {
    let marker = Marker::new();
    let manager = connected_manager(&["--plan", "call:3=exit(1)"], &marker).await;
    let first = pid(&manager, "one").await;
    assert_eq!(pid(&manager, "one").await, first);
    let lost = manager.call("one_echo").args(json!({"text": "x"})).send().await.unwrap_err();
    assert_eq!(lost.delivery(), Delivery::Unknown);
    assert!(lost.hint().unwrap().contains("may have run it"), "{:?}", lost.hint());
    assert_ne!(pid(&manager, "one").await, first);
    close(manager, &marker).await;
}

/// A call that may have reached its server is retried only if the config allows it.
#[tokio::test]
async fn lost_call_is_retried_only_if_repeatable() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    for (repeatable, n_runs) in [("echo", 2), ("other", 1)] {
        let journal = dir.path().join(repeatable).display().to_string();
        let args = ["--plan", "call:1=half(1)", "--journal", &journal];
        let mut config = scripted("one", &marker, &args);
        config.repeatable = vec![repeatable.to_owned()];
        // Every process fails on its first call, so a retry is lost too.
        let manager = builder().build(vec![config]);
        manager.connect_all().await.unwrap();
        let text = json!({"text": "x"});
        let call = manager.call("one_echo").args(&text).send();
        let error = tokio::time::timeout(LONG, call).await.unwrap().unwrap_err();
        assert!(
            matches!(error, ManagerError::Call { .. } | ManagerError::NotConnected { .. }),
            "{error}"
        );
        let runs = Journal::read(journal.as_ref()).unwrap().records.len();
        assert!(runs >= n_runs && (repeatable == "echo" || runs == 1), "{repeatable}: {runs} runs");
        close(manager, &marker).await;
    }
}

#[tokio::test]
async fn call_events_have_sizes_and_outcomes_and_no_arguments() {
    let marker = Marker::new();
    let manager = connected_manager(&[], &marker).await;
    let mut events = manager.subscribe();
    manager.call("one_echo").args(json!({"text": "s3cret"})).send().await.unwrap();
    let seen = next(&mut events, |event| match event {
        ManagerEvent::CallFinished { outcome, delivery, argument_bytes, result_bytes, .. } => {
            Some((outcome, delivery, argument_bytes, result_bytes > 20))
        }
        other => {
            assert!(!format!("{other:?}").contains("s3cret"), "{other:?}");
            None
        }
    });
    assert_eq!(seen.await, (CallOutcome::Done, Delivery::Answered, 17, true));
    manager.call("one_fail").send().await.unwrap();
    let long = json!({"ms": 60_000});
    let call = manager.call("one_sleep").args(&long).send();
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
    let mut outcome = async || {
        let finished = |event| match event {
            ManagerEvent::CallFinished { outcome, .. } => Some(outcome),
            _ => None,
        };
        next(&mut events, finished).await
    };
    assert_eq!(outcome().await, CallOutcome::ToolError);
    assert_eq!(outcome().await, CallOutcome::Cancelled);
    close(manager, &marker).await;
}
