//! Running commands to completion, and cleanup commands of servers.

use std::fs;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolrack_stdio::{
    CleanupCommand, CommandOutput, Guardian, RunOptions, StdioOptions, run_command,
};
use toolrack_testkit::{Marker, eventually_async};
use toolrack_transport::{ExitStatus, Transport, TransportError};

use crate::fixture::{fast_shutdown, guarded, initialized, program, scripted_server};
use crate::process_tree::kill_guardian;

const LONG: Duration = Duration::from_mins(1);

/// Runs a shell script with a marker in its environment by which all its processes can be found.
async fn shell(
    marker: &Marker,
    script: &str,
    (options, timeout): (&StdioOptions, Duration),
    cancel: &CancellationToken,
) -> Result<CommandOutput, TransportError> {
    let mut definition = program("sh", &["-c", script]);
    definition.env.insert(Marker::VARIABLE.to_owned(), marker.value().to_owned());
    run_command(&definition, RunOptions { options, timeout, cancel, on_stderr: &|_line| {} }).await
}

#[tokio::test]
async fn command_output_has_status_stdout_and_stderr() {
    let cancel = CancellationToken::new();
    for options in [guarded(), StdioOptions { guardian: Guardian::None, ..guarded() }] {
        let marker = Marker::new();
        let script = "echo out; echo one >&2; echo two >&2; exit 3";
        let output = shell(&marker, script, (&options, LONG), &cancel).await.unwrap();
        assert_eq!((output.status, output.stdout.as_str()), (ExitStatus::Code(3), "out\n"));
        assert_eq!(*output.stderr, ["one", "two"]);
        assert_eq!((output.is_success(), output.last_stderr_line()), (false, "two"));
    }
}

#[tokio::test]
async fn command_output_is_truncated_without_blocking() {
    let (marker, cancel) = (Marker::new(), CancellationToken::new());
    let script = "head -c 5000000 /dev/zero | tr '\\0' x";
    let output = shell(&marker, script, (&guarded(), LONG), &cancel).await.unwrap();
    assert_eq!((output.is_success(), output.stdout.len()), (true, 1 << 20));
}

#[tokio::test]
async fn command_timeout_ends_its_children() {
    let (marker, cancel) = (Marker::new(), CancellationToken::new());
    let script = "trap '' TERM; setsid sleep 1000 & sleep 1000";
    let timeout = Duration::from_millis(300);
    let outcome = shell(&marker, script, (&guarded(), timeout), &cancel).await;
    assert!(matches!(outcome, Err(TransportError::Timeout(300))), "{outcome:?}");
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn cancelled_command_is_ended_with_its_children() {
    let (marker, cancel) = (Marker::new(), CancellationToken::new());
    let script = "sleep 1000 & setsid sleep 1000";
    let cancelling = async {
        let pause = async |pause| tokio::time::sleep(pause).await;
        let three = async || marker.survivors().len() >= 3;
        eventually_async(LONG, "all processes of the command", pause, three).await;
        cancel.cancel();
    };
    let options = guarded();
    let (outcome, ()) = tokio::join!(shell(&marker, script, (&options, LONG), &cancel), cancelling);
    assert!(matches!(outcome, Err(TransportError::Shutdown)), "{outcome:?}");
    marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn command_cancelled_at_start_is_ended() {
    let (marker, cancel) = (Marker::new(), CancellationToken::new());
    cancel.cancel();
    let outcome = shell(&marker, "sleep 1000", (&guarded(), LONG), &cancel).await;
    assert!(matches!(outcome, Err(TransportError::Shutdown)), "{outcome:?}");
    marker.assert_no_processes_left(Duration::ZERO);
}

/// Checks that the cleanup command runs after `end`.
async fn check_cleanup(options: StdioOptions, end: impl AsyncFnOnce(&Marker, Box<dyn Transport>)) {
    let dir = tempfile::tempdir().unwrap();
    let note = dir.path().join("note");
    let marker = Marker::new();
    let mut definition = scripted_server(&marker, &[]);
    definition.env.insert("NOTE".to_owned(), "gone".to_owned());
    let script = format!("echo $NOTE > {}", note.display());
    let cleanup = CleanupCommand { command: "sh".to_owned(), args: vec!["-c".to_owned(), script] };
    let options = StdioOptions { cleanup: Some(cleanup), ..options };
    let transport = initialized(&definition, options).await;
    assert!(!note.exists());
    end(&marker, Box::new(transport)).await;
    let pause = async |pause| tokio::time::sleep(pause).await;
    let is_written = async || fs::read_to_string(&note).is_ok_and(|text| text == "gone\n");
    eventually_async(Duration::from_secs(20), "the cleanup command runs", pause, is_written).await;
    marker.assert_no_processes_left(Duration::from_secs(5));
}

#[tokio::test]
async fn cleanup_command_runs_after_close_drop_and_guardian_loss() {
    for options in [fast_shutdown(), StdioOptions { guardian: Guardian::None, ..fast_shutdown() }] {
        check_cleanup(options.clone(), async |_, transport| drop(transport.close().await)).await;
        check_cleanup(options, async |_, transport| drop(transport)).await;
    }
    check_cleanup(fast_shutdown(), async |marker, transport| {
        kill_guardian(marker);
        drop(transport.close().await);
    })
    .await;
}
