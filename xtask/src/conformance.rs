//! `cargo xtask conformance`: the official suites against our client and our gateway, compared with what is expected.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::child::{Chore, Ending, is_installed};
use crate::forward::{exit_code, target_dir};
use crate::servers::{self, Outcome};
use crate::suite::WORKSPACE;
use crate::{printer, tidy};

const BUILD_LIMIT: Duration = Duration::from_mins(45);

/// Some hundred scenarios of half a minute at the most.
const RUN_LIMIT: Duration = Duration::from_hours(2);

/// Which side of the protocol is under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

pub(crate) fn run(root: &Path, words: Vec<String>) -> Result<ExitCode> {
    if let Some(reason) = obstacle(root)? {
        printer::say(&format!("SKIPPED: conformance: {reason}"));
        return Ok(ExitCode::SUCCESS);
    }
    let build = Chore::new("cargo", root, BUILD_LIMIT).args(["build"]).args(WORKSPACE);
    let build = build.args(["--bins"]);
    let ending = build.attached()?;
    if ending != Ending::Success {
        printer::complain(&format!("error: `{}`: {ending}", build.line()));
        return Ok(exit_code(ending));
    }
    let target = target_dir(&tidy::metadata(root)?)?;
    let (sides, words) = sides(words);
    for side in sides {
        let ending = chore(side, root, &target).args(words.clone()).args(programs(side, &target));
        let ending = ending.attached()?;
        if ending != Ending::Success {
            return Ok(exit_code(ending));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What `words` select: `client` or `server` in front means one side, and the rest is for its runner.
fn sides(mut words: Vec<String>) -> (Vec<Side>, Vec<String>) {
    let side = match words.first().map(String::as_str) {
        Some("client") => Side::Client,
        Some("server") => Side::Server,
        _ => return (vec![Side::Client, Side::Server], words),
    };
    words.remove(0);
    (vec![side], words)
}

fn chore(side: Side, root: &Path, target: &Path) -> Chore {
    let suites = root.join(servers::SUITES_DIR);
    let (runner, expected, results) = match side {
        Side::Client => ("run.py", "expected-failures.txt", "conformance"),
        Side::Server => ("run_server.py", "expected-server-failures.txt", "conformance-server"),
    };
    Chore::new("python3", root, RUN_LIMIT)
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

/// What this machine lacks.
fn obstacle(root: &Path) -> Result<Option<String>> {
    if !is_installed("python3", root) {
        return Ok(Some("`python3` is missing, which runs the suites".to_owned()));
    }
    Ok(match servers::install_suites(root)? {
        Outcome::Skipped(reason) => Some(reason),
        Outcome::UpToDate | Outcome::Installed => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_may_name_a_side() {
        let check = |words: &[&str], expected: &[Side], rest: &[&str]| {
            let (found, left) = sides(words.iter().map(|&it| it.to_owned()).collect());
            let left: Vec<&str> = left.iter().map(String::as_str).collect();
            assert_eq!((found.as_slice(), left.as_slice()), (expected, rest), "{words:?}");
        };
        check(&[], &[Side::Client, Side::Server], &[]);
        check(&["server", "--quiet"], &[Side::Server], &["--quiet"]);
        check(&["client"], &[Side::Client], &[]);
        check(&["--only", "ping"], &[Side::Client, Side::Server], &["--only", "ping"]);
    }
}
