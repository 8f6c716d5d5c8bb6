//! Performance targets, and whether a measurement meets them.
//!
//! A target with missing figures was not run; it does not fail the benchmark.

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;

use crate::clients::ClientName;
use crate::metric::Metric;
use crate::results::{Entry, Results};
use crate::scenario::{CURRENT, MULTI, PINNED, Runtime, Scenario, Setup, Subject};
use crate::table::{Table, number, optional};

/// The targets of a subject: name, bound, figure, and the scenario, setup and metric that it is computed from.
///
/// The figure is the median of a client, alone or with another client: `×` is how many times better, `/` the quotient,
/// `-` the difference. `best` is the best peer with the same number of cores, on any runtime. A number divides.
#[expect(clippy::too_many_lines, reason = "a table")]
fn table(subject: Subject) -> &'static str {
    match subject {
        // An owned text is a copy, which a bare reader does not make; so decoded and raw results are both compared
        // with the bounds. 8 and 16 MiB are 8.388608 and 16.777216 MB.
        Subject::Stdio => {
            "
sequential, one core: × rmcp (p50)                    | ≥ 3.3  | toolrack × rmcp              | sequential pinned p50_micros
sequential, one core: × best peer (p50)               | ≥ 2.2  | toolrack × best              | sequential pinned p50_micros
64 in flight [multi]: × rmcp                          | ≥ 6    | toolrack × rmcp              | in-flight-64 multi calls_per_second
64 in flight [multi]: × best peer on either runtime   | ≥ 2.2  | toolrack × best              | in-flight-64 multi calls_per_second
64 in flight [current]: × best peer on either runtime | ≥ 2.2  | toolrack × best              | in-flight-64 current calls_per_second
1,024 in flight [multi]: × rmcp                       | ≥ 10   | toolrack × rmcp              | in-flight-1024 multi calls_per_second
1,024 in flight [current]: × rmcp                     | ≥ 10   | toolrack × rmcp              | in-flight-1024 current calls_per_second
head-of-line blocking: beside slow calls / alone      | ≤ 2    | toolrack                     | head-of-line pinned loaded_over_alone
instructions per call, raw result                     | ≤ 6500 | toolrack-raw                 | instructions current instructions
allocations per call, raw result                      | ≤ 4    | toolrack-raw                 | allocations current allocations
8 MiB result: time / bare reader's                    | ≤ 1.3  | toolrack / bare-block        | result-8 current millis
8 MiB result, raw: time / bare reader's               | ≤ 1.3  | toolrack-raw / bare-block    | result-8 current millis
16 MiB result: time / bare reader's                   | ≤ 1.3  | toolrack / bare-block        | result-16 current millis
16 MiB result, raw: time / bare reader's              | ≤ 1.3  | toolrack-raw / bare-block    | result-16 current millis
8 MiB result: CPU / rmcp's                            | ≤ 0.5  | toolrack / rmcp              | result-8 current cpu_millis
8 MiB result: memory / payload                        | ≤ 1.3  | toolrack / 8.388608          | result-8 current over_idle_megabytes
8 MiB result, raw: memory / payload                   | ≤ 1.3  | toolrack-raw / 8.388608      | result-8 current over_idle_megabytes
16 MiB result: memory / payload                       | ≤ 1.3  | toolrack / 16.777216         | result-16 current over_idle_megabytes
16 MiB result, raw: memory / payload                  | ≤ 1.3  | toolrack-raw / 16.777216     | result-16 current over_idle_megabytes
5,000 tools: × rmcp                                   | ≥ 4    | toolrack × rmcp              | tools-5000 current millis
5,000 tools: MB over idle                             | ≤ 25   | toolrack                     | tools-5000 current over_idle_megabytes
connect without guardian: time / rmcp's               | ≤ 1    | toolrack / rmcp              | connect current millis
connect with guardian: ms more than rmcp              | ≤ 2    | toolrack-guarded - rmcp      | connect current millis
idle connection: KiB of resident memory               | ≤ 16   | toolrack                     | idle-connections current resident_kib_per_line
guardian: KiB of private memory                       | ≤ 1024 | toolrack-guarded             | idle-connections current private_kib_per_go_between
"
        }
        // Peers are compared on the same runtime; the bare TCP client has no runtime.
        Subject::Http => {
            "
64 in flight, JSON 100 B [multi]: × rmcp           | ≥ 7    | toolrack × rmcp     | http-json-64 multi calls_per_second
64 in flight, JSON 100 B [multi]: × pmcp           | ≥ 1.8  | toolrack × pmcp     | http-json-64 multi calls_per_second
sequential, JSON 100 B [multi]: p50 / bare TCP's   | ≤ 1.35 | toolrack / bare-tcp | http-json multi p50_micros
64 in flight, JSON 100 B [multi]: CPU / rmcp's     | ≤ 0.25 | toolrack / rmcp     | http-json-64 multi cpu_micros_per_call
sequential, JSON 100 B [multi]: CPU / rmcp's       | ≤ 0.25 | toolrack / rmcp     | http-json multi cpu_micros_per_call
64 in flight, JSON 100 B [current]: × rmcp         | ≥ 7    | toolrack × rmcp     | http-json-64 current calls_per_second
64 in flight, JSON 100 B [current]: × pmcp         | ≥ 1.8  | toolrack × pmcp     | http-json-64 current calls_per_second
sequential, JSON 100 B [current]: p50 / bare TCP's | ≤ 1.35 | toolrack / bare-tcp | http-json current p50_micros
64 in flight, JSON 100 B [current]: CPU / rmcp's   | ≤ 0.25 | toolrack / rmcp     | http-json-64 current cpu_micros_per_call
sequential, JSON 100 B [current]: CPU / rmcp's     | ≤ 0.25 | toolrack / rmcp     | http-json current cpu_micros_per_call
sequential, one core: p50 / hyper connection's     | ≤ 1    | toolrack / bare-hyper-connection | http-json pinned p50_micros
64 in flight, one core: CPU / hyper connection's   | ≤ 1    | toolrack / bare-hyper-connection | http-json-64 pinned cpu_micros_per_call
"
        }
        // On one core, latency is work; on two cores it is mostly waking the other core. In flight on one thread, CPU
        // time is work, while the throughput also depends on the server's core.
        Subject::Manager => {
            "
sequential, one core: p50 / client's               | ≤ 1.15 | manager             | manager-sequential pinned p50_over_client
sequential [multi]: p50 / client's                 | ≤ 1.15 | manager             | manager-sequential multi p50_over_client
64 in flight [multi]: time / client's              | ≤ 1.15 | manager             | manager-in-flight-64 multi time_over_client
64 in flight [current]: CPU / client's             | ≤ 1.15 | manager             | manager-in-flight-64 current cpu_over_client
sequential, one core, raw result: p50 / client's   | ≤ 1.15 | manager-raw         | manager-sequential pinned p50_over_client
sequential [multi], raw result: p50 / client's     | ≤ 1.15 | manager-raw         | manager-sequential multi p50_over_client
64 in flight [multi], raw result: time / client's  | ≤ 1.15 | manager-raw         | manager-in-flight-64 multi time_over_client
64 in flight [current], raw result: CPU / client's | ≤ 1.15 | manager-raw         | manager-in-flight-64 current cpu_over_client
all_tools, 100 × 50: p99 in ms                     | ≤ 1    | manager / 1000      | manager-tools current all_tools_p99_micros
idle server: KiB beyond its tool list              | ≤ 40   | manager             | manager-memory current beyond_list_kib_per_server
start of 100 servers [multi]: time / rmcp's        | ≤ 4    | manager / rmcp      | manager-start multi millis
start of 100 servers [current]: time / rmcp's      | ≤ 4    | manager / rmcp      | manager-start current millis
bad neighbor [multi]: p99 managed / unmanaged      | ≤ 2    | manager             | manager-bad-neighbor multi inside_over_outside
bad neighbor [current]: p99 managed / unmanaged    | ≤ 2    | manager             | manager-bad-neighbor current inside_over_outside
bad neighbor [multi]: failed calls                 | ≤ 0    | manager             | manager-bad-neighbor multi failed_calls
bad neighbor [current]: failed calls               | ≤ 0    | manager             | manager-bad-neighbor current failed_calls
"
        }
        Subject::Cli => {
            "
first output, Node.js server: ms added | ≤ 40 | toolrack - bare-block | cli-node current answer_millis
first output, small server: ms added   | ≤ 40 | toolrack - bare-block | cli-demo current answer_millis
call, Node.js server: ms added         | ≤ 40 | toolrack - bare-block | cli-node current millis
call, small server: ms added           | ≤ 40 | toolrack - bare-block | cli-demo current millis
call, Node.js server: × best peer      | ≥ 1  | toolrack × best       | cli-node current millis
call, small server: × best peer        | ≥ 1  | toolrack × best       | cli-demo current millis
call: peak MiB                         | ≤ 20 | toolrack              | cli-node current peak_mib
warm call through the daemon: ms       | ≤ 15 | toolrack              | cli-warm current millis
help: ms                               | ≤ 10 | toolrack              | cli-help current millis
size, stripped: MiB                    | ≤ 25 | toolrack              | cli-size current stripped_mib
"
        }
        Subject::Gateway => {
            "
64 in flight, HTTP: × peer          | ≥ 5   | gateway × best   | gateway-http-64 current calls_per_second
64 in flight, stdio: × peer         | ≥ 5   | gateway × best   | gateway-stdio-64 current calls_per_second
sequential, HTTP: µs added (p50)    | ≤ 200 | gateway - direct | gateway-http current p50_micros
sequential, stdio: µs added (p50)   | ≤ 200 | gateway - direct | gateway-stdio current p50_micros
100 servers and 1,000 sessions: MiB | ≤ 150 | gateway          | gateway-memory current sessions_mib
"
        }
    }
}

