//! Commands of `cargo xtask`: the table, its help, and the search for a command.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{conformance, dashboard, install, public_api, release_program, test, tidy};

/// A command: its name, its arguments in the help, what it does, and the function that runs it in the workspace.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    arguments: &'static str,
    line: &'static str,
    pub(crate) run: fn(&Path, &[String]) -> Result<ExitCode>,
}

const COMMANDS: [Command; 9] = [
    Command {
        name: "tidy",
        arguments: "",
        line: "check layers, `unsafe`, the specs ledger, dependencies and the public API",
        run: tidy::run,
    },
    Command {
        name: "test",
        arguments: "[--no-install] [FILTER]",
        line: "install the test servers and run every check; with FILTER only those tests",
        run: test::run,
    },
    Command {
        name: "servers",
        arguments: "",
        line: "install the test servers and programs",
        run: install::run,
    },
    Command {
        name: "public-api",
        arguments: "[--write]",
        line: "compare the library's public items with docs/internal/public-api.txt, or write it",
        run: public_api::run,
    },
    Command {
        name: "bench",
        arguments: "[ARGS]",
        line: "build and run the benchmarks, release profile",
        run: release_program::bench,
    },
    Command {
        name: "reliability",
        arguments: "[ARGS]",
        line: "build and run the reliability gates, release profile",
        run: release_program::reliability,
    },
    Command {
        name: "conformance",
        arguments: "[ARGS]",
        line: "install and run the official conformance suites",
        run: conformance::run,
    },
    Command {
        name: "dashboard",
        arguments: "[--pictures]",
        line: "test the dashboard in Chromium; --pictures updates docs/images",
        run: dashboard::run,
    },
    Command { name: "help", arguments: "", line: "print this help", run: help },
];

/// Finds the command with this name.
pub(crate) fn find(word: &str) -> Result<&'static Command> {
    if let Some(command) = COMMANDS.iter().find(|command| command.name == word) {
        return Ok(command);
    }
    // Similar enough for a typo.
    let distances = COMMANDS.iter().map(|command| (distance(word, command.name), command.name));
    match distances.filter(|(distance, _)| *distance <= 3).min() {
        Some((_, name)) => bail!("unknown command `{word}`; did you mean `{name}`?"),
        None => bail!("unknown command `{word}`; see `cargo xtask help`"),
    }
}

/// Whether the only argument is `flag`. Any other argument is an error.
pub(crate) fn has_flag(command: &str, args: &[String], flag: &str) -> Result<bool> {
    match args {
        [] => Ok(false),
        [word] if word == flag => Ok(true),
        [word, ..] => unexpected(command, word),
    }
}

pub(crate) fn no_arguments(command: &str, args: &[String]) -> Result<()> {
    args.first().map_or(Ok(()), |word| unexpected(command, word))
}

pub(crate) fn unexpected<T>(command: &str, word: &str) -> Result<T> {
    bail!("unexpected argument `{word}` for `{command}`; see `cargo xtask help`")
}

#[expect(clippy::unnecessary_wraps, reason = "every command has this type")]
fn help(_root: &Path, _args: &[String]) -> Result<ExitCode> {
    crate::print(&usage());
    Ok(ExitCode::SUCCESS)
}

fn usage() -> String {
    let rows = COMMANDS.iter().map(|Command { name, arguments, line, .. }| {
        let left = format!("{name} {arguments}");
        format!("\n  {left:<30}{line}")
    });
    format!("usage: cargo xtask COMMAND\n{}", rows.collect::<String>())
}

/// Edits (insert, delete, replace) that turn one word into the other.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (above, left) in from.chars().enumerate() {
        let mut diagonal = above;
        let mut before = above + 1;
        let mut next = vec![before];
        for (right, up) in to.chars().zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(left != right);
            before = replaced.min(up + 1).min(before + 1);
            diagonal = *up;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Result<&str, &str>) {
        let found = find(word).map(|command| command.name).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn usage_errors_suggest_a_command() {
        check("test", Ok("test"));
        check("tset", Err("unknown command `tset`; did you mean `test`?"));
        check("benhc", Err("unknown command `benhc`; did you mean `bench`?"));
        check("tidy-up", Err("unknown command `tidy-up`; did you mean `tidy`?"));
        check("frobnicate", Err("unknown command `frobnicate`; see `cargo xtask help`"));
    }

    #[test]
    fn only_the_flag_of_a_command_is_accepted() {
        let flag = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            has_flag("dashboard", &words, "--pictures").map_err(|error| error.to_string())
        };
        let unexpected = "unexpected argument `x` for `dashboard`; see `cargo xtask help`";
        assert_eq!((flag(""), flag("--pictures")), (Ok(false), Ok(true)));
        assert_eq!(flag("x"), Err(unexpected.to_owned()));
        let error = no_arguments("tidy", &["x".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "unexpected argument `x` for `tidy`; see `cargo xtask help`");
    }

    #[test]
    fn every_command_is_in_the_help() {
        let usage = usage();
        for command in COMMANDS {
            assert!(usage.contains(&format!("\n  {} ", command.name)), "{usage}");
        }
    }
}
