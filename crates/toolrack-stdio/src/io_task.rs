//! The one task that reads what a server writes, and writes what the pipe did not take at once.
//!
//! **Invariant:** reading never waits for writing, and nothing here waits for anybody but the server. A line does
//! not outlive its driver.

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
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};
use tokio_util::io::poll_read_buf;
use toolrack_transport::{Ending, Exit, Heard, Inbound, ServerExit};

use crate::line_decoder::{Piece, Splitter};
use crate::transport::Shared;
use crate::write_queue::Flushed;

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// After how many lines the clock, the outbox and other tasks have their turn. A server that writes without
/// end keeps the pipe full for ever.
const LINES_PER_TURN: usize = 256;

/// How much is read at once after a turn that left something, so that turns stay short.
const CAREFUL_READ_BYTES: usize = 16 << 10;

/// A server that has filled so many turns in a row, and answered nobody, floods.
const IDLE_TURNS: u32 = 64;

/// How much is read at once, and in one turn, of a server that floods.
const FLOOD_READ_BYTES: usize = 4 << 10;

/// How long such a server is left alone between turns, so that reading it takes no core from the others.
const REST: Duration = Duration::from_millis(1);

/// How long the reason may take, in all, to follow its effect: a closed pipe is seen a moment before the
/// news that the process has ended, and its last words a moment after. Callers wait meanwhile.
const REASON_LIMIT: Duration = Duration::from_millis(80);

/// What its last words get of that at least, however late the news came: they are in the pipe already.
const WORDS_LIMIT: Duration = Duration::from_millis(20);

/// How many lines of the error output go with the news of the end.
const STDERR_LINES: usize = 20;

thread_local! {
    /// Lines at rest hold no buffer: all that are read on one thread share this one.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What the driver has to be told between reads.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    waker: AtomicWaker,
    rung: AtomicU8,
}

/// The pipe to the server is stuck or broken.
const OUTBOX: u8 = 1;
/// The server's process has ended.
const EXITED: u8 = 2;
/// Somebody waits for less time than the clock is set to.
const ALARM: u8 = 4;
/// There was more to read than one turn takes.
const BEHIND: u8 = 8;

impl Bell {
    pub(crate) fn outbox(&self) {
        self.ring(OUTBOX);
    }

    pub(crate) fn exited(&self) {
        self.ring(EXITED);
    }

    pub(crate) fn alarm(&self) {
        self.ring(ALARM);
    }

    fn ring(&self, what: u8) {
        self.note(what);
        self.waker.wake();
    }

    /// For the driver itself, which needs not be woken.
    fn note(&self, what: u8) {
        self.rung.fetch_or(what, Ordering::AcqRel);
    }

    /// Takes a ring back before it is acted on: who rings from then on is heard in the next round.
    fn answer(&self, what: u8) {
        self.rung.fetch_and(!what, Ordering::AcqRel);
    }

    fn listen(&self, waker: &Waker) -> u8 {
        self.waker.register(waker);
        self.rung.load(Ordering::Acquire)
    }
}

/// Reads from one server until there is nothing more to read.
#[derive(Debug)]
pub(crate) struct Driver {
    shared: Arc<Shared>,
    output: Receiver,
    splitter: Splitter,
    clock: Option<Pin<Box<Sleep>>>,
    /// Turns in a row that left something to read and answered nobody.
    n_idle_turns: u32,
    /// Until when nothing is read.
    rest: Option<Pin<Box<Sleep>>>,
}

/// How much is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Full,
    /// After a turn that left something.
    Careful,
    /// After many of them.
    Slow,
}

impl Pace {
    fn after(rung: u8, n_idle_turns: u32) -> Self {
        match n_idle_turns {
            _ if rung & BEHIND == 0 => Pace::Full,
            IDLE_TURNS.. => Pace::Slow,
            _ => Pace::Careful,
        }
    }

    fn read_bytes(self) -> usize {
        match self {
            Pace::Full => READ_BYTES,
            Pace::Careful => CAREFUL_READ_BYTES,
            Pace::Slow => FLOOD_READ_BYTES,
        }
    }

