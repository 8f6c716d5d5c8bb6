//! Line decoder: splits the byte stream of a pipe into lines, with a size limit.
//!
//! A short line is borrowed from a shared read buffer. A line that does not fit is collected in a buffer of its own,
//! which is passed on without a copy. A line over the limit is discarded while it arrives, except for its two ends.
//!
//! **Invariant:** between reads, memory is held only for an unfinished line.

use bytes::{Bytes, BytesMut};

/// The size of each end that is kept of a discarded line; enough to find the request id.
pub(crate) const KEPT_BYTES: usize = 512;

/// Lines of at least this size are passed on with their buffer instead of being copied out of it.
const OWN_BUFFER_BYTES: usize = 32 << 10;

/// The free space for a read into the buffer of an unfinished line.
const READ_BYTES: usize = 64 << 10;

/// Splits a stream into lines.
#[derive(Debug)]
pub(crate) struct LineDecoder {
    limit_bytes: usize,
    partial: BytesMut,
    discarded: Option<Discarded>,
}

/// A complete line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecodedLine<'a> {
    /// A line in a buffer that is reused.
    Borrowed(&'a [u8]),
    /// A line with its own buffer.
    Owned(Bytes),
    /// The ends of a line over the limit.
    Oversize { head: &'a [u8], tail: &'a [u8], limit_bytes: usize },
}

/// The ends of a line that is being discarded.
#[derive(Debug)]
struct Discarded {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl LineDecoder {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, partial: BytesMut::new(), discarded: None }
    }

    /// The buffer of an unfinished line, to read into and then call [`LineDecoder::decode_partial`]. `None` if there is
    /// no such line: then the caller reads into any buffer and calls [`LineDecoder::decode`].
    pub(crate) fn partial_buffer(&mut self) -> Option<&mut BytesMut> {
        if self.partial.is_empty() {
            return None;
        }
        // Doubling keeps the total copying linear, however long the line grows.
        let room = self.partial.capacity() - self.partial.len();
        if room < READ_BYTES / 2 {
            self.partial.reserve(self.partial.len().max(READ_BYTES));
        }
        Some(&mut self.partial)
    }

    /// Decodes bytes that were read into [`LineDecoder::partial_buffer`]. Its first `known_bytes` were decoded before.
    pub(crate) fn decode_partial(
        &mut self,
        known_bytes: usize,
        sink: &mut dyn FnMut(DecodedLine<'_>),
    ) {
        let new_bytes = self.partial.get(known_bytes..).unwrap_or_default();
        let Some(offset) = memchr::memchr(b'\n', new_bytes) else {
            self.discard_if_oversize();
            return;
        };
        let mut rest = std::mem::take(&mut self.partial);
        let line_bytes = known_bytes + offset;
        if line_bytes > self.limit_bytes {
            let (line, after) = rest.split_at_checked(line_bytes).unwrap_or_default();
            sink(self.oversize(line));
            self.decode(after.get(1..).unwrap_or_default(), sink);
            return;
        }
        if line_bytes < OWN_BUFFER_BYTES {
            self.decode(&rest, sink);
            return;
        }
        let line = rest.split_to(line_bytes);
        sink(DecodedLine::Owned(line.freeze()));
        self.decode(rest.get(1..).unwrap_or_default(), sink);
    }

    /// Decodes bytes in a buffer that is reused.
    pub(crate) fn decode(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(DecodedLine<'_>)) {
        if let Some(discarded) = &mut self.discarded {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                discarded.add(bytes);
                return;
            };
            let (last, rest) = bytes.split_at_checked(end).unwrap_or_default();
            discarded.add(last);
            let (head, tail) = (&discarded.head, &discarded.tail);
            sink(DecodedLine::Oversize { head, tail, limit_bytes: self.limit_bytes });
            self.discarded = None;
            bytes = rest.get(1..).unwrap_or_default();
        }
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at_checked(end).unwrap_or_default();
            let is_too_long = line.len() > self.limit_bytes;
            sink(if is_too_long { self.oversize(line) } else { DecodedLine::Borrowed(line) });
            bytes = rest.get(1..).unwrap_or_default();
        }
        if !bytes.is_empty() {
            self.partial.extend_from_slice(bytes);
            self.discard_if_oversize();
        }
    }

    fn oversize<'a>(&self, line: &'a [u8]) -> DecodedLine<'a> {
        DecodedLine::Oversize { head: head(line), tail: tail(line), limit_bytes: self.limit_bytes }
    }

    fn discard_if_oversize(&mut self) {
        if self.partial.len() <= self.limit_bytes {
            return;
        }
        let line = std::mem::take(&mut self.partial);
        let (head, tail) = (head(&line).to_vec(), tail(&line).to_vec());
        self.discarded = Some(Discarded { head, tail });
    }
}

impl Discarded {
    fn add(&mut self, bytes: &[u8]) {
        let missing = KEPT_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(bytes.get(..missing).unwrap_or(bytes));
        self.tail.extend_from_slice(tail(bytes));
        let surplus = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..surplus);
    }
}

fn head(line: &[u8]) -> &[u8] {
    line.get(..KEPT_BYTES).unwrap_or(line)
}

fn tail(line: &[u8]) -> &[u8] {
    line.get(line.len().saturating_sub(KEPT_BYTES)..).unwrap_or(line)
}

#[cfg(test)]
mod tests;
