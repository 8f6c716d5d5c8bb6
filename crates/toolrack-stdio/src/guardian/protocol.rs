//! Guardian protocol, and the owner's side of the connection to a guardian.
//!
//! Messages are lines of JSON. The owner sends the server's three pipes as file descriptors, then the [`LaunchSpec`], and
//! later perhaps [`ShutdownTimeouts`], which request a stop. The guardian sends [`Report`]s. Arguments and environment
//! travel over the socket and not on the command line, where every user could read them.

use std::future::pending;
use std::io;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt, BufReader, Interest, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use toolrack_transport::{ExitStatus, TransportError, deadline_after};

use crate::guardian::{ARGUMENT, GuardianProcess};
use crate::launch_spec::LaunchSpec;
use crate::options::ShutdownTimeouts;
use crate::orphan_cleanup::{kill_tagged_launch, new_process_tag};
use crate::process::{
    DesiredState, ProcessState, exec_error, guardian_error, run_cleanup, sleep_until_some,
};

/// The size of a read buffer for reports, of which every idle server has one. Reports are short.
const REPORT_BYTES: usize = 128;

/// The maximum size of a message. The system would not execute a larger launch spec, even though JSON takes up to four
/// bytes for each of its bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A report of the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// Encodes a message as a line of JSON.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// A guardian that does not respond in this time is broken. Starting one takes about a millisecond.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a guardian may be stopped while its server runs. A guardian that is stopped longer is killed with the
/// server, because only a server has a reason to stop it.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(1);

/// How late the last report may be before the guardian is checked for a stop, and the time between checks. Shorter than
/// the time that `close` waits after both shutdown timeouts.
const LATE_REPORT: Duration = Duration::from_millis(500);

/// A server under a guardian.
#[derive(Debug)]
pub(crate) struct GuardedProcess {
    pub(crate) guardian: GuardianProcess,
    reports: Reports,
    requests: OwnedWriteHalf,
    tag: String,
    /// Used only if the guardian is killed; otherwise the guardian runs the command.
    cleanup: Option<Command>,
}

type Reports = Lines<BufReader<OwnedReadHalf>>;

/// A guardian without a server.
#[derive(Debug)]
pub(crate) struct GuardianConnection {
    pub(crate) process: GuardianProcess,
    pub(crate) socket: UnixStream,
}

impl GuardianConnection {
    /// Starts a guardian, which waits for its server.
    pub(crate) fn open(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        #[expect(clippy::disallowed_methods, reason = "this is where guardians are started")]
        let process = Command::new(program)
            .arg0("toolrack-guard")
            .arg(ARGUMENT)
            .arg(new_process_tag())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let process = GuardianProcess::new(process);
        Ok(Self { process, socket: UnixStream::from_std(ours)? })
    }

    /// Lets the guardian start the server.
    pub(crate) async fn start_server(
        self,
        spec: &LaunchSpec,
        pipes: [OwnedFd; 3],
        tag: String,
    ) -> Result<GuardedProcess, TransportError> {
        let Self { process: mut guardian, socket } = self;
        let launch = encode(spec)?;
        if launch.len() > MAX_MESSAGE_BYTES {
            return Err(exec_error(spec, io::ErrorKind::ArgumentListTooLong.into()));
        }
        let started = timeout(START_TIMEOUT, async {
            let n_sent = send_pipes(&socket, pipes, &launch).await?;
            let (reader, mut requests) = socket.into_split();
            requests.write_all(launch.get(n_sent..).unwrap_or_default()).await?;
            let mut reports = BufReader::with_capacity(REPORT_BYTES, reader).lines();
            let report = next_report(&mut reports).await?;
            Ok((report, reports, requests))
        });
        let started = started.await;
        // The server may run already, and stop its guardian before that reports anything.
        if !matches!(started, Ok(Ok((Some(_), ..)))) && guardian.is_stopped() {
            guardian.kill_with_server(&tag).await;
            return Err(guardian_error(io::ErrorKind::TimedOut.into()));
        }
        match started {
            Ok(Ok((Some(Report::Started), reports, requests))) => {
                let cleanup = spec.cleanup_command().map(Command::from);
                Ok(GuardedProcess { guardian, reports, requests, tag, cleanup })
            }
            Ok(Ok((Some(Report::SpawnFailed { errno }), ..))) => {
                Err(exec_error(spec, io::Error::from_raw_os_error(errno)))
            }
            Ok(Ok(_)) => Err(guardian_error(io::ErrorKind::UnexpectedEof.into())),
            Ok(Err(error)) => Err(guardian_error(error)),
            Err(_elapsed) => Err(guardian_error(io::ErrorKind::TimedOut.into())),
        }
    }
}

