//! `cargo xtask servers`: installs the programs and MCP servers that tests use.
//!
//! **Invariant:** an installed package is not installed again, and a failed install is reported as
//! skipped, with the command to run.

mod stamp;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use self::stamp::Stamp;
use crate::commands::no_arguments;
use crate::subprocess::{ExitResult, Subprocess, is_installed};

const LIMIT: Duration = Duration::from_mins(15);
const QUESTION_LIMIT: Duration = Duration::from_secs(30);

/// A system program, its Debian package, and the tests that need it.
struct Program {
    name: &'static str,
    package: &'static str,
    needed_by: &'static str,
}

const PROGRAMS: [Program; 8] = [
    Program { name: "npm", package: "npm", needed_by: "the servers from npm" },
    Program { name: "python3", package: "python3-venv", needed_by: "the servers from PyPI" },
    Program { name: "ps", package: "procps", needed_by: "killing what outlives its time limit" },
    // The program `docker` may be there without the engine that it talks to.
    Program { name: "dockerd", package: "docker.io", needed_by: "servers in containers" },
    Program { name: "chromium", package: "chromium", needed_by: "tests of the dashboard" },
    Program { name: "strace", package: "strace", needed_by: "tests that watch system calls" },
    Program { name: "zsh", package: "zsh", needed_by: "completion in zsh" },
    Program { name: "fish", package: "fish", needed_by: "completion in fish" },
];

/// Rust components that a minimal toolchain lacks.
const COMPONENTS: [&str; 2] = ["rustfmt", "clippy"];

/// A folder with pinned packages, and programs that exist once they are installed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packages {
    what: &'static str,
    pub(crate) dir: &'static str,
    programs: &'static [&'static str],
}

const NODE_FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
const PYTHON_FILES: [&str; 1] = ["requirements.txt"];

const NODE_SERVERS: Packages = Packages {
    what: "node servers",
    dir: "tests/servers/node",
    programs: &[
        "node_modules/.bin/mcp-server-everything",
        "node_modules/.bin/mcp-server-filesystem",
        "node_modules/.bin/mcp-server-memory",
    ],
};

/// mcporter, which needs a newer Node.js than many machines have.
const MCPORTER: Packages = Packages {
    what: "mcporter",
    dir: "tests/servers/node/mcporter",
    programs: &["node_modules/node/bin/node", "node_modules/mcporter/dist/cli.js"],
};

/// Official conformance suites of MCP, which need a newer Node.js than many machines have.
pub(crate) const SUITES: Packages = Packages {
    what: "conformance suites",
    dir: "tests/conformance",
    programs: &[
        "node_modules/node/bin/node",
        "node_modules/conformance-0.1/dist/index.js",
        "node_modules/conformance-0.2/dist/index.js",
    ],
};

/// Playwright and axe.
pub(crate) const DASHBOARD: Packages = Packages {
    what: "dashboard tests",
    dir: "tests/dashboard",
    programs: &["node_modules/playwright-core/package.json", "node_modules/axe-core/axe.min.js"],
};

/// Programs that `cargo xtask bench cli` compares with, and their Node.js.
const PEERS: Packages = Packages {
    what: "peers of the command line",
    dir: "tests/bench",
    programs: &[
        "node_modules/node/bin/node",
        "node_modules/.bin/mcporter",
        "node_modules/.bin/inspector",
    ],
};

pub(crate) const FASTMCP: Packages = Packages {
    what: "python servers on fastmcp",
    dir: "tests/servers/python/fastmcp",
    programs: &["venv/bin/python", "venv/bin/fastmcp"],
};

const NODE_PACKAGES: [Packages; 4] = [NODE_SERVERS, MCPORTER, SUITES, DASHBOARD];

/// Servers that need different versions of the same package cannot share an environment.
const PYTHON_PACKAGES: [Packages; 5] = [
    Packages {
        what: "python servers",
        dir: "tests/servers/python",
        programs: &["venv/bin/python", "venv/bin/mcp-server-time"],
    },
    FASTMCP,
    Packages {
        what: "python servers on the SDK 1.x",
        dir: "tests/servers/python/mcp1",
        programs: &["venv/bin/python", "venv/bin/uvicorn"],
    },
    Packages {
        what: "uv",
        dir: "tests/servers/python/uv",
        programs: &["venv/bin/python", "venv/bin/uv"],
    },
    Packages {
        what: "schemathesis",
        dir: "tests/servers/python/schemathesis",
        programs: &["venv/bin/python", "venv/bin/schemathesis"],
    },
];

