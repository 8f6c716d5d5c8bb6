//! Side-by-side benchmarks of MCP clients.
//!
//! `stdio`, `http`, `manager`, `cli` and `gateway` are one benchmark each. A benchmark runs every client in its own
//! process (`client`), in interleaved rounds, against a server that is this same program (`serve`, `serve-http`), and
//! prints tables and targets.
//!
//! | module | what it holds |
//! |---|---|
//! | `cli` | command-line arguments |
//! | `runner` | rounds over the selected clients and scenarios |
//! | `client_process` | start of a client process with a time limit, and its entry point |
//! | `server_process` | server processes that a client starts |
//! | `scenario` | what is measured; one submodule per subject, and `measure` for the measuring |
//! | `clients` | measured clients behind common traits, and bare pipes and sockets as the limit |
//! | `server` | benchmark servers over stdio and HTTP |
//! | `report`, `results`, `stats` | metrics of one run, results of all rounds, medians |
//! | `scenario_tables`, `table`, `targets` | printed tables, and targets with their bounds |
//! | `pages`, `chart`, `machine` | BENCHMARKS.md, docs/benchmarks/, and the machine and commit of a measurement |
//! | `resource_usage`, `alloc` | CPU time, memory and allocation counts |
//! | `system` | clock, processes and standard output |
//!
//! **Invariants:**
//! - When a client process has been run, it and everything it started have exited.
//! - Rounds are interleaved, so that temporary disturbances of the machine affect all clients alike.
//! - A client is used as its documentation shows, with its defaults.
//!
//! Start reading at `runner`, then `scenario`.

mod alloc;
mod chart;
mod cli;
mod client_process;
mod clients;
mod machine;
mod pages;
mod report;
mod resource_usage;
mod results;
mod runner;
mod scenario;
mod scenario_tables;
mod server;
mod server_process;
mod stats;
mod system;
mod table;
mod targets;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use crate::cli::{BenchArgs, Cli, Command};
use crate::report::ClientOutput;
use crate::scenario::Subject;

fn main() -> anyhow::Result<ExitCode> {
    // Toolrack's guardians are copies of the program that embeds it.
    toolrack_stdio::init();
    match Cli::parse().command {
        Command::Serve(args) => server::serve(args.tools).map(|()| ExitCode::SUCCESS),
        Command::ServeHttp => server::http::serve().map(|()| ExitCode::SUCCESS),
        Command::Client(args) => {
            let output = client_process::run_client(&args);
            system::print_line(serde_json::to_string(&output)?);
            match output {
                ClientOutput::Report(_) => Ok(ExitCode::SUCCESS),
                ClientOutput::Failure(_) => Ok(ExitCode::FAILURE),
            }
        }
        Command::Stdio(args) => measure(Subject::Stdio, &args),
        Command::Http(args) => measure(Subject::Http, &args),
        Command::Manager(args) => measure(Subject::Manager, &args),
        Command::Cli(args) => measure(Subject::Cli, &args),
        Command::Gateway(args) => measure(Subject::Gateway, &args),
    }
}

fn measure(subject: Subject, args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let results = runner::run(subject, args)?;
    let targets = targets::evaluate(subject, &results);
    let mut sections = scenario_tables::tables(&results);
    sections.push(targets::render(subject, &targets));
    let body = sections.join("\n");
    system::print_line(&body);
    if args.output.write {
        machine::write_benchmarks(subject, &results, &body)
            .context("cannot write the benchmark pages")?;
    }
    if args.output.no_gate || targets::all_met(&targets) {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}
