//! A guardian's work, from the first message to the last report.

mod protocol;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpgid, getpid, kill_process,
    kill_process_group, set_child_subreaper, setsid, waitid,
};
use toolrack_transport::Exit;

use crate::launch_spec::LaunchSpec;
use crate::shutdown::{Climb, Event, Order};
use crate::sys;
pub(crate) use protocol::{Guarded, start};
use protocol::{LENGTH_BYTES, MAX_LAUNCH_BYTES, Report, STOP_BYTES, decode_launch, decode_stop};

/// The one argument that makes a program a guardian.
pub(crate) const ARGUMENT: &str = "__guard";

static READY: AtomicBool = AtomicBool::new(false);

pub(crate) fn init() {
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(ARGUMENT)) {
        let code = run();
        #[expect(clippy::exit, reason = "the program around us must not begin its own work")]
        std::process::exit(code);
    }
    READY.store(true, Ordering::Release);
}

/// Whether copies of this program can be guardians.
pub(crate) fn is_ready() -> bool {
    READY.load(Ordering::Acquire)
}

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
fn run() -> i32 {
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
    match start_server(&spec, pipes) {
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
fn start_server(spec: &LaunchSpec, [input, output, errors]: [OwnedFd; 3]) -> io::Result<Pid> {
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

/// The server and what it has left to us.
#[derive(Debug)]
pub(crate) struct Children {
    server: Pid,
    server_exit: Option<Exit>,
}

/// What has changed since the last look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Somebody is still there.
    Nothing,
    /// The server itself has ended, and perhaps others are left.
    ServerGone(Exit),
    /// Nobody is left.
    NothingLeft,
}

impl Children {
    pub(crate) fn new(server: Pid) -> Self {
        Self { server, server_exit: None }
    }

    /// Takes note of every child that has ended.
    pub(crate) fn look(&mut self) -> Change {
        if self.server_exit.is_none()
            && let Some(exit) = self.server_end()
        {
            self.server_exit = Some(exit);
            return Change::ServerGone(exit);
        }
        let orphans: Vec<Pid> = children().into_iter().filter(|it| *it != self.server).collect();
        let n_left = orphans.into_iter().filter(|orphan| !has_ended(*orphan)).count();
        if self.server_exit.is_none() || n_left > 0 {
            return Change::Nothing;
        }
        // Its children come to us only when it ends, so a last look is needed before it is let go.
        if children().into_iter().any(|it| it != self.server) {
            return Change::Nothing;
        }
        ignore_gone(waitid(WaitId::Pid(self.server), WaitIdOptions::EXITED));
        Change::NothingLeft
    }

    /// Signals the server's group, and every orphan together with a group it may lead.
    pub(crate) fn signal(&self, signal: Signal) {
        ignore_gone(kill_process_group(self.server, signal));
        for child in children().into_iter().filter(|it| *it != self.server) {
            if getpgid(Some(child)) == Ok(child) {
                ignore_gone(kill_process_group(child, signal));
            }
            ignore_gone(kill_process(child, signal));
        }
    }

    /// How the server ended, leaving the note of it for later.
    fn server_end(&self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.server), options) {
            Ok(status) => status.map(exit_of),
            Err(_no_such_child) => Some(Exit::Unknown),
        }
    }
}

fn exit_of(status: WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

/// A process that is gone needs no signal and no note.
fn ignore_gone<T>(outcome: rustix::io::Result<T>) {
    drop(outcome);
}

/// Our children, ended ones included.
fn children() -> Vec<Pid> {
    let listed = fs::read_to_string("/proc/thread-self/children");
    match listed {
        Ok(list) => list.split_ascii_whitespace().filter_map(parse_pid).collect(),
        // Kernels without that list still tell every process's parent.
        Err(_no_list) => children_by_parent().unwrap_or_default(),
    }
}

fn children_by_parent() -> io::Result<Vec<Pid>> {
    let ourselves = std::process::id();
    Ok(fs::read_dir("/proc")?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let pid = parse_pid(name.to_str()?)?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            (parent(&stat)? == ourselves).then_some(pid)
        })
        .collect())
}

/// The fourth field. The second one is a name that may hold anything.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_read_behind_any_name() {
        assert_eq!(parent("77 (a) b) (c) S 12 77 77 0"), Some(12));
        assert_eq!(parent("77"), None);
    }
}
