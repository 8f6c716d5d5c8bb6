//! What happened lately, in order, for any number of readers who may come back.
//!
//! Readers have no queues: each remembers the number of the event it wants next and looks it up here. Whoever was
//! too slow finds it gone, and is told how many are missing.
//!
//! **Invariant:** telling never waits, and memory is bounded however slow the readers are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::watch;
use toolrack_manager::{CallOutcome, RackEvent};
use toolrack_transport::{Delivery, plain_text};
use utoipa::ToSchema;

/// How many events are kept.
const CAPACITY: usize = 4096;

/// The latest events.
#[derive(Debug)]
pub(crate) struct Feed {
    /// Tells events of this daemon from those of one that ran before.
    run: Arc<str>,
    ring: Mutex<Ring>,
    /// The number of the next event.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Arc<Told>>,
}

/// Where a reader is.
#[derive(Debug)]
pub(crate) struct Reader {
    feed: Arc<Feed>,
    next: u64,
    news: watch::Receiver<u64>,
    /// Whether the reader comes from an earlier run, and does not know yet what it missed.
    stranger: bool,
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Portion {
    /// An event and its number.
    Event(u64, Arc<Told>),
    /// So many events are gone. `None` if they were of an earlier run and nobody has counted them.
    Missed(u64, Option<u64>),
}

impl Feed {
    pub(crate) fn new(run: &str) -> Self {
        Self { run: run.into(), ring: Mutex::default(), next: watch::Sender::new(0) }
    }

    pub(crate) fn tell(&self, time_ms: u64, what: Happening) {
        let mut ring = self.ring();
        ring.events.push_back(Arc::new(Told { time_ms, what }));
        if ring.events.len() > CAPACITY {
            ring.events.pop_front();
            ring.first += 1;
        }
        let next = ring.first + ring.events.len() as u64;
        drop(ring);
        self.next.send_replace(next);
    }

    /// The id under which an event is known outside.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }

