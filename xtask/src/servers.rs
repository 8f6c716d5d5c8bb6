//! `cargo xtask servers`: installs the programs and MCP servers that tests talk to.
//!
//! **Invariant:** what is already there is not installed again, and what cannot be installed is
//! reported as skipped with what a person can do about it.

mod stamp;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use self::stamp::Stamp;
use crate::child::{Chore, Ending, is_installed};
use crate::printer;

const LIMIT: Duration = Duration::from_mins(15);
const QUESTION_LIMIT: Duration = Duration::from_secs(30);

/// A program of the operating system, the Debian package it comes in, and what needs it.
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

/// Parts of the Rust toolchain that a minimal install leaves out.
const COMPONENTS: [&str; 2] = ["rustfmt", "clippy"];

const NODE_DIR: &str = "tests/servers/node";
const NODE_FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
const NODE_PROGRAMS: [&str; 3] = [
    "node_modules/.bin/mcp-server-everything",
    "node_modules/.bin/mcp-server-filesystem",
    "node_modules/.bin/mcp-server-memory",
];

/// A client of others, which needs a newer Node than many machines have.
const MCPORTER_DIR: &str = "tests/servers/node/mcporter";
const MCPORTER_PROGRAMS: [&str; 2] =
    ["node_modules/node/bin/node", "node_modules/mcporter/dist/cli.js"];

/// The official conformance suites of MCP, which need a newer Node than many machines have.
pub(crate) const SUITES_DIR: &str = "tests/conformance";
const SUITES_PROGRAMS: [&str; 3] = [
    "node_modules/node/bin/node",
    "node_modules/conformance-0.1/dist/index.js",
    "node_modules/conformance-0.2/dist/index.js",
];

/// What drives a browser for the tests of the page.
pub(crate) const DASHBOARD_DIR: &str = "tests/dashboard";
const DASHBOARD_PARTS: [&str; 2] =
    ["node_modules/playwright-core/package.json", "node_modules/axe-core/axe.min.js"];

/// The programs that `cargo xtask bench cli` measures ours beside, and the Node that they run on.
const PEERS_DIR: &str = "tests/bench";
const PEERS_PROGRAMS: [&str; 3] =
    ["node_modules/node/bin/node", "node_modules/.bin/mcporter", "node_modules/.bin/inspector"];

const PYTHON_FILES: [&str; 1] = ["requirements.txt"];

/// A folder with a file that pins its Python packages, and a program that is there once they are installed.
struct Packages {
    what: &'static str,
    dir: &'static str,
    program: &'static str,
}

const FASTMCP: Packages = Packages {
    what: "python servers on fastmcp",
    dir: "tests/servers/python/fastmcp",
    program: "venv/bin/fastmcp",
};

/// Servers that need different versions of the same package cannot share an environment.
const PACKAGES: [Packages; 5] = [
    Packages {
        what: "python servers",
        dir: "tests/servers/python",
        program: "venv/bin/mcp-server-time",
    },
    FASTMCP,
    Packages {
        what: "python servers on the SDK 1.x",
        dir: "tests/servers/python/mcp1",
        program: "venv/bin/uvicorn",
    },
    Packages { what: "uv", dir: "tests/servers/python/uv", program: "venv/bin/uv" },
    Packages {
        what: "schemathesis",
        dir: "tests/servers/python/schemathesis",
        program: "venv/bin/schemathesis",
    },
];

/// What became of one thing to install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    UpToDate,
    Installed,
    Skipped(String),
}

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    install(root)?;
    Ok(ExitCode::SUCCESS)
}

