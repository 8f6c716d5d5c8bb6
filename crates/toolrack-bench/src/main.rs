//! Side-by-side benchmarks of MCP clients.
//!
//! `stdio`, `http`, `manager`, `cli` and `gateway` are one benchmark each. A benchmark runs every client in its own
//! process (`client`), in interleaved rounds, against a server that is this same program (`serve`, `serve-http`), and
//! prints tables and targets.
//!
//! | module | what it holds |
//! |---|---|
//! | `cli` | command-line arguments |
//! | `runner` | rounds over the selected clients and scenarios, and the start of client processes |
//! | `client_process` | entry point of a client process |
//! | `server_process` | server processes that a client starts |
//! | `scenario` | table of what is measured; one submodule per kind of work, and `measure` for the measuring |
//! | `clients` | measured clients behind a common trait, and bare pipes and sockets as the limit |
//! | `server` | benchmark servers over stdio and HTTP |
//! | `metric`, `results` | metrics of one run; results of all rounds with their tables |
//! | `costs` | ledger of costs: counted figures that a change must not raise unseen |
//! | `targets`, `table` | table of targets with their bounds; printed tables |
//! | `pages`, `chart` | BENCHMARKS.md and docs/benchmarks/ |
//! | `resource_usage`, `alloc` | CPU time, memory and allocation counts |
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
mod costs;
mod metric;
mod pages;
mod resource_usage;
mod results;
mod runner;
mod scenario;
mod server;
mod server_process;
mod table;
mod targets;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use toolrack_testkit::harness::print_line;

use crate::cli::{BenchArgs, Cli, Command};
use crate::metric::Outcome;
use crate::scenario::Subject;

fn main() -> anyhow::Result<ExitCode> {
    // Toolrack's guardians are copies of the program that embeds it.
    toolrack_stdio::init();
    match Cli::parse().command {
        Command::Serve(args) => server::serve(args).map(|()| ExitCode::SUCCESS),
        Command::ServeHttp => server::http::serve().map(|()| ExitCode::SUCCESS),
        Command::Client(args) => {
            let outcome = client_process::run(&args);
            print_line(serde_json::to_string(&outcome)?);
            let has_report = matches!(outcome, Outcome::Report(_));
            Ok(if has_report { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Stdio(args) => measure(Subject::Stdio, &args),
        Command::Http(args) => measure(Subject::Http, &args),
        Command::Manager(args) => measure(Subject::Manager, &args),
        Command::Cli(args) => measure(Subject::Cli, &args),
        Command::Gateway(args) => measure(Subject::Gateway, &args),
        Command::Costs(args) => costs::run(&args),
    }
}

fn measure(subject: Subject, args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let results = runner::run(subject, args)?;
    let targets = targets::evaluate(subject, &results)?;
    let mut sections = results.tables();
    sections.push(targets::render(subject, &targets));
    let body = sections.join("\n");
    print_line(&body);
    if args.output.write {
        pages::write(subject, &results, &body).context("cannot write the benchmark pages")?;
    }
    let is_met = args.output.no_gate || targets::all_met(&targets);
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
