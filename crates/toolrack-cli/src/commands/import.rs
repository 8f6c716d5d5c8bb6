//! `toolrack import`: the servers of other tools, copied into our config. Their files are read and never written.

mod plan;

use std::path::{Path, PathBuf};

use serde_json::json;
use toolrack_config::{Dialect, Fault, detect, read_as};
use toolrack_service::{ErrorCode, LocalService, McpConfig, McpService as _, Secret, ServiceFault};

use crate::args::config::{ImportOptions, Tool};
use crate::commands::config::text;
use crate::config_service::{file_of, with_service};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::extract_secrets::{self, Stowed};
use crate::import_sources::{Places, dialect_name};
use crate::output::{List, Output};
use crate::redacted_config;
use crate::settings::{Variable, of_process};
use crate::suggest::{meant, near};
use crate::working_dir;

use plan::{Fate, Found, Import, plan};

/// Takes over the servers of other tools.
pub(crate) async fn import(
    options: ImportOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let found = find(&options)?;
    // Whoever is nowhere is in no project.
    let here = std::env::current_dir().unwrap_or_default();
    let printer = &surroundings.printer;
    for it in &found {
        let (path, name) = (it.path.display(), dialect_name(it.dialect));
        printer.note(format_args!("{path}: a file of {name}"));
        for warning in &it.warnings {
            printer.note(format_args!("warning: {warning}"));
        }
    }
    with_service(surroundings, None, async |service: &LocalService| {
        let mut imports = plan(&found, &service.list(), &here);
        let mut n_plain = 0;
        let mut unsaved = None;
        for import in imports.iter_mut().filter(|it| it.fate == Fate::Taken) {
            if let Some(note) = &import.note {
                printer.note(note);
            }
            for secret in loosen(&mut import.config, &service.secrets().list()?) {
                let name = &import.config.name;
                printer.note(format_args!(
                    "note: `{name}` wants a secret that is not stored: `toolrack secret set {secret}`"
                ));
            }
            let stowed = extract_secrets::stow(import.config.clone());
            if options.secrets && !stowed.names.is_empty() {
                let (name, names) = (&import.config.name, stowed.names.join(", "));
                printer.note(format_args!("{name}: into the secret store: {names}"));
            } else {
                n_plain += stowed.names.len();
            }
            if options.dry_run {
                continue;
            }
            let taken = take(service, import.config.clone(), options.secrets.then_some(stowed)).await;
            if let Err(failure) = taken {
                import.fate = Fate::Skipped(failure.summary().message);
                unsaved.get_or_insert(failure);
            }
        }
        if n_plain > 0 {
            printer.note(format_args!(
                "note: {n_plain} values look secret and stand in the file as they are; `--secrets` moves them \
                 into the secret store"
            ));
        }
        report(&imports, &options, &file_of(service), surroundings);
        unsaved.map_or(Ok(()), Err)
    })
    .await
}

/// Lets a server do without secrets that are not stored yet, so that it is not lost, and says which those are.
fn loosen(config: &mut McpConfig, stored: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for variable in config.env_vars.values_mut().filter(|it| it.required) {
        if let Some(secret) = variable.secret_ref.as_ref().filter(|it| !stored.contains(it)) {
            missing.push(secret.clone());
            variable.required = false;
        }
    }
    missing
}

/// Writes one server down, with its secrets in the store if that is wanted.
async fn take(
    service: &LocalService,
    config: McpConfig,
    stowed: Option<Stowed>,
) -> Result<(), Failure> {
    let Some(Stowed { config, secrets, .. }) = stowed else {
        service.create(config)?;
        return Ok(());
    };
    let mut added = Vec::new();
    for (name, value) in secrets {
        let before = service.secrets().get(&name)?;
        match before {
            Some(before) if before.reveal() == value => {}
            Some(_) => return Err(occupied(&name)),
            None => {
                service.set_secret(&name, Secret::from(value)).await?;
                added.push(name);
            }
        }
    }
    if let Err(error) = service.create(config) {
        for name in added {
            service.remove_secret(&name).await?;
        }
        return Err(error.into());
    }
    Ok(())
}

/// A secret that somebody else needs is not overwritten.
fn occupied(name: &str) -> Failure {
    let message = format!("the secret `{name}` is stored with another value");
    let hint =
        format!("remove it with `toolrack secret remove {name}`, or import without `--secrets`");
    Failure::config(message, hint)
}

/// The files that are meant.
fn find(options: &ImportOptions) -> Result<Vec<Found>, Failure> {
    let tool = match options.from.as_deref() {
        None | Some("all") => None,
        Some(word) => match Tool::meant(word) {
            Some(tool) => Some(tool),
            None if options.file.is_none() && looks_like_file(word) => {
                return Ok(vec![named(Path::new(word), None)?]);
            }
            None => return Err(unknown(word)),
        },
    };
    if let Some(file) = &options.file {
        return Ok(vec![named(file, tool.map(Tool::dialect))?]);
    }
    let places = places()?;
    let mut found = Vec::new();
    let tools = tool.as_ref().map_or(Tool::ALL, std::slice::from_ref);
    for tool in tools {
        for path in tool.present(&places) {
            found.push(read(&path, Some(tool.dialect()))?);
        }
    }
    if found.is_empty() {
        return Err(nothing(tool, &places));
    }
    Ok(found)
}

