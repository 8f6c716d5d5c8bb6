//! Message sink over HTTP: the response to one request, or a GET stream, with event replay.
//!
//! **Invariant:** a stream with event ids loses nothing while it is disconnected: events are buffered, and a resuming
//! connection gets them in order.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;

use super::response::{HttpResponse, Phase};
use crate::message_sink::{LongKind, LongMessage, MessageSink};

pub(super) const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Events per stream that can be replayed.
const MAX_BUFFERED_EVENTS: usize = 1024;

/// Form of responses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::scripted) enum ReplyMode {
    /// JSON only; other messages go elsewhere or are dropped.
    Json,
    /// Always an event stream.
    Sse,
    /// JSON, unless there are other messages before the response.
    #[default]
    Auto,
}

/// Format of the events of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamFormat {
    pub(super) reply_mode: ReplyMode,
    /// Stream number in event ids; `None` leaves ids out.
    pub(super) number: Option<u64>,
    /// Event name, as in 2024-11-05.
    pub(super) event: Option<&'static str>,
}

#[derive(Debug)]
pub(super) struct ResponseStream {
    pub(super) stream_format: StreamFormat,
    /// Sink for messages that do not fit into a JSON response.
    fallback: Option<Arc<dyn MessageSink>>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The current connection of the stream.
    response: Option<Arc<HttpResponse>>,
    buffered: VecDeque<(u64, Vec<u8>)>,
    n_events: u64,
    ended: bool,
}

impl Inner {
    /// Moves the stream to a new connection and finishes the old one.
    fn move_to(&mut self, response: &Arc<HttpResponse>) {
        if let Some(old) = self.response.replace(Arc::clone(response)) {
            old.finish();
        }
    }
}

impl ResponseStream {
    pub(super) fn new(
        stream_format: StreamFormat,
        response: Option<Arc<HttpResponse>>,
        fallback: Option<Arc<dyn MessageSink>>,
    ) -> Arc<Self> {
        let inner = Inner { response, ..Inner::default() };
        Arc::new(Self { stream_format, fallback, inner: Mutex::new(inner) })
    }

    /// Opens the stream at once if the response will be a stream anyway.
    pub(super) fn open(&self) {
        let inner = self.inner.lock();
        let Some(response) = &inner.response else { return };
        if self.stream_format.reply_mode == ReplyMode::Sse && !inner.ended {
            response.start(EVENTS, &self.opening_event());
        }
    }

    /// Moves the stream to a new connection and finishes the old one. `first` goes to this connection only.
    pub(super) fn attach(&self, response: &Arc<HttpResponse>, first: &[u8]) {
        let mut inner = self.inner.lock();
        response.start(EVENTS, &[self.opening_event().as_slice(), first].concat());
        inner.move_to(response);
    }

    /// Moves the stream to a new connection and replays everything after an event.
    pub(super) fn resume(&self, after: u64, response: &Arc<HttpResponse>) {
        let mut inner = self.inner.lock();
        response.start(EVENTS, b"");
        // Under the lock, so that no new event overtakes the replay.
        for (_, event) in inner.buffered.iter().filter(|(number, _)| *number > after) {
            response.write(event);
        }
        if inner.ended {
            return response.finish();
        }
        inner.move_to(response);
    }

    fn write_event(&self, inner: &mut Inner, line: &[u8]) {
        inner.n_events += 1;
        let event = [self.event_head(inner.n_events).as_bytes(), line, b"\n\n"].concat();
        if let Some(response) = &inner.response {
            response.start(EVENTS, &self.opening_event());
            response.write(&event);
        }
        if self.stream_format.number.is_some() {
            inner.buffered.push_back((inner.n_events, event));
            if inner.buffered.len() > MAX_BUFFERED_EVENTS {
                inner.buffered.pop_front();
            }
        }
    }

    fn event_head(&self, number: u64) -> String {
        let mut head = String::new();
        if let Some(stream) = self.stream_format.number {
            // Writing to a string cannot fail, here and below.
            writeln!(head, "id: {stream}-{number}").unwrap_or_default();
        }
        if let Some(name) = self.stream_format.event {
            writeln!(head, "event: {name}").unwrap_or_default();
        }
        head.push_str("data: ");
        head
    }

    /// Spec 2025-11-25, streams: the first event has an id and no data, so that any interruption can be resumed.
    fn opening_event(&self) -> Vec<u8> {
        let stream = self.stream_format.number;
        stream.map(|stream| format!("id: {stream}-0\ndata:\n\n").into_bytes()).unwrap_or_default()
    }

    /// The connection, if the response can still be plain JSON.
    fn json_reply(&self, inner: &Inner) -> Option<Arc<HttpResponse>> {
        let response = inner.response.as_ref()?;
        let can =
            self.stream_format.reply_mode != ReplyMode::Sse && response.phase() == Phase::Waiting;
        can.then(|| Arc::clone(response))
    }
}

impl MessageSink for ResponseStream {
    fn send(&self, line: &[u8]) {
        let mut inner = self.inner.lock();
        if self.stream_format.reply_mode == ReplyMode::Json {
            drop(inner);
            if let Some(fallback) = &self.fallback {
                fallback.send(line);
            }
            return;
        }
        self.write_event(&mut inner, line);
    }

    fn respond(&self, line: &[u8]) {
        let mut inner = self.inner.lock();
        match self.json_reply(&inner) {
            Some(response) => response.send_complete(JSON, line),
            None => self.write_event(&mut inner, line),
        }
    }

    fn send_long(&self, message: &LongMessage<'_>) {
        let inner = self.inner.lock();
        let Some(response) = &inner.response else { return };
        if message.kind == LongKind::Response && self.json_reply(&inner).is_some() {
            response.start(JSON, b"");
            return message.write(b"", b"", |piece| response.write(piece));
        }
        if self.stream_format.reply_mode == ReplyMode::Json {
            return;
        }
        response.start(EVENTS, &self.opening_event());
        let head = self.event_head(inner.n_events + 1);
        message.write(head.as_bytes(), b"\n\n", |piece| response.write(piece));
    }

    fn write_raw(&self, bytes: &[u8]) {
        let inner = self.inner.lock();
        let Some(response) = &inner.response else { return };
        let kind = if self.json_reply(&inner).is_some() { JSON } else { EVENTS };
        response.start(kind, b"");
        response.write(bytes);
    }

    fn finish(&self) {
        let mut inner = self.inner.lock();
        inner.ended = true;
        if let Some(response) = &inner.response {
            response.finish();
        }
    }

    fn set_status(&self, status: u16) {
        if let Some(response) = &self.inner.lock().response {
            response.set_status(status);
        }
    }

    fn is_broken(&self) -> bool {
        self.inner.lock().response.as_ref().is_none_or(|response| response.phase() == Phase::Done)
    }
}

#[derive(Debug)]
pub(super) struct Sse2024Sink {
    pub(super) post: Arc<HttpResponse>,
    pub(super) stream: Arc<ResponseStream>,
}

impl MessageSink for Sse2024Sink {
    fn send(&self, line: &[u8]) {
        self.stream.send(line);
    }

    fn send_long(&self, message: &LongMessage<'_>) {
        self.stream.send_long(message);
    }

    fn write_raw(&self, bytes: &[u8]) {
        self.stream.write_raw(bytes);
    }

    fn finish(&self) {
        self.post.finish();
    }

    fn set_status(&self, status: u16) {
        self.post.set_status(status);
    }

    fn is_broken(&self) -> bool {
        self.stream.is_broken()
    }
}
