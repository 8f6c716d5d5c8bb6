//! `toolrack config` and `toolrack edit`: validates, locates and edits the config file.
//!
//! **Invariant:** `edit` replaces the config file only with valid text, and only if the file has
//! not changed since it was read. Text that cannot be saved is kept in a separate file.

use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use toolrack_config::{Diagnostic, Severity, read};
use toolrack_platform::{read_at_most, read_pipe_at_most};
use toolrack_service::{
    ConfigStore, InsecureHome, InsecurePath, ServiceError, insecure_config_paths,
};

use crate::args::ConfigAction;
use crate::commands::Context;
use crate::commands::import::dialect_name;
use crate::config_service::count_servers;
use crate::elicitation::read_line;
use crate::error::{CliError, ExitCode, command};
use crate::external_program;
use crate::printer::{Output, Printer};
use crate::render_content::create_numbered;
use crate::server_selection::{Servers, Warnings};
use crate::settings::insecure_path_error;

const LIMIT_BYTES: u64 = 16 << 20;

/// Validates a config file, or prints its path.
pub(crate) fn config(action: ConfigAction, context: &Context) -> Result<(), CliError> {
    // These two start nothing; the check reports who else can change the file.
    let home = context.settings.unchecked_home()?;
    match action {
        ConfigAction::Check { file } => {
            let hint = match &file {
                // `toolrack edit` would open another file.
                Some(file) => format!("fix these lines of {} in your editor", file.display()),
                None => format!("fix these lines with {}, or in your editor", command("edit")),
            };
            check_config(file.as_deref().unwrap_or(home.config_file()), &hint, context)
        }
        ConfigAction::Path => {
            let file = home.config_file();
            if context.printer.output == Output::Raw {
                context.printer.line(file.display());
                return Ok(());
            }
            let json = json!({ "file": file, "data": home.dir(), "exists": file.exists() });
            context.printer.show(file.display(), &json);
            Ok(())
        }
    }
}

