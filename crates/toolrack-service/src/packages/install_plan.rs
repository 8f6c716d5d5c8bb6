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
    /// Run a Docker image.
    Image(String),
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
    let require = |program: &str, hint: &str| {
        if has_program(program) { Ok(()) } else { Err(missing_tool(program, hint)) }
    };
    let (registry, spec) = match package.kind {
        PackageKind::Http => return Ok(InstallPlan::Endpoint { url: identifier.to_owned() }),
        PackageKind::Binary => return Ok(InstallPlan::Binary { command: identifier.to_owned() }),
        PackageKind::Docker => {
            let image = spec(identifier, package.version.as_deref(), &DOCKER)?;
            require("docker", "install Docker, see https://docs.docker.com/get-docker")?;
            return Ok(InstallPlan::Image(image));
        }
        PackageKind::Npm => {
            let spec = spec(identifier, package.version.as_deref(), &NPM)?;
            let hint = "install Node.js 20 or newer, which includes `node` and `npm`";
            require("node", hint)?;
            require("npm", hint)?;
            (Registry::Npm, spec)
        }
        PackageKind::Pypi => {
            // PyPI has no tag `latest`; no version means the newest.
            let version = package.version.as_deref().filter(|version| *version != "latest");
            let spec = spec(identifier, version, &PYPI)?;
            if !has_program("uv") && !has_program("python3") {
                let hint = "install uv, see https://docs.astral.sh/uv, or Python 3.10 or newer";
                return Err(missing_tool("uv` or `python3", hint));
            }
            (Registry::Pypi, spec)
        }
    };
    let program = package.program.clone();
    let (dir, syntax) = match registry {
        Registry::Npm => ("npm", &NPM),
        Registry::Pypi => ("pypi", &PYPI),
    };
    let package_dir = root.join(dir).join(dir_name(&spec, program.as_deref()));
    let attempt_dir = package_dir.join(attempt);
    let commands = match registry {
        Registry::Npm => npm_commands(&spec, &attempt_dir),
        Registry::Pypi => pypi_commands(&spec, &attempt_dir, has_program),
    };
    let name = without_version(&spec, syntax);
    // Extras of a PyPI package, as in `name[extra]`.
    let name = name.split('[').next().unwrap_or(name).trim().to_owned();
    let install =
        PackageInstall { registry, spec, name, program, package_dir, attempt_dir, commands };
    Ok(InstallPlan::Package(install))
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
