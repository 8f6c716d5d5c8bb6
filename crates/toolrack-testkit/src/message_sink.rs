//! The ways back to a client, and the plainest of them: whole lines down a pipe, written together when nobody waits.
//!
//! **Invariant:** a message is never broken by another thread's message. Once the reader is gone, everything written
//! is dropped in silence: a server learns of the end from its input, not from its output.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::plan::HttpFault;

/// Lines beyond this many bytes are written without waiting for `flush`.
const FLUSH_AT_BYTES: usize = 64 * 1024;

/// A way back to a client: a pipe for everything, or the reply to one HTTP request.
pub(crate) trait MessageSink: fmt::Debug + Send + Sync {
    /// Appends a message that answers nothing; it leaves with the next `flush` at the latest.
    fn send(&self, line: &[u8]);

    /// Appends an answer to the request that this way belongs to.
    fn respond(&self, line: &[u8]) {
        self.send(line);
    }

    /// An answer with one system call for each byte.
    fn respond_bytewise(&self, line: &[u8]);

    /// A message too long to be built: `filler` between a head and a tail, as one piece for other threads.
    fn send_long(&self, message: &LongMessage<'_>);

    /// Bytes as they are, after everything that was put before.
    fn write_raw(&self, bytes: &[u8]);

    fn flush(&self);

    /// Says that nothing more will come for the request that this way belongs to.
    fn finish(&self) {}

    /// The HTTP status to answer with, where there is one.
    fn set_status(&self, _status: u16) {}

    /// Notes what will go wrong with an HTTP reply.
    fn add_fault(&self, _fault: &HttpFault) {}

    fn is_broken(&self) -> bool;
}

/// A message that is mostly filler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongMessage<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) filler: u8,
    pub(crate) bytes: u64,
    pub(crate) tail: &'a [u8],
    pub(crate) kind: LongKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LongKind {
    /// A message beside the answer.
    Extra,
    /// The answer itself.
    Response,
    /// A message that never ends.
    Unterminated,
}

impl LongMessage<'_> {
    /// Hands the whole message on piece by piece, as long as somebody takes it.
    pub(crate) fn write_chunks(&self, mut take: impl FnMut(&[u8]) -> bool) {
        let chunk = vec![self.filler; FLUSH_AT_BYTES];
        let mut left = self.bytes;
        let mut taken = take(self.head);
        while left > 0 && taken {
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            taken = take(chunk.get(..now).unwrap_or_default());
            left -= now as u64;
        }
        if taken {
            take(self.tail);
        }
    }
}

/// Lines to one reader.
pub(crate) struct PipeSink {
    inner: Mutex<Inner>,
}

struct Inner {
    buffer: Vec<u8>,
    out: Box<dyn Write + Send>,
    /// Set by the first failed write and never taken back.
    broken: bool,
}

impl fmt::Debug for PipeSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("broken", &self.is_broken()).finish_non_exhaustive()
    }
}

impl PipeSink {
    pub(crate) fn new(out: impl Write + Send + 'static) -> Self {
        let inner = Inner { buffer: Vec::new(), out: Box::new(out), broken: false };
        Self { inner: Mutex::new(inner) }
    }

    /// A panic in another thread leaves at worst a line unwritten, so its lock is taken over.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MessageSink for PipeSink {
    fn send(&self, line: &[u8]) {
        let mut inner = self.lock();
        inner.buffer.extend_from_slice(line);
        inner.buffer.push(b'\n');
        if inner.buffer.len() >= FLUSH_AT_BYTES {
            inner.flush();
        }
    }

    fn flush(&self) {
        self.lock().flush();
    }

    fn write_raw(&self, bytes: &[u8]) {
        let mut inner = self.lock();
        inner.flush();
        inner.write(bytes);
    }

    fn respond_bytewise(&self, line: &[u8]) {
        let mut inner = self.lock();
        inner.flush();
        for byte in line.chunks(1).chain([b"\n".as_slice()]) {
            inner.write(byte);
        }
    }

    fn send_long(&self, message: &LongMessage<'_>) {
        let mut inner = self.lock();
        inner.flush();
        message.write_chunks(|piece| {
            inner.write(piece);
            !inner.broken
        });
        if message.kind != LongKind::Unterminated {
            inner.write(b"\n");
        }
    }

    fn is_broken(&self) -> bool {
        self.lock().broken
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
