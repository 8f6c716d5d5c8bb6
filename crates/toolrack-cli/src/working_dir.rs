//! Working directory of a server whose arguments are relative paths.
//!
//! **Invariant:** an explicit working directory is kept.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolrack_service::{McpConfig, McpPackageType};

use crate::config_secrets::{display_line, is_reference};
use crate::config_service::insert_key;

/// Directories in which tools keep a project's config. Paths in it are relative to the project.
const TOOL_DIRS: [&str; 6] = [".codex", ".cursor", ".lmstudio", ".roo", ".vscode", ".zed"];

/// Sets the working directory to `dir` if an argument is a relative path that exists there, so that
/// it means the same everywhere. Returns a note.
pub(crate) fn set_if_relative(config: &mut McpConfig, dir: &Path) -> Option<String> {
    let found = relative_path(config, |path| dir.join(path).exists())?;
    let note = format!(
        "note: `{}` always starts in {} (`cwd`), because `{}` is a relative path",
        display_line(&config.name),
        display_line(&dir.to_string_lossy()),
        display_line(&found)
    );
    start_in(config, dir).then_some(note)
}

/// Sets the working directory, unless the server has one. Returns whether it was set.
pub(crate) fn start_in(config: &mut McpConfig, dir: &Path) -> bool {
    if !needs_dir(config) {
        return false;
    }
    let Some(dir) = dir.to_str() else { return false };
    if config.config.is_null() {
        config.config = json!({});
    }
    // A directory may contain `${`, which the config would expand.
    insert_key(&mut config.config, "cwd", json!(dir.replace("${", "$${")));
    config.config.is_object()
}

/// Whether the server runs locally without a working directory.
fn needs_dir(config: &McpConfig) -> bool {
    let is_local = match config.package.package_type {
        McpPackageType::Npm | McpPackageType::Pypi | McpPackageType::Binary => true,
        // Its paths are inside the container.
        McpPackageType::Docker | McpPackageType::Http => false,
    };
    is_local && config.config.get("cwd").is_none()
}

/// The first relative path of a server: its program, an argument, or the part after `=`.
fn relative_path(config: &McpConfig, exists: impl Fn(&Path) -> bool) -> Option<String> {
    if !needs_dir(config) {
        return None;
    }
    let program = &config.package.identifier;
    let is_path = config.package.package_type == McpPackageType::Binary && program.contains('/');
    let args = config.config.get("args").and_then(Value::as_array).into_iter().flatten();
    let args = args.filter_map(Value::as_str);
    // Options such as `--config=./x.json`.
    let args = args.flat_map(|arg| [Some(arg), arg.split_once('=').map(|(_, value)| value)]);
    let mut words = is_path.then_some(program.as_str()).into_iter().chain(args.flatten());
    let is_found = |path: &Path| path.is_relative() && exists(path);
    let found =
        words.find(|word| !word.is_empty() && !is_reference(word) && is_found(Path::new(word)));
    found.map(str::to_owned)
}

/// The project directory of a tool's config file.
pub(crate) fn project_dir(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let dir = file.parent()?;
    let is_of_tool =
        dir.file_name().is_some_and(|name| TOOL_DIRS.iter().any(|known| *known == name));
    let dir = if is_of_tool { dir.parent()? } else { dir };
    Some(dir.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(kind: &str, program: &str, rest: Value) -> McpConfig {
        let document = json!({
            "name": "a", "config": rest,
            "transport": if kind == "http" { json!({ "type": "http", "url": program }) } else { json!("stdio") },
            "package": { "package_type": kind, "identifier": program },
        });
        McpConfig::from_json(&document).unwrap()
    }

    #[track_caller]
    fn check(kind: &str, program: &str, rest: Value, expected: Option<&str>) {
        let existing = ["srv.py", "./x.js", "../data", ".", "bin/server", "-y"];
        let exists = |path: &Path| existing.iter().any(|existing| path == Path::new(existing));
        let found = relative_path(&config(kind, program, rest), exists);
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn relative_paths_are_found() {
        check("binary", "python", json!({ "args": ["srv.py"] }), Some("srv.py"));
        check("binary", "node", json!({ "args": ["--quiet", "./x.js"] }), Some("./x.js"));
        check("binary", "x", json!({ "args": ["--data=../data"] }), Some("../data"));
        check("pypi", "x", json!({ "args": ["--repository", "."] }), Some("."));
        check("binary", "bin/server", Value::Null, Some("bin/server"));
    }

    #[test]
    fn other_arguments_are_not_relative_paths() {
        check("binary", "srv.py", Value::Null, None);
        check("npm", "bin/server", Value::Null, None);
        check("binary", "python", json!({ "args": ["/srv.py", "gone.py", "", "a="] }), None);
        check("binary", "python", json!({ "args": ["${HOME}/srv.py"] }), None);
        check("binary", "python", json!({ "args": ["srv.py"], "cwd": "/srv" }), None);
        check("docker", "image", json!({ "args": ["srv.py"] }), None);
        check("http", "https://h/mcp", Value::Null, None);
    }

    #[test]
    fn directory_is_escaped() {
        let mut bare = config("binary", "x", Value::Null);
        assert!(start_in(&mut bare, Path::new("/a/${b}")));
        assert_eq!(bare.config, json!({ "cwd": "/a/$${b}" }));
        assert!(!start_in(&mut bare, Path::new("/c")));
        assert!(!start_in(&mut config("http", "https://h", Value::Null), Path::new("/c")));
    }

    #[test]
    fn project_of_a_config_file_is_found() {
        let check =
            |file: &str, dir: &str| assert_eq!(project_dir(Path::new(file)), Some(dir.into()));
        check("/p/.mcp.json", "/p");
        check("/p/.cursor/mcp.json", "/p");
        check("/p/.vscode/mcp.json", "/p");
        check("/p/configs/mcp.json", "/p/configs");
    }
}
