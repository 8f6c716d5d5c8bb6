//! Runs the gates: one process per gate, its findings, its leftover processes, and the report.
//!
//! **Invariant:** every wait has a limit, and no process of a gate outlives it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use toolrack_testkit::harness::{
    self, ProcessOutput, now, print_line, print_progress, run_to_exit,
};

use crate::cli::{GateArgs, RunArgs};
use crate::findings::{Findings, GateReport, Report};
use crate::gate::{Effort, Gate};
use crate::process;
use crate::random::Seeds;

/// Time for the guardians of a finished gate: their shutdown timeouts on a busy machine.
const CLEANUP_TIME: Duration = Duration::from_secs(8);

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    process::scripted_server()?;
    harness::become_subreaper().context("cannot become the child subreaper")?;
    let (effort, seeds) = (args.effort(), Seeds::choose(args.seed));
    let mut report = Report {
        effort,
        commit: harness::first_line_of("git", &["rev-parse", "HEAD"]),
        n_cores: thread::available_parallelism().map_or(1, Into::into),
        gates: Vec::new(),
    };
    for gate in args.gates() {
        let gate = run_gate(gate, effort, seeds.all(), args.only)?;
        gate.lines().iter().for_each(print_line);
        report.gates.push(gate);
    }
    let path = args.json.clone().map_or_else(default_report_path, Ok)?;
    write(&path, &report).with_context(|| format!("cannot write {}", path.display()))?;
    print_line(format!("results: {}", path.display()));
    Ok(if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_gate(
    gate: Gate,
    effort: Effort,
    seeds: &[u64],
    only: Option<u64>,
) -> anyhow::Result<GateReport> {
    print_progress(format!("{gate}: {}", gate.promise()));
    let started = now();
    let first = seeds.first().copied().unwrap_or_default();
    let args = GateArgs { gate, effort, seeds: seeds.to_vec(), only };
    let mut child = harness::own_program()?;
    let mut findings = read(&run_to_exit(child.args(args.to_args()), effort.limit())?);
    let left = harness::reap_descendants(CLEANUP_TIME)?;
    if !left.is_empty() {
        findings.fail(first, format!("left behind and killed: {}", left.join(" | ")));
    }
    // A failure outside of any seed gets the first seed, so that the replay command works.
    for failure in findings.failures.iter_mut().filter(|failure| !seeds.contains(&failure.seed)) {
        failure.seed = first;
    }
    let report = GateReport::new(gate, effort, seeds, findings);
    Ok(report.under(started.elapsed(), load_average()))
}

fn read(output: &ProcessOutput) -> Findings {
    serde_json::from_str(output.stdout.trim()).unwrap_or_else(|_| {
        let mut findings = Findings::default();
        findings.fail(0, format!("no findings: {}", output.exit_status));
        findings
    })
}

/// Load average of the last minute.
fn load_average() -> Option<f64> {
    parse_load(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn parse_load(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// `target/reliability.json` for `target/release/toolrack-reliability`.
fn default_report_path() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent);
    Ok(target.context("this program is not in a target directory")?.join("reliability.json"))
}

fn write(path: &Path, report: &Report) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    Ok(File::create(path)?.write_all(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stdout: &str, expected: &Findings) {
        let (stdout, exit_status) = (stdout.to_owned(), "signal: 9".to_owned());
        let output = ProcessOutput { stdout, stderr: String::new(), exit_status, timed_out: false };
        assert_eq!(read(&output), *expected);
    }

    #[test]
    fn missing_findings_are_a_failure() {
        let mut findings = Findings::default();
        findings.count("cycles", 3);
        check(&format!("{}\n", serde_json::to_string(&findings).unwrap()), &findings);
        let mut silence = Findings::default();
        silence.fail(0, "no findings: signal: 9");
        check("", &silence);
        check("thread panicked", &silence);
    }

    #[test]
    fn load_average_is_the_first_number() {
        assert_eq!(parse_load("3.93 2.72 3.05 1/92 4711\n"), Some(3.93));
        assert_eq!(parse_load(""), None);
    }
}
