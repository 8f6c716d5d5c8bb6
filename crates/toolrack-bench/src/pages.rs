//! Benchmark pages: BENCHMARKS.md with one short section per subject, and docs/benchmarks/ with all tables.
//!
//! **Invariant:** writing one section leaves the others unchanged.

use crate::chart::Chart;
use crate::clients::{ClientName, Role};
use crate::report::Metric;
use crate::results::{Entry, Results};
use crate::scenario::{CURRENT, MULTI, PINNED, Scenario, Setup, Subject};
use crate::table::{Table, number};

const INTRODUCTION: &str = "\
# Benchmarks

Every client runs in its own process, in interleaved rounds, against the same server. A figure is the median over \
the rounds. `limit` is the same bytes over the same pipe or socket without any MCP client. Compare ratios, not \
times: they depend on the machine. Every section names the commit and the command it was measured with; \
`docs/benchmarks/` has all tables, also those where we do not lead.

```sh
cargo xtask bench stdio --quick            # a first look; also http, manager, cli, gateway
cargo xtask bench stdio --write            # the whole measurement; updates this page
```
";

const SUBJECTS: [Subject; 5] =
    [Subject::Stdio, Subject::Http, Subject::Manager, Subject::Cli, Subject::Gateway];

/// Name of a subject in file names and markers.
pub(crate) fn slug(subject: Subject) -> &'static str {
    match subject {
        Subject::Stdio => "stdio",
        Subject::Http => "http",
        Subject::Manager => "manager",
        Subject::Cli => "cli",
        Subject::Gateway => "gateway",
    }
}

fn title(subject: Subject) -> &'static str {
    match subject {
        Subject::Stdio => "Stdio servers",
        Subject::Http => "HTTP servers",
        Subject::Manager => "Many servers",
        Subject::Cli => "Command line",
        Subject::Gateway => "Gateway",
    }
}

/// Notes that a reader of the tables of a subject needs.
pub(crate) fn legend(subject: Subject) -> &'static str {
    match subject {
        Subject::Stdio => {
            "`limit` is the same bytes over the same pipes without any client. Where a table names no \
             runtime, clients run on Tokio's current-thread runtime. The best round is in brackets."
        }
        Subject::Http => {
            "`limit` is the same bytes over blocking TCP on loopback without any client; in flight it has \
             one connection per call. `bare hyper-util client` sends the same requests with that library's \
             pooled client and ignores the responses. The server supports both eras: `toolrack` uses \
             2026-07-28, the peers by their defaults 2025-11-25, and `toolrack, 2025-11-25 session` is our \
             client with a legacy server."
        }
        Subject::Manager => {
            "Calls through the manager (`call_tool`, `call_tool_raw`) alternate every few milliseconds with \
             the same calls on the manager's own client of that server (`client:`): same process, same \
             server, same connection, so the difference is the manager. The targets use the p50 of \
             sequential calls, the throughput in flight on two threads, and the CPU time in flight on one \
             thread. Memory is the slope between 20 and 120 servers under their guardians. `rmcp` starts the \
             same servers without guardians and does not list tools. The bad neighbor floods its output \
             with well-formed messages, spins a core and stops reading. It takes a core wherever it runs, \
             so it runs twice: outside of the manager, and managed. The target compares these two; \
             against a quiet machine, the scheduler of two cores would be measured too: in some runs a call \
             waits 2 to 4 ms beside a spinning process, managed or not, so three rounds are too few here."
        }
        Subject::Cli => {
            "Every program starts with an empty home, starts the server, makes one call and exits; its time \
             ends when the program and its server are gone. `limit` is the server without any program: start, \
             handshake, call over a pipe, and exit after its input ends, which takes server-everything a third \
             of a second. A program that waits for its server to exit includes that time. Peers and that server \
             run on the same Node.js 24. Memory is the peak resident size of the program, and of all its \
             processes, sampled every millisecond in a separate run."
        }
        Subject::Gateway => {
            "Our client calls a stdio server directly (`limit`) and through a gateway over HTTP or stdio. Our \
             gateway is `toolrack-endpoint`, the daemon's gateway without history; each side uses the newest \
             era that it supports. Memory is the resident size of the gateway process, without guardians and \
             servers; a session is a 2025-11-25 one that has listed the 1,000 tools and keeps its stream open."
        }
    }
}

