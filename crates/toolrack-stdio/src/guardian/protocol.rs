//! What a guardian and its owner say to each other, as bytes.
//!
//! The owner sends one launch (with the server's three pipes beside it) and later perhaps a stop. The
//! guardian sends reports of a fixed size. Arguments and environment travel here and not on a command
//! line, where everybody could read them.

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
use toolrack_transport::{Exit, SpawnFault, TransportError};

use crate::guardian::ARGUMENT;
use crate::launch_spec::LaunchSpec;
use crate::options::Ladder;
use crate::orphan_cleanup::sweep_launch;
use crate::process::{Farewell, Life, Wish, refused};

/// The length of the launch stands in front of it, in this many bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// A launch cannot be larger: the system would not start it.
pub(crate) const MAX_LAUNCH_BYTES: usize = 16 << 20;

/// Every stop has this many bytes.
pub(crate) const STOP_BYTES: usize = 8;

/// Every report has this many bytes.
pub(crate) const REPORT_BYTES: usize = 8;

/// What a guardian reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The server runs.
    Started,
    /// It could not be started, for this reason of the system.
    Refused { errno: i32 },
    /// The server itself has ended.
    Exited(Exit),
    /// Nothing is left of it. The last report.
    NothingLeft,
}

impl Report {
    pub(crate) fn encode(self) -> [u8; REPORT_BYTES] {
        let (tag, number): (u8, i32) = match self {
            Report::Started => (1, 0),
            Report::Refused { errno } => (2, errno),
            Report::Exited(Exit::Code(code)) => (3, code),
            Report::Exited(Exit::Signal(signal)) => (4, signal),
            Report::Exited(Exit::Unknown) => (5, 0),
            Report::NothingLeft => (6, 0),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, 0, 0, 0, a, b, c, d]
    }

    pub(crate) fn decode([tag, _, _, _, a, b, c, d]: [u8; REPORT_BYTES]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match tag {
            1 => Report::Started,
            2 => Report::Refused { errno: number },
            3 => Report::Exited(Exit::Code(number)),
            4 => Report::Exited(Exit::Signal(number)),
            5 => Report::Exited(Exit::Unknown),
            6 => Report::NothingLeft,
            _ => return None,
        })
    }
}

/// A stop, with the patience it is to be carried out with.
pub(crate) fn encode_stop(ladder: Ladder) -> [u8; STOP_BYTES] {
    let close = u64::from(milliseconds(ladder.close));
    (close << 32 | u64::from(milliseconds(ladder.terminate))).to_le_bytes()
}

pub(crate) fn decode_stop(stop: [u8; STOP_BYTES]) -> Ladder {
    let both = u64::from_le_bytes(stop);
    Ladder {
        close: Duration::from_millis(both >> 32),
        terminate: Duration::from_millis(both & u64::from(u32::MAX)),
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// A launch with its length in front. `None` if it is too large for any system.
pub(crate) fn encode_launch(spec: &LaunchSpec) -> Option<Vec<u8>> {
    let mut out = vec![0; LENGTH_BYTES];
    put(&mut out, spec.program.as_os_str().as_bytes());
    put_all(&mut out, spec.cwd.iter().map(|dir| dir.as_os_str().as_bytes()));
    put_all(&mut out, spec.args.iter().map(|arg| arg.as_bytes()));
    put_all(
        &mut out,
        spec.env.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]),
    );
    put_all(&mut out, spec.farewell.iter().map(|word| word.as_bytes()));
    let length = out.len() - LENGTH_BYTES;
    if length > MAX_LAUNCH_BYTES {
        return None;
    }
    let length = u32::try_from(length).ok()?.to_le_bytes();
    out.get_mut(..LENGTH_BYTES)?.copy_from_slice(&length);
    Some(out)
}

/// Reads a launch back, without its length.
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
    let farewell = take_all(&mut rest)?;
    rest.is_empty().then_some(LaunchSpec { program, args, env, cwd, farewell })
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
pub(crate) async fn start(
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
    pub(crate) fn process(&self) -> Option<u32> {
        self.guardian.id()
    }

    pub(crate) async fn keep(
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reports_survive_the_wire() {
        for report in [
            Report::Started,
            Report::Refused { errno: 8 },
            Report::Exited(Exit::Code(-1)),
            Report::Exited(Exit::Signal(9)),
            Report::Exited(Exit::Unknown),
            Report::NothingLeft,
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode([0; REPORT_BYTES]), None);
    }

    #[test]
    fn a_stop_survives_the_wire() {
        let ladder = Ladder { close: Duration::from_secs(2), terminate: Duration::from_millis(1) };
        assert_eq!(decode_stop(encode_stop(ladder)), ladder);
    }

    fn text() -> impl Strategy<Value = OsString> {
        proptest::collection::vec(any::<u8>(), 0..30).prop_map(OsString::from_vec)
    }

    proptest! {
        #[test]
        fn a_launch_survives_the_wire(
            program in text(),
            cwd in proptest::option::of(text()),
            args in proptest::collection::vec(text(), 0..5),
            env in proptest::collection::vec((text(), text()), 0..5),
            farewell in proptest::collection::vec(text(), 0..3),
        ) {
            let cwd = cwd.map(PathBuf::from);
            let spec = LaunchSpec { program: program.into(), args, env, cwd, farewell };
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
