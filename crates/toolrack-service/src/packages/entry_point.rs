//! Which program of an installed package is the server.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::install_plan::{Folder, Registry};

/// The program, or why there is none.
pub(super) fn find(folder: &Folder) -> Result<PathBuf, String> {
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
fn is_about(folder: &std::ffi::OsStr, name: &str) -> bool {
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
