//! A guardian's work, from the first message to the last report.

use std::io;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, getpid, set_child_subreaper, setsid};

use super::process_tree::{Change, Children};
use super::protocol::{
    LENGTH_BYTES, MAX_LAUNCH_BYTES, Report, STOP_BYTES, decode_launch, decode_stop,
};
use super::shutdown::{Climb, Event, Order};
use crate::launch_spec::LaunchSpec;
use crate::sys;

/// How long a farewell may take. Nobody is held up: our owner waits a shorter time.
const FAREWELL_LIMIT: Duration = Duration::from_secs(20);
/// How often a farewell is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Ended as it should.
const DONE: i32 = 0;
/// Not started by an owner that knows how to talk to a guardian.
const NO_OWNER: i32 = 64;
/// The system refused something a guardian cannot do without.
const NO_SYSTEM: i32 = 71;

/// Does the work and gives the exit code. The owner's socket is the standard input.
pub(super) fn run() -> i32 {
    // From here on a key pressed in the owner's terminal does not reach us. It fails only for one who
    // leads a session already, which serves the same end.
    let _session = setsid();
    let prepared = sys::close_inherited()
        .and_then(|()| set_child_subreaper(Some(getpid())).map_err(io::Error::from))
        .and_then(|()| sys::hear_signals());
    let Ok(signals) = prepared else { return NO_SYSTEM };
    let owner = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let Ok(mut owner) = owner else { return NO_OWNER };
    let Ok((spec, pipes)) = receive_launch(&mut owner) else { return NO_OWNER };
    match start(&spec, pipes) {
        Ok(server) => {
            let watch = Watch::new(owner, signals, server);
            let owner = watch.until_nothing_is_left();
            say_farewell(&spec);
            report(&owner, Report::NothingLeft);
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            report(&owner, Report::Refused { errno });
        }
    }
    DONE
}

/// Runs what ends the things that the server has elsewhere, and waits for it, but not forever.
fn say_farewell(spec: &LaunchSpec) {
    let Some(mut command) = farewell(spec) else { return };
    // Whoever reads of it would have to be there; the next sweep finds what is left.
    let Ok(mut child) = sys::in_own_session(&mut command, getpid()).spawn() else { return };
    let deadline = now() + FAREWELL_LIMIT;
    while matches!(child.try_wait(), Ok(None)) {
        if now() >= deadline {
            let _gone = child.kill();
            let _ended = child.wait();
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn farewell(spec: &LaunchSpec) -> Option<Command> {
    let (program, args) = spec.farewell.split_first()?;
    #[expect(clippy::disallowed_methods, reason = "this ends what a server has elsewhere")]
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some(command)
}

/// Starts the server. Its pipes are closed here when this returns, so that only it holds them.
fn start(spec: &LaunchSpec, [input, output, errors]: [OwnedFd; 3]) -> io::Result<Pid> {
    #[expect(clippy::disallowed_methods, reason = "this is where servers are started")]
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    if let Some(dir) = &spec.cwd {
        command.current_dir(dir);
    }
    let child = sys::in_own_session(&mut command, getpid()).spawn()?;
    Pid::from_raw(i32::try_from(child.id()).unwrap_or_default())
        .ok_or_else(|| io::Error::from(io::ErrorKind::Other))
}

/// Reads the launch and the server's three pipes, which come with its first bytes.
fn receive_launch(owner: &mut UnixStream) -> io::Result<(LaunchSpec, [OwnedFd; 3])> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut length = [0; LENGTH_BYTES];
    let received = recvmsg(
        &*owner,
        &mut [IoSliceMut::new(&mut length)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL,
    )?;
    let pipes: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(pipes) => Some(pipes),
            _ => None,
        })
        .flatten()
        .collect();
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let pipes: [OwnedFd; 3] = pipes.try_into().map_err(|_other_number| malformed())?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_too_large| malformed())?;
    if received.bytes != LENGTH_BYTES || length > MAX_LAUNCH_BYTES {
        return Err(malformed());
    }
    let mut body = vec![0; length];
    owner.read_exact(&mut body)?;
    Ok((decode_launch(&body).ok_or_else(malformed)?, pipes))
}

