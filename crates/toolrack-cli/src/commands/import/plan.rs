//! What is to become of each server of another tool: decided here, and done by the command.
//!
//! **Invariant:** nothing is written or started; of the disk only the places of folders are asked.

use std::path::{Path, PathBuf};

use toolrack_config::{ConfigFile, Dialect, Fault};
use toolrack_service::McpConfig;
use toolrack_transport::plain_text;

use crate::extract_secrets;
use crate::redacted_config::shown;
use crate::working_dir;

/// A file that is read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// Where paths in it begin, if that is known.
    pub(super) dir: Option<PathBuf>,
    pub(super) dialect: Dialect,
    pub(super) file: ConfigFile,
    pub(super) warnings: Vec<Fault>,
}

/// What became of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Taken,
    Skipped(String),
}

/// One server of another tool.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) path: PathBuf,
    pub(super) dialect: Dialect,
    pub(super) config: McpConfig,
    pub(super) fate: Fate,
    /// What was added to what its tool says of it.
    pub(super) note: Option<String>,
}

/// What is to become of each server, given those that are there, for somebody who is `here`.
pub(super) fn plan(found: &[Found], present: &[McpConfig], here: &Path) -> Vec<Import> {
    let mut imports: Vec<Import> = Vec::new();
    for Found { path, dir, dialect, file, .. } in found {
        let around = project_around(here, file.agents.iter().map(|it| it.id.as_str()));
        let of_all = file.defaults.iter().map(|it| (it, None));
        let of_projects = file
            .agents
            .iter()
            .flat_map(|agent| agent.mcp.iter().map(|it| (it, Some(agent.id.as_str()))));
        for (entry, project) in of_all.chain(of_projects) {
            let mut config = McpConfig::of_entry(entry);
            let note = match project {
                Some(project) => at_project(&mut config, project),
                None => dir.as_ref().and_then(|it| working_dir::settle(&mut config, it)),
            };
            let taken = imports.iter().filter(|it| it.fate == Fate::Taken).map(|it| &it.config);
            let namesake = present.iter().chain(taken).find(|it| it.name == config.name);
            let fate = match project.filter(|it| around != Some(*it)) {
                Some(stranger) => Fate::Skipped(elsewhere(stranger)),
                None => fate(&config, namesake),
            };
            imports.push(Import { path: path.clone(), dialect: *dialect, config, fate, note });
        }
    }
    imports
}

/// The innermost of these projects in which a folder is.
fn project_around<'a>(here: &Path, projects: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_around = |it: &&str| {
        let project = Path::new(it);
        // The folder is known without symbolic links, and a project may be written with some.
        let plain = project.canonicalize();
        here.starts_with(project) || plain.is_ok_and(|plain| here.starts_with(plain))
    };
    projects.filter(|it| Path::new(it).is_absolute()).filter(is_around).max_by_key(|it| it.len())
}

/// Has a server of a project started where its tool does so, and says it.
fn at_project(config: &mut McpConfig, project: &str) -> Option<String> {
    let note = format!(
        "note: `{}` is always started in {} (`cwd`), because it belongs to that project",
        shown(&config.name),
        shown(project)
    );
    working_dir::start_in(config, Path::new(project)).then_some(note)
}

/// Why a server of a project, or of an agent, is not taken.
fn elsewhere(owner: &str) -> String {
    let is_project = Path::new(owner).is_absolute();
    let owner = shown(owner);
    if is_project {
        format!("belongs to the project {owner}; run `toolrack import` in that folder to take it")
    } else {
        format!("belongs to the agent `{owner}` alone")
    }
}

fn fate(config: &McpConfig, namesake: Option<&McpConfig>) -> Fate {
    // The secrets in its arguments may have been moved.
    let stowed = extract_secrets::stow(config.clone()).config;
    let is_same = |it: &McpConfig| {
        let is_same = |as_is: &McpConfig, key: &str| it.config.get(key) == as_is.config.get(key);
        let has_args = is_same(config, "args") || is_same(&stowed, "args");
        it.package == config.package && has_args && is_same(config, "cwd")
    };
    match namesake {
        Some(it) if is_same(it) => Fate::Skipped("is there already".to_owned()),
        Some(_) => Fate::Skipped("another server has this name".to_owned()),
        None if let Some(why) = unfit(&config.name) => Fate::Skipped(why.to_owned()),
        None if !config.enabled => Fate::Skipped("is disabled there".to_owned()),
        None => Fate::Taken,
    }
}

/// Why a name cannot be taken over, if that is so: it could not be typed, or would look like another one.
fn unfit(name: &str) -> Option<&'static str> {
    if plain_text(name, usize::MAX) != name {
        Some("its name has characters in it that cannot be seen; give it another one there")
    } else if name.starts_with('-') {
        Some("its name begins with `-` and would be taken for an option; give it another one there")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(program: &str) -> McpConfig {
        let document = json!({
            "name": "a", "transport": "stdio",
            "package": { "package_type": "binary", "identifier": program },
        });
        McpConfig::from_json(&document).unwrap()
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        let (a, b) = (config("x"), config("y"));
        let skipped = |why: &str| Fate::Skipped(why.to_owned());
        assert_eq!(fate(&a, None), Fate::Taken);
        assert_eq!(fate(&a, Some(&a)), skipped("is there already"));
        assert_eq!(fate(&a, Some(&b)), skipped("another server has this name"));
        let elsewhere = McpConfig { config: json!({ "cwd": "/p" }), ..config("x") };
        assert_eq!(fate(&a, Some(&elsewhere)), skipped("another server has this name"));
        let disabled = McpConfig { enabled: false, ..config("x") };
        assert_eq!(fate(&disabled, None), skipped("is disabled there"));
    }

    #[test]
    fn a_name_that_deceives_is_not_taken() {
        let check = |name: &str, is_fit: bool| {
            let config = McpConfig { name: name.to_owned(), ..config("x") };
            assert_eq!(fate(&config, None) == Fate::Taken, is_fit, "{name:?}");
        };
        check("git", true);
        check("größe 漢字", true);
        check("$(touch x)", true);
        check("--help", false);
        check("git\u{202e}", false);
        check("git\u{200b}", false);
        check("x\u{3164}", false);
        check("a\nb", false);
        check("a\u{1b}[31m", false);
    }

    #[test]
    fn somebody_is_in_the_innermost_project() {
        let check = |here: &str, expected: Option<&str>| {
            let projects = ["/no/u", "/no/u/proj", "/no/u/proj/../other", "main"];
            assert_eq!(project_around(Path::new(here), projects.into_iter()), expected);
        };
        check("/no/u/proj", Some("/no/u/proj"));
        check("/no/u/proj/src", Some("/no/u/proj"));
        check("/no/u/project", Some("/no/u"));
        check("/no", None);
        check("main", None);
    }

    #[test]
    fn what_is_of_a_project_says_where_it_can_be_taken() {
        let project = "belongs to the project /p; run `toolrack import` in that folder to take it";
        assert_eq!(elsewhere("/p"), project);
        assert_eq!(elsewhere("main"), "belongs to the agent `main` alone");
    }
}
