//! `toolrack config`: where the config file is, and what is wrong with it.

use std::path::Path;

use serde_json::json;
use toolrack_config::{Fault, Severity, detect, read};
use toolrack_manager::read_at_most;
use toolrack_service::{ErrorCode, ServiceFault};

use crate::args::config::ConfigAction;
use crate::config_service::count;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::import_sources::dialect_name;
use crate::output::Output;

const LIMIT_BYTES: u64 = 16 << 20;

/// Checks a config file, or says where it is.
pub(crate) fn config(action: ConfigAction, surroundings: &Surroundings) -> Result<(), Failure> {
    let home = surroundings.settings.home()?;
    match action {
        ConfigAction::Check(options) => {
            let mend = match &options.file {
                // Whatever it is a file of, it is another one than `toolrack edit` opens.
                Some(file) => format!("mend these lines of {} in your editor", file.display()),
                None => "mend these lines with `toolrack edit`, or in your editor".to_owned(),
            };
            let file = options.file.as_deref().unwrap_or(home.config_file());
            check(file, &mend, surroundings)
        }
        ConfigAction::Path => {
            let file = home.config_file();
            match surroundings.printer.output() {
                Output::Table | Output::Raw => surroundings.printer.line(file.display()),
                _ => {
                    let said = json!({ "file": file, "data": home.dir(), "exists": file.exists() });
                    surroundings.printer.document(&said.to_string());
                }
            }
            Ok(())
        }
    }
}

/// Says everything that is wrong with a file, of whatever tool.
fn check(file: &Path, mend: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    let shown = file.display().to_string();
    let text = text(file)?;
    let detection = detect(&shown, &text);
    let reading = read(&shown, &text);
    let (errors, warnings): (Vec<Fault>, Vec<Fault>) =
        reading.faults.into_iter().partition(|it| it.severity == Severity::Error);
    for warning in &warnings {
        surroundings.printer.note(format_args!("warning: {warning}"));
    }
    if !errors.is_empty() {
        let fault = |it: &Fault| {
            let fault = ServiceFault::new(ErrorCode::ValidationError, it.to_string()).hint(mend);
            if it.field.is_empty() { fault } else { fault.at(it.field.clone()) }
        };
        return Err(Failure::all(Verdict::Config, errors.iter().map(fault).collect()));
    }
    let n_servers = reading.value.entries().count();
    let dialect = dialect_name(detection.dialect);
    let said = json!({
        "file": file,
        "dialect": dialect,
        "n_servers": n_servers,
        "warnings": warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let text = format!("{shown} is sound: a file of {dialect}, with {}", count(n_servers));
    surroundings.printer.done(text, &said);
    Ok(())
}

/// The text of a config file that has to be there.
pub(crate) fn text(file: &Path) -> Result<String, Failure> {
    read_at_most(file, LIMIT_BYTES).map_err(|error| {
        let message = format!("{} cannot be read: {error}", file.display());
        Failure::config(
            message,
            "check the path and its rights; `toolrack add` makes a config file",
        )
    })
}
