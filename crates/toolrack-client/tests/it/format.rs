//! What the client gave, as one line of a transcript.

use std::error::Error;

use toolrack_client::{CallError, ConnectError, Event, Listing, McpClient, McpToolResult};
use toolrack_mcp::{Era, ReadResourceResult, ResourceBody};

pub(crate) fn connection(outcome: &Result<McpClient, ConnectError>) -> String {
    match outcome {
        Ok(client) => {
            let era = match client.era() {
                Era::Legacy => "legacy",
                Era::Modern => "modern",
            };
            let tools = client.tools();
            let names: Vec<&str> = tools.items.iter().map(|it| it.name.as_str()).collect();
            format!("= connected: {era} {} tools {names:?}", client.revision())
        }
        Err(error) => match error.hint() {
            Some(hint) => format!("= not connected: {}\n= hint: {hint}", chain(error)),
            None => format!("= not connected: {}", chain(error)),
        },
    }
}

pub(crate) fn outcome<T>(outcome: Result<T, CallError>, show: impl FnOnce(T) -> String) -> String {
    match outcome {
        Ok(value) => show(value),
        Err(error) => format!("failed, {:?}: {}", error.delivery(), chain(&error)),
    }
}

pub(crate) fn tool_result(result: McpToolResult) -> String {
    let kind = if result.is_error { "tool failed" } else { "ok" };
    format!("{kind} {:?}", result.content)
}

pub(crate) fn listing<T>(listing: &Listing<T>, name: impl Fn(&T) -> &str) -> String {
    let names: Vec<&str> = listing.items.iter().map(name).collect();
    let mut shown = vec![format!("{names:?}")];
    let skipped = listing.skipped.iter();
    shown.extend(skipped.map(|it| format!("skipped {} {:?}", it.index, it.name)));
    shown.extend(listing.cut.map(|it| format!("cut {it:?}")));
    shown.join(", ")
}

pub(crate) fn resource(result: &ReadResourceResult<'_>) -> String {
    let shown = result.contents.iter().map(|it| match &it.body {
        ResourceBody::Text(text) => format!("{} {text:?}", it.uri),
        ResourceBody::Blob(blob) => format!("{} {} base64", it.uri, blob.len()),
    });
    let shown = shown.collect::<Vec<_>>();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

pub(crate) fn event(event: &Event) -> String {
    match event {
        Event::ResourceUpdated { uri } => format!("resource updated {uri}"),
        Event::Log(message) => format!("log {}: {}", message.level.as_str(), message.data.get()),
        Event::ElicitationComplete { id } => format!("elicitation complete {id}"),
        Event::SubscriptionEnded { uris } => format!("subscription ended {uris:?}"),
        Event::Missed(count) => format!("missed {count}"),
        Event::Ended(ending) => format!("ended: {ending}"),
        other => format!("{other:?}"),
    }
}

fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}
