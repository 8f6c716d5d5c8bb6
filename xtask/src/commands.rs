//! Commands of `cargo xtask`: the table, its help, and the search for a command.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{conformance, dashboard, fuzz, install, public_api, release_program, test, tidy};

/// Runs a command in the workspace with these arguments.
pub(crate) type Run = fn(&Path, &[String]) -> Result<ExitCode>;

const COMMANDS: [(&str, Run); 11] = [
    ("tidy", tidy::run),
    ("test", test::run),
    ("servers", install::run),
    ("public-api", public_api::run),
    ("bench", release_program::bench),
    ("costs", release_program::costs),
    ("reliability", release_program::reliability),
    ("fuzz", fuzz::run),
    ("conformance", conformance::run),
    ("dashboard", dashboard::run),
    ("help", help),
];

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                          check layers, `unsafe`, the specs ledger, dependencies and the public API
  test [--no-install] [FILTER]  install the test servers and run every check; with FILTER only those tests
  servers                       install the test servers and programs
  public-api [--write]          compare the library's public items with docs/internal/public-api.txt, or write it
  bench [ARGS]                  build and run the benchmarks, profile `dist`
  costs [--only COST] [--write] compare counted costs with docs/internal/costs.toml, or accept the measured ones
  reliability [ARGS]            build and run the reliability gates, profile `release`
  fuzz --minutes N [TARGET]     fuzz every target in turn, or one; also --list, --replay FILE TARGET, --minimize
  conformance [ARGS]            install and run the official conformance suites
  dashboard [--pictures]        test the dashboard in Chromium; --pictures updates docs/images
  help                          print this help";

/// Finds the command with this name.
pub(crate) fn find(word: &str) -> Result<Run> {
    if let Some((_, run)) = COMMANDS.iter().find(|(name, _)| *name == word) {
        return Ok(*run);
    }
    // Similar enough for a typo.
    let distances = COMMANDS.iter().map(|(name, _)| (distance(word, name), name));
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
    crate::print(USAGE);
    Ok(ExitCode::SUCCESS)
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
    fn check(word: &str, expected: Option<&str>) {
        let error = find(word).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected);
    }

    #[test]
    fn usage_errors_suggest_a_command() {
        check("test", None);
        check("tset", Some("unknown command `tset`; did you mean `test`?"));
        check("benhc", Some("unknown command `benhc`; did you mean `bench`?"));
        check("tidy-up", Some("unknown command `tidy-up`; did you mean `tidy`?"));
        check("frobnicate", Some("unknown command `frobnicate`; see `cargo xtask help`"));
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
        let rows = USAGE.lines().filter_map(|line| line.strip_prefix("  "));
        let names: Vec<&str> = rows.filter_map(|row| row.split(' ').next()).collect();
        assert_eq!(names, COMMANDS.map(|(name, _)| name));
    }
}
