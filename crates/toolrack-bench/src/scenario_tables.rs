//! Which tables there are, and what stands in their cells.

use clap::ValueEnum as _;

use crate::cli::value_name;
use crate::clients::ClientName;
use crate::report::Metric;
use crate::results::{Entry, Finding, Results};
use crate::scenario::{Cores, Runtime, Scenario, Setup, Subject};
use crate::stats::Better;
use crate::table::{Table, number};

/// Every table of what was measured, and a line for what was not.
pub(crate) fn tables(results: &Results) -> Vec<String> {
    let mut sections = Vec::new();
    for scenario in Scenario::value_variants().iter().copied() {
        for cores in [Cores::One, Cores::All] {
            let entries: Vec<Entry> =
                results.entries(scenario).filter(|entries| entries.setup.cores == cores).collect();
            if !entries.is_empty() {
                sections.push(table(results, scenario, cores, entries).render());
            }
        }
    }
    for (scenario, why) in &results.skipped {
        sections.push(format!("{}: SKIPPED: {why}\n", value_name(scenario)));
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
    let instead = match results.finding(entry) {
        Some(Finding::Measured(_)) => None,
        Some(Finding::Failed(why)) => Some(format!("fails: {why}")),
        Some(Finding::NeverFinished) | None => Some("never finishes".to_owned()),
    };
    match instead {
        None => columns.iter().map(|column| cell(results, entry, setups, *column)).collect(),
        Some(instead) => {
            let mut cells = vec![String::new(); columns.len()];
            if let Some(first) = cells.first_mut() {
                *first = instead;
            }
            cells
        }
    }
}

fn cell(results: &Results, entry: Entry, setups: &[Setup], column: Column) -> String {
    let (metric, reference) = match column {
        Column::Value(metric) => return value_cell(results, entry, metric),
        Column::TimesRmcp(metric) => {
            (metric, results.median(Entry { client: ClientName::Rmcp, ..entry }, metric))
        }
        Column::TimesBestPeer(metric) => {
            (metric, results.best_peer(entry.scenario, setups, metric))
        }
        Column::OfLimit(metric) | Column::BeyondLimit(metric) => {
            (metric, limit(results, entry, metric))
        }
    };
    let (Some(value), Some(reference)) = (results.median(entry, metric), reference) else {
        return NOTHING.to_owned();
    };
    let ratio = match (column, metric.better()) {
        (Column::OfLimit(_), Better::Higher) => 100.0 * value / reference,
        (Column::OfLimit(_), Better::Lower) => value / reference,
        (Column::BeyondLimit(_), _) => value - reference,
        (_, better) => better.advantage(value, reference),
    };
    if ratio.is_finite() { number(ratio) } else { NOTHING.to_owned() }
}

const NOTHING: &str = "–";

/// The median, and the best round in brackets where rounds differ.
fn value_cell(results: &Results, entry: Entry, metric: Metric) -> String {
    let values = results.values(entry, metric);
    match (results.median(entry, metric), metric.better().best(&values)) {
        (Some(median), Some(best)) if values.len() > 1 => {
            format!("{} [{}]", number(median), number(best))
        }
        (Some(median), _) => number(median),
        _ => NOTHING.to_owned(),
    }
}

/// The blocking limit has no runtime, and is measured where the others run on the current thread.
fn limit(results: &Results, entry: Entry, metric: Metric) -> Option<f64> {
    let setup = Setup { runtime: Runtime::Current, ..entry.setup };
    let client = match entry.scenario.subject() {
        Subject::Stdio | Subject::Manager | Subject::Cli => ClientName::BareBlock,
        Subject::Http => ClientName::BareTcp,
        Subject::Gateway => ClientName::Direct,
    };
    results.median(Entry { setup, client, ..entry }, metric)
}

fn title(scenario: Scenario, cores: Cores) -> String {
    let what = match scenario {
        Scenario::Sequential => "Sequential calls, 100 B",
        Scenario::InFlight64 => "64 calls in flight, 100 B",
        Scenario::InFlight1024 => "1,024 calls in flight, 100 B",
        Scenario::HeadOfLine => {
            "Head of line: a fast call while 4 slow ones (400 ms) are in flight"
        }
        Scenario::Result1Escaped => "One result of 1 MiB with JSON escapes",
        Scenario::Result8 => "One result of 8 MiB without escapes",
        Scenario::Result16 => "One result of 16 MiB without escapes",
        Scenario::Tools5000 => "A list of 5,000 tools (7.1 MB of JSON)",
        Scenario::Connect => "Connect: spawn, handshake and a list of 10 tools, one at a time",
        Scenario::IdleLines => "Idle lines to servers of one tool: memory of the client process",
        Scenario::Instructions => "User-space instructions per sequential call",
        Scenario::Allocations => "Heap allocations per sequential call",
        Scenario::HttpJson => "Sequential calls, JSON replies, 100 B",
        Scenario::HttpEvents => "Sequential calls, SSE replies, 100 B",
        Scenario::HttpJson64 => "64 calls in flight, JSON replies, 100 B",
        Scenario::HttpEvents64 => "64 calls in flight, SSE replies, 100 B",
        Scenario::HttpJsonMib => "Sequential calls, JSON replies, 1 MiB",
        Scenario::HttpEventsMib => "Sequential calls, SSE replies, 1 MiB",
        Scenario::HttpJsonMib64 => "64 calls in flight, JSON replies, 1 MiB",
        Scenario::HttpEventsMib64 => "64 calls in flight, SSE replies, 1 MiB",
        Scenario::HttpInstructions => "User-space instructions per sequential call over HTTP",
        Scenario::HttpAllocations => "Heap allocations per sequential call over HTTP",
        Scenario::RackSequential => "Sequential calls, 100 B, through the manager and past it",
        Scenario::RackInFlight64 => "64 calls in flight, 100 B, through the manager and past it",
        Scenario::RackInstructions => "User-space instructions per sequential call, with a manager",
        Scenario::RackAllocations => "Heap allocations per sequential call, with a manager",
        Scenario::RackTools => "One list of the 5,000 tools of 100 connected servers",
        Scenario::RackMemory => "Idle servers of 10 tools: memory of our process for each more",
        Scenario::RackStart => "Start: 100 servers at once, until all are connected",
        Scenario::RackNeighbours => {
            "Calls on a healthy server beside one that floods, spins and does not read"
        }
        Scenario::CliNode => {
            "A cold call of a server on Node: `echo` of server-everything 2026.8.31"
        }
        Scenario::CliDemo => "A cold call of a small server: `add` of toolrack's demonstration",
        Scenario::CliWarm => "A warm call of the same server, by way of the daemon",
        Scenario::CliHelp => "Help",
        Scenario::CliSize => "Size of the program",
        Scenario::GatewayHttp => "Sequential calls through a gateway over HTTP, 100 B",
        Scenario::GatewayStdio => "Sequential calls through a gateway on stdio, 100 B",
        Scenario::GatewayHttp64 => "64 calls in flight through a gateway over HTTP, 100 B",
        Scenario::GatewayStdio64 => "64 calls in flight through a gateway on stdio, 100 B",
        Scenario::GatewayMemory => "A gateway with 100 servers of 10 tools and 1,000 sessions",
    };
    match cores {
        Cores::One => format!("{what}; client and server on one core"),
        Cores::All => what.to_owned(),
    }
}

/// What a column shows of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
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
    fn heading(self) -> String {
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

fn columns(scenario: Scenario) -> &'static [Column] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_process::Outcome;
    use crate::report::Report;
    use crate::scenario::{CURRENT, MULTI};

    fn calls(per_second: f64) -> Outcome {
        Outcome::Measured(Report::from([(Metric::CallsPerSecond, per_second)]))
    }

    #[test]
    fn a_table_compares_each_client_with_the_limit_and_the_peers() {
        let mut results = Results::default();
        let entry = |client, setup| Entry { scenario: Scenario::InFlight64, setup, client };
        results.add(entry(ClientName::Tower, MULTI), Outcome::NeverFinished);
        results.add(entry(ClientName::Pmcp, MULTI), Outcome::Failed("no text".to_owned()));
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
| tower-mcp 0.25.0 [multi] |  never finishes |             |            |        |             |
";
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let rendered = tables(&results).join("\n");
        let cells_only = |text: &str| {
            let rows = text.lines().filter(|line| !line.starts_with("|--"));
            squeezed(&rows.collect::<Vec<_>>().join("\n"))
        };
        assert_eq!(cells_only(&rendered), cells_only(expected));
    }

    #[test]
    fn what_a_program_adds_to_its_server_has_a_column() {
        let mut results = Results::default();
        let entry = |client| Entry { scenario: Scenario::CliDemo, setup: CURRENT, client };
        let ended = |millis| Outcome::Measured(Report::from([(Metric::Millis, millis)]));
        results.add(entry(ClientName::Toolrack), ended(12.5));
        results.add(entry(ClientName::BareBlock), ended(4.0));
        let table = tables(&results).join("");
        let cells = |line: &str| -> Vec<String> {
            line.split('|').map(|part| part.trim().to_owned()).collect()
        };
        let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
        let at = rows[2].iter().position(|row| row == "added ms").unwrap();
        assert_eq!((rows[4][at].as_str(), rows[5][at].as_str()), ("0.00", "8.50"));
    }

    #[test]
    fn what_could_not_run_is_named() {
        let mut results = Results::default();
        results.skipped.push((Scenario::Instructions, "valgrind is not installed"));
        let expected = vec!["instructions: SKIPPED: valgrind is not installed\n".to_owned()];
        assert_eq!(tables(&results), expected);
    }
}