/// Installs everything, saying of each thing what became of it.
pub(crate) fn install(root: &Path) -> Result<Vec<(&'static str, Outcome)>> {
    let mut outcomes = Vec::new();
    let mut note = |what: &'static str, outcome: Outcome| {
        match &outcome {
            Outcome::UpToDate => printer::say(&format!("{what}: up to date")),
            Outcome::Installed => printer::say(&format!("{what}: installed")),
            Outcome::Skipped(reason) => printer::say(&format!("SKIPPED: {what}: {reason}")),
        }
        outcomes.push((what, outcome));
    };
    for program in PROGRAMS {
        note(program.name, install_program(root, &program)?);
    }
    for component in COMPONENTS {
        note(component, install_component(root, component)?);
    }
    note("node servers", install_npm(root, NODE_DIR, &NODE_PROGRAMS)?);
    note("mcporter", install_npm(root, MCPORTER_DIR, &MCPORTER_PROGRAMS)?);
    note("conformance suites", install_suites(root)?);
    note("dashboard tests", install_dashboard(root)?);
    for packages in PACKAGES {
        note(packages.what, install_python(root, &packages)?);
    }
    Ok(outcomes)
}

/// Whether this part of the toolchain answers. Its launcher may exist without it.
pub(crate) fn has_component(component: &str) -> bool {
    let verb = if component == "rustfmt" { "fmt" } else { component };
    let chore = Chore::new("cargo", Path::new("."), QUESTION_LIMIT).args([verb, "--version"]);
    matches!(chore.read(), Ok((Ending::Success, _)))
}

fn install_program(root: &Path, program: &Program) -> Result<Outcome> {
    let Program { name, package, needed_by } = program;
    if is_installed(name, root) {
        return Ok(Outcome::UpToDate);
    }
    let skipped = |why: &str| {
        let remedy = format!("{why}; {needed_by} need `apt-get install {package}`");
        Ok(Outcome::Skipped(remedy))
    };
    if !is_installed("apt-get", root) {
        return skipped("not installed, and there is no `apt-get` here");
    }
    if !is_root(root) {
        return skipped("not installed, and only root can install packages");
    }
    let apt = |words: &[&str]| {
        let chore = Chore::new("apt-get", root, LIMIT).args(words);
        chore.env("DEBIAN_FRONTEND", "noninteractive").stream(|_line| {})
    };
    let install = ["install", "--yes", "--no-install-recommends", package];
    // A fresh image has no package lists, so the first attempt may know no package at all.
    if apt(&install)? != Ending::Success {
        apt(&["update"])?;
        let ending = apt(&install)?;
        if ending != Ending::Success {
            return skipped(&format!("`apt-get install {package}`: {ending}"));
        }
    }
    Ok(Outcome::Installed)
}

fn is_root(root: &Path) -> bool {
    let answer = Chore::new("id", root, QUESTION_LIMIT).args(["-u"]).read();
    answer.is_ok_and(|(_, text)| text.trim() == "0")
}

fn install_component(root: &Path, component: &str) -> Result<Outcome> {
    if has_component(component) {
        return Ok(Outcome::UpToDate);
    }
    let remedy = format!("`rustup component add {component}`");
    if !is_installed("rustup", root) {
        return Ok(Outcome::Skipped(format!("not installed, and no rustup to run {remedy}")));
    }
    let chore = Chore::new("rustup", root, LIMIT).args(["component", "add", component]);
    match chore.stream(|_line| {})? {
        Ending::Success => Ok(Outcome::Installed),
        ending => Ok(Outcome::Skipped(format!("{remedy}: {ending}"))),
    }
}

/// Installs what `cargo xtask conformance` runs.
pub(crate) fn install_suites(root: &Path) -> Result<Outcome> {
    install_npm(root, SUITES_DIR, &SUITES_PROGRAMS)
}

/// Installs what `cargo xtask dashboard` runs.
pub(crate) fn install_dashboard(root: &Path) -> Result<Outcome> {
    install_npm(root, DASHBOARD_DIR, &DASHBOARD_PARTS)
}

/// Installs what `cargo xtask bench cli` runs: peers that nothing else needs, and the server for all.
pub(crate) fn install_programs(root: &Path) -> Result<Outcome> {
    match install_npm(root, NODE_DIR, &NODE_PROGRAMS)? {
        Outcome::Skipped(reason) => Ok(Outcome::Skipped(reason)),
        Outcome::UpToDate | Outcome::Installed => install_npm(root, PEERS_DIR, &PEERS_PROGRAMS),
    }
}

