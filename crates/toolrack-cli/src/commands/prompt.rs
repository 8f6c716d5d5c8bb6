//! `toolrack prompt`: a prompt, filled in.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use toolrack_mcp::{GetPromptResult, Prompt};
use toolrack_service::{ErrorCode, ServiceFault};
use toolrack_transport::plain_text;

use crate::args::list::PromptOptions;
use crate::commands::call::{conduct, read_file, read_input};
use crate::commands::prompts::takes;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::output::Output;
use crate::printer::Printer;
use crate::progress::Live;
use crate::render_content;
use crate::resolve_name;
use crate::save::Files;
use crate::server_selection::Servers;
use crate::server_session::{Rack, with_rack};
use crate::suggest::{meant, near};
use crate::tool_args::key_value::{self, From, Reads};

/// Fills in a prompt and shows it.
pub(crate) async fn prompt(
    options: PromptOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let words = options.arguments.clone();
    let arguments = surroundings.blocking(move || gather(&words)).await?;
    let servers = Servers::find(&options.target, &surroundings.settings, printer)?;
    let target = resolve_name::plain(&options.prompt, &servers)
        .or_else(|| resolve_name::alone(&options.prompt, &servers))
        .ok_or_else(|| {
            resolve_name::unknown("prompt", &options.prompt, &servers, std::iter::empty())
        })?;
    let servers = servers.keep(|it| it == target.server);
    with_rack(servers, &options.conduct, surroundings, async |rack: &Rack| {
        let connection = rack.connect(&target.server).await?;
        let Some(client) = connection.client() else { return Err(Failure::interrupted()) };
        let live = Live::new(printer);
        live.phase(&format!("{}: filling in the prompt", target.item));
        let how = conduct(&options.conduct, surroundings);
        let filling = async {
            let known = client.list_prompts().await?;
            check(&target.item, &arguments, &known.items)?;
            Ok(client.get_prompt(&target.item, &arguments, &how).await?)
        };
        let result = live.during(rack.attended(&target.server, filling)).await?;
        drop(live);
        show(&result, printer)
    })
    .await
}

fn gather(words: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut arguments = BTreeMap::new();
    for typed in words {
        let word = key_value::parse(typed)?;
        if word.reads == Reads::Json {
            let hint = format!("write `{}=…`", word.path);
            return Err(Failure::usage("prompts take text only", hint).at(&word.path));
        }
        let text = match word.from {
            From::Here(text) => text,
            From::Input => read_input(&word.path)?,
            From::File(path) => read_file(&word.path, Path::new(&path))?,
        };
        if arguments.insert(word.path.clone(), text).is_some() {
            let message = format!("`{}` is given twice", word.path);
            return Err(Failure::usage(message, "give it once").at(&word.path));
        }
    }
    Ok(arguments)
}

/// Whether there is such a prompt, and it is given what it takes.
fn check(
    name: &str,
    arguments: &BTreeMap<String, String>,
    known: &[Prompt],
) -> Result<(), Failure> {
    let Some(prompt) = known.iter().find(|it| it.name == name) else {
        let names: Vec<&str> = known.iter().map(|it| it.name.as_str()).collect();
        let close = meant(&near(name, names.iter().copied()));
        let hint = format!("the prompts are: {}", plain_text(&names.join(", "), 500));
        return Err(Failure::unknown(format!("there is no prompt `{name}`{close}"), hint));
    };
    let listed = prompt.arguments.as_deref().unwrap_or_default();
    let hint = match takes(prompt).as_str() {
        "" => format!("`{name}` takes no arguments"),
        takes => format!("`{name}` takes: {takes}"),
    };
    let fault = |field: &str, message: String| {
        ServiceFault::new(ErrorCode::ValidationError, message).at(field).hint(hint.clone())
    };
    let mut faults = Vec::new();
    for it in listed.iter().filter(|it| it.required.unwrap_or_default()) {
        if !arguments.contains_key(&it.name) {
            faults.push(fault(&it.name, format!("`{}` is missing", it.name)));
        }
    }
    for given in arguments.keys().filter(|it| listed.iter().all(|known| known.name != **it)) {
        let close = meant(&near(given, listed.iter().map(|it| it.name.as_str())));
        faults.push(fault(given, format!("there is no argument `{given}`{close}")));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::all(Verdict::Usage, faults)) }
}

fn show(result: &GetPromptResult, printer: &Printer) -> Result<(), Failure> {
    if printer.output() != Output::Table {
        // It was read from JSON, so it can be written as JSON.
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
            render_content::of_block(&message.content, &mut Files::into(None))?
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
        let given = given.iter().map(|&it| (it.to_owned(), "x".to_owned())).collect();
        let outcome = check(name, &given, &known);
        let messages: Vec<String> = outcome
            .err()
            .map(|it| it.faults().iter().map(|it| it.message.clone()).collect())
            .unwrap_or_default();
        assert_eq!(messages, expected);
    }

    #[test]
    fn a_prompt_is_given_what_it_takes() {
        check_call("greeting", &["name"], &[]);
        check_call("greeting", &["name", "style"], &[]);
        check_call("greeting", &[], &["`name` is missing"]);
        check_call(
            "greeting",
            &["nmae"],
            &["`name` is missing", "there is no argument `nmae`; did you mean `name`?"],
        );
        check_call("greting", &[], &["there is no prompt `greting`; did you mean `greeting`?"]);
    }
}