    /// Reads on behind the event with this id, or from now on if there is none.
    pub(crate) fn read(self: &Arc<Self>, last: Option<&str>) -> Reader {
        let news = self.next.subscribe();
        let now = *news.borrow();
        let (next, stranger) = match last.map(|it| resume(&self.run, it)) {
            None => (now, false),
            Some(Some(last)) if last < now => (last + 1, false),
            // Another run, or a number that we never gave.
            Some(_) => (0, true),
        };
        Reader { feed: Arc::clone(self), next, news, stranger }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of an event of this run.
fn resume(run: &str, id: &str) -> Option<u64> {
    id.strip_prefix(run)?.strip_prefix('-')?.parse().ok()
}

impl Reader {
    /// What comes next, as soon as there is something. `None` once the feed is gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Portion> {
        loop {
            self.news.borrow_and_update();
            if let Some(portion) = self.take() {
                return Some(portion);
            }
            self.news.changed().await.ok()?;
        }
    }

    fn take(&mut self) -> Option<Portion> {
        let ring = self.feed.ring();
        if std::mem::take(&mut self.stranger) {
            self.next = ring.first;
            return Some(Portion::Missed(ring.first.saturating_sub(1), None));
        }
        if self.next < ring.first {
            let missed = ring.first - self.next;
            self.next = ring.first;
            return Some(Portion::Missed(ring.first - 1, Some(missed)));
        }
        let place = usize::try_from(self.next - ring.first).ok()?;
        let event = Arc::clone(ring.events.get(place)?);
        self.next += 1;
        Some(Portion::Event(self.next - 1, event))
    }
}

// What happens to servers and calls, as it is told outside.

/// The longest line of a server that is passed on.
const LINE_CHARS: usize = 2000;

/// An event and when it was heard of.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Told {
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    #[serde(flatten)]
    pub(crate) what: Happening,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Happening {
    /// A server stands elsewhere now.
    State {
        #[schema(value_type = String)]
        server: Arc<str>,
        /// `disabled`, `disconnected`, `connecting`, `connected`, `needs-auth`, `failed` or `backing-off`.
        state: &'static str,
        /// Why, if something went wrong.
        reason: Option<String>,
    },
    /// A server that is being connected has come further.
    Phase {
        #[schema(value_type = String)]
        server: Arc<str>,
        /// `installing`, `starting`, `handshake` or `listing`.
        phase: &'static str,
    },
    /// What installs the package of a server said.
    Install {
        #[schema(value_type = String)]
        server: Arc<str>,
        #[schema(value_type = String)]
        line: Arc<str>,
    },
    /// The tools of a server are others now.
    Tools {
        #[schema(value_type = String)]
        server: Arc<str>,
        #[schema(value_type = Vec<String>)]
        added: Vec<Arc<str>>,
        #[schema(value_type = Vec<String>)]
        removed: Vec<Arc<str>>,
        #[schema(value_type = Vec<String>)]
        changed: Vec<Arc<str>>,
    },
    /// A call was sent on its way.
    CallStarted {
        id: String,
        #[schema(value_type = String)]
        server: Arc<str>,
        #[schema(value_type = String)]
        tool: Arc<str>,
    },
    /// A call has its outcome.
    CallFinished {
        id: String,
        #[schema(value_type = String)]
        server: Arc<str>,
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// `done`, `tool_error`, `failed` or `abandoned`.
        outcome: &'static str,
        /// `not_sent`, `unknown` or `answered`.
        delivery: &'static str,
        duration_us: u64,
    },
    /// A server wrote a line to its error output.
    Stderr {
        #[schema(value_type = String)]
        server: Arc<str>,
        #[schema(value_type = String)]
        line: Arc<str>,
    },
    /// Something is odd and works all the same.
    Warning {
        #[schema(value_type = Option<String>)]
        server: Option<Arc<str>>,
        message: String,
    },
    /// The config file cannot be used; the servers stay as they were.
    ConfigRejected { message: String },
    /// A changed config was put into effect.
    ConfigApplied { connected: Vec<String>, disconnected: Vec<String>, reconnected: Vec<String> },
    /// The daemon itself was too busy to hear of so many events.
    Missed { n_events: u64 },
    /// The daemon is about to end.
    Stopping,
}

impl Happening {
    /// The name of the kind, as it is written outside.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::State { .. } => "state",
            Self::Phase { .. } => "phase",
            Self::Install { .. } => "install",
            Self::Tools { .. } => "tools",
            Self::CallStarted { .. } => "call_started",
            Self::CallFinished { .. } => "call_finished",
            Self::Stderr { .. } => "stderr",
            Self::Warning { .. } => "warning",
            Self::ConfigRejected { .. } => "config_rejected",
            Self::ConfigApplied { .. } => "config_applied",
            Self::Missed { .. } => "missed",
            Self::Stopping => "stopping",
        }
    }

    /// What the manager said. `call` makes the id of a call from its number.
    pub(crate) fn of(event: RackEvent, call: impl Fn(u64) -> String) -> Option<Self> {
        Some(match event {
            RackEvent::State { server, state } => {
                let reason = state.failure().map(|it| plain_text(it.reason(), LINE_CHARS));
                Self::State { server, state: state.word(), reason }
            }
            RackEvent::Phase { server, phase } => Self::Phase { server, phase: phase.word() },
            RackEvent::Install { server, line } => Self::Install { server, line: cut(line) },
            RackEvent::Tools { server, added, removed, changed } => {
                Self::Tools { server, added, removed, changed }
            }
            RackEvent::CallStarted { id, server, tool } => {
                Self::CallStarted { id: call(id), server, tool }
            }
            RackEvent::CallFinished { id, server, tool, outcome, delivery, duration, .. } => {
                Self::CallFinished {
                    id: call(id),
                    server,
                    tool,
                    outcome: outcome_word(outcome),
                    delivery: delivery_word(delivery),
                    duration_us: micros(duration),
                }
            }
            RackEvent::Stderr { server, line } => Self::Stderr { server, line: cut(line) },
            RackEvent::Warning { server, message } => {
                Self::Warning { server, message: plain_text(&message, LINE_CHARS) }
            }
            RackEvent::ConfigRejected { message } => {
                Self::ConfigRejected { message: plain_text(&message, LINE_CHARS) }
            }
            RackEvent::ConfigApplied { plan } => Self::ConfigApplied {
                connected: plan.connect,
                disconnected: plan.disconnect,
                reconnected: plan.reconnect,
            },
            RackEvent::Missed(n_events) => Self::Missed { n_events },
            _ => return None,
        })
    }
}

