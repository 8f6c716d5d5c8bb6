//! Finds the executable of a server: the entry point of an installed package, or a binary, with suggestions for
//! misspelled names.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolrack_client::ConnectError;
use toolrack_config::similar_names;
use toolrack_manager::{ErrorKind, Failure};
use toolrack_stdio::find_program;
use toolrack_transport::{SpawnError, TransportError};

use super::install_plan::{PackageInstall, Registry};

/// The executable of an installed package, or why there is none.
pub(super) fn find_entry_point(install: &PackageInstall) -> Result<PathBuf, String> {
    let (own, executables, bin) = match install.registry {
        Registry::Npm => npm(&install.attempt_dir)?,
        Registry::Pypi => pypi(&install.attempt_dir, &install.name)?,
    };
    let name = choose(install.program.as_deref(), &own, &executables)?;
    let path = bin.join(name);
    if path.is_file() { Ok(path) } else { Err(format!("its executable `{name}` is missing")) }
}

/// The executable that the config names, the one with the name of the package, or the only one.
fn choose<'p>(
    named: Option<&str>,
    own: &str,
    executables: &'p [String],
) -> Result<&'p str, String> {
    let find = |name: &str| executables.iter().find(|found| *found == name).map(String::as_str);
    let all = || format!("`{}`", executables.join("`, `"));
    match (named, executables) {
        (_, []) => Err("it has no executable".to_owned()),
        (Some(named), _) => {
            find(named).ok_or_else(|| format!("it has no executable `{named}`, only {}", all()))
        }
        (None, [only]) => Ok(only),
        (None, _) => find(own).ok_or_else(|| format!("it has several executables: {}", all())),
    }
}

/// Name of the package, names of its executables, and their directory.
type Found = (String, Vec<String>, PathBuf);

/// `npm install` records the package as the only dependency, even if it was installed from a URL or an alias.
fn npm(dir: &Path) -> Result<Found, String> {
    let root = read_json(&dir.join("package.json"))?;
    let dependencies = root.get("dependencies").and_then(Value::as_object);
    let name = dependencies
        .and_then(|dependencies| dependencies.keys().next())
        .ok_or("npm did not record what it installed")?;
    let manifest = read_json(&dir.join("node_modules").join(name).join("package.json"))?;
    let own = name.rsplit('/').next().unwrap_or(name);
    let executables = npm_executables(own, manifest.get("bin"));
    Ok((own.to_owned(), executables, dir.join("node_modules/.bin")))
}

/// `bin` of a `package.json`: one path, then the executable is named like the package; or paths by name.
fn npm_executables(own: &str, bin: Option<&Value>) -> Vec<String> {
    match bin {
        Some(Value::String(_)) => vec![own.to_owned()],
        Some(Value::Object(bin)) => bin.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn pypi(dir: &Path, name: &str) -> Result<Found, String> {
    let venv = dir.join("venv");
    let unreadable =
        |error: std::io::Error| format!("its virtual environment cannot be read: {error}");
    let mut pythons = fs::read_dir(venv.join("lib")).map_err(unreadable)?.flatten();
    let dist_info = pythons.find_map(|python| {
        let mut entries = fs::read_dir(python.path().join("site-packages")).ok()?.flatten();
        entries.find(|entry| is_dist_info_of(&entry.file_name(), name))
    });
    let dist_info =
        dist_info.ok_or_else(|| format!("`{name}` is not in its virtual environment"))?;
    // A package without executables has no such file.
    let text = fs::read_to_string(dist_info.path().join("entry_points.txt")).unwrap_or_default();
    Ok((name.to_owned(), console_scripts(&text), venv.join("bin")))
}

/// Whether a directory such as `mcp_server_time-1.0.dist-info` describes the package.
fn is_dist_info_of(dir: &OsStr, name: &str) -> bool {
    let stem = dir.to_str().and_then(|dir| dir.strip_suffix(".dist-info"));
    // From the right: `-` separates the version, and a normalized name has `_` in its place.
    let found = stem.and_then(|stem| stem.rsplit_once('-')).map(|(name, _version)| name);
    found.is_some_and(|found| normalized(found) == normalized(name))
}

/// Package name as PyPI compares it.
fn normalized(name: &str) -> String {
    name.to_lowercase().replace(['_', '.'], "-")
}

fn console_scripts(text: &str) -> Vec<String> {
    let mut in_section = false;
    let mut scripts = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_section = line == "[console_scripts]";
        } else if let Some((name, _)) = line.split_once('=').filter(|_| in_section) {
            scripts.push(name.trim().to_owned());
        }
    }
    scripts
}

