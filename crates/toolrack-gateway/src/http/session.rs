//! Legacy sessions over HTTP: found by an id that nobody can guess, bounded in number, and ended when unused.
//!
//! **Invariant:** a session that has a request open or somebody who reads is never ended for being idle.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::client_session::Conversation;
use crate::lock::lock;
use crate::message_queue::{Carries, Outbox, Replay};
use crate::subscriptions::answer_notice;

/// Streams of a session that can be read again. The oldest that is over goes when there are more.
const MAX_STREAMS: usize = 64;
/// The stream for what the client did not ask for.
const STANDING: u64 = 0;

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Arc<Session>>>,
    most: usize,
    idle: Duration,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conversation: Arc<Conversation>,
    streams: Mutex<VecDeque<(u64, Arc<Outbox>)>>,
    n_streams: AtomicU64,
    n_present: AtomicUsize,
    last_seen: Mutex<Instant>,
}

/// Somebody who reads a stream of a session.
#[derive(Debug)]
pub(crate) struct Presence(Arc<Session>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.touch();
        self.0.n_present.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Session {
    fn new(conversation: Arc<Conversation>) -> Self {
        Self {
            conversation,
            streams: Mutex::default(),
            n_streams: AtomicU64::new(STANDING),
            n_present: AtomicUsize::new(0),
            last_seen: Mutex::new(Instant::now()),
        }
    }

    pub(crate) fn touch(&self) {
        *lock(&self.last_seen) = Instant::now();
    }

    pub(crate) fn enter(self: &Arc<Self>) -> Presence {
        self.touch();
        self.n_present.fetch_add(1, Ordering::AcqRel);
        Presence(Arc::clone(self))
    }

    /// A stream for the answers to one message.
    pub(crate) fn open_stream(&self, carries: Carries) -> (u64, Arc<Outbox>) {
        let number = self.n_streams.fetch_add(1, Ordering::Relaxed) + 1;
        let mask = self.conversation.shared.manager.mask();
        let out = Arc::new(Outbox::new(Replay::Yes, mask).carrying(carries));
        out.on_loss(answer_notice());
        let mut streams = lock(&self.streams);
        if streams.len() >= MAX_STREAMS
            && let Some(place) = streams.iter().position(|(_, it)| it.is_over())
        {
            streams.remove(place);
        }
        streams.push_back((number, Arc::clone(&out)));
        (number, out)
    }

    /// A stream that was read once whole need not be kept.
    pub(crate) fn close_stream(&self, number: u64) {
        lock(&self.streams).retain(|(it, _)| *it != number);
    }

    /// The stream of an event that a client has seen last, and the number of the next one.
    pub(crate) fn resume(&self, last_event: &str) -> Option<(u64, Arc<Outbox>, u64)> {
        let (stream, number) = last_event.split_once('-')?;
        let stream = stream.parse().ok()?;
        let next =
            if number == "begin" { 0 } else { number.parse::<u64>().ok()?.checked_add(1)? };
        if stream == STANDING {
            return Some((STANDING, Arc::clone(self.conversation.out()), next));
        }
        let streams = lock(&self.streams);
        let (_, out) = streams.iter().find(|(number, _)| *number == stream)?;
        Some((stream, Arc::clone(out), next))
    }

    /// Since when nobody has used it. `None` while somebody does.
    fn unused_since(&self) -> Option<Instant> {
        let is_used = self.n_present.load(Ordering::Acquire) > 0 || self.conversation.n_open() > 0;
        (!is_used).then(|| *lock(&self.last_seen))
    }
}

impl Sessions {
    pub(crate) fn new(most: usize, idle: Duration) -> Self {
        Self { all: Mutex::default(), most, idle }
    }

    /// Keeps a session and gives its id. When there are too many, the one that is unused for longest goes; if
    /// all are in use, there is no room.
    pub(crate) fn add(&self, conversation: Arc<Conversation>) -> Option<String> {
        let id = Uuid::new_v4().simple().to_string();
        let mut all = lock(&self.all);
        let mut gone = None;
        if all.len() >= self.most {
            let unused = all.iter().filter_map(|(id, it)| Some((it.unused_since()?, id)));
            let oldest = unused.min().map(|(_, id)| id.clone())?;
            gone = all.remove(&oldest);
        }
        all.insert(id.clone(), Arc::new(Session::new(conversation)));
        drop(all);
        gone.inspect(|it| it.conversation.end());
        Some(id)
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Session>> {
        let found = lock(&self.all).get(id).map(Arc::clone);
        found.inspect(|it| it.touch())
    }

    /// Ends a session. `false` if there is none.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let found = lock(&self.all).remove(id);
        found.inspect(|it| it.conversation.end()).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.all).len()
    }

    /// Ends what has been unused for too long.
    pub(crate) fn expire(&self) {
        let is_unused =
            |it: &Session| it.unused_since().is_some_and(|since| since.elapsed() >= self.idle);
        let mut all = lock(&self.all);
        let ids: Vec<String> =
            all.iter().filter(|(_, it)| is_unused(it)).map(|(id, _)| id.clone()).collect();
        let gone: Vec<_> = ids.iter().filter_map(|id| all.remove(id)).collect();
        drop(all);
        for session in gone {
            session.conversation.end();
        }
    }

    /// Ends the streams of what clients did not ask for.
    pub(crate) fn hush(&self) {
        for session in lock(&self.all).values() {
            session.conversation.out().finish();
        }
    }

    pub(crate) fn end_all(&self) {
        let all = std::mem::take(&mut *lock(&self.all));
        for session in all.values() {
            session.conversation.end();
        }
    }
}
