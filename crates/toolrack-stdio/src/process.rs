//! Holding a server's processes: starting them, hearing how they end, ending them.
//!
//! Two kinds of custody do the same job: a guardian process, which also works when we are killed, and
//! the bare process group, which is all there is without one. Either is kept by one task, which obeys
//! a [`Wish`] and tells a [`Life`].

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::process::{self, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use toolrack_transport::{Exit, SpawnFault, TransportError, after};

#[cfg(target_os = "linux")]
use crate::guardian::{self, Guarded};
use crate::launch_spec::LaunchSpec;
#[cfg(target_os = "linux")]
use crate::options::Guardian;
use crate::options::{Ladder, StdioOptions};
use crate::shutdown::{Climb, Event, Order};

/// What the pipe of a server's output holds, instead of 64 KiB. Measured on results of 8 MiB.
#[cfg(target_os = "linux")]
const OUTPUT_PIPE_BYTES: usize = 256 << 10;

/// What the owner of a line wants of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Let it run.
    Run,
    /// End it, patiently. Its input has been closed.
    Stop(Ladder),
    /// End it; nobody waits.
    Abandon,
}

/// What is known of a server's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// The server runs.
    Running,
    /// The server has ended; what it started may still be there.
    Exited(Exit),
    /// Nothing is left.
    Gone(Exit),
}

/// A server's processes, in our hands.
#[derive(Debug)]
pub(crate) enum Custody {
    #[cfg(target_os = "linux")]
    Guarded(Guarded),
    Grouped(Grouped),
}

/// Our ends of a server's three pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) input: Sender,
    pub(crate) output: Receiver,
    pub(crate) errors: Receiver,
}

impl Custody {
    /// Starts the server.
    pub(crate) async fn start(
        spec: &LaunchSpec,
        options: &StdioOptions,
        mark: String,
    ) -> Result<(Self, Pipes), TransportError> {
        let (pipes, theirs) = open_pipes()?;
        #[cfg(target_os = "linux")]
        if let Some(program) = guardian_program(&options.guardian) {
            let guarded = guardian::start(&program, spec, theirs, mark).await?;
            return Ok((Custody::Guarded(guarded), pipes));
        }
        Ok((Custody::Grouped(start_group(spec, theirs)?), pipes))
    }

    /// The process below which everything of the server runs.
    pub(crate) fn process(&self) -> Option<u32> {
        match self {
            #[cfg(target_os = "linux")]
            Custody::Guarded(guarded) => guarded.process(),
            Custody::Grouped(grouped) => grouped.process(),
        }
    }

    /// Keeps the server until nothing is left of it. Ends only then, or when abandoned.
    pub(crate) async fn keep(self, wishes: watch::Receiver<Wish>, tell: &(dyn Fn(Life) + Sync)) {
        match self {
            #[cfg(target_os = "linux")]
            Custody::Guarded(guarded) => guarded.keep(wishes, tell).await,
            Custody::Grouped(grouped) => grouped.keep(wishes, tell).await,
        }
    }
}

/// Who can be the guardian, if anybody can.
#[cfg(target_os = "linux")]
fn guardian_program(guardian: &Guardian) -> Option<PathBuf> {
    match guardian {
        Guardian::Nobody => None,
        Guardian::Program(program) => Some(program.clone()),
        // The link leads to our own file even if it has been replaced or deleted since we started.
        Guardian::Auto => guardian::is_ready().then(|| PathBuf::from("/proc/self/exe")),
    }
}

fn open_pipes() -> io::Result<(Pipes, [OwnedFd; 3])> {
    let (their_input, input) = io::pipe()?;
    let (output, their_output) = io::pipe()?;
    widen(&output);
    let (errors, their_errors) = io::pipe()?;
    let pipes = Pipes {
        input: Sender::from_owned_fd(input.into())?,
        output: Receiver::from_owned_fd(output.into())?,
        errors: Receiver::from_owned_fd(errors.into())?,
    };
    Ok((pipes, [their_input.into(), their_output.into(), their_errors.into()]))
}

/// Lets the server write more of a large answer before it has to wait for us to read. The kernel takes
/// memory for what is in the pipe only; whoever has used up its allowance of pipes keeps the usual size.
#[cfg(target_os = "linux")]
fn widen(pipe: &io::PipeReader) {
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(pipe, OUTPUT_PIPE_BYTES) {
        tracing::trace!(%error, "the pipe keeps its size");
    }
}

#[cfg(not(target_os = "linux"))]
fn widen(_pipe: &io::PipeReader) {}