/// Sends the server's pipes with a first byte, and closes our copies of them, which would keep the pipes open after the
/// server has exited. Sends the start of `launch` too, which saves the guardian a wait, and returns the length of it.
async fn send_pipes(socket: &UnixStream, pipes: [OwnedFd; 3], launch: &[u8]) -> io::Result<usize> {
    let send = || {
        let borrowed = pipes.each_ref().map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        let data = [IoSlice::new(b"\n"), IoSlice::new(launch)];
        let n_sent = sendmsg(socket, &data, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(n_sent.saturating_sub(1))
    };
    socket.async_io(Interest::WRITABLE, send).await
}

/// The next report, or `None` when the guardian is gone.
///
/// # Cancel safety
/// Dropping the future loses nothing: an incomplete report stays in the reader.
async fn next_report(reports: &mut Reports) -> io::Result<Option<Report>> {
    let line = reports.next_line().await?;
    Ok(line.as_deref().map(serde_json::from_str).transpose()?)
}

impl GuardedProcess {
    pub(crate) async fn supervise(
        mut self,
        mut desired: watch::Receiver<DesiredState>,
        report: &(dyn Fn(ProcessState) + Sync),
    ) {
        let exit = self.relay(&mut desired, report).await;
        // An abandoned guardian learns of it by the closed socket.
        drop((self.reports, self.requests));
        if let Some(status) = exit {
            report(ProcessState::Gone(status));
        }
        self.guardian.end(&self.tag).await;
    }

    /// Relays stop requests to the guardian and its reports to us. Returns the exit status once no process is left, or
    /// `None` when the server is abandoned.
    async fn relay(
        &mut self,
        desired: &mut watch::Receiver<DesiredState>,
        report: &(dyn Fn(ProcessState) + Sync),
    ) -> Option<ExitStatus> {
        let mut exit = ExitStatus::Unknown;
        let mut is_stopping = false;
        let mut child_signals = signal(SignalKind::child()).ok();
        // When to check whether the guardian is stopped. A stop before the line above sends no signal that we see.
        let mut check = self.guardian.is_stopped().then(|| Instant::now() + STOPPED_TIMEOUT);
        loop {
            tokio::select! {
                received = next_report(&mut self.reports) => match received {
                    Ok(Some(Report::Exited(status))) => {
                        exit = status;
                        report(ProcessState::Exited(status));
                    }
                    Ok(Some(Report::NothingLeft)) => return Some(exit),
                    // The connection ended without the last report, so the guardian was killed.
                    Ok(Some(Report::Started | Report::SpawnFailed { .. }) | None) | Err(_) => {
                        kill_remaining(self.tag.clone()).await;
                        run_cleanup(self.cleanup.take()).await;
                        return Some(exit);
                    }
                },
                changed = desired.changed() => {
                    let state = changed.map_or(DesiredState::Abandoned, |()| *desired.borrow_and_update());
                    match state {
                        DesiredState::Running => {}
                        DesiredState::Stopped(timeouts) => {
                            self.stop(&timeouts).await;
                            is_stopping = true;
                            let both = timeouts.close_stdin.saturating_add(timeouts.terminate);
                            let late = deadline_after(Instant::now(), both.saturating_add(LATE_REPORT));
                            check = Some(check.map_or(late, |check| check.min(late)));
                        }
                        DesiredState::Abandoned => return None,
                    }
                }
                () = next_signal(&mut child_signals) => {
                    if check.is_none() && self.guardian.is_stopped() {
                        check = Some(Instant::now() + STOPPED_TIMEOUT);
                    }
                }
                () = sleep_until_some(check) => {
                    if self.guardian.is_stopped() {
                        self.guardian.kill_with_server(&self.tag).await;
                        run_cleanup(self.cleanup.take()).await;
                        return Some(exit);
                    }
                    check = is_stopping.then(|| Instant::now() + LATE_REPORT);
                }
            }
        }
    }

    /// Requests a stop. A failure means that the guardian is gone, which `next_report` finds out.
    async fn stop(&mut self, timeouts: &ShutdownTimeouts) {
        let sent = match encode(timeouts) {
            Ok(line) => self.requests.write_all(&line).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "cannot send the stop message to the guardian");
        }
    }
}

/// The next signal. Never, if the system does not report signals.
async fn next_signal(signals: &mut Option<SignalStream>) {
    let received = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if received.is_none() {
        pending::<()>().await;
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    use proptest::prelude::*;
    use serde::de::DeserializeOwned;

    use super::*;

    /// Encodes a message and decodes the line.
    fn roundtrip<T: Serialize + DeserializeOwned>(message: &T) -> T {
        let line = encode(message).unwrap();
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        serde_json::from_slice(&line).unwrap()
    }

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
            assert_eq!(roundtrip(&report), report);
        }
        assert!(serde_json::from_str::<Report>("\0\0\0").is_err());
    }

    #[test]
    fn stop_message_roundtrips() {
        let timeouts = ShutdownTimeouts {
            close_stdin: Duration::from_secs(2),
            terminate: Duration::from_millis(1),
        };
        assert_eq!(roundtrip(&timeouts), timeouts);
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
            let spec = LaunchSpec { program, args, env, cwd, cleanup };
            prop_assert_eq!(roundtrip(&spec), spec);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(serde_json::from_slice::<LaunchSpec>(&bytes).is_err());
        }
    }
}
