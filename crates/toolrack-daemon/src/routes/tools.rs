//! `/api/tools`: every tool that can be called.

use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolrack_manager::ToolWithServer;
use toolrack_transport::clean_text;
use utoipa::ToSchema;

use crate::openapi::AnyJson;
use crate::problem::Problem;
use crate::state::App;

/// A tool that can be called.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolView {
    /// The public name, to call it by.
    name: String,
    /// Whose it is.
    server: String,
    /// What its server calls it.
    raw_name: String,
    /// The name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// The JSON Schema of its arguments, as its server wrote it.
    #[schema(value_type = AnyJson)]
    input_schema: Box<RawValue>,
    /// The JSON Schema of its structured result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<AnyJson>)]
    output_schema: Option<Box<RawValue>>,
    /// Whether its server runs right now.
    is_connected: bool,
}

/// All tools.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolList {
    tools: Vec<ToolView>,
}

/// Which tools are wanted.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ToolQuery {
    /// Only those of this server, by its name.
    server: Option<String>,
}

/// Every tool that is offered, with its schema
#[utoipa::path(get, path = "/api/tools", tag = "tools", params(ToolQuery),
    responses((status = 200, body = ToolList), (status = "default", body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    query: Result<Query<ToolQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<ToolList>, Problem> {
    let Query(query) = query.map_err(crate::extract::refused)?;
    let tools = app.service.rack().all_tools();
    let is_wanted =
        |it: &&ToolWithServer| query.server.as_deref().is_none_or(|name| **it.server() == *name);
    let tools = tools.iter().filter(is_wanted).map(|it| view(&app, it)).collect();
    Ok(Json(ToolList { tools }))
}

fn view(app: &App, tool: &ToolWithServer) -> ToolView {
    let plain = tool.tool();
    let clean = |text: &String| clean_text(text).into_owned();
    ToolView {
        name: tool.name().as_ref().to_owned(),
        server: tool.server().as_ref().to_owned(),
        raw_name: plain.name.clone(),
        title: plain.title.as_ref().map(clean),
        description: plain.description.as_ref().map(clean),
        input_schema: plain.input_schema.clone(),
        output_schema: plain.output_schema.clone(),
        is_connected: app.service.rack().server(tool.server()).is_ok_and(|it| it.is_connected()),
    }
}
