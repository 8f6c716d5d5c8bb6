//! What can be typed after `cargo xtask`, as one table and one parser.
//!
//! **Invariant:** a command is in [`COMMANDS`] if and only if [`parse`] knows it; a test says so.

use std::fmt;

use crate::dashboard::Pictures;

/// What the user asked for.
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

/// What a user may leave out of `cargo xtask test`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestOptions {
    pub(crate) install: Install,
    /// Run only the tests whose names contain this text, and no other check.
    pub(crate) filter: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Install {
    #[default]
    First,
    Never,
}

/// Why a command line means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misuse {
    UnknownCommand { word: String, nearest: Option<&'static str> },
    Unexpected { command: &'static str, word: String },
}

struct Row {
    name: &'static str,
    arguments: &'static str,
    line: &'static str,
}

const COMMANDS: [Row; 8] = [
    Row { name: "tidy", arguments: "", line: "check the rules of STYLE.md on the whole tree" },
    Row {
        name: "test",
        arguments: "[--no-install] [FILTER]",
        line: "install what tests need, then run every check; with FILTER only those tests",
    },
    Row { name: "servers", arguments: "", line: "install the servers and programs tests need" },
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
        line: "install and run the official conformance suites, and compare with what is expected",
    },
    Row {
        name: "dashboard",
        arguments: "[--pictures]",
        line: "test the page in a browser; with --pictures, take those of the documents anew",
    },
    Row { name: "help", arguments: "", line: "this list" },
];

/// Reads the words after `cargo xtask`.
pub(crate) fn parse(words: &[String]) -> Result<Command, Misuse> {
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
        _ => Err(Misuse::UnknownCommand { word: word.clone(), nearest: nearest(word) }),
    }
}

/// The commands, one line each.
pub(crate) fn usage() -> String {
    let rows = COMMANDS.iter().map(|Row { name, arguments, line }| {
        let left = format!("{name} {arguments}");
        format!("  {left:<30}{line}")
    });

    let head = ["usage: cargo xtask COMMAND".to_owned(), String::new()];
    head.into_iter().chain(rows).collect::<Vec<String>>().join("\n")
}

fn no_arguments(name: &'static str, rest: &[String], command: Command) -> Result<Command, Misuse> {
    match rest.first() {
        None => Ok(command),
        Some(word) => Err(Misuse::Unexpected { command: name, word: word.clone() }),
    }
}

fn pictures(rest: &[String]) -> Result<Pictures, Misuse> {
    match rest {
        [] => Ok(Pictures::InTarget),
        [word] if word == "--pictures" => Ok(Pictures::InDocs),
        [word, ..] => Err(Misuse::Unexpected { command: "dashboard", word: word.clone() }),
    }
}

fn test_options(rest: &[String]) -> Result<TestOptions, Misuse> {
    let mut options = TestOptions::default();
    for word in rest {
        if word == "--no-install" {
            options.install = Install::Never;
        } else if word.starts_with('-') || options.filter.is_some() {
            return Err(Misuse::Unexpected { command: "test", word: word.clone() });
        } else {
            options.filter = Some(word.clone());
        }
    }
    Ok(options)
}

/// The command that was probably meant, if one is near enough to be a slip of the fingers.
fn nearest(word: &str) -> Option<&'static str> {
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

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::UnknownCommand { word, nearest: Some(nearest) } => {
                write!(f, "no command `{word}`; the nearest is `{nearest}`")
            }
            Misuse::UnknownCommand { word, nearest: None } => {
                write!(f, "no command `{word}`; `cargo xtask help` lists them")
            }
            Misuse::Unexpected { command, word } => {
                write!(
                    f,
                    "`{command}` does not take `{word}`; `cargo xtask help` shows what it takes"
                )
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
        let seen = parse(&words).map_err(|misuse| misuse.to_string());
        assert_eq!(seen, expected.map_err(str::to_owned));
    }

    fn test(install: Install, filter: Option<&str>) -> Command {
        Command::Test(TestOptions { install, filter: filter.map(str::to_owned) })
    }

    #[test]
    fn command_lines_are_read() {
        check("", Ok(Command::Help));
        check("help", Ok(Command::Help));
        check("tidy", Ok(Command::Tidy));
        check("servers", Ok(Command::Servers));
        check("test", Ok(test(Install::First, None)));
        check("test --no-install", Ok(test(Install::Never, None)));
        check("test late_answer", Ok(test(Install::First, Some("late_answer"))));
        check("test late_answer --no-install", Ok(test(Install::Never, Some("late_answer"))));
        check("bench --fast x", Ok(Command::Bench(vec!["--fast".into(), "x".into()])));
        check("conformance --only x", Ok(Command::Conformance(vec!["--only".into(), "x".into()])));
        check("dashboard", Ok(Command::Dashboard(Pictures::InTarget)));
        check("dashboard --pictures", Ok(Command::Dashboard(Pictures::InDocs)));
        check("reliability --quick", Ok(Command::Reliability(vec!["--quick".into()])));
    }

    #[test]
    fn misuse_says_what_was_probably_meant() {
        check("tset", Err("no command `tset`; the nearest is `test`"));
        check("benhc", Err("no command `benhc`; the nearest is `bench`"));
        check("tidy-up", Err("no command `tidy-up`; the nearest is `tidy`"));
        check("frobnicate", Err("no command `frobnicate`; `cargo xtask help` lists them"));
        check("tidy x", Err("`tidy` does not take `x`; `cargo xtask help` shows what it takes"));
        check("test a b", Err("`test` does not take `b`; `cargo xtask help` shows what it takes"));
        check("test -q", Err("`test` does not take `-q`; `cargo xtask help` shows what it takes"));
    }

    #[test]
    fn every_command_of_the_table_is_understood_and_shown() {
        let usage = usage();
        for row in COMMANDS {
            assert!(parse(&[row.name.to_owned()]).is_ok(), "{}", row.name);
            assert!(usage.contains(&format!("\n  {} ", row.name)), "{usage}");
        }
    }
}