    fn lines_per_turn(self) -> usize {
        match self {
            Pace::Full | Pace::Careful => LINES_PER_TURN,
            Pace::Slow => 1,
        }
    }
}

/// What was read without a pause.
#[derive(Debug)]
struct Turn {
    pace: Pace,
    n_lines: usize,
    n_answers: usize,
}

/// Why reading ended.
#[derive(Debug)]
enum Stop {
    OutputClosed,
    InputClosed,
    Exited,
    Failed(io::Error),
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, output: Receiver, line_limit_bytes: usize) -> Self {
        let splitter = Splitter::new(line_limit_bytes);
        Self { shared, output, splitter, clock: None, n_idle_turns: 0, rest: None }
    }

    /// Runs until the server cannot be read any more, and ends the line with the reason.
    pub(crate) async fn run(mut self) {
        let mut stop = poll_fn(|context| self.poll(context)).await;
        let until = Instant::now() + REASON_LIMIT;
        if matches!(stop, Stop::InputClosed) {
            // Whoever closes its input is about to end; its last answers still count.
            let last_words = poll_fn(|context| self.poll_output(context, Pace::Full));
            if let Ok(reason) = timeout_at(until, last_words).await {
                stop = reason;
            }
        }
        let ending = self.explain(stop, until).await;
        tracing::debug!(%ending, "line ended");
        self.shared.hang_up(&ending);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Stop> {
        let rung = self.shared.bell.listen(context.waker());
        if rung & EXITED != 0 {
            return Poll::Ready(self.last_words());
        }
        if !self.is_resting(context) {
            let pace = Pace::after(rung, self.n_idle_turns);
            if pace != Pace::Full {
                self.shared.bell.answer(BEHIND);
            }
            if let Poll::Ready(stop) = self.poll_output(context, pace) {
                return Poll::Ready(stop);
            }
        }
        self.poll_clock(context, rung);
        if rung & OUTBOX != 0 {
            self.shared.bell.answer(OUTBOX);
            match self.shared.outbox.poll_flush(context) {
                Poll::Ready(Flushed::Broken) => return Poll::Ready(Stop::InputClosed),
                Poll::Ready(Flushed::All | Flushed::Stuck) => {}
                Poll::Pending => {
                    self.shared.bell.note(OUTBOX);
                }
            }
        }
        Poll::Pending
    }

    /// Fails the requests whose time is over. One clock serves them all, and callers that are answered in
    /// time never touch it.
    fn poll_clock(&mut self, context: &mut Context<'_>, rung: u8) {
        if rung & ALARM != 0 {
            self.shared.bell.answer(ALARM);
            self.set_clock();
        }
        // The runtime looks at its timers only now and then while there is always something to read.
        let late = |clock: &Sleep| rung & BEHIND != 0 && clock.deadline() <= Instant::now();
        while let Some(clock) = &mut self.clock
            && (late(clock) || clock.as_mut().poll(context).is_ready())
        {
            self.set_clock();
        }
    }

    fn set_clock(&mut self) {
        match (self.shared.inbound.expire(), &mut self.clock) {
            (Some(moment), Some(clock)) => clock.as_mut().reset(moment),
            (Some(moment), none) => *none = Some(Box::pin(sleep_until(moment))),
            (None, clock) => *clock = None,
        }
    }

    /// Reads until the pipe is empty, or the turn is over.
    fn poll_output(&mut self, context: &mut Context<'_>, pace: Pace) -> Poll<Stop> {
        let mut turn = Turn { pace, n_lines: 0, n_answers: 0 };
        let stop = loop {
            if turn.n_lines >= pace.lines_per_turn() {
                self.give_way(context, turn.n_answers);
                break Poll::Pending;
            }
            match self.poll_read(context, &mut turn) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Stop::OutputClosed),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(Stop::Failed(error)),
                Poll::Pending => {
                    self.n_idle_turns = 0;
                    break Poll::Pending;
                }
            }
        };
        if turn.n_answers > 0 {
            self.shared.outbox.expect(turn.n_answers);
        }
        stop
    }

    /// Ends a turn that left something to read.
    fn give_way(&mut self, context: &mut Context<'_>, n_answers: usize) {
        self.shared.bell.note(BEHIND);
        self.n_idle_turns = if n_answers == 0 { self.n_idle_turns.saturating_add(1) } else { 0 };
        if self.n_idle_turns >= IDLE_TURNS {
            self.rest = Some(Box::pin(sleep(REST)));
        }
        // Unlike a plain wake, this lets the runtime look whether anybody else can be read, or is late.
        if !self.is_resting(context) && pin!(yield_now()).poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }

    fn is_resting(&mut self, context: &mut Context<'_>) -> bool {
        let is_resting = |rest: &mut Pin<Box<Sleep>>| rest.as_mut().poll(context).is_pending();
        if self.rest.as_mut().is_some_and(is_resting) {
            return true;
        }
        self.rest = None;
        false
    }

    fn poll_read(&mut self, context: &mut Context<'_>, turn: &mut Turn) -> Poll<io::Result<usize>> {
        let Self { shared, output, splitter, .. } = self;
        let pace = turn.pace;
        let mut sink = |piece: Piece<'_>| {
            turn.n_lines += 1;
            turn.n_answers += take(&shared.inbound, piece);
        };
        if let Some(buffer) = splitter.gathering() {
            let known_bytes = buffer.len();
            let read = match pace {
                Pace::Full => poll_read_buf(Pin::new(output), context, buffer),
                Pace::Careful | Pace::Slow => {
                    let mut part = buffer.limit(pace.read_bytes());
                    poll_read_buf(Pin::new(output), context, &mut part)
                }
            };
            if let Poll::Ready(Ok(1..)) = read {
                splitter.gathered(known_bytes, &mut sink);
            }
            return read;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(READ_BYTES, 0);
            let mut buffer = ReadBuf::new(scratch.split_at_mut(pace.read_bytes()).0);
            match Pin::new(output).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) => {
                    splitter.feed(buffer.filled(), &mut sink);
                    Poll::Ready(Ok(buffer.filled().len()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            }
        })
    }

    /// Takes what a server that has ended left in the pipe. Something it started may hold the pipe
    /// open for ever, so the end of the pipe is not waited for.
    fn last_words(&mut self) -> Stop {
        let mut words = vec![0; READ_BYTES];
        let mut n_taken = 0;
        while n_taken < LAST_WORDS_BYTES {
            let Ok(n_bytes @ 1..) = read_plainly(&self.output, &mut words) else { break };
            n_taken += n_bytes;
            let inbound = &self.shared.inbound;
            let mut sink = |piece: Piece<'_>| {
                take(inbound, piece);
            };
            let words = words.get(..n_bytes).unwrap_or_default();
            match self.splitter.gathering() {
                Some(buffer) => {
                    let known_bytes = buffer.len();
                    buffer.extend_from_slice(words);
                    self.splitter.gathered(known_bytes, &mut sink);
                }
                None => self.splitter.feed(words, &mut sink),
            }
        }
        Stop::Exited
    }

    /// Finds the reason behind what was seen. The end of the process is the better one, if it comes.
    async fn explain(&self, stop: Stop, until: Instant) -> Ending {
        let exit = timeout_at(until, self.shared.exit());
        match (exit.await, stop) {
            (Ok(exit), _) => self.exited(exit, until).await,
            (Err(_), Stop::OutputClosed) => Ending::OutputClosed,
            (Err(_), Stop::InputClosed) => Ending::InputClosed,
            (Err(_), Stop::Exited) => self.exited(Exit::Unknown, until).await,
            (Err(_), Stop::Failed(error)) => Ending::Failed(Arc::new(error)),
        }
    }

    async fn exited(&self, exit: Exit, until: Instant) -> Ending {
        // What it said last is worth a moment, unless somebody else holds the pipe open.
        let until = until.max(Instant::now() + WORDS_LIMIT);
        drop(timeout_at(until, self.shared.stderr_closed.cancelled()).await);
        Ending::Exited(ServerExit { exit, stderr: self.shared.stderr.tail(STDERR_LINES) })
    }
}