/// Prints all errors and warnings of a config file, in any tool's format.
fn check_config(file: &Path, hint: &str, context: &Context) -> Result<(), CliError> {
    let path = file.display().to_string();
    let (refused, shared): (Vec<InsecurePath>, Vec<InsecurePath>) = insecure_config_paths(file)
        .into_iter()
        .partition(|insecure| insecure.exposure.is_refused());
    let is_allowed = context.settings.insecure_home == InsecureHome::Allow;
    for insecure in shared.iter().chain(refused.iter().filter(|_| is_allowed)) {
        let repair = insecure.repair_command();
        context.printer.note(format_args!("warning: {insecure}; run `{repair}`"));
    }
    if !refused.is_empty() && !is_allowed {
        let errors = refused.iter().map(insecure_path_error).collect();
        return Err(CliError::from_details(ExitCode::Config, errors));
    }
    let text = read_config(file)?;
    let reading = read(&path, &text);
    let (errors, warnings): (Vec<Diagnostic>, Vec<Diagnostic>) = reading
        .diagnostics
        .into_iter()
        .partition(|diagnostic| diagnostic.severity == Severity::Error);
    for warning in &warnings {
        context.printer.note(format_args!("warning: {warning}"));
    }
    if !errors.is_empty() {
        return Err(CliError::from_diagnostics(ExitCode::Config, &errors, hint));
    }
    let n_servers = reading.value.entries().count();
    let dialect = dialect_name(reading.value.dialect);
    let json = json!({
        "file": file,
        "dialect": dialect,
        "n_servers": n_servers,
        "warnings": warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let text = format!("{path} is valid: {dialect} format, {}", count_servers(n_servers));
    context.printer.done(text, &json);
    Ok(())
}

/// Reads a config file that must exist.
pub(crate) fn read_config(file: &Path) -> Result<String, CliError> {
    // A pipe that the shell has opened, not one that a project contains.
    let is_stream =
        ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|dir| file.starts_with(dir));
    let read = if is_stream { read_pipe_at_most } else { read_at_most };
    read(file, LIMIT_BYTES).map_err(|error| {
        let message = format!("cannot read {}: {error}", file.display());
        let add = command("add");
        let hint = format!("check the path and its permissions; {add} creates a config file");
        CliError::config(message, hint)
    })
}

/// Opens the config file in the user's editor.
pub(crate) async fn edit(server: Option<String>, context: &Context) -> Result<(), CliError> {
    let home = context.settings.home()?;
    let store = ConfigStore::new(home.config_file());
    let line = match &server {
        None => None,
        Some(name) => {
            let servers = Servers::configured(Warnings::Usual, context)?;
            servers.server(name)?.origin.at().map(|position| position.line)
        }
    };
    let (text, generation) = store.read_text()?;
    let draft = create_draft(&home.dir().join("edit"), &text)?;
    let written = loop {
        let edited = external_program::edit(&draft, line);
        let written = read_at_most(&draft, LIMIT_BYTES)?;
        // Even if the editor failed: there is no text to keep.
        if written == text {
            fs::remove_file(&draft).unwrap_or_default();
            edited?;
            let json = json!({ "file": store.path(), "changed": false });
            context.printer.done("no changes", &json);
            return Ok(());
        }
        if let Err(failure) = edited {
            return Err(keep_draft(&draft, failure, &context.printer));
        }
        // With the version that was read: another program may have saved the file meanwhile.
        match store.replace_text(Some(generation), &written) {
            Ok(stored) => break stored,
            Err(error) if wants_to_retry(&error, context).await => {}
            Err(error) => {
                let again = command("edit");
                let hint = format!("fix that text and save it yourself, or run {again} again");
                let failure = CliError::from(error).with_hint(hint);
                return Err(keep_draft(&draft, failure, &context.printer));
            }
        }
    };
    // Best effort: it is only a copy of the saved text.
    fs::remove_file(&draft).unwrap_or_default();
    for warning in &written.warnings {
        context.printer.note(format_args!("warning: {warning}"));
    }
    let (file, n_servers) = (store.path(), written.file.entries().count());
    let json = json!({ "file": file, "changed": true, "n_servers": n_servers });
    context.printer.done(format_args!("saved {}", file.display()), &json);
    Ok(())
}

/// Asks whether to open the editor again after a validation error.
async fn wants_to_retry(error: &ServiceError, context: &Context) -> bool {
    if !context.settings.streams.is_interactive() {
        return false;
    }
    for error_detail in error.details() {
        context.printer.prompt(format_args!("{}\n", error_detail.message));
    }
    context.printer.prompt("Not saved. Edit again? [Y]es, [n]o: ");
    // A fresh handler, so that a Ctrl-C pressed in the editor is not taken as the answer.
    let Ok(mut ctrl_c) = signal(SignalKind::interrupt()) else { return false };
    let typed = tokio::select! {
        typed = read_line() => typed,
        _ = ctrl_c.recv() => None,
    };
    typed.is_some_and(|answer| !answer.trim().to_ascii_lowercase().starts_with('n'))
}

/// Creates a private copy of the config file for the editor.
fn create_draft(dir: &Path, text: &str) -> Result<PathBuf, CliError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| {
        let message = format!("cannot create {}: {error}", dir.display());
        CliError::from(std::io::Error::new(error.kind(), message))
    })?;
    let (mut file, path) = create_numbered(dir, "toolrack", "toml", 0o600)?;
    file.write_all(text.as_bytes())?;
    Ok(path)
}

/// Says where the unsaved text is: in a note, or with `-o json` in the hint.
fn keep_draft(draft: &Path, failure: CliError, printer: &Printer) -> CliError {
    let path = draft.display();
    printer.note(format_args!("the config file is unchanged; your text is kept in {path}"));
    if printer.output != Output::Json {
        return failure;
    }
    let hint = failure.hint().unwrap_or_default();
    let hint = format!("{hint}; your text is kept in {path}");
    failure.with_hint(hint)
}
