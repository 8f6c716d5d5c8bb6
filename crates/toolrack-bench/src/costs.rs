//! Ledger of costs: counted figures with their accepted values in `docs/internal/costs.toml`.
//!
//! Instructions, allocations and bytes do not depend on the load of the machine, so a change that raises one is found
//! when it is made. A change that buys something with a cost edits the file and says why.
//!
//! **Invariant:** a cost that cannot be measured fails, unless valgrind is missing; a figure in the file that no cost
//! has fails too.

use std::collections::BTreeMap;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum as _;
use toml_edit::DocumentMut;
use toolrack_testkit::harness::{self, print_line, print_progress, run_to_exit};

use crate::cli::{BenchArgs, CostArgs, OutputArgs, SizeArgs};
use crate::clients::ClientName::{self, Gateway, Manager, Toolrack, ToolrackRaw};
use crate::clients::cli_programs::toolrack_path;
use crate::metric::{self as m, Metric};
use crate::pages;
use crate::results::Entry;
use crate::runner::{self, has_valgrind, instruction_count};
use crate::scenario::{CURRENT, Scenario, cli};
use crate::server_process::ServerCommand;

const LEDGER: &str = "docs/internal/costs.toml";

/// Time limit of a program under callgrind.
const PROGRAM_LIMIT: Duration = Duration::from_mins(2);

/// Runs of a scenario whose figure is a median.
const ROUNDS: usize = 3;

/// One accepted figure: its table and key in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    name: &'static str,
    unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Instructions,
    Allocations,
    Bytes,
    Kib,
}

/// How costs are measured.
enum Source {
    /// A scenario of the benchmarks.
    Scenario(&'static str, ClientName, &'static [(Unit, Metric)]),
    /// Instructions of the program. It starts no server: a guardian is a copy of the running program, and under valgrind
    /// that is valgrind.
    Program(fn() -> anyhow::Result<ProgramRun>),
}

const CALL_INSTRUCTIONS: &[(Unit, Metric)] = &[(Unit::Instructions, m::INSTRUCTIONS)];
const CALL_ALLOCATIONS: &[(Unit, Metric)] =
    &[(Unit::Allocations, m::ALLOCATIONS), (Unit::Bytes, m::ALLOCATED_BYTES)];
const CONNECTION_MEMORY: &[(Unit, Metric)] = &[(Unit::Kib, m::RESIDENT_KIB)];

use Source::{Program, Scenario as Measured};

const COSTS: &[(&str, Source)] = &[
    ("stdio-call", Measured("instructions", Toolrack, CALL_INSTRUCTIONS)),
    ("stdio-call", Measured("allocations", Toolrack, CALL_ALLOCATIONS)),
    ("stdio-call-raw", Measured("instructions", ToolrackRaw, CALL_INSTRUCTIONS)),
    ("stdio-call-raw", Measured("allocations", ToolrackRaw, CALL_ALLOCATIONS)),
    ("http-call", Measured("http-instructions", Toolrack, CALL_INSTRUCTIONS)),
    ("http-call", Measured("http-allocations", Toolrack, CALL_ALLOCATIONS)),
    ("http-call-events", Measured("http-events-instructions", Toolrack, CALL_INSTRUCTIONS)),
    ("manager-call", Measured("manager-instructions", Manager, CALL_INSTRUCTIONS)),
    ("manager-call", Measured("manager-allocations", Manager, CALL_ALLOCATIONS)),
    ("list-of-5000-tools", Measured("tools-5000-instructions", Toolrack, CALL_INSTRUCTIONS)),
    ("connect", Measured("connect-instructions", Toolrack, CALL_INSTRUCTIONS)),
    ("idle-connection", Measured("idle-connections", Toolrack, CONNECTION_MEMORY)),
    ("idle-server", Measured("manager-memory", Manager, &[(Unit::Kib, m::BEYOND_LIST_KIB)])),
    ("client-session", Measured("gateway-memory", Gateway, &[(Unit::Kib, m::KIB_PER_SESSION)])),
    ("help", Program(help)),
    ("config-with-100-servers", Program(config_with_100_servers)),
];

/// Arguments of the program, and the configured servers.
struct ProgramRun {
    args: Vec<String>,
    n_servers: usize,
    server: ServerCommand,
    expected_output: &'static str,
}

fn program(
    args: &[&str],
    n_servers: usize,
    expected_output: &'static str,
) -> anyhow::Result<ProgramRun> {
    let args = args.iter().map(|word| (*word).to_owned()).collect();
    let server = ServerCommand::with_tools(5_000)?;
    Ok(ProgramRun { args, n_servers, server, expected_output })
}

fn help() -> anyhow::Result<ProgramRun> {
    program(&["--help"], 0, "Usage")
}

fn config_with_100_servers() -> anyhow::Result<ProgramRun> {
    program(&["config", "check"], 100, "100 servers")
}

