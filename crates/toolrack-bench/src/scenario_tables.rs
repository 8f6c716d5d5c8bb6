//! Result tables: one per scenario and number of cores.

use clap::ValueEnum as _;

use crate::cli::value_name;
use crate::clients::ClientName;
use crate::report::Metric;
use crate::results::{Entry, EntryResult, Results};
use crate::scenario::{Cores, Runtime, Scenario, Setup, Subject};
use crate::stats::Better;
use crate::table::{Table, number};

/// All tables with results, and a line for each skipped scenario.
pub(crate) fn tables(results: &Results) -> Vec<String> {
    let mut sections = Vec::new();
    for scenario in Scenario::value_variants().iter().copied() {
        for cores in [Cores::One, Cores::All] {
            let entries: Vec<Entry> =
                results.entries(scenario).filter(|entry| entry.setup.cores == cores).collect();
            if !entries.is_empty() {
                sections.push(table(results, scenario, cores, entries).render());
            }
        }
    }
    for (scenario, reason) in &results.skipped {
        sections.push(format!("{}: SKIPPED: {reason}\n", value_name(scenario)));
    }
    sections
}

fn table(results: &Results, scenario: Scenario, cores: Cores, mut entries: Vec<Entry>) -> Table {
    entries.sort_by_key(|entry| (entry.client, entry.setup));
    let mut setups: Vec<Setup> = entries.iter().map(|entry| entry.setup).collect();
    setups.sort_unstable();
    setups.dedup();
    let columns = columns(scenario);
    let mut headings = vec!["client".to_owned()];
    headings.extend(columns.iter().map(|column| column.heading()));
    let rows = entries
        .iter()
        .map(|entry| {
            let mut row = vec![label(*entry, &setups)];
            row.extend(cells(results, *entry, &setups, columns));
            row
        })
        .collect();
    Table { title: title(scenario, cores), headings, rows }
}

fn label(entry: Entry, setups: &[Setup]) -> String {
    let label = entry.client.label();
    if setups.len() < 2 || !entry.client.has_runtime() {
        return label.to_owned();
    }
    match entry.setup.runtime {
        Runtime::Current => format!("{label} [current]"),
        Runtime::Multi => format!("{label} [multi]"),
    }
}

fn cells(results: &Results, entry: Entry, setups: &[Setup], columns: &[Column]) -> Vec<String> {
    let failure = match results.get(entry) {
        Some(EntryResult::Measured(_)) => None,
        Some(EntryResult::Failed(reason)) => Some(format!("fails: {reason}")),
        Some(EntryResult::TimedOut) | None => Some("timed out".to_owned()),
    };
    match failure {
        None => columns.iter().map(|column| cell(results, entry, setups, *column)).collect(),
        Some(failure) => {
            let mut cells = vec![String::new(); columns.len()];
            if let Some(first) = cells.first_mut() {
                *first = failure;
            }
            cells
        }
    }
}

fn cell(results: &Results, entry: Entry, setups: &[Setup], column: Column) -> String {
    let (metric, reference) = match column {
        Column::Value(metric) => return value_cell(results, entry, metric),
        Column::AdvantageOverRmcp(metric) => {
            (metric, results.median(Entry { client: ClientName::Rmcp, ..entry }, metric))
        }
        Column::AdvantageOverBestPeer(metric) => {
            (metric, results.best_peer(entry.scenario, setups, metric))
        }
        Column::RelativeToLimit(metric) | Column::AddedToLimit(metric) => {
            (metric, limit_figure(results, entry, metric))
        }
    };
    let (Some(value), Some(reference)) = (results.median(entry, metric), reference) else {
        return NO_VALUE.to_owned();
    };
    let ratio = match (column, metric.better()) {
        (Column::RelativeToLimit(_), Better::Higher) => 100.0 * value / reference,
        (Column::RelativeToLimit(_), Better::Lower) => value / reference,
        (Column::AddedToLimit(_), _) => value - reference,
        (_, better) => better.advantage(value, reference),
    };
    if ratio.is_finite() { number(ratio) } else { NO_VALUE.to_owned() }
}

