//! What one client process measured, as the one line of JSON it prints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::Better;

/// A quantity, with its unit in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    CallsPerSecond,
    P50Micros,
    P99Micros,
    CpuMicrosPerCall,
    /// Of one operation: a large result, a list, a connect.
    Millis,
    P99Millis,
    CpuMillis,
    /// Peak resident memory above what the connected, idle client had.
    OverIdleMegabytes,
    PeakMegabytes,
    /// The same when a list is asked for again and again, and the client may still have the last one.
    #[serde(rename = "again_over_idle_megabytes")]
    RelistOverIdleMegabytes,
    AloneMicros,
    #[serde(rename = "loaded_micros")]
    BesideSlowMicros,
    #[serde(rename = "loaded_p99_micros")]
    BesideSlowP99Micros,
    /// Latency with slow calls in flight, in multiples of the latency alone.
    #[serde(rename = "loaded_over_alone")]
    BesideSlowOverAlone,
    #[serde(rename = "resident_kib_per_line")]
    ResidentKibPerConnection,
    #[serde(rename = "anonymous_kib_per_line")]
    AnonymousKibPerConnection,
    /// Of each process that a client puts between itself and a server.
    #[serde(rename = "private_kib_per_go_between")]
    PrivateKibPerGuardian,
    Allocations,
    AllocatedBytes,
    Instructions,
    /// The client of the manager's server, called past the manager.
    ClientP50Micros,
    ClientCallsPerSecond,
    ClientCpuMicrosPerCall,
    /// Through the manager, in multiples of past it.
    P50OverClient,
    TimeOverClient,
    CpuOverClient,
    AllToolsMicros,
    AllToolsP99Micros,
    /// The same, and then a look at the name, the description and the schema of each.
    ReadToolsMicros,
    /// From nothing to the list, with what is remembered of servers that do not run.
    #[serde(rename = "recall_millis")]
    CachedToolsMillis,
    ListKibPerServer,
    BeyondListKibPerServer,
    /// Beside the bad server outside of the rack.
    #[serde(rename = "outside_p50_micros")]
    UnmanagedP50Micros,
    #[serde(rename = "outside_p99_micros")]
    UnmanagedP99Micros,
    /// Beside the bad server in the same rack.
    #[serde(rename = "inside_p50_micros")]
    ManagedP50Micros,
    #[serde(rename = "inside_p99_micros")]
    ManagedP99Micros,
    #[serde(rename = "inside_over_quiet")]
    ManagedOverQuiet,
    #[serde(rename = "inside_over_outside")]
    ManagedOverUnmanaged,
    FailedCalls,
    /// Of a program that is started for one call: until it says the first word.
    #[serde(rename = "answer_millis")]
    FirstOutputMillis,
    /// Of the program alone.
    PeakMib,
    /// Of the program and all that it has started.
    TreePeakMib,
    BuiltMib,
    StrippedMib,
    /// Of a gateway before many servers.
    ServersMib,
    /// The same, with many clients.
    SessionsMib,
    KibPerSession,
}

impl Metric {
    pub(crate) fn better(self) -> Better {
        match self {
            Self::CallsPerSecond | Self::ClientCallsPerSecond => Better::Higher,
            _ => Better::Lower,
        }
    }

    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::CallsPerSecond => "calls/s",
            Self::P50Micros => "p50 µs",
            Self::P99Micros => "p99 µs",
            Self::CpuMicrosPerCall => "CPU µs/call",
            Self::Millis => "ms",
            Self::P99Millis => "p99 ms",
            Self::CpuMillis => "CPU ms",
            Self::OverIdleMegabytes => "MB over idle",
            Self::PeakMegabytes => "peak MB",
            Self::RelistOverIdleMegabytes => "MB over idle, listed again",
            Self::AloneMicros => "alone p50 µs",
            Self::BesideSlowMicros => "beside slow p50 µs",
            Self::BesideSlowP99Micros => "beside slow p99 µs",
            Self::BesideSlowOverAlone => "beside slow / alone",
            Self::ResidentKibPerConnection => "RSS KiB/line",
            Self::AnonymousKibPerConnection => "anonymous KiB/line",
            Self::PrivateKibPerGuardian => "private KiB/guardian",
            Self::Allocations => "allocations/call",
            Self::AllocatedBytes => "bytes/call",
            Self::Instructions => "instructions/call",
            Self::ClientP50Micros => "client: p50 µs",
            Self::ClientCallsPerSecond => "client: calls/s",
            Self::ClientCpuMicrosPerCall => "client: CPU µs/call",
            Self::P50OverClient => "p50 / client's",
            Self::TimeOverClient => "time / client's",
            Self::CpuOverClient => "CPU / client's",
            Self::AllToolsMicros => "all_tools: p50 µs",
            Self::AllToolsP99Micros => "all_tools: p99 µs",
            Self::ReadToolsMicros => "and read: p50 µs",
            Self::CachedToolsMillis => "recalled from disk: ms",
            Self::ListKibPerServer => "tool list: KiB",
            Self::BeyondListKibPerServer => "RSS beyond the list: KiB",
            Self::UnmanagedP50Micros => "outside: p50 µs",
            Self::UnmanagedP99Micros => "outside: p99 µs",
            Self::ManagedP50Micros => "in the rack: p50 µs",
            Self::ManagedP99Micros => "in the rack: p99 µs",
            Self::ManagedOverQuiet => "its p99 / quiet",
            Self::ManagedOverUnmanaged => "its p99 / outside",
            Self::FailedCalls => "failed calls",
            Self::FirstOutputMillis => "until the answer ms",
            Self::PeakMib => "peak MiB",
            Self::TreePeakMib => "with its children: MiB",
            Self::BuiltMib => "as built: MiB",
            Self::StrippedMib => "stripped: MiB",
            Self::ServersMib => "100 servers: MiB",
            Self::SessionsMib => "and 1,000 sessions: MiB",
            Self::KibPerSession => "KiB/session",
        }
    }
}

pub(crate) type Report = BTreeMap<Metric, f64>;

/// The line on a client's stdout.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientOutput {
    Report(Report),
    Failure(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_survives_the_pipe() {
        let answer = ClientOutput::Report(Report::from([(Metric::P50Micros, 4.5)]));
        let line = serde_json::to_string(&answer).unwrap();
        assert_eq!(line, r#"{"report":{"p50_micros":4.5}}"#);
        assert_eq!(serde_json::from_str::<ClientOutput>(&line).unwrap(), answer);
    }
}