/// Result of one install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InstallOutcome {
    UpToDate,
    Installed,
    Skipped(String),
}

impl InstallOutcome {
    /// Reason why it was not installed.
    pub(crate) fn skipped(self) -> Option<String> {
        match self {
            Self::Skipped(reason) => Some(reason),
            Self::UpToDate | Self::Installed => None,
        }
    }
}

pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    no_arguments("servers", args)?;
    install(root)?;
    Ok(ExitCode::SUCCESS)
}

/// Installs everything and prints the result of each install.
pub(crate) fn install(root: &Path) -> Result<Vec<(&'static str, InstallOutcome)>> {
    let mut outcomes = Vec::new();
    let mut note = |what: &'static str, outcome: InstallOutcome| {
        match &outcome {
            InstallOutcome::UpToDate => crate::print(&format!("{what}: up to date")),
            InstallOutcome::Installed => crate::print(&format!("{what}: installed")),
            InstallOutcome::Skipped(reason) => {
                crate::print(&format!("SKIPPED: {what}: {reason}"));
            }
        }
        outcomes.push((what, outcome));
    };
    for program in PROGRAMS {
        note(program.name, install_program(root, &program)?);
    }
    for component in COMPONENTS {
        note(component, install_component(root, component)?);
    }
    for packages in NODE_PACKAGES {
        note(packages.what, install_npm(root, &packages)?);
    }
    for packages in PYTHON_PACKAGES {
        note(packages.what, install_python(root, &packages)?);
    }
    Ok(outcomes)
}

/// Whether the component works. Its rustup proxy may exist without it.
pub(crate) fn has_component(component: &str) -> bool {
    let verb = if component == "rustfmt" { "fmt" } else { component };
    let command =
        Subprocess::new("cargo", Path::new("."), QUESTION_LIMIT).args([verb, "--version"]);
    matches!(command.read(), Ok((ExitResult::Success, _)))
}

fn install_program(root: &Path, program: &Program) -> Result<InstallOutcome> {
    let Program { name, package, needed_by } = program;
    if is_installed(name, root) {
        return Ok(InstallOutcome::UpToDate);
    }
    let skipped = |why: &str| {
        let remedy = format!("{why}; {needed_by} need `apt-get install {package}`");
        Ok(InstallOutcome::Skipped(remedy))
    };
    if !is_installed("apt-get", root) {
        return skipped("not installed, and there is no `apt-get` here");
    }
    if !is_root(root) {
        return skipped("not installed, and only root can install packages");
    }
    let apt = |words: &[&str]| {
        let command = Subprocess::new("apt-get", root, LIMIT).args(words);
        command.env("DEBIAN_FRONTEND", "noninteractive").stream(|_line| {})
    };
    let install = ["install", "--yes", "--no-install-recommends", package];
    // A fresh image has no package lists, so the first attempt may know no package at all.
    if apt(&install)? != ExitResult::Success {
        apt(&["update"])?;
        let exit = apt(&install)?;
        if exit != ExitResult::Success {
            return skipped(&format!("`apt-get install {package}`: {exit}"));
        }
    }
    Ok(InstallOutcome::Installed)
}

fn is_root(root: &Path) -> bool {
    let answer = Subprocess::new("id", root, QUESTION_LIMIT).args(["-u"]).read();
    answer.is_ok_and(|(_, text)| text.trim() == "0")
}

fn install_component(root: &Path, component: &str) -> Result<InstallOutcome> {
    if has_component(component) {
        return Ok(InstallOutcome::UpToDate);
    }
    let remedy = format!("`rustup component add {component}`");
    if !is_installed("rustup", root) {
        return Ok(InstallOutcome::Skipped(format!(
            "not installed, and no rustup to run {remedy}"
        )));
    }
    let command = Subprocess::new("rustup", root, LIMIT).args(["component", "add", component]);
    match command.stream(|_line| {})? {
        ExitResult::Success => Ok(InstallOutcome::Installed),
        exit => Ok(InstallOutcome::Skipped(format!("{remedy}: {exit}"))),
    }
}

