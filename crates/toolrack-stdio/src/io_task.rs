//! IO task: reads the server's stdout, finishes writes that the pipe did not accept at once, and runs the timer for
//! request deadlines.
//!
//! The helpers at the end read and write pipes with direct system calls. Tokio attempts neither before the system has
//! reported readiness, and while the runtime is busy that report comes late.
//!
//! **Invariant:** reading never waits for writing, and this task waits for nothing but the server. A transport does
//! not outlive its IO task.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BufMut as _;
use futures_util::task::AtomicWaker;
use rustix::io::retry_on_intr;
#[cfg(target_os = "linux")]
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::{Receiver, Sender};
#[cfg(target_os = "linux")]
use tokio::runtime::Handle;
use tokio::task::{unconstrained, yield_now};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};
use tokio_util::io::poll_read_buf;
use tokio_util::task::AbortOnDropHandle;
use toolrack_transport::{CloseReason, ExitStatus, MessageRouter, ProcessExit, Routed};

use crate::line_decoder::{DecodedLine, LineDecoder};
use crate::transport::Shared;
use crate::write_queue::WriteStatus;

/// The size of one read.
const READ_BYTES: usize = 64 << 10;

/// After this many lines, the timer, the write queue and other tasks get their turn. A server that writes endlessly
/// keeps the pipe full forever.
const LINES_PER_TURN: usize = 256;

/// The size of one read after a turn that left input behind, so that turns stay short.
const REDUCED_READ_BYTES: usize = 16 << 10;

/// A server that fills this many turns in a row without a single response is flooding.
const FLOOD_TURNS: u32 = 64;

/// The size of one read, and of one turn, for a flooding server.
const FLOOD_READ_BYTES: usize = 4 << 10;

/// The pause between turns for a flooding server, so that reading it does not occupy a core.
const THROTTLE_PAUSE: Duration = Duration::from_millis(1);

/// How long to wait for the exit status and the last stderr lines after a pipe closed: the pipe closes a moment before
/// the exit is reported, and stderr ends a moment after. Pending requests wait meanwhile.
const EXIT_TIMEOUT: Duration = Duration::from_millis(80);

/// The minimum time for the last stderr lines, however late the exit was reported: they are in the pipe already.
const STDERR_TIMEOUT: Duration = Duration::from_millis(20);

/// The number of stderr lines in the close reason.
const STDERR_LINES: usize = 20;

thread_local! {
    /// Read buffer that all transports on a thread share, so that an idle transport holds none.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Wake-up flags of the IO task.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    waker: AtomicWaker,
    flags: AtomicU8,
}

/// The pipe to the server is full or broken, so the IO task has to flush the write queue.
pub(crate) const FLUSH: u8 = 1;
/// The server process exited.
pub(crate) const EXITED: u8 = 2;
/// A new request expires before the timer fires.
pub(crate) const DEADLINE: u8 = 4;
/// The last turn left input behind.
const MORE_INPUT: u8 = 8;
/// It is time for the next look at the deadlines.
const LOOK: u8 = 16;

impl Wakeups {
    /// Sets a flag and wakes the IO task.
    pub(crate) fn raise(&self, flag: u8) {
        self.set(flag);
        self.waker.wake();
    }

    /// Sets a flag without a wake-up. For the IO task itself.
    fn set(&self, flag: u8) {
        self.flags.fetch_or(flag, Ordering::AcqRel);
    }

    /// Clears a flag. Clear it before acting on it: a flag that is raised during the action then survives until
    /// the next poll.
    fn clear(&self, flag: u8) {
        self.flags.fetch_and(!flag, Ordering::AcqRel);
    }

    /// Registers the waker, then reads the flags. The order matters: a flag that is raised between the two is
    /// either read here or wakes the new waker.
    fn register(&self, waker: &Waker) -> u8 {
        self.waker.register(waker);
        self.flags.load(Ordering::Acquire)
    }
}

/// The time until the next look at a young request.
#[cfg(target_os = "linux")]
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A deadline within this time gets a timer at once.
const TIMER_AHEAD: Duration = Duration::from_secs(5);