pub(crate) fn outcome_word(outcome: CallOutcome) -> &'static str {
    match outcome {
        CallOutcome::Done => "done",
        CallOutcome::ToolError => "tool_error",
        CallOutcome::Abandoned => "abandoned",
        _ => "failed",
    }
}

pub(crate) fn delivery_word(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::NotSent => "not_sent",
        Delivery::Unknown => "unknown",
        Delivery::Answered => "answered",
    }
}

pub(crate) fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970, for people and files. Nothing is measured with it.
pub(crate) fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A line that is not longer than it may be.
pub(crate) fn cut(line: Arc<str>) -> Arc<str> {
    match line.char_indices().nth(LINE_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", line.split_at(end).0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(feed: &Feed, number: u64) {
        feed.tell(number, Happening::Missed { n_events: number });
    }

    /// Everything that is there for a reader, in short.
    fn all(reader: &mut Reader) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(portion) = reader.take() {
            found.push(match portion {
                Portion::Event(number, told) => format!("{number}@{}", told.time_ms),
                Portion::Missed(last, Some(n)) => format!("missed {n} to {last}"),
                Portion::Missed(last, None) => format!("missed some to {last}"),
            });
        }
        found
    }

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let feed = Arc::new(Feed::new("run"));
        tell(&feed, 10);
        let mut reader = feed.read(None);
        assert_eq!(all(&mut reader), Vec::<String>::new());
        tell(&feed, 11);
        tell(&feed, 12);
        assert_eq!(all(&mut reader), ["1@11", "2@12"]);
        assert_eq!(all(&mut feed.read(Some(&feed.id(1)))), ["2@12"]);
        assert_eq!(all(&mut feed.read(Some(&feed.id(2)))), Vec::<String>::new());
    }

    #[test]
    fn who_comes_from_elsewhere_is_told_and_gets_what_there_is() {
        let feed = Arc::new(Feed::new("run"));
        tell(&feed, 10);
        for last in ["", "old-0", "run-1", "run-x", "run-99999999999999999999", "run"] {
            assert_eq!(all(&mut feed.read(Some(last))), ["missed some to 0", "0@10"], "{last}");
        }
    }

    #[test]
    fn a_slow_reader_is_told_how_many_it_missed() {
        let feed = Arc::new(Feed::new("run"));
        let mut reader = feed.read(None);
        for number in 0..CAPACITY as u64 + 3 {
            tell(&feed, number);
        }
        let found = all(&mut reader);
        assert_eq!(found.len(), CAPACITY + 1);
        assert_eq!(found[..2], ["missed 3 to 2", "3@3"]);
    }

    #[tokio::test]
    async fn a_reader_waits_for_news_and_ends_with_nothing_lost() {
        let feed = Arc::new(Feed::new("run"));
        let mut reader = feed.read(None);
        let told = async { tell(&feed, 5) };
        let (portion, ()) = tokio::join!(reader.next(), told);
        assert!(matches!(portion, Some(Portion::Event(0, _))));
    }

    #[test]
    fn an_event_is_named_by_its_kind_and_lines_are_cut() {
        let server: Arc<str> = "s".into();
        let line: Arc<str> = "ü".repeat(LINE_CHARS + 1).into();
        let event = RackEvent::Stderr { server: Arc::clone(&server), line };
        let told = Happening::of(event, |number| number.to_string()).unwrap();
        let Happening::Stderr { line, .. } = &told else { panic!("{told:?}") };
        assert_eq!(line.chars().count(), LINE_CHARS + 1);
        let started = RackEvent::CallStarted { id: 7, server, tool: "t".into() };
        let told = Happening::of(started, |number| format!("run-{number}")).unwrap();
        let told = Told { time_ms: 5, what: told };
        assert_eq!(
            serde_json::to_string(&told).unwrap(),
            r#"{"time_ms":5,"type":"call_started","id":"run-7","server":"s","tool":"t"}"#
        );
        assert_eq!(told.what.kind(), "call_started");
    }
}
