//! What went wrong with an installation, read from what the installer said.
//!
//! Installers tell people, not programs, so their words are all there is to tell a package that does not exist
//! from a network that does not work. Whatever is not recognized is given as it was said.

use serde_json::Value;
use toolrack_manager::{Failure, FailureKind};
use toolrack_stdio::Finished;

use super::install_plan::{Folder, Registry, Step};

/// Codes of npm for a package, a version or a tag that is not there, or cannot be.
const NPM_MISSING: &[&str] =
    &["E404", "ETARGET", "ENOVERSIONS", "EINVALIDPACKAGENAME", "EINVALIDTAGNAME"];
/// Codes of npm and Node.js for a registry that cannot be reached.
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
/// What pip and uv say of an index that cannot be reached. Looked for first: pip goes on to say that it found
/// no version.
const PYPI_OFFLINE: &[&str] = &[
    "connection broken by",
    "could not fetch url",
    "error sending request",
    "failed to fetch",
    "temporary failure in name resolution",
];
/// What pip and uv say of a package or a version that is not there.
const PYPI_MISSING: &[&str] = &[
    "no matching distribution found",
    "was not found in the package registry",
    "there is no version of",
];
/// What Docker says of an image that is not there. A registry does not tell it from one that is private.
const IMAGE_MISSING: &[&str] =
    &["manifest unknown", "not found", "name unknown", "does not exist", "pull access denied"];
/// What Docker says of a registry that cannot be reached.
const IMAGE_OFFLINE: &[&str] = &[
    "no such host",
    "connection refused",
    "i/o timeout",
    "timeout exceeded",
    "network is unreachable",
];

/// Why a step of an installation failed.
pub(super) fn judge(folder: &Folder, step: &Step, finished: &Finished) -> Failure {
    let spec = &folder.spec;
    let (kind, said) = match folder.registry {
        Registry::Npm => npm(finished),
        Registry::Pypi => (pypi(finished), finished.last_words().to_owned()),
    };
    let (registry, page) = match folder.registry {
        Registry::Npm => ("npm", "https://www.npmjs.com/package"),
        Registry::Pypi => ("PyPI", "https://pypi.org/project"),
    };
    match kind {
        FailureKind::PackageNotFound => {
            Failure::new(kind, format!("`{spec}` was not found on {registry}"))
                .hinting(format!("check its name and version: {page}/{}", folder.name))
        }
        FailureKind::Unreachable => {
            Failure::new(kind, format!("`{spec}` could not be fetched from {registry}: {said}"))
                .hinting("check the network, the proxy, and the settings of the package manager")
        }
        _ if step.args.iter().any(|it| it == "venv") => {
            Failure::new(FailureKind::MissingTool, format!("no environment for `{spec}`: {said}"))
                .hinting("install uv, or the `venv` module of Python (`python3-venv`)")
        }
        kind => Failure::new(kind, format!("`{spec}` could not be installed: {said}"))
            .hinting("look at what the installer said in the log"),
    }
}

/// Why an image could not be pulled.
pub(super) fn judge_pull(image: &str, finished: &Finished) -> Failure {
    let said = finished.last_words();
    match recognize(finished, IMAGE_OFFLINE, IMAGE_MISSING) {
        kind @ FailureKind::PackageNotFound => {
            Failure::new(kind, format!("the image `{image}` was not found: {said}"))
                .hinting("check its name and tag, or log in with `docker login` if it is private")
        }
        kind => Failure::new(kind, format!("the image `{image}` could not be pulled: {said}"))
            .hinting(format!("run `docker pull {image}` to see more")),
    }
}

