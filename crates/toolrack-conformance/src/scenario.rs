//! Calls that a conformance scenario expects: every tool, and named extras.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use toolrack_client::{CallError, CallOptions, McpClient};

use crate::auto_handler;
use crate::settings::Settings;

pub(crate) async fn run(client: &McpClient, settings: &Settings) -> Result<()> {
    match settings.scenario.as_str() {
        "json-schema-2020-12-preservation" => return echo_schema(client).await,
        "http-standard-headers" => read_resources_and_prompts(client).await?,
        _ => {}
    }
    if settings.context.tool_calls.is_empty() {
        for tool in &client.tools().items {
            call(client, &tool.name, &auto_handler::tool_arguments(tool)).await?;
        }
    }
    for options in &settings.context.tool_calls {
        call(client, &options.name, &options.arguments).await?;
    }
    Ok(())
}

async fn call(client: &McpClient, tool: &str, arguments: &Value) -> Result<()> {
    match client.call_tool(tool, arguments).await {
        // A refused call still counts as made.
        Err(CallError::Refused(error)) => {
            crate::print_error(&format!("`{tool}` was refused: {error}"));
        }
        outcome => drop(outcome.with_context(|| format!("calling `{tool}`"))?),
    }
    Ok(())
}

/// The suite checks the schema of one tool as the client received it.
async fn echo_schema(client: &McpClient) -> Result<()> {
    let tools = client.tools();
    let tool = tools.items.iter().find(|tool| tool.name == "json_schema_2020_12_tool");
    let tool = tool.context("no tool `json_schema_2020_12_tool`")?;
    let schema: Value = serde_json::from_str(tool.input_schema.get())?;
    call(client, "json_schema_echo", &json!({ "schema": schema })).await
}

/// Reads every resource and prompt, because their names go into headers as well.
async fn read_resources_and_prompts(client: &McpClient) -> Result<()> {
    let options = CallOptions::default();
    if client.capabilities().resources.is_some() {
        for resource in &client.list_resources().await?.items {
            client.read_resource(&resource.uri, &options).await?;
        }
    }
    if client.capabilities().prompts.is_some() {
        for prompt in &client.list_prompts().await?.items {
            client.get_prompt(&prompt.name, &BTreeMap::new(), &options).await?;
        }
    }
    Ok(())
}
