//! What a server writes to its error output: always read, never in the way, the last of it kept.
//!
//! **Invariant:** the memory held is bounded, whatever the server writes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe::Receiver;
use toolrack_transport::{Mask, plain_text};

use crate::io_task::read_out;
use crate::transport::Shared;

/// The most text kept of one server.
const KEPT_BYTES: usize = 64 << 10;

/// The most lines kept of one server.
const KEPT_LINES: usize = 200;

/// A longer line is kept in pieces. Progress bars write one endless line.
const LINE_BYTES: usize = 8 << 10;

/// The last lines of a server's error output.
#[derive(Debug, Default)]
pub(crate) struct Stderr {
    ring: Mutex<Ring>,
    mask: Mask,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<String>,
    n_bytes: usize,
    partial: Vec<u8>,
}

impl Stderr {
    pub(crate) fn new(mask: Mask) -> Self {
        Self { mask, ..Self::default() }
    }

    /// Takes bytes as they come and tells `heard` every line they complete.
    pub(crate) fn feed(&self, mut bytes: &[u8], heard: &mut dyn FnMut(&str)) {
        let mut ring = self.ring();
        while !bytes.is_empty() {
            let room = LINE_BYTES - ring.partial.len();
            let piece = bytes.get(..room).unwrap_or(bytes);
            match memchr::memchr(b'\n', piece) {
                Some(end) => {
                    ring.partial.extend_from_slice(piece.get(..end).unwrap_or_default());
                    bytes = bytes.get(end + 1..).unwrap_or_default();
                    ring.complete(&self.mask, heard);
                }
                None => {
                    ring.partial.extend_from_slice(piece);
                    bytes = bytes.get(piece.len()..).unwrap_or_default();
                    if ring.partial.len() == LINE_BYTES {
                        ring.complete(&self.mask, heard);
                    }
                }
            }
        }
    }

    /// The last lines, oldest first, with one that has begun and not ended.
    pub(crate) fn tail(&self, n_lines: usize) -> Arc<[String]> {
        let ring = self.ring();
        let unfinished = (!ring.partial.is_empty()).then(|| clean(&ring.partial, &self.mask));
        let lines: Vec<String> = ring.lines.iter().cloned().chain(unfinished).collect();
        let first = lines.len().saturating_sub(n_lines);
        lines.into_iter().skip(first).collect()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn complete(&mut self, mask: &Mask, heard: &mut dyn FnMut(&str)) {
        let line = clean(&std::mem::take(&mut self.partial), mask);
        heard(&line);
        self.n_bytes += line.len();
        self.lines.push_back(line);
        while self.n_bytes > KEPT_BYTES || self.lines.len() > KEPT_LINES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.n_bytes -= oldest.len();
        }
    }
}

fn clean(line: &[u8], mask: &Mask) -> String {
    plain_text(&mask.clean(&String::from_utf8_lossy(line)), LINE_BYTES)
}

/// Reads the error output to its end, or until nothing is left that could write to it.
pub(crate) async fn read_stderr(shared: Arc<Shared>, errors: Receiver) {
    let hear = |bytes: &[u8]| {
        shared.stderr.feed(bytes, &mut |line| shared.inbound.stderr(line));
    };
    read_out(&errors, shared.gone(), hear).await;
    shared.stderr_closed.cancel();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(stderr: &Stderr, text: &str) -> Vec<String> {
        let mut heard = Vec::new();
        stderr.feed(text.as_bytes(), &mut |line| heard.push(line.to_owned()));
        heard
    }

    #[test]
    fn the_last_lines_are_kept() {
        let stderr = Stderr::default();
        assert_eq!(feed(&stderr, "one\ntw"), ["one"]);
        assert_eq!(feed(&stderr, "o\nthr\u{1b}[1mee"), ["two"]);
        assert_eq!(*stderr.tail(2), ["two", "three"]);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let stderr = Stderr::default();
        for _ in 0..100 {
            feed(&stderr, &"no line break ".repeat(1000));
            feed(&stderr, &"short\n".repeat(1000));
        }
        let ring = stderr.ring();
        assert!(ring.n_bytes <= KEPT_BYTES && ring.lines.len() <= KEPT_LINES);
        assert!(ring.partial.len() <= LINE_BYTES);
        assert_eq!(ring.n_bytes, ring.lines.iter().map(String::len).sum::<usize>());
    }
}
