//! Bytes from a pipe, cut into lines.
//!
//! Short lines are cut out of a buffer that belongs to nobody in particular; a line that does not fit
//! is gathered in a buffer of its own, which is then handed over whole. A line beyond the limit is
//! thrown away while it comes in, except for its two ends.
//!
//! **Invariant:** between reads, memory is held only for a line that has begun and not ended.

use bytes::{Bytes, BytesMut};

/// What is kept of each end of a line that is thrown away; enough to find the id in.
const KEPT_BYTES: usize = 512;

/// Lines at least this long are handed over with their buffer instead of being copied out of it.
const OWN_BUFFER_BYTES: usize = 32 << 10;

/// How much room a read gets while a long line is gathered.
const READ_BYTES: usize = 64 << 10;

/// Cuts a stream into lines.
#[derive(Debug)]
pub(crate) struct Splitter {
    limit_bytes: usize,
    partial: BytesMut,
    discarded: Option<Discarded>,
}

/// A piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A line in a buffer that will be used again.
    Line(&'a [u8]),
    /// A line with a buffer of its own.
    Owned(Bytes),
    /// The ends of a line that was too long.
    Oversize { head: &'a [u8], tail: &'a [u8], limit_bytes: usize },
}

/// The ends of a line that is being thrown away.
#[derive(Debug)]
struct Discarded {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Splitter {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, partial: BytesMut::new(), discarded: None }
    }

    /// The buffer to read into, if a line has begun that should be gathered in place. Otherwise the
    /// caller reads into a buffer of its own choice and uses [`Splitter::feed`].
    pub(crate) fn gathering(&mut self) -> Option<&mut BytesMut> {
        if self.partial.is_empty() {
            return None;
        }
        // Doubling keeps the work linear, however large the line grows.
        let room = self.partial.capacity() - self.partial.len();
        if room < READ_BYTES / 2 {
            self.partial.reserve(self.partial.len().max(READ_BYTES));
        }
        Some(&mut self.partial)
    }

    /// Takes bytes that were read into the buffer of [`Splitter::gathering`], of which the first
    /// `known_bytes` had been seen before.
    pub(crate) fn gathered(&mut self, known_bytes: usize, sink: &mut dyn FnMut(Piece<'_>)) {
        let news = self.partial.get(known_bytes..).unwrap_or_default();
        let Some(offset) = memchr::memchr(b'\n', news) else {
            self.give_up_if_too_long();
            return;
        };
        let mut rest = std::mem::take(&mut self.partial);
        let line_bytes = known_bytes + offset;
        if line_bytes > self.limit_bytes {
            let (line, after) = rest.split_at_checked(line_bytes).unwrap_or_default();
            sink(self.oversize(line));
            self.feed(after.get(1..).unwrap_or_default(), sink);
            return;
        }
        if line_bytes < OWN_BUFFER_BYTES {
            self.feed(&rest, sink);
            return;
        }
        let line = rest.split_to(line_bytes);
        sink(Piece::Owned(line.freeze()));
        self.feed(rest.get(1..).unwrap_or_default(), sink);
    }

    /// Takes bytes from a buffer that will be used again.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(Piece<'_>)) {
        if let Some(discarded) = &mut self.discarded {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                discarded.add(bytes);
                return;
            };
            let (last, rest) = bytes.split_at_checked(end).unwrap_or_default();
            discarded.add(last);
            let (head, tail) = (&discarded.head, &discarded.tail);
            sink(Piece::Oversize { head, tail, limit_bytes: self.limit_bytes });
            self.discarded = None;
            bytes = rest.get(1..).unwrap_or_default();
        }
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at_checked(end).unwrap_or_default();
            let is_too_long = line.len() > self.limit_bytes;
            sink(if is_too_long { self.oversize(line) } else { Piece::Line(line) });
            bytes = rest.get(1..).unwrap_or_default();
        }
        if !bytes.is_empty() {
            self.partial.extend_from_slice(bytes);
            self.give_up_if_too_long();
        }
    }

    fn oversize<'a>(&self, line: &'a [u8]) -> Piece<'a> {
        Piece::Oversize { head: head(line), tail: tail(line), limit_bytes: self.limit_bytes }
    }

    fn give_up_if_too_long(&mut self) {
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
