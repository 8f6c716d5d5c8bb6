//! No process outlives its transport.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::json;
use tokio::time::Instant;
use toolrack_stdio::{
    CleanupCommand, EnvInheritance, Guardian, McpServerDef, StdioClientTransport, StdioOptions,
};
use toolrack_testkit::{LogCapture, Marker};
use toolrack_transport::{CloseReason, Delivery, ExitStatus, Transport, TransportError};

use crate::fixture::{
    RecordingHandler, call, fast_shutdown, guarded, initialized, scripted_server, text,
};

const PROMPT: Duration = Duration::from_millis(500);
/// For a condition that is met at once, also on a machine under load.
const LIMIT: Duration = Duration::from_secs(10);

/// Closes the transport, and checks that no process is left and how long it took.
async fn check(plan: &str, limit: Duration) {
    let marker = Marker::new();
    let transport =
        initialized(&scripted_server(&marker, &["--plan", plan]), fast_shutdown()).await;
    assert!(!marker.survivors().is_empty());
    let guardian = find_guardian(&marker);
    let started = Instant::now();
    transport.close().await;
    let took = started.elapsed();
    assert!(took < limit, "{plan}: {took:?}");
    marker.assert_no_processes_left(Duration::ZERO);
    // It carries no marker.
    assert_gone(guardian).await;
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
    let guardian = find_guardian(&marker);
    drop(transport);
    let gone = async {
        while !marker.survivors().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(2), gone).await.unwrap();
    assert_gone(guardian).await;
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
    let transport = initialized(
        &scripted_server(&marker, &["--plan", "escape=2; escape=1,leaderless; ignore=term,eof"]),
        guarded(),
    )
    .await;
    let kill = async { kill_guardian(&marker) };
    let slow = call(&transport, "sleep", json!({"ms": 20_000}), 30_000);
    let (outcome, ()) = tokio::join!(slow, kill);
    let error = outcome.unwrap_err();
    assert!(matches!(error.error, TransportError::ProcessExited(_)), "{error:?}");
    transport.close().await;
    marker.assert_no_processes_left(Duration::from_secs(1));
}

/// A cleanup command that runs longer than `close` waits, as if the kernel could not end a process.
#[tokio::test]
async fn close_warns_about_processes_that_do_not_exit() {
    let logged = LogCapture::default();
    let _default = tracing::subscriber::set_default(logged.clone());
    let marker = Marker::new();
    let cleanup = CleanupCommand { command: "sleep".to_owned(), args: vec!["8".to_owned()] };
    let options = StdioOptions { cleanup: Some(cleanup), ..fast_shutdown() };
    let transport = initialized(&scripted_server(&marker, &[]), options).await;
    transport.close().await;
    let warning = "did not exit in time";
    let is_warning = |line: &str| line.starts_with("WARN") && line.contains(warning);
    assert!(logged.text().lines().any(is_warning), "{}", logged.text());
    assert!(!marker.survivors().is_empty());
    marker.assert_no_processes_left(Duration::from_secs(10));
}

/// A server that stops its guardian, with processes outside the session of which some have no tag.
pub(crate) const STOPS_GUARDIAN: &str =
    "escape=2; escape=1,untagged; escape=1,leaderless; ignore=term,eof";

pub(crate) fn hostile_server(marker: &Marker, plan: &str) -> McpServerDef {
    scripted_server(marker, &["--marker", marker.value(), "--plan", plan])
}

/// The parts of `close`, and a second for a machine under load.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_millis(200 + 200 + 3000 + 1000);

#[tokio::test]
async fn stopped_guardian_leaves_no_process_when_close_returns() {
    for plan in [STOPS_GUARDIAN, &format!("{STOPS_GUARDIAN}; tree")] {
        let marker = Marker::new();
        let transport = initialized(&hostile_server(&marker, plan), fast_shutdown()).await;
        let guardian = find_guardian(&marker);
        toolrack_testkit::eventually(LIMIT, "a main thread has ended", || {
            marker.survivors().iter().any(|process| process.state == 'Z')
        });
        kill_process(guardian, Signal::STOP).unwrap();
        let started = Instant::now();
        transport.close().await;
        assert!(started.elapsed() < CLOSE_LIMIT, "{:?}", started.elapsed());
        marker.assert_no_processes_left(Duration::ZERO);
        assert_gone(guardian).await;
    }
}

#[tokio::test]
async fn server_that_stops_its_guardian_is_ended_while_it_runs() {
    let marker = Marker::new();
    let plan = format!("{STOPS_GUARDIAN}; call:1=stopparent+hang");
    let transport = initialized(&hostile_server(&marker, &plan), guarded()).await;
    let guardian = find_guardian(&marker);
    let error = call(&transport, "echo", json!({"text": "x"}), 30_000).await.unwrap_err();
    assert!(matches!(error.error, TransportError::ProcessExited(_)), "{error:?}");
    marker.assert_no_processes_left(Duration::from_secs(5));
    transport.close().await;
    assert_gone(guardian).await;
}

#[tokio::test]
async fn guardian_that_is_stopped_during_the_shutdown_is_killed() {
    let marker = Marker::new();
    let plan = format!("{STOPS_GUARDIAN}; eof=stopparent");
    let transport = initialized(&hostile_server(&marker, &plan), fast_shutdown()).await;
    let guardian = find_guardian(&marker);
    transport.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
    assert_gone(guardian).await;
}