impl ProgramRun {
    fn instructions(&self) -> anyhow::Result<f64> {
        let home = tempfile::tempdir()?;
        cli::write_config(home.path(), self.n_servers, |_| self.server.clone())?;
        let mut command = harness::command("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(toolrack_path()?).args(&self.args);
        cli::with_home(&mut command, home.path()).stderr(Stdio::piped());
        let output = run_to_exit(&mut command, PROGRAM_LIMIT)?;
        let printed = [&output.stdout, &output.stderr];
        let is_printed = printed.iter().any(|text| text.contains(self.expected_output));
        ensure!(
            is_printed && !output.timed_out,
            "unexpected output: {}{}",
            output.stdout,
            output.stderr
        );
        instruction_count(&output.stderr).context("callgrind counted nothing")
    }
}

impl Unit {
    const ALL: [Self; 4] = [Self::Instructions, Self::Allocations, Self::Bytes, Self::Kib];

    fn key(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Allocations => "allocations",
            Self::Bytes => "bytes",
            Self::Kib => "kib",
        }
    }

    /// Highest accepted figure.
    fn limit(self, accepted: f64) -> f64 {
        match self {
            Self::Instructions | Self::Bytes => accepted * 1.03,
            // Counted over many calls, so that a rare one, such as growth of a table, shows as a small fraction.
            Self::Allocations => accepted + 0.01,
            Self::Kib => accepted * 1.1,
        }
    }

    /// The figure as it is written to the file.
    fn round(self, figure: f64) -> f64 {
        match self {
            Self::Instructions | Self::Bytes => figure.round(),
            Self::Allocations | Self::Kib => (figure * 100.0).round() / 100.0,
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.name, self.unit.key())
    }
}

type Figures = BTreeMap<Cost, f64>;

