//! Command line: the options of a run, and the hidden roles in which this program starts itself.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum as _};

use crate::gate::{Effort, Gate};
use crate::memory::Flood;

/// Run the reliability gates: kills, faults and floods
#[derive(Debug, PartialEq, Parser)]
#[command(name = "toolrack-reliability", args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct RunArgs {
    /// Run for a few minutes, for every commit (default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Run for up to an hour, for a release
    #[arg(long)]
    full: bool,
    /// Run only these gates
    #[arg(long = "gate", value_delimiter = ',', ignore_case = true)]
    gates: Vec<Gate>,
    /// Use only this seed, instead of the fixed ones and a new one
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Play only the abuse with this number, from 0 (G23)
    #[arg(long)]
    pub(crate) only: Option<u64>,
    /// Write the results to this file [default: reliability.json in the target directory]
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// Role of a process that this program starts itself.
#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Role {
    /// Run one gate
    #[command(hide = true)]
    Gate(GateArgs),
    /// Run as the process that is killed
    #[command(name = "victim", hide = true)]
    Owner {
        #[arg(long)]
        marker: String,
        /// First end the processes that a predecessor left behind
        #[arg(long)]
        sweep: bool,
    },
    /// Receive a flood and measure own memory
    #[command(hide = true)]
    Measure {
        flood: Flood,
        #[arg(long)]
        effort: Effort,
        #[arg(long)]
        marker: String,
    },
    /// Run as the daemon of a home
    #[command(hide = true)]
    Daemon { home: PathBuf },
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct GateArgs {
    pub(crate) gate: Gate,
    #[arg(long)]
    pub(crate) effort: Effort,
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) seeds: Vec<u64>,
    #[arg(long)]
    pub(crate) only: Option<u64>,
}

impl RunArgs {
    pub(crate) fn effort(&self) -> Effort {
        if self.full { Effort::Full } else { Effort::Quick }
    }

    /// The selected gates in canonical order; all of them if none is selected.
    pub(crate) fn gates(&self) -> Vec<Gate> {
        let asked = |gate: &Gate| self.gates.is_empty() || self.gates.contains(gate);
        Gate::value_variants().iter().copied().filter(asked).collect()
    }
}

impl GateArgs {
    /// Arguments for the process that runs the gate.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let seeds: Vec<String> = self.seeds.iter().map(ToString::to_string).collect();
        let effort = self.effort.select("quick", "full");
        let words =
            ["gate", &self.gate.to_string(), "--effort", effort, "--seeds", &seeds.join(",")];
        let only = self.only.map(|number| ["--only".to_owned(), number.to_string()]);
        words.map(str::to_owned).into_iter().chain(only.into_iter().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("toolrack-reliability").chain(line.split_whitespace()))
    }

    #[track_caller]
    fn check(line: &str, expected: (Effort, &[Gate], Option<u64>, Option<&str>)) {
        let RunArgs { seed, json, .. } = &parse(line).unwrap().run;
        let run = parse(line).unwrap().run;
        let json = json.as_ref().and_then(|json| json.to_str());
        assert_eq!((run.effort(), &*run.gates(), *seed, json), expected, "{line}");
    }

    #[test]
    fn run_arguments_are_parsed() {
        check("", (Effort::Quick, Gate::value_variants(), None, None));
        check("--quick", (Effort::Quick, Gate::value_variants(), None, None));
        check("--full --seed 7", (Effort::Full, Gate::value_variants(), Some(7), None));
        check("--gate G03,G01", (Effort::Quick, &[Gate::G01, Gate::G03], None, None));
        check("--gate g05 --json a.json", (Effort::Quick, &[Gate::G05], None, Some("a.json")));
    }

    #[test]
    fn conflicting_arguments_are_rejected() {
        for line in ["--quick --full", "--gate G99", "--seed x", "--full victim --marker m"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn gate_arguments_round_trip() {
        for only in [None, Some(7)] {
            let seeds = vec![1, 99];
            let args =
                || GateArgs { gate: Gate::G04, effort: Effort::Full, seeds: seeds.clone(), only };
            let parsed = parse(&args().to_args().join(" ")).unwrap();
            assert_eq!(parsed.role, Some(Role::Gate(args())));
        }
    }
}
