//! Command line parser of `cargo xtask`.
//!
//! **Invariant:** [`COMMANDS`] lists exactly the commands that [`parse`] accepts (tested below).

use std::fmt;

use crate::dashboard::Pictures;

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Tidy,
    Test(TestOptions),
    Servers,
    Bench(Vec<String>),
    Reliability(Vec<String>),
    Conformance(Vec<String>),
    Dashboard(Pictures),
}

/// Options of `cargo xtask test`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestOptions {
    pub(crate) install: Install,
    /// Runs only the tests whose names contain this text, and no other check.
    pub(crate) filter: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Install {
    #[default]
    First,
    Never,
}

/// An invalid command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UsageError {
    UnknownCommand { word: String, suggestion: Option<&'static str> },
    Unexpected { command: &'static str, word: String },
}

struct Row {
    name: &'static str,
    arguments: &'static str,
    line: &'static str,
}

const COMMANDS: [Row; 8] = [
    Row {
        name: "tidy",
        arguments: "",
        line: "check layers, file headers, `unsafe`, the specs ledger and dependencies",
    },
    Row {
        name: "test",
        arguments: "[--no-install] [FILTER]",
        line: "install the test servers and run every check; with FILTER only those tests",
    },
    Row { name: "servers", arguments: "", line: "install the test servers and programs" },
    Row {
        name: "bench",
        arguments: "[ARGS]",
        line: "build and run the benchmarks, release profile",
    },
    Row {
        name: "reliability",
        arguments: "[ARGS]",
        line: "build and run the reliability gates, release profile",
    },
    Row {
        name: "conformance",
        arguments: "[ARGS]",
        line: "install and run the official conformance suites",
    },
    Row {
        name: "dashboard",
        arguments: "[--pictures]",
        line: "test the dashboard in Chromium; --pictures updates docs/images",
    },
    Row { name: "help", arguments: "", line: "print this help" },
];

/// Parses the arguments after `cargo xtask`.
pub(crate) fn parse(words: &[String]) -> Result<Command, UsageError> {
    let Some((word, rest)) = words.split_first() else {
        return Ok(Command::Help);
    };
    match word.as_str() {
        "help" | "--help" | "-h" => Ok(Command::Help),
        "tidy" => no_arguments("tidy", rest, Command::Tidy),
        "test" => test_options(rest).map(Command::Test),
        "servers" => no_arguments("servers", rest, Command::Servers),
        "bench" => Ok(Command::Bench(rest.to_vec())),
        "reliability" => Ok(Command::Reliability(rest.to_vec())),
        "conformance" => Ok(Command::Conformance(rest.to_vec())),
        "dashboard" => pictures(rest).map(Command::Dashboard),
        _ => Err(UsageError::UnknownCommand { word: word.clone(), suggestion: suggestion(word) }),
    }
}

/// Help text: one line per command.
pub(crate) fn usage() -> String {
    let rows = COMMANDS.iter().map(|Row { name, arguments, line }| {
        let left = format!("{name} {arguments}");
        format!("  {left:<30}{line}")
    });

    let head = ["usage: cargo xtask COMMAND".to_owned(), String::new()];
    head.into_iter().chain(rows).collect::<Vec<String>>().join("\n")
}

fn no_arguments(
    name: &'static str,
    rest: &[String],
    command: Command,
) -> Result<Command, UsageError> {
    match rest.first() {
        None => Ok(command),
        Some(word) => Err(UsageError::Unexpected { command: name, word: word.clone() }),
    }
}

fn pictures(rest: &[String]) -> Result<Pictures, UsageError> {
    match rest {
        [] => Ok(Pictures::InTarget),
        [word] if word == "--pictures" => Ok(Pictures::InDocs),
        [word, ..] => Err(UsageError::Unexpected { command: "dashboard", word: word.clone() }),
    }
}

fn test_options(rest: &[String]) -> Result<TestOptions, UsageError> {
    let mut options = TestOptions::default();
    for word in rest {
        if word == "--no-install" {
            options.install = Install::Never;
        } else if word.starts_with('-') || options.filter.is_some() {
            return Err(UsageError::Unexpected { command: "test", word: word.clone() });
        } else {
            options.filter = Some(word.clone());
        }
    }
    Ok(options)
}

/// The most similar command name, if it is similar enough for a typo.
fn suggestion(word: &str) -> Option<&'static str> {
    let distances = COMMANDS.iter().map(|row| (distance(word, row.name), row.name));
    distances.filter(|(distance, _)| *distance <= 3).min().map(|(_, name)| name)
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

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsageError::UnknownCommand { word, suggestion: Some(suggestion) } => {
                write!(f, "unknown command `{word}`; did you mean `{suggestion}`?")
            }
            UsageError::UnknownCommand { word, suggestion: None } => {
                write!(f, "unknown command `{word}`; see `cargo xtask help`")
            }
            UsageError::Unexpected { command, word } => {
                write!(f, "unexpected argument `{word}` for `{command}`; see `cargo xtask help`")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Result<Command, &str>) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let seen = parse(&words).map_err(|error| error.to_string());
        assert_eq!(seen, expected.map_err(str::to_owned));
    }

    fn test(install: Install, filter: Option<&str>) -> Command {
        Command::Test(TestOptions { install, filter: filter.map(str::to_owned) })
    }

    #[test]
    fn command_lines_are_parsed() {
        check("", Ok(Command::Help));
        check("help", Ok(Command::Help));
        check("tidy", Ok(Command::Tidy));
        check("servers", Ok(Command::Servers));
        check("test", Ok(test(Install::First, None)));
        check("test --no-install", Ok(test(Install::Never, None)));
        check("test late_response", Ok(test(Install::First, Some("late_response"))));
        check("test late_response --no-install", Ok(test(Install::Never, Some("late_response"))));
        check("bench --fast x", Ok(Command::Bench(vec!["--fast".into(), "x".into()])));
        check("conformance --only x", Ok(Command::Conformance(vec!["--only".into(), "x".into()])));
        check("dashboard", Ok(Command::Dashboard(Pictures::InTarget)));
        check("dashboard --pictures", Ok(Command::Dashboard(Pictures::InDocs)));
        check("reliability --quick", Ok(Command::Reliability(vec!["--quick".into()])));
    }

    #[test]
    fn usage_errors_suggest_a_command() {
        check("tset", Err("unknown command `tset`; did you mean `test`?"));
        check("benhc", Err("unknown command `benhc`; did you mean `bench`?"));
        check("tidy-up", Err("unknown command `tidy-up`; did you mean `tidy`?"));
        check("frobnicate", Err("unknown command `frobnicate`; see `cargo xtask help`"));
        check("tidy x", Err("unexpected argument `x` for `tidy`; see `cargo xtask help`"));
        check("test a b", Err("unexpected argument `b` for `test`; see `cargo xtask help`"));
        check("test -q", Err("unexpected argument `-q` for `test`; see `cargo xtask help`"));
    }

    #[test]
    fn every_listed_command_is_parsed_and_in_the_help() {
        let usage = usage();
        for row in COMMANDS {
            assert!(parse(&[row.name.to_owned()]).is_ok(), "{}", row.name);
            assert!(usage.contains(&format!("\n  {} ", row.name)), "{usage}");
        }
    }
}
