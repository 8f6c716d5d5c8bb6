//! `cargo xtask bench` and `cargo xtask reliability`: build in the release profile, run, pass on
//! the exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::child::{Chore, Ending};
use crate::servers::{self, Outcome};
use crate::{printer, tidy};

const BUILD_LIMIT: Duration = Duration::from_mins(90);

/// Long enough for a soak test over a night.
const RUN_LIMIT: Duration = Duration::from_hours(24);

pub(crate) fn bench(root: &Path, words: Vec<String>) -> Result<ExitCode> {
    // Programs are built for themselves: beside the bench they would get the features that its peers need.
    let (beside, peers): (&[&str], _) = match words.first().map(String::as_str) {
        Some("cli") => (&["-p", "toolrack-cli"], servers::install_programs(root)?),
        Some("gateway") => (&["-p", "toolrack-conformance"], servers::install_proxy(root)?),
        _ => return run(root, &[&["-p", "toolrack-bench"]], "toolrack-bench", words),
    };
    // The bench says what is missing, and measures the rest.
    if let Outcome::Skipped(reason) = peers {
        printer::complain(&format!("SKIPPED: peers: {reason}"));
    }
    run(root, &[beside, &["-p", "toolrack-bench"]], "toolrack-bench", words)
}

pub(crate) fn reliability(root: &Path, words: Vec<String>) -> Result<ExitCode> {
    // The gates start the scripted server, which is looked for beside them.
    let packages =
        ["-p", "toolrack-reliability", "-p", "toolrack-testkit", "-p", "toolrack-stdio", "--bins"];
    run(root, &[&packages], "toolrack-reliability", words)
}

fn run(root: &Path, builds: &[&[&str]], program: &str, words: Vec<String>) -> Result<ExitCode> {
    for packages in builds {
        let build = Chore::new("cargo", root, BUILD_LIMIT).args(["build", "--release"]);
        let build = build.args(*packages);
        let ending = build.attached()?;
        if ending != Ending::Success {
            printer::complain(&format!("error: `{}`: {ending}", build.line()));
            return Ok(exit_code(ending));
        }
    }
    let path = target_dir(&tidy::metadata(root)?)?.join("release").join(program);
    Ok(exit_code(Chore::new(path, root, RUN_LIMIT).args(words).attached()?))
}

/// Where cargo puts what it builds, which a user may have moved.
pub(crate) fn target_dir(metadata: &Value) -> Result<PathBuf> {
    let path = metadata.get("target_directory").and_then(Value::as_str);
    path.map(PathBuf::from).context("`cargo metadata` names no target directory")
}

pub(crate) fn exit_code(ending: Ending) -> ExitCode {
    match ending {
        Ending::Success => ExitCode::SUCCESS,
        Ending::Failure(code) => {
            code.and_then(|it| u8::try_from(it).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Ending::TimedOut(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ending: Ending, expected: ExitCode) {
        assert_eq!(exit_code(ending), expected);
    }

    #[test]
    fn exit_code_is_passed_on() {
        check(Ending::Success, ExitCode::SUCCESS);
        check(Ending::Failure(Some(7)), ExitCode::from(7));
        check(Ending::Failure(Some(256)), ExitCode::FAILURE);
        check(Ending::Failure(None), ExitCode::FAILURE);
        check(Ending::TimedOut(RUN_LIMIT), ExitCode::FAILURE);
    }
}
