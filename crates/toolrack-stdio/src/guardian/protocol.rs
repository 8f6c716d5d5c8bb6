//! Guardian protocol, and the owner's side of the connection to a guardian.
//!
//! The owner sends one launch spec, with the server's three pipes as file descriptors, and later perhaps a stop message.
//! The guardian sends reports of a fixed size. Arguments and environment travel over the socket and not on the command
//! line, where every user could read them.

use std::ffi::OsString;
use std::io;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;
use toolrack_transport::{ExitStatus, SpawnError, TransportError};

use crate::guardian::ARGUMENT;
use crate::launch_spec::LaunchSpec;
use crate::options::ShutdownTimeouts;
use crate::orphan_cleanup::kill_tagged_launch;
use crate::process::{Cleanup, DesiredState, ProcessState, exec_error};

/// The size of the length prefix of a launch spec.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The maximum size of a launch spec: the system would not execute a larger one.
pub(crate) const MAX_LAUNCH_BYTES: usize = 16 << 20;

/// The size of a stop message.
pub(crate) const STOP_BYTES: usize = 8;

/// The size of a report.
pub(crate) const REPORT_BYTES: usize = 8;

/// A report of the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The server runs.
    Started,
    /// The server did not start.
    SpawnFailed { errno: i32 },
    /// The server exited; other processes may be left.
    Exited(ExitStatus),
    /// No process is left. The last report.
    NothingLeft,
}

impl Report {
    pub(crate) fn encode(self) -> [u8; REPORT_BYTES] {
        let (kind, number): (u8, i32) = match self {
            Report::Started => (1, 0),
            Report::SpawnFailed { errno } => (2, errno),
            Report::Exited(ExitStatus::Code(code)) => (3, code),
            Report::Exited(ExitStatus::Signal(signal)) => (4, signal),
            Report::Exited(ExitStatus::Unknown) => (5, 0),
            Report::NothingLeft => (6, 0),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, 0, 0, 0, a, b, c, d]
    }

    pub(crate) fn decode([kind, _, _, _, a, b, c, d]: [u8; REPORT_BYTES]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match kind {
            1 => Report::Started,
            2 => Report::SpawnFailed { errno: number },
            3 => Report::Exited(ExitStatus::Code(number)),
            4 => Report::Exited(ExitStatus::Signal(number)),
            5 => Report::Exited(ExitStatus::Unknown),
            6 => Report::NothingLeft,
            _ => return None,
        })
    }
}

/// Encodes a stop message with its timeouts.
pub(crate) fn encode_stop(timeouts: ShutdownTimeouts) -> [u8; STOP_BYTES] {
    let close_stdin = u64::from(milliseconds(timeouts.close_stdin));
    (close_stdin << 32 | u64::from(milliseconds(timeouts.terminate))).to_le_bytes()
}

pub(crate) fn decode_stop(stop: [u8; STOP_BYTES]) -> ShutdownTimeouts {
    let both = u64::from_le_bytes(stop);
    ShutdownTimeouts {
        close_stdin: Duration::from_millis(both >> 32),
        terminate: Duration::from_millis(both & u64::from(u32::MAX)),
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Encodes a launch spec with its length prefix. `None` if it exceeds [`MAX_LAUNCH_BYTES`].
pub(crate) fn encode_launch(spec: &LaunchSpec) -> Option<Vec<u8>> {
    let mut out = vec![0; LENGTH_BYTES];
    put(&mut out, spec.program.as_os_str().as_bytes());
    put_all(&mut out, spec.cwd.iter().map(|dir| dir.as_os_str().as_bytes()));
    put_all(&mut out, spec.args.iter().map(|arg| arg.as_bytes()));
    put_all(
        &mut out,
        spec.env.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]),
    );
    put_all(&mut out, spec.cleanup.iter().map(|arg| arg.as_bytes()));
    let length = out.len() - LENGTH_BYTES;
    if length > MAX_LAUNCH_BYTES {
        return None;
    }
    let length = u32::try_from(length).ok()?.to_le_bytes();
    out.get_mut(..LENGTH_BYTES)?.copy_from_slice(&length);
    Some(out)
}

/// Decodes a launch spec without its length prefix.
pub(crate) fn decode_launch(bytes: &[u8]) -> Option<LaunchSpec> {
    let mut rest = bytes;
    let program = PathBuf::from(take(&mut rest)?);
    let cwd = take_all(&mut rest)?.into_iter().next().map(PathBuf::from);
    let args = take_all(&mut rest)?;
    let mut texts = take_all(&mut rest)?.into_iter();
    let mut env = Vec::new();
    while let Some(name) = texts.next() {
        env.push((name, texts.next()?));
    }
    let cleanup = take_all(&mut rest)?;
    rest.is_empty().then_some(LaunchSpec { program, args, env, cwd, cleanup })
}

