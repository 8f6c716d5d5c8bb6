//! HTTP/1.1 connection. The task that waits for the response drives it.
//!
//! **Invariant:** no task runs between a caller and its HTTP/1.1 connection.
//! **Invariant:** an idle connection holds no buffer.

mod decoder;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

pub(crate) use decoder::{COPY_BYTES, ResponseHead, parse_digits};

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use decoder::{BodyFraming, Decoded, Parsed, parse_head};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;
use toolrack_transport::{RequestError, TransportError};

use crate::connect::NetStream;
use crate::proxy::Proxy;
use crate::request_sender::HttpRequest;

/// Read size, at first and after a read that filled the buffer.
const READ_BYTES: usize = 8 << 10;
const MAX_READ_BYTES: usize = 64 << 10;
/// Memory reserved for the head of a request and a small body.
const HEAD_BYTES: usize = 1 << 10;
/// With less free space than this, the buffer grows before the next system call.
const MIN_READ_BYTES: usize = 1 << 10;
/// Cap on the memory reserved for a declared length. A server can declare any length.
pub(crate) const MAX_PREALLOC_BYTES: u64 = 4 << 20;
/// A body up to this size is written together with its head.
const INLINE_BODY_BYTES: usize = 4 << 10;
/// A larger buffer is not kept for the next response.
const MAX_SPARE_BYTES: usize = 16 << 10;
/// Output buffers that a thread keeps.
const MAX_SPARE_OUTPUTS: usize = 8;

thread_local! {
    /// Buffer for the next response on this thread.
    static SPARE_BUFFER: Cell<Option<BytesMut>> = const { Cell::new(None) };
    /// Memory for the next output buffers on this thread.
    static SPARE_OUTPUT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Buffer for outgoing bytes. The thread that drops it keeps its memory for the next one.
#[derive(Clone, Default)]
pub(crate) struct OutputBuffer(pub(crate) Vec<u8>);

/// HTTP/1.1 connection with its read buffer.
pub(crate) struct Http1Connection {
    stream: NetStream,
    input: BytesMut,
    pub(crate) framing: BodyFraming,
    is_reusable: bool,
    /// A slice of the input was handed out, so the buffer cannot be reused.
    is_split: bool,
    /// Bytes to reserve for the next read.
    read_size: usize,
    pub(crate) idle_since: Instant,
}

/// Whether the server may have received a message.
#[derive(Debug, Default)]
pub(crate) struct SentFlag(AtomicBool);

/// Why there is no response.
#[derive(Debug)]
pub(crate) struct AttemptError {
    pub(crate) error: io::Error,
    /// Whether no byte of the request was written.
    pub(crate) is_unsent: bool,
}

/// Request being written.
struct RequestWriter<'a> {
    /// Includes the body if that is small. `None` after everything has been sent.
    head: Option<OutputBuffer>,
    body: &'a [u8],
    n_sent: usize,
}

impl OutputBuffer {
    pub(crate) fn take() -> Self {
        let spare = SPARE_OUTPUT.try_with(|spare| spare.borrow_mut().pop());
        let mut bytes = spare.ok().flatten().unwrap_or_default();
        bytes.reserve(HEAD_BYTES);
        Self(bytes)
    }
}

impl Drop for OutputBuffer {
    fn drop(&mut self) {
        let mut bytes = mem::take(&mut self.0);
        if (1..=MAX_SPARE_BYTES).contains(&bytes.capacity()) {
            bytes.clear();
            // Fails only while the thread is being torn down; then the memory is freed.
            let _is_kept = SPARE_OUTPUT.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < MAX_SPARE_OUTPUTS {
                    spare.push(bytes);
                }
            });
        }
    }
}

