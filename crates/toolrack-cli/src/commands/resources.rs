//! `toolrack resources`, `read`, `prompts` and `prompt`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use toolrack_config::{did_you_mean, similar_names};
use toolrack_mcp::{GetPromptResult, Prompt, Resource, ResourceTemplate, Role};
use toolrack_transport::sanitize_line;

use crate::args::{ListOptions, PromptOptions, ReadOptions, RequestOptions};
use crate::commands::Context;
use crate::commands::call::{call_options, invalid_arguments};
use crate::commands::tools::{ListItem, select_servers};
use crate::error::{CliError, command};
use crate::printer::{List, Output, Printer, Spinner};
use crate::render_content::{self, Files};
use crate::server_selection::{self, ServerSource, Servers, Warnings};
use crate::server_session::{ServerSession, note_truncated, or_empty, with_session};
use crate::tool_args::coerce::build_arguments;
use crate::tool_args::schema::Schema;
use crate::tool_args::{KeyValue, TypedArguments};

const MAX_CHARS: usize = 400;

/// Lists the resources and resource templates of one or all servers.
pub(crate) async fn resources(options: ListOptions, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let servers = select_servers(&options, context)?;
    with_session(servers, &RequestOptions::default(), context, async |session: &ServerSession| {
        let list_all = session.query_all(async |client| {
            let resources = or_empty(client.list_resources().await)?;
            Ok((resources, or_empty(client.list_resource_templates().await)?))
        });
        let results = list_all.await;
        let mut list = List::new(&["SERVER", "URI", "NAME", "TYPE", "DESCRIPTION"]);
        for (server, (resources, templates)) in &results.responses {
            note_truncated(resources, "resources", server, printer);
            note_truncated(templates, "resource templates", server, printer);
            for item in &resources.items {
                let Resource { uri, name, mime_type, description, .. } = item;
                let about = [mime_type.as_deref(), description.as_deref()];
                add_item(&mut list, server, [uri, name], &about, item);
            }
            for item in &templates.items {
                let ResourceTemplate { uri_template, name, mime_type, description, .. } = item;
                let about = [mime_type.as_deref(), description.as_deref()];
                add_item(&mut list, server, [uri_template, name], &about, item);
            }
        }
        results.show(&list, "resources", printer)
    })
    .await
}

/// Adds an item to the list, with its server.
fn add_item<T: Serialize>(
    list: &mut List,
    server: &str,
    names: [&str; 2],
    about: &[Option<&str>],
    item: &T,
) {
    let about = about.iter().map(|text| text.unwrap_or_default());
    let cells = names.into_iter().chain(about).map(|cell| sanitize_line(cell, MAX_CHARS));
    let row = std::iter::once(server.to_owned()).chain(cells).collect();
    list.push(row, &ListItem { server, public_name: None, item });
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
            let n = toolrack_mcp::n_skipped(&result.skipped);
            printer.note(format_args!("note: {n} parts could not be parsed and were skipped"));
        }
        let mut files = Files::new(options.save.as_deref());
        let parts = result.contents.iter();
        let texts = parts.map(|part| render_content::render_resource(part, &mut files));
        let texts = texts.collect::<Result<Vec<_>, CliError>>()?;
        match printer.output {
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
    let servers = select_servers(&options, context)?;
    with_session(servers, &RequestOptions::default(), context, async |session: &ServerSession| {
        let list_all = session.query_all(async |client| or_empty(client.list_prompts().await));
        let results = list_all.await;
        let mut list = List::new(&["SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"]);
        for (server, prompts) in &results.responses {
            note_truncated(prompts, "prompts", server, printer);
            for item in &prompts.items {
                let about = item.description.as_deref().or(item.title.as_deref());
                add_item(&mut list, server, [&item.name, &prompt_signature(item)], &[about], item);
            }
        }
        results.show(&list, "prompts", printer)
    })
    .await
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
    for word in words {
        let argument = KeyValue::parse(word)?;
        let path = &argument.path;
        if argument.is_json {
            let hint = format!("use `{path}=…`");
            return Err(CliError::usage("prompt arguments are text only", hint).with_field(path));
        }
        if arguments.insert(path.clone(), argument.read_text()?).is_some() {
            let message = format!("`{path}` is given more than once");
            return Err(CliError::usage(message, "give it once").with_field(path));
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
    let listed = prompt.arguments.as_deref().unwrap_or_default().iter();
    let required = listed.clone().filter(|argument| argument.required.unwrap_or_default());
    let required: Vec<&str> = required.map(|argument| argument.name.as_str()).collect();
    let properties: Map<String, Value> =
        listed.map(|argument| (argument.name.clone(), json!({}))).collect();
    let schema = json!({ "properties": properties, "required": required });
    let object = arguments.iter().map(|(name, text)| (name.clone(), json!(text))).collect();
    let typed = TypedArguments { object, ..TypedArguments::default() };
    build_arguments(typed, Schema::new(&schema))
        .map(drop)
        .map_err(|errors| invalid_arguments(errors, name, &prompt_signature(prompt)))
}

fn print_prompt(result: &GetPromptResult, printer: &Printer) -> Result<(), CliError> {
    if printer.output != Output::Table {
        // It was parsed from JSON, so it can be serialized.
        let messages = serde_json::to_string(&result.messages).unwrap_or_default();
        let description = json!(result.description);
        printer.document(&format!(r#"{{"description":{description},"messages":{messages}}}"#));
        return Ok(());
    }
    for message in &result.messages {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
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
        let error = outcome.err();
        let error_details = error.iter().flat_map(CliError::error_details);
        let messages: Vec<String> =
            error_details.map(|error_detail| error_detail.message.clone()).collect();
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