/// Raises [`LOOK`] in a moment. `None` if the system cannot do that.
///
/// A timer of the runtime makes every turn of the runtime look at the clock once more, for as long as it is set; one of
/// the kernel does not. Most responses arrive within a moment, so only a request that is still pending at the second look
/// gets a timer of the runtime.
#[cfg(target_os = "linux")]
fn look_later(shared: &Arc<Shared>) -> Option<AbortOnDropHandle<()>> {
    let one_shot = || {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let no_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: no_interval, it_value: LOOK_AGAIN };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
        // Not a pipe, but all that is needed is to wait until it is readable.
        Receiver::from_owned_fd_unchecked(timer)
    };
    let timer = one_shot().ok()?;
    let transport = Arc::downgrade(shared);
    Some(AbortOnDropHandle::new(Handle::current().spawn(async move {
        if timer.readable().await.is_ok()
            && let Some(shared) = transport.upgrade()
        {
            shared.wakeups.raise(LOOK);
        }
    })))
}

#[cfg(not(target_os = "linux"))]
fn look_later(_shared: &Arc<Shared>) -> Option<AbortOnDropHandle<()>> {
    None
}

/// The IO task of one server.
#[derive(Debug)]
pub(crate) struct IoTask {
    shared: Arc<Shared>,
    stdout: Receiver,
    decoder: LineDecoder,
    /// Fires at the earliest request deadline. Not set while every request is young, see [`look_later`].
    timer: Option<Pin<Box<Sleep>>>,
    /// The next look, one at a time. It ends with the IO task.
    look: Option<AbortOnDropHandle<()>>,
    /// The request with the earliest deadline at the last look, and so an upper bound for the ids known then.
    last_seen_id: u64,
    /// Turns in a row that left input behind and contained no response.
    n_flood_turns: u32,
    /// No reads until this timer fires.
    throttle: Option<Pin<Box<Sleep>>>,
}

/// How much one read and one turn may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadBudget {
    read_bytes: usize,
    lines_per_turn: usize,
}

const FULL: ReadBudget = ReadBudget { read_bytes: READ_BYTES, lines_per_turn: LINES_PER_TURN };
/// After a turn that left input behind.
const REDUCED: ReadBudget = ReadBudget { read_bytes: REDUCED_READ_BYTES, ..FULL };
/// For a flooding server.
const THROTTLED: ReadBudget = ReadBudget { read_bytes: FLOOD_READ_BYTES, lines_per_turn: 1 };

impl ReadBudget {
    fn for_turn(flags: u8, n_flood_turns: u32) -> Self {
        match n_flood_turns {
            _ if flags & MORE_INPUT == 0 => FULL,
            FLOOD_TURNS.. => THROTTLED,
            _ => REDUCED,
        }
    }
}

/// Progress of one turn: the reads without a yield.
#[derive(Debug)]
struct ReadTurn {
    budget: ReadBudget,
    n_lines: usize,
    n_responses: usize,
}

/// Why reading ended.
#[derive(Debug)]
enum ReadEnd {
    OutputClosed,
    InputClosed,
    Exited,
    Failed(io::Error),
}

impl IoTask {
    pub(crate) fn new(shared: Arc<Shared>, stdout: Receiver, max_message_bytes: usize) -> Self {
        let decoder = LineDecoder::new(max_message_bytes);
        Self {
            shared,
            stdout,
            decoder,
            timer: None,
            look: None,
            last_seen_id: 0,
            n_flood_turns: 0,
            throttle: None,
        }
    }

