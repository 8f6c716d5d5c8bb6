//! Metrics, and the report that a client process prints as one line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A measured quantity: its name in a report, and its heading with the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) heading: &'static str,
}

const fn metric(name: &'static str, heading: &'static str) -> Metric {
    Metric { name, heading }
}

pub(crate) const CALLS_PER_SECOND: Metric = metric("calls_per_second", "calls/s");
pub(crate) const P50: Metric = metric("p50_micros", "p50 µs");
pub(crate) const P99: Metric = metric("p99_micros", "p99 µs");
pub(crate) const CPU_PER_CALL: Metric = metric("cpu_micros_per_call", "CPU µs/call");
/// Time of one operation: a large result, a list, a connect.
pub(crate) const MILLIS: Metric = metric("millis", "ms");
pub(crate) const P95_MILLIS: Metric = metric("p95_millis", "p95 ms");
pub(crate) const P99_MILLIS: Metric = metric("p99_millis", "p99 ms");
pub(crate) const CPU_MILLIS: Metric = metric("cpu_millis", "CPU ms");
/// Peak resident memory above that of the connected, idle client.
pub(crate) const OVER_IDLE_MB: Metric = metric("over_idle_megabytes", "MB over idle");
pub(crate) const PEAK_MB: Metric = metric("peak_megabytes", "peak MB");
/// The same after repeated listing, when the client may still hold the previous list.
pub(crate) const RELIST_MB: Metric = metric("again_over_idle_megabytes", "MB over idle, repeated");
pub(crate) const ALONE_P50: Metric = metric("alone_micros", "alone: p50 µs");
pub(crate) const BESIDE_SLOW_P50: Metric = metric("loaded_micros", "beside slow calls: p50 µs");
pub(crate) const BESIDE_SLOW_P99: Metric = metric("loaded_p99_micros", "beside slow calls: p99 µs");
/// Latency with slow calls in flight, divided by the latency alone.
pub(crate) const BESIDE_SLOW_OVER_ALONE: Metric =
    metric("loaded_over_alone", "beside slow calls / alone");
pub(crate) const RESIDENT_KIB: Metric = metric("resident_kib_per_line", "RSS KiB/connection");
pub(crate) const ANONYMOUS_KIB: Metric =
    metric("anonymous_kib_per_line", "anonymous KiB/connection");
/// Memory of each guardian process between client and server.
pub(crate) const GUARDIAN_KIB: Metric =
    metric("private_kib_per_go_between", "private KiB/guardian");
pub(crate) const ALLOCATIONS: Metric = metric("allocations", "allocations/call");
pub(crate) const ALLOCATED_BYTES: Metric = metric("allocated_bytes", "bytes/call");
pub(crate) const INSTRUCTIONS: Metric = metric("instructions", "instructions/call");
/// Calls directly on the manager's client of the server.
pub(crate) const CLIENT_P50: Metric = metric("client_p50_micros", "client: p50 µs");
pub(crate) const CLIENT_CALLS: Metric = metric("client_calls_per_second", "client: calls/s");
pub(crate) const CLIENT_CPU: Metric = metric("client_cpu_micros_per_call", "client: CPU µs/call");
/// Through the manager, divided by direct.
pub(crate) const P50_OVER_CLIENT: Metric = metric("p50_over_client", "p50 / client's");
pub(crate) const TIME_OVER_CLIENT: Metric = metric("time_over_client", "time / client's");
pub(crate) const CPU_OVER_CLIENT: Metric = metric("cpu_over_client", "CPU / client's");
pub(crate) const ALL_TOOLS_P50: Metric = metric("all_tools_micros", "all_tools: p50 µs");
pub(crate) const ALL_TOOLS_P99: Metric = metric("all_tools_p99_micros", "all_tools: p99 µs");
/// The same including a read of name, description and schema of each tool.
pub(crate) const READ_TOOLS_P50: Metric = metric("read_tools_micros", "all_tools and read: p50 µs");
/// From the start of the manager to the list, with lazy servers and the tool cache on disk.
pub(crate) const CACHED_TOOLS_MILLIS: Metric = metric("recall_millis", "from cache on disk: ms");
pub(crate) const LIST_KIB: Metric = metric("list_kib_per_server", "tool list: KiB");
pub(crate) const BEYOND_LIST_KIB: Metric =
    metric("beyond_list_kib_per_server", "RSS beyond the list: KiB");
