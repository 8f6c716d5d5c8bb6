//! Classifies failed installations by the output of npm, pip, uv and Docker.
//!
//! Apart from npm, installers have no error codes, so their text is all there is to tell a missing package from a
//! network failure. Output that is not recognized is passed on as it is.

use serde_json::Value;
use toolrack_manager::{ErrorKind, Failure};
use toolrack_stdio::CommandOutput;

use super::install_plan::{InstallCommand, PackageInstall, Registry};

/// npm codes for a package, version or tag that does not exist or is invalid.
const NPM_NOT_FOUND: &[&str] =
    &["E404", "ETARGET", "ENOVERSIONS", "EINVALIDPACKAGENAME", "EINVALIDTAGNAME"];
/// npm and Node.js codes for an unreachable registry.
const NPM_OFFLINE: &[&str] = &[
    "EAI_AGAIN",
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTCACHED",
    "ENOTFOUND",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
    "E500",
    "E502",
    "E503",
    "E504",
];
/// Output of pip and uv for an unreachable index. Checked first: after such an error pip also reports that it found no
/// version.
const PYPI_OFFLINE: &[&str] = &[
    "connection broken by",
    "could not fetch url",
    "error sending request",
    "failed to fetch",
    "temporary failure in name resolution",
];
/// Output of pip and uv for a missing package or version.
const PYPI_NOT_FOUND: &[&str] = &[
    "no matching distribution found",
    "was not found in the package registry",
    "there is no version of",
];
/// Output of Docker for a missing image. Registries report a private image in the same way.
const IMAGE_NOT_FOUND: &[&str] =
    &["manifest unknown", "not found", "name unknown", "does not exist", "pull access denied"];
/// Output of Docker for an unreachable registry.
const IMAGE_OFFLINE: &[&str] = &[
    "no such host",
    "connection refused",
    "i/o timeout",
    "timeout exceeded",
    "network is unreachable",
];

/// Why a command of an installation failed.
pub(super) fn install_failure(
    install: &PackageInstall,
    command: &InstallCommand,
    finished: &CommandOutput,
) -> Failure {
    let spec = &install.spec;
    let ((kind, cause), registry, page) = match install.registry {
        Registry::Npm => (npm(finished), "npm", "https://www.npmjs.com/package"),
        Registry::Pypi => (pypi(finished), "PyPI", "https://pypi.org/project"),
    };
    match kind {
        ErrorKind::PackageNotFound => {
            Failure::new(kind, format!("`{spec}` was not found on {registry}"))
                .with_hint(format!("check its name and version: {page}/{}", install.name))
        }
        ErrorKind::Unreachable => {
            Failure::new(kind, format!("cannot fetch `{spec}` from {registry}: {cause}"))
                .with_hint("check the network, the proxy and the package manager's settings")
        }
        _ if command.args.iter().any(|arg| arg == "venv") => Failure::new(
            ErrorKind::MissingTool,
            format!("cannot create a virtual environment for `{spec}`: {cause}"),
        )
        .with_hint("install uv, or Python's `venv` module (`python3-venv`)"),
        kind => Failure::new(kind, format!("cannot install `{spec}`: {cause}"))
            .with_hint("see the installer's output in the log"),
    }
}

/// Why an image could not be pulled.
pub(super) fn pull_failure(runtime: &str, image: &str, finished: &CommandOutput) -> Failure {
    let cause = finished.last_stderr_line();
    match classify(finished, IMAGE_OFFLINE, IMAGE_NOT_FOUND) {
        kind @ ErrorKind::PackageNotFound => {
            Failure::new(kind, format!("the image `{image}` was not found: {cause}")).with_hint(
                format!(
                    "check its name and tag, or log in with `{runtime} login` if it is private"
                ),
            )
        }
        kind => Failure::new(kind, format!("cannot pull the image `{image}`: {cause}"))
            .with_hint(format!("run `{runtime} pull {image}` for details")),
    }
}

