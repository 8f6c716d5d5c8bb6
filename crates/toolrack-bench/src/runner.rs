//! Benchmark runner: runs the selected clients and scenarios in interleaved rounds, each client in its own process.
//!
//! **Invariant:** when a client process has been run, it and everything it started have exited.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::ValueEnum as _;
use toolrack_testkit::harness::{self, print_progress, run_to_exit};

use crate::cli::{BenchArgs, ClientArgs};
use crate::metric::{INSTRUCTIONS, Outcome, Report};
use crate::results::{Entry, Results};
use crate::scenario::{Cores, Scenario, Subject};

/// Time for the descendants of a client to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(8);

/// Runs the selected scenarios.
pub(crate) fn run(subject: Subject, args: &BenchArgs) -> anyhow::Result<Results> {
    harness::become_subreaper().context("cannot become a subreaper")?;
    let mut results = Results::default();
    let of_subject = Scenario::value_variants().iter().filter(|scenario| {
        let is_selected = args.only.is_empty() || args.only.contains(scenario);
        is_selected && scenario.work.subject() == subject
    });
    let scenarios: Vec<&Scenario> = of_subject.collect();
    ensure!(!scenarios.is_empty(), "none of these scenarios belongs to this benchmark");
    for scenario in scenarios {
        print_progress(scenario.name);
        let entries = entries(args, scenario);
        if !scenario.work.is_difference() {
            run_rounds(args, scenario, &entries, &mut results)?;
        } else if scenario.work.counts_instructions() && !has_valgrind() {
            results.skipped.push((scenario.name, "valgrind is not installed"));
        } else {
            run_differences(args, scenario, &entries, &mut results)?;
        }
    }
    Ok(results)
}

pub(crate) fn has_valgrind() -> bool {
    harness::first_line_of("valgrind", &["--version"]).is_some()
}

fn entries(args: &BenchArgs, scenario: &Scenario) -> Vec<Entry> {
    let mut entries = Vec::new();
    for setup in args.setups(*scenario) {
        let clients = scenario.work.clients_in(setup);
        let selected =
            clients.filter(|client| args.clients.is_empty() || args.clients.contains(client));
        entries.extend(selected.map(|client| Entry { scenario: scenario.name, setup, client }));
    }
    entries
}

/// Each round runs every entry once and starts with a different one, so that temporary disturbances of the machine
/// affect all entries alike.
fn run_rounds(
    args: &BenchArgs,
    scenario: &Scenario,
    entries: &[Entry],
    results: &mut Results,
) -> anyhow::Result<()> {
    for round in 0..args.rounds.unwrap_or(args.size.run_size().rounds) {
        for entry in rotated(entries, round) {
            if results.failure(entry).is_none() {
                results.add(entry, run_client(&client_args(args, scenario, entry, 0))?);
            }
        }
    }
    Ok(())
}

fn rotated(entries: &[Entry], round: usize) -> impl Iterator<Item = Entry> {
    let shift = round.checked_rem(entries.len()).unwrap_or(0);
    let (late, early) = entries.split_at(shift);
    early.iter().chain(late).copied()
}

/// Counts vary much less than times, so one pair of runs is enough.
fn run_differences(
    args: &BenchArgs,
    scenario: &Scenario,
    entries: &[Entry],
    results: &mut Results,
) -> anyhow::Result<()> {
    let (fewer, more) = scenario.work.n_calls(args.size.run_size());
    for entry in entries.iter().copied() {
        let run = |n_calls| run_client(&client_args(args, scenario, entry, n_calls));
        let outcome = match (run(fewer)?, run(more)?) {
            (Outcome::Report(short), Outcome::Report(long)) => {
                Outcome::Report(per_call(&short, &long, more - fewer))
            }
            (Outcome::Report(_), other) | (other, _) => other,
        };
        results.add(entry, outcome);
    }
    Ok(())
}

fn per_call(short: &Report, long: &Report, n_calls: u32) -> Report {
    let costs = long.0.iter().filter_map(|(name, long)| {
        Some((name.clone(), (long - short.0.get(name)?) / f64::from(n_calls)))
    });
    Report(costs.collect())
}

fn client_args(args: &BenchArgs, scenario: &Scenario, entry: Entry, calls: u32) -> ClientArgs {
    ClientArgs {
        client: entry.client,
        scenario: *scenario,
        rt: entry.setup.runtime,
        pin: entry.setup.cores == Cores::One,
        size: args.size,
        calls,
    }
}

