//! Benchmark pages: BENCHMARKS.md with one short section per subject, and docs/benchmarks/ with all tables.
//!
//! **Invariant:** writing one section leaves the others unchanged.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context as _;
use toolrack_testkit::harness::first_line_of;

use crate::chart::Chart;
use crate::clients::{ClientName, Role};
use crate::metric::{self as m, Metric};
use crate::results::{Entry, Results};
use crate::scenario::{CURRENT, MULTI, PINNED, Setup, Subject};
use crate::table::{Table, optional};

const FILE: &str = "BENCHMARKS.md";

/// Folder with all tables and charts.
const FOLDER: &str = "docs/benchmarks";

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

/// What the pages say about a subject.
#[derive(Debug, Clone, Copy)]
struct Page {
    subject: Subject,
    /// Name in file names.
    slug: &'static str,
    title: &'static str,
    /// Notes that a reader of the tables needs.
    legend: &'static str,
    /// The figures that readers ask for first. The first one becomes the chart.
    headlines: &'static [Headline],
}

/// A column of the short table: heading, scenario, setup, metric.
type Headline = (&'static str, &'static str, Setup, Metric);

const PAGES: [Page; 5] = [
    Page {
        subject: Subject::Stdio,
        slug: "stdio",
        title: "Stdio servers",
        legend: "`limit` is the same bytes over the same pipes without any client. Where a table names no \
             runtime, clients run on Tokio's current-thread runtime. The best round is in brackets.",
        headlines: &[
            ("64 in flight, calls/s", "in-flight-64", MULTI, m::CALLS_PER_SECOND),
            ("sequential, one core, p50 µs", "sequential", PINNED, m::P50),
            ("instructions per call", "instructions", CURRENT, m::INSTRUCTIONS),
            ("list of 5,000 tools, ms", "tools-5000", CURRENT, m::MILLIS),
            ("idle connection, KiB", "idle-connections", CURRENT, m::RESIDENT_KIB),
        ],
    },
    Page {
        subject: Subject::Http,
        slug: "http",
        title: "HTTP servers",
        legend: "`limit` is the same bytes over blocking TCP on loopback without any client; in flight it has \
             one connection per call. `bare hyper-util client` sends the same requests with that library's \
             pooled client and ignores the responses; `bare hyper connection` uses hyper's connection API, \
             which our own HTTP/1.1 reader has to beat to stay. The server supports both eras: `toolrack` uses \
             2026-07-28, the peers by their defaults 2025-11-25, and `toolrack, 2025-11-25 session` is our \
             client with a legacy server.",
        headlines: &[
            ("64 in flight, calls/s", "http-json-64", MULTI, m::CALLS_PER_SECOND),
            ("sequential, one core, p50 µs", "http-json", PINNED, m::P50),
            ("instructions per call", "http-instructions", CURRENT, m::INSTRUCTIONS),
        ],
    },
    Page {
        subject: Subject::Manager,
        slug: "manager",
        title: "Many servers",
        legend: "Calls through the manager (`call_tool`, `call_tool_raw`) alternate every few milliseconds with \
             the same calls on the manager's own client of that server (`client:`): same process, same \
             server, same connection, so the difference is the manager. The targets use the p50 of \
             sequential calls, the throughput in flight on two threads, and the CPU time in flight on one \
             thread. Memory is the slope between 20 and 120 servers under their guardians. `rmcp` starts the \
             same servers without guardians and does not list tools. The bad neighbor floods its output \
             with well-formed messages, spins a core and stops reading. It takes a core wherever it runs, \
             so it runs twice: outside of the manager, and managed. The target compares these two; \
             against a quiet machine, the scheduler of two cores would be measured too: in some runs a call \
             waits 2 to 4 ms beside a spinning process, managed or not, so three rounds are too few here.",
        headlines: &[
            ("100 servers connected, ms", "manager-start", MULTI, m::MILLIS),
            ("64 in flight, calls/s", "manager-in-flight-64", MULTI, m::CALLS_PER_SECOND),
            ("memory per idle server, KiB", "manager-memory", CURRENT, m::BEYOND_LIST_KIB),
        ],
    },
    Page {
        subject: Subject::Cli,
        slug: "cli",
        title: "Command line",
        legend: "Every program starts with an empty home, starts the server, makes one call and exits; its time \
             ends when the program and its server are gone. `limit` is the server without any program: start, \
             handshake, call over a pipe, and exit after its input ends, which takes server-everything a third \
             of a second. A program that waits for its server to exit includes that time. Peers and that server \
             run on the same Node.js 24. The time until the first byte is read ends in the called server; the \
             other configured servers are not called. Memory is the peak resident size of the program, and of all its \
             processes, sampled every millisecond in a separate run.",
        headlines: &[
            ("cold call of a Node.js server, ms", "cli-node", CURRENT, m::MILLIS),
            ("cold call of a small server, ms", "cli-demo", CURRENT, m::MILLIS),
            ("warm call through the daemon, ms", "cli-warm", CURRENT, m::MILLIS),
            ("first byte at one of 100 servers, ms", "cli-first-byte-100", CURRENT, m::MILLIS),
            ("help, ms", "cli-help", CURRENT, m::MILLIS),
            ("peak memory, MiB", "cli-node", CURRENT, m::PEAK_MIB),
        ],
    },
    Page {
        subject: Subject::Gateway,
        slug: "gateway",
        title: "Gateway",
        legend: "Our client calls a stdio server directly (`limit`) and through a gateway over HTTP or stdio. Our \
             gateway is `toolrack-endpoint`, the daemon's gateway without history; each side uses the newest \
             era that it supports. Memory is the resident size of the gateway process, without guardians and \
             servers; a session is a 2025-11-25 one that has listed the 1,000 tools and keeps its stream open.",
        headlines: &[
            ("64 in flight over HTTP, calls/s", "gateway-http-64", CURRENT, m::CALLS_PER_SECOND),
            ("sequential over HTTP, p50 µs", "gateway-http", CURRENT, m::P50),
            ("sequential over stdio, p50 µs", "gateway-stdio", CURRENT, m::P50),
        ],
    },
];

