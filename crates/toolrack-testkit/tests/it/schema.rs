//! Validation against the official MCP schemas.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Value, json};
use toolrack_testkit::skipped;

use crate::peer::Peer;

/// Asserts that every message of the server is valid in the revision.
pub(crate) fn assert_valid(peer: &Peer, revision: &str, test: &str) {
    assert_all_valid(&peer.received, &peer.sent_requests, revision, test);
}

/// The same for other messages, with the methods of the requests that they may answer.
pub(crate) fn assert_all_valid(
    received: &[Value],
    sent_requests: &[(Value, String)],
    revision: &str,
    test: &str,
) {
    let Some(schema) = Schema::load(revision) else {
        return skipped(test, "the official schemas are not there");
    };
    for message in received {
        schema.check(message, sent_requests);
    }
}

struct Schema {
    root: Value,
    definitions: &'static str,
    /// Building a validator takes far longer than using it.
    validators: Mutex<HashMap<String, Validator>>,
}

impl Schema {
    fn load(revision: &str) -> Option<Self> {
        let dir =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/protocol/schemas");
        let text = std::fs::read_to_string(dir.join(format!("{revision}.json"))).ok()?;
        let root: Value = serde_json::from_str(&text).expect("a schema is JSON");
        let definitions = if root.get("$defs").is_some() { "$defs" } else { "definitions" };
        Some(Self { root, definitions, validators: Mutex::default() })
    }

    fn has(&self, name: &str) -> bool {
        self.root.pointer(&format!("/{}/{name}", self.definitions)).is_some()
    }

    fn check(&self, message: &Value, sent_requests: &[(Value, String)]) {
        self.assert(message, "JSONRPCMessage");
        if message.get("method").is_some() {
            let kind =
                if message.get("id").is_some() { "ServerRequest" } else { "ServerNotification" };
            return self.assert(message, kind);
        }
        let Some(result) = message.get("result") else { return };
        let id = message.get("id").expect("a result has an id");
        let sent_requests = sent_requests.iter().find(|(sent_requests, _)| sent_requests == id);
        let (_, method) = sent_requests.expect("every answer has its request");
        if result.get("resultType") == Some(&json!("input_required")) {
            return self.assert(result, "InputRequiredResult");
        }
        self.assert(result, result_of(method));
        let response = format!("{}Response", result_of(method));
        if self.has(&response) {
            self.assert(message, &response);
        }
    }

    fn assert(&self, value: &Value, definition: &str) {
        assert!(self.has(definition), "no definition {definition}");
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        let validator = validators.entry(definition.to_owned()).or_insert_with(|| {
            let mut schema = self.root.clone();
            schema["$ref"] = json!(format!("#/{}/{definition}", self.definitions));
            jsonschema::validator_for(&schema).expect("a schema")
        });
        let faults: Vec<String> = validator
            .iter_errors(value)
            .map(|iter_errors| format!("{}: {iter_errors}", iter_errors.instance_path()))
            .collect();
        assert_eq!(faults, Vec::<String>::new(), "{value} is no {definition}");
    }
}

fn result_of(method: &str) -> &'static str {
    match method {
        "initialize" => "InitializeResult",
        "server/discover" => "DiscoverResult",
        "tools/list" => "ListToolsResult",
        "tools/call" => "CallToolResult",
        "resources/list" => "ListResourcesResult",
        "resources/templates/list" => "ListResourceTemplatesResult",
        "resources/read" => "ReadResourceResult",
        "prompts/list" => "ListPromptsResult",
        "prompts/get" => "GetPromptResult",
        "completion/complete" => "CompleteResult",
        "subscriptions/listen" => "SubscriptionsListenResult",
        _ => "EmptyResult",
    }
}

#[test]
fn invalid_message_fails_validation() {
    let check = |revision: &str, definition: &str, value: Value| {
        let Some(schema) = Schema::load(revision) else {
            return skipped(
                "a_message_that_breaks_the_schema",
                "the official schemas are not there",
            );
        };
        let outcome = std::panic::catch_unwind(|| schema.assert(&value, definition));
        assert!(outcome.is_err(), "{value} passed for a {definition} of {revision}");
    };
    let negative =
        json!({ "resultType": "complete", "tools": [], "ttlMs": -1, "cacheScope": "public" });
    check("2026-07-28", "ListToolsResult", negative);
    check("2026-07-28", "CallToolResult", json!({ "content": [] }));
    let unknown = json!({ "jsonrpc": "2.0", "method": "notifications/none" });
    check("2026-07-28", "ServerNotification", unknown.clone());
    check("2024-11-05", "ServerNotification", unknown);
    check("2024-11-05", "CallToolResult", json!({ "content": [{ "type": "audio" }] }));
}
