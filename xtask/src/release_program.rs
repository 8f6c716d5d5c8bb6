//! `cargo xtask bench` and `cargo xtask reliability`: builds and runs a program in the release profile.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::install;
use crate::subprocess::{ExitResult, Subprocess};
use crate::tidy;

const BUILD_LIMIT: Duration = Duration::from_mins(90);

/// Long enough for a soak test overnight.
const RUN_LIMIT: Duration = Duration::from_hours(24);

pub(crate) fn bench(root: &Path, words: &[String]) -> Result<ExitCode> {
    // Built separately: together with the bench they would get the features that its peers enable.
    let bench: &[&str] = &["-p", "toolrack-bench"];
    let demo_server = &["-p", "toolrack-demo"];
    let (builds, peers): (&[&[&str]], _) = match words.first().map(String::as_str) {
        Some("cli") => {
            (&[&["-p", "toolrack-cli"], demo_server, bench], install::install_peers(root)?)
        }
        Some("gateway") => (
            &[&["-p", "toolrack-conformance"], bench],
            install::install_python(root, &install::FASTMCP)?,
        ),
        _ => return run(root, &[bench], "toolrack-bench", words),
    };
    // The bench reports missing peers and measures the others.
    if let Some(reason) = peers.skipped() {
        crate::print_error(&format!("SKIPPED: peers: {reason}"));
    }
    run(root, builds, "toolrack-bench", words)
}

pub(crate) fn reliability(root: &Path, words: &[String]) -> Result<ExitCode> {
    // The gates start the scripted server from the folder of their own executable.
    let packages =
        ["-p", "toolrack-reliability", "-p", "toolrack-testkit", "-p", "toolrack-stdio", "--bins"];
    run(root, &[&packages], "toolrack-reliability", words)
}

fn run(root: &Path, builds: &[&[&str]], program: &str, words: &[String]) -> Result<ExitCode> {
    for packages in builds {
        let exit = build(root, &[&["--release"], *packages].concat())?;
        if exit != ExitResult::Success {
            return Ok(exit_code(exit));
        }
    }
    let path = target_dir(&tidy::metadata(root)?)?.join("release").join(program);
    Ok(exit_code(Subprocess::new(path, root, RUN_LIMIT).args(words).attached()?))
}

/// Builds with these arguments, and prints a failure.
pub(crate) fn build(root: &Path, args: &[&str]) -> Result<ExitResult> {
    let command = Subprocess::new("cargo", root, BUILD_LIMIT).args(["build"]).args(args);
    let exit = command.attached()?;
    if exit != ExitResult::Success {
        crate::print_error(&format!("error: `{}`: {exit}", command.command_line()));
    }
    Ok(exit)
}

/// Target directory, which a user may have moved.
pub(crate) fn target_dir(metadata: &Value) -> Result<PathBuf> {
    let path = metadata.get("target_directory").and_then(Value::as_str);
    path.map(PathBuf::from).context("`cargo metadata` names no target directory")
}

pub(crate) fn exit_code(exit: ExitResult) -> ExitCode {
    match exit {
        ExitResult::Success => ExitCode::SUCCESS,
        ExitResult::Failure(code) => {
            code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        ExitResult::TimedOut(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(exit: ExitResult, expected: ExitCode) {
        assert_eq!(exit_code(exit), expected);
    }

    #[test]
    fn exit_code_is_passed_on() {
        check(ExitResult::Success, ExitCode::SUCCESS);
        check(ExitResult::Failure(Some(7)), ExitCode::from(7));
        check(ExitResult::Failure(Some(256)), ExitCode::FAILURE);
        check(ExitResult::Failure(None), ExitCode::FAILURE);
        check(ExitResult::TimedOut(RUN_LIMIT), ExitCode::FAILURE);
    }
}
