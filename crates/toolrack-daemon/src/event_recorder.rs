//! The one listener of the daemon: whatever the manager says goes to the feed, the history, the counters and the
//! logbook from here.
//!
//! **Invariant:** listening never waits for any of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use toolrack_manager::{RackEvent, RackEvents};
use toolrack_service::LocalService;
use utoipa::ToSchema;

use crate::event_log::{self, Feed, Happening, cut, wall_clock_ms};
use crate::history::{CallRecord, History};
use crate::metrics::{Gauges, Tally};

/// Calls under way that can be looked at. Further ones are made all the same.
const MAX_RUNNING: usize = 4096;

/// What is known of the present and the past.
#[derive(Debug)]
pub(crate) struct Chronicle {
    run: String,
    agent: Option<String>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) history: Arc<History>,
    present: Mutex<Present>,
}

#[derive(Debug, Default)]
struct Present {
    running: BTreeMap<u64, RunningCall>,
    tally: Tally,
    logbook: Logbook,
}

/// A call that is not over.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct RunningCall {
    /// Tells calls apart.
    pub(crate) id: String,
    /// When it began, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// Where to.
    #[schema(value_type = String)]
    pub(crate) server: Arc<str>,
    /// Which tool, as the server names it.
    #[schema(value_type = String)]
    pub(crate) tool: Arc<str>,
}

impl Chronicle {
    /// `run` tells this daemon from those before it.
    pub(crate) fn new(run: String, agent: Option<String>, history: History) -> Self {
        let feed = Arc::new(Feed::new(&run));
        Self { run, agent, feed, history: Arc::new(history), present: Mutex::default() }
    }

    /// Listens until the daemon ends.
    pub(crate) async fn listen(
        self: Arc<Self>,
        service: Arc<LocalService>,
        mut events: RackEvents,
        stop: CancellationToken,
    ) {
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = events.next() => event,
            };
            match event {
                Some(event) => self.hear(&service, event),
                None => return,
            }
        }
        // What was said before the end is still heard.
        while let Some(Some(event)) = events.next().now_or_never() {
            self.hear(&service, event);
        }
    }

    fn hear(&self, service: &LocalService, event: RackEvent) {
        let time_ms = wall_clock_ms();
        match &event {
            RackEvent::State { server, .. } => {
                let launch = service.rack().server(server).ok().and_then(|it| it.launch());
                self.present().tally.launched(server, launch.unwrap_or_default());
            }
            RackEvent::CallStarted { id, server, tool } => {
                self.begin(*id, time_ms, server, tool);
            }
            RackEvent::CallFinished { id, outcome, duration, .. } => {
                let mut present = self.present();
                present.running.remove(id);
                present.tally.call(*outcome, *duration);
            }
            RackEvent::Stderr { server, line } | RackEvent::Install { server, line } => {
                self.present().logbook.add(server, time_ms, cut(Arc::clone(line)));
            }
            RackEvent::ConfigApplied { .. } => {
                let is_known = |name: &str| service.rack().server(name).is_ok();
                self.present().logbook.keep(is_known);
            }
            RackEvent::Missed(n) => {
                let mut present = self.present();
                present.tally.n_missed += n;
                // Some of these may be over, and nobody would say so.
                present.running.clear();
            }
            _ => {}
        }
        self.record(time_ms, &event, (self.agent.as_deref(), |number| self.call_id(number)));
        if let Some(happening) = Happening::of(event, |number| self.call_id(number)) {
            self.feed.tell(time_ms, happening);
        }
    }

    fn begin(&self, number: u64, time_ms: u64, server: &Arc<str>, tool: &Arc<str>) {
        let mut present = self.present();
        if present.running.len() < MAX_RUNNING {
            let (server, tool) = (Arc::clone(server), Arc::clone(tool));
            let call = RunningCall { id: self.call_id(number), time_ms, server, tool };
            present.running.insert(number, call);
        }
    }

    /// Writes down the calls of an agent whose servers run beside those of the daemon, and nothing else of them.
    pub(crate) async fn listen_beside(
        self: Arc<Self>,
        agent: String,
        mut events: RackEvents,
        stop: CancellationToken,
    ) {
        let id = |number| format!("{}-{agent}-{number}", self.run);
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                () = stop.cancelled() => return,
            };
            let Some(event) = event else { return };
            self.record(wall_clock_ms(), &event, (Some(&agent), id));
        }
    }

    fn record(
        &self,
        time_ms: u64,
        event: &RackEvent,
        (agent, call_id): (Option<&str>, impl Fn(u64) -> String),
    ) {
        let RackEvent::CallFinished {
            id,
            server,
            tool,
            outcome,
            delivery,
            duration,
            argument_bytes,
            result_bytes,
        } = event
        else {
            return;
        };
        self.history.remember(CallRecord {
            id: call_id(*id),
            time_ms,
            agent: agent.map(str::to_owned),
            server: server.as_ref().to_owned(),
            tool: tool.as_ref().to_owned(),
            outcome: event_log::outcome_word(*outcome).into(),
            delivery: event_log::delivery_word(*delivery).into(),
            duration_us: event_log::micros(*duration),
            argument_bytes: *argument_bytes as u64,
            result_bytes: *result_bytes as u64,
        });
    }

    /// The id of a call outside of this daemon.
    pub(crate) fn call_id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }

    /// The number of a call of this daemon.
    pub(crate) fn call_number(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&self.run)?.strip_prefix('-')?.parse().ok()
    }

    /// Calls under way, the oldest first.
    pub(crate) fn running(&self) -> Vec<RunningCall> {
        self.present().running.values().cloned().collect()
    }

    pub(crate) fn running_call(&self, id: &str) -> Option<RunningCall> {
        let number = self.call_number(id)?;
        self.present().running.get(&number).cloned()
    }

    pub(crate) fn n_running(&self) -> usize {
        self.present().running.len()
    }

    pub(crate) fn log(&self, server: &str, after: Option<u64>, limit: usize) -> Vec<LogLine> {
        self.present().logbook.tail(server, after, limit)
    }

    pub(crate) fn metrics(&self, gauges: &Gauges) -> String {
        self.present().tally.clone().text(gauges)
    }

    // Consistent between statements, so a panic elsewhere cannot have torn it.
    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// The last lines that each server wrote to its error output, or that were said when it was installed.
