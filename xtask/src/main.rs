//! The project's own commands: `tidy`, `test`, `servers`, `bench`, `reliability`, `conformance` and `dashboard`.
//!
//! Run as `cargo xtask COMMAND`. It needs nothing of the product, so that it builds in seconds on a fresh
//! clone.

mod child;
mod command;
mod conformance;
mod dashboard;
mod forward;
mod printer;
mod rules;
mod rust_text;
mod servers;
mod suite;
mod tally;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::Result;

use crate::command::Command;

fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let command = match command::parse(&words) {
        Ok(command) => command,
        Err(misuse) => {
            printer::complain(&format!("error: {misuse}"));
            return ExitCode::FAILURE;
        }
    };
    run(command).unwrap_or_else(|error| {
        printer::complain(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Help => {
            printer::say(&command::usage());
            Ok(ExitCode::SUCCESS)
        }
        Command::Tidy => tidy::run(&tree::root()),
        Command::Test(options) => suite::run(&tree::root(), &options),
        Command::Servers => servers::run(&tree::root()),
        Command::Bench(words) => forward::bench(&tree::root(), words),
        Command::Conformance(words) => conformance::run(&tree::root(), words),
        Command::Dashboard(pictures) => dashboard::run(&tree::root(), pictures),
        Command::Reliability(words) => forward::reliability(&tree::root(), words),
    }
}
