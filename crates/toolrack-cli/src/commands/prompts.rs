//! `toolrack prompts`: which prompts there are, and what they take.

use std::sync::Arc;

use toolrack_manager::McpConnection;
use toolrack_mcp::Prompt;
use toolrack_transport::plain_text;

use crate::args::list::PromptsOptions;
use crate::args::tools::ConductOptions;
use crate::commands::resources::item;
use crate::commands::tools::chosen;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::fan_out;
use crate::output::List;
use crate::server_session::{Rack, with_rack};

const MOST_CHARS: usize = 400;

/// Lists the prompts of one server or of all.
pub(crate) async fn prompts(
    options: PromptsOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let servers = chosen(&options.target, options.server.as_deref(), surroundings)?;
    with_rack(servers, &ConductOptions::default(), surroundings, async |rack: &Rack| {
        let roll = fan_out::call(rack, async |connection: &McpConnection| {
            let Some(client) = connection.client() else { return Ok(Arc::default()) };
            fan_out::or_none(client.list_prompts().await)
        })
        .await;
        let mut list = List {
            columns: &["SERVER", "PROMPT", "ARGUMENTS", "DESCRIPTION"],
            rows: Vec::new(),
            items: Vec::new(),
        };
        for (connection, prompts) in &roll.answers {
            fan_out::remark(prompts, "prompts", connection.name(), printer);
            for it in &prompts.items {
                list.rows.push(row(connection.name(), it));
                list.items.push(item(connection.name(), it));
            }
        }
        roll.show(&list, "prompts", printer)
    })
    .await
}

fn row(server: &str, prompt: &Prompt) -> Vec<String> {
    let about = prompt.description.as_deref().or(prompt.title.as_deref()).unwrap_or_default();
    let shown = |it: &str| plain_text(it, MOST_CHARS);
    vec![server.to_owned(), shown(&prompt.name), shown(&takes(prompt)), shown(about)]
}

/// What a prompt takes, in one line: `name, style?`.
pub(crate) fn takes(prompt: &Prompt) -> String {
    let arguments = prompt.arguments.as_deref().unwrap_or_default().iter().map(|it| {
        let mark = if it.required.unwrap_or_default() { "" } else { "?" };
        format!("{}{mark}", it.name)
    });
    arguments.collect::<Vec<_>>().join(", ")
}
