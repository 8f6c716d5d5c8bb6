//! Event recorder: the one consumer of manager events, which feeds the event log, call history, metrics and stderr
//! buffer.
//!
//! **Invariant:** handling an event never waits, and memory is bounded: at most [`MAX_LINES`] lines for each of
//! `MAX_SERVERS` servers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use toolrack_manager::{ManagerEvent, ManagerEvents};
use toolrack_platform::unix_time_ms;
use toolrack_service::LocalService;
use utoipa::ToSchema;

use crate::event_log::{ApiEvent, EventLog, as_micros, delivery_name, outcome_name, truncate_line};
use crate::history::{CallRecord, History};
use crate::metrics::Metrics;

/// Maximum number of running calls that are listed. Further calls run, but are not listed.
const MAX_RUNNING: usize = 4096;
/// Lines kept per server. The oldest is dropped.
pub(crate) const MAX_LINES: usize = 500;
/// Servers whose lines are kept. Lines of further servers are dropped.
const MAX_SERVERS: usize = 256;

/// Records manager events, and answers questions about running calls, logs and metrics.
#[derive(Debug)]
pub(crate) struct EventRecorder {
    agent: Option<String>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) history: Arc<History>,
    pub(crate) live: Mutex<LiveState>,
    /// Notified after a config change, which may have removed servers.
    pub(crate) config_applied: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct LiveState {
    pub(crate) running: BTreeMap<u64, RunningCall>,
    metrics: Metrics,
    pub(crate) stderr: StderrBuffer,
}

/// A call that has not finished.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct RunningCall {
    /// The id of the call.
    pub(crate) id: String,
    /// Start time, Unix time in milliseconds.
    pub(crate) time_ms: u64,
    /// The server.
    pub(crate) server: Arc<str>,
    /// The tool, by the server's name for it.
    pub(crate) tool: Arc<str>,
}

impl EventRecorder {
    pub(crate) fn new(events: Arc<EventLog>, agent: Option<String>, history: History) -> Self {
        let (history, live, config_applied) = (Arc::new(history), Mutex::default(), Notify::new());
        Self { agent, events, history, live, config_applied }
    }

    /// Records the events of the daemon's own servers until `stop`.
    pub(crate) async fn run(
        self: Arc<Self>,
        service: Arc<LocalService>,
        events: ManagerEvents,
        stop: CancellationToken,
    ) {
        for_each_event(events, stop, |event| self.handle(&service, event)).await;
    }

    fn handle(&self, service: &LocalService, event: ManagerEvent) {
        let time_ms = unix_time_ms();
        match &event {
            ManagerEvent::StateChanged { server, .. } => {
                let launch =
                    service.manager().server(server).ok().and_then(|server| server.launch());
                self.live.lock().metrics.record_launch(server, launch.unwrap_or_default());
            }
            ManagerEvent::CallStarted { id, server, tool } => {
                let mut live = self.live.lock();
                if live.running.len() < MAX_RUNNING {
                    let (server, tool) = (Arc::clone(server), Arc::clone(tool));
                    let call = RunningCall { id: self.events.id(*id), time_ms, server, tool };
                    live.running.insert(*id, call);
                }
            }
            ManagerEvent::CallFinished { id, outcome, duration, .. } => {
                let mut live = self.live.lock();
                live.running.remove(id);
                live.metrics.record_call(*outcome, *duration);
            }
            ManagerEvent::Stderr { server, line }
            | ManagerEvent::InstallerOutput { server, line } => {
                self.live.lock().stderr.push(server, time_ms, truncate_line(Arc::clone(line)));
            }
            ManagerEvent::ConfigApplied { .. } => {
                let is_configured = |name: &str| service.manager().server(name).is_ok();
                // Lines of servers that are no longer configured are dropped.
                self.live.lock().stderr.servers.retain(|name, _| is_configured(name));
                self.config_applied.notify_one();
            }
            ManagerEvent::Lagged(n) => {
                let mut live = self.live.lock();
                live.metrics.n_missed += n;
                // The missed events may include the end of any of these calls, which would then be listed for ever.
                live.running.clear();
            }
            _ => {}
        }
        // After the running call is removed: a client that sees it in the history must not see it
        // as running too.
        let call_id = |number| self.events.id(number);
        self.record_call(time_ms, &event, self.agent.as_deref(), call_id);
        if let Some(event) = ApiEvent::from_manager_event(event, call_id) {
            self.events.append(time_ms, event);
        }
    }

