//! The one way out of a server: whole lines from several threads, written together when nobody waits.
//!
//! **Invariant:** a line is never broken by another thread's line. Once the reader is gone, everything written is
//! dropped in silence: a server learns of the end from its input, not from its output.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines beyond this many bytes are written without waiting for `flush`.
const FLUSH_AT_BYTES: usize = 64 * 1024;

pub(crate) struct Outlet {
    inner: Mutex<Inner>,
}

struct Inner {
    buffer: Vec<u8>,
    out: Box<dyn Write + Send>,
    /// Set by the first failed write and never taken back.
    broken: bool,
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("broken", &self.is_broken()).finish_non_exhaustive()
    }
}

impl Outlet {
    pub(crate) fn new(out: impl Write + Send + 'static) -> Self {
        let inner = Inner { buffer: Vec::new(), out: Box::new(out), broken: false };
        Self { inner: Mutex::new(inner) }
    }

    /// Appends one line; it leaves with the next `flush`.
    pub(crate) fn put(&self, line: &[u8]) {
        let mut inner = self.lock();
        inner.buffer.extend_from_slice(line);
        inner.buffer.push(b'\n');
        if inner.buffer.len() >= FLUSH_AT_BYTES {
            inner.flush();
        }
    }

    pub(crate) fn flush(&self) {
        self.lock().flush();
    }

    /// Writes bytes as they are, after everything that was put before.
    pub(crate) fn write_raw(&self, bytes: &[u8]) {
        let mut inner = self.lock();
        inner.flush();
        inner.write(bytes);
    }

    /// Writes with one system call for each byte.
    pub(crate) fn write_bytewise(&self, bytes: &[u8]) {
        let mut inner = self.lock();
        inner.flush();
        for byte in bytes.chunks(1) {
            inner.write(byte);
        }
    }

    /// Writes `filler` until `bytes` are out, between a head and a tail, as one piece for other threads.
    pub(crate) fn write_long(&self, head: &[u8], filler: u8, bytes: u64, tail: &[u8]) {
        let mut inner = self.lock();
        inner.flush();
        inner.write(head);
        let chunk = vec![filler; FLUSH_AT_BYTES];
        let mut left = bytes;
        while left > 0 && !inner.broken {
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            inner.write(chunk.get(..now).unwrap_or_default());
            left -= now as u64;
        }
        inner.write(tail);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.lock().broken
    }

    /// A panic in another thread leaves at worst a line unwritten, so its lock is taken over.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn flush(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer);
        buffer.clear();
        self.buffer = buffer;
    }

    fn write(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.broken {
            return;
        }
        self.broken = self.out.write_all(bytes).and_then(|()| self.out.flush()).is_err();
    }
}
