//! One proxied connection: delay, throttling, corruption and cuts in both directions.
//!
//! **Invariant:** at most `MAX_QUEUED` bytes wait per direction; then the sender blocks, as on a slow network.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::impairments::Impairments;
use crate::harness::now;

const MAX_QUEUED: usize = 256 * 1024;
const CHUNK: usize = 16 * 1024;
/// Interval between two checks for a new plan.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseKind {
    Closed,
    Reset,
}

/// Both ends of a connection and the bytes in transit.
pub(super) struct ProxiedConnection {
    up: Flow,
    down: Flow,
}

/// Bytes in one direction.
struct Flow {
    from: TcpStream,
    to: TcpStream,
    queue: VecDeque<(Instant, Vec<u8>)>,
    n_queued: usize,
    /// Bytes since the last plan change; plans count these.
    n_passed: u64,
    /// Token bucket: bytes that may be written now, and when it was last refilled.
    allowance: f64,
    counted_at: Instant,
    input: Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    /// No more input; queued bytes are still delivered.
    Ended,
    Delivered,
}

impl ProxiedConnection {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> io::Result<Self> {
        for stream in [&client, &server] {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
        }
        let up = Flow::new(client.try_clone()?, server.try_clone()?);
        let down = Flow::new(server, client);
        Ok(Self { up, down })
    }

    /// Restarts the byte counts after a plan change.
    pub(super) fn restart_counts(&mut self) {
        self.up.n_passed = 0;
        self.down.n_passed = 0;
    }

    /// Moves available bytes and waits briefly; returns how the connection ended, once it has.
    pub(super) fn step(&mut self, impairments: &Impairments) -> Option<CloseKind> {
        // Only bytes from the server are cut, reset or corrupted.
        let upstream = Impairments { cut: None, reset: None, corrupt: None, ..*impairments };
        for (flow, impairments) in [(&mut self.up, &upstream), (&mut self.down, impairments)] {
            let moved = flow.read_available(impairments).and_then(|()| flow.write_due(impairments));
            match moved {
                Ok(None) => (),
                Ok(Some(close_kind)) => return Some(close_kind),
                // One side was reset; reset the other as well.
                Err(_) => return Some(CloseKind::Reset),
            }
        }
        if self.up.input == Input::Delivered && self.down.input == Input::Delivered {
            return Some(CloseKind::Closed);
        }
        self.wait(impairments);
        None
    }

    /// Closes both connections.
    pub(super) fn end(self, close_kind: CloseKind) {
        for stream in [&self.up.from, &self.down.from] {
            // Either may be closed already.
            match close_kind {
                CloseKind::Reset => {
                    // With linger 0, closing the socket sends an RST instead of a FIN.
                    let linger = Some(Duration::ZERO);
                    rustix::net::sockopt::set_socket_linger(stream, linger).unwrap_or_default();
                }
                CloseKind::Closed => {
                    stream.shutdown(Shutdown::Both).unwrap_or_default();
                }
            }
        }
    }

    fn wait(&self, impairments: &Impairments) {
        let mut fds = Vec::with_capacity(4);
        let mut timeout = POLL_INTERVAL;
        for flow in [&self.up, &self.down] {
            if flow.input == Input::Open && flow.n_queued < MAX_QUEUED {
                fds.push(PollFd::new(&flow.from, PollFlags::IN));
            }
            let due = flow.queue.front().filter(|_| !impairments.black_hole);
            let Some((due, _)) = due else { continue };
            let left = due.saturating_duration_since(now());
            if left.is_zero() && impairments.bytes_per_second.is_none() {
                fds.push(PollFd::new(&flow.to, PollFlags::OUT));
            } else {
                timeout = timeout.min(left.max(Duration::from_millis(1)));
            }
        }
        let nanos = i64::from(timeout.subsec_nanos());
        let timeout = Timespec { tv_sec: 0, tv_nsec: nanos };
        // An interrupted wait is just shorter.
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

    fn read_available(&mut self, impairments: &Impairments) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        while self.input == Input::Open && self.n_queued < MAX_QUEUED {
            match self.from.read(&mut chunk) {
                Ok(0) => self.input = Input::Ended,
                Ok(_) if impairments.black_hole => (),
                Ok(n_bytes) => {
                    let bytes = chunk.get(..n_bytes).unwrap_or_default().to_vec();
                    self.n_queued += n_bytes;
                    self.queue.push_back((now() + impairments.delay, bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_due(&mut self, impairments: &Impairments) -> io::Result<Option<CloseKind>> {
        let Impairments { cut, reset, corrupt, .. } = *impairments;
        self.refill_allowance(impairments.bytes_per_second);
        while let Some((due, bytes)) = self.queue.front_mut() {
            if impairments.black_hole || *due > now() {
                return Ok(None);
            }
            let mut room = bytes.len();
            for limit in [cut, reset].into_iter().flatten() {
                let left = limit.saturating_sub(self.n_passed);
                room = room.min(usize::try_from(left).unwrap_or(usize::MAX));
            }
            if room == 0 {
                let close_kind = if reset.is_some_and(|reset| reset <= self.n_passed) {
                    CloseKind::Reset
                } else {
                    CloseKind::Closed
                };
                return Ok(Some(close_kind));
            }
            if impairments.bytes_per_second.is_some() {
                room = room.min(whole_bytes(self.allowance));
            }
            if room == 0 {
                return Ok(None);
            }
            let mut piece = bytes.get(..room).unwrap_or_default().to_vec();
            let invalid = corrupt.and_then(|offset| offset.checked_sub(self.n_passed));
            let invalid = invalid.and_then(|invalid| usize::try_from(invalid).ok());
            if let Some(byte) = invalid.and_then(|invalid| piece.get_mut(invalid)) {
                *byte ^= 0x04;
            }
            let written = match self.to.write(&piece) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            bytes.drain(..written);
            if bytes.is_empty() {
                self.queue.pop_front();
            }
            self.n_queued -= written;
            self.n_passed += written as u64;
            let spent = u32::try_from(written).map_or(0.0, f64::from);
            self.allowance = (self.allowance - spent).max(0.0);
        }
        if self.input == Input::Ended {
            self.input = Input::Delivered;
            // The other side may have closed first.
            self.to.shutdown(Shutdown::Write).unwrap_or_default();
        }
        Ok(None)
    }

    /// Refills the token bucket for the elapsed time, up to one second's worth.
    fn refill_allowance(&mut self, rate: Option<u64>) {
        let since = now().saturating_duration_since(self.counted_at);
        self.counted_at += since;
        let Some(rate) = rate.and_then(|rate| u32::try_from(rate).ok()).map(f64::from) else {
            return;
        };
        self.allowance = (self.allowance + rate * since.as_secs_f64()).min(rate);
    }
}

/// Rounds an allowance down to bytes.
fn whole_bytes(allowance: f64) -> usize {
    usize::try_from(Duration::from_secs_f64(allowance.max(0.0)).as_secs()).unwrap_or(usize::MAX)
}
