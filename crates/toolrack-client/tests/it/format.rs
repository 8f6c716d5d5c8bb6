//! Formats client results as transcript lines.

use std::error::Error;

use toolrack_client::{CallError, ConnectError, Event, List, McpClient, McpToolResult};
use toolrack_mcp::{Era, LogMessage, ReadResourceResult, ResourceBody};

pub(crate) fn connection(outcome: &Result<McpClient, ConnectError>) -> String {
    match outcome {
        Ok(client) => {
            let era = match client.era() {
                Era::Legacy => "legacy",
                Era::Modern => "modern",
            };
            let tools = client.tools();
            let names: Vec<&str> = tools.items.iter().map(|tool| tool.name.as_str()).collect();
            format!("= connected: {era} {} tools {names:?}", client.revision())
        }
        Err(error) => match error.hint() {
            Some(hint) => format!("= connect failed: {}\n= hint: {hint}", chain(error)),
            None => format!("= connect failed: {}", chain(error)),
        },
    }
}

pub(crate) fn outcome<T>(
    outcome: Result<T, CallError>,
    format: impl FnOnce(T) -> String,
) -> String {
    match outcome {
        Ok(value) => format(value),
        Err(error) => format!("failed ({:?}): {}", error.delivery(), chain(&error)),
    }
}

pub(crate) fn tool_result(result: McpToolResult) -> String {
    let kind = if result.is_error { "tool error" } else { "ok" };
    format!("{kind} {:?}", result.content)
}

pub(crate) fn list<T>(list: &List<T>, name: impl Fn(&T) -> &str) -> String {
    let names: Vec<&str> = list.items.iter().map(name).collect();
    let mut parts = vec![format!("{names:?}")];
    let skipped = list.skipped.iter();
    parts.extend(skipped.map(|entry| format!("skipped {} {:?}", entry.index, entry.name)));
    parts.extend(list.truncated.map(|reason| format!("truncated {reason:?}")));
    parts.join(", ")
}

pub(crate) fn log(message: &LogMessage) -> String {
    let level = serde_json::to_value(message.level).unwrap();
    format!("log {}: {}", level.as_str().unwrap(), message.data.get())
}

pub(crate) fn resource(result: &ReadResourceResult) -> String {
    let contents = result.contents.iter().map(|content| match &content.body {
        ResourceBody::Text(text) => format!("{} {text:?}", content.uri),
        ResourceBody::Blob(blob) => format!("{} {} base64", content.uri, blob.len()),
    });
    let contents = contents.collect::<Vec<_>>();
    if contents.is_empty() { "empty".to_owned() } else { contents.join(", ") }
}

pub(crate) fn event(event: &Event) -> String {
    match event {
        Event::ResourceUpdated { uri } => format!("resource updated {uri}"),
        Event::Log(message) => log(message),
        Event::ElicitationComplete { id } => format!("elicitation complete {id}"),
        Event::SubscriptionEnded { uris } => format!("subscription ended {uris:?}"),
        Event::Lagged(count) => format!("lagged {count}"),
        Event::Closed(reason) => format!("closed: {reason}"),
        other => format!("{other:?}"),
    }
}

fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}
