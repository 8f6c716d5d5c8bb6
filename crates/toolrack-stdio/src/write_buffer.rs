//! Messages on their way out, in one run of bytes, with the borders between them remembered.
//!
//! Buffers at rest hold no memory: all that are emptied on one thread share what one of them had.

use std::cell::RefCell;
use std::collections::VecDeque;

/// What one thread keeps at most for the next buffer that is filled.
const SPARE_BYTES: usize = 256 << 10;
const SPARE_MESSAGES: usize = 4 << 10;

/// Sent bytes beyond this are moved out of the way even if the rest is still waiting.
const COMPACT_BYTES: usize = 256 << 10;

thread_local! {
    static SPARE: RefCell<Buffer> = const { RefCell::new(Buffer::new()) };
}

/// Bytes to send, first in, first out.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Bytes at the start that have left already.
    n_sent: usize,
    messages: VecDeque<Message>,
    /// Bytes of the first message that have left already.
    n_begun: usize,
}

/// A message that has not left completely. Only requests have an id.
#[derive(Debug, Clone, Copy)]
struct Message {
    id: Option<u64>,
    n_bytes: usize,
}

impl Buffer {
    const fn new() -> Self {
        Self { bytes: Vec::new(), n_sent: 0, messages: VecDeque::new(), n_begun: 0 }
    }

    /// Appends what `write` writes. If that fails, nothing has happened.
    pub(crate) fn append<E>(
        &mut self,
        id: Option<u64>,
        write: &dyn Fn(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.bytes.capacity() == 0 {
            *self = SPARE.try_with(RefCell::take).unwrap_or_default();
        }
        let before = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(before);
            return Err(error);
        }
        self.messages.push_back(Message { id, n_bytes: self.bytes.len() - before });
        Ok(())
    }

