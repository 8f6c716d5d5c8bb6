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
    AgainOverIdleMegabytes,
    AloneMicros,
    LoadedMicros,
    LoadedP99Micros,
    /// Latency with slow calls in flight, in multiples of the latency alone.
    LoadedOverAlone,
    ResidentKibPerLine,
    AnonymousKibPerLine,
    /// Of each process that a client puts between itself and a server.
    PrivateKibPerGoBetween,
    Allocations,
    AllocatedBytes,
    Instructions,
}

impl Metric {
    pub(crate) fn better(self) -> Better {
        match self {
            Self::CallsPerSecond => Better::Higher,
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
            Self::AgainOverIdleMegabytes => "MB over idle, listed again",
            Self::AloneMicros => "alone p50 µs",
            Self::LoadedMicros => "beside slow p50 µs",
            Self::LoadedP99Micros => "beside slow p99 µs",
            Self::LoadedOverAlone => "beside slow / alone",
            Self::ResidentKibPerLine => "RSS KiB/line",
            Self::AnonymousKibPerLine => "anonymous KiB/line",
            Self::PrivateKibPerGoBetween => "private KiB/guardian",
            Self::Allocations => "allocations/call",
            Self::AllocatedBytes => "bytes/call",
            Self::Instructions => "instructions/call",
        }
    }
}

pub(crate) type Report = BTreeMap<Metric, f64>;

/// The line on a client's stdout.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Report(Report),
    Failure(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_survives_the_pipe() {
        let answer = Answer::Report(Report::from([(Metric::P50Micros, 4.5)]));
        let line = serde_json::to_string(&answer).unwrap();
        assert_eq!(line, r#"{"report":{"p50_micros":4.5}}"#);
        assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
    }
}
