//! Server process: starts, supervises and stops a server's process tree.
//!
//! With a guardian process, the tree ends even if this process is killed. Without one, only the process group of the
//! server is ended. In both cases one task supervises the tree: it follows a [`DesiredState`] and reports a
//! [`ProcessState`].

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use toolrack_transport::{ExitStatus, SpawnError, TransportError, deadline_after};

#[cfg(target_os = "linux")]
use crate::guardian::{self, GuardedProcess, GuardianConnection};
use crate::launch_spec::LaunchSpec;
#[cfg(target_os = "linux")]
use crate::options::Guardian;
use crate::options::{ShutdownTimeouts, StdioOptions};
use crate::shutdown::{Action, Event, Shutdown};

/// The capacity of the stdout pipe, instead of the usual 64 KiB. Measured with results of 8 MiB.
#[cfg(target_os = "linux")]
const STDOUT_PIPE_BYTES: usize = 256 << 10;

/// The state that the owner of a transport wants its server to be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DesiredState {
    Running,
    /// Stop the server gracefully. Its stdin is closed already.
    Stopped(ShutdownTimeouts),
    /// Stop the server; no caller waits for it.
    Abandoned,
}

/// The observed state of a server's process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// The server runs.
    Running,
    /// The server exited; processes that it started may still run.
    Exited(ExitStatus),
    /// No process is left.
    Gone(ExitStatus),
}

/// The process tree of a server.
#[derive(Debug)]
pub(crate) enum ServerProcess {
    #[cfg(target_os = "linux")]
    Guarded(GuardedProcess),
    Group(ProcessGroup),
}

/// Our ends of a server's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: Sender,
    pub(crate) stdout: Receiver,
    pub(crate) stderr: Receiver,
}

impl ServerProcess {
    /// Starts the server.
    pub(crate) async fn start(
        spec: &LaunchSpec,
        options: &StdioOptions,
        tag: String,
    ) -> Result<(Self, Pipes), TransportError> {
        let (pipes, theirs) = open_pipes()?;
        #[cfg(target_os = "linux")]
        if let Some(guardian) = open_guardian(&options.guardian).map_err(guardian_error)? {
            let process = guardian.start_server(spec, theirs, tag).await?;
            return Ok((ServerProcess::Guarded(process), pipes));
        }
        Ok((ServerProcess::Group(start_group(spec, theirs)?), pipes))
    }

    /// The root of the process tree.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            #[cfg(target_os = "linux")]
            ServerProcess::Guarded(process) => process.guardian.id(),
            ServerProcess::Group(group) => group.child.id(),
        }
    }

    /// Supervises the server until no process is left, or until it is abandoned.
    pub(crate) async fn supervise(
        self,
        desired: watch::Receiver<DesiredState>,
        report: &(dyn Fn(ProcessState) + Sync),
    ) {
        match self {
            #[cfg(target_os = "linux")]
            ServerProcess::Guarded(process) => process.supervise(desired, report).await,
            ServerProcess::Group(group) => group.supervise(desired, report).await,
        }
    }
}

/// The guardian of a new server, if it gets one.
#[cfg(target_os = "linux")]
fn open_guardian(guardian: &Guardian) -> io::Result<Option<GuardianConnection>> {
    let program = match guardian {
        Guardian::None => None,
        Guardian::Program(program) => Some(program.as_path()),
        Guardian::Auto => guardian::own_program(),
        Guardian::Prepared(prepared) => match prepared.take() {
            Some(connection) => return Ok(Some(connection)),
            None => guardian::own_program(),
        },
    };
    program.map(GuardianConnection::open).transpose()
}

/// The error of a guardian that does not start or does not respond.
#[cfg(target_os = "linux")]
pub(crate) fn guardian_error(error: io::Error) -> TransportError {
    TransportError::Spawn(SpawnError::Guardian(error))
}

fn open_pipes() -> io::Result<(Pipes, [OwnedFd; 3])> {
    let (child_stdin, stdin) = io::pipe()?;
    let (stdout, child_stdout) = io::pipe()?;
    enlarge(&stdout);
    let (stderr, child_stderr) = io::pipe()?;
    let pipes = Pipes {
        stdin: Sender::from_owned_fd(stdin.into())?,
        stdout: Receiver::from_owned_fd(stdout.into())?,
        stderr: Receiver::from_owned_fd(stderr.into())?,
    };
    Ok((pipes, [child_stdin.into(), child_stdout.into(), child_stderr.into()]))
}

/// Enlarges the pipe, so that the server can write more of a large response before it has to wait for a read. The kernel
/// allocates memory only for data in the pipe. A user who exceeds the quota for pipes keeps the usual size.
#[cfg(target_os = "linux")]
fn enlarge(pipe: &io::PipeReader) {
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(pipe, STDOUT_PIPE_BYTES) {
        tracing::trace!(%error, "cannot enlarge the stdout pipe");
    }
}

