//! Project commands: `cargo xtask tidy|test|servers|bench|reliability|conformance|dashboard`.
//!
//! Depends on no product crate, so that it builds in seconds on a fresh clone.
//!
//! | module | what it holds |
//! |---|---|
//! | `args` | command line parser |
//! | `test`, `test_summary` | `cargo xtask test`: steps, counts, summary |
//! | `tidy`, `rules`, `rust_lexer`, `source_tree` | `cargo xtask tidy`: rules on the whole tree |
//! | `install` | test servers and programs from npm, PyPI and apt |
//! | `release_program` | `bench` and `reliability`, built in the release profile |
//! | `conformance`, `dashboard` | official suites; dashboard in Chromium |
//! | `subprocess`, `printer` | child processes with a time limit; output |

mod args;
mod conformance;
mod dashboard;
mod install;
mod printer;
mod release_program;
mod rules;
mod rust_lexer;
mod source_tree;
mod subprocess;
mod test;
mod test_summary;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Command;

fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let command = match args::parse(&words) {
        Ok(command) => command,
        Err(usage_error) => {
            printer::print_error(&format!("error: {usage_error}"));
            return ExitCode::FAILURE;
        }
    };
    run(command).unwrap_or_else(|error| {
        printer::print_error(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Help => {
            printer::print(&args::usage());
            Ok(ExitCode::SUCCESS)
        }
        Command::Tidy => tidy::run(&source_tree::root()),
        Command::Test(options) => test::run(&source_tree::root(), &options),
        Command::Servers => install::run(&source_tree::root()),
        Command::Bench(words) => release_program::bench(&source_tree::root(), words),
        Command::Conformance(words) => conformance::run(&source_tree::root(), words),
        Command::Dashboard(pictures) => dashboard::run(&source_tree::root(), pictures),
        Command::Reliability(words) => release_program::reliability(&source_tree::root(), words),
    }
}