impl Drop for Driver {
    /// Whoever waits has no clock but the driver's, so a runtime that is dropped must not take it along in silence.
    /// A line that has ended keeps its ending.
    fn drop(&mut self) {
        self.shared.hang_up(&Ending::unserved());
    }
}

/// Sends a piece on its way and says how many callers it woke.
fn take(inbound: &Inbound, piece: Piece<'_>) -> usize {
    let heard = match piece {
        Piece::Line(line) => inbound.accept(line),
        Piece::Owned(line) => inbound.accept_owned(&line),
        Piece::Oversize { head, tail, limit_bytes } => inbound.oversize(head, tail, limit_bytes),
    };
    usize::from(heard == Heard::Answer)
}

/// How much is read at once.
const STDERR_READ_BYTES: usize = 4 << 10;

/// What is read at most after the server has ended: no more than a pipe can have held.
pub(crate) const LAST_WORDS_BYTES: usize = 1 << 20;

/// Reads to the end, or until `gone` says that nothing is left that could write, and all that it has written.
pub(crate) async fn read_out(
    pipe: &Receiver,
    gone: impl Future<Output = ()>,
    mut take: impl FnMut(&[u8]),
) {
    let mut gone = pin!(gone);
    let mut hear = |buffer: &[u8], n_bytes| take(buffer.get(..n_bytes).unwrap_or_default());
    loop {
        let ready = tokio::select! {
            ready = pipe.readable() => ready,
            () = &mut gone => break,
        };
        if ready.is_err() {
            return;
        }
        // Held only while there is something to read.
        let mut buffer = vec![0; STDERR_READ_BYTES];
        match pipe.try_read(&mut buffer) {
            Ok(n_bytes @ 1..) => hear(&buffer, n_bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
    let mut buffer = vec![0; STDERR_READ_BYTES];
    let mut n_left = LAST_WORDS_BYTES;
    while n_left > 0
        && let Ok(n_bytes @ 1..) = read_plainly(pipe, &mut buffer)
    {
        hear(&buffer, n_bytes);
        n_left = n_left.saturating_sub(n_bytes);
    }
}

pub(crate) fn read_plainly(pipe: &Receiver, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(pipe, &mut *buffer))?)
}

pub(crate) fn write_plainly(pipe: &Sender, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::write(pipe, bytes))?)
}

