//! Paginated tool list: built-in tools, tools added at run time, and generated ones.

use std::fmt::Write;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::client::PendingRequest;
use super::options::Options;
use crate::jsonrpc::{Params, Response, RpcError, RpcResult, insert, json_string};
use crate::plan::{Cursor, Fault};
use crate::revision::Revision;

/// Name, description, and names and types of the input properties.
const OWN: &[(&str, &str, &str)] = &[
    ("echo", "Returns `text`, and `nonce` as a second block", "text:string nonce:string"),
    ("add", "Adds two numbers", "a:number b:number"),
    ("sleep", "Answers after `ms`", "ms:integer nonce:string"),
    (
        "big",
        "A text of so many bytes, with characters that JSON escapes if `escapes`",
        "bytes:integer escapes:boolean",
    ),
    ("fail", "Always fails, as a tool does", "text:string"),
    (
        "progress",
        "Tells of `steps` steps, one each `ms`, then answers",
        "steps:integer ms:integer nonce:string",
    ),
    ("log", "Sends `count` log messages", "level:string text:string count:integer"),
    (
        "ask",
        "Asks the client for ping, roots, sampling, elicitation or state, and returns its answer",
        "kind:string rounds:integer force:boolean url:string count:integer",
    ),
    (
        "mutate_tools",
        "Adds a tool, or removes one that was added, and tells of it",
        "add:string remove:string",
    ),
    ("touch", "Tells that a resource was updated", "uri:string"),
    ("end_listens", "Ends every listen stream by a `result` or by `cancelled`", "how:string"),
    ("env", "The environment of the server", ""),
    ("fds", "The open descriptors of the server", ""),
    ("pid", "The server's process, parent, group and session", ""),
];

#[derive(Debug)]
pub(super) struct ToolList {
    n_generated: usize,
    schema_bytes: u64,
    page_size: Option<usize>,
    /// Definitions of optional tools.
    special: Vec<Value>,
    pub(super) added: Mutex<Vec<String>>,
}

