//! Install plan: what has to be done for a package, decided without IO.
//!
//! **Invariant:** no text of a user or a registry becomes an option of a command: names that start with a dash are
//! rejected.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toolrack_config::{Package, PackageKind};
use toolrack_manager::{ErrorKind, Failure};

/// What to do for a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InstallPlan {
    /// Connect to an HTTP endpoint.
    Endpoint { url: String },
    /// Start a local program.
    Binary { command: String },
    /// Install an npm or PyPI package.
    Package(PackageInstall),
    /// Let a package runner such as `npx` find and run the package.
    Runner { program: String, args: Vec<String> },
    /// Run an image with Docker or Podman.
    Image { runtime: &'static str, image: String },
}

/// How a package is installed into a directory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackageInstall {
    pub(super) registry: Registry,
    /// Argument of the installer, such as `pkg@1.0`.
    pub(super) spec: String,
    /// Name of the package without version and extras.
    pub(super) name: String,
    /// The executable to start, if the config names one.
    pub(super) program: Option<String>,
    /// Directory of the package, shared by all processes.
    pub(super) package_dir: PathBuf,
    /// Directory of this attempt, below `package_dir`. An interrupted attempt cannot disturb another.
    pub(super) attempt_dir: PathBuf,
    pub(super) commands: Vec<InstallCommand>,
}

/// Registry of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registry {
    Npm,
    Pypi,
}

/// One command of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InstallCommand {
    pub(super) program: String,
    pub(super) args: Vec<String>,
}

/// Plans the installation of a package below `root`. `has_program` tells which package managers are installed;
/// `attempt` is a unique name for the directory of this attempt.
pub(super) fn plan_install(
    package: &Package,
    has_program: impl Fn(&str) -> bool,
    root: &Path,
    attempt: &str,
) -> Result<InstallPlan, Failure> {
    let identifier = package.identifier.trim();
    let require = |program: &str| {
        if has_program(program) {
            Ok(())
        } else {
            Err(missing_tool(program, install_hint(program)))
        }
    };
    let runners = package.kind.runners();
    let hint = package.runtime_hint.as_deref().map(|hint| {
        let known = runners.iter().find(|runner| **runner == hint);
        known.ok_or_else(|| {
            let reason = format!("`{hint}` does not run `{}` packages", package.kind.as_str());
            bad_config(reason).with_hint(format!("use one of `{}`", runners.join("`, `")))
        })
    });
    let hint: Option<&'static str> = hint.transpose()?.copied();
    let (registry, spec) = match package.kind {
        PackageKind::Http => return Ok(InstallPlan::Endpoint { url: identifier.to_owned() }),
        PackageKind::Binary => return Ok(InstallPlan::Binary { command: identifier.to_owned() }),
        PackageKind::Docker => {
            let image = spec(identifier, package.version.as_deref(), &DOCKER)?;
            let runtime = hint.unwrap_or("docker");
            require(runtime)?;
            return Ok(InstallPlan::Image { runtime, image });
        }
        PackageKind::Npm => (Registry::Npm, spec(identifier, package.version.as_deref(), &NPM)?),
        PackageKind::Pypi => {
            // PyPI has no tag `latest`; no version means the newest.
            let version = package.version.as_deref().filter(|version| *version != "latest");
            (Registry::Pypi, spec(identifier, version, &PYPI)?)
        }
    };
    let program = package.program.clone();
    let (dir, syntax) = match registry {
        Registry::Npm => ("npm", &NPM),
        Registry::Pypi => ("pypi", &PYPI),
    };
    let name = without_version(&spec, syntax);
    // Extras of a PyPI package, as in `name[extra]`.
    let name = name.split('[').next().unwrap_or(name).trim().to_owned();
    if let Some(runner) = hint {
        require(runner)?;
        let args = runner_args(runner, &spec, (&name, program.as_deref()), &package.runtime_args);
        return Ok(InstallPlan::Runner { program: runner.to_owned(), args });
    }
    match registry {
        Registry::Npm => {
            require("node")?;
            require("npm")?;
        }
        Registry::Pypi if !has_program("uv") && !has_program("python3") => {
            return Err(missing_tool("uv` or `python3", install_hint("python3")));
        }
        Registry::Pypi => {}
    }
    let package_dir = root.join(dir).join(dir_name(&spec, program.as_deref()));
    let attempt_dir = package_dir.join(attempt);
    let commands = match registry {
        Registry::Npm => npm_commands(&spec, &attempt_dir),
        Registry::Pypi => pypi_commands(&spec, &attempt_dir, has_program),
    };
    let install =
        PackageInstall { registry, spec, name, program, package_dir, attempt_dir, commands };
    Ok(InstallPlan::Package(install))
}

/// Arguments of a package runner, up to those of the server. `program` is the executable that the config names.
fn runner_args(
    runner: &str,
    spec: &str,
    (name, program): (&str, Option<&str>),
    options: &[String],
) -> Vec<String> {
    let package = format!("--package={spec}");
    let (first, last): (&[&str], Vec<&str>) = match (runner, program) {
        // `--yes`: nobody can answer its question.
        ("npx", None) => (&["--yes"], vec![spec]),
        ("npx", Some(program)) => (&["--yes", &package], vec![program]),
        ("bunx", Some(program)) => (&["--package", spec], vec![program]),
        ("pnpm", None) => (&["dlx"], vec![spec]),
        ("pnpm", Some(program)) => (&[&package, "dlx"], vec![program]),
        ("uvx", program) => (&["--from", spec], vec![program.unwrap_or(name)]),
        ("pipx", program) => (&["run", "--spec", spec], vec![program.unwrap_or(name)]),
        _ => (&[], vec![spec]),
    };
    let first = first.iter().map(|arg| (*arg).to_owned());
    let last = last.into_iter().map(str::to_owned);
    first.chain(options.iter().cloned()).chain(last).collect()
}