/// A client without MCP, whose figures show what the machine can do, and its heading.
fn bare(subject: Subject) -> Option<(ClientName, &'static str)> {
    match subject {
        Subject::Stdio => Some((ClientName::BareTokio, "bare Tokio pipe")),
        Subject::Http => Some((ClientName::BareHyper, "bare hyper-util client")),
        // These subjects have no bare counterpart.
        Subject::Manager | Subject::Cli | Subject::Gateway => None,
    }
}

/// A target and its measured figure.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    name: &'static str,
    is_minimum: bool,
    bound: f64,
    measured: Option<f64>,
    /// Figure of the bare client. A bound beyond it cannot be met on this machine.
    at_limit: Option<f64>,
}

impl Target {
    fn status(&self) -> &'static str {
        match self.measured {
            None => "not run",
            Some(value) if self.is_minimum && value >= self.bound => "ok",
            Some(value) if !self.is_minimum && value <= self.bound => "ok",
            Some(_) => "MISSED",
        }
    }
}

/// Evaluates the targets of a subject.
pub(crate) fn evaluate(subject: Subject, results: &Results) -> anyhow::Result<Vec<Target>> {
    let rows = table(subject).lines().filter(|row| !row.is_empty());
    rows.map(|row| parse(row, subject, results).with_context(|| format!("target `{row}`")))
        .collect()
}