/// Installs the gateway that `cargo xtask bench gateway` measures ours beside.
pub(crate) fn install_proxy(root: &Path) -> Result<Outcome> {
    install_python(root, &FASTMCP)
}

fn install_npm(root: &Path, dir: &str, programs: &[&str]) -> Result<Outcome> {
    for program in ["node", "npm"] {
        if !is_installed(program, root) {
            let reason = format!("`{program}` is missing: install Node.js 20 or newer");
            return Ok(Outcome::Skipped(reason));
        }
    }
    let dir = root.join(dir);
    let stamp = Stamp::of(&dir, &NODE_FILES, "", "node_modules/.toolrack-stamp")?;
    if stamp.is_current(&dir, programs) {
        return Ok(Outcome::UpToDate);
    }
    stamp.remove()?;
    finish(&[Chore::new("npm", &dir, LIMIT).args(["ci"])], &stamp)
}

fn install_python(root: &Path, packages: &Packages) -> Result<Outcome> {
    let dir = root.join(packages.dir);
    let asked = is_installed("python3", root)
        .then(|| Chore::new("python3", root, QUESTION_LIMIT).args(["--version"]).read());
    let Some(Ok((Ending::Success, version))) = asked else {
        let reason = "`python3` is missing: install Python 3.10 or newer with its venv module";
        return Ok(Outcome::Skipped(reason.to_owned()));
    };
    // A venv belongs to the interpreter that made it.
    let stamp = Stamp::of(&dir, &PYTHON_FILES, &version, "venv/.toolrack-stamp")?;
    if stamp.is_current(&dir, &["venv/bin/python", packages.program]) {
        return Ok(Outcome::UpToDate);
    }
    stamp.remove()?;
    let venv = Chore::new("python3", &dir, LIMIT).args(["-m", "venv", "--clear", "venv"]);
    // The file pins the whole set, so there is nothing to resolve.
    let pip = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"];
    let pip = Chore::new(dir.join("venv/bin/python"), &dir, LIMIT).args(pip).args([
        "--no-deps",
        "-r",
        "requirements.txt",
    ]);
    finish(&[venv, pip], &stamp)
}

/// Runs the chores in order and leaves the stamp only after the last has succeeded.
fn finish(chores: &[Chore], stamp: &Stamp) -> Result<Outcome> {
    for chore in chores {
        let ending = chore.stream(|_line| {})?;
        if ending != Ending::Success {
            return Ok(Outcome::Skipped(format!("`{}`: {ending}", chore.line())));
        }
    }
    stamp.leave()?;
    Ok(Outcome::Installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(program: &Program, expected: &Outcome) {
        assert_eq!(install_program(Path::new("."), program).unwrap(), *expected);
    }

    #[test]
    fn program_that_is_there_is_not_installed_again() {
        let needed_by = "every test";
        check(&Program { name: "sh", package: "dash", needed_by }, &Outcome::UpToDate);
    }

    #[test]
    fn lock_files_are_where_the_installer_looks() {
        let root = crate::tree::root();
        let in_dir = |dir: &str, files: &[&str]| -> Vec<std::path::PathBuf> {
            files.iter().map(|file| root.join(dir).join(file)).collect()
        };
        let node = [NODE_DIR, MCPORTER_DIR, SUITES_DIR, DASHBOARD_DIR, PEERS_DIR];
        let node = node.into_iter().flat_map(|it| in_dir(it, &NODE_FILES));
        let python = PACKAGES.iter().flat_map(|it| in_dir(it.dir, &PYTHON_FILES));
        let missing: Vec<_> = node.chain(python).filter(|path| !path.is_file()).collect();
        assert_eq!(missing, Vec::<std::path::PathBuf>::new());
    }
}