const NO_VALUE: &str = "–";

/// The median, with the best round in brackets if there were several.
fn value_cell(results: &Results, entry: Entry, metric: Metric) -> String {
    let values = results.values(entry, metric);
    match (results.median(entry, metric), metric.better().best(&values)) {
        (Some(median), Some(best)) if values.len() > 1 => {
            format!("{} [{}]", number(median), number(best))
        }
        (Some(median), _) => number(median),
        _ => NO_VALUE.to_owned(),
    }
}

/// Figure of the limit. It has no Tokio runtime and is measured with the current-thread setup.
fn limit_figure(results: &Results, entry: Entry, metric: Metric) -> Option<f64> {
    let setup = Setup { runtime: Runtime::Current, ..entry.setup };
    let client = match entry.scenario.subject() {
        Subject::Stdio | Subject::Manager | Subject::Cli => ClientName::BareBlock,
        Subject::Http => ClientName::BareTcp,
        Subject::Gateway => ClientName::Direct,
    };
    results.median(Entry { setup, client, ..entry }, metric)
}

fn title(scenario: Scenario, cores: Cores) -> String {
    let title = match scenario {
        Scenario::Sequential => "Sequential calls, 100 B",
        Scenario::InFlight64 => "64 calls in flight, 100 B",
        Scenario::InFlight1024 => "1,024 calls in flight, 100 B",
        Scenario::HeadOfLine => {
            "Head-of-line blocking: a fast call while 4 slow ones (400 ms) are in flight"
        }
        Scenario::Result1Escaped => "One result of 1 MiB with JSON escapes",
        Scenario::Result8 => "One result of 8 MiB without escapes",
        Scenario::Result16 => "One result of 16 MiB without escapes",
        Scenario::Tools5000 => "List of 5,000 tools (7.1 MB of JSON)",
        Scenario::Connect => "Connect: spawn, handshake and a list of 10 tools, one at a time",
        Scenario::IdleConnections => {
            "Idle connections to servers with one tool: memory of the client process"
        }
        Scenario::Instructions => "User-space instructions per sequential call",
        Scenario::Allocations => "Heap allocations per sequential call",
        Scenario::HttpJson => "Sequential calls, JSON responses, 100 B",
        Scenario::HttpEvents => "Sequential calls, SSE responses, 100 B",
        Scenario::HttpJson64 => "64 calls in flight, JSON responses, 100 B",
        Scenario::HttpEvents64 => "64 calls in flight, SSE responses, 100 B",
        Scenario::HttpJsonMib => "Sequential calls, JSON responses, 1 MiB",
        Scenario::HttpEventsMib => "Sequential calls, SSE responses, 1 MiB",
        Scenario::HttpJsonMib64 => "64 calls in flight, JSON responses, 1 MiB",
        Scenario::HttpEventsMib64 => "64 calls in flight, SSE responses, 1 MiB",
        Scenario::HttpInstructions => "User-space instructions per sequential call over HTTP",
        Scenario::HttpAllocations => "Heap allocations per sequential call over HTTP",
        Scenario::ManagerSequential => "Sequential calls, 100 B, through the manager and directly",
        Scenario::ManagerInFlight64 => {
            "64 calls in flight, 100 B, through the manager and directly"
        }
        Scenario::ManagerInstructions => {
            "User-space instructions per sequential call, with a manager"
        }
        Scenario::ManagerAllocations => "Heap allocations per sequential call, with a manager",
        Scenario::ManagerTools => "List of the 5,000 tools of 100 connected servers",
        Scenario::ManagerMemory => "Idle servers with 10 tools: memory per additional server",
        Scenario::ManagerStart => "Start of 100 servers at once, until all are connected",
        Scenario::ManagerBadNeighbor => {
            "Calls on a healthy server beside a bad neighbor that floods, spins and does not read"
        }
        Scenario::CliNode => "Cold call of a Node.js server: `echo` of server-everything 2026.8.31",
        Scenario::CliDemo => "Cold call of a small server: `add` of toolrack's demo server",
        Scenario::CliWarm => "Warm call of the same server through the daemon",
        Scenario::CliHelp => "Help",
        Scenario::CliSize => "Size of the program",
        Scenario::GatewayHttp => "Sequential calls through a gateway over HTTP, 100 B",
        Scenario::GatewayStdio => "Sequential calls through a gateway over stdio, 100 B",
        Scenario::GatewayHttp64 => "64 calls in flight through a gateway over HTTP, 100 B",
        Scenario::GatewayStdio64 => "64 calls in flight through a gateway over stdio, 100 B",
        Scenario::GatewayMemory => "Gateway with 100 servers of 10 tools and 1,000 sessions",
    };
    match cores {
        Cores::One => format!("{title}; client and server on one core"),
        Cores::All => title.to_owned(),
    }
}

