//! What has to be done for a package, decided without doing it.
//!
//! **Invariant:** nothing that a user or a registry wrote becomes an option of a program: names that begin with
//! a dash are refused.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toolrack_config::PackageKind;
use toolrack_manager::{Failure, FailureKind, WantedPackage};

/// The programs of this machine that install or run packages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the machine")]
pub(super) struct Tools {
    pub(super) npm: bool,
    pub(super) node: bool,
    pub(super) uv: bool,
    pub(super) python: bool,
    pub(super) docker: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recipe {
    /// Nothing but to reach it.
    Endpoint { url: String },
    /// Nothing but to start it.
    Program { command: String },
    /// Install into a folder.
    Folder(Folder),
    /// Run in a container.
    Image(String),
}

/// A package in a folder of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) registry: Registry,
    /// What the installer is asked for, such as `pkg@1.0`.
    pub(super) spec: String,
    /// The name of the package without version and extras.
    pub(super) name: String,
    /// Which of its programs is the server, if the user says so.
    pub(super) program: Option<String>,
    /// Where everything about the package is, shared by all who want it.
    pub(super) place: PathBuf,
    /// Where this attempt installs it, within that. An attempt that was cut short disturbs no other.
    pub(super) dir: PathBuf,
    pub(super) steps: Vec<Step>,
}

/// Where a package in a folder comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registry {
    Npm,
    Pypi,
}

/// Where packages are installed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) root: &'a Path,
    /// A name that no other attempt has.
    pub(super) attempt: &'a str,
}

/// One command of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) program: String,
    pub(super) args: Vec<String>,
}

impl Tools {
    pub(super) fn found(has: impl Fn(&str) -> bool) -> Self {
        Self {
            npm: has("npm"),
            node: has("node"),
            uv: has("uv"),
            python: has("python3"),
            docker: has("docker"),
        }
    }
}

/// What to do for a package with these tools. Folders are made below `site.root`.
pub(super) fn plan(
    wanted: &WantedPackage,
    tools: Tools,
    site: Site<'_>,
) -> Result<Recipe, Failure> {
    let identifier = wanted.identifier.trim();
    match wanted.kind {
        PackageKind::Http => Ok(Recipe::Endpoint { url: identifier.to_owned() }),
        PackageKind::Binary => Ok(Recipe::Program { command: identifier.to_owned() }),
        PackageKind::Docker => {
            let image = spec(identifier, wanted.version.as_deref(), &DOCKER)?;
            let hint = "install Docker, see https://docs.docker.com/get-docker";
            if tools.docker { Ok(Recipe::Image(image)) } else { Err(missing("docker", hint)) }
        }
        PackageKind::Npm => {
            let spec = spec(identifier, wanted.version.as_deref(), &NPM)?;
            let hint = "install Node.js 20 or newer, which brings `node` and `npm`";
            match (tools.node, tools.npm) {
                (true, true) => Ok(Recipe::Folder(npm(wanted, spec, site))),
                (true, false) => Err(missing("npm", hint)),
                (false, _) => Err(missing("node", hint)),
            }
        }
        PackageKind::Pypi => {
            let version = wanted.version.as_deref().filter(|it| *it != "latest");
            let spec = spec(identifier, version, &PYPI)?;
            let hint = "install uv, see https://docs.astral.sh/uv, or Python 3.10 or newer";
            if !tools.uv && !tools.python {
                return Err(missing("uv` or `python3", hint));
            }
            Ok(Recipe::Folder(pypi(wanted, spec, (site, tools))))
        }
    }
}

fn npm(wanted: &WantedPackage, spec: String, site: Site<'_>) -> Folder {
    let place = site.root.join("npm").join(key(&spec, wanted.program.as_deref()));
    let dir = place.join(site.attempt);
    let prefix = format!("--prefix={}", dir.display());
    let quiet = ["--no-audit", "--no-fund", "--no-progress", "--no-global", "--save", "--json"];
    let mut args = vec!["install".to_owned(), prefix];
    args.extend(quiet.map(str::to_owned));
    args.extend(["--".to_owned(), spec.clone()]);
    Folder {
        registry: Registry::Npm,
        name: until_version(&spec, &NPM).to_owned(),
        program: wanted.program.clone(),
        steps: vec![Step { program: "npm".to_owned(), args }],
        spec,
        place,
        dir,
    }
}

