//! Message sinks: how a server sends messages to a client. Holds the trait and the stdio pipe.
//!
//! **Invariant:** messages of different threads never interleave. Writes after the reader has gone are dropped
//! silently: a server learns of the end from its input.

use std::fmt;
use std::io::Write;

use parking_lot::Mutex;

/// The buffer is written without waiting for `flush` above this size.
const FLUSH_AT_BYTES: usize = 64 * 1024;

/// Output to a client: a pipe for everything, or the response to one HTTP request.
pub(crate) trait MessageSink: fmt::Debug + Send + Sync {
    /// Queues a message that is not a response; the next `flush` sends it at the latest.
    fn send(&self, line: &[u8]);

    /// Queues the response to the request of this sink.
    fn respond(&self, line: &[u8]) {
        self.send(line);
    }

    /// Sends a message in pieces, atomically for other threads.
    fn send_long(&self, message: &LongMessage<'_>);

    /// Writes raw bytes after everything queued before.
    fn write_raw(&self, bytes: &[u8]);

    fn flush(&self) {}

    /// Marks the request of this sink as finished.
    fn finish(&self) {}

    /// Sets the HTTP status, where there is one.
    fn set_status(&self, _status: u16) {}

    fn is_broken(&self) -> bool;
}

/// A message in pieces, because it is too long for memory, or to test the reader: filler between head and tail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongMessage<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) filler: u8,
    pub(crate) bytes: u64,
    pub(crate) tail: &'a [u8],
    /// Bytes per system call.
    pub(crate) piece_bytes: usize,
    pub(crate) kind: LongKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LongKind {
    /// A message before the response.
    Extra,
    /// The response itself.
    Response,
    /// A message without an end.
    Unterminated,
}

impl Default for LongMessage<'_> {
    fn default() -> Self {
        let kind = LongKind::Extra;
        Self { head: b"", filler: 0, bytes: 0, tail: b"", piece_bytes: FLUSH_AT_BYTES, kind }
    }
}

impl LongMessage<'_> {
    /// Writes the message between a prefix and a suffix, until `take` returns `false`. An unterminated message has no
    /// suffix.
    pub(crate) fn write(&self, prefix: &[u8], suffix: &[u8], mut take: impl FnMut(&[u8]) -> bool) {
        let mut take_all = |bytes: &[u8]| bytes.chunks(self.piece_bytes).all(&mut take);
        let chunk = vec![self.filler; FLUSH_AT_BYTES];
        let mut left = self.bytes;
        let mut taken = take_all(prefix) && take_all(self.head);
        while left > 0 && taken {
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            taken = take_all(chunk.get(..now).unwrap_or_default());
            left -= now as u64;
        }
        if taken && take_all(self.tail) && self.kind != LongKind::Unterminated {
            take_all(suffix);
        }
    }
}

/// Writes lines to one reader.
pub(crate) struct PipeSink {
    inner: Mutex<Inner>,
}

struct Inner {
    buffer: Vec<u8>,
    out: Box<dyn Write + Send>,
    /// Set by the first failed write, for good.
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
}

impl MessageSink for PipeSink {
    fn send(&self, line: &[u8]) {
        let mut inner = self.inner.lock();
        inner.buffer.extend_from_slice(line);
        inner.buffer.push(b'\n');
        if inner.buffer.len() >= FLUSH_AT_BYTES {
            inner.flush();
        }
    }

    fn flush(&self) {
        self.inner.lock().flush();
    }

    fn write_raw(&self, bytes: &[u8]) {
        let mut inner = self.inner.lock();
        inner.flush();
        inner.write(bytes);
    }

    fn send_long(&self, message: &LongMessage<'_>) {
        let mut inner = self.inner.lock();
        inner.flush();
        message.write(b"", b"\n", |piece| {
            inner.write(piece);
            !inner.broken
        });
    }

    fn is_broken(&self) -> bool {
        self.inner.lock().broken
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
