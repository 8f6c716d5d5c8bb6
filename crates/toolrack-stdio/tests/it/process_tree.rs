//! Nothing outlives its line: whatever a server starts, and however its owner goes.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use toolrack_stdio::{Guardian, Inheritance, StdioOptions};
use toolrack_testkit::Marker;
use toolrack_transport::{Delivery, Ending, Exit, Line, TransportError};

use crate::fixture::{brisk, call, greeted, guarded, scripted, text};

const AT_ONCE: Duration = Duration::from_millis(500);

/// Closes the line and asserts that nothing is left and how long it may have taken.
async fn check(plan: &str, at_most: Duration) {
    let marker = Marker::new();
    let line = greeted(&scripted(&marker, &["--plan", plan]), brisk()).await;
    assert!(!marker.survivors().is_empty());
    let started = Instant::now();
    line.close().await;
    let took = started.elapsed();
    assert!(took < at_most, "{plan}: {took:?}");
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_polite_server_is_gone_when_close_returns() {
    check("", AT_ONCE).await;
}

#[tokio::test]
async fn a_launcher_takes_its_server_along() {
    check("tree", AT_ONCE).await;
}

#[tokio::test]
async fn a_deaf_server_is_killed() {
    check("ignore=term,eof", Duration::from_secs(1)).await;
}

#[tokio::test]
async fn what_has_left_the_session_is_killed_too() {
    check("escape=3; ignore=term,eof; tree", Duration::from_millis(1500)).await;
}

#[tokio::test]
async fn dropping_the_line_ends_everything_soon() {
    let marker = Marker::new();
    let definition = scripted(&marker, &["--plan", "escape=2; ignore=term,eof"]);
    let line = greeted(&definition, guarded()).await;
    drop(line);
    let gone = async {
        while !marker.survivors().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(2), gone).await.unwrap();
}

#[tokio::test]
async fn a_bare_group_ends_what_stays_in_it() {
    let marker = Marker::new();
    let options = StdioOptions { guardian: Guardian::Nobody, ..brisk() };
    let line = greeted(&scripted(&marker, &["--plan", "tree; ignore=term,eof"]), options).await;
    line.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_server_that_dies_takes_its_children_along_and_fails_its_calls() {
    let marker = Marker::new();
    let definition = scripted(&marker, &["--plan", "escape=1; call:1=kill(KILL)"]);
    let line = greeted(&definition, guarded()).await;
    let started = Instant::now();
    let failure = call(&line, "echo", json!({"text": "x"}), 10_000).await.unwrap_err();
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    let TransportError::ProcessExited(exit) = &failure.error else { panic!("{failure:?}") };
    assert_eq!((exit.exit, failure.delivery), (Exit::Signal(9), Delivery::Unknown));
    assert!(matches!(line.close().await, Ending::Exited(_)));
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_does_not_hold_the_line() {
    let marker = Marker::new();
    let definition = scripted(&marker, &["--plan", "call:1=leak(0)"]);
    let line = greeted(&definition, guarded()).await;
    let started = Instant::now();
    let failure = call(&line, "echo", json!({"text": "x"}), 10_000).await.unwrap_err();
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    assert!(matches!(failure.error, TransportError::ProcessExited(_)), "{failure:?}");
    line.close().await;
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_server_gets_the_listed_environment_and_three_descriptors() {
    let marker = Marker::new();
    let line = greeted(&scripted(&marker, &[]), guarded()).await;
    let environment = call(&line, "env", json!({}), 10_000).await.unwrap();
    let environment = text(&environment);
    assert!(environment.contains("PATH") && environment.contains("TOOLRACK_RUN"));
    assert!(!environment.contains("CARGO_MANIFEST_DIR"), "{environment}");
    let descriptors = call(&line, "fds", json!({}), 10_000).await.unwrap();
    for beyond in ["socket:", "eventpoll"] {
        assert!(!text(&descriptors).contains(beyond), "{descriptors}");
    }
    line.close().await;

    let options = StdioOptions { inherit_env: Inheritance::Everything, ..guarded() };
    let line = greeted(&scripted(&marker, &[]), options).await;
    let environment = call(&line, "env", json!({}), 10_000).await.unwrap();
    assert!(text(&environment).contains("CARGO_MANIFEST_DIR"));
    line.close().await;
}

#[tokio::test]
async fn a_killed_guardian_does_not_leave_its_server_behind() {
    let marker = Marker::new();
    let line =
        greeted(&scripted(&marker, &["--plan", "escape=2; ignore=term,eof"]), guarded()).await;
    let kill = async { kill_guardian(&marker) };
    let slow = call(&line, "sleep", json!({"ms": 20_000}), 30_000);
    let (outcome, ()) = tokio::join!(slow, kill);
    let failure = outcome.unwrap_err();
    assert!(matches!(failure.error, TransportError::ProcessExited(_)), "{failure:?}");
    line.close().await;
    marker.assert_nobody_left(Duration::from_secs(1));
}

pub(crate) fn kill_guardian(marker: &Marker) {
    let guardian = toolrack_testkit::children_of(std::process::id())
        .into_iter()
        .find(|pid| is_guardian_of(*pid, marker))
        .unwrap();
    let guardian = rustix::process::Pid::from_raw(guardian.cast_signed()).unwrap();
    rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
}

fn is_guardian_of(pid: u32, marker: &Marker) -> bool {
    let servers: Vec<u32> = marker.survivors().iter().map(|process| process.pid).collect();
    toolrack_testkit::children_of(pid).iter().any(|child| servers.contains(child))
}