fn read_json(file: &Path) -> Result<Value, String> {
    let text = fs::read(file).map_err(|error| format!("`{}`: {error}", file.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("`{}`: {error}", file.display()))
}

/// Checks that a program can be started, and suggests similar names if not. A path is relative to `cwd`.
pub(super) fn check_binary(
    command: &str,
    path: Option<&OsStr>,
    cwd: Option<&Path>,
) -> Result<(), Failure> {
    let is_path = command.contains('/');
    let file =
        cwd.filter(|_| is_path).map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
    let Err(error) = find_program(&file.to_string_lossy(), path) else { return Ok(()) };
    let kind = match error {
        SpawnError::NotFound { .. } | SpawnError::NoSuchFile(_) => ErrorKind::PackageNotFound,
        _ => ErrorKind::CannotStart,
    };
    let failure = Failure::new(kind, error.to_string());
    if let SpawnError::NotExecutable(_) = &error {
        let hint = ConnectError::Transport(TransportError::Spawn(error)).hint();
        return Err(failure.with_hint(hint.unwrap_or_default()));
    }
    let dirs = match (is_path, &error) {
        (true, _) => file.parent().map(Path::to_owned).into_iter().collect(),
        (false, SpawnError::NotFound { path, .. }) => std::env::split_paths(path).collect(),
        (false, _) => Vec::new(),
    };
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or(command);
    let entries = dirs.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let similar = similar_names(name, names.iter().map(String::as_str));
    Err(match similar.as_slice() {
        [] => failure.with_hint("install it, or give its full path"),
        similar => failure.with_hint(format!("did you mean `{}`?", similar.join("`, `"))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(named: Option<&str>, executables: &[&str], expected: Result<&str, &str>) {
        let executables: Vec<String> = executables.iter().map(|name| (*name).to_owned()).collect();
        let found = choose(named, "own", &executables);
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn executable_is_named_or_own_or_only() {
        check(None, &["x"], Ok("x"));
        check(None, &["own", "x"], Ok("own"));
        check(Some("x"), &["own", "x"], Ok("x"));
        check(None, &["x", "y"], Err("it has several executables: `x`, `y`"));
        check(Some("z"), &["x", "y"], Err("it has no executable `z`, only `x`, `y`"));
        check(None, &[], Err("it has no executable"));
    }

    #[test]
    fn npm_executables_are_one_or_many() {
        assert_eq!(npm_executables("own", Some(&json!("dist/x.js"))), ["own"]);
        assert_eq!(npm_executables("own", Some(&json!({"a": "x", "b": "y"}))), ["a", "b"]);
        assert_eq!(npm_executables("own", None), Vec::<String>::new());
    }

    #[test]
    fn pypi_executables_are_console_scripts() {
        let text = "[console_scripts]\na = m:f\n b=m:g\n\n[gui_scripts]\nc = m:h\n";
        assert_eq!(console_scripts(text), ["a", "b"]);
        assert!(is_dist_info_of("mcp_server_time-1.0.dist-info".as_ref(), "MCP-Server.Time"));
        assert!(!is_dist_info_of("mcp_server-1.0.dist-info".as_ref(), "mcp-server-time"));
        assert!(!is_dist_info_of("mcp_server_time".as_ref(), "mcp-server-time"));
    }
}

#[cfg(test)]
mod binary_tests {
    use super::*;

    #[track_caller]
    fn check_failure(command: &str, dir: &Path, expected: (ErrorKind, &str)) {
        let failure = check_binary(command, Some(dir.as_os_str()), Some(dir)).unwrap_err();
        assert_eq!((failure.kind(), failure.hint().unwrap()), expected, "{failure}");
    }

    #[test]
    fn missing_binary_suggests_similar_names() {
        let dir = tempfile::tempdir().unwrap();
        fs::copy("/bin/true", dir.path().join("tool")).unwrap();
        assert_eq!(check_binary("tool", Some(dir.path().as_os_str()), None), Ok(()));
        assert_eq!(check_binary("./tool", None, Some(dir.path())), Ok(()));
        let similar = (ErrorKind::PackageNotFound, "did you mean `tool`?");
        check_failure("tol", dir.path(), similar);
        check_failure("./tooll", dir.path(), similar);
        let nothing = (ErrorKind::PackageNotFound, "install it, or give its full path");
        check_failure("something-else", dir.path(), nothing);
        check_failure("/nowhere/at/all", dir.path(), nothing);
        let plain = dir.path().join("data");
        File::create(&plain).unwrap();
        let hint = format!("make it executable with `chmod +x {}`", plain.display());
        check_failure("data", dir.path(), (ErrorKind::CannotStart, &hint));
    }

    use std::fs::File;
}