//
// **Invariant:** memory is bounded: so many lines for a server, and so many servers.

/// Lines that are kept for a server. The oldest goes.
pub(crate) const MAX_LINES: usize = 500;
/// Servers whose lines are kept. Of more, nothing is.
const MAX_SERVERS: usize = 256;

/// A line of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct LogLine {
    /// Counts the lines of a server.
    pub(crate) number: u64,
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// What was said, without anything that a terminal would obey.
    #[schema(value_type = String)]
    pub(crate) line: Arc<str>,
}

/// The last lines of all servers.
#[derive(Debug, Default)]
pub(crate) struct Logbook {
    servers: BTreeMap<Arc<str>, Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    n_lines: u64,
    lines: VecDeque<LogLine>,
}

impl Logbook {
    pub(crate) fn add(&mut self, server: &Arc<str>, time_ms: u64, line: Arc<str>) {
        if !self.servers.contains_key(server) && self.servers.len() >= MAX_SERVERS {
            return;
        }
        let pages = self.servers.entry(Arc::clone(server)).or_default();
        pages.lines.push_back(LogLine { number: pages.n_lines, time_ms, line });
        pages.n_lines += 1;
        if pages.lines.len() > MAX_LINES {
            pages.lines.pop_front();
        }
    }

    /// The last lines of a server behind a number, at most so many, oldest first.
    pub(crate) fn tail(&self, server: &str, after: Option<u64>, limit: usize) -> Vec<LogLine> {
        let Some(pages) = self.servers.get(server) else { return Vec::new() };
        let is_wanted = |it: &&LogLine| after.is_none_or(|after| it.number > after);
        let mut lines: Vec<LogLine> =
            pages.lines.iter().rev().filter(is_wanted).take(limit).cloned().collect();
        lines.reverse();
        lines
    }

    /// Forgets servers that are gone.
    pub(crate) fn keep(&mut self, is_known: impl Fn(&str) -> bool) {
        self.servers.retain(|name, _| is_known(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut book = Logbook::default();
        let server: Arc<str> = "s".into();
        for number in 0..MAX_LINES as u64 + 2 {
            book.add(&server, number, number.to_string().into());
        }
        let numbers = |lines: Vec<LogLine>| lines.iter().map(|it| it.number).collect::<Vec<_>>();
        assert_eq!(numbers(book.tail("s", None, 3)), [499, 500, 501]);
        assert_eq!(numbers(book.tail("s", Some(499), 9)), [500, 501]);
        assert_eq!(book.tail("s", None, 9999).len(), MAX_LINES);
        assert_eq!(book.tail("other", None, 9), Vec::new());
        book.keep(|_| false);
        assert_eq!(book.tail("s", None, 9), Vec::new());
    }
}
