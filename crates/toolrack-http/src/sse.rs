//! Server-sent events, read from pieces of any size.
//!
//! Follows the WHATWG rules. What is carried is handed over in a buffer of its own, into which it was
//! written once.
//!
//! **Invariant:** how the bytes were cut changes nothing, no bytes are refused, and memory stays below the
//! limit of one event.

use std::time::Duration;

use bytes::Bytes;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
const DATA: &[u8] = b"data:";
/// How much is kept of an event that is too large, to find out whose it was.
const HEAD_BYTES: usize = 512;
/// The name of an event, its id and the time to wait are short.
const MAX_FIELD_BYTES: usize = 4 << 10;

/// Reads one stream.
#[derive(Debug)]
pub(crate) struct EventReader {
    limit_bytes: usize,
    line: Line,
    /// A line break may be two characters, which may come apart.
    after_return: bool,
    /// The bytes of the mark seen so far; `None` once the stream has begun.
    mark: Option<usize>,
    /// Bytes of `data` lines, each with its line break.
    payload: Vec<u8>,
    is_oversize: bool,
    name: Vec<u8>,
    /// Valid once the event is complete.
    next_id: Option<Vec<u8>>,
    last_id: Option<Box<[u8]>>,
    retry: Option<Duration>,
}

/// What is known of the line that is coming in.
#[derive(Debug)]
enum Line {
    /// Its beginning, or all of it if it carries no payload.
    Field(Vec<u8>),
    /// It is payload, which goes where it belongs at once.
    Payload,
}

/// What a stream brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Something named as usual, or not at all.
    Message(Bytes),
    /// Something named otherwise.
    Named(String, Bytes),
    /// Something over the limit, of which this is the beginning.
    Oversize(Bytes),
}

impl EventReader {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            line: Line::Field(Vec::new()),
            after_return: false,
            mark: Some(0),
            payload: Vec::new(),
            is_oversize: false,
            name: Vec::new(),
            next_id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Begins a new stream that goes on where the last one broke off.
    pub(crate) fn restart(&mut self) {
        let (last_id, retry) = (self.last_id.take(), self.retry);
        *self = Self { last_id, retry, ..Self::new(self.limit_bytes) };
    }

    /// The id of the last event that had one. Empty means that the server took it back.
    pub(crate) fn last_id(&self) -> Option<&[u8]> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// How long the server wants us to wait before we come again.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Takes the next piece and gives every event that is complete.
    pub(crate) fn feed(&mut self, piece: &[u8], take: &mut dyn FnMut(Event)) {
        let mut rest = self.without_mark(piece);
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_return) && rest.first() == Some(&b'\n') {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.extend(rest);
                return;
            };
            let (part, after) = rest.split_at(end);
            self.extend(part);
            self.after_return = after.first() == Some(&b'\r');
            rest = after.get(1..).unwrap_or_default();
            if let Some(event) = self.end_line() {
                take(event);
            }
        }
    }

    /// The mark may come in pieces too. What only began like one is part of the first line.
    fn without_mark<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let Some(n_seen) = self.mark else { return piece };
        let expected = BYTE_ORDER_MARK.get(n_seen..).unwrap_or_default();
        let n_same = piece.iter().zip(expected).take_while(|(a, b)| a == b).count();
        if n_same == expected.len() {
            self.mark = None;
            return piece.get(n_same..).unwrap_or_default();
        }
        if n_same == piece.len() {
            self.mark = Some(n_seen + n_same);
            return &[];
        }
        self.mark = None;
        self.extend(BYTE_ORDER_MARK.get(..n_seen).unwrap_or_default());
        piece
    }

    fn extend(&mut self, part: &[u8]) {
        let Line::Field(begun) = &mut self.line else { return self.extend_payload(part) };
        if begun.is_empty() && part.len() > DATA.len() && part.starts_with(DATA) {
            self.line = Line::Payload;
            return self.extend_payload(without_blank(part.get(DATA.len()..).unwrap_or_default()));
        }
        let room = MAX_FIELD_BYTES.saturating_sub(begun.len());
        let kept = part.len().min(if is_payload(begun, part) { part.len() } else { room });
        begun.extend_from_slice(part.get(..kept).unwrap_or_default());
        if begun.len() > DATA.len() && begun.starts_with(DATA) {
            let begun = std::mem::take(begun);
            self.line = Line::Payload;
            self.extend_payload(without_blank(begun.get(DATA.len()..).unwrap_or_default()));
        }
    }

    fn extend_payload(&mut self, part: &[u8]) {
        if !self.is_oversize && self.payload.len() + part.len() <= self.limit_bytes {
            self.payload.extend_from_slice(part);
            return;
        }
        if !std::mem::replace(&mut self.is_oversize, true) {
            self.payload.truncate(HEAD_BYTES);
            self.payload.shrink_to_fit();
        }
        let missing = HEAD_BYTES.saturating_sub(self.payload.len()).min(part.len());
        self.payload.extend_from_slice(part.get(..missing).unwrap_or_default());
    }

    fn end_line(&mut self) -> Option<Event> {
        match std::mem::replace(&mut self.line, Line::Field(Vec::new())) {
            Line::Payload => self.extend_payload(b"\n"),
            Line::Field(line) if line.is_empty() => return self.dispatch(),
            Line::Field(line) => self.set(&line),
        }
        None
    }

    /// A line that begins with a colon is a comment, and its field has no name.
    fn set(&mut self, line: &[u8]) {
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let (field, value) = line.split_at(colon);
                (field, without_blank(value.get(1..).unwrap_or_default()))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => self.extend_payload(b"\n"),
            b"event" => self.name = value.to_vec(),
            b"id" if !value.contains(&0) => self.next_id = Some(value.to_vec()),
            b"retry" => self.retry = milliseconds(value).or(self.retry),
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        if let Some(id) = self.next_id.take() {
            self.last_id = Some(id.into());
        }
        let name = std::mem::take(&mut self.name);
        let mut payload = std::mem::take(&mut self.payload);
        if std::mem::take(&mut self.is_oversize) {
            return Some(Event::Oversize(payload.into()));
        }
        payload.pop();
        if payload.is_empty() {
            return None;
        }
        Some(match name.as_slice() {
            b"" | b"message" => Event::Message(payload.into()),
            other => Event::Named(String::from_utf8_lossy(other).into_owned(), payload.into()),
        })
    }
}

/// Whether a line that has `begun`, going on with `part`, is or may become payload.
fn is_payload(begun: &[u8], part: &[u8]) -> bool {
    begun.iter().chain(part).zip(DATA).all(|(a, b)| a == b)
}

fn without_blank(value: &[u8]) -> &[u8] {
    value.strip_prefix(b" ").unwrap_or(value)
}

fn milliseconds(value: &[u8]) -> Option<Duration> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