impl SentFlag {
    pub(crate) fn mark(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Records that the server did not process the message.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Error of a message that has no response.
    pub(crate) fn failure(&self, error: TransportError) -> RequestError {
        if self.get() { RequestError::unknown(error) } else { RequestError::not_sent(error) }
    }
}

impl Http1Connection {
    pub(crate) fn new(stream: NetStream) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            framing: BodyFraming::Empty,
            is_reusable: true,
            is_split: false,
            read_size: READ_BYTES,
            idle_since: Instant::now(),
        }
    }

    /// Whether the exchange has ended so that another one can follow.
    pub(crate) fn is_complete(&self) -> bool {
        // Bytes left in the buffer belong to no request. The next response would start with them.
        self.is_reusable && self.framing == BodyFraming::Empty && self.input.is_empty()
    }

    /// Whether the connection can take a request, as far as a check without waiting can tell.
    pub(crate) fn is_usable(&mut self) -> bool {
        if !self.is_complete() {
            return false;
        }
        // Readable now means end of file, or bytes that belong to no request.
        let (mut context, mut byte) = (Context::from_waker(Waker::noop()), [0]);
        let stream = Pin::new(&mut self.stream);
        stream.poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Frees memory until the next exchange.
    pub(crate) fn release_buffers(&mut self) {
        let mut buffer = mem::take(&mut self.input);
        let is_whole = !mem::take(&mut self.is_split);
        buffer.clear();
        // Kept for the next exchange on this thread, unless it is large or a slice of it is still in use.
        if is_whole && buffer.try_reclaim(READ_BYTES) && buffer.capacity() <= MAX_SPARE_BYTES {
            // Fails only while the thread is being torn down; then the buffer is freed.
            let _is_kept = SPARE_BUFFER.try_with(|spare| spare.set(Some(buffer)));
        }
        self.read_size = READ_BYTES;
        self.idle_since = Instant::now();
    }

    /// Sends a request and reads the head of the response.
    pub(crate) async fn send(
        &mut self,
        request: &HttpRequest<'_>,
        proxy: Option<&Proxy>,
    ) -> Result<ResponseHead, AttemptError> {
        let mut head = OutputBuffer::take();
        request.write_head(&mut head.0, proxy);
        let mut body = &*request.message.body.0;
        if body.len() <= INLINE_BODY_BYTES {
            head.0.extend_from_slice(mem::take(&mut body));
        }
        let mut writer = RequestWriter { head: Some(head), body, n_sent: 0 };
        let received = poll_fn(|context| self.poll_send(&mut writer, context)).await;
        let (n_sent, is_fully_sent) = (writer.n_sent, writer.head.is_none());
        match received {
            Ok(head) => {
                self.framing = head.framing;
                // The unsent rest of a request would be read as the next request.
                self.is_reusable = head.is_reusable && is_fully_sent;
                Ok(head)
            }
            Err(error) => {
                self.is_reusable = false;
                Err(AttemptError { error, is_unsent: n_sent == 0 })
            }
        }
    }

    /// Writes and reads at the same time, because a server may respond before it has read the whole request
    /// (413, for example).
    fn poll_send(
        &mut self,
        writer: &mut RequestWriter<'_>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<ResponseHead>> {
        // After the first byte, a write error is not final: the server may have responded before it closed
        // its side.
        let written = match writer.poll(&mut self.stream, context) {
            Poll::Ready(Err(error)) if writer.n_sent == 0 => return Poll::Ready(Err(error)),
            written => written,
        };
        // Both polls register the waker, so progress in either direction wakes the caller.
        match self.poll_head(context) {
            // The write error says more than "closed".
            Poll::Ready(Err(closed)) => match written {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => Poll::Ready(Err(closed)),
            },
            outcome => outcome,
        }
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<io::Result<ResponseHead>> {
        loop {
            if !self.input.is_empty() {
                match parse_head(&self.input)? {
                    Parsed::Complete { head, n_bytes } => {
                        self.input.advance(n_bytes);
                        return Poll::Ready(Ok(head));
                    }
                    Parsed::Interim { n_bytes } => {
                        self.input.advance(n_bytes);
                        continue;
                    }
                    Parsed::Partial => {}
                }
            }
            if ready!(self.poll_fill(context))? == 0 {
                let reason = "the connection was closed before a response came";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
            }
        }
    }

    /// Returns the next chunk of the body; `None` at its end.
    pub(crate) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if !self.wants_whole_body() {
                match self.framing.decode(&mut self.input)? {
                    Decoded::Data(chunk) => {
                        self.is_split |= chunk.len() > COPY_BYTES;
                        return Poll::Ready(Ok(Some(chunk)));
                    }
                    Decoded::End => return Poll::Ready(Ok(None)),
                    Decoded::NeedMore => {}
                }
            }
            if ready!(self.poll_fill(context))? == 0 {
                return Poll::Ready(match self.framing {
                    BodyFraming::UntilClose => {
                        // Does not bring the connection back to the pool: `is_reusable` is false
                        // with this framing.
                        self.framing = BodyFraming::Empty;
                        Ok(None)
                    }
                    _ => {
                        let reason = "the connection was closed in the middle of a response";
                        Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
                    }
                });
            }
        }
    }

    /// Reads a small body that has arrived together with its head: `parse` does not wait and copies only what it
    /// needs. The body stays if `parse` returns `None`.
    pub(crate) fn parse_buffered<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let BodyFraming::Length { n_bytes } = self.framing else { return None };
        let n_bytes = usize::try_from(n_bytes).ok().filter(|n_bytes| *n_bytes <= COPY_BYTES)?;
        let parsed = self.input.get(..n_bytes).and_then(parse)?;
        self.input.advance(n_bytes);
        self.framing = BodyFraming::Empty;
        Some(parsed)
    }

    /// A body of known size is read into one chunk, unless it is huge.
    fn wants_whole_body(&self) -> bool {
        let declared =
            self.framing.remaining_length().filter(|declared| *declared <= MAX_PREALLOC_BYTES);
        declared.is_some_and(|declared| declared > self.input.len() as u64)
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let declared = self.framing.remaining_length().unwrap_or_default().min(MAX_PREALLOC_BYTES);
        let missing =
            usize::try_from(declared).unwrap_or_default().saturating_sub(self.input.len());
        if self.input.capacity() == 0 {
            self.input = SPARE_BUFFER.try_with(Cell::take).ok().flatten().unwrap_or_default();
        }
        // One allocation for a body of known length: the buffer does not double its way up.
        if self.input.capacity() - self.input.len() < missing.max(MIN_READ_BYTES) {
            self.input.reserve(missing.max(self.read_size));
        }
        let room = self.input.capacity() - self.input.len();
        let read = ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut self.input))?;
        if read == room {
            self.read_size = MAX_READ_BYTES;
        }
        Poll::Ready(Ok(read))
    }
}

impl RequestWriter<'_> {
    fn poll(&mut self, stream: &mut NetStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(OutputBuffer(head)) = &self.head else { return Poll::Ready(Ok(())) };
        while self.n_sent < head.len() + self.body.len() {
            let n_body_sent = self.n_sent.saturating_sub(head.len());
            let head = head.get(self.n_sent..).unwrap_or_default();
            let body = self.body.get(n_body_sent..).unwrap_or_default();
            let stream = Pin::new(&mut *stream);
            // Vectored, so that a large body is not copied behind its head.
            let n_bytes = ready!(if self.body.is_empty() {
                stream.poll_write(context, head)
            } else {
                let slices = [IoSlice::new(head), IoSlice::new(body)];
                stream.poll_write_vectored(context, &slices)
            })?;
            if n_bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.n_sent += n_bytes;
        }
        // TLS may hold back records until a flush.
        ready!(Pin::new(stream).poll_flush(context))?;
        // Before the response, so that the next request of this thread can use the buffer.
        self.head = None;
        Poll::Ready(Ok(()))
    }
}
