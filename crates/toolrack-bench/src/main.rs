//! Side-by-side benchmarks of MCP clients.
//!
//! `stdio`, `http` and `manager` run every client in a process of its own, in interleaved rounds, against the server
//! that is this same program; `client` is one such process, `serve` and `serve-http` are that server. `cli` does the
//! same with programs and the servers that they start, and `gateway` with endpoints before a server.

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
            let answer = client_process::run_client(&args);
            system::print_line(serde_json::to_string(&answer)?);
            match answer {
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
    if args.after.write {
        machine::write_benchmarks(subject, &results, &body)
            .context("cannot write the benchmark pages")?;
    }
    if args.after.no_gate || targets::all_met(&targets) {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}
