//! Custody by a guardian: starting one, and hearing its reports.

use std::io;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;
use toolrack_transport::{Exit, SpawnFault, TransportError};

use super::cleanup_command::Farewell;
use super::{Life, Wish, refused};
use crate::guardian::{ARGUMENT, REPORT_BYTES, Report, encode_launch, encode_stop};
use crate::launch_spec::LaunchSpec;
use crate::orphan_cleanup::sweep_launch;

/// A guardian that does not answer in this time is broken. Starting one takes a millisecond.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A guardian ends by itself; this is how long its last breath may take.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A server under a guardian.
#[derive(Debug)]
pub(crate) struct Guarded {
    guardian: Child,
    reports: Reports,
    mark: String,
    /// For the day the guardian is killed.
    farewell: Farewell,
}

/// Starts a guardian, and through it the server.
pub(super) async fn start(
    program: &Path,
    spec: &LaunchSpec,
    pipes: [OwnedFd; 3],
    mark: String,
) -> Result<Guarded, TransportError> {
    let broken = |error| TransportError::Spawn(SpawnFault::Guardian(error));
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
        .map_err(broken)?;
    let mut reports = Reports { socket: UnixStream::from_std(ours)?, bytes: Vec::new() };
    let launch = encode_launch(spec)
        .ok_or_else(|| refused(spec, io::Error::from(io::ErrorKind::ArgumentListTooLong)))?;
    let started = timeout(START_LIMIT, async {
        send_launch(&mut reports.socket, &launch, pipes).await?;
        reports.next().await
    });
    match started.await {
        Ok(Ok(Some(Report::Started))) => {
            let farewell = Farewell::of(spec);
            Ok(Guarded { guardian, reports, mark, farewell })
        }
        Ok(Ok(Some(Report::Refused { errno }))) => {
            Err(refused(spec, io::Error::from_raw_os_error(errno)))
        }
        Ok(Ok(_)) => Err(broken(io::Error::from(io::ErrorKind::UnexpectedEof))),
        Ok(Err(error)) => Err(broken(error)),
        Err(_too_late) => Err(broken(io::Error::from(io::ErrorKind::TimedOut))),
    }
}

/// Sends the launch with the server's pipes beside its first bytes, and closes them here.
async fn send_launch(
    socket: &mut UnixStream,
    launch: &[u8],
    pipes: [OwnedFd; 3],
) -> io::Result<()> {
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
    drop(pipes);
    socket.write_all(launch.get(n_sent..).unwrap_or_default()).await
}

impl Guarded {
    pub(super) fn process(&self) -> Option<u32> {
        self.guardian.id()
    }

    pub(super) async fn keep(
        self,
        mut wishes: watch::Receiver<Wish>,
        tell: &(dyn Fn(Life) + Sync),
    ) {
        let Guarded { mut guardian, mut reports, mark, farewell } = self;
        let exit = attend(&mut reports, &mut wishes, tell, (mark, farewell)).await;
        // Closing the socket is how an abandoned guardian learns of it.
        drop(reports);
        if let Some(exit) = exit {
            tell(Life::Gone(exit));
        }
        match timeout(END_LIMIT, guardian.wait()).await {
            Ok(Ok(status)) => tracing::trace!(%status, "guardian ended"),
            Ok(Err(error)) => tracing::warn!(%error, "guardian cannot be waited for"),
            Err(_too_late) => tracing::warn!("guardian does not end; left to itself"),
        }
    }
}

/// Passes wishes on and reports back, until nothing is left (and how it ended) or we are abandoned.
async fn attend(
    reports: &mut Reports,
    wishes: &mut watch::Receiver<Wish>,
    tell: &(dyn Fn(Life) + Sync),
    (mark, mut farewell): (String, Farewell),
) -> Option<Exit> {
    let mut exit = Exit::Unknown;
    loop {
        tokio::select! {
            report = reports.next() => match report {
                Ok(Some(Report::Exited(how))) => {
                    exit = how;
                    tell(Life::Exited(how));
                }
                Ok(Some(Report::NothingLeft)) => return Some(exit),
                Ok(Some(Report::Started | Report::Refused { .. }) | None) | Err(_) => {
                    clean_up(mark).await;
                    farewell.say().await;
                    return Some(exit);
                }
            },
            wish = wishes.changed() => {
                let wish = wish.map_or(Wish::Abandon, |()| *wishes.borrow_and_update());
                match wish {
                    Wish::Run => {}
                    Wish::Stop(ladder) => reports.stop(&encode_stop(ladder)).await,
                    Wish::Abandon => return None,
                }
            }
        }
    }
}

/// The guardian was killed. The server died with it, and what had left the server's session is found by
/// its mark.
async fn clean_up(mark: String) {
    tracing::warn!("the guardian of a server was killed; its processes are ended by their mark");
    match tokio::task::spawn_blocking(move || sweep_launch(&mark)).await {
        Ok(n_ended) => tracing::debug!(n_ended, "processes without a guardian were ended"),
        Err(error) => tracing::warn!(%error, "the sweep was cut short"),
    }
}

/// Our end of the socket to a guardian.
#[derive(Debug)]
struct Reports {
    socket: UnixStream,
    /// A report that has not come in completely.
    bytes: Vec<u8>,
}

impl Reports {
    /// The next report, or `None` when the guardian has gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    async fn next(&mut self) -> io::Result<Option<Report>> {
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

    /// A guardian that cannot be told is gone, which the next report says.
    async fn stop(&mut self, stop: &[u8]) {
        if let Err(error) = self.socket.write_all(stop).await {
            tracing::debug!(%error, "guardian could not be told to stop");
        }
    }
}
