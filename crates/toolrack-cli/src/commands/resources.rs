//! `toolrack resources`, `read`, `prompts` and `prompt`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use toolrack_manager::McpConnection;
use toolrack_mcp::{GetPromptResult, Prompt, Resource, ResourceTemplate};
use toolrack_service::{ErrorCode, ErrorDetail};
use toolrack_transport::sanitize_line;

use crate::args::tools::{ListOptions, PromptOptions, ReadOptions, RequestOptions};
use crate::commands::call::{call_options, read_value};
use crate::commands::tools::select_servers;
use crate::context::Context;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::fan_out;
use crate::output::{List, Output};
use crate::printer::{Printer, Spinner};
use crate::render_content::{self, Files};
use crate::server_selection::{self, ServerSource, Servers, Warnings};
use crate::server_session::{ServerSession, with_session};
use crate::suggested_command::command;
use crate::tool_args::{self, ValueFormat};
use toolrack_config::{did_you_mean, similar_names};

const MAX_CHARS: usize = 400;

/// JSON of a resource, template or prompt, with its server.
#[derive(Serialize)]
struct Item<'a, T> {
    server: &'a str,
    #[serde(flatten)]
    item: &'a T,
}

/// Lists the resources and resource templates of one or all servers.
pub(crate) async fn resources(options: ListOptions, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let servers = select_servers(&options.target, options.server.as_deref(), context)?;
    with_session(servers, &RequestOptions::default(), context, async |session: &ServerSession| {
        let results = fan_out::query_all(session, async |connection: &McpConnection| {
            let Some(client) = connection.client() else { return Ok(Default::default()) };
            let resources = fan_out::or_empty(client.list_resources().await)?;
            let templates = fan_out::or_empty(client.list_resource_templates().await)?;
            Ok((resources, templates))
        })
        .await;
        let mut list = List {
            columns: &["SERVER", "URI", "NAME", "TYPE", "DESCRIPTION"],
            rows: Vec::new(),
            items: Vec::new(),
        };
        for (connection, (resources, templates)) in &results.responses {
            let server = connection.name();
            fan_out::note_truncated(resources, "resources", server, printer);
            fan_out::note_truncated(templates, "resource templates", server, printer);
            for resource in &resources.items {
                let Resource { uri, name, mime_type, description, .. } = resource;
                list.rows.push(resource_row(server, uri, name, [mime_type, description]));
                list.items.push(to_item(server, resource));
            }
            for template in &templates.items {
                let ResourceTemplate { uri_template, name, mime_type, description, .. } = template;
                list.rows.push(resource_row(server, uri_template, name, [mime_type, description]));
                list.items.push(to_item(server, template));
            }
        }
        results.show(&list, "resources", printer)
    })
    .await
}

/// JSON of an item, with its server.
fn to_item<T: Serialize>(server: &str, item: &T) -> String {
    // It was parsed from JSON, so it can be serialized.
    serde_json::to_string(&Item { server, item }).unwrap_or_default()
}

fn resource_row(server: &str, uri: &str, name: &str, about: [&Option<String>; 2]) -> Vec<String> {
    let about = about.map(|text| text.as_deref().unwrap_or_default());
    let cells = [uri, name].into_iter().chain(about).map(|cell| sanitize_line(cell, MAX_CHARS));
    std::iter::once(server.to_owned()).chain(cells).collect()
}