fn npm_commands(spec: &str, attempt_dir: &Path) -> Vec<InstallCommand> {
    let prefix = format!("--prefix={}", attempt_dir.display());
    // `--no-global` and `--save`: the user's npm config must not override them, because the entry point is read from the
    // `package.json` of this directory. `--json`: for error codes.
    let quiet = ["--no-audit", "--no-fund", "--no-progress", "--no-global", "--save", "--json"];
    // After `--` nothing is an option.
    let args = [&["install", &prefix], &quiet[..], &["--", spec]].concat();
    vec![command("npm", &args)]
}

fn pypi_commands(
    spec: &str,
    attempt_dir: &Path,
    has_program: impl Fn(&str) -> bool,
) -> Vec<InstallCommand> {
    let venv = attempt_dir.join("venv");
    let (venv, python) =
        (venv.display().to_string(), venv.join("bin/python").display().to_string());
    if has_program("uv") {
        vec![
            command("uv", &["venv", "--no-progress", "--no-project", &venv]),
            command("uv", &["pip", "install", "--no-progress", "--python", &python, "--", spec]),
        ]
    } else {
        let pip = ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--", spec];
        vec![command("python3", &["-m", "venv", "--clear", &venv]), command(&python, &pip)]
    }
}

fn command(program: &str, args: &[&str]) -> InstallCommand {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    InstallCommand { program: program.to_owned(), args }
}

/// How a registry writes versions.
struct VersionSyntax {
    noun: &'static str,
    separator: &'static str,
    /// Where a version starts within an identifier.
    version_starts: &'static [&'static str],
}

const NPM: VersionSyntax =
    VersionSyntax { noun: "package name", separator: "@", version_starts: &["@"] };
const PYPI: VersionSyntax = VersionSyntax {
    noun: "package name",
    separator: "==",
    version_starts: &["==", ">=", "<=", "~=", "!=", ">", "<", " @ ", ";"],
};
const DOCKER: VersionSyntax =
    VersionSyntax { noun: "image name", separator: ":", version_starts: &[":", "@"] };

/// An identifier with its version, in the syntax of the registry.
fn spec(
    identifier: &str,
    version: Option<&str>,
    syntax: &VersionSyntax,
) -> Result<String, Failure> {
    check_name(identifier, syntax.noun)?;
    let Some(version) = version.map(str::trim) else { return Ok(identifier.to_owned()) };
    check_name(version, "version")?;
    if without_version(identifier, syntax) != identifier {
        let reason = format!("`{identifier}` includes a version, but `version` is set too");
        return Err(bad_config(reason).with_hint("keep one of them"));
    }
    // A digest is joined with `@`, a tag with `:`.
    let separator = if version.starts_with("sha256:") { "@" } else { syntax.separator };
    Ok(format!("{identifier}{separator}{version}"))
}

/// The identifier without its version. A leading `@` is an npm scope, and a colon before the last slash is a port.
fn without_version<'s>(identifier: &'s str, syntax: &VersionSyntax) -> &'s str {
    let from =
        if syntax.separator == ":" { identifier.rfind('/').map_or(0, |at| at + 1) } else { 1 };
    let rest = identifier.get(from..).unwrap_or_default();
    let at = syntax.version_starts.iter().filter_map(|start| rest.find(start)).min();
    at.and_then(|at| identifier.get(..from + at)).unwrap_or(identifier)
}

fn check_name(text: &str, noun: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Err(bad_config(format!("the {noun} is empty")));
    }
    if text.starts_with('-') || text.chars().any(char::is_control) {
        return Err(bad_config(format!("`{text}` is not a valid {noun}")));
    }
    Ok(())
}

fn bad_config(reason: String) -> Failure {
    Failure::new(ErrorKind::BadConfig, reason).with_hint("fix `package` in the config")
}

/// How a program is installed.
fn install_hint(program: &str) -> &'static str {
    match program {
        "bunx" => "install Bun, which includes `bunx`, see https://bun.sh",
        "pnpm" => "install pnpm, see https://pnpm.io/installation",
        "uvx" => "install uv, which includes `uvx`, see https://docs.astral.sh/uv",
        "pipx" => "install pipx, see https://pipx.pypa.io",
        "docker" => "install Docker, see https://docs.docker.com/get-docker",
        "podman" => "install Podman, see https://podman.io/docs/installation",
        "python3" => "install uv, see https://docs.astral.sh/uv, or Python 3.10 or newer",
        _ => "install Node.js 20 or newer, which includes `node`, `npm` and `npx`",
    }
}

fn missing_tool(program: &str, hint: &str) -> Failure {
    let reason = format!("`{program}` is required but was not found in PATH");
    Failure::new(ErrorKind::MissingTool, reason).with_hint(hint)
}

/// Directory name of a package: readable, and unique for each spec and executable.
fn dir_name(spec: &str, program: Option<&str>) -> String {
    let safe = |char: char| if char.is_ascii_alphanumeric() || char == '.' { char } else { '-' };
    let readable: String = spec.chars().map(safe).take(60).collect();
    let mut hash = Sha256::new();
    hash.update(spec.as_bytes());
    // Separates the two texts: without it, `ab` + `c` and `a` + `bc` would share a directory.
    hash.update([0]);
    hash.update(program.unwrap_or_default().as_bytes());
    let digest = hash.finalize();
    let mut name = format!("{}-", readable.trim_matches(['-', '.']));
    for byte in digest.iter().take(5) {
        // Writing to a string cannot fail.
        let _written = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
pub(super) mod tests;