#[cfg(not(target_os = "linux"))]
fn enlarge(_pipe: &io::PipeReader) {}

/// The error for a program that the system did not execute.
pub(crate) fn exec_error(spec: &LaunchSpec, error: io::Error) -> TransportError {
    TransportError::Spawn(SpawnError::ExecFailed { program: spec.program.clone().into(), error })
}

/// How often a process group is checked after its server has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A server and the process group that it leads.
///
/// Without a guardian, processes that leave the group or outlive us are out of reach.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    child: Child,
    group: KillOnDrop,
    shutdown: Shutdown,
    timer: Option<Instant>,
    cleanup: Option<Command>,
}

/// A process group that is killed on drop.
#[derive(Debug)]
struct KillOnDrop(Option<Pid>);

fn start_group(spec: &LaunchSpec, pipes: [OwnedFd; 3]) -> Result<ProcessGroup, TransportError> {
    let mut command = Command::from(spec.server_command(pipes));
    let started = command.process_group(0).spawn();
    let child = started.map_err(|error| exec_error(spec, error))?;
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let (group, cleanup) = (KillOnDrop(pid), spec.cleanup_command().map(Command::from));
    Ok(ProcessGroup { child, group, shutdown: Shutdown::new(), timer: None, cleanup })
}

impl ProcessGroup {
    pub(crate) async fn supervise(
        mut self,
        mut desired: watch::Receiver<DesiredState>,
        report: &(dyn Fn(ProcessState) + Sync),
    ) {
        let mut exit = None;
        loop {
            tokio::select! {
                status = self.child.wait(), if exit.is_none() => {
                    let status = status.map_or(ExitStatus::Unknown, |status| {
                        exit_status(status.code(), status.signal())
                    });
                    exit = Some(status);
                    report(ProcessState::Exited(status));
                    self.handle(Event::ServerExited);
                }
                changed = desired.changed() => {
                    let state = changed.map_or(DesiredState::Abandoned, |()| *desired.borrow_and_update());
                    match state {
                        DesiredState::Running => {}
                        DesiredState::Stopped(timeouts) => self.handle(Event::Stop(timeouts)),
                        DesiredState::Abandoned => {
                            self.group.signal(Signal::KILL);
                            let _exited = self.child.wait().await;
                            return run_cleanup(self.cleanup).await;
                        }
                    }
                }
                () = sleep_until_some(self.timer) => {
                    self.timer = None;
                    self.handle(Event::TimerExpired);
                }
                // The system does not report the end of a process group, so check it periodically.
                () = sleep_until_some(exit.map(|_| Instant::now() + POLL_INTERVAL)) => {}
            }
            if let Some(status) = exit.filter(|_| self.group.is_empty()) {
                // The id of an empty group can be reused, so it must not be signaled any more.
                self.group.0 = None;
                run_cleanup(self.cleanup).await;
                report(ProcessState::Gone(status));
                return;
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let Some(Action { signal, wait }) = self.shutdown.step(event) else { return };
        if let Some(signal) = signal {
            self.group.signal(signal);
        }
        self.timer = Some(deadline_after(Instant::now(), wait));
    }
}

impl KillOnDrop {
    /// Ignores failures: an empty group needs no signal.
    fn signal(&self, signal: Signal) {
        let _gone = self.0.map(|group| kill_process_group(group, signal));
    }

    fn is_empty(&self) -> bool {
        self.0.is_none_or(|group| test_kill_process_group(group) == Err(rustix::io::Errno::SRCH))
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The exit status of a process that returned `code`, or that `signal` killed.
pub(crate) fn exit_status(code: Option<i32>, signal: Option<i32>) -> ExitStatus {
    match (code, signal) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, Some(signal)) => ExitStatus::Signal(signal),
        (None, None) => ExitStatus::Unknown,
    }
}

pub(crate) async fn sleep_until_some(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

/// How long the cleanup command may run. A caller of `close` waits for a shorter time.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the cleanup command of a server, where no guardian runs it. If it fails, the next orphan cleanup finds its
/// targets.
pub(crate) async fn run_cleanup(command: Option<Command>) {
    let Some(mut command) = command else { return };
    let Ok(mut child) = command.kill_on_drop(true).spawn() else { return };
    if timeout(CLEANUP_TIMEOUT, child.wait()).await.is_err() {
        tracing::warn!("cleanup command timed out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_status_is_converted() {
        let check = |raw: i32, expected| {
            let status = std::process::ExitStatus::from_raw(raw);
            assert_eq!(exit_status(status.code(), status.signal()), expected);
        };
        check(3 << 8, ExitStatus::Code(3));
        check(9, ExitStatus::Signal(9));
    }

    #[test]
    fn missing_process_group_is_empty() {
        assert!(KillOnDrop(None).is_empty());
    }
}
