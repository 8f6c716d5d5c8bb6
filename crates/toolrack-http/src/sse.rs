//! SSE parser: incremental, for chunks of any size.
//!
//! Follows the WHATWG rules. Event data is written once, into a buffer of its own that is handed to the caller.
//!
//! **Invariant:** chunk boundaries have no effect, no input is an error, and memory stays below the limit of
//! one event.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::time::Duration;

use bytes::Bytes;

use crate::http1::parse_digits;

const BOM: &[u8] = "\u{feff}".as_bytes();
const DATA_PREFIX: &[u8] = b"data:";
/// Bytes kept of an oversize event, enough to find its request id.
const MAX_HEAD_BYTES: usize = 512;
/// The longest reconnection delay. A longer one would keep the stream closed for good.
const MAX_RETRY: Duration = Duration::from_mins(5);
/// Limit for event type, id and retry fields.
const MAX_FIELD_BYTES: usize = 4 << 10;

/// Parser of one stream.
#[derive(Debug)]
pub(crate) struct SseParser {
    limit_bytes: usize,
    line: LineState,
    /// The last byte was `\r`; a following `\n`, possibly in the next chunk, belongs to it.
    after_cr: bool,
    /// Bytes of the byte order mark seen so far; `None` once the stream has started.
    bom_seen: Option<usize>,
    /// Content of `data` lines, each with its line break.
    data: Vec<u8>,
    is_too_large: bool,
    event_type: Vec<u8>,
    /// Takes effect when the event is complete.
    next_id: Option<Vec<u8>>,
    last_id: Option<Box<[u8]>>,
    retry: Option<Duration>,
    /// Bytes of this chunk that are neither kept as data of an event nor the field name of such data.
    other_bytes: usize,
}

/// Line being read.
#[derive(Debug)]
enum LineState {
    /// Its start, or all of it if it is not a `data` line.
    Field(Vec<u8>),
    /// A `data` line, whose content goes directly to `data`.
    Data,
}

/// Parsed event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SseEvent {
    /// An event of type `message`, or without a type.
    Message(Bytes),
    /// An event of another type.
    Other(String, Bytes),
    /// An event over the limit, with its first bytes.
    TooLarge(Bytes),
}

