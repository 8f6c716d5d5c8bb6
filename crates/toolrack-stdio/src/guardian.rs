//! Guardian: a small process that runs one server and kills every process that the server has started.
//!
//! It is our own program, started again with one argument. It has one thread and no runtime. Its event loop waits for
//! messages from the owner, for the loss of the owner, and for the exit of children. As a subreaper it becomes the parent
//! of every orphaned descendant of the server.
//!
//! **Invariant:** a guardian exits only after every reachable descendant of the server has exited.
//!
//! **Invariant:** only our own children and their process groups are signaled, and their ids cannot belong to other
//! processes. A child that has exited keeps its id until its parent waits for it. The server is waited for last, so the
//! id of its process group stays ours until no process is left to signal.

mod process;
pub(crate) mod protocol;

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::io;
use std::io::{BufRead as _, BufReader, IoSliceMut, Read as _, Seek as _, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitId, WaitIdOptions, getpgid, getpid, kill_process,
    kill_process_group, set_child_subreaper, set_dumpable_behavior,
    set_parent_process_death_signal, setsid, waitid,
};
use serde::de::DeserializeOwned;
use toolrack_transport::ExitStatus;

use crate::launch_spec::LaunchSpec;
use crate::orphan_cleanup::ProcessStat;
use crate::process::exit_status;
use crate::shutdown::{Action, Event, Shutdown};
use crate::sys;
pub(crate) use process::GuardianProcess;
pub(crate) use protocol::{GuardedProcess, GuardianConnection};
use protocol::{MAX_MESSAGE_BYTES, Report, encode};

/// The argument that starts a program as guardian.
pub(crate) const ARGUMENT: &str = "__guard";

static READY: AtomicBool = AtomicBool::new(false);

/// Runs as guardian if the program was started as one; otherwise enables guardians for the servers started later.
pub(crate) fn init() {
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(ARGUMENT)) {
        let code = run();
        #[expect(clippy::exit, reason = "the rest of the program must not run in a guardian")]
        std::process::exit(code);
    }
    READY.store(true, Ordering::Release);
}

/// Our own program, if it can be started as guardian. This link leads to it even if the file was replaced or deleted
/// meanwhile.
pub(crate) fn own_program() -> Option<&'static Path> {
    READY.load(Ordering::Acquire).then(|| Path::new("/proc/self/exe"))
}

/// How long the cleanup command may run. The owner does not wait that long.
pub(crate) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the cleanup command is checked for its exit, and everything if the system cannot wait.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Exit code: success.
const EXIT_OK: i32 = 0;
/// Exit code: not started by an owner that speaks the guardian protocol.
const EXIT_USAGE: i32 = 64;
/// Exit code: a required system call failed.
const EXIT_OSERR: i32 = 71;

/// Runs the guardian and returns its exit code. Stdin is the socket to the owner.
fn run() -> i32 {
    // In a session of our own, Ctrl-C in the owner's terminal does not reach us. This fails only if we lead a session
    // already, which is as good.
    let _session = setsid();
    // An inherited descriptor would stay open as long as this server runs. As a subreaper we become the parent of
    // orphaned descendants, also of those that left the session.
    let prepared = sys::close_inherited()
        .and_then(|()| set_child_subreaper(Some(getpid())).map_err(io::Error::from))
        .and_then(|()| resist_the_server())
        .and_then(|()| sys::signal_fd());
    let Ok(signals) = prepared else { return EXIT_OSERR };
    let owner = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let Ok(owner) = owner else { return EXIT_USAGE };
    let Ok(pipes) = receive_pipes(&owner) else { return EXIT_USAGE };
    let Ok(spec) = receive::<LaunchSpec>(&owner) else { return EXIT_USAGE };
    // The command owns our copies of the pipes, and closes them: the pipes close when the server exits.
    let started = sys::in_own_session(&mut spec.server_command(pipes), getpid()).spawn();
    match started.map(|server| Pid::from_child(&server)) {
        Ok(server) => {
            let event_loop = EventLoop::new(owner, signals, server);
            let owner = event_loop.run();
            // Before the last report: `close` of the owner waits for it.
            run_cleanup(&spec, &owner);
            report(&owner, Report::NothingLeft);
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            report(&owner, Report::SpawnFailed { errno });
        }
    }
    EXIT_OK
}

/// Takes from the server what the system lets us take. The server has the rights of our user, so it can still send
/// SIGKILL and SIGSTOP and freeze us; the owner notices all of them.
fn resist_the_server() -> io::Result<()> {
    // No other process of the user may trace us or read and write our memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // If the owner dies while we are stopped, the kernel continues us. The signal also comes when the owner's thread
    // that started us exits, and does nothing then.
    Ok(set_parent_process_death_signal(Some(Signal::CONT))?)
}

