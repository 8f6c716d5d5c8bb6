//! `cargo xtask conformance`: runs the official suites against the client and the gateway.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::install::{self, InstallOutcome};
use crate::release_program::{exit_code, target_dir};
use crate::subprocess::{ExitResult, Subprocess, is_installed};
use crate::test::WORKSPACE;
use crate::{printer, tidy};

const BUILD_LIMIT: Duration = Duration::from_mins(45);

/// Some hundred scenarios of at most half a minute.
const RUN_LIMIT: Duration = Duration::from_hours(2);

/// Which side of the protocol is under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

pub(crate) fn run(root: &Path, words: Vec<String>) -> Result<ExitCode> {
    if let Some(reason) = missing_requirement(root)? {
        printer::print(&format!("SKIPPED: conformance: {reason}"));
        return Ok(ExitCode::SUCCESS);
    }
    let build = Subprocess::new("cargo", root, BUILD_LIMIT).args(["build"]).args(WORKSPACE);
    let build = build.args(["--bins"]);
    let exit = build.attached()?;
    if exit != ExitResult::Success {
        printer::print_error(&format!("error: `{}`: {exit}", build.command_line()));
        return Ok(exit_code(exit));
    }
    let target = target_dir(&tidy::metadata(root)?)?;
    let (sides, words) = sides(words);
    for side in sides {
        let exit = command(side, root, &target).args(words.clone()).args(programs(side, &target));
        let exit = exit.attached()?;
        if exit != ExitResult::Success {
            return Ok(exit_code(exit));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Selected sides: a first argument `client` or `server` selects one; the rest is for the runner.
fn sides(mut words: Vec<String>) -> (Vec<Side>, Vec<String>) {
    let side = match words.first().map(String::as_str) {
        Some("client") => Side::Client,
        Some("server") => Side::Server,
        _ => return (vec![Side::Client, Side::Server], words),
    };
    words.remove(0);
    (vec![side], words)
}

fn command(side: Side, root: &Path, target: &Path) -> Subprocess {
    let suites = root.join(install::SUITES_DIR);
    let (runner, expected, results) = match side {
        Side::Client => ("run.py", "expected-failures.txt", "conformance"),
        Side::Server => ("run_server.py", "expected-server-failures.txt", "conformance-server"),
    };
    Subprocess::new("python3", root, RUN_LIMIT)
        .args([suites.join(runner)])
        .args(["--expect".into(), suites.join(expected)])
        .args(["--out".into(), target.join(results)])
}

fn programs(side: Side, target: &Path) -> Vec<PathBuf> {
    let names: &[&str] = match side {
        Side::Client => &["toolrack-conformance"],
        Side::Server => &["toolrack-endpoint", "fixture-server"],
    };
    names.iter().map(|name| target.join("debug").join(name)).collect()
}

/// Reason why the suites cannot run here.
fn missing_requirement(root: &Path) -> Result<Option<String>> {
    if !is_installed("python3", root) {
        return Ok(Some("`python3` is missing, which runs the suites".to_owned()));
    }
    Ok(match install::install_suites(root)? {
        InstallOutcome::Skipped(reason) => Some(reason),
        InstallOutcome::UpToDate | InstallOutcome::Installed => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_may_name_a_side() {
        let check = |words: &[&str], expected: &[Side], rest: &[&str]| {
            let (found, left) = sides(words.iter().map(|&word| word.to_owned()).collect());
            let left: Vec<&str> = left.iter().map(String::as_str).collect();
            assert_eq!((found.as_slice(), left.as_slice()), (expected, rest), "{words:?}");
        };
        check(&[], &[Side::Client, Side::Server], &[]);
        check(&["server", "--quiet"], &[Side::Server], &["--quiet"]);
        check(&["client"], &[Side::Client], &[]);
        check(&["--only", "ping"], &[Side::Client, Side::Server], &["--only", "ping"]);
    }
}
