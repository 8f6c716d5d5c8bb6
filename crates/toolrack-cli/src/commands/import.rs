//! `toolrack import`: copies servers from the configs of other tools.
//!
//! **Invariant:** other tools' files are never written. Planning writes and starts nothing.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use serde_json::json;
use toolrack_config::{ConfigFile, Diagnostic, Dialect, detect, read_as};
use toolrack_service::{
    ConfigInput, ErrorCode, ErrorDetail, LocalService, McpConfig, McpService as _, Secret,
};
use toolrack_transport::sanitize_line;

use crate::args::servers::{ImportOptions, SourceTool};
use crate::commands::config::read_config;
use crate::config_secrets::{self, ExtractedSecrets, display_line};
use crate::config_service::{config_path, count_servers, with_service};
use crate::context::Context;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::import_sources::{SearchDirs, dialect_name};
use crate::output::{List, Output};
use crate::settings::{Variable, env_var};
use crate::suggested_command::command;
use crate::working_dir;
use toolrack_config::{did_you_mean, similar_names};

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
            let stored = service.secrets().list()?;
            for secret in make_missing_secrets_optional(&mut import.config, &stored) {
                let name = &import.config.name;
                printer.note(format_args!(
                    "note: `{name}` needs a secret that is not stored; store it with `toolrack \
                     secret set {secret}`"
                ));
            }
            let extracted = config_secrets::extract_secrets(import.config.clone());
            if options.secrets && !extracted.names.is_empty() {
                let (name, names) = (&import.config.name, extracted.names.join(", "));
                printer.note(format_args!("{name}: to the secret store: {names}"));
            } else {
                n_plain += extracted.names.len();
            }
            if options.dry_run {
                continue;
            }
            let imported =
                save_import(service, import.config.clone(), options.secrets.then_some(extracted))
                    .await;
            if let Err(failure) = imported {
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

/// Makes secrets optional that are not stored yet, so that the server can be imported. Returns
/// their names.
fn make_missing_secrets_optional(config: &mut McpConfig, stored: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for variable in config.env_vars.values_mut().filter(|variable| variable.required) {
        if let Some(secret) = variable.secret_ref.as_ref().filter(|secret| !stored.contains(secret))
        {
            missing.push(secret.clone());
            variable.required = false;
        }
    }
    missing
}

/// Saves one server, and its secrets to the store if requested.
async fn save_import(
    service: &LocalService,
    config: McpConfig,
    extracted: Option<ExtractedSecrets>,
) -> Result<(), CliError> {
    let Some(ExtractedSecrets { config, secrets, .. }) = extracted else {
        service.create(config)?;
        return Ok(());
    };
    let mut added = Vec::new();
    for (name, value) in secrets {
        let before = service.secrets().get(&name)?;
        match before {
            Some(before) if before.reveal() == value => {}
            Some(_) => return Err(secret_conflict(&name)),
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

/// An existing secret is not overwritten, because another server may use it.
fn secret_conflict(name: &str) -> CliError {
    let message = format!("the secret `{name}` already exists with another value");
    let hint =
        format!("remove it with `toolrack secret remove {name}`, or import without `--secrets`");
    CliError::config(message, hint)
}

/// The files to import.
fn find_files(options: &ImportOptions) -> Result<Vec<SourceFile>, CliError> {
    let tool = match options.from.as_deref() {
        None | Some("all") => None,
        Some(word) => match SourceTool::parse(word) {
            Some(tool) => Some(tool),
            None if options.file.is_none()
                && (word.contains(['/', '.']) || Path::new(word).exists()) =>
            {
                return Ok(vec![read_given(Path::new(word), None)?]);
            }
            None => {
                let tools = SourceTool::value_variants().iter().map(|tool| tool.name());
                let words: Vec<String> = tools.chain(["all".to_owned()]).collect();
                let similar = similar_names(word, words.iter().map(String::as_str));
                let message = format!("unknown tool `{word}`{}", did_you_mean(&similar));
                let hint = format!("give a file, or one of: {}", words.join(", "));
                return Err(CliError::usage(message, hint));
            }
        },
    };
    if let Some(file) = &options.file {
        return Ok(vec![read_given(file, tool.map(SourceTool::dialect))?]);
    }
    let dirs = dirs()?;
    let mut found = Vec::new();
    let tools = tool.as_ref().map_or(SourceTool::value_variants(), std::slice::from_ref);
    for tool in tools {
        for path in tool.existing_files(&dirs) {
            found.push(read_found(&path, Some(tool.dialect()))?);
        }
    }
    if found.is_empty() {
        return Err(nothing_found(tool, &dirs));
    }
    Ok(found)
}

fn nothing_found(tool: Option<SourceTool>, dirs: &SearchDirs) -> CliError {
    let (message, hint) = match tool {
        None => (
            "no config of another tool found".to_owned(),
            format!("give a file, e.g. {}", command("import path/to/mcp.json")),
        ),
        Some(tool) => {
            let files = tool.files(dirs);
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            let import = command(format_args!("import {} FILE", tool.name()));
            (
                format!("{} config not found: {}", dialect_name(tool.dialect()), files.join(", ")),
                format!("give a file, e.g. {import}"),
            )
        }
    };
    CliError::new(ExitCode::Config, ErrorCode::NotFound, message, hint)
}

fn dirs() -> Result<SearchDirs, CliError> {
    let absolute =
        |variable: Variable| env_var(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let Some(home) = absolute(Variable::UserHome) else {
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
    let (file, warnings) = reading.accept().map_err(|error_details| {
        let error_detail = |diagnostic: &Diagnostic| {
            let hint = "fix the file or give another one; nothing was imported";
            ErrorDetail::new(ErrorCode::ValidationError, diagnostic.to_string()).with_hint(hint)
        };
        CliError::from_details(ExitCode::Config, error_details.iter().map(error_detail).collect())
    })?;
    Ok(SourceFile { path: path.to_owned(), dir: None, dialect, file, warnings })
}

fn report(imports: &[Import], options: &ImportOptions, file: &str, context: &Context) {
    let describe = |import: &Import| match (&import.skipped, options.dry_run) {
        (None, true) => "would be imported".to_owned(),
        (None, false) => "imported".to_owned(),
        (Some(reason), _) => format!("skipped: {reason}"),
    };
    let printer = &context.printer;
    let row = |import: &Import| {
        let name = display_line(&import.config.name);
        let from = dialect_name(import.dialect).to_owned();
        vec![name, from, config_secrets::target(&import.config), describe(import)]
    };
    let item = |import: &Import| {
        let json = json!({
            "name": import.config.name,
            "file": import.path,
            "dialect": dialect_name(import.dialect),
            "target": config_secrets::target(&import.config),
            "taken": import.skipped.is_none() && !options.dry_run,
            "outcome": describe(import),
        });
        json.to_string()
    };
    printer.list(&List {
        columns: &["NAME", "FROM", "TARGET", "OUTCOME"],
        rows: imports.iter().map(row).collect(),
        items: imports.iter().map(item).collect(),
    });
    let n_imported = imports.iter().filter(|import| import.skipped.is_none()).count();
    if printer.output() == Output::Table {
        match (n_imported, options.dry_run) {
            (0, _) => printer.note("nothing was imported"),
            (n, true) => printer.note(format_args!("would import {} to {file}", count_servers(n))),
            (n, false) => printer.note(format_args!(
                "imported {} to {file}; check with {}",
                count_servers(n),
                command("status --check")
            )),
        }
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
struct Import {
    path: PathBuf,
    dialect: Dialect,
    config: McpConfig,
    /// Why it is not imported.
    skipped: Option<String>,
    /// Note about a working directory that was added.
    note: Option<String>,
}

/// Decides for each server whether it is imported. `cwd` selects the project.
fn plan(found: &[SourceFile], present: &[McpConfig], cwd: &Path) -> Vec<Import> {
    let mut imports: Vec<Import> = Vec::new();
    for SourceFile { path, dir, dialect, file, .. } in found {
        let enclosing = enclosing_project(cwd, file.agents.iter().map(|agent| agent.id.as_str()));
        let shared = file.defaults.iter().map(|entry| (entry, None));
        let per_project = file
            .agents
            .iter()
            .flat_map(|agent| agent.mcp.iter().map(|entry| (entry, Some(agent.id.as_str()))));
        for (entry, project) in shared.chain(per_project) {
            let mut config = McpConfig::from_entry(entry);
            let note = match project {
                Some(project) => set_project_dir(&mut config, project),
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
            imports.push(Import { path: path.clone(), dialect: *dialect, config, skipped, note });
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

/// Sets the working directory of a project's server to the project.
fn set_project_dir(config: &mut McpConfig, project: &str) -> Option<String> {
    let note = format!(
        "note: `{}` always starts in {} (`cwd`), because it belongs to that project",
        display_line(&config.name),
        display_line(project)
    );
    working_dir::start_in(config, Path::new(project)).then_some(note)
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
}
