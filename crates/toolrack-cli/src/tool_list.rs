//! A list of tools, as a table, with their schemas, or as JSON.

use serde::Serialize;
use serde_json::Value;
use toolrack_manager::ToolWithServer;
use toolrack_mcp::Tool;
use toolrack_transport::plain_text;

use crate::output::List;
use crate::server_selection::Kind;
use crate::tool_args::coerce::signature;
use crate::tool_args::schema::Schema;

/// The longest description that is read for a table; it is cut to its terminal later.
const MOST_CHARS: usize = 400;

/// A tool as it leaves the program: what its server says, and whose it is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    server: &'a str,
    public_name: &'a str,
    #[serde(flatten)]
    tool: &'a Tool,
}

/// The list for a table or a program.
pub(crate) fn list(tools: &[ToolWithServer], kind: Kind) -> List {
    let rows = tools.iter().map(|it| vec![typed(it, kind), description(it.tool())]);
    List { columns: &["TOOL", "DESCRIPTION"], rows: rows.collect(), items: items(tools) }
}

fn items(tools: &[ToolWithServer]) -> Vec<String> {
    let item = |it: &ToolWithServer| {
        let item = Item { server: it.server(), public_name: it.name(), tool: it.tool() };
        // A tool was read from JSON, so it can be written as JSON.
        serde_json::to_string(&item).unwrap_or_default()
    };
    tools.iter().map(item).collect()
}

/// What a person types to mean the tool.
pub(crate) fn typed(tool: &ToolWithServer, kind: Kind) -> String {
    let name = plain_text(&tool.tool().name, MOST_CHARS);
    match kind {
        Kind::Typed => name,
        Kind::Configured => format!("{}.{name}", tool.server()),
    }
}

/// The first line of what a tool does.
pub(crate) fn description(tool: &Tool) -> String {
    let text = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    plain_text(text.trim().lines().next().unwrap_or_default(), MOST_CHARS)
}

/// Each tool with everything it takes.
pub(crate) fn with_schemas(tools: &[ToolWithServer], kind: Kind) -> String {
    let blocks: Vec<String> = tools.iter().map(|it| block(it, kind)).collect();
    blocks.join("\n\n")
}

fn block(tool: &ToolWithServer, kind: Kind) -> String {
    let schema: Value = serde_json::from_str(tool.tool().input_schema.get()).unwrap_or_default();
    let schema = Schema::new(&schema);
    let mut lines =
        vec![format!("{}({})", typed(tool, kind), plain_text(&signature(schema), 1000))];
    let text = tool.tool().description.as_deref().unwrap_or_default();
    lines.extend(text.trim().lines().map(|it| format!("    {}", plain_text(it, 1000))));
    for name in schema.names() {
        let place = schema.property(name);
        if let Some(about) = place.and_then(Schema::description) {
            lines.push(format!(
                "    {}: {}",
                plain_text(name, MOST_CHARS),
                plain_text(about, MOST_CHARS)
            ));
        }
    }
    lines.join("\n")
}
