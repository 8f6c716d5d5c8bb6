//! What is counted, and how Prometheus reads it.
//!
//! **Invariant:** counting takes no lock that anybody holds for long, and a name of a server cannot break the text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use toolrack_manager::CallOutcome;

use crate::event_log::outcome_word;

/// Upper bounds of the histogram, in microseconds.
const BUCKETS_US: [u64; 14] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    120_000_000,
];
/// Servers whose launches are counted. More are not told apart.
const MAX_SERVERS: usize = 1000;

/// Counters since the daemon started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    outcomes: BTreeMap<&'static str, u64>,
    buckets: [u64; BUCKETS_US.len()],
    n_calls: u64,
    sum: Duration,
    /// The last launch of each server, counted from one.
    launches: BTreeMap<String, u64>,
    pub(crate) n_missed: u64,
}

/// What is asked of others when the counters are read.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// How many servers are in which state.
    pub(crate) states: BTreeMap<&'static str, u64>,
    pub(crate) n_running_calls: u64,
    pub(crate) n_history_written: u64,
    pub(crate) n_history_dropped: u64,
}

impl Tally {
    pub(crate) fn call(&mut self, outcome: CallOutcome, duration: Duration) {
        *self.outcomes.entry(outcome_word(outcome)).or_default() += 1;
        let micros = duration.as_micros();
        let place = BUCKETS_US.iter().position(|bound| micros <= u128::from(*bound));
        if let Some(bucket) = place.and_then(|it| self.buckets.get_mut(it)) {
            *bucket += 1;
        }
        self.n_calls += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Notes which launch of a server this is. Zero if nothing runs.
    pub(crate) fn launched(&mut self, server: &str, launch: u64) {
        if let Some(last) = self.launches.get_mut(server) {
            *last = launch.max(*last);
        } else if self.launches.len() < MAX_SERVERS {
            self.launches.insert(server.to_owned(), launch);
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self, gauges: &Gauges) -> String {
        let mut page = Page::default();
        page.head("toolrack_servers", "gauge", "Configured servers by state");
        for (state, n) in &gauges.states {
            page.line("toolrack_servers", &format!("state=\"{state}\""), n);
        }
        page.head(
            "toolrack_server_restarts_total",
            "counter",
            "Starts of a server after its first",
        );
        for (server, launch) in &self.launches {
            let label = format!("server=\"{}\"", escaped(server));
            page.line("toolrack_server_restarts_total", &label, launch.saturating_sub(1));
        }
        page.head("toolrack_calls_total", "counter", "Calls that are over, by outcome");
        for (outcome, n) in &self.outcomes {
            page.line("toolrack_calls_total", &format!("outcome=\"{outcome}\""), n);
        }
        page.head("toolrack_calls_running", "gauge", "Calls that are not over");
        page.line("toolrack_calls_running", "", gauges.n_running_calls);
        self.histogram(&mut page);
        page.head("toolrack_history_written_total", "counter", "Calls written to the history");
        page.line("toolrack_history_written_total", "", gauges.n_history_written);
        page.head("toolrack_history_dropped_total", "counter", "Calls the history had no room for");
        page.line("toolrack_history_dropped_total", "", gauges.n_history_dropped);
        page.head("toolrack_events_missed_total", "counter", "Events the daemon was too busy for");
        page.line("toolrack_events_missed_total", "", self.n_missed);
        page.0
    }

    fn histogram(&self, page: &mut Page) {
        let name = "toolrack_call_duration_seconds";
        page.head(name, "histogram", "From the request of a call to its outcome");
        let mut n_below = 0;
        for (bound, n) in BUCKETS_US.iter().zip(self.buckets) {
            n_below += n;
            let bound = Duration::from_micros(*bound).as_secs_f64();
            page.line(&format!("{name}_bucket"), &format!("le=\"{bound}\""), n_below);
        }
        page.line(&format!("{name}_bucket"), "le=\"+Inf\"", self.n_calls);
        page.line(&format!("{name}_sum"), "", self.sum.as_secs_f64());
        page.line(&format!("{name}_count"), "", self.n_calls);
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").unwrap_or_default();
    }

    fn line(&mut self, name: &str, label: &str, value: impl std::fmt::Display) {
        let written = match label {
            "" => writeln!(self.0, "{name} {value}"),
            label => writeln!(self.0, "{name}{{{label}}} {value}"),
        };
        written.unwrap_or_default();
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_written_as_prometheus_reads_them() {
        let mut tally = Tally::default();
        tally.call(CallOutcome::Done, Duration::from_micros(200));
        tally.call(CallOutcome::Done, Duration::from_micros(300));
        tally.call(CallOutcome::Failed, Duration::from_mins(15));
        tally.launched("a\"b", 2);
        tally.launched("a\"b", 0);
        let gauges = Gauges { states: [("connected", 2)].into(), ..Gauges::default() };
        let text = tally.text(&gauges);
        let has = |line: &str| assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        has("toolrack_servers{state=\"connected\"} 2");
        has("toolrack_server_restarts_total{server=\"a\\\"b\"} 1");
        has("toolrack_calls_total{outcome=\"done\"} 2");
        has("toolrack_calls_total{outcome=\"failed\"} 1");
        has("toolrack_call_duration_seconds_bucket{le=\"0.0001\"} 0");
        has("toolrack_call_duration_seconds_bucket{le=\"0.00025\"} 1");
        has("toolrack_call_duration_seconds_bucket{le=\"120\"} 2");
        has("toolrack_call_duration_seconds_bucket{le=\"+Inf\"} 3");
        has("toolrack_call_duration_seconds_sum 900.0005");
        has("toolrack_call_duration_seconds_count 3");
        assert!(text.lines().all(|it| it.starts_with('#') || it.split(' ').count() == 2));
    }
}