    /// Runs until the server cannot be read any more, then closes the transport with the reason.
    pub(crate) async fn run(mut self) {
        let mut end = poll_fn(|context| self.poll(context)).await;
        let until = Instant::now() + EXIT_TIMEOUT;
        if matches!(end, ReadEnd::InputClosed) {
            // A server that closes its stdin is about to exit; responses that it still writes count.
            let remaining_output = poll_fn(|context| self.poll_output(context, FULL));
            if let Ok(reason) = timeout_at(until, remaining_output).await {
                end = reason;
            }
        }
        let reason = self.close_reason(end, until).await;
        tracing::debug!(%reason, "stdio transport closed");
        self.shared.close(&reason);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ReadEnd> {
        let flags = self.shared.wakeups.register(context.waker());
        // The exit ends the reading, not the end of the pipe, which a child of the server may hold open.
        if flags & EXITED != 0 {
            return Poll::Ready(self.drain_output());
        }
        if !self.is_throttled(context) {
            let budget = ReadBudget::for_turn(flags, self.n_flood_turns);
            if budget != FULL {
                // Cleared before the read, which sets it again if input is left.
                self.shared.wakeups.clear(MORE_INPUT);
            }
            if let Poll::Ready(end) = self.poll_output(context, budget) {
                return Poll::Ready(end);
            }
        }
        self.poll_deadlines(context, flags);
        if flags & FLUSH != 0 {
            self.shared.wakeups.clear(FLUSH);
            match self.shared.queue.poll_flush(context) {
                Poll::Ready(WriteStatus::Broken) => return Poll::Ready(ReadEnd::InputClosed),
                Poll::Ready(_) => {}
                // Still blocked: flush again on the next poll, which the readiness of the pipe triggers.
                Poll::Pending => {
                    self.shared.wakeups.set(FLUSH);
                }
            }
        }
        Poll::Pending
    }

    /// Fails expired requests. One timer serves all requests, and a request that completes in time never touches it.
    fn poll_deadlines(&mut self, context: &mut Context<'_>, flags: u8) {
        // Not kept for later requests: see `look_later`.
        if self.timer.is_some() && self.shared.router.pending.cancel_expiry() {
            self.timer = None;
        }
        if flags & LOOK != 0 {
            self.look = None;
        }
        if flags & (DEADLINE | LOOK) != 0 {
            self.shared.wakeups.clear(DEADLINE | LOOK);
            self.reset_timer(context);
        }
        // While a task always has input, the runtime rarely processes its timers, so compare the clock directly.
        let is_late = |timer: &Sleep| flags & MORE_INPUT != 0 && timer.deadline() <= Instant::now();
        while let Some(timer) = &self.timer
            && (timer.is_elapsed() || is_late(timer))
        {
            self.reset_timer(context);
        }
    }

    /// Fails expired requests, then sets the timer, unless the request is young.
    fn reset_timer(&mut self, context: &mut Context<'_>) {
        self.timer = None;
        let Some((next, id)) = self.shared.router.expire() else { return };
        let was_seen = self.last_seen_id >= id;
        self.last_seen_id = id;
        let is_soon = next < Instant::now() + TIMER_AHEAD;
        if !is_soon && !was_seen && self.look.is_none() {
            self.look = look_later(&self.shared);
        }
        // The look comes long before a deadline that is not soon.
        if !is_soon && self.look.is_some() {
            return;
        }
        let mut timer = Box::pin(sleep_until(next));
        // Polled only here: a task has one waker for its whole life. `is_elapsed` then tells that it fired. Without the
        // task's budget, which reads may have used up: a poll without budget would not register the timer.
        let _elapsed = pin!(unconstrained(timer.as_mut())).poll(context);
        self.timer = Some(timer);
    }

    /// Reads until the pipe is empty or the turn is over.
    fn poll_output(&mut self, context: &mut Context<'_>, budget: ReadBudget) -> Poll<ReadEnd> {
        let mut turn = ReadTurn { budget, n_lines: 0, n_responses: 0 };
        let end = loop {
            if turn.n_lines >= budget.lines_per_turn {
                self.yield_turn(context, turn.n_responses);
                break Poll::Pending;
            }
            match self.poll_read(context, &mut turn) {
                Poll::Ready(Ok(0)) => break Poll::Ready(ReadEnd::OutputClosed),
                // A short read has emptied the pipe, so that only the waker has to be registered.
                Poll::Ready(Ok(n_bytes))
                    if n_bytes < budget.read_bytes
                        && self.stdout.poll_read_ready(context).is_pending() =>
                {
                    self.n_flood_turns = 0;
                    break Poll::Pending;
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(ReadEnd::Failed(error)),
                Poll::Pending => {
                    self.n_flood_turns = 0;
                    break Poll::Pending;
                }
            }
        };
        if turn.n_responses > 0 {
            self.shared.queue.expect_writers(turn.n_responses);
        }
        end
    }

    /// Ends a turn that left input behind.
    fn yield_turn(&mut self, context: &mut Context<'_>, n_responses: usize) {
        self.shared.wakeups.set(MORE_INPUT);
        // A busy server that also responds is not a flood.
        self.n_flood_turns =
            if n_responses == 0 { self.n_flood_turns.saturating_add(1) } else { 0 };
        if self.n_flood_turns >= FLOOD_TURNS {
            self.throttle = Some(Box::pin(sleep(THROTTLE_PAUSE)));
        }
        // Unlike a plain wake-up, `yield_now` lets the runtime poll its IO and timers first, so that other servers
        // are read and timeouts fire between the turns of a flood.
        if !self.is_throttled(context) && pin!(yield_now()).poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }

    fn is_throttled(&mut self, context: &mut Context<'_>) -> bool {
        let is_throttled =
            |throttle: &mut Pin<Box<Sleep>>| throttle.as_mut().poll(context).is_pending();
        if self.throttle.as_mut().is_some_and(is_throttled) {
            return true;
        }
        self.throttle = None;
        false
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        turn: &mut ReadTurn,
    ) -> Poll<io::Result<usize>> {
        let Self { shared, stdout, decoder, .. } = self;
        let budget = turn.budget;
        let mut sink = |line: DecodedLine<'_>| {
            turn.n_lines += 1;
            turn.n_responses += route(&shared.router, line);
        };
        // Read an unfinished line in place: a long one is then passed on with its buffer, without a copy.
        if let Some(buffer) = decoder.partial_buffer() {
            let known_bytes = buffer.len();
            let read = if budget == FULL {
                poll_read_buf(Pin::new(stdout), context, buffer)
            } else {
                let mut part = buffer.limit(budget.read_bytes);
                poll_read_buf(Pin::new(stdout), context, &mut part)
            };
            if let Poll::Ready(Ok(1..)) = read {
                decoder.decode_partial(known_bytes, &mut sink);
            }
            return read;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            // Allocates only on the first read of a thread.
            scratch.resize(READ_BYTES, 0);
            let mut buffer = ReadBuf::new(scratch.split_at_mut(budget.read_bytes).0);
            match Pin::new(stdout).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) => {
                    decoder.decode(buffer.filled(), &mut sink);
                    Poll::Ready(Ok(buffer.filled().len()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            }
        })
    }

    /// Reads the output that an exited server left in the pipe. Does not wait for the end of the pipe: a child of the
    /// server may hold it open forever.
    fn drain_output(&mut self) -> ReadEnd {
        let mut buffer = vec![0; READ_BYTES];
        let mut n_read = 0;
        while n_read < MAX_DRAIN_BYTES {
            let Ok(n_bytes @ 1..) = read_direct(&self.stdout, &mut buffer) else { break };
            n_read += n_bytes;
            let router = &self.shared.router;
            let mut sink = |line: DecodedLine<'_>| {
                route(router, line);
            };
            let bytes = buffer.get(..n_bytes).unwrap_or_default();
            match self.decoder.partial_buffer() {
                Some(partial) => {
                    let known_bytes = partial.len();
                    partial.extend_from_slice(bytes);
                    self.decoder.decode_partial(known_bytes, &mut sink);
                }
                None => self.decoder.decode(bytes, &mut sink),
            }
        }
        ReadEnd::Exited
    }