/// Measures the costs and compares them with the file.
pub(crate) fn run(args: &CostArgs) -> anyhow::Result<ExitCode> {
    if !has_valgrind() {
        print_line("SKIPPED: costs: valgrind is not installed");
        return Ok(ExitCode::SUCCESS);
    }
    let path = pages::root()?.join(LEDGER);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut ledger: DocumentMut = text.parse().with_context(|| path.display().to_string())?;
    let accepted = read(&ledger)?;
    let measured = measure(&args.only)?;
    let problems = judge(&accepted, &measured);
    for (cost, figure) in &measured {
        let before = accepted.get(cost).map_or("new".to_owned(), |accepted| {
            format!("{accepted} {:+.1} %", (figure / accepted - 1.0) * 100.0)
        });
        print_line(format!(
            "{:<44} {:>14} {before:>24}",
            cost.to_string(),
            cost.unit.round(*figure)
        ));
    }
    if args.write {
        for (cost, figure) in &measured {
            write_figure(&mut ledger, *cost, *figure);
        }
        pages::replace(&path, &ledger.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    for problem in &problems {
        print_line(format!("error: {problem}"));
    }
    if problems.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    print_line(format!(
        "hint: if the change is worth it, accept the figures with `cargo xtask costs --write` and say why in {LEDGER}"
    ));
    Ok(ExitCode::FAILURE)
}

fn is_selected(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|selected| selected == name)
}

fn measure(only: &[String]) -> anyhow::Result<Figures> {
    if let Some(unknown) = only.iter().find(|name| !COSTS.iter().any(|(known, _)| known == name)) {
        let names: Vec<&str> = COSTS.iter().map(|(name, _)| *name).collect();
        bail!("no cost is named `{unknown}`; there are {}", names.join(", "));
    }
    let mut figures = Figures::new();
    for (name, source) in COSTS.iter().filter(|(name, _)| is_selected(only, name)) {
        match source {
            Measured(scenario, client, metrics) => {
                for (unit, figure) in run_scenario(scenario, *client, metrics)
                    .with_context(|| format!("{name}: {scenario}"))?
                {
                    figures.insert(Cost { name, unit }, figure);
                }
            }
            Program(program) => {
                print_progress(*name);
                let instructions = program()?.instructions().with_context(|| (*name).to_owned())?;
                figures.insert(Cost { name, unit: Unit::Instructions }, instructions);
            }
        }
    }
    Ok(figures)
}

fn run_scenario(
    name: &'static str,
    client: ClientName,
    metrics: &[(Unit, Metric)],
) -> anyhow::Result<Vec<(Unit, f64)>> {
    let scenario = Scenario::from_str(name, false).map_err(anyhow::Error::msg)?;
    let args = BenchArgs {
        size: SizeArgs { quick: true },
        rounds: Some(ROUNDS),
        only: vec![scenario],
        clients: vec![client],
        rt: None,
        pin: false,
        output: OutputArgs { no_gate: true, write: false },
    };
    let results = runner::run(scenario.work.subject(), &args)?;
    let entry = Entry { scenario: scenario.name, setup: CURRENT, client };
    if let Some(failure) = results.failure(entry) {
        bail!(failure);
    }
    let figure = |(unit, metric): &(Unit, Metric)| {
        let figure = results.median(entry, *metric);
        Ok((*unit, figure.with_context(|| format!("no {}", metric.heading))?))
    };
    metrics.iter().map(figure).collect()
}

/// The accepted figures.
fn read(ledger: &DocumentMut) -> anyhow::Result<Figures> {
    let mut figures = Figures::new();
    for (name, table) in ledger.iter() {
        let (name, _) = COSTS
            .iter()
            .find(|(known, _)| *known == name)
            .with_context(|| format!("{LEDGER}: no cost is named `{name}`"))?;
        let table = table.as_table().with_context(|| format!("{LEDGER}: `{name}` is no table"))?;
        for (key, value) in table {
            let unit = Unit::ALL.into_iter().find(|unit| unit.key() == key);
            let unit = unit.with_context(|| format!("{LEDGER}: `{name}` has no `{key}`"))?;
            let figure = value.as_float().or_else(|| {
                value.as_integer().map(|number| {
                    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
                    let figure = number as f64;
                    figure
                })
            });
            let figure =
                figure.with_context(|| format!("{LEDGER}: `{name}.{key}` is no number"))?;
            figures.insert(Cost { name, unit }, figure);
        }
    }
    Ok(figures)
}

fn write_figure(ledger: &mut DocumentMut, cost: Cost, figure: f64) {
    let rounded = cost.unit.round(figure);
    let table = ledger.entry(cost.name).or_insert_with(toml_edit::table);
    table[cost.unit.key()] = match cost.unit {
        Unit::Instructions | Unit::Bytes => {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number, far below 2^53")]
            let whole = rounded as i64;
            toml_edit::value(whole)
        }
        Unit::Allocations | Unit::Kib => toml_edit::value(rounded),
    };
}

fn judge(accepted: &Figures, measured: &Figures) -> Vec<String> {
    let problem = |(cost, figure): (&Cost, &f64)| {
        let Some(accepted) = accepted.get(cost) else {
            return Some(format!(
                "{cost} is {}, and no figure is accepted",
                cost.unit.round(*figure)
            ));
        };
        let limit = cost.unit.limit(*accepted);
        (*figure > limit).then(|| {
            format!(
                "{cost} is {}, more than {limit:.2} (accepted: {accepted})",
                cost.unit.round(*figure)
            )
        })
    };
    measured.iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Cost = Cost { name: "stdio-call", unit: Unit::Instructions };
    const ALLOCATIONS: Cost = Cost { name: "stdio-call", unit: Unit::Allocations };
    const MEMORY: Cost = Cost { name: "idle-connection", unit: Unit::Kib };

    #[test]
    fn figure_beyond_its_tolerance_is_a_problem() {
        let accepted = Figures::from([(CALL, 1_000.0), (ALLOCATIONS, 3.0), (MEMORY, 10.0)]);
        let check = |cost, figure, expected: usize| {
            let problems = judge(&accepted, &Figures::from([(cost, figure)]));
            assert_eq!(problems.len(), expected, "{problems:?}");
        };
        check(CALL, 1_030.0, 0);
        check(CALL, 1_031.0, 1);
        check(CALL, 1.0, 0);
        check(ALLOCATIONS, 3.001, 0);
        check(ALLOCATIONS, 4.0, 1);
        check(MEMORY, 11.0, 0);
        check(MEMORY, 11.1, 1);
        check(Cost { name: "stdio-call", unit: Unit::Bytes }, 1.0, 1);
    }

    #[test]
    fn accepted_figures_keep_their_comments() {
        let text = "# Why.\n[stdio-call]\n# More checks.\ninstructions = 1000\n";
        let mut ledger: DocumentMut = text.parse().unwrap();
        write_figure(&mut ledger, CALL, 900.4);
        write_figure(&mut ledger, MEMORY, 1.239);
        assert_eq!(
            ledger.to_string(),
            "# Why.\n[stdio-call]\n# More checks.\ninstructions = 900\n\n[idle-connection]\nkib = 1.24\n"
        );
        assert_eq!(read(&ledger).unwrap(), Figures::from([(CALL, 900.0), (MEMORY, 1.24)]));
        for bad in ["[x]\n", "[stdio-call]\nx = 1\n", "[stdio-call]\nkib = \"1\"\n", "help = 1\n"] {
            assert!(read(&bad.parse().unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_cost_is_accepted_and_measured() {
        let text = fs::read_to_string(pages::root().unwrap().join(LEDGER)).unwrap();
        let accepted = read(&text.parse().unwrap()).unwrap();
        let measured = COSTS.iter().flat_map(|(name, source)| match source {
            Measured(_, _, metrics) => {
                metrics.iter().map(|(unit, _)| Cost { name, unit: *unit }).collect()
            }
            Program(_) => vec![Cost { name, unit: Unit::Instructions }],
        });
        let measured: std::collections::BTreeSet<Cost> = measured.collect();
        assert_eq!(accepted.into_keys().collect::<std::collections::BTreeSet<_>>(), measured);
    }
}
