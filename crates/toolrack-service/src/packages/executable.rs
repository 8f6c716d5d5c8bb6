//! Which program of an installed package is the server.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolrack_client::ConnectError;
use toolrack_manager::{Failure, FailureKind};
use toolrack_stdio::find_program;
use toolrack_transport::{SpawnFault, TransportError};

use super::install_plan::{Folder, Registry};

/// The program, or why there is none.
pub(super) fn find_entry_point(folder: &Folder) -> Result<PathBuf, String> {
    let (own, programs, bin) = match folder.registry {
        Registry::Npm => npm(&folder.dir)?,
        Registry::Pypi => pypi(&folder.dir, &folder.name)?,
    };
    let program = choose(folder.program.as_deref(), &own, &programs)?;
    let path = bin.join(program);
    if path.is_file() { Ok(path) } else { Err(format!("its program `{program}` is not there")) }
}

/// The one that is named, the one with the name of the package, or the only one.
fn choose<'p>(named: Option<&str>, own: &str, programs: &'p [String]) -> Result<&'p str, String> {
    let find = |name: &str| programs.iter().find(|it| *it == name).map(String::as_str);
    let all = || format!("`{}`", programs.join("`, `"));
    match (named, programs) {
        (_, []) => Err("it has no program that could be started".to_owned()),
        (Some(named), _) => {
            find(named).ok_or_else(|| format!("it has no program `{named}`, only {}", all()))
        }
        (None, [only]) => Ok(only),
        (None, _) => find(own).ok_or_else(|| format!("it has several programs: {}", all())),
    }
}

type Found = (String, Vec<String>, PathBuf);

/// What `npm install` noted as its one dependency is the package, whatever it was asked for.
fn npm(dir: &Path) -> Result<Found, String> {
    let wish = read_json(&dir.join("package.json"))?;
    let wish = wish.get("dependencies").and_then(Value::as_object);
    let name = wish.and_then(|it| it.keys().next()).ok_or("npm does not say what it installed")?;
    let about = read_json(&dir.join("node_modules").join(name).join("package.json"))?;
    let own = name.rsplit('/').next().unwrap_or(name);
    let programs = npm_programs(own, about.get("bin"));
    Ok((own.to_owned(), programs, dir.join("node_modules/.bin")))
}

/// `bin` of a `package.json`: one path, named like the package, or names with paths.
fn npm_programs(own: &str, bin: Option<&Value>) -> Vec<String> {
    match bin {
        Some(Value::String(_)) => vec![own.to_owned()],
        Some(Value::Object(bin)) => bin.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn pypi(dir: &Path, name: &str) -> Result<Found, String> {
    let venv = dir.join("venv");
    let unreadable = |error: std::io::Error| format!("its environment cannot be read: {error}");
    let mut pythons = fs::read_dir(venv.join("lib")).map_err(unreadable)?.flatten();
    let about = pythons.find_map(|python| {
        let mut entries = fs::read_dir(python.path().join("site-packages")).ok()?.flatten();
        entries.find(|it| is_about(&it.file_name(), name))
    });
    let about = about.ok_or_else(|| format!("there is no `{name}` in its environment"))?;
    // A package without programs has no such file.
    let text = fs::read_to_string(about.path().join("entry_points.txt")).unwrap_or_default();
    Ok((name.to_owned(), console_scripts(&text), venv.join("bin")))
}

/// Whether a folder such as `mcp_server_time-1.0.dist-info` describes the package.
fn is_about(folder: &OsStr, name: &str) -> bool {
    let stem = folder.to_str().and_then(|it| it.strip_suffix(".dist-info"));
    let found = stem.and_then(|it| it.rsplit_once('-')).map(|(name, _version)| name);
    found.is_some_and(|it| normal(it) == normal(name))
}

/// PyPI takes these spellings of a name for the same.
fn normal(name: &str) -> String {
    name.to_lowercase().replace(['_', '.'], "-")
}

fn console_scripts(text: &str) -> Vec<String> {
    let mut is_ours = false;
    let mut scripts = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_ours = line == "[console_scripts]";
        } else if let Some((name, _)) = line.split_once('=').filter(|_| is_ours) {
            scripts.push(name.trim().to_owned());
        }
    }
    scripts
}

