//! `toolrack import`: copies servers from the configs of other tools.
//!
//! **Invariant:** other tools' files are never written. Planning writes and starts nothing.

use std::path::{Path, PathBuf};

use serde_json::json;
use toolrack_config::{
    ConfigFile, Diagnostic, Dialect, detect, did_you_mean, read_as, similar_names,
};
use toolrack_service::{ConfigInput, ErrorCode, LocalService, McpConfig, McpService as _, Secret};
use toolrack_transport::sanitize_line;

use crate::args::ImportOptions;
use crate::commands::Context;
use crate::commands::config::read_config;
use crate::config_secrets::{self, ExtractedSecrets, display_line};
use crate::config_service::{config_path, count_servers, with_service};
use crate::error::{CliError, ExitCode, command};
use crate::printer::{List, Output};
use crate::settings::{Variable, env_var};
use crate::working_dir;

/// A tool whose config files are found automatically.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceTool {
    /// Name on the command line.
    pub(crate) name: &'static str,
    dialect: Dialect,
    /// Usual config files on Linux and macOS, below `~` or `CONFIG`: `$XDG_CONFIG_HOME` or
    /// `~/.config`.
    files: &'static [&'static str],
}

pub(crate) const SOURCE_TOOLS: &[SourceTool] = &[
    SourceTool::new("claude", Dialect::ClaudeCode, &["~/.claude.json"]),
    SourceTool::new(
        "claude-desktop",
        Dialect::ClaudeDesktop,
        &[
            "CONFIG/Claude/claude_desktop_config.json",
            "~/Library/Application Support/Claude/claude_desktop_config.json",
        ],
    ),
    SourceTool::new("cursor", Dialect::Cursor, &["~/.cursor/mcp.json"]),
    SourceTool::new(
        "vscode",
        Dialect::VsCode,
        &[
            "CONFIG/Code/User/mcp.json",
            "~/Library/Application Support/Code/User/mcp.json",
            "CONFIG/Code/User/settings.json",
            "~/Library/Application Support/Code/User/settings.json",
        ],
    ),
    SourceTool::new("codex", Dialect::Codex, &["~/.codex/config.toml"]),
    SourceTool::new("zed", Dialect::Zed, &["CONFIG/zed/settings.json"]),
    SourceTool::new("windsurf", Dialect::Windsurf, &["~/.codeium/windsurf/mcp_config.json"]),
    SourceTool::new(
        "opencode",
        Dialect::OpenCode,
        &["CONFIG/opencode/opencode.json", "CONFIG/opencode/opencode.jsonc"],
    ),
    SourceTool::new("goose", Dialect::Goose, &["CONFIG/goose/config.yaml"]),
    SourceTool::new("lmstudio", Dialect::LmStudio, &["~/.lmstudio/mcp.json"]),
];

impl SourceTool {
    const fn new(name: &'static str, dialect: Dialect, files: &'static [&'static str]) -> Self {
        Self { name, dialect, files }
    }

    /// Parses a tool's name, ignoring hyphens and case.
    fn parse(word: &str) -> Option<&'static Self> {
        let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_', ' '], "");
        let word = match plain(word) {
            // The product is named Claude Code, the option `claude`.
            word if word == "claudecode" => "claude".to_owned(),
            word => word,
        };
        SOURCE_TOOLS.iter().find(|tool| plain(tool.name) == word)
    }

    fn files(&self, dirs: &SearchDirs) -> Vec<PathBuf> {
        let path = |file: &&str| match file.strip_prefix("CONFIG/") {
            Some(file) => dirs.config.join(file),
            None => dirs.home.join(file.trim_start_matches("~/")),
        };
        self.files.iter().map(path).collect()
    }
}

/// Base directories to search.
#[derive(Debug)]
struct SearchDirs {
    home: PathBuf,
    config: PathBuf,
}

