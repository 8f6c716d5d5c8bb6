//! Metrics, and the report that a client process prints as one line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::Better;

/// A measured quantity with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    CallsPerSecond,
    P50Micros,
    P99Micros,
    CpuMicrosPerCall,
    /// Time of one operation: a large result, a list, a connect.
    Millis,
    P99Millis,
    CpuMillis,
    /// Peak resident memory above that of the connected, idle client.
    OverIdleMegabytes,
    PeakMegabytes,
    /// The same after repeated listing, when the client may still hold the previous list.
    #[serde(rename = "again_over_idle_megabytes")]
    RelistOverIdleMegabytes,
    AloneMicros,
    #[serde(rename = "loaded_micros")]
    BesideSlowMicros,
    #[serde(rename = "loaded_p99_micros")]
    BesideSlowP99Micros,
    /// Latency with slow calls in flight, divided by the latency alone.
    #[serde(rename = "loaded_over_alone")]
    BesideSlowOverAlone,
    #[serde(rename = "resident_kib_per_line")]
    ResidentKibPerConnection,
    #[serde(rename = "anonymous_kib_per_line")]
    AnonymousKibPerConnection,
    /// Memory of each guardian process between client and server.
    #[serde(rename = "private_kib_per_go_between")]
    PrivateKibPerGuardian,
    Allocations,
    AllocatedBytes,
    Instructions,
    /// Calls directly on the manager's client of the server.
    ClientP50Micros,
    ClientCallsPerSecond,
    ClientCpuMicrosPerCall,
    /// Through the manager, divided by direct.
    P50OverClient,
    TimeOverClient,
    CpuOverClient,
    AllToolsMicros,
    AllToolsP99Micros,
    /// The same including a read of name, description and schema of each tool.
    ReadToolsMicros,
    /// From the start of the manager to the list, with lazy servers and the tool cache on disk.
    #[serde(rename = "recall_millis")]
    CachedToolsMillis,
    ListKibPerServer,
    BeyondListKibPerServer,
    /// Calls beside an unmanaged bad server.
    #[serde(rename = "outside_p50_micros")]
    UnmanagedP50Micros,
    #[serde(rename = "outside_p99_micros")]
    UnmanagedP99Micros,
    /// Calls beside a bad server of the same manager.
    #[serde(rename = "inside_p50_micros")]
    ManagedP50Micros,
    #[serde(rename = "inside_p99_micros")]
    ManagedP99Micros,
    #[serde(rename = "inside_over_quiet")]
    ManagedOverQuiet,
    #[serde(rename = "inside_over_outside")]
    ManagedOverUnmanaged,
    FailedCalls,
    /// Time from the start of a program to its first output.
    #[serde(rename = "answer_millis")]
    FirstOutputMillis,
    /// Memory of the program alone.
    PeakMib,
    /// Memory of the program and its descendants.
    TreePeakMib,
    BuiltMib,
    StrippedMib,
    /// Memory of a gateway with many servers.
    ServersMib,
    /// The same with many sessions.
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
            Self::RelistOverIdleMegabytes => "MB over idle, repeated",
            Self::AloneMicros => "alone: p50 µs",
            Self::BesideSlowMicros => "beside slow calls: p50 µs",
            Self::BesideSlowP99Micros => "beside slow calls: p99 µs",
            Self::BesideSlowOverAlone => "beside slow calls / alone",
            Self::ResidentKibPerConnection => "RSS KiB/connection",
            Self::AnonymousKibPerConnection => "anonymous KiB/connection",
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
            Self::ReadToolsMicros => "all_tools and read: p50 µs",
            Self::CachedToolsMillis => "from cache on disk: ms",
            Self::ListKibPerServer => "tool list: KiB",
            Self::BeyondListKibPerServer => "RSS beyond the list: KiB",
            Self::UnmanagedP50Micros => "unmanaged: p50 µs",
            Self::UnmanagedP99Micros => "unmanaged: p99 µs",
            Self::ManagedP50Micros => "managed: p50 µs",
            Self::ManagedP99Micros => "managed: p99 µs",
            Self::ManagedOverQuiet => "managed p99 / quiet",
            Self::ManagedOverUnmanaged => "managed p99 / unmanaged",
            Self::FailedCalls => "failed calls",
            Self::FirstOutputMillis => "first output ms",
            Self::PeakMib => "peak MiB",
            Self::TreePeakMib => "with children: MiB",
            Self::BuiltMib => "as built: MiB",
            Self::StrippedMib => "stripped: MiB",
            Self::ServersMib => "100 servers: MiB",
            Self::SessionsMib => "and 1,000 sessions: MiB",
            Self::KibPerSession => "KiB/session",
        }
    }
}

pub(crate) type Report = BTreeMap<Metric, f64>;

/// Output of a client process.
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
    fn output_round_trips_through_json() {
        let output = ClientOutput::Report(Report::from([(Metric::P50Micros, 4.5)]));
        let line = serde_json::to_string(&output).unwrap();
        assert_eq!(line, r#"{"report":{"p50_micros":4.5}}"#);
        assert_eq!(serde_json::from_str::<ClientOutput>(&line).unwrap(), output);
    }
}