/// Content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Value(Metric),
    /// How many times better than rmcp in the same setup.
    AdvantageOverRmcp(Metric),
    /// How many times better than the best peer of the table.
    AdvantageOverBestPeer(Metric),
    /// Throughput in percent of the blocking limit, time in multiples of it.
    RelativeToLimit(Metric),
    /// Difference to the limit, in the unit of the metric.
    AddedToLimit(Metric),
}

impl Column {
    fn heading(self) -> String {
        match self {
            Self::Value(metric) => metric.heading().to_owned(),
            Self::AdvantageOverRmcp(_) => "× rmcp".to_owned(),
            Self::AdvantageOverBestPeer(_) => "× best peer".to_owned(),
            Self::RelativeToLimit(metric) => match metric.better() {
                Better::Higher => "% of limit".to_owned(),
                Better::Lower => "/ limit".to_owned(),
            },
            Self::AddedToLimit(metric) => format!("added {}", metric.heading()),
        }
    }
}

fn columns(scenario: Scenario) -> &'static [Column] {
    match scenario.subject() {
        Subject::Stdio | Subject::Http => client_columns(scenario),
        Subject::Manager => manager_columns(scenario),
        Subject::Cli => cli_columns(scenario),
        Subject::Gateway => gateway_columns(scenario),
    }
}

fn client_columns(scenario: Scenario) -> &'static [Column] {
    use Column::{AdvantageOverBestPeer, AdvantageOverRmcp, RelativeToLimit, Value};
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
            RelativeToLimit(M::P50Micros),
            AdvantageOverRmcp(M::P50Micros),
            AdvantageOverBestPeer(M::P50Micros),
        ],
        Scenario::InFlight64 | Scenario::InFlight1024 => &[
            Value(M::CallsPerSecond),
            Value(M::CpuMicrosPerCall),
            RelativeToLimit(M::CallsPerSecond),
            AdvantageOverRmcp(M::CallsPerSecond),
            AdvantageOverBestPeer(M::CallsPerSecond),
        ],
        Scenario::HttpJson64
        | Scenario::HttpEvents64
        | Scenario::HttpJsonMib64
        | Scenario::HttpEventsMib64 => &[
            Value(M::CallsPerSecond),
            Value(M::P50Micros),
            Value(M::P99Micros),
            Value(M::CpuMicrosPerCall),
            RelativeToLimit(M::CallsPerSecond),
            AdvantageOverRmcp(M::CallsPerSecond),
            AdvantageOverBestPeer(M::CallsPerSecond),
        ],
        Scenario::HeadOfLine => &[
            Value(M::BesideSlowMicros),
            Value(M::BesideSlowP99Micros),
            Value(M::AloneMicros),
            Value(M::BesideSlowOverAlone),
        ],
        Scenario::Result1Escaped | Scenario::Result8 | Scenario::Result16 => &[
            Value(M::Millis),
            Value(M::CpuMillis),
            Value(M::PeakMegabytes),
            Value(M::OverIdleMegabytes),
            RelativeToLimit(M::Millis),
            AdvantageOverRmcp(M::Millis),
            AdvantageOverBestPeer(M::Millis),
        ],
        Scenario::Tools5000 => &[
            Value(M::Millis),
            Value(M::CpuMillis),
            Value(M::OverIdleMegabytes),
            Value(M::RelistOverIdleMegabytes),
            RelativeToLimit(M::Millis),
            AdvantageOverRmcp(M::Millis),
            AdvantageOverBestPeer(M::Millis),
        ],
        Scenario::Connect => &[
            Value(M::Millis),
            Value(M::P99Millis),
            Value(M::CpuMillis),
            RelativeToLimit(M::Millis),
            AdvantageOverRmcp(M::Millis),
        ],
        Scenario::IdleConnections => &[
            Value(M::ResidentKibPerConnection),
            Value(M::AnonymousKibPerConnection),
            Value(M::PrivateKibPerGuardian),
        ],
        Scenario::Instructions | Scenario::HttpInstructions => &[
            Value(M::Instructions),
            AdvantageOverRmcp(M::Instructions),
            AdvantageOverBestPeer(M::Instructions),
        ],
        Scenario::Allocations | Scenario::HttpAllocations => {
            &[Value(M::Allocations), Value(M::AllocatedBytes), AdvantageOverRmcp(M::Allocations)]
        }
        _ => &[],
    }
}