fn looks_like_file(word: &str) -> bool {
    word.contains(['/', '.']) || Path::new(word).exists()
}

fn unknown(word: &str) -> Failure {
    let mut words: Vec<String> = Tool::ALL.iter().map(|it| it.word()).collect();
    words.push("all".to_owned());
    let meant = meant(&near(word, words.iter().map(String::as_str)));
    let hint = format!("give a file, or one of: {}", words.join(", "));
    Failure::usage(format!("`{word}` is no tool whose servers can be found{meant}"), hint)
}

fn nothing(tool: Option<Tool>, places: &Places) -> Failure {
    let (message, hint) = match tool {
        None => (
            "no other tool on this machine has a config with servers".to_owned(),
            "give the file, as in `toolrack import path/to/mcp.json`".to_owned(),
        ),
        Some(tool) => {
            let files = tool.files(places);
            let files: Vec<String> = files.iter().map(|it| it.display().to_string()).collect();
            let word = tool.word();
            (
                format!(
                    "{} has no config here: {}",
                    dialect_name(tool.dialect()),
                    files.join(", ")
                ),
                format!("give the file, as in `toolrack import {word} FILE`"),
            )
        }
    };
    Failure::new(Verdict::Config, ErrorCode::NotFound, message, hint)
}

fn places() -> Result<Places, Failure> {
    let absolute = |it: Variable| of_process(it).map(PathBuf::from).filter(|it| it.is_absolute());
    let Some(home) = absolute(Variable::UserHome) else {
        let hint = "set `HOME`, or give the file, as in `toolrack import path/to/mcp.json`";
        return Err(Failure::usage("it is unknown where other tools keep their configs", hint));
    };
    let config = absolute(Variable::XdgConfigHome).unwrap_or_else(|| home.join(".config"));
    Ok(Places { home, config })
}

/// A file that somebody named, which may be that of a project.
fn named(path: &Path, dialect: Option<Dialect>) -> Result<Found, Failure> {
    Ok(Found { dir: working_dir::of_project(path), ..read(path, dialect)? })
}

fn read(path: &Path, dialect: Option<Dialect>) -> Result<Found, Failure> {
    let text = text(path)?;
    let shown = path.display().to_string();
    let dialect = dialect.unwrap_or_else(|| detect(&shown, &text).dialect);
    let reading = read_as(dialect, &shown, &text);
    let (file, warnings) = reading.accept().map_err(|faults| {
        let fault = |it: &Fault| {
            let hint = "mend the file, or name another one; nothing was taken over";
            ServiceFault::new(ErrorCode::ValidationError, it.to_string()).hint(hint)
        };
        Failure::all(Verdict::Config, faults.iter().map(fault).collect())
    })?;
    Ok(Found { path: path.to_owned(), dir: None, dialect, file, warnings })
}

fn report(imports: &[Import], options: &ImportOptions, file: &str, surroundings: &Surroundings) {
    let word = |fate: &Fate| match (fate, options.dry_run) {
        (Fate::Taken, true) => "would be taken".to_owned(),
        (Fate::Taken, false) => "taken".to_owned(),
        (Fate::Skipped(why), _) => format!("skipped: {why}"),
    };
    let printer = &surroundings.printer;
    let row = |it: &Import| {
        let name = redacted_config::shown(&it.config.name);
        let from = dialect_name(it.dialect).to_owned();
        vec![name, from, redacted_config::target(&it.config), word(&it.fate)]
    };
    let item = |it: &Import| {
        let said = json!({
            "name": it.config.name,
            "file": it.path,
            "dialect": dialect_name(it.dialect),
            "target": redacted_config::target(&it.config),
            "taken": it.fate == Fate::Taken && !options.dry_run,
            "outcome": word(&it.fate),
        });
        said.to_string()
    };
    printer.list(&List {
        columns: &["NAME", "FROM", "TARGET", "OUTCOME"],
        rows: imports.iter().map(row).collect(),
        items: imports.iter().map(item).collect(),
    });
    let n_taken = imports.iter().filter(|it| it.fate == Fate::Taken).count();
    if printer.output() == Output::Table {
        match (n_taken, options.dry_run) {
            (0, _) => printer.note("nothing was taken over"),
            (n, true) => printer.note(format_args!("{n} would be written to {file}")),
            (n, false) => printer.note(format_args!(
                "{n} written to {file}; `toolrack status --check` sees whether they work"
            )),
        }
    }
}
