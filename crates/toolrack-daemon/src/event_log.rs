//! Event log: the events of the API (`ApiEvent`) and a ring buffer of the latest ones that readers can resume.
//!
//! Readers have no queues: each remembers the number of its next event and looks it up in the ring. A reader that is
//! too slow finds its event overwritten and learns how many it missed.
//!
//! **Invariant:** `append` never waits, and memory is bounded no matter how slow the readers are.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use toolrack_manager::{CallOutcome, ManagerEvent};
use toolrack_transport::{Delivery, sanitize_line};
use utoipa::ToSchema;

/// Number of events in the ring.
const CAPACITY: usize = 4096;
/// Maximum length of a line of server output, in characters.
const MAX_LINE_CHARS: usize = 2000;

/// An event with its time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Told)]
pub(crate) struct TimedEvent {
    /// Unix time in milliseconds.
    pub(crate) time_ms: u64,
    #[serde(flatten)]
    pub(crate) event: ApiEvent,
}

/// An event of the API.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = Happening)]
pub(crate) enum ApiEvent {
    /// The state of a server changed.
    State {
        server: Arc<str>,
        /// `disabled`, `disconnected`, `connecting`, `connected`, `needs-auth`, `failed` or `backing-off`.
        state: &'static str,
        /// The reason, if something failed.
        reason: Option<String>,
    },
    /// A connecting server entered its next phase.
    Phase {
        server: Arc<str>,
        /// `installing`, `starting`, `connecting` or `listing`.
        phase: &'static str,
    },
    /// The installer of a server's package printed a line.
    Install { server: Arc<str>, line: Arc<str> },
    /// The tool list of a server changed.
    Tools { server: Arc<str>, added: Vec<Arc<str>>, removed: Vec<Arc<str>>, changed: Vec<Arc<str>> },
    /// A call started.
    CallStarted { id: String, server: Arc<str>, tool: Arc<str> },
    /// A call finished.
    CallFinished {
        id: String,
        server: Arc<str>,
        tool: Arc<str>,
        /// `done`, `tool_error`, `failed` or `abandoned`.
        outcome: &'static str,
        /// `not_sent`, `unknown` or `answered`.
        delivery: &'static str,
        duration_us: u64,
    },
    /// A server wrote a line to stderr.
    Stderr { server: Arc<str>, line: Arc<str> },
    /// A problem that does not stop anything from working.
    Warning { server: Option<Arc<str>>, message: String },
    /// The config file is invalid; the servers keep their previous config.
    ConfigRejected { message: String },
    /// A changed config was applied.
    ConfigApplied { connected: Vec<String>, disconnected: Vec<String>, reconnected: Vec<String> },
    /// The daemon was too busy and missed this many events.
    Missed { n_events: u64 },
    /// The daemon is shutting down.
    Stopping,
}

impl ApiEvent {
    /// Converts a manager event. `call_id` makes the API's call id from a call number.
    pub(crate) fn from_manager_event(
        event: ManagerEvent,
        call_id: impl Fn(u64) -> String,
    ) -> Option<Self> {
        Some(match event {
            ManagerEvent::StateChanged { server, state } => {
                let reason =
                    state.failure().map(|failure| sanitize_line(failure.reason(), MAX_LINE_CHARS));
                Self::State { server, state: state.as_str(), reason }
            }
            ManagerEvent::PhaseChanged { server, phase } => {
                Self::Phase { server, phase: phase.as_str() }
            }
            ManagerEvent::InstallerOutput { server, line } => {
                Self::Install { server, line: truncate_line(line) }
            }
            ManagerEvent::ToolsChanged { server, added, removed, changed } => {
                Self::Tools { server, added, removed, changed }
            }
            ManagerEvent::CallStarted { id, server, tool } => {
                Self::CallStarted { id: call_id(id), server, tool }
            }
            ManagerEvent::CallFinished {
                id, server, tool, outcome, delivery, duration, ..
            } => Self::CallFinished {
                id: call_id(id),
                server,
                tool,
                outcome: outcome_name(outcome),
                delivery: delivery_name(delivery),
                duration_us: as_micros(duration),
            },
            ManagerEvent::Stderr { server, line } => {
                Self::Stderr { server, line: truncate_line(line) }
            }
            ManagerEvent::Warning { server, message } => {
                Self::Warning { server, message: sanitize_line(&message, MAX_LINE_CHARS) }
            }
            ManagerEvent::ConfigRejected { message } => {
                Self::ConfigRejected { message: sanitize_line(&message, MAX_LINE_CHARS) }
            }
            ManagerEvent::ConfigApplied { plan } => Self::ConfigApplied {
                connected: plan.connect,
                disconnected: plan.disconnect,
                reconnected: plan.reconnect,
            },
            ManagerEvent::Lagged(n_events) => Self::Missed { n_events },
            _ => return None,
        })
    }
}

