//! A way back over HTTP: the reply to one request, or the stream that a GET opened, and what was said on it.
//!
//! **Invariant:** on a stream with event ids nothing is lost while its connection is away: what is said meanwhile
//! is kept, and a connection that takes the stream up again gets it in order.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::response::Place;
use super::response::{Phase, Reply};
use crate::message_sink::{Long, LongKind, Outlet};
use crate::plan::HttpFault;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// So many events of a stream can be taken up again.
const MAX_KEPT: usize = 1024;

/// How requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::scripted) enum Replies {
    /// One JSON text, whatever else there is to say.
    Json,
    /// Always a stream.
    Sse,
    /// JSON, unless there is more to say than the answer.
    Auto,
}

/// What the events of a stream look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dress {
    pub(super) replies: Replies,
    /// The number of the stream in its events' ids; nothing leaves ids out.
    pub(super) number: Option<u64>,
    /// 2024-11-05 names its events.
    pub(super) event: Option<&'static str>,
    pub(super) retry: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Stream {
    dress: Dress,
    /// Where messages go for which an answer in JSON has no room.
    aside: Option<Arc<dyn Outlet>>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The connection that the stream goes over at present.
    reply: Option<Arc<Reply>>,
    kept: VecDeque<(u64, Vec<u8>)>,
    n_events: u64,
    ended: bool,
}

impl Stream {
    pub(super) fn new(
        dress: Dress,
        reply: Option<Arc<Reply>>,
        aside: Option<Arc<dyn Outlet>>,
    ) -> Arc<Self> {
        let inner = Inner { reply, ..Inner::default() };
        Arc::new(Self { dress, aside, inner: Mutex::new(inner) })
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.dress.number
    }

    /// Begins the stream at once where it need not wait for something to say.
    pub(super) fn open(&self) {
        let inner = self.lock();
        let Some(reply) = &inner.reply else { return };
        let now = self.dress.replies == Replies::Sse || reply.needs_stream();
        if now && !inner.ended && reply.phase() == Phase::Waiting {
            reply.start(EVENTS, &self.greeting());
        }
    }

    /// Goes on over a new connection; the old one ends. The first words are for this connection only.
    pub(super) fn attach(&self, reply: &Arc<Reply>, first: &[u8]) {
        let mut inner = self.lock();
        reply.start(EVENTS, &[self.greeting().as_slice(), first].concat());
        if let Some(old) = inner.reply.replace(Arc::clone(reply)) {
            old.finish();
        }
    }

    /// Goes on over a new connection with everything after an event.
    pub(super) fn resume(&self, after: u64, reply: &Arc<Reply>) {
        let mut inner = self.lock();
        reply.start(EVENTS, b"");
        for (_, event) in inner.kept.iter().filter(|(number, _)| *number > after) {
            reply.write(event);
        }
        if inner.ended {
            return reply.finish();
        }
        if let Some(old) = inner.reply.replace(Arc::clone(reply)) {
            old.finish();
        }
    }

    /// Breaks the connection off.
    pub(super) fn break_off(&self) {
        if let Some(reply) = self.lock().reply.take() {
            reply.close();
        }
    }

    fn say(&self, inner: &mut Inner, line: &[u8]) -> bool {
        inner.n_events += 1;
        let event = self.event(inner.n_events, line);
        let said = inner
            .reply
            .as_ref()
            .is_some_and(|reply| reply.start(EVENTS, &self.greeting()) && reply.write(&event));
        if self.dress.number.is_some() {
            inner.kept.push_back((inner.n_events, event));
            if inner.kept.len() > MAX_KEPT {
                inner.kept.pop_front();
            }
        }
        said
    }

    fn event(&self, number: u64, line: &[u8]) -> Vec<u8> {
        let mut event = self.event_head(number).into_bytes();
        event.extend_from_slice(line);
        event.extend_from_slice(b"\n\n");
        event
    }

    fn event_head(&self, number: u64) -> String {
        let mut head = String::new();
        if let Some(stream) = self.dress.number {
            // Writing to a string cannot fail, here and below.
            writeln!(head, "id: {stream}-{number}").unwrap_or_default();
        }
        if let Some(name) = self.dress.event {
            writeln!(head, "event: {name}").unwrap_or_default();
        }
        head.push_str("data: ");
        head
    }

    /// Spec 2025-11-25, streams: an event with an id and no data comes first, so that any break can be mended.
    fn greeting(&self) -> Vec<u8> {
        let mut greeting = String::new();
        if let Some(retry) = self.dress.retry {
            writeln!(greeting, "retry: {}", retry.as_millis()).unwrap_or_default();
        }
        match self.dress.number {
            Some(stream) => writeln!(greeting, "id: {stream}-0\ndata:\n").unwrap_or_default(),
            None if !greeting.is_empty() => greeting.push('\n'),
            None => (),
        }
        greeting.into_bytes()
    }

