//! The reliability gates: processes are killed, servers misbehave, and what was promised is counted.
//!
//! One process runs each gate and is thrown away afterwards, so that no gate can hide behind another's
//! descriptors, threads or memory. It is this same program, as is everything that gets killed.

mod call_log;
mod cli;
mod crash_status;
mod daemon;
mod daemon_client;
mod daemon_kill;
mod daemon_stop;
mod deadline;
mod fault_plans;
mod findings;
mod gate;
mod hostile_server;
mod memory;
mod one_outcome;
mod orphans;
mod owner;
mod peer;
mod process;
mod process_table;
mod random;
mod report;
mod server_kill;
mod startup;
mod subreaper;
mod suite;
mod timing;

use std::fmt;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use crate::cli::{Cli, GateArgs, Role};
use crate::findings::Findings;
use crate::gate::Gate;
use crate::owner::Sweep;
use crate::random::Seeds;
use crate::subreaper::Subreaper;

fn main() -> anyhow::Result<ExitCode> {
    // This program is also the guardian of every server that it starts.
    toolrack_stdio::init();
    let Cli { role, run } = Cli::parse();
    match role {
        None => suite::run(&run),
        Some(Role::Gate(args)) => {
            print_result(serde_json::to_string(&open(args)?)?);
            Ok(ExitCode::SUCCESS)
        }
        Some(Role::Victim(args)) => {
            owner::run(&args.marker, if args.sweep { Sweep::First } else { Sweep::Never })
        }
        Some(Role::Measure(args)) => {
            let measured = memory::measure_flood(args.flood, args.effort, &args.marker)?;
            print_result(serde_json::to_string(&measured)?);
            Ok(ExitCode::SUCCESS)
        }
        Some(Role::Daemon(args)) => daemon::run_role(&args.home),
    }
}

fn open(args: GateArgs) -> anyhow::Result<Findings> {
    let GateArgs { gate, effort, seeds } = args;
    let seeds = Seeds::from_list(seeds).context("no seeds")?;
    match gate {
        Gate::G01 => with_subreaper(|value| Ok(orphans::run(value, effort, &seeds))),
        Gate::G02 => in_runtime(server_kill::run(effort, &seeds)),
        Gate::G03 => in_runtime(one_outcome::run(effort, &seeds)),
        Gate::G04 => in_runtime(deadline::run(effort, &seeds)),
        Gate::G05 => memory::run(effort, &seeds),
        Gate::G14 => with_subreaper(|value| Ok(hostile_server::run(value, effort, &seeds))),
        Gate::G15 => with_subreaper(|value| daemon_stop::run(value, effort, &seeds)),
        Gate::G19 => with_subreaper(|value| startup::run(value, effort, &seeds)),
        Gate::G21 => in_runtime(crash_status::run(effort, &seeds)),
        Gate::G22 => with_subreaper(|value| daemon_kill::run(value, effort, &seeds)),
    }
}

/// Runs a gate that starts child processes. There must be no runtime, which would wait for children of its own.
fn with_subreaper(
    gate: impl FnOnce(&Subreaper) -> anyhow::Result<Findings>,
) -> anyhow::Result<Findings> {
    match Subreaper::open() {
        Ok(subreaper) => gate(&subreaper),
        Err(error) => Ok(Findings::skipped(format!("orphans cannot be adopted: {error}"))),
    }
}

fn in_runtime(gate: impl Future<Output = anyhow::Result<Findings>>) -> anyhow::Result<Findings> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(gate)
}

#[expect(clippy::print_stdout, reason = "a program's results go to stdout")]
pub(crate) fn print_result(text: impl fmt::Display) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "what is going on is talk, not a result")]
pub(crate) fn print_progress(text: impl fmt::Display) {
    eprintln!("  … {text}");
}