/// Writes the tables, the chart and the section of BENCHMARKS.md about one subject.
pub(crate) fn write(subject: Subject, results: &Results, body: &str) -> anyhow::Result<()> {
    let page = PAGES.iter().find(|page| page.subject == subject).context("no such page")?;
    let root = root()?;
    let provenance = provenance(&root)?;
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let Page { slug, title, legend, .. } = page;
    let all_tables = format!(
        "# Benchmark: {}\n\n{provenance}\n\n{}\n\n{legend}\n\n{body}",
        title.to_lowercase(),
        machine()?
    );
    replace(&folder.join(format!("{slug}.md")), &all_tables)?;
    let chart = page.chart(results);
    if let Some(chart) = &chart {
        replace(&folder.join(format!("{slug}.svg")), &chart.to_svg())?;
    }
    let Some(table) = page.short_table(results) else { return Ok(()) };
    let path = root.join(FILE);
    let before = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let section = page.section(&provenance, &table, chart.as_ref());
    replace(&path, &page.with_section(&before, &section))
}

impl Page {
    /// Clients with at least one headline figure, in the order of the tables.
    fn clients(&self, results: &Results) -> Vec<ClientName> {
        let entries = self.headlines.iter().flat_map(|(_, scenario, setup, _)| {
            let entries = results.entries(scenario).into_iter();
            entries.filter(move |entry| entry.setup == *setup)
        });
        let mut clients: Vec<ClientName> = entries.map(|entry| entry.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// The short table of BENCHMARKS.md, without columns that were not measured.
    fn short_table(&self, results: &Results) -> Option<Table> {
        let clients = self.clients(results);
        let is_measured = |headline: &&Headline| {
            clients.iter().any(|client| figure(results, *client, headline).is_some())
        };
        let headlines: Vec<&Headline> = self.headlines.iter().filter(is_measured).collect();
        if headlines.is_empty() {
            return None;
        }
        let headings = headlines.iter().map(|headline| headline.0);
        let headings = ["client"].into_iter().chain(headings).map(str::to_owned).collect();
        let row = |client: &ClientName| {
            let figures = headlines.iter().map(|headline| figure(results, *client, headline));
            [client.label().to_owned()].into_iter().chain(figures.map(optional)).collect()
        };
        let rows = clients.iter().map(row).collect();
        Some(Table { title: self.title.to_owned(), headings, rows })
    }

    /// The chart of the first headline, without the limits.
    fn chart(&self, results: &Results) -> Option<Chart> {
        let headline = self.headlines.first()?;
        let clients = self.clients(results).into_iter();
        let bars: Vec<(String, f64)> = clients
            .filter(|client| client.role() != Role::Limit)
            .filter_map(|client| {
                Some((client.label().to_owned(), figure(results, client, headline)?))
            })
            .collect();
        let title = format!("{}: {}", self.title, headline.0);
        (bars.len() > 1).then_some(Chart { title, metric: headline.3, bars })
    }

    /// The section of BENCHMARKS.md.
    fn section(&self, provenance: &str, table: &Table, chart: Option<&Chart>) -> String {
        let Self { slug, title, .. } = self;
        let chart = chart.map(|_| format!("![{title}]({FOLDER}/{slug}.svg)\n\n"));
        let table = table.render();
        let rows = table.split_once("\n\n").map_or("", |(_heading, rows)| rows);
        let chart = chart.unwrap_or_default();
        format!("## {title}\n\n{chart}{rows}\n{provenance} All tables: {FOLDER}/{slug}.md.\n")
    }

    /// BENCHMARKS.md with this section in place of the previous one about the same subject.
    fn with_section(&self, document: &str, section: &str) -> String {
        let mut text = INTRODUCTION.to_owned();
        for page in &PAGES {
            let is_new = page.subject == self.subject;
            let kept = if is_new { Some(section) } else { section_of(document, page.title) };
            if let Some(kept) = kept {
                text.extend(["\n", kept.trim(), "\n"]);
            }
        }
        text
    }
}

fn figure(results: &Results, client: ClientName, headline: &Headline) -> Option<f64> {
    let (_, scenario, setup, metric) = *headline;
    let entry = |setup| Entry { scenario, setup, client };
    // A client without a runtime of its own is measured in one setup only.
    let other = Setup { runtime: CURRENT.runtime, ..setup };
    results.median(entry(setup), metric).or_else(|| results.median(entry(other), metric))
}

fn section_of<'a>(document: &'a str, title: &str) -> Option<&'a str> {
    let start = document.find(&format!("\n## {title}\n"))? + 1;
    let rest = document.get(start..)?;
    let end = rest.get(3..)?.find("\n## ").map_or(rest.len(), |at| at + 3);
    rest.get(..end)
}

