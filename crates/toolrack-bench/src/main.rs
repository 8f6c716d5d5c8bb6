//! Side-by-side benchmarks of MCP clients.
//!
//! `stdio`, `http` and `manager` run every client in a process of its own, in interleaved rounds, against the server
//! that is this same program; `client` is one such process, `serve` and `serve-http` are that server. `cli` does the
//! same with programs and the servers that they start, and `gateway` with endpoints before a server.

mod alloc;
mod bench;
mod chart;
mod child;
mod cli;
mod client;
mod clock;
mod gauge;
mod machine;
mod pages;
mod peers;
mod print;
mod process;
mod remote;
mod report;
mod result;
mod scenario;
mod server;
mod sheet;
mod stats;
mod table;
mod verdict;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use crate::cli::{BenchArgs, Cli, Command};
use crate::report::Answer;
use crate::scenario::Subject;

fn main() -> anyhow::Result<ExitCode> {
    // Toolrack's guardians are copies of the program that embeds it.
    toolrack_stdio::init();
    match Cli::parse().command {
        Command::Serve(args) => server::serve(args.tools).map(|()| ExitCode::SUCCESS),
        Command::ServeHttp => server::http::serve().map(|()| ExitCode::SUCCESS),
        Command::Client(args) => {
            let answer = client::run(&args);
            print::line(serde_json::to_string(&answer)?);
            match answer {
                Answer::Report(_) => Ok(ExitCode::SUCCESS),
                Answer::Failure(_) => Ok(ExitCode::FAILURE),
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
    let results = bench::run(subject, args)?;
    let verdicts = verdict::verdicts(subject, &results);
    let mut sections = sheet::tables(&results);
    sections.push(verdict::section(subject, &verdicts));
    let body = sections.join("\n");
    print::line(&body);
    if args.after.write {
        machine::write_benchmarks(subject, &results, &body)
            .context("cannot write the benchmark pages")?;
    }
    if args.after.no_gate || verdict::all_met(&verdicts) {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}