    /// Records the calls of another agent's servers. Their other events are dropped.
    pub(crate) async fn run_for_agent(
        self: Arc<Self>,
        agent: String,
        events: ManagerEvents,
        stop: CancellationToken,
    ) {
        // Call numbers are unique within a manager only, so the id names the agent.
        let id = |number| format!("{}-{agent}-{number}", self.events.run_id);
        let record = |event| {
            self.record_call(unix_time_ms(), &event, Some(&agent), id);
            if matches!(event, ManagerEvent::ConfigApplied { .. }) {
                self.config_applied.notify_one();
            }
        };
        for_each_event(events, stop, record).await;
    }

    /// Writes a finished call to the history.
    fn record_call(
        &self,
        time_ms: u64,
        event: &ManagerEvent,
        agent: Option<&str>,
        call_id: impl Fn(u64) -> String,
    ) {
        let ManagerEvent::CallFinished {
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
        self.history.record(CallRecord {
            id: call_id(*id),
            time_ms,
            agent: agent.map(str::to_owned),
            server: server.as_ref().to_owned(),
            tool: tool.as_ref().to_owned(),
            outcome: outcome_name(*outcome).into(),
            delivery: delivery_name(*delivery).into(),
            duration_us: as_micros(*duration),
            argument_bytes: *argument_bytes as u64,
            result_bytes: *result_bytes as u64,
        });
    }

    pub(crate) fn running_call(&self, id: &str) -> Option<RunningCall> {
        let number = self.events.parse_id(id)?;
        self.live.lock().running.get(&number).cloned()
    }

    pub(crate) fn render_metrics(&self, servers_by_state: &BTreeMap<&str, u64>) -> String {
        // A copy, so that rendering the text does not hold the lock that each event takes.
        let (metrics, n_running) = {
            let live = self.live.lock();
            (live.metrics.clone(), live.running.len())
        };
        metrics.render(servers_by_state, n_running, &self.history.stats)
    }
}

/// Handles events until `stop`.
async fn for_each_event(
    mut events: ManagerEvents,
    stop: CancellationToken,
    handle: impl Fn(ManagerEvent),
) {
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        handle(event);
    }
    // Events emitted before the stop are still in the channel, such as the ends of the last calls.
    while let Some(Some(event)) = events.next().now_or_never() {
        handle(event);
    }
}

/// A line of a server's stderr or of its installer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct LogLine {
    /// Sequence number within the server.
    pub(crate) number: u64,
    /// Unix time in milliseconds.
    pub(crate) time_ms: u64,
    /// The line, without terminal escape sequences.
    pub(crate) line: Arc<str>,
}

/// The last stderr lines of each server.
#[derive(Debug, Default)]
pub(crate) struct StderrBuffer {
    servers: BTreeMap<Arc<str>, VecDeque<LogLine>>,
}

impl StderrBuffer {
    pub(crate) fn push(&mut self, server: &Arc<str>, time_ms: u64, line: Arc<str>) {
        if !self.servers.contains_key(server) && self.servers.len() >= MAX_SERVERS {
            return;
        }
        let lines = self.servers.entry(Arc::clone(server)).or_default();
        let number = lines.back().map_or(0, |last| last.number + 1);
        lines.push_back(LogLine { number, time_ms, line });
        if lines.len() > MAX_LINES {
            lines.pop_front();
        }
    }

    /// The last `limit` lines of a server after line `after`, oldest first.
    pub(crate) fn tail(&self, server: &str, after: Option<u64>, limit: usize) -> Vec<LogLine> {
        let Some(lines) = self.servers.get(server) else { return Vec::new() };
        let is_newer = |line: &&LogLine| after.is_none_or(|after| line.number > after);
        let newer = lines.iter().filter(is_newer);
        newer.clone().skip(newer.count().saturating_sub(limit)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stderr_buffer_keeps_the_last_lines() {
        let mut buffer = StderrBuffer::default();
        let server: Arc<str> = "s".into();
        for number in 0..MAX_LINES as u64 + 2 {
            buffer.push(&server, number, number.to_string().into());
        }
        let numbers =
            |lines: Vec<LogLine>| lines.iter().map(|line| line.number).collect::<Vec<_>>();
        assert_eq!(numbers(buffer.tail("s", None, 3)), [499, 500, 501]);
        assert_eq!(numbers(buffer.tail("s", Some(499), 9)), [500, 501]);
        assert_eq!(buffer.tail("s", None, 9999).len(), MAX_LINES);
        assert_eq!(buffer.tail("other", None, 9), Vec::new());
        buffer.servers.retain(|_, _| false);
        assert_eq!(buffer.tail("s", None, 9), Vec::new());
    }
}
