//! What stands in the columns of each table.

use crate::report::Metric;
use crate::scenario::{Scenario, Subject};
use crate::stats::Better;

/// What a column shows of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Value(Metric),
    /// How many times better than rmcp in the same setup.
    TimesRmcp(Metric),
    /// How many times better than the best peer of the table.
    TimesBestPeer(Metric),
    /// Throughput in percent of the blocking limit, time in multiples of it.
    OfLimit(Metric),
    /// What there is beyond the limit, in the unit of the metric.
    BeyondLimit(Metric),
}

impl Column {
    pub(super) fn heading(self) -> String {
        match self {
            Self::Value(metric) => metric.heading().to_owned(),
            Self::TimesRmcp(_) => "× rmcp".to_owned(),
            Self::TimesBestPeer(_) => "× best peer".to_owned(),
            Self::OfLimit(metric) => match metric.better() {
                Better::Higher => "% of limit".to_owned(),
                Better::Lower => "/ limit".to_owned(),
            },
            Self::BeyondLimit(metric) => format!("added {}", metric.heading()),
        }
    }
}

pub(super) fn columns(scenario: Scenario) -> &'static [Column] {
    match scenario.subject() {
        Subject::Stdio | Subject::Http => columns_of_clients(scenario),
        Subject::Manager => columns_of_rack(scenario),
        Subject::Cli => columns_of_programs(scenario),
        Subject::Gateway => columns_of_gateways(scenario),
    }
}

fn columns_of_clients(scenario: Scenario) -> &'static [Column] {
    use Column::{OfLimit, TimesBestPeer, TimesRmcp, Value};
    use Metric as M;
    match scenario {
        Scenario::Sequential
        | Scenario::HttpJson
        | Scenario::HttpEvents
        | Scenario::HttpJsonMib
        | Scenario::HttpEventsMib => &[
            Value(M::P50Micros),
            Value(M::P99Micros),
            Value(M::CpuMicrosPerCall),
            OfLimit(M::P50Micros),
            TimesRmcp(M::P50Micros),
            TimesBestPeer(M::P50Micros),
        ],
        Scenario::InFlight64 | Scenario::InFlight1024 => &[
            Value(M::CallsPerSecond),
            Value(M::CpuMicrosPerCall),
            OfLimit(M::CallsPerSecond),
            TimesRmcp(M::CallsPerSecond),
            TimesBestPeer(M::CallsPerSecond),
        ],
        Scenario::HttpJson64
        | Scenario::HttpEvents64
        | Scenario::HttpJsonMib64
        | Scenario::HttpEventsMib64 => &[
            Value(M::CallsPerSecond),
            Value(M::P50Micros),
            Value(M::P99Micros),
            Value(M::CpuMicrosPerCall),
            OfLimit(M::CallsPerSecond),
            TimesRmcp(M::CallsPerSecond),
            TimesBestPeer(M::CallsPerSecond),
        ],
        Scenario::HeadOfLine => &[
            Value(M::LoadedMicros),
            Value(M::LoadedP99Micros),
            Value(M::AloneMicros),
            Value(M::LoadedOverAlone),
        ],
        Scenario::Result1Escaped | Scenario::Result8 | Scenario::Result16 => &[
            Value(M::Millis),
            Value(M::CpuMillis),
            Value(M::PeakMegabytes),
            Value(M::OverIdleMegabytes),
            OfLimit(M::Millis),
            TimesRmcp(M::Millis),
            TimesBestPeer(M::Millis),
        ],
        Scenario::Tools5000 => &[
            Value(M::Millis),
            Value(M::CpuMillis),
            Value(M::OverIdleMegabytes),
            Value(M::AgainOverIdleMegabytes),
            OfLimit(M::Millis),
            TimesRmcp(M::Millis),
            TimesBestPeer(M::Millis),
        ],
        Scenario::Connect => &[
            Value(M::Millis),
            Value(M::P99Millis),
            Value(M::CpuMillis),
            OfLimit(M::Millis),
            TimesRmcp(M::Millis),
        ],
        Scenario::IdleLines => &[
            Value(M::ResidentKibPerLine),
            Value(M::AnonymousKibPerLine),
            Value(M::PrivateKibPerGoBetween),
        ],
        Scenario::Instructions | Scenario::HttpInstructions => {
            &[Value(M::Instructions), TimesRmcp(M::Instructions), TimesBestPeer(M::Instructions)]
        }
        Scenario::Allocations | Scenario::HttpAllocations => {
            &[Value(M::Allocations), Value(M::AllocatedBytes), TimesRmcp(M::Allocations)]
        }
        _ => &[],
    }
}