/// With `--json`, npm prints an error code and a summary.
fn npm(finished: &CommandOutput) -> (ErrorKind, String) {
    let report: Option<Value> = serde_json::from_str(&finished.stdout).ok();
    let error = report.as_ref().and_then(|report| report.get("error"));
    let text = |key: &str| error.and_then(|error| error.get(key)).and_then(Value::as_str);
    let kind = match text("code") {
        Some(code) if NPM_NOT_FOUND.contains(&code) => ErrorKind::PackageNotFound,
        Some(code) if NPM_OFFLINE.contains(&code) => ErrorKind::Unreachable,
        _ => ErrorKind::InstallFailed,
    };
    let summary = text("summary").filter(|summary| !summary.trim().is_empty());
    (kind, summary.unwrap_or(finished.last_stderr_line()).to_owned())
}

fn pypi(finished: &CommandOutput) -> (ErrorKind, String) {
    let kind = classify(finished, PYPI_OFFLINE, PYPI_NOT_FOUND);
    (kind, finished.last_stderr_line().to_owned())
}

fn classify(finished: &CommandOutput, offline: &[&str], missing: &[&str]) -> ErrorKind {
    let text = finished.stderr.join("\n").to_lowercase();
    if offline.iter().any(|phrase| text.contains(phrase)) {
        ErrorKind::Unreachable
    } else if missing.iter().any(|phrase| text.contains(phrase)) {
        ErrorKind::PackageNotFound
    } else {
        ErrorKind::InstallFailed
    }
}

#[cfg(test)]
mod tests {
    use toolrack_transport::ExitStatus;

    use super::*;

    fn finished(output: &str, errors: &[&str]) -> CommandOutput {
        let errors = errors.iter().map(|line| (*line).to_owned()).collect();
        CommandOutput { status: ExitStatus::Code(1), stdout: output.to_owned(), stderr: errors }
    }

    #[track_caller]
    fn check_npm(code: &str, expected: ErrorKind) {
        let output = format!(r#"{{"error":{{"code":"{code}","summary":"why"}}}}"#);
        assert_eq!(npm(&finished(&output, &["x"])), (expected, "why".to_owned()));
    }

    #[test]
    fn npm_error_codes_are_classified() {
        check_npm("E404", ErrorKind::PackageNotFound);
        check_npm("ETARGET", ErrorKind::PackageNotFound);
        check_npm("ECONNREFUSED", ErrorKind::Unreachable);
        check_npm("ENOSPC", ErrorKind::InstallFailed);
        let crash = finished("no json", &["npm broke", ""]);
        assert_eq!(npm(&crash), (ErrorKind::InstallFailed, "npm broke".to_owned()));
    }

    #[track_caller]
    fn check_pypi(errors: &[&str], expected: ErrorKind) {
        assert_eq!(pypi(&finished("", errors)).0, expected);
    }

    #[test]
    fn pip_and_uv_output_is_classified() {
        let nothing = "ERROR: No matching distribution found for x==1";
        check_pypi(&[nothing], ErrorKind::PackageNotFound);
        let retry = "WARNING: Retrying after connection broken by 'NewConnectionError'";
        check_pypi(&[retry, nothing], ErrorKind::Unreachable);
        let unknown = "cause: Because x was not found in the package registry and you require x";
        check_pypi(&[unknown], ErrorKind::PackageNotFound);
        let version = "cause: Because there is no version of x==0 and you require x==0";
        check_pypi(&[version], ErrorKind::PackageNotFound);
        check_pypi(&["cause: Failed to fetch: http://host/simple/x/"], ErrorKind::Unreachable);
        check_pypi(&["ERROR: Could not build wheels for x"], ErrorKind::InstallFailed);
    }

    #[track_caller]
    fn check_image(message: &str, expected: ErrorKind) {
        let line = format!("Error response from daemon: {message}");
        assert_eq!(pull_failure("docker", "x:1", &finished("", &[&line])).kind(), expected);
    }

    #[test]
    fn docker_output_is_classified() {
        check_image("manifest for x:1 not found: manifest unknown", ErrorKind::PackageNotFound);
        check_image(
            "pull access denied for x, repository does not exist",
            ErrorKind::PackageNotFound,
        );
        check_image(
            "Get \"https://r/v2/\": dial tcp: lookup r: no such host",
            ErrorKind::Unreachable,
        );
        check_image("no space left on device", ErrorKind::InstallFailed);
    }
}