/// Reads a resource and prints its contents.
pub(crate) async fn read(options: ReadOptions, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let servers = Servers::select(&options.target, Warnings::Usual, context)?;
    let (server, uri) = server_and_uri(&options.words, &servers)?;
    let servers = servers.filter(|candidate| candidate == server);
    with_session(servers, &options.request, context, async |session: &ServerSession| {
        let connection = session.connect(&server).await?;
        let Some(client) = connection.client() else { return Err(CliError::interrupted()) };
        let spinner = Spinner::new(printer, &format!("{server}: reading"));
        let call_options = call_options(&options.request, context);
        let request = async { Ok(client.read_resource(&uri, &call_options).await?) };
        let result = session.run(&server, Some(spinner), request).await?;
        if !result.skipped.is_empty() {
            let n = result.skipped.len();
            printer.note(format_args!("note: {n} parts could not be parsed and were skipped"));
        }
        let mut files = Files::new(options.save.as_deref());
        let mut texts = Vec::new();
        for part in &result.contents {
            texts.push(render_content::render_resource(part, &mut files)?);
        }
        match printer.output() {
            Output::Table => {
                printer.line(texts.join("\n"));
                files.note_unsaved(printer);
            }
            _ => {
                // It was parsed from JSON, so it can be serialized.
                let contents = serde_json::to_string(&result.contents).unwrap_or_default();
                printer.document(&files.with_saved_paths(&format!(r#"{{"contents":{contents}}}"#)));
            }
        }
        Ok(())
    })
    .await
}

/// The server and the URI that were typed.
fn server_and_uri(words: &[String], servers: &Servers) -> Result<(String, String), CliError> {
    match (servers.source, words) {
        (ServerSource::Configured, [server, uri]) => {
            servers.server(server)?;
            Ok((server.clone(), uri.clone()))
        }
        (ServerSource::Configured, [uri]) => match servers.single_enabled() {
            Some(only) => Ok((only.name.clone(), uri.clone())),
            None if servers.configs.is_empty() => Err(Servers::no_server_given()),
            None => {
                let names: Vec<&str> = servers.names().collect();
                let read = command("read SERVER URI");
                let hint = format!("use {read}; configured servers: {}", names.join(", "));
                Err(CliError::usage("missing server of the resource", hint))
            }
        },
        (ServerSource::AdHoc, [uri]) => {
            Ok((servers.names().next().unwrap_or_default().to_owned(), uri.clone()))
        }
        _ => Err(CliError::usage(
            "a configured server and an ad-hoc server cannot be used together",
            "remove one of them",
        )),
    }
}

/// Lists the prompts of one or all servers.
pub(crate) async fn prompts(options: ListOptions, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let servers = select_servers(&options.target, options.server.as_deref(), context)?;
    with_session(servers, &RequestOptions::default(), context, async |session: &ServerSession| {
        let results = fan_out::query_all(session, async |connection: &McpConnection| {
            let Some(client) = connection.client() else { return Ok(Arc::default()) };
            fan_out::or_empty(client.list_prompts().await)
        })
        .await;
        let mut list = List {
            columns: &["SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"],
            rows: Vec::new(),
            items: Vec::new(),
        };
        for (connection, prompts) in &results.responses {
            fan_out::note_truncated(prompts, "prompts", connection.name(), printer);
            for prompt in &prompts.items {
                list.rows.push(prompt_row(connection.name(), prompt));
                list.items.push(to_item(connection.name(), prompt));
            }
        }
        results.show(&list, "prompts", printer)
    })
    .await
}

fn prompt_row(server: &str, prompt: &Prompt) -> Vec<String> {
    let about = prompt.description.as_deref().or(prompt.title.as_deref()).unwrap_or_default();
    let shown = |text: &str| sanitize_line(text, MAX_CHARS);
    vec![server.to_owned(), shown(&prompt.name), shown(&prompt_signature(prompt)), shown(about)]
}

/// The arguments of a prompt on one line: `name, style?`.
fn prompt_signature(prompt: &Prompt) -> String {
    let arguments = prompt.arguments.as_deref().unwrap_or_default().iter().map(|argument| {
        let mark = if argument.required.unwrap_or_default() { "" } else { "?" };
        format!("{}{mark}", argument.name)
    });
    arguments.collect::<Vec<_>>().join(", ")
}

/// Gets a prompt and prints its messages.
pub(crate) async fn prompt(options: PromptOptions, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let words = options.arguments.clone();
    // Arguments may come from stdin, so the read must be interruptible.
    let arguments = context.blocking(move || parse_prompt_args(&words)).await?;
    let servers = Servers::select(&options.target, Warnings::Usual, context)?;
    let target = server_selection::resolve_typed(&options.prompt, &servers)
        .or_else(|| server_selection::resolve_single(&options.prompt, &servers))
        .ok_or_else(|| {
            server_selection::unknown_name("prompt", &options.prompt, &servers.configs, &[])
        })?;
    let servers = servers.filter(|server| server == target.server);
    with_session(servers, &options.request, context, async |session: &ServerSession| {
        let connection = session.connect(&target.server).await?;
        let Some(client) = connection.client() else { return Err(CliError::interrupted()) };
        let spinner = Spinner::new(printer, &format!("{}: getting the prompt", target.item));
        let call_options = call_options(&options.request, context);
        let request = async {
            let known = client.list_prompts().await?;
            check_prompt(&target.item, &arguments, &known.items)?;
            Ok(client.get_prompt(&target.item, &arguments, &call_options).await?)
        };
        let result = session.run(&target.server, Some(spinner), request).await?;
        print_prompt(&result, printer)
    })
    .await
}

fn parse_prompt_args(words: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut arguments = BTreeMap::new();
    for typed in words {
        let word = tool_args::parse(typed)?;
        if word.format == ValueFormat::Json {
            let hint = format!("use `{}=…`", word.path);
            let failure = CliError::usage("prompt arguments are text only", hint);
            return Err(failure.with_field(&word.path));
        }
        let text = read_value(&word.path, word.source)?;
        if arguments.insert(word.path.clone(), text).is_some() {
            let message = format!("`{}` is given more than once", word.path);
            return Err(CliError::usage(message, "give it once").with_field(&word.path));
        }
    }
    Ok(arguments)
}

/// Checks the prompt's name and its arguments.
fn check_prompt(
    name: &str,
    arguments: &BTreeMap<String, String>,
    known: &[Prompt],
) -> Result<(), CliError> {
    let Some(prompt) = known.iter().find(|prompt| prompt.name == name) else {
        let names: Vec<&str> = known.iter().map(|prompt| prompt.name.as_str()).collect();
        let suggestion = did_you_mean(&similar_names(name, names.iter().copied()));
        let hint = format!("available prompts: {}", sanitize_line(&names.join(", "), 500));
        return Err(CliError::unknown(format!("prompt `{name}` not found{suggestion}"), hint));
    };
    let listed = prompt.arguments.as_deref().unwrap_or_default();
    let hint = match prompt_signature(prompt).as_str() {
        "" => format!("`{name}` takes no arguments"),
        takes => format!("`{name}` takes: {takes}"),
    };
    let error_detail = |field: &str, message: String| {
        ErrorDetail::new(ErrorCode::ValidationError, message).with_field(field)
    };
    let mut error_details = Vec::new();
    for argument in listed.iter().filter(|argument| argument.required.unwrap_or_default()) {
        if !arguments.contains_key(&argument.name) {
            let message = format!("missing argument `{}`", argument.name);
            error_details.push(error_detail(&argument.name, message));
        }
    }
    for given in arguments.keys().filter(|name| listed.iter().all(|known| known.name != **name)) {
        let known = listed.iter().map(|argument| argument.name.as_str());
        let suggestion = did_you_mean(&similar_names(given, known));
        error_details.push(error_detail(given, format!("unknown argument `{given}`{suggestion}")));
    }
    if error_details.is_empty() {
        Ok(())
    } else {
        Err(CliError::from_details(ExitCode::Usage, error_details).with_hint(hint))
    }
}

fn print_prompt(result: &GetPromptResult, printer: &Printer) -> Result<(), CliError> {
    if printer.output() != Output::Table {
        // It was parsed from JSON, so it can be serialized.
        let messages = serde_json::to_string(&result.messages).unwrap_or_default();
        let description = json!(result.description);
        printer.document(&format!(r#"{{"description":{description},"messages":{messages}}}"#));
        return Ok(());
    }
    for message in &result.messages {
        let role = match message.role {
            toolrack_mcp::Role::User => "user",
            toolrack_mcp::Role::Assistant => "assistant",
        };
        printer.line(format_args!(
            "{role}: {}",
            render_content::render_block(&message.content, &mut Files::new(None))?
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_call(name: &str, given: &[&str], expected: &[&str]) {
        let known: Vec<Prompt> = serde_json::from_str(
            r#"[{"name": "greeting", "arguments": [{"name": "name", "required": true}, {"name": "style"}]}]"#,
        )
        .unwrap();
        let given = given.iter().map(|&name| (name.to_owned(), "x".to_owned())).collect();
        let outcome = check_prompt(name, &given, &known);
        let messages: Vec<String> = outcome
            .err()
            .map(|error| {
                error
                    .error_details()
                    .iter()
                    .map(|error_detail| error_detail.message.clone())
                    .collect()
            })
            .unwrap_or_default();
        assert_eq!(messages, expected);
    }

    #[test]
    fn prompt_arguments_are_checked() {
        check_call("greeting", &["name"], &[]);
        check_call("greeting", &["name", "style"], &[]);
        check_call("greeting", &[], &["missing argument `name`"]);
        check_call(
            "greeting",
            &["nmae"],
            &["missing argument `name`", "unknown argument `nmae`; did you mean `name`?"],
        );
        check_call("greting", &[], &["prompt `greting` not found; did you mean `greeting`?"]);
    }
}