    /// The reason for the end of the output. The exit status, if it arrives in time, says more than a closed pipe.
    async fn close_reason(&self, end: ReadEnd, until: Instant) -> CloseReason {
        let exit = timeout_at(until, self.shared.wait_exit());
        match (exit.await, end) {
            (Ok(status), _) => self.exited(status, until).await,
            (Err(_), ReadEnd::OutputClosed) => CloseReason::OutputClosed,
            (Err(_), ReadEnd::InputClosed) => CloseReason::InputClosed,
            (Err(_), ReadEnd::Exited) => self.exited(ExitStatus::Unknown, until).await,
            (Err(_), ReadEnd::Failed(error)) => CloseReason::Failed(Arc::new(error)),
        }
    }

    async fn exited(&self, status: ExitStatus, until: Instant) -> CloseReason {
        // Wait for the end of stderr, but not forever: another process may hold the pipe open.
        let until = until.max(Instant::now() + STDERR_TIMEOUT);
        drop(timeout_at(until, self.shared.stderr_closed.cancelled()).await);
        CloseReason::Exited(ProcessExit { status, stderr: self.shared.stderr.tail(STDERR_LINES) })
    }
}

impl Drop for IoTask {
    /// Pending requests have no timer but that of this task. If the task is dropped with its runtime, closing the
    /// transport fails them; otherwise they would wait forever. A transport that is closed already keeps its reason.
    fn drop(&mut self) {
        self.shared.close(&CloseReason::runtime_dropped());
    }
}

