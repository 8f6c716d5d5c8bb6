//! Prometheus metrics: call counters, the latency histogram, restarts and gauges.
//!
//! **Invariant:** counting is a few integer operations under a short lock, and a server name cannot break the text
//! format.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

use toolrack_gateway::{RefusedQuestions, refused_questions};
use toolrack_manager::CallOutcome;

use crate::event_log::outcome_name;
use crate::history::HistoryStats;

/// Upper bounds of the histogram buckets, in seconds.
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];
const DURATION_HELP: &str = "Duration of calls from request to outcome";
const QUESTIONS_HELP: &str = "Questions of servers that no client of the gateway was asked";
/// Maximum number of servers with a restart counter, to bound the label cardinality.
const MAX_SERVERS: usize = 1000;

/// Counters since the daemon started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    outcomes: BTreeMap<&'static str, u64>,
    buckets: [u64; BUCKETS.len()],
    n_calls: u64,
    sum: Duration,
    /// The latest launch of each server, counted from one.
    launches: BTreeMap<String, u64>,
    pub(crate) n_missed: u64,
}

impl Metrics {
    pub(crate) fn record_call(&mut self, outcome: CallOutcome, duration: Duration) {
        *self.outcomes.entry(outcome_name(outcome)).or_default() += 1;
        let index = BUCKETS.iter().position(|bound| duration.as_secs_f64() <= *bound);
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

    /// Renders the Prometheus text format, with values that are read at the time of a scrape.
    pub(crate) fn render(
        &self,
        servers_by_state: &BTreeMap<&str, u64>,
        n_running: usize,
        history: &HistoryStats,
    ) -> String {
        let states = labelled("state", servers_by_state);
        let restarts = self.launches.iter().map(|(server, n)| (server, n.saturating_sub(1)));
        let restarts = labelled("server", restarts);
        let outcomes = labelled("outcome", &self.outcomes);
        let total = |n: u64| vec![(String::new(), n.to_string())];
        let [written, dropped, damaged] =
            [&history.n_written, &history.n_dropped, &history.n_damaged]
                .map(|counter| total(counter.load(Ordering::Relaxed)));
        let families = [
            ("servers", "gauge", "Configured servers by state", states),
            ("server_restarts_total", "counter", "Restarts by server", restarts),
            ("calls_total", "counter", "Finished calls by outcome", outcomes),
            ("calls_running", "gauge", "Running calls", total(n_running as u64)),
            ("call_duration_seconds", "histogram", DURATION_HELP, self.duration_samples()),
            ("history_written_total", "counter", "Calls written to the history", written),
            ("history_dropped_total", "counter", "Calls dropped by the history", dropped),
            ("history_damaged_total", "counter", "Damaged history files moved aside", damaged),
            ("events_missed_total", "counter", "Events missed by the daemon", total(self.n_missed)),
            ("questions_refused_total", "counter", QUESTIONS_HELP, refused_by_reason()),
        ];
        let mut text = String::new();
        for (name, kind, help, samples) in families {
            // Writing to a string cannot fail.
            writeln!(text, "# HELP toolrack_{name} {help}\n# TYPE toolrack_{name} {kind}")
                .unwrap_or_default();
            for (suffix, value) in samples {
                writeln!(text, "toolrack_{name}{suffix} {value}").unwrap_or_default();
            }
        }
        text
    }

    fn duration_samples(&self) -> Vec<Sample> {
        let mut n_below = 0;
        let buckets = BUCKETS.iter().zip(self.buckets).map(|(bound, n)| {
            n_below += n;
            (format!("_bucket{{le=\"{bound}\"}}"), n_below.to_string())
        });
        let mut samples: Vec<Sample> = buckets.collect();
        samples.push(("_bucket{le=\"+Inf\"}".to_owned(), self.n_calls.to_string()));
        samples.push(("_sum".to_owned(), self.sum.as_secs_f64().to_string()));
        samples.push(("_count".to_owned(), self.n_calls.to_string()));
        samples
    }
}

/// Questions of servers that no client was asked, by reason.
fn refused_by_reason() -> Vec<Sample> {
    let RefusedQuestions { urls, over_budget } = refused_questions();
    labelled("reason", [("url", urls), ("budget", over_budget)])
}

/// A sample: what follows the name of its metric, and the value.
type Sample = (String, String);

/// One sample per value of a label.
fn labelled<L: AsRef<str>, N: Display>(
    label: &str,
    values: impl IntoIterator<Item = (L, N)>,
) -> Vec<Sample> {
    let sample = |(value, n): (L, N)| {
        let value = value.as_ref().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        (format!("{{{label}=\"{value}\"}}"), n.to_string())
    };
    values.into_iter().map(sample).collect()
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
        let text = metrics.render(&[("connected", 2)].into(), 0, &HistoryStats::default());
        let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        has("toolrack_servers{state=\"connected\"} 2");
        has("toolrack_server_restarts_total{server=\"a\\\"b\"} 1");
        has("toolrack_calls_total{outcome=\"done\"} 2");
        has("toolrack_calls_total{outcome=\"failed\"} 1");
        has("toolrack_questions_refused_total{reason=\"url\"} 0");
        has("toolrack_questions_refused_total{reason=\"budget\"} 0");
        has("toolrack_call_duration_seconds_bucket{le=\"0.0001\"} 0");
        has("toolrack_call_duration_seconds_bucket{le=\"0.00025\"} 1");
        has("toolrack_call_duration_seconds_bucket{le=\"120\"} 2");
        has("toolrack_call_duration_seconds_bucket{le=\"+Inf\"} 3");
        has("toolrack_call_duration_seconds_sum 900.0005");
        has("toolrack_call_duration_seconds_count 3");
        assert!(text.lines().all(|line| line.starts_with('#') || line.split(' ').count() == 2));
    }
}
