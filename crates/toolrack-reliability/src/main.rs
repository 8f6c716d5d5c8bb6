//! Reliability gates: this program kills processes, injects faults, sends floods, and checks the promises.
//!
//! | module | what it holds |
//! |---|---|
//! | `orphans` | G01: no process outlives its owner |
//! | `server_kill` | G02: calls to a dead server fail at once |
//! | `one_outcome` | G03: every call has exactly one outcome |
//! | `deadline`, `fault_plans` | G04: deadlines hold under every fault |
//! | `memory` | G05: memory is bounded under every flood |
//! | `hostile_server` | G14: a hostile server does not harm the others |
//! | `daemon_stop` | G15: a daemon stops on request |
//! | `startup` | G19: broken servers delay nothing |
//! | `crash_status` | G21: a crash shows as an error at once |
//! | `daemon_kill` | G22: a killed daemon loses no acknowledged data |
//! | `server_abuse`, `abuse` | G23: no abuse by one server exhausts the daemon |
//! | `suite`, `gate`, `cli`, `findings` | run of the gates, command line, results |
//! | `daemon`, `daemon_client`, `owner`, `peer` | processes under test and clients of them |
//! | `cycle` | result of one cycle of a gate |
//! | `process`, `subreaper` | the scripted server, the end of processes, adoption of orphans |
//! | `call_log`, `random` | log of calls, seeded random numbers |
//!
//! Invariants:
//!
//! - Each gate runs in its own process, so that no gate inherits descriptors, threads or memory of another. That
//!   process is this same program, as is everything that gets killed.
//! - Every wait has a limit, and no process of a gate outlives it.
//! - A seed reproduces the random choices of a failure.
//!
//! Start reading at `suite`, then at one gate.

mod abuse;
mod call_log;
mod cli;
mod crash_status;
mod cycle;
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
mod random;
mod server_abuse;
mod server_kill;
mod startup;
mod subreaper;
mod suite;

use std::io;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::runtime::Runtime;
use toolrack_testkit::harness::print_line;

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
            print_line(serde_json::to_string(&run_gate(args)?)?);
            Ok(ExitCode::SUCCESS)
        }
        Some(Role::Owner { marker, sweep }) => {
            owner::run(&marker, if sweep { Sweep::First } else { Sweep::Never })
        }
        Some(Role::Measure { flood, effort, marker }) => {
            let measured = runtime()?.block_on(memory::measure(flood, effort, &marker))?;
            print_line(serde_json::to_string(&measured)?);
            Ok(ExitCode::SUCCESS)
        }
        Some(Role::Daemon { home }) => daemon::run_role(&home),
    }
}

fn run_gate(args: GateArgs) -> anyhow::Result<Findings> {
    let GateArgs { gate, effort, seeds, only } = args;
    let seeds = Seeds::from_list(seeds).context("no seeds")?;
    match gate {
        Gate::G01 => with_subreaper(|subreaper| Ok(orphans::run(subreaper, effort, &seeds))),
        Gate::G02 => in_runtime(server_kill::run(effort, &seeds)),
        Gate::G03 => in_runtime(one_outcome::run(effort, &seeds)),
        Gate::G04 => in_runtime(deadline::run(effort, &seeds)),
        Gate::G05 => memory::run(effort, &seeds),
        Gate::G14 => with_subreaper(|subreaper| Ok(hostile_server::run(subreaper, effort, &seeds))),
        Gate::G15 => with_subreaper(|subreaper| daemon_stop::run(subreaper, effort, &seeds)),
        Gate::G19 => with_subreaper(|subreaper| startup::run(subreaper, effort, &seeds)),
        Gate::G21 => in_runtime(crash_status::run(effort, &seeds)),
        Gate::G22 => with_subreaper(|subreaper| daemon_kill::run(subreaper, effort, &seeds)),
        Gate::G23 => with_subreaper(|subreaper| server_abuse::run(subreaper, effort, &seeds, only)),
    }
}

/// Runs a gate that starts child processes. There must be no runtime, which would wait for children of its own.
fn with_subreaper(
    gate: impl FnOnce(&Subreaper) -> anyhow::Result<Findings>,
) -> anyhow::Result<Findings> {
    match Subreaper::open() {
        Ok(subreaper) => gate(&subreaper),
        Err(error) => Ok(Findings::skipped(format!("cannot become the child subreaper: {error}"))),
    }
}

fn in_runtime(gate: impl Future<Output = anyhow::Result<Findings>>) -> anyhow::Result<Findings> {
    runtime()?.block_on(gate)
}

/// Runtime with two threads, on any machine.
fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