/// Runs the cleanup command and waits for it, up to [`CLEANUP_TIMEOUT`].
fn run_cleanup(spec: &LaunchSpec, owner: &UnixStream) {
    let Some(mut command) = spec.cleanup_command() else { return };
    // Without this report the owner would take the wait for a stop.
    report(owner, Report::CleaningUp);
    // A guardian has no log to report a failure to. The next orphan cleanup finds the targets of the command.
    let Ok(mut child) = sys::in_own_session(&mut command, getpid()).spawn() else { return };
    let deadline = now() + CLEANUP_TIMEOUT;
    while matches!(child.try_wait(), Ok(None)) {
        if now() >= deadline {
            let _killed = child.kill();
            let _exited = child.wait();
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Receives the server's three pipes, which arrive as file descriptors with one byte.
fn receive_pipes(owner: &UnixStream) -> io::Result<[OwnedFd; 3]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(owner, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let pipes: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(pipes) => Some(pipes),
            _ => None,
        })
        .flatten()
        .collect();
    pipes.try_into().map_err(|_other_number| io::ErrorKind::InvalidData.into())
}

/// Receives a message of the owner, who sends the next one only after a report. So the reader buffers nothing beyond it.
pub(crate) fn receive<T: DeserializeOwned>(owner: &UnixStream) -> io::Result<T> {
    let mut line = Vec::new();
    BufReader::new(owner.take(MAX_MESSAGE_BYTES as u64)).read_until(b'\n', &mut line)?;
    // The owner was killed within the message, or it is too long.
    if !line.ends_with(b"\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Sends a report. Ignores failures: if the owner is gone, the report is not needed.
fn report(mut owner: &UnixStream, report: Report) {
    let _sent = encode(&report).and_then(|line| owner.write_all(&line));
}

/// Event loop of a guardian with a running server.
struct EventLoop {
    owner: UnixStream,
    /// Whether the owner's end of the socket is open.
    owner_connected: bool,
    /// Signal file descriptor.
    signals: OwnedFd,
    tree: ProcessTree,
    shutdown: Shutdown,
    timer: Option<Instant>,
}

impl EventLoop {
    fn new(owner: UnixStream, signals: OwnedFd, server: Pid) -> Self {
        report(&owner, Report::Started);
        Self {
            owner,
            owner_connected: true,
            signals,
            tree: ProcessTree { server, has_exited: false, child_list: open_child_list() },
            shutdown: Shutdown::new(),
            timer: None,
        }
    }

    /// Runs until no process is left, and returns the socket for the last report.
    fn run(mut self) -> UnixStream {
        loop {
            self.wait();
            let expired = self.timer.take_if(|timer| *timer <= now());
            let expired = expired.map(|_timer| Event::TimerExpired);
            let events = [self.poll_signals(), self.poll_owner(), expired];
            for event in events.into_iter().flatten() {
                self.handle(event);
            }
            // Check the tree after every wake-up: several SIGCHLD may be merged into one. The server comes first,
            // because its exit makes its children ours.
            if let Some(exit) = self.tree.new_server_exit() {
                report(&self.owner, Report::Exited(exit));
                self.handle(Event::ServerExited);
            }
            if self.tree.reap() {
                return self.owner;
            }
        }
    }

    /// Sleeps until a signal or a message arrives, or the timer expires.
    fn wait(&self) {
        let mut sources =
            [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.owner, PollFlags::IN)];
        // A closed socket is always readable, so polling it would spin.
        let n_sources = if self.owner_connected { 2 } else { 1 };
        let timeout = self.timer.map(|timer| timespec(timer.saturating_duration_since(now())));
        let sources = sources.get_mut(..n_sources).unwrap_or_default();
        match poll(sources, timeout.as_ref()) {
            // After an interrupted poll the loop merely checks everything once more.
            Ok(_) | Err(Errno::INTR) => {}
            Err(_limit) => std::thread::sleep(POLL_INTERVAL),
        }
    }

    /// SIGCHLD only means that the tree has to be checked. Any other signal asks the guardian to exit, and does not
    /// come from the owner, so the server is treated as abandoned.
    fn poll_signals(&self) -> Option<Event> {
        let mut buffer = [0; 8 * size_of::<libc::signalfd_siginfo>()];
        let n_bytes = rustix::io::read(&self.signals, &mut buffer).unwrap_or(0);
        let sigchld = u32::try_from(libc::SIGCHLD).unwrap_or_default();
        sys::signals_in(buffer.get(..n_bytes).unwrap_or_default())
            .any(|signal| signal != sigchld)
            .then_some(Event::Abandoned)
    }

    fn poll_owner(&mut self) -> Option<Event> {
        let mut source = [PollFd::new(&self.owner, PollFlags::IN)];
        let now = timespec(Duration::ZERO);
        if !self.owner_connected {
            return None;
        }
        match poll(&mut source, Some(&now)) {
            Ok(0) | Err(Errno::INTR) => return None,
            Ok(_readable) => {}
            // The server can lower our limit of open files, which is also that of polled files. A guardian that cannot
            // hear its owner ends the server.
            Err(_limit) => {
                self.owner_connected = false;
                return Some(Event::Abandoned);
            }
        }
        // The owner writes a stop message at once, so a readable socket has all of it or is closed.
        match receive(&self.owner) {
            Ok(timeouts) => Some(Event::Stop(timeouts)),
            Err(_closed) => {
                self.owner_connected = false;
                Some(Event::Abandoned)
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let Some(Action { signal, wait }) = self.shutdown.step(event) else { return };
        if let Some(signal) = signal {
            self.tree.signal(signal);
        }
        // A wait beyond the end of the clock has no end.
        self.timer = now().checked_add(wait);
    }
}

pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a guardian has no runtime and no other clock")]
    Instant::now()
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

/// The server and its orphaned descendants, which are children of the guardian.
#[derive(Debug)]
struct ProcessTree {
    server: Pid,
    /// Whether the server has exited.
    has_exited: bool,
    /// Our children. Opened ahead: the server can lower our limit of open files.
    child_list: Option<File>,
}

impl ProcessTree {
    /// Reaps every child that has exited, the server last. Returns whether no process is left.
    fn reap(&self) -> bool {
        let n_left = self.orphans().filter(|orphan| !reap_child(*orphan)).count();
        // Descendants become our children only when their parent exits, so list the children once more before the id
        // of the server is released.
        if !self.has_exited || n_left > 0 || self.orphans().next().is_some() {
            return false;
        }
        ignore_gone(waitid(WaitId::Pid(self.server), WaitIdOptions::EXITED));
        true
    }

    /// The children other than the server.
    fn orphans(&self) -> impl Iterator<Item = Pid> + use<> {
        let server = self.server;
        self.children().into_iter().filter(move |child| *child != server)
    }

    /// Our children, including zombies.
    fn children(&self) -> Vec<Pid> {
        match self.child_list.as_ref().map(read_child_list) {
            Some(Ok(children)) => children,
            // For kernels without that list: the parent of every process.
            Some(Err(_)) | None => children_by_parent().unwrap_or_default(),
        }
    }

    /// Signals the server's process group, and every orphan together with a group that it leads.
    fn signal(&self, signal: Signal) {
        ignore_gone(kill_process_group(self.server, signal));
        for child in self.orphans() {
            // An orphan that left the session leads a group of its own.
            if getpgid(Some(child)) == Ok(child) {
                ignore_gone(kill_process_group(child, signal));
            }
            ignore_gone(kill_process(child, signal));
        }
    }

    /// The exit status of the server, once. `NOWAIT` leaves the zombie in place, which keeps the id of its group ours.
    fn new_server_exit(&mut self) -> Option<ExitStatus> {
        if self.has_exited {
            return None;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let exit = match waitid(WaitId::Pid(self.server), options) {
            Ok(status) => {
                let status = status?;
                exit_status(status.exit_status(), status.terminating_signal())
            }
            Err(_no_such_child) => ExitStatus::Unknown,
        };
        self.has_exited = true;
        Some(exit)
    }
}

/// Reaps a child if it has exited.
fn reap_child(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

/// Ignores the failure for a process that is gone: it needs neither a signal nor a wait.
fn ignore_gone<T>(outcome: rustix::io::Result<T>) {
    drop(outcome);
}

fn open_child_list() -> Option<File> {
    File::open("/proc/thread-self/children").ok()
}

fn read_child_list(mut list: &File) -> io::Result<Vec<Pid>> {
    let mut text = String::new();
    list.rewind()?;
    list.read_to_string(&mut text)?;
    Ok(text.split_ascii_whitespace().filter_map(parse_pid).collect())
}

fn children_by_parent() -> io::Result<Vec<Pid>> {
    let own_pid = std::process::id();
    Ok(fs::read_dir("/proc")?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let pid = parse_pid(name.to_str()?)?;
            (ProcessStat::read(pid)?.parent == own_pid).then_some(pid)
        })
        .collect())
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}
