//! `cargo xtask conformance`: the official suites against our client, compared with what is expected.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::child::{Chore, Ending, is_installed};
use crate::forward::{exit_code, target_dir};
use crate::servers::{self, Outcome};
use crate::{printer, tidy};

const BUILD_LIMIT: Duration = Duration::from_mins(45);

/// A hundred scenarios of half a minute at the most.
const RUN_LIMIT: Duration = Duration::from_hours(1);

pub(crate) fn run(root: &Path, words: Vec<String>) -> Result<ExitCode> {
    if let Some(reason) = obstacle(root)? {
        printer::say(&format!("SKIPPED: conformance: {reason}"));
        return Ok(ExitCode::SUCCESS);
    }
    let build =
        Chore::new("cargo", root, BUILD_LIMIT).args(["build", "-p", "toolrack-conformance"]);
    let ending = build.attached()?;
    if ending != Ending::Success {
        printer::complain(&format!("error: `{}`: {ending}", build.line()));
        return Ok(exit_code(ending));
    }
    let target = target_dir(&tidy::metadata(root)?)?;
    let client = target.join("debug").join("toolrack-conformance");
    let results = target.join("conformance");
    let suites = root.join(servers::SUITES_DIR);
    let chore = Chore::new("python3", root, RUN_LIMIT)
        .args([suites.join("run.py")])
        .args(["--expect".into(), suites.join("expected-failures.txt")])
        .args(["--out".into(), results])
        .args(words)
        .args([client]);
    Ok(exit_code(chore.attached()?))
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
