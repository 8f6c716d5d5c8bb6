//! Reads a server's stderr and keeps its last lines, redacted and sanitized.
//!
//! **Invariant:** the memory is bounded, and stderr is always read, so a server never blocks on it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::unix::pipe::Receiver;
use toolrack_transport::Redactor;

use crate::io_task::read_until_gone;
use crate::transport::Shared;

/// The maximum size of the kept lines.
const KEPT_BYTES: usize = 64 << 10;

/// The maximum number of kept lines.
const KEPT_LINES: usize = 200;

/// A longer line is split. Progress bars write one endless line.
const LINE_BYTES: usize = 8 << 10;

/// The last lines of a server's stderr.
#[derive(Debug, Default)]
pub(crate) struct StderrTail {
    ring: Mutex<Ring>,
    redactor: Redactor,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<String>,
    n_bytes: usize,
    partial: Vec<u8>,
}

impl StderrTail {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self { redactor, ..Self::default() }
    }

    /// Adds bytes and calls `on_line` for every line that they complete.
    pub(crate) fn feed(&self, mut bytes: &[u8], on_line: &mut dyn FnMut(&str)) {
        let mut ring = self.ring.lock();
        while !bytes.is_empty() {
            let room = LINE_BYTES - ring.partial.len();
            let piece = bytes.get(..room).unwrap_or(bytes);
            let line_break = memchr::memchr(b'\n', piece);
            let end = line_break.unwrap_or(piece.len());
            ring.partial.extend_from_slice(piece.get(..end).unwrap_or_default());
            bytes = bytes.get(line_break.map_or(end, |end| end + 1)..).unwrap_or_default();
            if line_break.is_some() || ring.partial.len() == LINE_BYTES {
                ring.complete(&self.redactor, on_line);
            }
        }
    }

    /// The last lines, oldest first, including an unfinished one.
    pub(crate) fn tail(&self, n_lines: usize) -> Arc<[String]> {
        let ring = self.ring.lock();
        let unfinished = (!ring.partial.is_empty()).then(|| to_text(&ring.partial, &self.redactor));
        let lines: Vec<String> = ring.lines.iter().cloned().chain(unfinished).collect();
        let first = lines.len().saturating_sub(n_lines);
        lines.into_iter().skip(first).collect()
    }
}

impl Ring {
    fn complete(&mut self, redactor: &Redactor, on_line: &mut dyn FnMut(&str)) {
        let line = to_text(&std::mem::take(&mut self.partial), redactor);
        on_line(&line);
        self.n_bytes += line.len();
        self.lines.push_back(line);
        while self.n_bytes > KEPT_BYTES || self.lines.len() > KEPT_LINES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.n_bytes -= oldest.len();
        }
    }
}

fn to_text(line: &[u8], redactor: &Redactor) -> String {
    redactor.redact_line(&String::from_utf8_lossy(line), LINE_BYTES)
}

/// Reads stderr to its end, or until no process is left to write to it.
pub(crate) async fn read_stderr(shared: Arc<Shared>, stderr: Receiver) {
    let on_bytes = |bytes: &[u8]| {
        shared.stderr.feed(bytes, &mut |line| shared.router.route_stderr(line));
    };
    read_until_gone(&stderr, shared.wait_gone(), on_bytes).await;
    shared.stderr_closed.cancel();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(stderr: &StderrTail, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        stderr.feed(text.as_bytes(), &mut |line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn last_lines_are_kept() {
        let stderr = StderrTail::default();
        assert_eq!(feed(&stderr, "one\ntw"), ["one"]);
        assert_eq!(feed(&stderr, "o\nthr\u{1b}[1mee"), ["two"]);
        assert_eq!(*stderr.tail(2), ["two", "three"]);
    }

    #[test]
    fn stderr_memory_is_bounded() {
        let stderr = StderrTail::default();
        for _ in 0..100 {
            feed(&stderr, &"no line break ".repeat(1000));
            feed(&stderr, &"short\n".repeat(1000));
        }
        let ring = stderr.ring.lock();
        assert!(ring.n_bytes <= KEPT_BYTES && ring.lines.len() <= KEPT_LINES);
        assert!(ring.partial.len() <= LINE_BYTES);
        assert_eq!(ring.n_bytes, ring.lines.iter().map(String::len).sum::<usize>());
    }
}
