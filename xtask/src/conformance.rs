//! `cargo xtask conformance`: runs the official suites against the client and the gateway.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::install;
use crate::release_program::{build, exit_code, target_dir};
use crate::subprocess::{ExitResult, Subprocess, is_installed};
use crate::test::WORKSPACE;
use crate::tidy;

/// Some hundred scenarios of at most half a minute.
const RUN_LIMIT: Duration = Duration::from_hours(2);

/// Which side of the protocol is under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

pub(crate) fn run(root: &Path, words: &[String]) -> Result<ExitCode> {
    if let Some(reason) = missing_requirement(root)? {
        crate::print(&format!("SKIPPED: conformance: {reason}"));
        return Ok(ExitCode::SUCCESS);
    }
    let exit = build(root, &[&WORKSPACE[..], &["--bins"]].concat())?;
    if exit != ExitResult::Success {
        return Ok(exit_code(exit));
    }
    let target = target_dir(&tidy::metadata(root)?)?;
    let (sides, words) = sides(words);
    for side in sides {
        let exit = command(*side, root, &target, words).attached()?;
        if exit != ExitResult::Success {
            return Ok(exit_code(exit));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Selected sides: a first argument `client` or `server` selects one; the rest is for the runner.
fn sides(words: &[String]) -> (&'static [Side], &[String]) {
    match words.split_first() {
        Some((word, rest)) if word == "client" => (&[Side::Client], rest),
        Some((word, rest)) if word == "server" => (&[Side::Server], rest),
        _ => (&[Side::Client, Side::Server], words),
    }
}

fn command(side: Side, root: &Path, target: &Path, words: &[String]) -> Subprocess {
    let suites = root.join(install::SUITES.dir);
    let (runner, expected, results, programs): (_, _, _, &[&str]) = match side {
        Side::Client => {
            ("run.py", "expected-failures.txt", "conformance", &["toolrack-conformance"])
        }
        Side::Server => (
            "run_server.py",
            "expected-server-failures.txt",
            "conformance-server",
            &["toolrack-endpoint", "fixture-server"],
        ),
    };
    Subprocess::new("python3", root, RUN_LIMIT)
        .args([suites.join(runner)])
        .args(["--expect".into(), suites.join(expected)])
        .args(["--out".into(), target.join(results)])
        .args(words)
        .args(programs.iter().map(|name| target.join("debug").join(name)))
}

/// Reason why the suites cannot run here.
fn missing_requirement(root: &Path) -> Result<Option<String>> {
    if !is_installed("python3", root) {
        return Ok(Some("`python3` is missing, which runs the suites".to_owned()));
    }
    Ok(install::install_npm(root, &install::SUITES)?.skipped())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_may_name_a_side() {
        let check = |words: &[&str], expected: &[Side], rest: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let (found, left) = sides(&words);
            let left: Vec<&str> = left.iter().map(String::as_str).collect();
            assert_eq!((found, left.as_slice()), (expected, rest), "{words:?}");
        };
        check(&[], &[Side::Client, Side::Server], &[]);
        check(&["server", "--quiet"], &[Side::Server], &["--quiet"]);
        check(&["client"], &[Side::Client], &[]);
        check(&["--only", "ping"], &[Side::Client, Side::Server], &["--only", "ping"]);
    }
}