#[cfg(test)]
mod tests {

    #[track_caller]
    fn check(rung: u8, n_idle_turns: u32, expected: Pace) {
        assert_eq!(Pace::after(rung, n_idle_turns), expected);
    }

    #[test]
    fn who_floods_is_read_slowly() {
        check(0, 0, Pace::Full);
        check(OUTBOX | ALARM, IDLE_TURNS, Pace::Full);
        check(BEHIND, 0, Pace::Careful);
        check(BEHIND | ALARM, IDLE_TURNS - 1, Pace::Careful);
        check(BEHIND, IDLE_TURNS, Pace::Slow);
    }

    use tokio::net::unix::pipe;

    use super::*;

    #[tokio::test]
    async fn last_words_are_read_although_nobody_is_left() {
        let (sender, receiver) = pipe::pipe().unwrap();
        let said = "x".repeat(3 * STDERR_READ_BYTES);
        assert_eq!(write_plainly(&sender, said.as_bytes()).unwrap(), said.len());
        let mut heard = Vec::new();
        let gone = std::future::ready(());
        read_out(&receiver, gone, |bytes| heard.extend_from_slice(bytes)).await;
        assert_eq!(heard.len(), said.len());
        drop(sender);
        read_out(&receiver, std::future::pending(), |_| panic!("nothing was said")).await;
    }

    #[tokio::test]
    async fn what_the_runtime_has_not_heard_of_is_read() {
        let (sender, receiver) = pipe::pipe().unwrap();
        assert_eq!(write_plainly(&sender, b"last words").unwrap(), 10);
        let mut words = [0; 20];
        let unheard = receiver.try_read(&mut words).unwrap_err();
        assert_eq!(unheard.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(read_plainly(&receiver, &mut words).unwrap(), 10);
        let nothing = read_plainly(&receiver, &mut words).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
}