/// The owner may be gone; then nobody needs the report.
fn report(mut owner: &UnixStream, report: Report) {
    let _told = owner.write_all(&report.encode());
}

/// A server that runs, and what is known of it.
struct Watch {
    owner: UnixStream,
    /// Whether the owner may still say something.
    owner_lives: bool,
    signals: OwnedFd,
    children: Children,
    climb: Climb,
    alarm: Option<Instant>,
}

impl Watch {
    fn new(owner: UnixStream, signals: OwnedFd, server: Pid) -> Self {
        report(&owner, Report::Started);
        Self {
            owner,
            owner_lives: true,
            signals,
            children: Children::new(server),
            climb: Climb::new(),
            alarm: None,
        }
    }

    /// Gives back the line to the owner, who is to be told.
    fn until_nothing_is_left(mut self) -> UnixStream {
        loop {
            self.wait();
            let events = [self.heard_signal(), self.heard_owner(), self.heard_alarm()];
            for event in events.into_iter().flatten() {
                self.obey(event);
            }
            loop {
                match self.children.look() {
                    Change::Nothing => break,
                    Change::ServerGone(exit) => {
                        report(&self.owner, Report::Exited(exit));
                        self.obey(Event::ServerGone);
                    }
                    Change::NothingLeft => {
                        self.obey(Event::NothingLeft);
                        return self.owner;
                    }
                }
            }
        }
    }

    /// Sleeps until there is something to hear, or the alarm is due.
    fn wait(&self) {
        let mut sources =
            [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.owner, PollFlags::IN)];
        let n_sources = if self.owner_lives { 2 } else { 1 };
        let timeout = self.alarm.map(|alarm| timespec(alarm.saturating_duration_since(now())));
        // Being interrupted is as good a reason as any to look around.
        let sources = sources.get_mut(..n_sources).unwrap_or_default();
        let _ready = poll(sources, timeout.as_ref());
    }

    /// News of children is only a reason to look at them; any other signal asks us to end, and our
    /// owner is not the one who asks.
    fn heard_signal(&self) -> Option<Event> {
        let mut buffer = [0; 8 * size_of::<libc::signalfd_siginfo>()];
        let n_bytes = rustix::io::read(&self.signals, &mut buffer).unwrap_or(0);
        let child_news = u32::try_from(libc::SIGCHLD).unwrap_or_default();
        sys::signals_in(buffer.get(..n_bytes).unwrap_or_default())
            .any(|signal| signal != child_news)
            .then_some(Event::Abandoned)
    }

    fn heard_owner(&mut self) -> Option<Event> {
        let mut source = [PollFd::new(&self.owner, PollFlags::IN)];
        let now = timespec(Duration::ZERO);
        if !self.owner_lives || !matches!(poll(&mut source, Some(&now)), Ok(1..)) {
            return None;
        }
        let mut stop = [0; STOP_BYTES];
        match self.owner.read_exact(&mut stop) {
            Ok(()) => Some(Event::Stop(decode_stop(stop))),
            Err(_gone) => {
                self.owner_lives = false;
                Some(Event::Abandoned)
            }
        }
    }

    fn heard_alarm(&mut self) -> Option<Event> {
        let due = self.alarm.is_some_and(|alarm| alarm <= now());
        if due {
            self.alarm = None;
        }
        due.then_some(Event::Alarm)
    }

    fn obey(&mut self, event: Event) {
        let wait = match self.climb.step(event) {
            Order::Nothing | Order::Finish => return,
            Order::Wait(wait) => wait,
            Order::Terminate(wait) => {
                self.children.signal(Signal::TERM);
                wait
            }
            Order::Kill(wait) => {
                self.children.signal(Signal::KILL);
                wait
            }
        };
        self.alarm = Some(now() + wait);
    }
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a guardian has no runtime and no other clock")]
    Instant::now()
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}