/// Ring buffer of the latest events.
#[derive(Debug)]
pub(crate) struct EventLog {
    /// Distinguishes the event and call ids of this run from those of earlier ones.
    pub(crate) run_id: String,
    ring: watch::Sender<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// The number of the oldest event in the ring.
    first: u64,
    events: VecDeque<Arc<TimedEvent>>,
}

/// Position of one reader in the event log.
#[derive(Debug)]
pub(crate) struct Reader {
    ring: watch::Receiver<Ring>,
    /// The number of the next event. `None` if the reader resumes with an id of another run; its next item reports the
    /// gap.
    next: Option<u64>,
}

/// An item of an event stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StreamItem {
    /// An event and its number.
    Event(u64, Arc<TimedEvent>),
    /// The number of the last missed event, and how many were missed. `None` if they belong to another run.
    Missed(u64, Option<u64>),
}

impl EventLog {
    pub(crate) fn new(run_id: String) -> Self {
        Self { run_id, ring: watch::Sender::default() }
    }

    pub(crate) fn append(&self, time_ms: u64, event: ApiEvent) {
        let event = Arc::new(TimedEvent { time_ms, event });
        self.ring.send_modify(|ring| {
            ring.events.push_back(event);
            if ring.events.len() > CAPACITY {
                ring.events.pop_front();
                ring.first += 1;
            }
        });
    }

    /// The id of an event or call on the wire.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.run_id)
    }

    /// The number of an event or call of this run.
    pub(crate) fn parse_id(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&self.run_id)?.strip_prefix('-')?.parse().ok()
    }

    /// A reader that resumes after the event `last_id`, or starts with the next event.
    pub(crate) fn reader(&self, last_id: Option<&str>) -> Reader {
        let Ring { first, events } = &*self.ring.borrow();
        let now = first + events.len() as u64;
        let next = match last_id.map(|id| self.parse_id(id)) {
            None => Some(now),
            // The event may have left the ring already; `try_next` then reports the gap.
            Some(Some(last)) if last < now => Some(last + 1),
            // An id of another run, or a number that was never issued.
            Some(_) => None,
        };
        Reader { ring: self.ring.subscribe(), next }
    }
}

impl Reader {
    /// Waits for the next item. `None` once the log is dropped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub(crate) async fn next(&mut self) -> Option<StreamItem> {
        loop {
            if let Some(item) = self.try_next() {
                return Some(item);
            }
            self.ring.changed().await.ok()?;
        }
    }

    fn try_next(&mut self) -> Option<StreamItem> {
        // Marked as seen with the look at the ring: a later append wakes `changed` at once.
        let ring = self.ring.borrow_and_update();
        let Some(next) = self.next.filter(|next| *next >= ring.first) else {
            let n_missed = self.next.map(|next| ring.first - next);
            self.next = Some(ring.first);
            // The number before the first event: a client that resumes with this id gets
            // all that follow.
            return Some(StreamItem::Missed(ring.first.saturating_sub(1), n_missed));
        };
        let index = usize::try_from(next - ring.first).ok()?;
        // Only the pointer is copied under the lock; each reader serializes the event on its own.
        let event = Arc::clone(ring.events.get(index)?);
        self.next = Some(next + 1);
        Some(StreamItem::Event(next, event))
    }
}

pub(crate) fn outcome_name(outcome: CallOutcome) -> &'static str {
    match outcome {
        CallOutcome::Done => "done",
        CallOutcome::ToolError => "tool_error",
        CallOutcome::Cancelled => "abandoned",
        _ => "failed",
    }
}