fn pypi(wanted: &WantedPackage, spec: String, (site, tools): (Site<'_>, Tools)) -> Folder {
    let place = site.root.join("pypi").join(key(&spec, wanted.program.as_deref()));
    let dir = place.join(site.attempt);
    let venv = dir.join("venv");
    let (venv, python) =
        (venv.display().to_string(), venv.join("bin/python").display().to_string());
    let step = |program: &str, args: &[&str]| Step {
        program: program.to_owned(),
        args: args.iter().map(|it| (*it).to_owned()).collect(),
    };
    let steps = if tools.uv {
        vec![
            step("uv", &["venv", "--no-progress", "--no-project", &venv]),
            step("uv", &["pip", "install", "--no-progress", "--python", &python, "--", &spec]),
        ]
    } else {
        let pip =
            ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--", &spec];
        vec![step("python3", &["-m", "venv", "--clear", &venv]), step(&python, &pip)]
    };
    let name = until_version(&spec, &PYPI);
    Folder {
        registry: Registry::Pypi,
        name: name.split('[').next().unwrap_or(name).trim().to_owned(),
        program: wanted.program.clone(),
        steps,
        spec,
        place,
        dir,
    }
}

/// How versions are written in one kind of place.
struct Grammar {
    called: &'static str,
    joint: &'static str,
    /// What can begin a version within an identifier.
    begins: &'static [&'static str],
}

const NPM: Grammar = Grammar { called: "package", joint: "@", begins: &["@"] };
const PYPI: Grammar = Grammar {
    called: "package",
    joint: "==",
    begins: &["==", ">=", "<=", "~=", "!=", ">", "<", " @ ", ";"],
};
const DOCKER: Grammar = Grammar { called: "image", joint: ":", begins: &[":", "@"] };

/// An identifier with its version, in the manner of the place.
fn spec(identifier: &str, version: Option<&str>, grammar: &Grammar) -> Result<String, Failure> {
    refuse_odd(identifier, grammar.called)?;
    let Some(version) = version.map(str::trim) else { return Ok(identifier.to_owned()) };
    refuse_odd(version, "version")?;
    if until_version(identifier, grammar) != identifier {
        let reason = format!("`{identifier}` names a version, and `version` names one too");
        return Err(bad(reason).hinting("keep the one that is meant"));
    }
    // A digest is no tag.
    let joint = if version.starts_with("sha256:") { "@" } else { grammar.joint };
    Ok(format!("{identifier}{joint}{version}"))
}

/// The identifier up to where a version begins. An `@` at the very beginning is a scope, and a colon before the
/// last slash is a port.
fn until_version<'s>(identifier: &'s str, grammar: &Grammar) -> &'s str {
    let from = if grammar.joint == ":" { identifier.rfind('/').map_or(0, |at| at + 1) } else { 1 };
    let rest = identifier.get(from..).unwrap_or_default();
    let at = grammar.begins.iter().filter_map(|it| rest.find(it)).min();
    at.and_then(|at| identifier.get(..from + at)).unwrap_or(identifier)
}

fn refuse_odd(text: &str, called: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Err(bad(format!("the name of the {called} is empty")));
    }
    if text.starts_with('-') || text.chars().any(char::is_control) {
        return Err(bad(format!("`{text}` cannot be used as {called} name")));
    }
    Ok(())
}

fn bad(reason: String) -> Failure {
    Failure::new(FailureKind::BadConfig, reason).hinting("correct `package` in its entry")
}

fn missing(program: &str, hint: &str) -> Failure {
    let reason = format!("`{program}` is needed and was not found in PATH");
    Failure::new(FailureKind::MissingTool, reason).hinting(hint)
}

/// The name of a folder: readable, and different for everything that is installed differently.
fn key(spec: &str, program: Option<&str>) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || it == '.' { it } else { '-' };
    let readable: String = spec.chars().map(plain).take(60).collect();
    let mut hash = Sha256::new();
    hash.update(spec.as_bytes());
    hash.update([0]);
    hash.update(program.unwrap_or_default().as_bytes());
    let digest = hash.finalize();
    let mut key = format!("{}-", readable.trim_matches(['-', '.']));
    for byte in digest.iter().take(5) {
        // Writing to a string cannot fail.
        let _written = write!(key, "{byte:02x}");
    }
    key
}

#[cfg(test)]
pub(super) mod tests;
