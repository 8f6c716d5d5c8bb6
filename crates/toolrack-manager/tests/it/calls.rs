//! Calls: names, rules, output, repetition, and what is told about them.

use std::time::Duration;

use serde_json::json;
use toolrack_client::CallOptions;
use toolrack_manager::{CallOutcome, ManagerError, ManagerEvent, McpManager};
use toolrack_testkit::{Journal, Marker};
use toolrack_transport::Delivery;

use crate::fixture::{LONG, builder, eventually, next, pid, scripted, tools};

async fn manager_of(args: &[&str], marker: &Marker) -> McpManager {
    let manager = builder().build(vec![scripted("one", marker, args)]);
    manager.connect_all().await.unwrap();
    eventually("it is connected", || manager.server("one").unwrap().is_connected()).await;
    manager
}

async fn end(manager: McpManager, marker: &Marker) {
    manager.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_tool_is_called_by_any_of_its_names() {
    let marker = Marker::new();
    let manager = manager_of(&[], &marker).await;
    let text = json!({"text": "hello"});
    for name in ["one_echo", "one.echo", "one/echo", "mcp__one__echo"] {
        let answer = manager.call(name, &text).await.unwrap();
        assert_eq!((answer.content.as_str(), answer.is_error), ("hello", false), "{name}");
    }
    assert_eq!(manager.call_tool("one", "echo", &text).await.unwrap().content, "hello");
    assert_eq!(&**manager.find_tool("echo").unwrap().server(), "one");
    let raw = serde_json::value::to_raw_value(&text).unwrap();
    let raw = manager.call_raw("one_echo", &raw, &CallOptions::default()).await.unwrap();
    assert!(String::from_utf8_lossy(raw.as_bytes()).contains("\"hello\""));
    assert!(manager.call("one_fail", &json!({})).await.unwrap().is_error);
    end(manager, &marker).await;
}

#[tokio::test]
async fn what_cannot_be_called_says_why() {
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
    assert_eq!(warning.await, "the pattern `nothing_*` matches no tool of `one`");
    assert!(!tools(&manager).contains(&"one_pid".to_owned()));
    let show = async |name: &str| manager.call(name, &json!({})).await.unwrap_err().to_string();
    let denied = "the tool `pid` of `one` is denied: the rule `deny = \"p*d\"` matches it";
    assert_eq!(show("one_pid").await, denied);
    assert_eq!(show("one.pid").await, denied);
    assert_eq!(show("one_ecoh").await, "there is no tool `one_ecoh`, but there is `one_echo`");
    let error = manager.call_tool("one", "ecoh", &json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `one.ecoh`, but there is `echo`");
    let error = manager.call_tool("onne", "echo", &json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no server `onne`, but there is `one`");

    manager.set_denied_tools("one", &["echo"]).await.unwrap();
    assert!(!tools(&manager).contains(&"one_echo".to_owned()));
    assert_eq!(
        show("one_echo").await,
        "the tool `echo` of `one` is denied: it was denied as `echo`"
    );
    manager.set_denied_tools("one", &[]).await.unwrap();
    assert!(manager.call("one_echo", &json!({"text": "x"})).await.is_ok());
    manager.disconnect("one").await.unwrap();
    assert_eq!(show("one.echo").await, "the server `one` is not connected (disconnected)");
    assert_eq!(manager.all_tools().len(), 0);
    end(manager, &marker).await;
}

#[tokio::test]
async fn long_output_is_cut_and_the_raw_result_is_not() {
    let marker = Marker::new();
    let mut config = scripted("one", &marker, &[]);
    config.max_output_bytes = 10;
    let manager = builder().build(vec![config]);
    manager.connect_all().await.unwrap();
    let text = json!({"text": "12345678\u{1b}[1mü and more"});
    let answer = manager.call("one_echo", &text).await.unwrap();
    assert!(answer.content.starts_with("12345678\n[… cut here: "), "{}", answer.content);
    let raw = serde_json::value::to_raw_value(&text).unwrap();
    let raw = manager.call_raw("one_echo", &raw, &CallOptions::default()).await.unwrap();
    assert!(String::from_utf8_lossy(raw.as_bytes()).contains("and more"));
    end(manager, &marker).await;
}

/// Fault F86: a crash is recovered from, and a call during the restart waits for it.
#[tokio::test]
async fn a_server_that_dies_comes_back_and_the_next_call_waits_for_it() {
    let marker = Marker::new();
    let manager = manager_of(&["--plan", "call:3=exit(1)"], &marker).await;
    let first = pid(&manager, "one").await;
    assert_eq!(pid(&manager, "one").await, first);
    let lost = manager.call("one_echo", &json!({"text": "x"})).await.unwrap_err();
    assert_eq!(lost.delivery(), Delivery::Unknown);
    assert!(lost.hint().unwrap().contains("may have done it"), "{:?}", lost.hint());
    assert_ne!(pid(&manager, "one").await, first);
    end(manager, &marker).await;
}

/// A call that may have reached its server is repeated only where the config says so.
#[tokio::test]
async fn a_lost_call_is_run_again_only_if_that_is_harmless() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    for (repeatable, n_runs) in [("echo", 2), ("other", 1)] {
        let journal = dir.path().join(repeatable).display().to_string();
        let args = ["--plan", "call:1=half(1)", "--journal", &journal];
        let mut config = scripted("one", &marker, &args);
        config.repeatable = vec![repeatable.to_owned()];
        // Each process meets its first call with the fault, so a repetition is lost as well.
        let manager = builder().build(vec![config]);
        manager.connect_all().await.unwrap();
        let text = json!({"text": "x"});
        let call = manager.call("one_echo", &text);
        let error = tokio::time::timeout(LONG, call).await.unwrap().unwrap_err();
        assert!(
            matches!(error, ManagerError::Call { .. } | ManagerError::NotConnected { .. }),
            "{error}"
        );
        let runs = Journal::read(journal.as_ref()).unwrap().records.len();
        assert!(runs >= n_runs && (repeatable == "echo" || runs == 1), "{repeatable}: {runs} runs");
        end(manager, &marker).await;
    }
}

#[tokio::test]
async fn calls_are_told_with_sizes_and_outcomes_and_without_arguments() {
    let marker = Marker::new();
    let manager = manager_of(&[], &marker).await;
    let mut events = manager.subscribe();
    manager.call("one_echo", &json!({"text": "s3cret"})).await.unwrap();
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
    manager.call("one_fail", &json!({})).await.unwrap();
    let long = json!({"ms": 60_000});
    let call = manager.call("one_sleep", &long);
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
    end(manager, &marker).await;
}