pub(crate) fn delivery_name(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::NotSent => "not_sent",
        Delivery::Unknown => "unknown",
        Delivery::Answered => "answered",
    }
}

pub(crate) fn as_micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The `type` of an event in JSON, which is also its SSE event name.
pub(crate) fn event_type(json: &str) -> &str {
    #[derive(Deserialize)]
    struct Tagged<'a> {
        r#type: &'a str,
    }
    serde_json::from_str(json).map_or("", |Tagged { r#type }| r#type)
}

/// Truncates a line of server output to the maximum length.
pub(crate) fn truncate_line(line: Arc<str>) -> Arc<str> {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", line.split_at(end).0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(log: &EventLog, number: u64) {
        log.append(number, ApiEvent::Missed { n_events: number });
    }

    /// All pending items of a reader, in short form.
    fn all(reader: &mut Reader) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(item) = reader.try_next() {
            found.push(match item {
                StreamItem::Event(number, event) => format!("{number}@{}", event.time_ms),
                StreamItem::Missed(last, Some(n)) => format!("missed {n} to {last}"),
                StreamItem::Missed(last, None) => format!("missed some to {last}"),
            });
        }
        found
    }

    #[test]
    fn reader_resumes_after_its_last_event() {
        let log = Arc::new(EventLog::new("run".to_owned()));
        append(&log, 10);
        let mut reader = log.reader(None);
        assert_eq!(all(&mut reader), Vec::<String>::new());
        append(&log, 11);
        append(&log, 12);
        assert_eq!(all(&mut reader), ["1@11", "2@12"]);
        assert_eq!(all(&mut log.reader(Some(&log.id(1)))), ["2@12"]);
        assert_eq!(all(&mut log.reader(Some(&log.id(2)))), Vec::<String>::new());
    }

    #[test]
    fn reader_with_a_foreign_id_gets_a_gap_and_all_events() {
        let log = Arc::new(EventLog::new("run".to_owned()));
        append(&log, 10);
        for last in ["", "old-0", "run-1", "run-x", "run-99999999999999999999", "run"] {
            assert_eq!(all(&mut log.reader(Some(last))), ["missed some to 0", "0@10"], "{last}");
        }
    }

    #[test]
    fn slow_reader_learns_how_many_events_it_missed() {
        let log = Arc::new(EventLog::new("run".to_owned()));
        let mut reader = log.reader(None);
        for number in 0..CAPACITY as u64 + 3 {
            append(&log, number);
        }
        let found = all(&mut reader);
        assert_eq!(found.len(), CAPACITY + 1);
        assert_eq!(found[..2], ["missed 3 to 2", "3@3"]);
    }

    #[tokio::test]
    async fn reader_waits_for_the_next_event() {
        let log = Arc::new(EventLog::new("run".to_owned()));
        let mut reader = log.reader(None);
        let appended = async { append(&log, 5) };
        let (item, ()) = tokio::join!(reader.next(), appended);
        assert!(matches!(item, Some(StreamItem::Event(0, _))));
    }

    #[test]
    fn events_serialize_with_their_type_and_long_lines_are_truncated() {
        let server: Arc<str> = "s".into();
        let line: Arc<str> = "ü".repeat(MAX_LINE_CHARS + 1).into();
        let event = ManagerEvent::Stderr { server: Arc::clone(&server), line };
        let event = ApiEvent::from_manager_event(event, |number| number.to_string()).unwrap();
        let ApiEvent::Stderr { line, .. } = &event else { panic!("{event:?}") };
        assert_eq!(line.chars().count(), MAX_LINE_CHARS + 1);
        let started = ManagerEvent::CallStarted { id: 7, server, tool: "t".into() };
        let event =
            ApiEvent::from_manager_event(started, |number| format!("run-{number}")).unwrap();
        let timed = TimedEvent { time_ms: 5, event };
        let json = serde_json::to_string(&timed).unwrap();
        let expected =
            r#"{"time_ms":5,"type":"call_started","id":"run-7","server":"s","tool":"t"}"#;
        assert_eq!((json.as_str(), event_type(&json)), (expected, "call_started"));
    }
}
