//! `/api/tools`: tools of all servers.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolrack_manager::ToolWithServer;
use toolrack_transport::sanitize_text;
use utoipa::ToSchema;

use crate::extract::QueryParams;
use crate::openapi::AnyJson;
use crate::state::App;

/// A tool.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolView {
    /// The public name, by which the tool is called.
    name: String,
    /// The server that provides it.
    server: String,
    /// The server's name for it.
    raw_name: String,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// The description.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// JSON Schema of the arguments, as the server sent it.
    #[schema(value_type = AnyJson)]
    input_schema: Box<RawValue>,
    /// JSON Schema of the structured result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<AnyJson>)]
    output_schema: Option<Box<RawValue>>,
    /// Whether its server is connected.
    is_connected: bool,
}

/// A list of tools.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolList {
    tools: Vec<ToolView>,
}

/// Filter for tools.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ToolQuery {
    /// Only tools of this server, by name.
    server: Option<String>,
}

/// List tools with their schemas
#[utoipa::path(get, path = "/api/tools", tag = "tools", params(ToolQuery),
    responses((status = 200, body = ToolList)))]
pub(super) async fn list(
    State(app): State<App>,
    QueryParams(query): QueryParams<ToolQuery>,
) -> Json<ToolList> {
    let tools = app.service.manager().all_tools();
    let matches = |tool: &&ToolWithServer| {
        query.server.as_deref().is_none_or(|name| **tool.server() == *name)
    };
    let tools = tools.iter().filter(matches).map(|tool| tool_view(&app, tool)).collect();
    Json(ToolList { tools })
}

fn tool_view(app: &App, tool: &ToolWithServer) -> ToolView {
    let definition = tool.tool();
    let sanitize = |text: &String| sanitize_text(text).into_owned();
    let server = app.service.manager().server(tool.server());
    ToolView {
        name: tool.name().as_ref().to_owned(),
        server: tool.server().as_ref().to_owned(),
        raw_name: definition.name.clone(),
        title: definition.title.as_ref().map(sanitize),
        description: definition.description.as_ref().map(sanitize),
        input_schema: definition.input_schema.clone(),
        output_schema: definition.output_schema.clone(),
        is_connected: server.is_ok_and(|server| server.is_connected()),
    }
}