fn manager_columns(scenario: Scenario) -> &'static [Column] {
    use Column::{AdvantageOverRmcp, Value};
    use Metric as M;
    match scenario {
        Scenario::ManagerSequential => &[
            Value(M::ClientP50Micros),
            Value(M::P50Micros),
            Value(M::P50OverClient),
            Value(M::ClientCpuMicrosPerCall),
            Value(M::CpuMicrosPerCall),
            Value(M::CpuOverClient),
        ],
        Scenario::ManagerInFlight64 => &[
            Value(M::ClientCallsPerSecond),
            Value(M::CallsPerSecond),
            Value(M::TimeOverClient),
            Value(M::ClientCpuMicrosPerCall),
            Value(M::CpuMicrosPerCall),
            Value(M::CpuOverClient),
        ],
        Scenario::ManagerInstructions => &[Value(M::Instructions)],
        Scenario::ManagerAllocations => &[Value(M::Allocations), Value(M::AllocatedBytes)],
        Scenario::ManagerTools => &[
            Value(M::AllToolsMicros),
            Value(M::AllToolsP99Micros),
            Value(M::ReadToolsMicros),
            Value(M::CachedToolsMillis),
        ],
        Scenario::ManagerMemory => &[
            Value(M::ResidentKibPerConnection),
            Value(M::AnonymousKibPerConnection),
            Value(M::ListKibPerServer),
            Value(M::BeyondListKibPerServer),
            Value(M::PrivateKibPerGuardian),
        ],
        Scenario::ManagerStart => {
            &[Value(M::Millis), Value(M::CpuMillis), AdvantageOverRmcp(M::Millis)]
        }
        Scenario::ManagerBadNeighbor => &[
            Value(M::P50Micros),
            Value(M::P99Micros),
            Value(M::UnmanagedP50Micros),
            Value(M::UnmanagedP99Micros),
            Value(M::ManagedP50Micros),
            Value(M::ManagedP99Micros),
            Value(M::ManagedOverQuiet),
            Value(M::ManagedOverUnmanaged),
            Value(M::FailedCalls),
        ],
        _ => &[],
    }
}

fn cli_columns(scenario: Scenario) -> &'static [Column] {
    use Column::{AddedToLimit, AdvantageOverBestPeer, Value};
    use Metric as M;
    match scenario {
        Scenario::CliNode | Scenario::CliDemo => &[
            Value(M::FirstOutputMillis),
            AddedToLimit(M::FirstOutputMillis),
            Value(M::Millis),
            AddedToLimit(M::Millis),
            Value(M::PeakMib),
            Value(M::TreePeakMib),
            AdvantageOverBestPeer(M::Millis),
        ],
        Scenario::CliWarm => &[Value(M::FirstOutputMillis), Value(M::Millis)],
        Scenario::CliHelp => {
            &[Value(M::Millis), Value(M::PeakMib), AdvantageOverBestPeer(M::Millis)]
        }
        Scenario::CliSize => &[Value(M::BuiltMib), Value(M::StrippedMib)],
        _ => &[],
    }
}