fn columns_of_rack(scenario: Scenario) -> &'static [Column] {
    use Column::{TimesRmcp, Value};
    use Metric as M;
    match scenario {
        Scenario::RackSequential => &[
            Value(M::ClientP50Micros),
            Value(M::P50Micros),
            Value(M::P50OverClient),
            Value(M::ClientCpuMicrosPerCall),
            Value(M::CpuMicrosPerCall),
            Value(M::CpuOverClient),
        ],
        Scenario::RackInFlight64 => &[
            Value(M::ClientCallsPerSecond),
            Value(M::CallsPerSecond),
            Value(M::TimeOverClient),
            Value(M::ClientCpuMicrosPerCall),
            Value(M::CpuMicrosPerCall),
            Value(M::CpuOverClient),
        ],
        Scenario::RackInstructions => &[Value(M::Instructions)],
        Scenario::RackAllocations => &[Value(M::Allocations), Value(M::AllocatedBytes)],
        Scenario::RackTools => &[
            Value(M::AllToolsMicros),
            Value(M::AllToolsP99Micros),
            Value(M::ReadToolsMicros),
            Value(M::RecallMillis),
        ],
        Scenario::RackMemory => &[
            Value(M::ResidentKibPerLine),
            Value(M::AnonymousKibPerLine),
            Value(M::ListKibPerServer),
            Value(M::BeyondListKibPerServer),
            Value(M::PrivateKibPerGoBetween),
        ],
        Scenario::RackStart => &[Value(M::Millis), Value(M::CpuMillis), TimesRmcp(M::Millis)],
        Scenario::RackNeighbours => &[
            Value(M::P50Micros),
            Value(M::P99Micros),
            Value(M::OutsideP50Micros),
            Value(M::OutsideP99Micros),
            Value(M::InsideP50Micros),
            Value(M::InsideP99Micros),
            Value(M::InsideOverQuiet),
            Value(M::InsideOverOutside),
            Value(M::FailedCalls),
        ],
        _ => &[],
    }
}

fn columns_of_programs(scenario: Scenario) -> &'static [Column] {
    use Column::{BeyondLimit, TimesBestPeer, Value};
    use Metric as M;
    match scenario {
        Scenario::CliNode | Scenario::CliDemo => &[
            Value(M::AnswerMillis),
            BeyondLimit(M::AnswerMillis),
            Value(M::Millis),
            BeyondLimit(M::Millis),
            Value(M::PeakMib),
            Value(M::TreePeakMib),
            TimesBestPeer(M::Millis),
        ],
        Scenario::CliWarm => &[Value(M::AnswerMillis), Value(M::Millis)],
        Scenario::CliHelp => &[Value(M::Millis), Value(M::PeakMib), TimesBestPeer(M::Millis)],
        Scenario::CliSize => &[Value(M::BuiltMib), Value(M::StrippedMib)],
        _ => &[],
    }
}

fn columns_of_gateways(scenario: Scenario) -> &'static [Column] {
    use Column::{BeyondLimit, OfLimit, TimesBestPeer, Value};
    use Metric as M;
    match scenario {
        Scenario::GatewayHttp | Scenario::GatewayStdio => &[
            Value(M::P50Micros),
            BeyondLimit(M::P50Micros),
            Value(M::P99Micros),
            TimesBestPeer(M::P50Micros),
        ],
        Scenario::GatewayHttp64 | Scenario::GatewayStdio64 => &[
            Value(M::CallsPerSecond),
            OfLimit(M::CallsPerSecond),
            TimesBestPeer(M::CallsPerSecond),
        ],
        Scenario::GatewayMemory => {
            &[Value(M::ServersMib), Value(M::SessionsMib), Value(M::KibPerSession)]
        }
        _ => &[],
    }
}