/// Runs the client in its own process, under callgrind if the scenario counts instructions.
fn run_client(args: &ClientArgs) -> anyhow::Result<Outcome> {
    let counts_instructions = args.scenario.work.counts_instructions();
    let mut command: Command = harness::own_program()?;
    if counts_instructions {
        command = harness::command("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(std::env::current_exe()?);
    }
    command.args(args.to_args()).stderr(Stdio::piped());
    let limit = args.scenario.work.timeout();
    let output = run_to_exit(&mut command, limit).context("cannot start the client process")?;
    harness::reap_descendants(EXIT_TIMEOUT)?;
    if output.timed_out {
        return Ok(Outcome::TimedOut);
    }
    let outcome = parse_outcome(&output.stdout, &output.stderr);
    let Outcome::Report(mut report) = outcome else { return Ok(outcome) };
    if counts_instructions {
        let Some(instructions) = instruction_count(&output.stderr) else {
            return Ok(Outcome::Failure("callgrind counted nothing".to_owned()));
        };
        report.insert(INSTRUCTIONS, instructions);
    }
    Ok(Outcome::Report(report))
}

fn parse_outcome(printed: &str, stderr: &str) -> Outcome {
    match serde_json::from_str(printed.trim()) {
        Ok(Outcome::Failure(reason)) => {
            Outcome::Failure(reason.lines().next().unwrap_or_default().to_owned())
        }
        Ok(outcome) => outcome,
        Err(_) => {
            let last = stderr.lines().rfind(|line| !line.trim().is_empty());
            Outcome::Failure(format!("no report: {}", last.unwrap_or("no output")))
        }
    }
}

/// Number of instructions in the last lines of callgrind, `==123== Collected : 456`.
pub(crate) fn instruction_count(stderr: &str) -> Option<f64> {
    let (_, count) = stderr.lines().find_map(|line| line.split_once("Collected :"))?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::ClientName::{self, Pmcp, Rmcp, Tower};
    use crate::metric::{ALLOCATIONS, P50};
    use crate::scenario::CURRENT;

    #[track_caller]
    fn check(round: usize, expected: &[ClientName]) {
        let entry = |client| Entry { scenario: "connect", setup: CURRENT, client };
        let entries = [Rmcp, Pmcp, Tower].map(entry);
        let order: Vec<ClientName> = rotated(&entries, round).map(|entry| entry.client).collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn every_round_starts_with_a_different_client() {
        check(0, &[Rmcp, Pmcp, Tower]);
        check(1, &[Pmcp, Tower, Rmcp]);
        check(2, &[Tower, Rmcp, Pmcp]);
        check(3, &[Rmcp, Pmcp, Tower]);
        assert_eq!(rotated(&[], 2).count(), 0);
    }

    #[test]
    fn cost_per_call_is_the_difference_of_two_runs() {
        let short = Report::from([(ALLOCATIONS, 500.0)]);
        let long = Report::from([(ALLOCATIONS, 900.0), (INSTRUCTIONS, 7.0)]);
        assert_eq!(per_call(&short, &long, 100), Report::from([(ALLOCATIONS, 4.0)]));
    }

    #[track_caller]
    fn check_outcome(printed: &str, stderr: &str, expected: Outcome) {
        assert_eq!(parse_outcome(printed, stderr), expected);
    }

    #[test]
    fn outcome_is_parsed_from_output() {
        let failure = |text: &str| Outcome::Failure(text.to_owned());
        let report = Outcome::Report(Report::from([(P50, 4.5)]));
        check_outcome("{\"report\":{\"p50_micros\":4.5}}\n", "", report);
        check_outcome(r#"{"failure":"no text\nat all"}"#, "noise", failure("no text"));
        let panicked = failure("no report: thread main panicked");
        check_outcome("", "first\nthread main panicked\n\n", panicked);
        check_outcome("", "", failure("no report: no output"));
    }

    #[test]
    fn instruction_count_is_parsed() {
        let stderr = "==42== Events    : Ir\n==42== Collected : 123456\n==42==\n";
        assert_eq!(instruction_count(stderr), Some(123_456.0));
        assert_eq!(instruction_count("==42== Events : Ir\n"), None);
    }
}