/// Over and over: a guardian is also stopped before it has reported its start.
#[tokio::test]
async fn server_that_stops_its_guardian_at_once_leaves_no_process() {
    let options = || StdioOptions { shutdown: fast_shutdown().shutdown, ..guarded() };
    for _ in 0..3 {
        let marker = Marker::new();
        let definition = hostile_server(&marker, "stopparent; ignore=term,eof; escape=1");
        let handler = Arc::new(RecordingHandler::default());
        // It starts or fails, depending on which process is faster.
        if let Ok(transport) = StdioClientTransport::spawn(&definition, options(), handler).await {
            transport.close().await;
        }
        marker.assert_no_processes_left(Duration::ZERO);
    }
}

#[tokio::test]
async fn dropped_transport_ends_a_stopped_guardian() {
    let marker = Marker::new();
    let transport = initialized(&hostile_server(&marker, STOPS_GUARDIAN), guarded()).await;
    let guardian = find_guardian(&marker);
    kill_process(guardian, Signal::STOP).unwrap();
    drop(transport);
    let gone = async {
        while !marker.survivors().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    assert_gone(guardian).await;
}

/// Any process of the user may lower the limits of the guardian.
#[tokio::test]
async fn guardian_without_descriptors_ends_all_processes() {
    let marker = Marker::new();
    let transport = initialized(&hostile_server(&marker, STOPS_GUARDIAN), fast_shutdown()).await;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let guardian = find_guardian(&marker);
    prlimit(Some(guardian), Resource::Nofile, none).unwrap();
    transport.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
    assert_gone(guardian).await;
}

#[tokio::test]
async fn guardian_survives_every_signal_that_can_be_blocked() {
    let marker = Marker::new();
    let transport = initialized(&hostile_server(&marker, ""), guarded()).await;
    let guardian = find_guardian(&marker);
    for signal in [
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::QUIT,
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
        Signal::PIPE,
    ] {
        kill_process(guardian, signal).unwrap();
    }
    call(&transport, "echo", json!({"text": "x"}), 10_000).await.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", guardian.as_raw_nonzero()));
    assert!(status.unwrap().contains("State:\tS"));
    transport.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// The kernel gives the files of a process that may not be traced to root. Root may trace every process, so root runs
/// the test again as another user.
#[tokio::test]
async fn guardian_cannot_be_traced() {
    if rustix::process::getuid().is_root() {
        return run_as_another_user("process_tree::guardian_cannot_be_traced");
    }
    let marker = Marker::new();
    let transport = initialized(&hostile_server(&marker, ""), guarded()).await;
    let guardian = find_guardian(&marker).as_raw_nonzero();
    let file = std::fs::metadata(format!("/proc/{guardian}/environ")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&file), 0);
    transport.close().await;
}

#[expect(clippy::disallowed_methods, reason = "the test runs itself as another user")]
fn run_as_another_user(test: &str) {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "4321", "--regid", "4321", "--clear-groups", "--"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test]);
    let output = match command.env("HOME", "/").output() {
        Ok(output) => output,
        Err(error) => return toolrack_testkit::skipped(test, &format!("setpriv: {error}")),
    };
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Exit code 126 or 127: the other user may not enter the folder of the test program.
    if matches!(output.status.code(), Some(126 | 127)) || stdout.contains("SKIPPED") {
        return toolrack_testkit::skipped(test, stderr.trim());
    }
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
}

/// A process with the arguments of a stopped guardian, whose child has no tag.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test plays the guardian of another owner")]
async fn cleanup_kills_stopped_guardians_of_lost_owners_only() {
    let marker = Marker::new();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("__guard"), "sleep 300 & kill -STOP $$; wait").unwrap();
    let own_tag = toolrack_stdio::new_process_tag();
    let parts: Vec<&str> = own_tag.split('.').collect();
    let lost_tag = format!("{}.{}.{}.{}.1.1", parts[0], parts[1], parts[2], u32::MAX);
    let mut guardians = [own_tag, lost_tag].map(|tag| {
        std::process::Command::new("sh")
            .args(["__guard", &tag])
            .current_dir(folder.path())
            .env(Marker::VARIABLE, marker.value())
            .spawn()
            .unwrap()
    });
    let is_stopped = |process: &toolrack_testkit::Process| process.state == 'T';
    toolrack_testkit::eventually(Duration::from_secs(10), "both guardians are stopped", || {
        marker.survivors().iter().filter(|process| is_stopped(process)).count() == 2
    });
    assert!(toolrack_stdio::kill_orphans() >= 2);
    guardians[1].wait().unwrap();
    toolrack_testkit::eventually(Duration::from_secs(5), "one guardian is left", || {
        marker.survivors().len() == 2
    });
    assert!(guardians[0].try_wait().unwrap().is_none());
    marker.kill_survivors();
    guardians[0].wait().unwrap();
}

/// Waits with the runtime, which reaps the guardian.
pub(crate) async fn assert_gone(guardian: Pid) {
    let gone = async {
        while rustix::process::test_kill_process(guardian).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap();
}

pub(crate) fn kill_guardian(marker: &Marker) {
    signal_guardian(marker, Signal::KILL);
}

fn signal_guardian(marker: &Marker, signal: Signal) {
    kill_process(find_guardian(marker), signal).unwrap();
}

pub(crate) fn find_guardian(marker: &Marker) -> Pid {
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