/// Display name of the tool that uses a format.
pub(crate) fn dialect_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Toolrack => "toolrack",
        Dialect::ClaudeCode => "Claude Code",
        Dialect::ClaudeDesktop => "Claude Desktop",
        Dialect::Cursor => "Cursor",
        Dialect::Windsurf => "Windsurf",
        Dialect::LmStudio => "LM Studio",
        Dialect::Cline => "Cline",
        Dialect::VsCode => "VS Code",
        Dialect::Zed => "Zed",
        Dialect::Codex => "Codex",
        Dialect::OpenCode => "OpenCode",
        Dialect::Goose => "goose",
        _ => "generic `mcpServers`",
    }
}

/// Imports servers from other tools.
pub(crate) async fn import(options: ImportOptions, context: &Context) -> Result<(), CliError> {
    let found = find_files(&options)?;
    // Without a working directory, no project encloses it.
    let cwd = std::env::current_dir().unwrap_or_default();
    let printer = &context.printer;
    for source in &found {
        let (path, name) = (source.path.display(), dialect_name(source.dialect));
        printer.note(format_args!("reading {path} ({name})"));
        for warning in &source.warnings {
            printer.note(format_args!("warning: {warning}"));
        }
    }
    with_service(ConfigInput::File, None, context, async |service: &LocalService| {
        let mut imports = plan(&found, &service.list(), &cwd);
        let mut n_plain = 0;
        let mut first_error = None;
        for import in imports.iter_mut().filter(|import| import.skipped.is_none()) {
            if let Some(note) = &import.note {
                printer.note(note);
            }
            let McpConfig { name, env_vars, .. } = &mut import.config;
            let stored = service.secrets().list()?;
            for variable in env_vars.values_mut().filter(|variable| variable.required) {
                let secret = variable.secret_ref.as_ref();
                if let Some(secret) = secret.filter(|secret| !stored.contains(secret)) {
                    printer.note(format_args!(
                        "note: `{name}` needs a secret that is not stored; store it with \
                         `toolrack secret set {secret}`"
                    ));
                    // So that the server can be imported.
                    variable.required = false;
                }
            }
            let config = import.config.clone();
            let ExtractedSecrets { config: extracted, secrets, names } =
                config_secrets::extract_secrets(config.clone());
            let (config, secrets) =
                if options.secrets { (extracted, secrets) } else { (config, Vec::new()) };
            if options.secrets && !names.is_empty() {
                let (name, names) = (&import.config.name, names.join(", "));
                printer.note(format_args!("{name}: to the secret store: {names}"));
            } else {
                n_plain += names.len();
            }
            if options.dry_run {
                continue;
            }
            if let Err(failure) = save_import(service, config, secrets).await {
                import.skipped = Some(failure.summary().message);
                first_error.get_or_insert(failure);
            }
        }
        if n_plain > 0 {
            printer.note(format_args!(
                "note: {n_plain} secret-looking values stay plain text; `--secrets` moves them \
                 to the secret store"
            ));
        }
        report(&imports, &options, &config_path(service), context);
        first_error.map_or(Ok(()), Err)
    })
    .await
}

/// Saves one server, and its secrets to the store.
async fn save_import(
    service: &LocalService,
    config: McpConfig,
    secrets: Vec<(String, String)>,
) -> Result<(), CliError> {
    let mut added = Vec::new();
    for (name, value) in secrets {
        let present = service.secrets().get(&name)?;
        match present.filter(|present| !present.reveal().is_empty()) {
            Some(before) if before.reveal() == value => {}
            // Another server may use it.
            Some(_) => {
                let message = format!("the secret `{name}` already exists with another value");
                let hint = format!(
                    "remove it with `toolrack secret remove {name}`, or import without `--secrets`"
                );
                return Err(CliError::config(message, hint));
            }
            None => {
                service.set_secret(&name, Secret::from(value)).await?;
                added.push(name);
            }
        }
    }
    // The secrets were stored first, so that the config never refers to a missing one.
    if let Err(error) = service.create(config) {
        for name in added {
            service.remove_secret(&name).await?;
        }
        return Err(error.into());
    }
    Ok(())
}

