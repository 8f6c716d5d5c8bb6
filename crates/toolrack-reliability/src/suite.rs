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

use crate::cli::{GateArgs, RunArgs};
use crate::findings::Findings;
use crate::gate::{Effort, Gate};
use crate::process::{self, ProcessHandle, ProcessOutput, run_to_exit};
use crate::process_table::{self, ProcessTable};
use crate::random::Seeds;
use crate::report::{Conditions, GateReport, Report};
use crate::subreaper;
use crate::timing::now;

/// Interval between two checks for leftover processes.
const POLL: Duration = Duration::from_millis(20);

/// Time for the guardians of a finished gate: their shutdown timeouts on a busy machine.
const CLEANUP_TIME: Duration = Duration::from_secs(8);

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    process::scripted_server()?;
    subreaper::become_subreaper().context("cannot become the child subreaper")?;
    let (effort, seeds) = (args.effort(), Seeds::choose(args.seed));
    let mut report = Report {
        effort,
        commit: commit(),
        n_cores: thread::available_parallelism().map_or(1, Into::into),
        gates: Vec::new(),
    };
    for gate in args.gates() {
        let gate = run_gate(gate, effort, &seeds)?;
        gate.lines().iter().for_each(crate::print_result);
        report.gates.push(gate);
    }
    let path = args.json.clone().map_or_else(default_report_path, Ok)?;
    write(&path, &report).with_context(|| format!("cannot write {}", path.display()))?;
    crate::print_result(format!("results: {}", path.display()));
    Ok(if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_gate(gate: Gate, effort: Effort, seeds: &Seeds) -> anyhow::Result<GateReport> {
    crate::print_progress(format!("{gate}: {}", gate.promise()));
    let started = now();
    let args = GateArgs { gate, effort, seeds: seeds.all().to_vec() };
    let mut child = process::own_program()?;
    let mut findings = read(run_to_exit(child.args(args.to_args()), effort.limit())?);
    let left = kill_descendants();
    if !left.is_empty() {
        findings.fail(first(seeds), format!("left behind and killed: {}", left.join(" | ")));
    }
    // A failure outside of any seed gets the first seed, so that the replay command works.
    for failure in
        findings.failures.iter_mut().filter(|failure| !seeds.all().contains(&failure.seed))
    {
        failure.seed = first(seeds);
    }
    let (took, load) = (started.elapsed(), process_table::load_average());
    let conditions = Conditions { effort, seeds: seeds.all().to_vec(), took, load };
    Ok(GateReport::new(gate, conditions, findings))
}

fn first(seeds: &Seeds) -> u64 {
    seeds.all().first().copied().unwrap_or_default()
}

fn read(output: ProcessOutput) -> Findings {
    match serde_json::from_str(output.stdout.trim()) {
        Ok(findings) => findings,
        Err(_) => failed(format!("no findings: {}", output.exit_status)),
    }
}

fn failed(what: String) -> Findings {
    let mut findings = Findings::default();
    findings.fail(0, what);
    findings
}

/// Waits for the processes that a gate left running; kills and describes the rest.
fn kill_descendants() -> Vec<String> {
    let deadline = now() + CLEANUP_TIME;
    let mut ended = Vec::new();
    loop {
        subreaper::reap();
        let left = ProcessTable::read().descendants(std::process::id());
        if left.is_empty() || now() > deadline + CLEANUP_TIME {
            return ended;
        }
        if now() > deadline {
            for entry in left {
                // Still alive with the handle open, it is the process of the handle.
                let handle = ProcessHandle::open(entry.pid).filter(|_| entry.is_alive());
                let Some(handle) = handle else { continue };
                ended.push(format!("{} {}", entry.pid, command_line(entry.pid)));
                handle.kill();
            }
        }
        thread::sleep(POLL);
    }
}

fn command_line(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ").trim_end().to_owned()
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

/// The checked-out commit, if the current directory is a clone.
fn commit() -> Option<String> {
    let git = Path::new(".git");
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned());
    };
    let loose = fs::read_to_string(git.join(branch)).ok();
    let packed = || {
        fs::read_to_string(git.join("packed-refs"))
            .ok()
            .and_then(|packed| packed_ref(&packed, branch))
    };
    loose.map(|loose| loose.trim().to_owned()).or_else(packed)
}

fn packed_ref(packed: &str, branch: &str) -> Option<String> {
    let lines = packed.lines().filter_map(|line| line.split_once(' '));
    lines.into_iter().find_map(|(commit, name)| (name == branch).then(|| commit.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stdout: &str, expected: &Findings) {
        let output =
            ProcessOutput { stdout: stdout.to_owned(), exit_status: "signal: 9".to_owned() };
        assert_eq!(read(output), *expected);
    }

    #[test]
    fn missing_findings_are_a_failure() {
        let mut findings = Findings::default();
        findings.count("cycles", 3);
        check(&format!("{}\n", serde_json::to_string(&findings).unwrap()), &findings);
        let silence = failed("no findings: signal: 9".to_owned());
        check("", &silence);
        check("thread panicked", &silence);
    }

    #[test]
    fn packed_branch_is_found() {
        let packed = "# pack-refs with: peeled\nabc refs/heads/other\ndef refs/heads/main\n";
        assert_eq!(packed_ref(packed, "refs/heads/main").as_deref(), Some("def"));
        assert_eq!(packed_ref(packed, "refs/heads/gone"), None);
    }
}