/// A column of the short table: heading, scenario, setup, metric.
type Headline = (&'static str, Scenario, Setup, Metric);

/// The figures that readers ask for first. The first one becomes the chart.
fn headlines(subject: Subject) -> &'static [Headline] {
    use Metric as M;
    use Scenario as S;
    match subject {
        Subject::Stdio => &[
            ("64 in flight, calls/s", S::InFlight64, MULTI, M::CallsPerSecond),
            ("sequential, one core, p50 µs", S::Sequential, PINNED, M::P50Micros),
            ("instructions per call", S::Instructions, CURRENT, M::Instructions),
            ("list of 5,000 tools, ms", S::Tools5000, CURRENT, M::Millis),
            ("idle connection, KiB", S::IdleConnections, CURRENT, M::ResidentKibPerConnection),
        ],
        Subject::Http => &[
            ("64 in flight, calls/s", S::HttpJson64, MULTI, M::CallsPerSecond),
            ("sequential, one core, p50 µs", S::HttpJson, PINNED, M::P50Micros),
            ("instructions per call", S::HttpInstructions, CURRENT, M::Instructions),
        ],
        Subject::Manager => &[
            ("100 servers connected, ms", S::ManagerStart, MULTI, M::Millis),
            ("64 in flight, calls/s", S::ManagerInFlight64, MULTI, M::CallsPerSecond),
            ("memory per idle server, KiB", S::ManagerMemory, CURRENT, M::BeyondListKibPerServer),
        ],
        Subject::Cli => &[
            ("cold call of a Node.js server, ms", S::CliNode, CURRENT, M::Millis),
            ("cold call of a small server, ms", S::CliDemo, CURRENT, M::Millis),
            ("warm call through the daemon, ms", S::CliWarm, CURRENT, M::Millis),
            ("help, ms", S::CliHelp, CURRENT, M::Millis),
            ("peak memory, MiB", S::CliNode, CURRENT, M::PeakMib),
        ],
        Subject::Gateway => &[
            ("64 in flight over HTTP, calls/s", S::GatewayHttp64, CURRENT, M::CallsPerSecond),
            ("sequential over HTTP, p50 µs", S::GatewayHttp, CURRENT, M::P50Micros),
            ("sequential over stdio, p50 µs", S::GatewayStdio, CURRENT, M::P50Micros),
        ],
    }
}

