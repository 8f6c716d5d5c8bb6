//! `toolrack resources`: what can be read, and families of it.

use serde::Serialize;
use toolrack_manager::McpConnection;
use toolrack_mcp::{Resource, ResourceTemplate};
use toolrack_transport::plain_text;

use crate::args::list::ResourcesOptions;
use crate::args::tools::ConductOptions;
use crate::commands::tools::chosen;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::fan_out;
use crate::output::List;
use crate::server_session::{Rack, with_rack};

const MOST_CHARS: usize = 400;

/// A resource or a family, as it leaves the program.
#[derive(Serialize)]
struct Item<'a, T> {
    server: &'a str,
    #[serde(flatten)]
    item: &'a T,
}

/// Lists the resources of one server or of all.
pub(crate) async fn resources(
    options: ResourcesOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let servers = chosen(&options.target, options.server.as_deref(), surroundings)?;
    with_rack(servers, &ConductOptions::default(), surroundings, async |rack: &Rack| {
        let roll = fan_out::call(rack, async |connection: &McpConnection| {
            let Some(client) = connection.client() else { return Ok(Default::default()) };
            let resources = fan_out::or_none(client.list_resources().await)?;
            let templates = fan_out::or_none(client.list_resource_templates().await)?;
            Ok((resources, templates))
        })
        .await;
        let mut list = List {
            columns: &["SERVER", "URI", "NAME", "TYPE", "DESCRIPTION"],
            rows: Vec::new(),
            items: Vec::new(),
        };
        for (connection, (resources, templates)) in &roll.answers {
            let server = connection.name();
            fan_out::remark(resources, "resources", server, printer);
            fan_out::remark(templates, "resource templates", server, printer);
            for it in &resources.items {
                list.rows.push(row(server, of_resource(it)));
                list.items.push(item(server, it));
            }
            for it in &templates.items {
                list.rows.push(row(server, of_template(it)));
                list.items.push(item(server, it));
            }
        }
        roll.show(&list, "resources", printer)
    })
    .await
}

/// A thing of a server as JSON.
pub(crate) fn item<T: Serialize>(server: &str, item: &T) -> String {
    // It was read from JSON, so it can be written as JSON.
    serde_json::to_string(&Item { server, item }).unwrap_or_default()
}

fn row(server: &str, cells: [Option<&str>; 4]) -> Vec<String> {
    let cells = cells.map(|it| plain_text(it.unwrap_or_default(), MOST_CHARS));
    std::iter::once(server.to_owned()).chain(cells).collect()
}

fn of_resource(it: &Resource) -> [Option<&str>; 4] {
    [Some(&it.uri), Some(&it.name), it.mime_type.as_deref(), it.description.as_deref()]
}

fn of_template(it: &ResourceTemplate) -> [Option<&str>; 4] {
    [Some(&it.uri_template), Some(&it.name), it.mime_type.as_deref(), it.description.as_deref()]
}