/// The workspace that contains the current directory.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir()?;
    let root = here.ancestors().find(|ancestor| ancestor.join("Cargo.lock").exists());
    Ok(root.context("not inside a workspace")?.to_owned())
}

/// Replaces a file atomically, so that a reader never sees half of it.
pub(crate) fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = path.with_extension("md.new");
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    Ok(())
}

/// Commit, date and command of a measurement. The commit is marked if product code differs from it.
fn provenance(root: &Path) -> anyhow::Result<String> {
    let root = root.to_string_lossy();
    let git = |args: &[&str]| first_line_of("git", &[&["-C", &root], args].concat());
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let is_changed = git(&["status", "--porcelain", "--", "crates", "Cargo.lock"]).is_some();
    let changes = if is_changed { " with local changes" } else { "" };
    let date = first_line_of("date", &["-u", "+%F"]).context("`date` does not run")?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = words.join(" ");
    Ok(format!(
        "Measured at commit {commit}{changes} on {date} with `cargo xtask bench {command}`."
    ))
}

fn machine() -> anyhow::Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let n_cores = thread::available_parallelism()?.get();
    let cpu = cpu_model(&cpuinfo).unwrap_or("unknown");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let rustc = first_line_of("rustc", &["--version"]).context("rustc does not run")?;
    Ok(format!("Machine: {n_cores} cores ({cpu}), Linux {}, {rustc}.", kernel.trim()))
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::metric::{Outcome, Report};
    use crate::scenario::Scenario;

    const STDIO: Page = PAGES[0];
    const HTTP: Page = PAGES[1];

    #[track_caller]
    fn check(before: &str, page: &Page, section: &str, expected: &str) {
        let after = page.with_section(before, section);
        let sections = after.strip_prefix(INTRODUCTION).unwrap();
        assert_eq!(sections, expected);
        assert_eq!(page.with_section(&after, section), after, "idempotent");
    }

    const BOTH: &str =
        "# Benchmarks\n\n## Stdio servers\n\nold stdio\n\n## HTTP servers\n\nold http\n";

    #[test]
    fn section_replaces_its_predecessor() {
        let new = "## HTTP servers\n\nnew\n";
        check("", &HTTP, new, "\n## HTTP servers\n\nnew\n");
        check(BOTH, &HTTP, new, "\n## Stdio servers\n\nold stdio\n\n## HTTP servers\n\nnew\n");
        let new = "## Stdio servers\n\nnew\n";
        check(BOTH, &STDIO, new, "\n## Stdio servers\n\nnew\n\n## HTTP servers\n\nold http\n");
    }

    fn results() -> Results {
        let mut results = Results::default();
        for (client, setup, per_second) in [
            (ClientName::BareBlock, CURRENT, 1_000.0),
            (ClientName::Toolrack, MULTI, 900.0),
            (ClientName::Rmcp, MULTI, 100.0),
        ] {
            let report = Report::from([(m::CALLS_PER_SECOND, per_second)]);
            let entry = Entry { scenario: "in-flight-64", setup, client };
            results.add(entry, Outcome::Report(report));
        }
        results
    }

    #[test]
    fn short_table_has_measured_columns_only() {
        let table = STDIO.short_table(&results()).unwrap();
        assert_eq!(table.headings, ["client", "64 in flight, calls/s"]);
        let cells: Vec<&str> = table.rows.iter().map(|row| row[1].as_str()).collect();
        assert!(cells.contains(&"900.0") && cells.contains(&"100.0"), "{cells:?}");
        assert!(STDIO.short_table(&Results::default()).is_none());
    }

    #[test]
    fn chart_leaves_the_limits_out() {
        let chart = STDIO.chart(&results()).unwrap();
        let values: Vec<f64> = chart.bars.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [900.0, 100.0]);
    }

    #[test]
    fn section_names_its_source() {
        let (table, chart) = (STDIO.short_table(&results()).unwrap(), STDIO.chart(&results()));
        let section = STDIO.section("Measured at commit abc.", &table, chart.as_ref());
        assert!(
            section.starts_with("## Stdio servers\n\n![Stdio servers](docs/benchmarks/stdio.svg)")
        );
        assert!(
            section.ends_with("Measured at commit abc. All tables: docs/benchmarks/stdio.md.\n")
        );
    }

    #[test]
    fn headlines_name_scenarios_and_metrics() {
        for (heading, scenario, _, metric) in PAGES.iter().flat_map(|page| page.headlines) {
            let scenario = Scenario::from_str(scenario, false).unwrap();
            assert_eq!(scenario.metric(metric.name), Some(*metric), "{heading}");
        }
    }

    #[test]
    fn provenance_names_commit_date_and_command() {
        let text = provenance(&root().unwrap()).unwrap();
        let words: Vec<&str> = text.split(' ').collect();
        assert!(text.starts_with("Measured at commit ") && text.contains(" on 20"), "{words:?}");
        assert!(text.contains(" with `cargo xtask bench "), "{words:?}");
    }

    #[test]
    fn cpu_model_is_parsed() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast CPU\n"), Some("Fast CPU"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
    }
}
