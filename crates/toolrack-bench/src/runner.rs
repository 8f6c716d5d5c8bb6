//! The bench itself: who runs when, and what comes of it.

use anyhow::ensure;
use clap::ValueEnum as _;

use crate::cli::{BenchArgs, ClientArgs, value_name};
use crate::client_process::{self, Outcome};
use crate::clients::ClientName;
use crate::report::Report;
use crate::results::{Entry, Results};
use crate::scenario::{Cores, How, Scenario, Subject};
use crate::system;

const VALGRIND_IS_MISSING: &str = "valgrind is not installed";

/// Runs everything that was asked for.
pub(crate) fn run(subject: Subject, args: &BenchArgs) -> anyhow::Result<Results> {
    client_process::adopt_orphans()?;
    let mut results = Results::default();
    let scenarios = chosen(subject, &args.only);
    ensure!(!scenarios.is_empty(), "none of these scenarios belongs to this bench");
    for scenario in scenarios {
        system::print_progress(format_args!("{}", value_name(&scenario)));
        let entries = entries(args, scenario);
        match scenario.how() {
            How::Rounds => rounds(args, &entries, &mut results)?,
            How::Difference if scenario.counts_instructions() && !valgrind_is_there() => {
                results.skipped.push((scenario, VALGRIND_IS_MISSING));
            }
            How::Difference => differences(args, &entries, &mut results)?,
        }
    }
    Ok(results)
}

fn valgrind_is_there() -> bool {
    client_process::is_installed("valgrind")
}

/// Each round runs every entry once, and each starts with another one: what disturbs the machine for a
/// while disturbs all alike.
fn rounds(args: &BenchArgs, entries: &[Entry], results: &mut Results) -> anyhow::Result<()> {
    for round in 0..args.rounds.unwrap_or(args.effort().size().rounds) {
        for entry in rotated(entries, round) {
            if results.is_open(entry) {
                results.add(entry, client_process::run(&client_args(args, entry, 0))?);
            }
        }
    }
    Ok(())
}

/// Counts do not vary as times do, so one pair of runs is enough.
fn differences(args: &BenchArgs, entries: &[Entry], results: &mut Results) -> anyhow::Result<()> {
    let (fewer, more) = args.effort().size().n_calls;
    for entry in entries.iter().copied() {
        let counted = |n_calls| {
            let args = client_args(args, entry, n_calls);
            if entry.scenario.counts_instructions() {
                client_process::run_counting_instructions(&args)
            } else {
                client_process::run(&args)
            }
        };
        let outcome = match (counted(fewer)?, counted(more)?) {
            (Outcome::Measured(short), Outcome::Measured(long)) => {
                Outcome::Measured(per_call(&short, &long, more - fewer))
            }
            (Outcome::Measured(_), other) | (other, _) => other,
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

fn chosen(subject: Subject, only: &[Scenario]) -> Vec<Scenario> {
    let all = Scenario::value_variants()
        .iter()
        .copied()
        .filter(|value_variant| value_variant.subject() == subject);
    all.filter(|value| only.is_empty() || only.contains(value)).collect()
}

fn entries(args: &BenchArgs, scenario: Scenario) -> Vec<Entry> {
    let clients = ClientName::value_variants().iter().copied();
    let clients: Vec<ClientName> = clients
        .filter(|clients| args.clients.is_empty() || args.clients.contains(clients))
        .collect();
    let mut entries = Vec::new();
    for setup in args.setups(scenario) {
        let fitting = clients.iter().copied().filter(|client| scenario.fits(*client, setup));
        entries.extend(fitting.map(|client| Entry { scenario, setup, client }));
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
        let order: Vec<ClientName> =
            rotated(&entries, round).map(|rotated| rotated.client).collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn every_round_starts_with_another_client() {
        check(0, &[ClientName::Rmcp, ClientName::Pmcp, ClientName::Tower]);
        check(1, &[ClientName::Pmcp, ClientName::Tower, ClientName::Rmcp]);
        check(2, &[ClientName::Tower, ClientName::Rmcp, ClientName::Pmcp]);
        check(3, &[ClientName::Rmcp, ClientName::Pmcp, ClientName::Tower]);
        assert_eq!(rotated(&[], 2).count(), 0);
    }

    #[test]
    fn a_call_costs_the_difference_of_two_runs() {
        let short = Report::from([(Metric::Allocations, 500.0)]);
        let long = Report::from([(Metric::Allocations, 900.0), (Metric::Instructions, 7.0)]);
        assert_eq!(per_call(&short, &long, 100), Report::from([(Metric::Allocations, 4.0)]));
    }
}
