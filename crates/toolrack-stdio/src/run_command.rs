//! Runs a command to completion and collects its output.
//!
//! **Invariant:** when [`run_command`] returns, no process of the command is left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use toolrack_transport::{ExitStatus, TransportError};

use crate::io_task::read_until_gone;
use crate::launch_spec::LaunchSpec;
use crate::options::{McpServerDef, ShutdownTimeouts, StdioOptions};
use crate::orphan_cleanup::new_process_tag;
use crate::process::{DesiredState, Pipes, ProcessState, ServerProcess};
use crate::stderr::StderrTail;

/// The maximum size of the collected stdout. The rest is read and discarded, so that the command never blocks.
const MAX_STDOUT_BYTES: usize = 1 << 20;
/// The number of stderr lines in [`CommandOutput`].
const STDERR_LINES: usize = 50;
/// The shutdown of a command, whose stdin is closed from the start.
const SHUTDOWN: ShutdownTimeouts =
    ShutdownTimeouts { close_stdin: Duration::ZERO, terminate: Duration::from_secs(1) };

/// Options of [`run_command`].
#[derive(Clone, Copy)]
pub struct RunOptions<'a> {
    /// Guardian and environment.
    pub options: &'a StdioOptions,
    /// How long the command may run.
    pub timeout: Duration,
    /// Stops the command early.
    pub cancel: &'a CancellationToken,
    /// Called with each line of stderr, redacted and sanitized.
    pub on_stderr: &'a (dyn Fn(&str) + Sync),
}

/// The output of a command that has exited by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit status.
    pub status: ExitStatus,
    /// The beginning of stdout, up to 1 MiB.
    pub stdout: String,
    /// The last lines of stderr, redacted and sanitized.
    pub stderr: Arc<[String]>,
}

/// Runs a command without input to completion.
///
/// Fails with [`TransportError::Spawn`] if it does not start, with [`TransportError::Timeout`] when it takes too long and
/// with [`TransportError::Shutdown`] when it is cancelled.
///
/// # Cancel safety
/// Dropping the future ends every process in the background.
pub async fn run_command(
    definition: &McpServerDef,
    run: RunOptions<'_>,
) -> Result<CommandOutput, TransportError> {
    let tag = new_process_tag();
    let spec = LaunchSpec::resolve(definition, run.options, &tag).map_err(TransportError::Spawn)?;
    let (process, pipes) = ServerProcess::start(&spec, run.options, tag).await?;
    let Pipes { stdin, stdout, stderr } = pipes;
    drop(stdin);
    let (desired, state) =
        (watch::Sender::new(DesiredState::Running), watch::Sender::new(ProcessState::Running));
    let (mut collected, stderr_tail) = (Vec::new(), StderrTail::new(run.options.redactor.clone()));
    let collect_stdout = |bytes: &[u8]| {
        let room = MAX_STDOUT_BYTES.saturating_sub(collected.len()).min(bytes.len());
        collected.extend_from_slice(bytes.get(..room).unwrap_or_default());
    };
    let collect_stderr = |bytes: &[u8]| stderr_tail.feed(bytes, &mut |line| (run.on_stderr)(line));
    let report = |new_state| {
        state.send_replace(new_state);
    };
    // Subscribe before the first poll: a command that is cancelled at the start would otherwise miss the stop request.
    let desired_changes = desired.subscribe();
    let failure = {
        let work = async {
            tokio::join!(
                process.supervise(desired_changes, &report),
                read_until_gone(&stdout, wait_gone(state.subscribe()), collect_stdout),
                read_until_gone(&stderr, wait_gone(state.subscribe()), collect_stderr),
            )
        };
        tokio::pin!(work);
        let failure = tokio::select! {
            // Cancellation first: a command that is cancelled already must not run to completion.
            biased;
            () = run.cancel.cancelled() => Some(TransportError::Shutdown),
            _exited = &mut work => None,
            () = sleep(run.timeout) => Some(TransportError::timed_out(run.timeout)),
        };
        if failure.is_some() {
            desired.send_replace(DesiredState::Stopped(SHUTDOWN));
            work.await;
        }
        failure
    };
    if let Some(error) = failure {
        return Err(error);
    }
    let status = match *state.borrow() {
        ProcessState::Exited(status) | ProcessState::Gone(status) => status,
        ProcessState::Running => ExitStatus::Unknown,
    };
    let stdout = String::from_utf8_lossy(&collected).into_owned();
    Ok(CommandOutput { status, stdout, stderr: stderr_tail.tail(STDERR_LINES) })
}

/// Waits until no process of the command is left.
async fn wait_gone(mut state: watch::Receiver<ProcessState>) {
    // The sender outlives every reader, so the wait cannot fail.
    let _gone = state.wait_for(|state| matches!(state, ProcessState::Gone(_))).await;
}

impl CommandOutput {
    /// Whether the exit code is zero.
    pub fn is_success(&self) -> bool {
        self.status == ExitStatus::Code(0)
    }

    /// The last line of stderr, for an error message.
    pub fn last_stderr_line(&self) -> &str {
        let last = self.stderr.iter().rev().find(|line| !line.trim().is_empty());
        last.map_or("no output", |line| line.trim())
    }
}

impl std::fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