/// The system's reason as one of ours.
pub(crate) fn refused(spec: &LaunchSpec, error: io::Error) -> TransportError {
    TransportError::Spawn(SpawnFault::Refused { program: spec.program.clone(), error })
}

/// How often a group without its server is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A server and the group it leads.
#[derive(Debug)]
pub(crate) struct Grouped {
    child: Child,
    group: Group,
    climb: Climb,
    alarm: Option<Instant>,
    farewell: Farewell,
}

/// A process group that is killed when nobody holds it any more.
#[derive(Debug)]
struct Group(Option<Pid>);

fn start_group(
    spec: &LaunchSpec,
    [input, output, errors]: [OwnedFd; 3],
) -> Result<Grouped, TransportError> {
    #[expect(clippy::disallowed_methods, reason = "this is where servers are started")]
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    command.process_group(0);
    if let Some(dir) = &spec.cwd {
        command.current_dir(dir);
    }
    let child = command.spawn().map_err(|error| refused(spec, error))?;
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let farewell = Farewell::of(spec);
    Ok(Grouped { child, group: Group(pid), climb: Climb::new(), alarm: None, farewell })
}

impl Grouped {
    pub(crate) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) async fn keep(
        mut self,
        mut wishes: watch::Receiver<Wish>,
        tell: &(dyn Fn(Life) + Sync),
    ) {
        let mut exit = None;
        loop {
            tokio::select! {
                status = self.child.wait(), if exit.is_none() => {
                    let how = status.map_or(Exit::Unknown, exit_of);
                    exit = Some(how);
                    tell(Life::Exited(how));
                    self.obey(Event::ServerGone);
                }
                wish = wishes.changed() => {
                    match wish.map_or(Wish::Abandon, |()| *wishes.borrow_and_update()) {
                        Wish::Run => {}
                        Wish::Stop(ladder) => self.obey(Event::Stop(ladder)),
                        Wish::Abandon => {
                            self.group.signal(Signal::KILL);
                            let _ended = self.child.wait().await;
                            return self.farewell.say().await;
                        }
                    }
                }
                () = until(self.alarm) => {
                    self.alarm = None;
                    self.obey(Event::Alarm);
                }
                () = until(exit.map(|_| Instant::now() + LOOK_AGAIN)) => {}
            }
            if let Some(how) = exit.filter(|_| self.group.is_empty()) {
                self.group.0 = None;
                self.farewell.say().await;
                tell(Life::Gone(how));
                return;
            }
        }
    }

    fn obey(&mut self, event: Event) {
        let wait = match self.climb.step(event) {
            Order::Nothing | Order::Finish => return,
            Order::Wait(wait) => wait,
            Order::Terminate(wait) => {
                self.group.signal(Signal::TERM);
                wait
            }
            Order::Kill(wait) => {
                self.group.signal(Signal::KILL);
                wait
            }
        };
        self.alarm = Some(after(Instant::now(), wait));
    }
}

impl Group {
    /// A group that is gone needs no signal.
    fn signal(&self, signal: Signal) {
        let _gone = self.0.map(|group| kill_process_group(group, signal));
    }

    fn is_empty(&self) -> bool {
        self.0.is_none_or(|group| test_kill_process_group(group) == Err(rustix::io::Errno::SRCH))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn exit_of(status: process::ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// How long it may take. Whoever closes the line waits a shorter time.
const FAREWELL_LIMIT: Duration = Duration::from_secs(20);

/// The command that does it, until it is run.
#[derive(Debug)]
pub(crate) struct Farewell(Option<Command>);

impl Farewell {
    pub(crate) fn of(spec: &LaunchSpec) -> Self {
        Self(spec.farewell.split_first().map(|(program, args)| {
            #[expect(clippy::disallowed_methods, reason = "this ends what a server has elsewhere")]
            let mut command = Command::new(program);
            command.args(args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.kill_on_drop(true);
            command
        }))
    }

    /// Runs it once. If it does not work, the next sweep finds what is left.
    pub(crate) async fn say(&mut self) {
        let Some(mut command) = self.0.take() else { return };
        let Ok(mut child) = command.spawn() else { return };
        if timeout(FAREWELL_LIMIT, child.wait()).await.is_err() {
            tracing::warn!("what a server has elsewhere could not be ended in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_a_process_ended_is_told() {
        assert_eq!(exit_of(process::ExitStatus::from_raw(3 << 8)), Exit::Code(3));
        assert_eq!(exit_of(process::ExitStatus::from_raw(9)), Exit::Signal(9));
    }

    #[test]
    fn nobody_is_in_no_group() {
        assert!(Group(None).is_empty());
    }
}
