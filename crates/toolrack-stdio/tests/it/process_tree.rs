//! No process outlives its transport.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::Instant;
use toolrack_stdio::{EnvInheritance, Guardian, StdioOptions};
use toolrack_testkit::{LogCapture, Marker};
use toolrack_transport::{CloseReason, Delivery, ExitStatus, Transport, TransportError};

use crate::fixture::{call, fast_shutdown, guarded, initialized, scripted_server, text};

const PROMPT: Duration = Duration::from_millis(500);

/// Closes the transport, and checks that no process is left and how long it took.
async fn check(plan: &str, limit: Duration) {
    let marker = Marker::new();
    let transport =
        initialized(&scripted_server(&marker, &["--plan", plan]), fast_shutdown()).await;
    assert!(!marker.survivors().is_empty());
    let started = Instant::now();
    transport.close().await;
    let took = started.elapsed();
    assert!(took < limit, "{plan}: {took:?}");
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn cooperative_server_is_gone_when_close_returns() {
    check("", PROMPT).await;
}

#[tokio::test]
async fn closing_ends_the_launcher_and_its_server() {
    check("tree", PROMPT).await;
}

#[tokio::test]
async fn server_that_ignores_shutdown_is_killed() {
    check("ignore=term,eof", Duration::from_secs(1)).await;
}

#[tokio::test]
async fn processes_outside_the_session_are_killed() {
    check("escape=3; ignore=term,eof; tree", Duration::from_millis(1500)).await;
}

#[tokio::test]
async fn dropping_the_transport_ends_all_processes() {
    let marker = Marker::new();
    let definition = scripted_server(&marker, &["--plan", "escape=2; ignore=term,eof"]);
    let transport = initialized(&definition, guarded()).await;
    drop(transport);
    let gone = async {
        while !marker.survivors().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(2), gone).await.unwrap();
}

#[tokio::test]
async fn process_group_without_guardian_is_ended() {
    let marker = Marker::new();
    let options = StdioOptions { guardian: Guardian::None, ..fast_shutdown() };
    let transport =
        initialized(&scripted_server(&marker, &["--plan", "tree; ignore=term,eof"]), options).await;
    transport.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn server_crash_ends_its_children_and_fails_its_calls() {
    let marker = Marker::new();
    let definition = scripted_server(&marker, &["--plan", "escape=1; call:1=kill(KILL)"]);
    let transport = initialized(&definition, guarded()).await;
    let started = Instant::now();
    let error = call(&transport, "echo", json!({"text": "x"}), 10_000).await.unwrap_err();
    assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
    let TransportError::ProcessExited(exit) = &error.error else { panic!("{error:?}") };
    assert_eq!((exit.status, error.delivery), (ExitStatus::Signal(9), Delivery::Unknown));
    assert!(matches!(transport.close().await, CloseReason::Exited(_)));
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn grandchild_that_holds_the_pipe_does_not_delay_the_close() {
    let marker = Marker::new();
    let definition = scripted_server(&marker, &["--plan", "call:1=leak(0)"]);
    let transport = initialized(&definition, guarded()).await;
    let started = Instant::now();
    let error = call(&transport, "echo", json!({"text": "x"}), 10_000).await.unwrap_err();
    assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
    assert!(matches!(error.error, TransportError::ProcessExited(_)), "{error:?}");
    transport.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn server_inherits_only_the_allowlist_and_three_descriptors() {
    let marker = Marker::new();
    let transport = initialized(&scripted_server(&marker, &[]), guarded()).await;
    let environment = call(&transport, "env", json!({}), 10_000).await.unwrap();
    let environment = text(&environment);
    assert!(environment.contains("PATH") && environment.contains("TOOLRACK_RUN"));
    assert!(!environment.contains("CARGO_MANIFEST_DIR"), "{environment}");
    let descriptors = call(&transport, "fds", json!({}), 10_000).await.unwrap();
    for unexpected in ["socket:", "eventpoll"] {
        assert!(!text(&descriptors).contains(unexpected), "{descriptors}");
    }
    transport.close().await;

    let options = StdioOptions { inherit_env: EnvInheritance::All, ..guarded() };
    let transport = initialized(&scripted_server(&marker, &[]), options).await;
    let environment = call(&transport, "env", json!({}), 10_000).await.unwrap();
    assert!(text(&environment).contains("CARGO_MANIFEST_DIR"));
    transport.close().await;
}

#[tokio::test]
async fn killed_guardian_leaves_no_orphans() {
    let marker = Marker::new();
    let transport =
        initialized(&scripted_server(&marker, &["--plan", "escape=2; ignore=term,eof"]), guarded())
            .await;
    let kill = async { kill_guardian(&marker) };
    let slow = call(&transport, "sleep", json!({"ms": 20_000}), 30_000);
    let (outcome, ()) = tokio::join!(slow, kill);
    let error = outcome.unwrap_err();
    assert!(matches!(error.error, TransportError::ProcessExited(_)), "{error:?}");
    transport.close().await;
    marker.assert_no_processes_left(Duration::from_secs(1));
}

/// A stopped guardian kills nothing, as if the kernel could not end the process.
#[tokio::test]
async fn close_warns_about_processes_that_do_not_exit() {
    let logged = LogCapture::default();
    let _default = tracing::subscriber::set_default(logged.clone());
    let marker = Marker::new();
    let server = scripted_server(&marker, &["--plan", "ignore=term,eof"]);
    let transport = initialized(&server, fast_shutdown()).await;
    signal_guardian(&marker, Signal::STOP);
    let guardian = find_guardian(&marker);
    transport.close().await;
    let warning = "did not exit in time";
    let is_warning = |line: &str| line.starts_with("WARN") && line.contains(warning);
    assert!(logged.text().lines().any(is_warning), "{}", logged.text());
    assert!(!marker.survivors().is_empty());
    kill_process(guardian, Signal::CONT).unwrap();
    marker.assert_no_processes_left(Duration::from_secs(5));
}

pub(crate) fn kill_guardian(marker: &Marker) {
    signal_guardian(marker, Signal::KILL);
}

fn signal_guardian(marker: &Marker, signal: Signal) {
    kill_process(find_guardian(marker), signal).unwrap();
}

fn find_guardian(marker: &Marker) -> Pid {
    let guardian = toolrack_testkit::children_of(std::process::id())
        .into_iter()
        .find(|pid| is_guardian_of(*pid, marker))
        .unwrap();
    Pid::from_raw(guardian.cast_signed()).unwrap()
}

fn is_guardian_of(pid: u32, marker: &Marker) -> bool {
    let servers: Vec<u32> = marker.survivors().iter().map(|process| process.pid).collect();
    toolrack_testkit::children_of(pid).iter().any(|child| servers.contains(child))
}