/// With `--json`, npm gives a code and a summary on its output.
fn npm(finished: &Finished) -> (FailureKind, String) {
    let report: Option<Value> = serde_json::from_str(&finished.output).ok();
    let error = report.as_ref().and_then(|it| it.get("error"));
    let text = |key: &str| error.and_then(|it| it.get(key)).and_then(Value::as_str);
    let kind = match text("code") {
        Some(code) if NPM_MISSING.contains(&code) => FailureKind::PackageNotFound,
        Some(code) if NPM_OFFLINE.contains(&code) => FailureKind::Unreachable,
        _ => FailureKind::InstallFailed,
    };
    let summary = text("summary").filter(|it| !it.trim().is_empty());
    (kind, summary.unwrap_or(finished.last_words()).to_owned())
}

fn pypi(finished: &Finished) -> FailureKind {
    recognize(finished, PYPI_OFFLINE, PYPI_MISSING)
}

fn recognize(finished: &Finished, offline: &[&str], missing: &[&str]) -> FailureKind {
    let text = finished.errors.join("\n").to_lowercase();
    if offline.iter().any(|it| text.contains(it)) {
        FailureKind::Unreachable
    } else if missing.iter().any(|it| text.contains(it)) {
        FailureKind::PackageNotFound
    } else {
        FailureKind::InstallFailed
    }
}

#[cfg(test)]
mod tests {
    use toolrack_transport::Exit;

    use super::*;

    fn finished(output: &str, errors: &[&str]) -> Finished {
        let errors = errors.iter().map(|it| (*it).to_owned()).collect();
        Finished { exit: Exit::Code(1), output: output.to_owned(), errors }
    }

    #[track_caller]
    fn check_npm(code: &str, expected: FailureKind) {
        let output = format!(r#"{{"error":{{"code":"{code}","summary":"why"}}}}"#);
        assert_eq!(npm(&finished(&output, &["x"])), (expected, "why".to_owned()));
    }

    #[test]
    fn codes_of_npm_are_told_apart() {
        check_npm("E404", FailureKind::PackageNotFound);
        check_npm("ETARGET", FailureKind::PackageNotFound);
        check_npm("ECONNREFUSED", FailureKind::Unreachable);
        check_npm("ENOSPC", FailureKind::InstallFailed);
        let crash = finished("no json", &["npm broke", ""]);
        assert_eq!(npm(&crash), (FailureKind::InstallFailed, "npm broke".to_owned()));
    }

    #[track_caller]
    fn check_pypi(errors: &[&str], expected: FailureKind) {
        assert_eq!(pypi(&finished("", errors)), expected);
    }

    #[test]
    fn words_of_pip_and_uv_are_told_apart() {
        let nothing = "ERROR: No matching distribution found for x==1";
        check_pypi(&[nothing], FailureKind::PackageNotFound);
        let retry = "WARNING: Retrying after connection broken by 'NewConnectionError'";
        check_pypi(&[retry, nothing], FailureKind::Unreachable);
        let unknown = "cause: Because x was not found in the package registry and you require x";
        check_pypi(&[unknown], FailureKind::PackageNotFound);
        let version = "cause: Because there is no version of x==0 and you require x==0";
        check_pypi(&[version], FailureKind::PackageNotFound);
        check_pypi(&["cause: Failed to fetch: http://host/simple/x/"], FailureKind::Unreachable);
        check_pypi(&["ERROR: Could not build wheels for x"], FailureKind::InstallFailed);
    }

    #[track_caller]
    fn check_image(said: &str, expected: FailureKind) {
        let said = format!("Error response from daemon: {said}");
        assert_eq!(judge_pull("x:1", &finished("", &[&said])).kind(), expected);
    }

    #[test]
    fn words_of_docker_are_told_apart() {
        check_image("manifest for x:1 not found: manifest unknown", FailureKind::PackageNotFound);
        check_image(
            "pull access denied for x, repository does not exist",
            FailureKind::PackageNotFound,
        );
        check_image(
            "Get \"https://r/v2/\": dial tcp: lookup r: no such host",
            FailureKind::Unreachable,
        );
        check_image("no space left on device", FailureKind::InstallFailed);
    }
}
