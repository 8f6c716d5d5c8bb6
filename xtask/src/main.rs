//! Project commands: `cargo xtask tidy|test|servers|public-api|bench|reliability|fuzz|conformance|dashboard`.
//!
//! Depends on no product crate, so that it builds in seconds on a fresh clone.
//!
//! | module | what it holds |
//! |---|---|
//! | `commands` | table of the commands, help |
//! | `test`, `test_summary` | `cargo xtask test`: steps, counts, summary |
//! | `tidy`, `rules`, `source_tree` | `cargo xtask tidy`: rules on the whole tree |
//! | `public_api` | list of the library's public items |
//! | `install` | test servers and programs from npm, PyPI and apt |
//! | `release_program` | `bench`, `costs` and `reliability`: optimized programs |
//! | `fuzz` | fuzz targets with libFuzzer |
//! | `conformance`, `dashboard` | official suites; dashboard in Chromium |
//! | `subprocess` | child processes with a time limit |

mod commands;
mod conformance;
mod dashboard;
mod fuzz;
mod install;
mod public_api;
mod release_program;
mod rules;
mod source_tree;
mod subprocess;
mod test;
mod test_summary;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let (word, args) = match words.split_first() {
        None => ("help", words.as_slice()),
        Some((word, args)) if word == "--help" || word == "-h" => ("help", args),
        Some((word, args)) => (word.as_str(), args),
    };
    let outcome = commands::find(word).and_then(|run| run(&source_tree::root(), args));
    outcome.unwrap_or_else(|error| {
        print_error(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

#[expect(clippy::print_stdout, reason = "these commands exist to be read in a terminal")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "these commands exist to be read in a terminal")]
pub(crate) fn print_error(text: &str) {
    eprintln!("{text}");
}