/// Routes a line and returns the number of completed requests.
fn route(router: &MessageRouter, line: DecodedLine<'_>) -> usize {
    let outcome = match line {
        DecodedLine::Borrowed(line) => router.route(line),
        DecodedLine::Owned(line) => router.route_owned(&line),
        DecodedLine::Oversize { head, tail, limit_bytes } => {
            router.route_oversize(head, tail, limit_bytes)
        }
    };
    usize::from(outcome == Routed::Response)
}

/// The size of one read in [`read_until_gone`].
const PIPE_READ_BYTES: usize = 4 << 10;

/// The most that is read after the server has exited: no pipe holds more.
pub(crate) const MAX_DRAIN_BYTES: usize = 1 << 20;

/// Reads a pipe to its end, or until `gone` resolves because no process is left to write; then drains the pipe.
pub(crate) async fn read_until_gone(
    pipe: &Receiver,
    gone: impl Future<Output = ()>,
    mut on_bytes: impl FnMut(&[u8]),
) {
    let mut gone = pin!(gone);
    let mut pass_on = |buffer: &[u8], n_bytes| on_bytes(buffer.get(..n_bytes).unwrap_or_default());
    loop {
        let ready = tokio::select! {
            ready = pipe.readable() => ready,
            () = &mut gone => break,
        };
        if ready.is_err() {
            return;
        }
        // Allocated only while there is input, so that an idle pipe holds no buffer.
        let mut buffer = vec![0; PIPE_READ_BYTES];
        match pipe.try_read(&mut buffer) {
            Ok(n_bytes @ 1..) => pass_on(&buffer, n_bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
    let mut buffer = vec![0; PIPE_READ_BYTES];
    let mut n_left = MAX_DRAIN_BYTES;
    while n_left > 0
        && let Ok(n_bytes @ 1..) = read_direct(pipe, &mut buffer)
    {
        pass_on(&buffer, n_bytes);
        n_left = n_left.saturating_sub(n_bytes);
    }
}

/// Reads with one `read(2)`, without waiting for readiness.
pub(crate) fn read_direct(pipe: &Receiver, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(pipe, &mut *buffer))?)
}

/// Writes with one `write(2)`, without waiting for readiness.
pub(crate) fn write_direct(pipe: &Sender, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::write(pipe, bytes))?)
}

#[cfg(test)]
mod tests {
    use tokio::net::unix::pipe;

    use super::*;

    #[track_caller]
    fn check(flags: u8, n_flood_turns: u32, expected: ReadBudget) {
        assert_eq!(ReadBudget::for_turn(flags, n_flood_turns), expected);
    }

    #[test]
    fn flooding_server_is_throttled() {
        check(0, 0, FULL);
        check(FLUSH | DEADLINE, FLOOD_TURNS, FULL);
        check(MORE_INPUT, 0, REDUCED);
        check(MORE_INPUT | DEADLINE, FLOOD_TURNS - 1, REDUCED);
        check(MORE_INPUT, FLOOD_TURNS, THROTTLED);
    }

    #[tokio::test]
    async fn buffered_output_is_read_after_exit() {
        let (sender, receiver) = pipe::pipe().unwrap();
        let written = "x".repeat(3 * PIPE_READ_BYTES);
        assert_eq!(write_direct(&sender, written.as_bytes()).unwrap(), written.len());
        let mut read = Vec::new();
        let gone = std::future::ready(());
        read_until_gone(&receiver, gone, |bytes| read.extend_from_slice(bytes)).await;
        assert_eq!(read.len(), written.len());
        drop(sender);
        read_until_gone(&receiver, std::future::pending(), |_| panic!("nothing was written")).await;
    }

    #[tokio::test]
    async fn direct_read_does_not_need_readiness() {
        let (sender, receiver) = pipe::pipe().unwrap();
        assert_eq!(write_direct(&sender, b"last words").unwrap(), 10);
        let mut buffer = [0; 20];
        let not_ready = receiver.try_read(&mut buffer).unwrap_err();
        assert_eq!(not_ready.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(read_direct(&receiver, &mut buffer).unwrap(), 10);
        let empty = read_direct(&receiver, &mut buffer).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }
}