fn read_json(file: &Path) -> Result<Value, String> {
    let text = fs::read(file).map_err(|error| format!("`{}`: {error}", file.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("`{}`: {error}", file.display()))
}

/// The most suggestions that are worth reading.
const MOST: usize = 3;

/// Whether the program can be started, and what there is instead if not. A path is taken from `cwd`.
pub(super) fn check_binary(
    command: &str,
    path: Option<&OsStr>,
    cwd: Option<&Path>,
) -> Result<(), Failure> {
    let is_path = command.contains('/');
    let file =
        cwd.filter(|_| is_path).map_or_else(|| PathBuf::from(command), |it| it.join(command));
    let Err(fault) = find_program(&file.to_string_lossy(), path) else { return Ok(()) };
    let kind = match fault {
        SpawnFault::NotFound { .. } | SpawnFault::NoSuchFile(_) => FailureKind::PackageNotFound,
        _ => FailureKind::CannotStart,
    };
    let failure = Failure::new(kind, fault.to_string());
    if let SpawnFault::NotExecutable(_) = &fault {
        let hint = ConnectError::Transport(TransportError::Spawn(fault)).hint();
        return Err(failure.hinting(hint.unwrap_or_default()));
    }
    let dirs = match (is_path, &fault) {
        (true, _) => file.parent().map(Path::to_owned).into_iter().collect(),
        (false, SpawnFault::NotFound { path, .. }) => std::env::split_paths(path).collect(),
        (false, _) => Vec::new(),
    };
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or(command);
    let near = near(name, dirs.iter().flat_map(|dir| names(dir)));
    Err(match near.as_slice() {
        [] => failure.hinting("install it, or give its full path"),
        near => failure.hinting(format!("there is `{}`", near.join("`, `"))),
    })
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().into_string().ok()).collect()
}

/// The names that differ in a letter or two, the nearest first.
fn near(name: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let most = (name.chars().count() / 4).clamp(1, 3);
    let mut near: Vec<(usize, String)> = names
        .map(|it| (strsim::damerau_levenshtein(name, &it), it))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, it)| it).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(named: Option<&str>, programs: &[&str], expected: Result<&str, &str>) {
        let programs: Vec<String> = programs.iter().map(|it| (*it).to_owned()).collect();
        let found = choose(named, "own", &programs);
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn the_server_is_named_or_its_own_or_the_only_one() {
        check(None, &["x"], Ok("x"));
        check(None, &["own", "x"], Ok("own"));
        check(Some("x"), &["own", "x"], Ok("x"));
        check(None, &["x", "y"], Err("it has several programs: `x`, `y`"));
        check(Some("z"), &["x", "y"], Err("it has no program `z`, only `x`, `y`"));
        check(None, &[], Err("it has no program that could be started"));
    }

    #[test]
    fn programs_of_npm_are_one_or_many() {
        assert_eq!(npm_programs("own", Some(&json!("dist/x.js"))), ["own"]);
        assert_eq!(npm_programs("own", Some(&json!({"a": "x", "b": "y"}))), ["a", "b"]);
        assert_eq!(npm_programs("own", None), Vec::<String>::new());
    }

    #[test]
    fn programs_of_pypi_are_its_console_scripts() {
        let text = "[console_scripts]\na = m:f\n b=m:g\n\n[gui_scripts]\nc = m:h\n";
        assert_eq!(console_scripts(text), ["a", "b"]);
        assert!(is_about("mcp_server_time-1.0.dist-info".as_ref(), "MCP-Server.Time"));
        assert!(!is_about("mcp_server-1.0.dist-info".as_ref(), "mcp-server-time"));
        assert!(!is_about("mcp_server_time".as_ref(), "mcp-server-time"));
    }
}

#[cfg(test)]
mod binary_tests {
    use super::*;

    #[track_caller]
    fn check_near(name: &str, expected: &[&str]) {
        let names = ["demo-server", "demo-client", "sh", "bash", "demo-sever", "demo-server"];
        assert_eq!(near(name, names.iter().map(|it| (*it).to_owned())), expected);
    }

    #[test]
    fn near_names_are_the_nearest_first() {
        check_near("demo-servr", &["demo-server", "demo-sever"]);
        check_near("bsh", &["bash", "sh"]);
        check_near("entirely-else", &[]);
    }

    #[track_caller]
    fn check_fault(command: &str, dir: &Path, expected: (FailureKind, &str)) {
        let failure = check_binary(command, Some(dir.as_os_str()), Some(dir)).unwrap_err();
        assert_eq!((failure.kind(), failure.hint().unwrap()), expected, "{failure}");
    }

    #[test]
    fn a_program_that_is_not_there_is_told_with_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        fs::copy("/bin/true", dir.path().join("tool")).unwrap();
        assert_eq!(check_binary("tool", Some(dir.path().as_os_str()), None), Ok(()));
        assert_eq!(check_binary("./tool", None, Some(dir.path())), Ok(()));
        let near = (FailureKind::PackageNotFound, "there is `tool`");
        check_fault("tol", dir.path(), near);
        check_fault("./tooll", dir.path(), near);
        let nothing = (FailureKind::PackageNotFound, "install it, or give its full path");
        check_fault("something-else", dir.path(), nothing);
        check_fault("/nowhere/at/all", dir.path(), nothing);
        let plain = dir.path().join("data");
        File::create(&plain).unwrap();
        let hint = format!("make it executable with `chmod +x {}`", plain.display());
        check_fault("data", dir.path(), (FailureKind::CannotStart, &hint));
    }

    use std::fs::File;
}
