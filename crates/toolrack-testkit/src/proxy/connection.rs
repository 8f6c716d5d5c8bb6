//! One connection through the proxy: bytes both ways, delayed, slowed, corrupted and broken off as they should be.
//!
//! **Invariant:** at most `MAX_QUEUED` bytes wait each way; then the sender waits, as on a slow network.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::impairments::{Ills, Way};
use crate::timer::now;

const MAX_QUEUED: usize = 256 * 1024;
const CHUNK: usize = 16 * 1024;
/// How often a connection looks whether the plan has changed.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Closed,
    Cut,
    Reset,
}

/// Both ends of a connection, and what is on its way between them.
pub(super) struct Pump {
    up: Flow,
    down: Flow,
}

/// Bytes that go one way.
struct Flow {
    from: TcpStream,
    to: TcpStream,
    queue: VecDeque<(Instant, Vec<u8>)>,
    n_queued: usize,
    /// Bytes since the plan last changed, which is what plans count.
    n_passed: u64,
    /// What may be written already at the present rate, and since when that is counted.
    allowance: f64,
    counted_at: Instant,
    input: Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    /// Nothing more comes; what waits is still delivered.
    Ended,
    Delivered,
}

impl Pump {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> io::Result<Self> {
        for stream in [&client, &server] {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
        }
        let up = Flow::new(client.try_clone()?, server.try_clone()?);
        let down = Flow::new(server, client);
        Ok(Self { up, down })
    }

    /// Counts from here, because the plan has changed.
    pub(super) fn restart_counts(&mut self) {
        self.up.n_passed = 0;
        self.down.n_passed = 0;
    }

    /// Moves what can be moved and waits a little; says how the connection ended once it has.
    pub(super) fn step(&mut self, ills: &Ills) -> Option<Ending> {
        for (flow, way) in [(&mut self.up, Way::Up), (&mut self.down, Way::Down)] {
            let moved = flow.take(ills).and_then(|()| flow.give(ills, way));
            match moved {
                Ok(None) => (),
                Ok(Some(ending)) => return Some(ending),
                // One side has gone without a good-bye; the other learns it in the same way.
                Err(_) => return Some(Ending::Reset),
            }
        }
        if self.up.input == Input::Delivered && self.down.input == Input::Delivered {
            return Some(Ending::Closed);
        }
        self.wait(ills);
        None
    }

    /// Ends both connections.
    pub(super) fn end(self, ending: Ending) {
        for stream in [&self.up.from, &self.down.from] {
            // Either may be gone already.
            match ending {
                Ending::Reset => {
                    let linger = Some(Duration::ZERO);
                    rustix::net::sockopt::set_socket_linger(stream, linger).unwrap_or_default();
                }
                Ending::Cut | Ending::Closed => {
                    stream.shutdown(Shutdown::Both).unwrap_or_default();
                }
            }
        }
    }

    fn wait(&self, ills: &Ills) {
        let mut fds = Vec::with_capacity(4);
        let mut patience = LOOK_EVERY;
        for flow in [&self.up, &self.down] {
            if flow.input == Input::Open && flow.n_queued < MAX_QUEUED {
                fds.push(PollFd::new(&flow.from, PollFlags::IN));
            }
            let due = flow.queue.front().filter(|_| !ills.hole);
            let Some((due, _)) = due else { continue };
            let left = due.saturating_duration_since(now());
            if left.is_zero() && ills.bytes_per_second.is_none() {
                fds.push(PollFd::new(&flow.to, PollFlags::OUT));
            } else {
                patience = patience.min(left.max(Duration::from_millis(1)));
            }
        }
        let nanos = i64::from(patience.subsec_nanos());
        let timeout = Timespec { tv_sec: 0, tv_nsec: nanos };
        // An interrupted wait is a short one.
        poll(&mut fds, Some(&timeout)).unwrap_or_default();
    }
}

impl Flow {
    fn new(from: TcpStream, to: TcpStream) -> Self {
        Self {
            from,
            to,
            queue: VecDeque::new(),
            n_queued: 0,
            n_passed: 0,
            allowance: 0.0,
            counted_at: now(),
            input: Input::Open,
        }
    }

    fn take(&mut self, ills: &Ills) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        while self.input == Input::Open && self.n_queued < MAX_QUEUED {
            match self.from.read(&mut chunk) {
                Ok(0) => self.input = Input::Ended,
                Ok(_) if ills.hole => (),
                Ok(n_bytes) => {
                    let bytes = chunk.get(..n_bytes).unwrap_or_default().to_vec();
                    self.n_queued += n_bytes;
                    self.queue.push_back((now() + ills.delay, bytes));
                }
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => break,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => (),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn give(&mut self, ills: &Ills, way: Way) -> io::Result<Option<Ending>> {
        let of_this_way = |ill: Option<(u64, Way)>| ill.filter(|ill| ill.1 == way).map(|ill| ill.0);
        let (cut, reset) = (of_this_way(ills.cut), of_this_way(ills.reset));
        self.earn(ills.bytes_per_second);
        while let Some((due, bytes)) = self.queue.front_mut() {
            if ills.hole || *due > now() {
                return Ok(None);
            }
            let mut room = bytes.len();
            for limit in [cut, reset].into_iter().flatten() {
                let left = limit.saturating_sub(self.n_passed);
                room = room.min(usize::try_from(left).unwrap_or(usize::MAX));
            }
            if room == 0 {
                let ending = if reset.is_some_and(|reset| reset <= self.n_passed) {
                    Ending::Reset
                } else {
                    Ending::Cut
                };
                return Ok(Some(ending));
            }
            if ills.bytes_per_second.is_some() {
                room = room.min(whole(self.allowance));
            }
            if room == 0 {
                return Ok(None);
            }
            let mut piece = bytes.get(..room).unwrap_or_default().to_vec();
            let wrong = of_this_way(ills.corrupt)
                .and_then(|of_this_way| of_this_way.checked_sub(self.n_passed));
            let wrong = wrong.and_then(|wrong| usize::try_from(wrong).ok());
            if let Some(byte) = wrong.and_then(|wrong| piece.get_mut(wrong)) {
                *byte ^= 0x04;
            }
            let written = match self.to.write(&piece) {
                Ok(written) => written,
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(fault) => return Err(fault),
            };
            bytes.drain(..written);
            if bytes.is_empty() {
                self.queue.pop_front();
            }
            self.n_queued -= written;
            self.n_passed += written as u64;
            self.spend(written);
        }
        if self.input == Input::Ended {
            self.input = Input::Delivered;
            // The other side may have closed first.
            self.to.shutdown(Shutdown::Write).unwrap_or_default();
        }
        Ok(None)
    }

    /// Adds what the time since the last look allows, and no more than a second's worth in all.
    fn earn(&mut self, rate: Option<u64>) {
        let since = now().saturating_duration_since(self.counted_at);
        self.counted_at += since;
        let Some(rate) = rate.and_then(|rate| u32::try_from(rate).ok()).map(f64::from) else {
            return;
        };
        self.allowance = (self.allowance + rate * since.as_secs_f64()).min(rate);
    }

    fn spend(&mut self, n_bytes: usize) {
        let spent = u32::try_from(n_bytes).map_or(0.0, f64::from);
        self.allowance = (self.allowance - spent).max(0.0);
    }
}

/// The whole bytes of an allowance.
fn whole(allowance: f64) -> usize {
    usize::try_from(Duration::from_secs_f64(allowance.max(0.0)).as_secs()).unwrap_or(usize::MAX)
}
