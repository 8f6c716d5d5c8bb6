//! Prometheus metrics: call counters, the latency histogram, restarts and gauges.
//!
//! **Invariant:** counting is a few integer operations under a short lock, and a server name cannot break the text
//! format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use toolrack_manager::CallOutcome;

use crate::event_log::outcome_name;

/// Upper bounds of the histogram buckets, in microseconds.
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
/// Maximum number of servers with a restart counter, to bound the label cardinality.
const MAX_SERVERS: usize = 1000;

/// Counters since the daemon started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    outcomes: BTreeMap<&'static str, u64>,
    buckets: [u64; BUCKETS_US.len()],
    n_calls: u64,
    sum: Duration,
    /// The latest launch of each server, counted from one.
    launches: BTreeMap<String, u64>,
    pub(crate) n_missed: u64,
}

/// Values that are read at the time of a scrape.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Number of servers by state.
    pub(crate) states: BTreeMap<&'static str, u64>,
    pub(crate) n_running_calls: u64,
    pub(crate) n_history_written: u64,
    pub(crate) n_history_dropped: u64,
}

impl Metrics {
    pub(crate) fn record_call(&mut self, outcome: CallOutcome, duration: Duration) {
        *self.outcomes.entry(outcome_name(outcome)).or_default() += 1;
        let micros = duration.as_micros();
        let index = BUCKETS_US.iter().position(|bound| micros <= u128::from(*bound));
        if let Some(bucket) = index.and_then(|index| self.buckets.get_mut(index)) {
            *bucket += 1;
        }
        self.n_calls += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Records the launch number of a server. Zero if it is not running.
    pub(crate) fn record_launch(&mut self, server: &str, launch: u64) {
        // A stopped server reports zero, but a Prometheus counter must never decrease.
        if let Some(last) = self.launches.get_mut(server) {
            *last = launch.max(*last);
        } else if self.launches.len() < MAX_SERVERS {
            self.launches.insert(server.to_owned(), launch);
        }
    }

    /// Renders the Prometheus text format.
    pub(crate) fn render(&self, gauges: &Gauges) -> String {
        let mut text = PrometheusText::default();
        text.header("toolrack_servers", "gauge", "Configured servers by state");
        for (state, n) in &gauges.states {
            text.sample("toolrack_servers", &format!("state=\"{state}\""), n);
        }
        text.header("toolrack_server_restarts_total", "counter", "Restarts by server");
        for (server, launch) in &self.launches {
            let label = format!("server=\"{}\"", escape_label(server));
            text.sample("toolrack_server_restarts_total", &label, launch.saturating_sub(1));
        }
        text.header("toolrack_calls_total", "counter", "Finished calls by outcome");
        for (outcome, n) in &self.outcomes {
            text.sample("toolrack_calls_total", &format!("outcome=\"{outcome}\""), n);
        }
        text.header("toolrack_calls_running", "gauge", "Running calls");
        text.sample("toolrack_calls_running", "", gauges.n_running_calls);
        self.render_histogram(&mut text);
        text.header("toolrack_history_written_total", "counter", "Calls written to the history");
        text.sample("toolrack_history_written_total", "", gauges.n_history_written);
        text.header("toolrack_history_dropped_total", "counter", "Calls dropped by the history");
        text.sample("toolrack_history_dropped_total", "", gauges.n_history_dropped);
        text.header("toolrack_events_missed_total", "counter", "Events missed by the daemon");
        text.sample("toolrack_events_missed_total", "", self.n_missed);
        text.0
    }

    fn render_histogram(&self, text: &mut PrometheusText) {
        let name = "toolrack_call_duration_seconds";
        text.header(name, "histogram", "Duration of calls from request to outcome");
        let mut n_below = 0;
        for (bound, n) in BUCKETS_US.iter().zip(self.buckets) {
            n_below += n;
            let bound = Duration::from_micros(*bound).as_secs_f64();
            text.sample(&format!("{name}_bucket"), &format!("le=\"{bound}\""), n_below);
        }
        text.sample(&format!("{name}_bucket"), "le=\"+Inf\"", self.n_calls);
        text.sample(&format!("{name}_sum"), "", self.sum.as_secs_f64());
        text.sample(&format!("{name}_count"), "", self.n_calls);
    }
}

#[derive(Default)]
struct PrometheusText(String);

impl PrometheusText {
    fn header(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").unwrap_or_default();
    }

    fn sample(&mut self, name: &str, label: &str, value: impl std::fmt::Display) {
        let written = match label {
            "" => writeln!(self.0, "{name} {value}"),
            label => writeln!(self.0, "{name}{{{label}}} {value}"),
        };
        written.unwrap_or_default();
    }
}

fn escape_label(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_render_in_the_prometheus_text_format() {
        let mut metrics = Metrics::default();
        metrics.record_call(CallOutcome::Done, Duration::from_micros(200));
        metrics.record_call(CallOutcome::Done, Duration::from_micros(300));
        metrics.record_call(CallOutcome::Failed, Duration::from_mins(15));
        metrics.record_launch("a\"b", 2);
        metrics.record_launch("a\"b", 0);
        let gauges = Gauges { states: [("connected", 2)].into(), ..Gauges::default() };
        let text = metrics.render(&gauges);
        let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
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
        assert!(text.lines().all(|line| line.starts_with('#') || line.split(' ').count() == 2));
    }
}