fn put(out: &mut Vec<u8>, text: &[u8]) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text);
}

fn put_all<'a>(out: &mut Vec<u8>, texts: impl Iterator<Item = &'a [u8]> + Clone) {
    let count = u32::try_from(texts.clone().count()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    texts.for_each(|text| put(out, text));
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let (number, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

fn take(rest: &mut &[u8]) -> Option<OsString> {
    let length = take_number(rest)?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(OsString::from_vec(text.to_vec()))
}

fn take_all(rest: &mut &[u8]) -> Option<Vec<OsString>> {
    let count = take_number(rest)?;
    (0..count).map(|_| take(rest)).collect()
}

/// A guardian that does not respond in this time is broken. Starting one takes about a millisecond.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a guardian may take to exit after its last report or its abandonment.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server under a guardian.
#[derive(Debug)]
pub(crate) struct GuardedProcess {
    guardian: Child,
    connection: GuardianConnection,
    tag: String,
    /// Used only if the guardian is killed; otherwise the guardian runs the command.
    cleanup: Cleanup,
}

/// Starts a guardian, which starts the server.
pub(crate) async fn start(
    program: &Path,
    spec: &LaunchSpec,
    pipes: [OwnedFd; 3],
    tag: String,
) -> Result<GuardedProcess, TransportError> {
    let guardian_error = |error| TransportError::Spawn(SpawnError::Guardian(error));
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    #[expect(clippy::disallowed_methods, reason = "this is where guardians are started")]
    let guardian = Command::new(program)
        .arg0("toolrack-guard")
        .arg(ARGUMENT)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(guardian_error)?;
    let mut connection =
        GuardianConnection { socket: UnixStream::from_std(ours)?, bytes: Vec::new() };
    let launch = encode_launch(spec)
        .ok_or_else(|| exec_error(spec, io::Error::from(io::ErrorKind::ArgumentListTooLong)))?;
    let started = timeout(START_TIMEOUT, async {
        send_launch(&mut connection.socket, &launch, pipes).await?;
        connection.next_report().await
    });
    match started.await {
        Ok(Ok(Some(Report::Started))) => {
            let cleanup = Cleanup::new(spec);
            Ok(GuardedProcess { guardian, connection, tag, cleanup })
        }
        Ok(Ok(Some(Report::SpawnFailed { errno }))) => {
            Err(exec_error(spec, io::Error::from_raw_os_error(errno)))
        }
        Ok(Ok(_)) => Err(guardian_error(io::Error::from(io::ErrorKind::UnexpectedEof))),
        Ok(Err(error)) => Err(guardian_error(error)),
        Err(_elapsed) => Err(guardian_error(io::Error::from(io::ErrorKind::TimedOut))),
    }
}

/// Sends the launch spec with the server's pipes, and closes our copies of them.
async fn send_launch(
    socket: &mut UnixStream,
    launch: &[u8],
    pipes: [OwnedFd; 3],
) -> io::Result<()> {
    // The descriptors travel with the first bytes; the rest may need further writes.
    let n_sent = socket
        .async_io(Interest::WRITABLE, || {
            let borrowed = pipes.each_ref().map(AsFd::as_fd);
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
            let text = [IoSlice::new(launch)];
            Ok(sendmsg(&*socket, &text, &mut ancillary, SendFlags::NOSIGNAL)?)
        })
        .await?;
    // Our copies would keep the pipes open after the server has exited.
    drop(pipes);
    socket.write_all(launch.get(n_sent..).unwrap_or_default()).await
}

impl GuardedProcess {
    pub(crate) fn pid(&self) -> Option<u32> {
        self.guardian.id()
    }

    pub(crate) async fn supervise(
        self,
        mut desired: watch::Receiver<DesiredState>,
        report: &(dyn Fn(ProcessState) + Sync),
    ) {
        let GuardedProcess { mut guardian, mut connection, tag, cleanup } = self;
        let exit = relay(&mut connection, &mut desired, report, (tag, cleanup)).await;
        // An abandoned guardian learns of it by the closed socket.
        drop(connection);
        if let Some(status) = exit {
            report(ProcessState::Gone(status));
        }
        match timeout(EXIT_TIMEOUT, guardian.wait()).await {
            Ok(Ok(status)) => tracing::trace!(%status, "guardian exited"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot wait for the guardian"),
            Err(_elapsed) => tracing::warn!("guardian did not exit in time"),
        }
    }
}

/// Relays stop requests to the guardian and its reports to us. Returns the exit status once no process is left, or
/// `None` when the server is abandoned.
async fn relay(
    connection: &mut GuardianConnection,
    desired: &mut watch::Receiver<DesiredState>,
    report: &(dyn Fn(ProcessState) + Sync),
    (tag, mut cleanup): (String, Cleanup),
) -> Option<ExitStatus> {
    let mut exit = ExitStatus::Unknown;
    loop {
        tokio::select! {
            received = connection.next_report() => match received {
                Ok(Some(Report::Exited(status))) => {
                    exit = status;
                    report(ProcessState::Exited(status));
                }
                Ok(Some(Report::NothingLeft)) => return Some(exit),
                // The connection ended without the last report, so the guardian was killed.
                Ok(Some(Report::Started | Report::SpawnFailed { .. }) | None) | Err(_) => {
                    kill_remaining(tag).await;
                    cleanup.run().await;
                    return Some(exit);
                }
            },
            changed = desired.changed() => {
                let state = changed.map_or(DesiredState::Abandoned, |()| *desired.borrow_and_update());
                match state {
                    DesiredState::Running => {}
                    DesiredState::Stopped(timeouts) => connection.stop(&encode_stop(timeouts)).await,
                    DesiredState::Abandoned => return None,
                }
            }
        }
    }
}

/// Kills the processes of a server whose guardian was killed. The server itself dies with its guardian; processes
/// outside its session are found by their tag.
async fn kill_remaining(tag: String) {
    tracing::warn!("guardian was killed; ending the server's processes by their tag");
    match tokio::task::spawn_blocking(move || kill_tagged_launch(&tag)).await {
        Ok(n_killed) => tracing::debug!(n_killed, "killed processes without a guardian"),
        Err(error) => tracing::warn!(%error, "orphan cleanup was interrupted"),
    }
}

/// The owner's end of the socket to a guardian.
#[derive(Debug)]
struct GuardianConnection {
    socket: UnixStream,
    /// An incomplete report.
    bytes: Vec<u8>,
}

impl GuardianConnection {
    /// The next report, or `None` when the guardian is gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: an incomplete report stays in `bytes`.
    async fn next_report(&mut self) -> io::Result<Option<Report>> {
        loop {
            if let Some(report) = self.bytes.first_chunk::<REPORT_BYTES>() {
                let report = Report::decode(*report);
                self.bytes.drain(..REPORT_BYTES);
                return Ok(report);
            }
            self.socket.readable().await?;
            match self.socket.try_read_buf(&mut self.bytes) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a stop message. A failure means that the guardian is gone, which `next_report` finds out.
    async fn stop(&mut self, stop: &[u8]) {
        if let Err(error) = self.socket.write_all(stop).await {
            tracing::debug!(%error, "cannot send the stop message to the guardian");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reports_roundtrip() {
        for report in [
            Report::Started,
            Report::SpawnFailed { errno: 8 },
            Report::Exited(ExitStatus::Code(-1)),
            Report::Exited(ExitStatus::Signal(9)),
            Report::Exited(ExitStatus::Unknown),
            Report::NothingLeft,
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode([0; REPORT_BYTES]), None);
    }

    #[test]
    fn stop_message_roundtrips() {
        let timeouts = ShutdownTimeouts {
            close_stdin: Duration::from_secs(2),
            terminate: Duration::from_millis(1),
        };
        assert_eq!(decode_stop(encode_stop(timeouts)), timeouts);
    }

    fn text() -> impl Strategy<Value = OsString> {
        proptest::collection::vec(any::<u8>(), 0..30).prop_map(OsString::from_vec)
    }

    proptest! {
        #[test]
        fn launch_spec_roundtrips(
            program in text(),
            cwd in proptest::option::of(text()),
            args in proptest::collection::vec(text(), 0..5),
            env in proptest::collection::vec((text(), text()), 0..5),
            cleanup in proptest::collection::vec(text(), 0..3),
        ) {
            let cwd = cwd.map(PathBuf::from);
            let spec = LaunchSpec { program: program.into(), args, env, cwd, cleanup };
            let bytes = encode_launch(&spec).unwrap();
            let (length, body) = bytes.split_first_chunk::<LENGTH_BYTES>().unwrap();
            prop_assert_eq!(u32::from_le_bytes(*length) as usize, body.len());
            prop_assert_eq!(decode_launch(body), Some(spec));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(decode_launch(&bytes).is_none_or(|spec| spec.args.len() < 100));
        }
    }
}
