//! `toolrack tools`: which tools there are, and what they take.

use toolrack_manager::{McpConnection, ToolWithServer};

use crate::args::target::TargetOptions;
use crate::args::tools::{ConductOptions, ToolsOptions};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::Output;
use crate::printer::Printer;
use crate::server_selection::{Kind, Servers};
use crate::server_session::{Rack, with_rack};
use crate::{fan_out, tool_list, unlisted_servers};

/// Lists the tools of one server or of all.
pub(crate) async fn tools(
    options: ToolsOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let servers = chosen(&options.target, options.server.as_deref(), surroundings)?;
    let kind = servers.kind;
    with_rack(servers, &ConductOptions::default(), surroundings, async |rack: &Rack| {
        if options.cached {
            let absent = rack.recall().await?;
            show(&rack.tools(), kind, &options, printer);
            unlisted_servers::note(&absent, printer);
            return Ok(());
        }
        let roll = fan_out::call(rack, async |_: &McpConnection| Ok(())).await;
        for (connection, ()) in &roll.answers {
            if let Some(listing) = connection.listing() {
                fan_out::remark(listing, "tools", connection.name(), printer);
            }
        }
        if roll.has_answers() {
            let is_live = |it: &&ToolWithServer| {
                roll.answers.iter().any(|(connection, ())| connection.name() == &**it.server())
            };
            let live: Vec<ToolWithServer> = rack.tools().iter().filter(is_live).cloned().collect();
            show(&live, kind, &options, printer);
        }
        roll.close(printer)
    })
    .await
}

/// The servers that a command is about: the one that was named, or all.
pub(crate) fn chosen(
    target: &TargetOptions,
    server: Option<&str>,
    surroundings: &Surroundings,
) -> Result<Servers, Failure> {
    let servers = Servers::find(target, &surroundings.settings, &surroundings.printer)?;
    match (server, servers.kind) {
        (Some(name), Kind::Typed) => Err(Failure::usage(
            format!("`{name}` is a server of the config, and another one is named besides"),
            "leave one of them out",
        )),
        (Some(name), Kind::Configured) => {
            servers.server(name)?;
            Ok(servers.keep(|it| it == name))
        }
        (None, _) if servers.configs.is_empty() => Err(Servers::nobody()),
        (None, _) => Ok(servers),
    }
}

fn show(tools: &[ToolWithServer], kind: Kind, options: &ToolsOptions, printer: &Printer) {
    if tools.is_empty() {
        printer.note("note: there are no tools");
    }
    if options.schema && printer.output() == Output::Table && !tools.is_empty() {
        return printer.line(tool_list::with_schemas(tools, kind));
    }
    printer.list(&tool_list::list(tools, kind));
}
