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

use crate::guardian::{ARGUMENT, CLEANUP_TIMEOUT, GuardianProcess};
use crate::launch_spec::LaunchSpec;
use crate::options::ShutdownTimeouts;
use crate::orphan_cleanup::new_process_tag;
use crate::process::{DesiredState, ProcessState, exec_error, guardian_error, sleep_until_some};

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
    /// No process is left, and the cleanup command runs.
    CleaningUp,
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

/// How long a guardian may be stopped. A guardian that is stopped longer is killed with its server, because only a
/// server has a reason to stop it.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(1);

/// How late the next report of a guardian that ends its server may be. A guardian that is later is killed with the
/// server. Shorter than the time that `close` waits after both shutdown timeouts.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);

/// When a guardian is killed again that could not be killed.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// A server under a guardian.
#[derive(Debug)]
pub(crate) struct GuardedProcess {
    pub(crate) guardian: GuardianProcess,
    reports: Reports,
    /// `None` once the server is abandoned: the guardian learns of it by the closed half of the socket.
    requests: Option<OwnedWriteHalf>,
    /// When the next report is due. `None` while the server may run.
    report_deadline: Option<Instant>,
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
        guardian.server_starts(tag, spec.cleanup_command().map(Command::from));
        let started = timeout(START_TIMEOUT, async {
            let n_sent = send_pipes(&socket, pipes, &launch).await?;
            let (reader, mut requests) = socket.into_split();
            requests.write_all(launch.get(n_sent..).unwrap_or_default()).await?;
            let mut reports = BufReader::with_capacity(REPORT_BYTES, reader).lines();
            let report = next_report(&mut reports).await?;
            Ok((report, reports, requests))
        });
        let error = match started.await {
            Ok(Ok((Some(Report::Started), reports, requests))) => {
                let requests = Some(requests);
                return Ok(GuardedProcess { guardian, reports, requests, report_deadline: None });
            }
            Ok(Ok((Some(Report::SpawnFailed { errno }), ..))) => {
                guardian.server_has_ended();
                return Err(exec_error(spec, io::Error::from_raw_os_error(errno)));
            }
            Ok(Ok(_)) => io::ErrorKind::UnexpectedEof.into(),
            Ok(Err(error)) => error,
            Err(_elapsed) => io::ErrorKind::TimedOut.into(),
        };
        // The server may run already, and stop or kill its guardian before that reports anything.
        guardian.end_server().await;
        Err(guardian_error(error))
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
        let status = self.relay(&mut desired, report).await;
        report(ProcessState::Gone(status));
        drop((self.reports, self.requests));
        self.guardian.watch().await;
    }

    /// Relays stop requests to the guardian and its reports to us. Returns the exit status once no process is left.
    async fn relay(
        &mut self,
        desired: &mut watch::Receiver<DesiredState>,
        report: &(dyn Fn(ProcessState) + Sync),
    ) -> ExitStatus {
        let mut exit = ExitStatus::Unknown;
        let mut child_signals = signal(SignalKind::child()).ok();
        // When a guardian that is stopped is killed. A stop before the line above sends no signal that we see.
        let mut continue_deadline =
            self.guardian.is_stopped().then(|| Instant::now() + STOPPED_TIMEOUT);
        loop {
            tokio::select! {
                received = next_report(&mut self.reports) => match received {
                    Ok(Some(Report::Exited(status))) => {
                        exit = status;
                        report(ProcessState::Exited(status));
                    }
                    Ok(Some(Report::CleaningUp)) => {
                        let both = CLEANUP_TIMEOUT + SILENCE_TIMEOUT;
                        self.report_deadline = Some(Instant::now() + both);
                    }
                    Ok(Some(Report::NothingLeft)) => {
                        self.guardian.server_has_ended();
                        return exit;
                    }
                    // The connection ended without the last report, so the guardian was killed.
                    Ok(Some(Report::Started | Report::SpawnFailed { .. }) | None) | Err(_) => {
                        self.guardian.end_server().await;
                        return exit;
                    }
                },
                changed = desired.changed(), if self.requests.is_some() => {
                    let state = changed.map_or(DesiredState::Abandoned, |()| *desired.borrow_and_update());
                    match state {
                        DesiredState::Running => {}
                        DesiredState::Stopped(timeouts) => self.stop(&timeouts).await,
                        DesiredState::Abandoned => {
                            self.requests = None;
                            self.expect_end(&ShutdownTimeouts::ABANDONED);
                        }
                    }
                }
                () = next_signal(&mut child_signals) => {
                    if continue_deadline.is_none() && self.guardian.is_stopped() {
                        continue_deadline = Some(Instant::now() + STOPPED_TIMEOUT);
                    }
                }
                () = sleep_until_some(earliest(continue_deadline, self.report_deadline)) => {
                    let is_late = self.report_deadline.is_some_and(|due| due <= Instant::now());
                    continue_deadline = None;
                    if is_late || self.guardian.is_stopped() {
                        if self.guardian.end_server().await {
                            return exit;
                        }
                        self.report_deadline = Some(Instant::now() + RETRY_INTERVAL);
                    }
                }
            }
        }
    }

    /// Requests a stop. A failure means that the guardian is gone, which `next_report` finds out.
    async fn stop(&mut self, timeouts: &ShutdownTimeouts) {
        self.expect_end(timeouts);
        let Some(requests) = &mut self.requests else { return };
        let sent = match encode(timeouts) {
            Ok(line) => requests.write_all(&line).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "cannot send the stop message to the guardian");
        }
    }

    /// Sets the time at which the guardian has to have ended the server.
    fn expect_end(&mut self, timeouts: &ShutdownTimeouts) {
        let both = timeouts.close_stdin.saturating_add(timeouts.terminate);
        let due = deadline_after(Instant::now(), both.saturating_add(SILENCE_TIMEOUT));
        self.report_deadline = earliest(self.report_deadline, Some(due));
    }
}

/// The earlier of two instants, of which each may be missing.
fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
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
            Report::CleaningUp,
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