impl SseParser {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            line: LineState::Field(Vec::new()),
            after_cr: false,
            bom_seen: Some(0),
            data: Vec::new(),
            is_too_large: false,
            event_type: Vec::new(),
            next_id: None,
            last_id: None,
            retry: None,
            other_bytes: 0,
        }
    }

    /// Starts a new stream that resumes the last one.
    pub(crate) fn restart(&mut self) {
        let (last_id, retry) = (self.last_id.take(), self.retry);
        *self = Self { last_id, retry, ..Self::new(self.limit_bytes) };
    }

    /// Id of the last event that had one. An empty id resets it.
    pub(crate) fn last_id(&self) -> Option<&[u8]> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Reconnection delay that the server asked for, up to [`MAX_RETRY`].
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.retry.map(|retry| retry.min(MAX_RETRY))
    }

    /// Parses the next chunk and calls `on_event` for every complete event. Returns how many bytes are not data that is
    /// kept, and so not limited by the size of an event: comments, other fields, and the rest of an oversize event.
    pub(crate) fn feed(&mut self, chunk: &[u8], on_event: &mut dyn FnMut(SseEvent)) -> usize {
        self.other_bytes = 0;
        self.parse(chunk, on_event);
        self.other_bytes
    }

    fn parse(&mut self, chunk: &[u8], on_event: &mut dyn FnMut(SseEvent)) {
        let mut rest = self.skip_bom(chunk);
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.extend(rest);
                return;
            };
            let (part, after) = rest.split_at(end);
            self.extend(part);
            self.after_cr = after.first() == Some(&b'\r');
            rest = after.get(1..).unwrap_or_default();
            if let Some(event) = self.end_line() {
                on_event(event);
            }
        }
    }

    /// Skips the byte order mark, which may be split too. A partial match is part of the first line.
    fn skip_bom<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let Some(n_seen) = self.bom_seen else { return chunk };
        let expected = BOM.get(n_seen..).unwrap_or_default();
        let n_same = chunk.iter().zip(expected).take_while(|(a, b)| a == b).count();
        if n_same == expected.len() {
            self.bom_seen = None;
            return chunk.get(n_same..).unwrap_or_default();
        }
        if n_same == chunk.len() {
            self.bom_seen = Some(n_seen + n_same);
            return &[];
        }
        self.bom_seen = None;
        self.extend(BOM.get(..n_seen).unwrap_or_default());
        chunk
    }

    fn extend(&mut self, part: &[u8]) {
        let LineState::Field(line_start) = &mut self.line else { return self.extend_data(part) };
        // Common case: the chunk has the start of a `data` line, whose content needs no buffer of its own.
        if line_start.is_empty() && part.len() > DATA_PREFIX.len() && part.starts_with(DATA_PREFIX)
        {
            self.line = LineState::Data;
            return self
                .extend_data(strip_space(part.get(DATA_PREFIX.len()..).unwrap_or_default()));
        }
        let room = MAX_FIELD_BYTES.saturating_sub(line_start.len());
        // A possible `data` line is not cut here: `extend_data` applies the limit of the event to
        // it.
        let kept = part.len().min(if may_be_data(line_start, part) { part.len() } else { room });
        line_start.extend_from_slice(part.get(..kept).unwrap_or_default());
        if line_start.len() > DATA_PREFIX.len() && line_start.starts_with(DATA_PREFIX) {
            let line_start = std::mem::take(line_start);
            self.line = LineState::Data;
            self.extend_data(strip_space(line_start.get(DATA_PREFIX.len()..).unwrap_or_default()));
        } else {
            self.other_bytes += part.len();
        }
    }

    fn extend_data(&mut self, part: &[u8]) {
        if !self.is_too_large && self.data.len() + part.len() <= self.limit_bytes {
            self.data.extend_from_slice(part);
            return;
        }
        self.other_bytes += part.len();
        // The memory is freed at once, because the rest of the event may be endless.
        if !std::mem::replace(&mut self.is_too_large, true) {
            self.data.truncate(MAX_HEAD_BYTES);
            self.data.shrink_to_fit();
        }
        let missing = MAX_HEAD_BYTES.saturating_sub(self.data.len()).min(part.len());
        self.data.extend_from_slice(part.get(..missing).unwrap_or_default());
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        match std::mem::replace(&mut self.line, LineState::Field(Vec::new())) {
            LineState::Data => self.extend_data(b"\n"),
            LineState::Field(line) => {
                self.other_bytes += 1;
                if line.is_empty() {
                    return self.dispatch_event();
                }
                self.process_field(&line);
            }
        }
        None
    }

    /// A line that starts with a colon is a comment: its field name is empty.
    fn process_field(&mut self, line: &[u8]) {
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let (field, value) = line.split_at(colon);
                (field, strip_space(value.get(1..).unwrap_or_default()))
            }
            None => (line, &[][..]),
        };
        match field {
            // Only reached by a `data` line without content, which still adds a line.
            b"data" => self.extend_data(b"\n"),
            b"event" => self.event_type = value.to_vec(),
            // WHATWG: an id with a NUL is ignored.
            b"id" if !value.contains(&0) => self.next_id = Some(value.to_vec()),
            b"retry" => {
                self.retry = parse_digits(value, 10).map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
    }

    fn dispatch_event(&mut self) -> Option<SseEvent> {
        // Also for an event without data: servers send one to make the stream resumable
        // (2025-11-25).
        if let Some(id) = self.next_id.take() {
            self.last_id = Some(id.into());
        }
        let event_type = std::mem::take(&mut self.event_type);
        let mut data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.is_too_large) {
            return Some(SseEvent::TooLarge(data.into()));
        }
        data.pop();
        if data.is_empty() {
            return None;
        }
        Some(match event_type.as_slice() {
            b"" | b"message" => SseEvent::Message(data.into()),
            other => SseEvent::Other(String::from_utf8_lossy(other).into_owned(), data.into()),
        })
    }
}

/// Whether a line of `line_start` and `part` is, or may become, a `data` line.
fn may_be_data(line_start: &[u8], part: &[u8]) -> bool {
    line_start.iter().chain(part).zip(DATA_PREFIX).all(|(a, b)| a == b)
}

fn strip_space(value: &[u8]) -> &[u8] {
    value.strip_prefix(b" ").unwrap_or(value)
}

#[cfg(test)]
mod tests;
