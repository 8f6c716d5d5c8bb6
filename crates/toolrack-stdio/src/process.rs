//! Holding a server's processes: starting them, hearing how they end, ending them.
//!
//! Two kinds of custody do the same job: a guardian process, which also works when we are killed, and
//! the bare process group, which is all there is without one. Either is kept by one task, which obeys
//! a [`Wish`] and tells a [`Life`].

mod cleanup_command;
#[cfg(target_os = "linux")]
mod guardian_client;
mod process_group;

use std::io;
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::watch;
use toolrack_transport::{Exit, SpawnFault, TransportError};

#[cfg(target_os = "linux")]
use crate::guardian;
use crate::launch_spec::LaunchSpec;
#[cfg(target_os = "linux")]
use crate::options::Guardian;
use crate::options::{Ladder, StdioOptions};

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
    Guarded(guardian_client::Guarded),
    Grouped(process_group::Grouped),
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
            let guarded = guardian_client::start(&program, spec, theirs, mark).await?;
            return Ok((Custody::Guarded(guarded), pipes));
        }
        Ok((Custody::Grouped(process_group::start(spec, theirs)?), pipes))
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
fn refused(spec: &LaunchSpec, error: io::Error) -> TransportError {
    TransportError::Spawn(SpawnFault::Refused { program: spec.program.clone(), error })
}
