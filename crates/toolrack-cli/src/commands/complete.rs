//! `toolrack __complete`: what could be typed next, from the config and what is remembered of tools.
//!
//! **Invariant:** nothing is started, and whatever goes wrong says nothing: a person is in the middle of typing.

use clap::CommandFactory as _;
use serde_json::Value;
use toolrack_manager::ToolWithServer;
use toolrack_transport::plain_text;

use crate::args::{Arguments, CompleteOptions};
use crate::complete::{Known, KnownTool, candidates};
use crate::context::Surroundings;
use crate::output::Output;
use crate::printer::Printer;
use crate::server_selection::{Kind, Servers};
use crate::server_session::Rack;
use crate::tool_args::schema::Schema;
use crate::tool_list;

/// Prints one candidate to a line, each with a tab and a few words.
pub(crate) async fn complete(options: &CompleteOptions, surroundings: &Surroundings) {
    let known = known(surroundings).await.unwrap_or_default();
    for it in candidates(&Arguments::command(), &options.words, &known) {
        let about = plain_text(&it.about, 80);
        surroundings.printer.line(format_args!("{}\t{about}", it.text));
    }
}

async fn known(surroundings: &Surroundings) -> Option<Known> {
    // Notes about the config belong to other moments.
    let silent = Printer::plain(Output::Table).silenced();
    let servers = Servers::configured(&surroundings.settings, &silent).ok()?;
    let names = servers.names().map(str::to_owned).collect();
    let rack = Rack::open(servers, None, None, surroundings).await.ok()?;
    rack.recall().await.ok()?;
    let tools = rack.tools().iter().map(known_tool).collect();
    drop(rack);
    Some(Known { servers: names, tools })
}

fn known_tool(tool: &ToolWithServer) -> KnownTool {
    let schema: Value = serde_json::from_str(tool.tool().input_schema.get()).unwrap_or_default();
    let arguments = Schema::new(&schema).names().into_iter().map(str::to_owned).collect();
    let about = tool_list::description(tool.tool());
    KnownTool { name: tool_list::typed(tool, Kind::Configured), about, arguments }
}
