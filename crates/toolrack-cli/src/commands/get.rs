//! `toolrack get`: what the config says of a server.

use serde_json::Value;
use toolrack_service::{LocalService, McpConfig};

use crate::args::servers::GetOptions;
use crate::config_service::{file_of, find, must_exist, with_service};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::Output;
use crate::redacted_config::{self, Values};

/// Shows a server. Values that may be secret are hidden unless they are asked for.
pub(crate) async fn get(options: &GetOptions, surroundings: &Surroundings) -> Result<(), Failure> {
    must_exist(&options.server, surroundings)?;
    let (config, file) = with_service(surroundings, None, async |service: &LocalService| {
        Ok((find(service, &options.server)?, file_of(service)))
    })
    .await?;
    let values = if options.show_values { Values::Shown } else { Values::Hidden };
    let document = redacted_config::document(&config, values);
    match surroundings.printer.output() {
        Output::Table => surroundings.printer.line(page(&config, &document, &file)),
        _ => surroundings.printer.document(&document.to_string()),
    }
    Ok(())
}

/// One thing to a line.
fn page(config: &McpConfig, document: &Value, file: &str) -> String {
    let mut lines = vec![
        line("name", &config.name),
        line("enabled", if config.enabled { "yes" } else { "no" }),
        line("way", redacted_config::way(config)),
        line("target", &redacted_config::target(config)),
    ];
    let variables = document.get("env_vars");
    for (name, variable) in &config.env_vars {
        let value =
            variables.and_then(|it| it.get(name)?.get("value")?.as_str()).unwrap_or_default();
        let value = match (&variable.secret_ref, variable.required) {
            (Some(secret), true) => format!("secret `{secret}`"),
            (Some(secret), false) => format!("secret `{secret}`, if there is one"),
            (None, _) => value.to_owned(),
        };
        lines.push(line("env", &format!("{name}={value}")));
    }
    let rest = document.get("config").and_then(Value::as_object);
    for (key, value) in rest.into_iter().flatten().filter(|(key, _)| *key != "args") {
        match value {
            Value::Object(members) => lines.extend(
                members.iter().map(|(name, value)| line(key, &format!("{name}: {}", text(value)))),
            ),
            value => lines.push(line(key, &text(value))),
        }
    }
    lines.push(line("id", &config.id.to_string()));
    lines.push(line("file", file));
    lines.join("\n")
}

fn line(key: &str, value: &str) -> String {
    format!("{key:<16} {}", redacted_config::shown(value))
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}
