//! What happens to servers and calls, as it is told outside.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use toolrack_manager::{CallOutcome, RackEvent};
use toolrack_transport::{Delivery, plain_text};
use utoipa::ToSchema;

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