/// The files to import.
fn find_files(options: &ImportOptions) -> Result<Vec<SourceFile>, CliError> {
    let tool = match options.from.as_deref().filter(|word| *word != "all") {
        None => None,
        Some(word) => match SourceTool::parse(word) {
            Some(tool) => Some(tool),
            None if options.file.is_none()
                && (word.contains(['/', '.']) || Path::new(word).exists()) =>
            {
                return Ok(vec![read_given(Path::new(word), None)?]);
            }
            None => {
                let names = SOURCE_TOOLS.iter().map(|tool| tool.name);
                let words: Vec<&str> = names.chain(["all"]).collect();
                let suggestion = did_you_mean(&similar_names(word, words.iter().copied()));
                let message = format!("unknown tool `{word}`{suggestion}");
                let hint = format!("give a file, or one of: {}", words.join(", "));
                return Err(CliError::usage(message, hint));
            }
        },
    };
    if let Some(file) = &options.file {
        return Ok(vec![read_given(file, tool.map(|tool| tool.dialect))?]);
    }
    let dirs = dirs()?;
    let mut found = Vec::new();
    for tool in tool.map_or(SOURCE_TOOLS, std::slice::from_ref) {
        for path in tool.files(&dirs).iter().filter(|path| path.is_file()) {
            found.push(read_found(path, Some(tool.dialect))?);
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let (message, words) = match tool {
        None => {
            ("no config of another tool found".to_owned(), "import path/to/mcp.json".to_owned())
        }
        Some(tool) => {
            let files = tool.files(&dirs);
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            let name = dialect_name(tool.dialect);
            let message = format!("{name} config not found: {}", files.join(", "));
            (message, format!("import {} FILE", tool.name))
        }
    };
    let hint = format!("give a file, e.g. {}", command(words));
    Err(CliError::new(ExitCode::Config, ErrorCode::NotFound, message, hint))
}

fn dirs() -> Result<SearchDirs, CliError> {
    let absolute =
        |variable: Variable| env_var(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let Some(home) = absolute(Variable::Home) else {
        let import = command("import path/to/mcp.json");
        let hint = format!("set `HOME`, or give a file, e.g. {import}");
        return Err(CliError::usage("cannot locate the configs of other tools", hint));
    };
    let config = absolute(Variable::XdgConfigHome).unwrap_or_else(|| home.join(".config"));
    Ok(SearchDirs { home, config })
}

/// A file given on the command line, which may belong to a project.
fn read_given(path: &Path, dialect: Option<Dialect>) -> Result<SourceFile, CliError> {
    Ok(SourceFile { dir: working_dir::project_dir(path), ..read_found(path, dialect)? })
}

fn read_found(path: &Path, dialect: Option<Dialect>) -> Result<SourceFile, CliError> {
    let text = read_config(path)?;
    let path_text = path.display().to_string();
    let dialect = dialect.unwrap_or_else(|| detect(&path_text, &text));
    let reading = read_as(dialect, &path_text, &text);
    let (file, warnings) = reading.accept().map_err(|errors| {
        let hint = "fix the file or give another one; nothing was imported";
        CliError::from_diagnostics(ExitCode::Config, &errors, hint)
    })?;
    Ok(SourceFile { path: path.to_owned(), dir: None, dialect, file, warnings })
}

fn report(imports: &[Import<'_>], options: &ImportOptions, file: &str, context: &Context) {
    let printer = &context.printer;
    let mut list = List::new(&["NAME", "FROM", "TARGET", "OUTCOME"]);
    for Import { source, config, skipped, .. } in imports {
        let outcome = match (skipped, options.dry_run) {
            (None, true) => "would be imported".to_owned(),
            (None, false) => "imported".to_owned(),
            (Some(reason), _) => format!("skipped: {reason}"),
        };
        let (from, target) = (dialect_name(source.dialect), config_secrets::target(config));
        let item = json!({
            "name": config.name,
            "file": source.path,
            "dialect": from,
            "target": target,
            "taken": skipped.is_none() && !options.dry_run,
            "outcome": outcome,
        });
        list.push(vec![display_line(&config.name), from.to_owned(), target, outcome], &item);
    }
    printer.list(&list);
    if printer.output != Output::Table {
        return;
    }
    let n_imported = imports.iter().filter(|import| import.skipped.is_none()).count();
    let servers = count_servers(n_imported);
    match (n_imported, options.dry_run) {
        (0, _) => printer.note("nothing was imported"),
        (_, true) => printer.note(format_args!("would import {servers} to {file}")),
        (_, false) => printer.note(format_args!(
            "imported {servers} to {file}; check with {}",
            command("status --check")
        )),
    }
}

/// A config file of another tool.
#[derive(Debug)]
struct SourceFile {
    path: PathBuf,
    /// Base directory of relative paths, if known.
    dir: Option<PathBuf>,
    dialect: Dialect,
    file: ConfigFile,
    warnings: Vec<Diagnostic>,
}

/// A server found in another tool's config.
#[derive(Debug)]
struct Import<'a> {
    source: &'a SourceFile,
    config: McpConfig,
    /// Why it is not imported.
    skipped: Option<String>,
    /// Note about a working directory that was added.
    note: Option<String>,
}

/// Decides for each server whether it is imported. `cwd` selects the project.
fn plan<'a>(found: &'a [SourceFile], present: &[McpConfig], cwd: &Path) -> Vec<Import<'a>> {
    let mut imports: Vec<Import<'_>> = Vec::new();
    for source in found {
        let SourceFile { dir, file, .. } = source;
        let enclosing = enclosing_project(cwd, file.agents.iter().map(|agent| agent.id.as_str()));
        let shared = file.defaults.iter().map(|entry| (entry, None));
        let per_project = file
            .agents
            .iter()
            .flat_map(|agent| agent.mcp.iter().map(|entry| (entry, Some(agent.id.as_str()))));
        for (entry, project) in shared.chain(per_project) {
            let mut config = McpConfig::from_entry(entry);
            let note = match project {
                Some(project) => {
                    let (name, dir) = (display_line(&config.name), display_line(project));
                    working_dir::start_in(&mut config, Path::new(project)).then(|| {
                        format!(
                            "note: `{name}` always starts in {dir} (`cwd`), because it belongs to \
                             that project"
                        )
                    })
                }
                None => dir.as_ref().and_then(|dir| working_dir::set_if_relative(&mut config, dir)),
            };
            let imported = imports
                .iter()
                .filter(|import| import.skipped.is_none())
                .map(|import| &import.config);
            let existing = present.iter().chain(imported).find(|other| other.name == config.name);
            let skipped = match project.filter(|project| enclosing != Some(*project)) {
                Some(other_owner) => Some(other_project(other_owner)),
                None => skip_reason(&config, existing).map(str::to_owned),
            };
            imports.push(Import { source, config, skipped, note });
        }
    }
    imports
}

/// The innermost project that contains a directory.
fn enclosing_project<'a>(cwd: &Path, projects: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let contains_cwd = |name: &&str| {
        let project = Path::new(name);
        // The working directory has no symlinks in it, but the configured project path may.
        let canonical = project.canonicalize();
        cwd.starts_with(project) || canonical.is_ok_and(|canonical| cwd.starts_with(canonical))
    };
    projects
        .filter(|name| Path::new(name).is_absolute())
        .filter(contains_cwd)
        // Projects may be nested; the innermost has the longest path.
        .max_by_key(|name| name.len())
}