    /// The connection on which one answer in JSON can be given.
    fn json_reply(&self, inner: &Inner) -> Option<Arc<Reply>> {
        let reply = inner.reply.as_ref()?;
        let can = self.dress.replies != Replies::Sse
            && !reply.needs_stream()
            && reply.phase() == Phase::Waiting;
        can.then(|| Arc::clone(reply))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet for Stream {
    fn put(&self, line: &[u8]) {
        let mut inner = self.lock();
        if self.dress.replies == Replies::Json {
            drop(inner);
            if let Some(aside) = &self.aside {
                aside.put(line);
            }
            return;
        }
        self.say(&mut inner, line);
    }

    fn answer(&self, line: &[u8]) {
        let mut inner = self.lock();
        if let (Some(reply), Some(aside)) = (&inner.reply, &self.aside)
            && reply.place() == Place::Elsewhere
        {
            return aside.put(line);
        }
        match self.json_reply(&inner) {
            Some(reply) => reply.whole(JSON, line),
            None => {
                if let Some(reply) = &inner.reply {
                    reply.start(EVENTS, &self.greeting());
                    reply.before_answer();
                }
                self.say(&mut inner, line);
            }
        }
    }

    fn answer_bytewise(&self, line: &[u8]) {
        let inner = self.lock();
        let Some(reply) = &inner.reply else { return };
        let bytes = match self.json_reply(&inner) {
            Some(_) => {
                reply.start(JSON, b"");
                line.to_vec()
            }
            None => {
                reply.start(EVENTS, &self.greeting());
                self.event(inner.n_events + 1, line)
            }
        };
        for byte in bytes.chunks(1) {
            reply.write(byte);
        }
    }

    fn put_long(&self, message: &Long<'_>) {
        let inner = self.lock();
        let Some(reply) = &inner.reply else { return };
        let as_json = message.kind == LongKind::Answer && self.json_reply(&inner).is_some();
        if as_json {
            reply.start(JSON, b"");
            return message.pour(|piece| reply.write(piece));
        }
        if self.dress.replies == Replies::Json {
            return;
        }
        reply.start(EVENTS, &self.greeting());
        reply.write(self.event_head(inner.n_events + 1).as_bytes());
        message.pour(|piece| reply.write(piece));
        if message.kind != LongKind::Open {
            reply.write(b"\n\n");
        }
    }

    fn write_raw(&self, bytes: &[u8]) {
        let inner = self.lock();
        let Some(reply) = &inner.reply else { return };
        let kind = if self.json_reply(&inner).is_some() { JSON } else { EVENTS };
        reply.start(kind, b"");
        reply.write(bytes);
    }

    fn flush(&self) {}

    fn finish(&self) {
        let mut inner = self.lock();
        inner.ended = true;
        if let Some(reply) = &inner.reply {
            reply.finish();
        }
    }

    fn set_status(&self, status: u16) {
        if let Some(reply) = &self.lock().reply {
            reply.set_status(status);
        }
    }

    fn misbehave(&self, fault: &HttpFault) {
        if let Some(reply) = &self.lock().reply {
            reply.misbehave(fault);
        }
    }

    fn is_broken(&self) -> bool {
        self.lock().reply.as_ref().is_none_or(|reply| reply.phase() == Phase::Done)
    }
}

#[derive(Debug)]
pub(super) struct Detour {
    pub(super) post: Arc<Reply>,
    pub(super) stream: Arc<Stream>,
}

impl Outlet for Detour {
    fn put(&self, line: &[u8]) {
        self.stream.put(line);
    }

    fn answer_bytewise(&self, line: &[u8]) {
        self.stream.answer_bytewise(line);
    }

    fn put_long(&self, message: &Long<'_>) {
        self.stream.put_long(message);
    }

    fn write_raw(&self, bytes: &[u8]) {
        self.stream.write_raw(bytes);
    }

    fn flush(&self) {}

    fn finish(&self) {
        self.post.finish();
    }

    /// What concerns a stream goes wrong with the stream, and the rest with the POST.
    fn misbehave(&self, fault: &HttpFault) {
        match fault {
            HttpFault::Cut(_) | HttpFault::End(_) => self.stream.break_off(),
            _ => self.post.misbehave(fault),
        }
    }

    fn is_broken(&self) -> bool {
        self.stream.is_broken()
    }
}