fn parse(row: &'static str, subject: Subject, results: &Results) -> anyhow::Result<Target> {
    let cells: Vec<&'static str> = row.split('|').map(str::trim).collect();
    let [name, bound, figure, source] = *cells.as_slice() else { bail!("not four cells") };
    let (is_minimum, bound) = match bound.split_once(' ') {
        Some(("≥", bound)) => (true, bound.parse()?),
        Some(("≤", bound)) => (false, bound.parse()?),
        _ => bail!("no bound"),
    };
    let source: Vec<&str> = source.split(' ').collect();
    let [scenario, setup, metric] = *source.as_slice() else { bail!("not three words") };
    let scenario = Scenario::from_str(scenario, false).map_err(anyhow::Error::msg)?;
    let setup = match setup {
        "pinned" => PINNED,
        "multi" => MULTI,
        "current" => CURRENT,
        _ => bail!("no setup"),
    };
    let metric = scenario.metric(metric).context("the scenario has no such metric")?;
    let words: Vec<&str> = figure.split(' ').collect();
    let client = client(words.first().context("no client")?)?;
    let figure = |client| {
        let entry = Entry { scenario: scenario.name, setup, client };
        compute(results, entry, metric, words.get(1..).unwrap_or_default())
    };
    let at_limit = bare(subject).map(|(client, _)| figure(client)).transpose()?.flatten();
    Ok(Target { name, is_minimum, bound, measured: figure(client)?, at_limit })
}

fn client(name: &str) -> anyhow::Result<ClientName> {
    ClientName::from_str(name, false).map_err(anyhow::Error::msg)
}

fn compute(
    results: &Results,
    entry: Entry,
    metric: Metric,
    operation: &[&str],
) -> anyhow::Result<Option<f64>> {
    let value = results.median(entry, metric);
    let (operator, reference) = match operation {
        [] => return Ok(value),
        [operator, "best"] => {
            (operator, results.best_peer(entry.scenario, entry.setup.cores, metric))
        }
        [operator, operand] => match operand.parse() {
            Ok(number) => (operator, Some(number)),
            Err(_) => {
                let client = client(operand)?;
                // A client without a runtime is measured once.
                let runtime =
                    if client.has_runtime() { entry.setup.runtime } else { Runtime::Current };
                let setup = Setup { runtime, ..entry.setup };
                (operator, results.median(Entry { setup, client, ..entry }, metric))
            }
        },
        _ => bail!("no figure"),
    };
    let Some((value, reference)) = value.zip(reference) else { return Ok(None) };
    Ok(Some(match *operator {
        "×" => metric.advantage(value, reference),
        "/" => value / reference,
        "-" => value - reference,
        _ => bail!("no operator"),
    }))
}

pub(crate) fn all_met(targets: &[Target]) -> bool {
    targets.iter().all(|target| target.status() != "MISSED")
}

/// The table of targets.
pub(crate) fn render(subject: Subject, targets: &[Target]) -> String {
    let bare = bare(subject).map(|(_, heading)| heading);
    let row = |target: &Target| {
        let comparison = if target.is_minimum { "≥" } else { "≤" };
        let mut row = vec![
            target.name.to_owned(),
            format!("{comparison} {}", number(target.bound)),
            optional(target.measured),
            target.status().to_owned(),
        ];
        row.extend(bare.map(|_| optional(target.at_limit)));
        row
    };
    let headings = ["target", "bound", "measured", "status"].into_iter().chain(bare);
    let headings = headings.map(str::to_owned).collect();
    let rows = targets.iter().map(row).collect();
    Table { title: "Targets".to_owned(), headings, rows }.render()
}

#[cfg(test)]
mod tests;
