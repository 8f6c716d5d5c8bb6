//! Commands that run to their end, and what is run when a server has ended.

use std::fs;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolrack_stdio::{Farewell, Finished, Guardian, Run, StdioOptions, run};
use toolrack_testkit::{Marker, eventually_async};
use toolrack_transport::{Exit, Line, TransportError};

use crate::fixture::{brisk, greeted, guarded, program, scripted};
use crate::process_tree::kill_guardian;

const LONG: Duration = Duration::from_mins(1);

/// Runs a line of shell, marked so that everything it starts can be found.
async fn shell(
    marker: &Marker,
    script: &str,
    (options, limit): (&StdioOptions, Duration),
    stop: &CancellationToken,
) -> Result<Finished, TransportError> {
    let mut definition = program("sh", &["-c", script]);
    definition.env.insert(Marker::VARIABLE.to_owned(), marker.value().to_owned());
    run(&definition, Run { options, limit, stop, heard: &|_line| {} }).await
}

#[tokio::test]
async fn a_command_tells_how_it_ended_and_what_it_said() {
    let stop = CancellationToken::new();
    for options in [guarded(), StdioOptions { guardian: Guardian::Nobody, ..guarded() }] {
        let marker = Marker::new();
        let script = "echo out; echo one >&2; echo two >&2; exit 3";
        let finished = shell(&marker, script, (&options, LONG), &stop).await.unwrap();
        assert_eq!((finished.exit, finished.output.as_str()), (Exit::Code(3), "out\n"));
        assert_eq!(*finished.errors, ["one", "two"]);
        assert_eq!((finished.is_success(), finished.last_words()), (false, "two"));
    }
}

#[tokio::test]
async fn output_is_cut_and_never_in_the_way() {
    let (marker, stop) = (Marker::new(), CancellationToken::new());
    let script = "head -c 5000000 /dev/zero | tr '\\0' x";
    let finished = shell(&marker, script, (&guarded(), LONG), &stop).await.unwrap();
    assert_eq!((finished.is_success(), finished.output.len()), (true, 1 << 20));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_with_its_children() {
    let (marker, stop) = (Marker::new(), CancellationToken::new());
    let script = "trap '' TERM; setsid sleep 1000 & sleep 1000";
    let limit = Duration::from_millis(300);
    let outcome = shell(&marker, script, (&guarded(), limit), &stop).await;
    assert!(matches!(outcome, Err(TransportError::Timeout(300))), "{outcome:?}");
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_command_that_is_stopped_is_ended_with_its_children() {
    let (marker, stop) = (Marker::new(), CancellationToken::new());
    let script = "sleep 1000 & setsid sleep 1000";
    let stopping = async {
        let pause = async |pause| tokio::time::sleep(pause).await;
        let three = async || marker.survivors().len() >= 3;
        eventually_async(LONG, "all processes of the command", pause, three).await;
        stop.cancel();
    };
    let options = guarded();
    let (outcome, ()) = tokio::join!(shell(&marker, script, (&options, LONG), &stop), stopping);
    assert!(matches!(outcome, Err(TransportError::Shutdown)), "{outcome:?}");
    marker.assert_nobody_left(Duration::ZERO);
}

#[tokio::test]
async fn a_command_that_is_stopped_as_it_starts_is_ended_too() {
    let (marker, stop) = (Marker::new(), CancellationToken::new());
    stop.cancel();
    let outcome = shell(&marker, "sleep 1000", (&guarded(), LONG), &stop).await;
    assert!(matches!(outcome, Err(TransportError::Shutdown)), "{outcome:?}");
    marker.assert_nobody_left(Duration::ZERO);
}

/// A server whose farewell leaves a note of itself.
async fn check_farewell(options: StdioOptions, end: impl AsyncFnOnce(&Marker, Box<dyn Line>)) {
    let dir = tempfile::tempdir().unwrap();
    let note = dir.path().join("note");
    let marker = Marker::new();
    let mut definition = scripted(&marker, &[]);
    definition.env.insert("NOTE".to_owned(), "gone".to_owned());
    let script = format!("echo $NOTE > {}", note.display());
    let farewell = Farewell { command: "sh".to_owned(), args: vec!["-c".to_owned(), script] };
    let options = StdioOptions { farewell: Some(farewell), ..options };
    let line = greeted(&definition, options).await;
    assert!(!note.exists());
    end(&marker, Box::new(line)).await;
    let pause = async |pause| tokio::time::sleep(pause).await;
    let noted = async || fs::read_to_string(&note).is_ok_and(|it| it == "gone\n");
    eventually_async(Duration::from_secs(20), "the farewell", pause, noted).await;
    marker.assert_nobody_left(Duration::from_secs(5));
}

#[tokio::test]
async fn a_farewell_is_said_when_a_server_is_closed_or_dropped_or_loses_its_guardian() {
    for options in [brisk(), StdioOptions { guardian: Guardian::Nobody, ..brisk() }] {
        check_farewell(options.clone(), async |_, line| drop(line.close().await)).await;
        check_farewell(options, async |_, line| drop(line)).await;
    }
    check_farewell(brisk(), async |marker, line| {
        kill_guardian(marker);
        drop(line.close().await);
    })
    .await;
}