impl ToolList {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            n_generated: usize::try_from(options.n_tools).unwrap_or(usize::MAX),
            schema_bytes: options.schema_bytes,
            page_size: options.page_size,
            special: options.header_tools.list(),
            added: Mutex::default(),
        }
    }

    pub(super) fn has_special(&self, name: &str) -> bool {
        self.special.iter().any(|tool| tool.get("name").and_then(Value::as_str) == Some(name))
    }

    /// Whether the tool only returns its own name.
    pub(super) fn is_extra(&self, name: &str) -> bool {
        let number = name.strip_prefix("tool_").and_then(|rest| rest.parse::<usize>().ok());
        number.is_some_and(|number| (1..=self.n_generated).contains(&number))
            || self.added.lock().iter().any(|added| added == name)
    }

    /// Definition of the tool at an index of the whole list.
    fn tool(&self, index: usize, added: &[String], revision: Revision) -> Option<String> {
        if let Some((name, description, properties)) = OWN.get(index) {
            return Some(own_tool(name, description, properties, revision).to_string());
        }
        let index = index - OWN.len();
        if let Some(tool) = self.special.get(index) {
            return Some(tool.to_string());
        }
        let index = index - self.special.len();
        let name = match added.get(index) {
            Some(name) => name.clone(),
            None => format!("tool_{:05}", index.checked_sub(added.len())? + 1),
        };
        Some(format!(
            r#"{{"name":{},"description":"Says its own name","inputSchema":{}}}"#,
            json_string(&name),
            schema_of(self.schema_bytes)
        ))
    }

    pub(super) fn list(&self, pending: &PendingRequest, params: &Params<'_>) -> RpcResult {
        let planned = planned_cursor(pending, params);
        let added = self.added.lock().clone();
        let total = OWN.len() + self.special.len() + added.len() + self.n_generated;
        let from = match (&planned, params.cursor.as_deref()) {
            (Some(_), _) | (None, None) => 0,
            (None, Some(cursor)) => from_cursor(cursor, total)?,
        };
        let to = self.page_size.map_or(total, |size| from.saturating_add(size).min(total));
        let tools: Vec<String> =
            (from..to).filter_map(|index| self.tool(index, &added, pending.revision)).collect();
        let mut members = format!(r#""tools":[{}]"#, tools.join(","));
        let next = planned.or_else(|| (to < total).then(|| format!("from-{to}")));
        if let Some(next) = next {
            // Writing to a string cannot fail.
            write!(members, r#","nextCursor":{}"#, json_string(&next)).unwrap_or_default();
        }
        Ok(Response::Cacheable(members))
    }
}

/// Cursor that the plan puts into a list.
pub(super) fn planned_cursor(pending: &PendingRequest, params: &Params<'_>) -> Option<String> {
    let planned = pending.faults.iter().rev().find_map(|fault| match fault {
        Fault::Cursor(cursor) => Some(*cursor),
        _ => None,
    })?;
    Some(match planned {
        Cursor::Same => "again".to_owned(),
        Cursor::Empty => String::new(),
        Cursor::Endless => {
            let number = params.cursor.as_deref().and_then(|cursor| cursor.parse().ok());
            (number.unwrap_or(0_u64) + 1).to_string()
        }
    })
}

pub(super) fn from_cursor(cursor: &str, total: usize) -> Result<usize, RpcError> {
    let index = cursor.strip_prefix("from-").and_then(|rest| rest.parse().ok());
    index
        .filter(|index| *index <= total)
        .ok_or_else(|| RpcError::invalid_params(format!("no cursor `{cursor}`")))
}

fn own_tool(name: &str, description: &str, properties: &str, revision: Revision) -> Value {
    let property = |property: &str| {
        let (name, kind) = property.split_once(':')?;
        Some((name.to_owned(), json!({ "type": kind })))
    };
    let properties: Map<String, Value> = properties.split(' ').filter_map(property).collect();
    let mut tool = json!({
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": properties },
    });
    let read_only = !matches!(name, "mutate_tools" | "touch" | "end_listens");
    let annotations = json!({ "readOnlyHint": read_only });
    insert(&mut tool, "annotations", (revision >= Revision::R2025_03_26).then_some(annotations));
    let is_titled = revision >= Revision::R2025_06_18;
    insert(&mut tool, "title", is_titled.then(|| json!(format!("The tool {name}"))));
    let sum = json!({ "sum": { "type": "number" } });
    let schema = json!({ "type": "object", "properties": sum, "required": ["sum"] });
    insert(&mut tool, "outputSchema", (is_titled && name == "add").then_some(schema));
    tool
}

/// A schema of at least the given size.
fn schema_of(bytes: u64) -> String {
    let mut schema = r#"{"type":"object","properties":{"nonce":{"type":"string"}"#.to_owned();
    let mut number = 0_u32;
    while (schema.len() as u64 + 2) < bytes {
        // Writing to a string cannot fail.
        write!(schema, r#","option_{number}":{{"type":"string","description":"Option {number}"}}"#)
            .unwrap_or_default();
        number += 1;
    }
    schema.push_str("}}");
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_schema_is_json_of_at_least_its_size() {
        for bytes in [0, 100, 10_000] {
            let schema = schema_of(bytes);
            assert!(schema.len() as u64 >= bytes, "{} < {bytes}", schema.len());
            let parsed: Value = serde_json::from_str(&schema).expect("JSON");
            assert_eq!(parsed.get("type"), Some(&json!("object")));
        }
    }

    #[test]
    fn built_in_tool_inputs_are_json() {
        for (name, description, properties) in OWN {
            let tool = own_tool(name, description, properties, Revision::R2025_11_25);
            let parsed = tool.pointer("/inputSchema/properties").and_then(Value::as_object);
            let n_properties = properties.split_whitespace().count();
            assert_eq!(parsed.map(Map::len), Some(n_properties), "{name}");
        }
    }
}
