//! `toolrack add-json`: a server from its entry in any tool's config.

use std::io::{self, Read as _};

use crate::args::servers::AddJsonOptions;
use crate::commands::add::{Check, create};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::pasted_config;

/// The longest entry.
const LIMIT_BYTES: u64 = 1 << 20;

/// Adds a server that is written in JSON.
pub(crate) async fn add_json(
    options: AddJsonOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let text = match options.json.as_str() {
        "-" => surroundings.blocking(piped).await?,
        _ => options.json,
    };
    let snippet = pasted_config::read(&options.name, &text)?;
    for remark in &snippet.remarks {
        surroundings.printer.note(format_args!("note: {remark}"));
    }
    let check = if options.no_check { Check::No } else { Check::Yes };
    create(snippet.config, check, surroundings).await
}

fn piped() -> Result<String, Failure> {
    let mut text = String::new();
    io::stdin().take(LIMIT_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