fn gateway_columns(scenario: Scenario) -> &'static [Column] {
    use Column::{AddedToLimit, AdvantageOverBestPeer, RelativeToLimit, Value};
    use Metric as M;
    match scenario {
        Scenario::GatewayHttp | Scenario::GatewayStdio => &[
            Value(M::P50Micros),
            AddedToLimit(M::P50Micros),
            Value(M::P99Micros),
            AdvantageOverBestPeer(M::P50Micros),
        ],
        Scenario::GatewayHttp64 | Scenario::GatewayStdio64 => &[
            Value(M::CallsPerSecond),
            RelativeToLimit(M::CallsPerSecond),
            AdvantageOverBestPeer(M::CallsPerSecond),
        ],
        Scenario::GatewayMemory => {
            &[Value(M::ServersMib), Value(M::SessionsMib), Value(M::KibPerSession)]
        }
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_process::RunOutcome;
    use crate::report::Report;
    use crate::scenario::{CURRENT, MULTI};

    fn calls(per_second: f64) -> RunOutcome {
        RunOutcome::Measured(Report::from([(Metric::CallsPerSecond, per_second)]))
    }

    #[test]
    fn clients_are_compared_with_limit_and_peers() {
        let mut results = Results::default();
        let entry = |client, setup| Entry { scenario: Scenario::InFlight64, setup, client };
        results.add(entry(ClientName::Tower, MULTI), RunOutcome::TimedOut);
        results.add(entry(ClientName::Pmcp, MULTI), RunOutcome::Failed("no text".to_owned()));
        results.add(entry(ClientName::Rmcp, MULTI), calls(100.0));
        results.add(entry(ClientName::Rmcp, MULTI), calls(110.0));
        results.add(entry(ClientName::Rmcp, CURRENT), calls(210.0));
        results.add(entry(ClientName::BareBlock, CURRENT), calls(1050.0));
        let expected = "\
## 64 calls in flight, 100 B

| client               |         calls/s | CPU µs/call | % of limit | × rmcp | × best peer |
|----------------------|----------------:|------------:|-----------:|-------:|------------:|
| limit: blocking pipe |           1,050 |           – |      100.0 |   5.00 |        5.00 |
| rmcp 3.8.0 [current] |           210.0 |           – |      20.00 |   1.00 |        1.00 |
| rmcp 3.8.0 [multi]   |   105.0 [110.0] |           – |      10.00 |   1.00 |        0.50 |
| pmcp 2.23.0 [multi]  |  fails: no text |             |            |        |             |
| tower-mcp 0.25.0 [multi] |  timed out |             |            |        |             |
";
        let collapse_spaces = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let rendered = tables(&results).join("\n");
        let cells_only = |text: &str| {
            let rows = text.lines().filter(|line| !line.starts_with("|--"));
            collapse_spaces(&rows.collect::<Vec<_>>().join("\n"))
        };
        assert_eq!(cells_only(&rendered), cells_only(expected));
    }

    #[test]
    fn added_time_has_a_column() {
        let mut results = Results::default();
        let entry = |client| Entry { scenario: Scenario::CliDemo, setup: CURRENT, client };
        let exited = |millis| RunOutcome::Measured(Report::from([(Metric::Millis, millis)]));
        results.add(entry(ClientName::Toolrack), exited(12.5));
        results.add(entry(ClientName::BareBlock), exited(4.0));
        let table = tables(&results).join("");
        let cells = |line: &str| -> Vec<String> {
            line.split('|').map(|part| part.trim().to_owned()).collect()
        };
        let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
        let column = rows[2].iter().position(|heading| heading == "added ms").unwrap();
        assert_eq!((rows[4][column].as_str(), rows[5][column].as_str()), ("0.00", "8.50"));
    }

    #[test]
    fn skipped_scenario_is_listed() {
        let mut results = Results::default();
        results.skipped.push((Scenario::Instructions, "valgrind is not installed"));
        let expected = vec!["instructions: SKIPPED: valgrind is not installed\n".to_owned()];
        assert_eq!(tables(&results), expected);
    }
}