/// Why a server of another project or agent is skipped.
fn other_project(owner: &str) -> String {
    let is_project = Path::new(owner).is_absolute();
    let owner = display_line(owner);
    if is_project {
        let import = command("import");
        format!("belongs to the project {owner}; run {import} there to import it")
    } else {
        format!("belongs to the agent `{owner}`")
    }
}

/// Why a server is not imported.
fn skip_reason(config: &McpConfig, existing: Option<&McpConfig>) -> Option<&'static str> {
    // Secrets in its arguments may have been extracted by an earlier import.
    let extracted = config_secrets::extract_secrets(config.clone()).config;
    let is_same = |other: &McpConfig| {
        let is_same = |as_is: &McpConfig, key: &str| other.config.get(key) == as_is.config.get(key);
        let has_args = is_same(config, "args") || is_same(&extracted, "args");
        other.package == config.package && has_args && is_same(config, "cwd")
    };
    match existing {
        Some(other) if is_same(other) => Some("already exists"),
        Some(_) => Some("name already in use"),
        // It could be taken for another name or for an option.
        None if sanitize_line(&config.name, usize::MAX) != config.name => {
            Some("its name contains invisible characters; rename it there")
        }
        None if config.name.starts_with('-') => {
            Some("its name begins with `-` and would be read as an option; rename it there")
        }
        None if !config.enabled => Some("disabled in that tool"),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(program: &str) -> McpConfig {
        let document = json!({
            "name": "a", "transport": "stdio",
            "package": { "package_type": "binary", "identifier": program },
        });
        McpConfig::from_json(&document).unwrap()
    }

    #[test]
    fn existing_servers_are_skipped() {
        let (a, b) = (config("x"), config("y"));
        assert_eq!(skip_reason(&a, None), None);
        assert_eq!(skip_reason(&a, Some(&a)), Some("already exists"));
        assert_eq!(skip_reason(&a, Some(&b)), Some("name already in use"));
        let elsewhere = McpConfig { config: json!({ "cwd": "/p" }), ..config("x") };
        assert_eq!(skip_reason(&a, Some(&elsewhere)), Some("name already in use"));
        let disabled = McpConfig { enabled: false, ..config("x") };
        assert_eq!(skip_reason(&disabled, None), Some("disabled in that tool"));
    }

    #[test]
    fn deceptive_names_are_skipped() {
        let check = |name: &str, is_fit: bool| {
            let config = McpConfig { name: name.to_owned(), ..config("x") };
            assert_eq!(skip_reason(&config, None).is_none(), is_fit, "{name:?}");
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
    fn innermost_project_is_found() {
        let check = |cwd: &str, expected: Option<&str>| {
            let projects = ["/no/u", "/no/u/proj", "/no/u/proj/../other", "main"];
            assert_eq!(enclosing_project(Path::new(cwd), projects.into_iter()), expected);
        };
        check("/no/u/proj", Some("/no/u/proj"));
        check("/no/u/proj/src", Some("/no/u/proj"));
        check("/no/u/project", Some("/no/u"));
        check("/no", None);
        check("main", None);
    }

    #[test]
    fn other_projects_are_named() {
        let project = "belongs to the project /p; run `toolrack import` there to import it";
        assert_eq!(other_project("/p"), project);
        assert_eq!(other_project("main"), "belongs to the agent `main`");
    }

    #[test]
    fn tool_names_parse() {
        let check = |word: &str, expected: Option<Dialect>| {
            assert_eq!(SourceTool::parse(word).map(|tool| tool.dialect), expected, "{word}");
        };
        for tool in SOURCE_TOOLS {
            check(tool.name, Some(tool.dialect));
        }
        check("VS-Code", Some(Dialect::VsCode));
        check("lm-studio", Some(Dialect::LmStudio));
        check("claude-code", Some(Dialect::ClaudeCode));
        check("emacs", None);
    }

    #[test]
    fn config_files_are_below_home() {
        let dirs = SearchDirs { home: "/u".into(), config: "/c".into() };
        let files = |word: &str| SourceTool::parse(word).unwrap().files(&dirs);
        assert_eq!(files("cursor"), [Path::new("/u/.cursor/mcp.json")]);
        assert_eq!(files("goose"), [Path::new("/c/goose/config.yaml")]);
        for tool in SOURCE_TOOLS {
            let files = tool.files(&dirs);
            assert!(!files.is_empty());
            assert!(files.iter().all(|file| file.starts_with("/u") || file.starts_with("/c")));
        }
    }
}