    /// What is still to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.n_sent..).unwrap_or_default()
    }

    /// How many messages have not left completely.
    pub(crate) fn n_messages(&self) -> usize {
        self.messages.len()
    }

    /// Notes that the first `n_bytes` of what was unsent have left.
    pub(crate) fn advance(&mut self, n_bytes: usize) {
        self.n_sent += n_bytes;
        self.n_begun += n_bytes;
        while let Some(first) = self.messages.front().filter(|first| first.n_bytes <= self.n_begun)
        {
            self.n_begun -= first.n_bytes;
            self.messages.pop_front();
        }
        if self.messages.is_empty() {
            self.bytes.clear();
            self.n_sent = 0;
        } else if self.n_sent > COMPACT_BYTES && self.n_sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.n_sent);
            self.n_sent = 0;
        }
    }

    /// Appends what is unsent of a buffer that was filled later.
    pub(crate) fn absorb(&mut self, later: Buffer) {
        self.bytes.extend_from_slice(later.unsent());
        self.messages.extend(&later.messages);
        later.rest();
    }

    /// Leaves the memory, but nothing of what is in it, to the next buffer that is filled on this thread.
    pub(crate) fn rest(mut self) {
        self.bytes.clear();
        self.messages.clear();
        let rested = Self { bytes: self.bytes, messages: self.messages, ..Self::new() };
        // A thread that is ending keeps nothing.
        let _is_kept = SPARE.try_with(|spare| {
            // The larger one is the one that had to grow.
            if rested.is_spare() && spare.borrow().bytes.capacity() < rested.bytes.capacity() {
                spare.replace(rested);
            }
        });
    }

    fn is_spare(&self) -> bool {
        self.bytes.capacity() <= SPARE_BYTES && self.messages.capacity() <= SPARE_MESSAGES
    }

    /// Takes a request out, unless some of it has left.
    pub(crate) fn withdraw(&mut self, id: u64) -> bool {
        let Some(index) = self.messages.iter().position(|message| message.id == Some(id)) else {
            return false;
        };
        if index == 0 && self.n_begun > 0 {
            return false;
        }
        let before: usize = self.messages.iter().take(index).map(|message| message.n_bytes).sum();
        let start = self.n_sent + before - self.n_begun;
        if let Some(message) = self.messages.remove(index) {
            self.bytes.drain(start..start + message.n_bytes);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn append(buffer: &mut Buffer, id: u64, text: &str) {
        let write = |out: &mut Vec<u8>| -> Result<(), ()> {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        };
        buffer.append(Some(id), &write).unwrap();
    }

    #[test]
    fn a_message_can_be_taken_back_until_its_first_byte_leaves() {
        let mut buffer = Buffer::default();
        for (id, text) in [(1, "one;"), (2, "two;"), (3, "three;")] {
            append(&mut buffer, id, text);
        }
        buffer.advance(2);
        assert!(!buffer.withdraw(1), "it has begun to leave");
        assert!(buffer.withdraw(2));
        assert!(!buffer.withdraw(2), "only once");
        assert_eq!(buffer.unsent(), b"e;three;");
        buffer.advance(2);
        assert!(buffer.withdraw(3));
        assert_eq!((buffer.unsent(), buffer.n_messages()), (b"".as_slice(), 0));
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let mut buffer = Buffer::default();
        append(&mut buffer, 1, "one;");
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"half");
            Err(())
        };
        assert_eq!(buffer.append(Some(2), &write), Err(()));
        assert_eq!((buffer.unsent(), buffer.n_messages()), (b"one;".as_slice(), 1));
    }

    #[test]
    fn the_memory_of_a_buffer_at_rest_serves_the_next() {
        let mut first = Buffer::default();
        append(&mut first, 1, &"x".repeat(10_000));
        first.advance(10_000);
        first.rest();
        let mut second = Buffer::default();
        assert_eq!(second.bytes.capacity(), 0, "it takes nothing before it needs it");
        append(&mut second, 2, "two;");
        assert_eq!((second.unsent(), second.n_messages()), (b"two;".as_slice(), 1));
        assert!(second.bytes.capacity() >= 10_000);
    }

    #[test]
    fn a_thread_keeps_little_memory() {
        let mut buffer = Buffer::default();
        append(&mut buffer, 1, &"x".repeat(2 * SPARE_BYTES));
        buffer.rest();
        assert!(SPARE.take().bytes.capacity() <= SPARE_BYTES);
    }

    #[test]
    fn what_was_left_goes_before_what_came_later() {
        let (mut first, mut later) = (Buffer::default(), Buffer::default());
        append(&mut first, 1, "one;");
        append(&mut first, 2, "two;");
        first.advance(5);
        append(&mut later, 3, "three;");
        first.absorb(later);
        assert!(!first.withdraw(2), "it has begun to leave");
        assert_eq!((first.unsent(), first.n_messages()), (b"wo;three;".as_slice(), 2));
        assert!(first.withdraw(3));
        assert_eq!(first.unsent(), b"wo;");
    }

    proptest! {
        /// Whatever is put in, taken back and sent in whatever pieces: what leaves is whole messages
        /// in order, without those that were taken back.
        #[test]
        fn what_leaves_is_what_was_not_taken_back(
            steps in proptest::collection::vec((0_u8..3, 1_usize..40), 1..60),
        ) {
            let (mut buffer, mut sent, mut expected) = (Buffer::default(), Vec::new(), Vec::new());
            for (id, (kind, size)) in steps.into_iter().enumerate() {
                let id = id as u64;
                match kind {
                    0 => {
                        let text = format!("{id}:{};", "x".repeat(size));
                        append(&mut buffer, id, &text);
                        expected.push((id, text));
                    }
                    1 => {
                        let n_bytes = size.min(buffer.unsent().len());
                        sent.extend_from_slice(&buffer.unsent()[..n_bytes]);
                        buffer.advance(n_bytes);
                    }
                    _ => {
                        let chosen = id.saturating_sub(size as u64);
                        if buffer.withdraw(chosen) {
                            expected.retain(|(id, _)| *id != chosen);
                        }
                    }
                }
            }
            sent.extend_from_slice(buffer.unsent());
            let expected: String = expected.into_iter().map(|(_, text)| text).collect();
            prop_assert_eq!(String::from_utf8(sent).unwrap(), expected);
        }
    }
}
