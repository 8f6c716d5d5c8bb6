//! Benchmark runner: runs the selected clients and scenarios in interleaved rounds.

use anyhow::ensure;
use clap::ValueEnum as _;

use crate::cli::{BenchArgs, ClientArgs, value_name};
use crate::client_process::{self, RunOutcome};
use crate::clients::ClientName;
use crate::report::Report;
use crate::results::{Entry, Results};
use crate::scenario::{Cores, MeasurementMethod, Scenario, Subject};
use crate::system;

const VALGRIND_MISSING: &str = "valgrind is not installed";

/// Runs the selected scenarios.
pub(crate) fn run(subject: Subject, args: &BenchArgs) -> anyhow::Result<Results> {
    client_process::become_subreaper()?;
    let mut results = Results::default();
    let scenarios = select_scenarios(subject, &args.only);
    ensure!(!scenarios.is_empty(), "none of these scenarios belongs to this benchmark");
    for scenario in scenarios {
        system::print_progress(format_args!("{}", value_name(&scenario)));
        let entries = entries_for(args, scenario);
        match scenario.method() {
            MeasurementMethod::Rounds => run_rounds(args, &entries, &mut results)?,
            MeasurementMethod::Difference if scenario.counts_instructions() && !has_valgrind() => {
                results.skipped.push((scenario, VALGRIND_MISSING));
            }
            MeasurementMethod::Difference => run_differences(args, &entries, &mut results)?,
        }
    }
    Ok(results)
}

fn has_valgrind() -> bool {
    client_process::is_installed("valgrind")
}

/// Each round runs every entry once and starts with a different one, so that temporary disturbances of the machine
/// affect all entries alike.
fn run_rounds(args: &BenchArgs, entries: &[Entry], results: &mut Results) -> anyhow::Result<()> {
    for round in 0..args.rounds.unwrap_or(args.preset().size().rounds) {
        for entry in rotated(entries, round) {
            if results.needs_more_rounds(entry) {
                results.add(entry, client_process::run(&client_args(args, entry, 0))?);
            }
        }
    }
    Ok(())
}

/// Counts vary much less than times, so one pair of runs is enough.
fn run_differences(
    args: &BenchArgs,
    entries: &[Entry],
    results: &mut Results,
) -> anyhow::Result<()> {
    let (fewer, more) = args.preset().size().n_calls;
    for entry in entries.iter().copied() {
        let run = |n_calls| {
            let args = client_args(args, entry, n_calls);
            if entry.scenario.counts_instructions() {
                client_process::run_counting_instructions(&args)
            } else {
                client_process::run(&args)
            }
        };
        let outcome = match (run(fewer)?, run(more)?) {
            (RunOutcome::Measured(short), RunOutcome::Measured(long)) => {
                RunOutcome::Measured(per_call(&short, &long, more - fewer))
            }
            (RunOutcome::Measured(_), other) | (other, _) => other,
        };
        results.add(entry, outcome);
    }
    Ok(())
}

fn per_call(short: &Report, long: &Report, n_calls: u32) -> Report {
    long.iter()
        .filter_map(|(metric, long)| {
            Some((*metric, (long - short.get(metric)?) / f64::from(n_calls)))
        })
        .collect()
}

fn select_scenarios(subject: Subject, only: &[Scenario]) -> Vec<Scenario> {
    let all =
        Scenario::value_variants().iter().copied().filter(|scenario| scenario.subject() == subject);
    all.filter(|scenario| only.is_empty() || only.contains(scenario)).collect()
}

fn entries_for(args: &BenchArgs, scenario: Scenario) -> Vec<Entry> {
    let clients = ClientName::value_variants().iter().copied();
    let clients: Vec<ClientName> =
        clients.filter(|client| args.clients.is_empty() || args.clients.contains(client)).collect();
    let mut entries = Vec::new();
    for setup in args.setups(scenario) {
        let included = clients.iter().copied().filter(|client| scenario.includes(*client, setup));
        entries.extend(included.map(|client| Entry { scenario, setup, client }));
    }
    entries
}

fn client_args(args: &BenchArgs, entry: Entry, calls: u32) -> ClientArgs {
    ClientArgs {
        client: entry.client,
        scenario: entry.scenario,
        rt: entry.setup.runtime,
        pin: entry.setup.cores == Cores::One,
        quick: args.quick,
        calls,
    }
}

fn rotated(entries: &[Entry], round: usize) -> impl Iterator<Item = Entry> {
    let shift = round.checked_rem(entries.len()).unwrap_or(0);
    let (late, early) = entries.split_at(shift);
    early.iter().chain(late).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Metric;
    use crate::scenario::CURRENT;

    #[track_caller]
    fn check(round: usize, expected: &[ClientName]) {
        let clients = [ClientName::Rmcp, ClientName::Pmcp, ClientName::Tower];
        let entries =
            clients.map(|client| Entry { scenario: Scenario::Connect, setup: CURRENT, client });
        let order: Vec<ClientName> = rotated(&entries, round).map(|entry| entry.client).collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn every_round_starts_with_a_different_client() {
        check(0, &[ClientName::Rmcp, ClientName::Pmcp, ClientName::Tower]);
        check(1, &[ClientName::Pmcp, ClientName::Tower, ClientName::Rmcp]);
        check(2, &[ClientName::Tower, ClientName::Rmcp, ClientName::Pmcp]);
        check(3, &[ClientName::Rmcp, ClientName::Pmcp, ClientName::Tower]);
        assert_eq!(rotated(&[], 2).count(), 0);
    }

    #[test]
    fn cost_per_call_is_the_difference_of_two_runs() {
        let short = Report::from([(Metric::Allocations, 500.0)]);
        let long = Report::from([(Metric::Allocations, 900.0), (Metric::Instructions, 7.0)]);
        assert_eq!(per_call(&short, &long, 100), Report::from([(Metric::Allocations, 4.0)]));
    }
}