/// Installs the peers of `cargo xtask bench cli` and the server that all of them call.
pub(crate) fn install_peers(root: &Path) -> Result<InstallOutcome> {
    match install_npm(root, &NODE_SERVERS)?.skipped() {
        Some(reason) => Ok(InstallOutcome::Skipped(reason)),
        None => install_npm(root, &PEERS),
    }
}

pub(crate) fn install_npm(root: &Path, packages: &Packages) -> Result<InstallOutcome> {
    for program in ["node", "npm"] {
        if !is_installed(program, root) {
            let reason = format!("`{program}` is missing: install Node.js 20 or newer");
            return Ok(InstallOutcome::Skipped(reason));
        }
    }
    let dir = root.join(packages.dir);
    let stamp = Stamp::for_files(&dir, &NODE_FILES, "", "node_modules/.toolrack-stamp")?;
    if stamp.is_current(&dir, packages.programs) {
        return Ok(InstallOutcome::UpToDate);
    }
    stamp.remove()?;
    finish(&[Subprocess::new("npm", &dir, LIMIT).args(["ci"])], &stamp)
}

pub(crate) fn install_python(root: &Path, packages: &Packages) -> Result<InstallOutcome> {
    let dir = root.join(packages.dir);
    let asked = is_installed("python3", root)
        .then(|| Subprocess::new("python3", root, QUESTION_LIMIT).args(["--version"]).read());
    let Some(Ok((ExitResult::Success, version))) = asked else {
        let reason = "`python3` is missing: install Python 3.10 or newer with its venv module";
        return Ok(InstallOutcome::Skipped(reason.to_owned()));
    };
    // A venv belongs to the interpreter that made it.
    let stamp = Stamp::for_files(&dir, &PYTHON_FILES, &version, "venv/.toolrack-stamp")?;
    if stamp.is_current(&dir, packages.programs) {
        return Ok(InstallOutcome::UpToDate);
    }
    stamp.remove()?;
    let venv = Subprocess::new("python3", &dir, LIMIT).args(["-m", "venv", "--clear", "venv"]);
    // The file pins the whole set, so there is nothing to resolve.
    let pip = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"];
    let pip = Subprocess::new(dir.join("venv/bin/python"), &dir, LIMIT).args(pip).args([
        "--no-deps",
        "-r",
        "requirements.txt",
    ]);
    finish(&[venv, pip], &stamp)
}

/// Runs the commands in order and writes the stamp after the last one succeeded.
fn finish(commands: &[Subprocess], stamp: &Stamp) -> Result<InstallOutcome> {
    for command in commands {
        let exit = command.stream(|_line| {})?;
        if exit != ExitResult::Success {
            return Ok(InstallOutcome::Skipped(format!("`{}`: {exit}", command.command_line())));
        }
    }
    stamp.write()?;
    Ok(InstallOutcome::Installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(program: &Program, expected: &InstallOutcome) {
        assert_eq!(install_program(Path::new("."), program).unwrap(), *expected);
    }

    #[test]
    fn program_that_is_there_is_not_installed_again() {
        let needed_by = "every test";
        check(&Program { name: "sh", package: "dash", needed_by }, &InstallOutcome::UpToDate);
    }

    #[test]
    fn lock_files_are_where_the_installer_looks() {
        let root = crate::source_tree::root();
        let in_dir = |dir: &str, files: &[&str]| -> Vec<std::path::PathBuf> {
            files.iter().map(|file| root.join(dir).join(file)).collect()
        };
        let node = NODE_PACKAGES.iter().chain([&PEERS]);
        let node = node.flat_map(|packages| in_dir(packages.dir, &NODE_FILES));
        let python =
            PYTHON_PACKAGES.iter().flat_map(|packages| in_dir(packages.dir, &PYTHON_FILES));
        let missing: Vec<_> = node.chain(python).filter(|path| !path.is_file()).collect();
        assert_eq!(missing, Vec::<std::path::PathBuf>::new());
    }
}