/// Calls beside an unmanaged bad server.
pub(crate) const UNMANAGED_P50: Metric = metric("outside_p50_micros", "unmanaged: p50 µs");
pub(crate) const UNMANAGED_P99: Metric = metric("outside_p99_micros", "unmanaged: p99 µs");
/// Calls beside a bad server of the same manager.
pub(crate) const MANAGED_P50: Metric = metric("inside_p50_micros", "managed: p50 µs");
pub(crate) const MANAGED_P99: Metric = metric("inside_p99_micros", "managed: p99 µs");
pub(crate) const MANAGED_OVER_QUIET: Metric = metric("inside_over_quiet", "managed p99 / quiet");
pub(crate) const MANAGED_OVER_UNMANAGED: Metric =
    metric("inside_over_outside", "managed p99 / unmanaged");
pub(crate) const FAILED_CALLS: Metric = metric("failed_calls", "failed calls");
/// Time from the start of a program to its first output.
pub(crate) const FIRST_OUTPUT: Metric = metric("answer_millis", "first output ms");
/// Memory of the program alone.
pub(crate) const PEAK_MIB: Metric = metric("peak_mib", "peak MiB");
/// Memory of the program and its descendants.
pub(crate) const TREE_PEAK_MIB: Metric = metric("tree_peak_mib", "with children: MiB");
pub(crate) const BUILT_MIB: Metric = metric("built_mib", "as built: MiB");
pub(crate) const STRIPPED_MIB: Metric = metric("stripped_mib", "stripped: MiB");
/// Memory of a gateway with many servers.
pub(crate) const SERVERS_MIB: Metric = metric("servers_mib", "100 servers: MiB");
/// The same with many sessions.
pub(crate) const SESSIONS_MIB: Metric = metric("sessions_mib", "and 1,000 sessions: MiB");
pub(crate) const KIB_PER_SESSION: Metric = metric("kib_per_session", "KiB/session");

impl Metric {
    pub(crate) fn is_higher_better(&self) -> bool {
        *self == CALLS_PER_SECOND || *self == CLIENT_CALLS
    }

    pub(crate) fn best(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        values.reduce(if self.is_higher_better() { f64::max } else { f64::min })
    }

    /// How many times better `value` is than `reference`; above 1 is better.
    pub(crate) fn advantage(self, value: f64, reference: f64) -> f64 {
        if self.is_higher_better() { value / reference } else { reference / value }
    }
}

/// The values of one run, by metric.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Report(pub(crate) BTreeMap<String, f64>);

impl Report {
    pub(crate) fn insert(&mut self, metric: Metric, value: f64) {
        self.0.insert(metric.name.to_owned(), value);
    }

    pub(crate) fn get(&self, metric: Metric) -> Option<f64> {
        self.0.get(metric.name).copied()
    }
}

impl<const N: usize> From<[(Metric, f64); N]> for Report {
    fn from(rows: [(Metric, f64); N]) -> Self {
        Self(rows.into_iter().map(|(metric, value)| (metric.name.to_owned(), value)).collect())
    }
}

/// Outcome of a client process, which prints it; only the benchmark sees that one timed out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Report(Report),
    Failure(String),
    TimedOut,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_round_trips_through_json() {
        let output = Outcome::Report(Report::from([(P50, 4.5)]));
        let line = serde_json::to_string(&output).unwrap();
        assert_eq!(line, r#"{"report":{"p50_micros":4.5}}"#);
        assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), output);
    }

    #[test]
    fn better_value_has_advantage_above_one() {
        assert_eq!(Some(CALLS_PER_SECOND.advantage(300.0, 100.0)), Some(3.0));
        assert_eq!(Some(MILLIS.advantage(2.0, 8.0)), Some(4.0));
        assert_eq!(CALLS_PER_SECOND.best([1.0, 3.0, 2.0].into_iter()), Some(3.0));
        assert_eq!(MILLIS.best([1.0, 3.0, 2.0].into_iter()), Some(1.0));
        assert_eq!(MILLIS.best([].into_iter()), None);
    }
}