/// Clients with at least one headline figure, in the order of the tables.
fn measured_clients(results: &Results, subject: Subject) -> Vec<ClientName> {
    let mut clients: Vec<ClientName> = headlines(subject)
        .iter()
        .flat_map(|(_, scenario, setup, _)| {
            results.entries(*scenario).filter(move |entry| entry.setup == *setup)
        })
        .map(|entry| entry.client)
        .collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

fn figure(results: &Results, client: ClientName, headline: &Headline) -> Option<f64> {
    let (_, scenario, setup, metric) = *headline;
    let entry = |setup| Entry { scenario, setup, client };
    // A client without a runtime of its own is measured in one setup only.
    let other = Setup { runtime: CURRENT.runtime, ..setup };
    results.median(entry(setup), metric).or_else(|| results.median(entry(other), metric))
}

/// The short table of BENCHMARKS.md, without columns that were not measured.
pub(crate) fn short_table(results: &Results, subject: Subject) -> Option<Table> {
    let clients = measured_clients(results, subject);
    let headlines: Vec<&Headline> = headlines(subject)
        .iter()
        .filter(|headline| {
            clients.iter().any(|client| figure(results, *client, headline).is_some())
        })
        .collect();
    if headlines.is_empty() {
        return None;
    }
    let mut headings = vec!["client".to_owned()];
    headings.extend(headlines.iter().map(|headline| headline.0.to_owned()));
    let rows = clients
        .iter()
        .map(|client| {
            let mut row = vec![client.label().to_owned()];
            row.extend(headlines.iter().map(|headline| {
                figure(results, *client, headline).map_or_else(|| "–".to_owned(), number)
            }));
            row
        })
        .collect();
    Some(Table { title: title(subject).to_owned(), headings, rows })
}

/// The chart of the first headline, without the limits.
pub(crate) fn chart(results: &Results, subject: Subject) -> Option<Chart> {
    let headline = headlines(subject).first()?;
    let bars: Vec<(String, f64)> = measured_clients(results, subject)
        .into_iter()
        .filter(|client| client.role() != Role::Limit)
        .filter_map(|client| Some((client.label().to_owned(), figure(results, client, headline)?)))
        .collect();
    (bars.len() > 1).then(|| Chart {
        title: format!("{}: {}", title(subject), headline.0),
        better: headline.3.better(),
        bars,
    })
}

/// The section of BENCHMARKS.md about one subject.
pub(crate) fn section(
    subject: Subject,
    provenance: &str,
    table: &Table,
    has_chart: bool,
) -> String {
    let slug = slug(subject);
    let chart = if has_chart {
        format!("![{}](docs/benchmarks/{slug}.svg)\n\n", title(subject))
    } else {
        String::new()
    };
    let (heading, rows) = table.render().split_once("\n\n").map_or_else(
        || (String::new(), String::new()),
        |(heading, rows)| (heading.to_owned(), rows.to_owned()),
    );
    format!("{heading}\n\n{chart}{rows}\n{provenance} All tables: docs/benchmarks/{slug}.md.\n")
}

/// The page with all tables of one subject.
pub(crate) fn raw_page(subject: Subject, provenance: &str, machine: &str, body: &str) -> String {
    format!(
        "# Benchmark: {}\n\n{provenance}\n\n{machine}\n\n{}\n\n{body}",
        title(subject).to_lowercase(),
        legend(subject)
    )
}

/// BENCHMARKS.md with this section in place of the previous one about the same subject.
pub(crate) fn with_section(document: &str, subject: Subject, section: &str) -> String {
    let mut text = INTRODUCTION.to_owned();
    for each in SUBJECTS {
        let kept = if each == subject { Some(section) } else { section_of(document, each) };
        if let Some(kept) = kept {
            text.extend(["\n", kept.trim(), "\n"]);
        }
    }
    text
}

fn section_of(document: &str, subject: Subject) -> Option<&str> {
    let start = document.find(&format!("\n## {}\n", title(subject)))? + 1;
    let rest = document.get(start..)?;
    let end = rest.get(3..)?.find("\n## ").map_or(rest.len(), |at| at + 3);
    rest.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_process::RunOutcome;
    use crate::report::Report;

    #[track_caller]
    fn check(before: &str, subject: Subject, section: &str, expected: &str) {
        let after = with_section(before, subject, section);
        let sections = after.strip_prefix(INTRODUCTION).unwrap();
        assert_eq!(sections, expected);
        assert_eq!(with_section(&after, subject, section), after, "idempotent");
    }

    const BOTH: &str =
        "# Benchmarks\n\n## Stdio servers\n\nold stdio\n\n## HTTP servers\n\nold http\n";

    #[test]
    fn section_replaces_its_predecessor() {
        let new = "## HTTP servers\n\nnew\n";
        check("", Subject::Http, new, "\n## HTTP servers\n\nnew\n");
        check(
            BOTH,
            Subject::Http,
            new,
            "\n## Stdio servers\n\nold stdio\n\n## HTTP servers\n\nnew\n",
        );
        let new = "## Stdio servers\n\nnew\n";
        check(
            BOTH,
            Subject::Stdio,
            new,
            "\n## Stdio servers\n\nnew\n\n## HTTP servers\n\nold http\n",
        );
    }

    fn results() -> Results {
        let mut results = Results::default();
        for (client, setup, per_second) in [
            (ClientName::BareBlock, CURRENT, 1_000.0),
            (ClientName::Toolrack, MULTI, 900.0),
            (ClientName::Rmcp, MULTI, 100.0),
        ] {
            let report = Report::from([(Metric::CallsPerSecond, per_second)]);
            let entry = Entry { scenario: Scenario::InFlight64, setup, client };
            results.add(entry, RunOutcome::Measured(report));
        }
        results
    }

    #[test]
    fn short_table_has_measured_columns_only() {
        let table = short_table(&results(), Subject::Stdio).unwrap();
        assert_eq!(table.headings, ["client", "64 in flight, calls/s"]);
        let cells: Vec<&str> = table.rows.iter().map(|row| row[1].as_str()).collect();
        assert!(cells.contains(&"900.0") && cells.contains(&"100.0"), "{cells:?}");
        assert!(short_table(&Results::default(), Subject::Stdio).is_none());
    }

    #[test]
    fn chart_leaves_the_limits_out() {
        let chart = chart(&results(), Subject::Stdio).unwrap();
        let values: Vec<f64> = chart.bars.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [900.0, 100.0]);
    }

    #[test]
    fn section_names_its_source() {
        let table = short_table(&results(), Subject::Stdio).unwrap();
        let section = section(Subject::Stdio, "Measured at commit abc.", &table, true);
        assert!(
            section.starts_with("## Stdio servers\n\n![Stdio servers](docs/benchmarks/stdio.svg)")
        );
        assert!(
            section.ends_with("Measured at commit abc. All tables: docs/benchmarks/stdio.md.\n")
        );
    }
}
