//! Validates every message the client sends against the official schemas.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use serde_json::{Value, json};

/// Follows one session and validates the client's messages.
#[derive(Debug, Default)]
pub(crate) struct SchemaValidator {
    /// Current legacy revision; `None` in the modern era.
    legacy: Option<String>,
    /// Methods of server requests, by id.
    server_requests: HashMap<String, String>,
}

impl SchemaValidator {
    /// Records a server message.
    pub(crate) fn record(&mut self, text: &str) {
        match serde_json::from_str(text) {
            Ok(Value::Array(batch)) => batch.iter().for_each(|message| self.record_one(message)),
            Ok(message) => self.record_one(&message),
            Err(_not_json) => {}
        }
    }

    fn record_one(&mut self, message: &Value) {
        if let Some(version) = message.pointer("/result/protocolVersion").and_then(Value::as_str) {
            self.legacy = Some(released_version(version)).filter(|version| version != "2026-07-28");
        }
        if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
            self.server_requests.insert(id.to_string(), method.to_owned());
        }
    }

    /// Returns the schema errors of a client message.
    pub(crate) fn check(&mut self, text: &str) -> Vec<String> {
        let message: Value = serde_json::from_str(text).expect("the client writes JSON");
        let method = message["method"].as_str();
        if method == Some("initialize") {
            self.legacy = message["params"]["protocolVersion"].as_str().map(released_version);
        }
        let meta = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        let modern = Some("2026-07-28");
        let revision = meta.as_str().or(self.legacy.as_deref()).or(modern).unwrap_or_default();
        let mut errors = errors(revision, "JSONRPCMessage", &message);
        let extension =
            method.filter(|_| revision == "2026-07-28").and_then(task_request_definition);
        if let Some(definition) = extension {
            errors.extend(self::errors("ext-tasks-draft-e434597", definition, &message));
            return errors;
        }
        let (definition, part) = match (method, message.get("id"), message.get("result")) {
            (Some(_), Some(_), _) => ("ClientRequest", &message),
            (Some(_), None, _) => ("ClientNotification", &message),
            (None, Some(id), Some(result)) => (self.result_of(id), result),
            (None, ..) => return errors,
        };
        if method.is_none() && revision == "2026-07-28" {
            errors.push("the client responds to a modern server".to_owned());
        }
        errors.extend(self::errors(revision, definition, part));
        errors
    }

    fn result_of(&self, id: &Value) -> &'static str {
        match self.server_requests.get(&id.to_string()).map(String::as_str) {
            Some("roots/list") => "ListRootsResult",
            Some("sampling/createMessage") => "CreateMessageResult",
            Some("elicitation/create") => "ElicitResult",
            Some("ping") => "EmptyResult",
            other => panic!("response to an unknown request: {id} {other:?}"),
        }
    }
}

/// Schema definition of a request of the tasks extension.
fn task_request_definition(method: &str) -> Option<&'static str> {
    match method {
        "tasks/get" => Some("GetTaskRequest"),
        "tasks/update" => Some("UpdateTaskRequest"),
        "tasks/cancel" => Some("CancelTaskRequest"),
        _ => None,
    }
}

fn released_version(version: &str) -> String {
    if version == "2024-10-07" { "2024-11-05".to_owned() } else { version.to_owned() }
}

/// Validators by revision and definition: building one takes far longer than using it.
type Validators = HashMap<(String, &'static str), Option<Validator>>;

/// Schema errors of `value`; empty if the schemas are not available.
fn errors(revision: &str, definition: &'static str, value: &Value) -> Vec<String> {
    static VALIDATORS: OnceLock<Mutex<Validators>> = OnceLock::new();
    let mut validators =
        VALIDATORS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let key = (revision.to_owned(), definition);
    let validator = validators.entry(key).or_insert_with(|| validator(revision, definition));
    let Some(validator) = validator else { return Vec::new() };
    let errors = validator.iter_errors(value);
    errors.map(|error| format!("not a {definition} of {revision}: {error}")).collect()
}

fn validator(revision: &str, definition: &str) -> Option<Validator> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/protocol/schemas");
    let Ok(text) = std::fs::read_to_string(dir.join(format!("{revision}.json"))) else {
        let note =
            format!("SKIPPED: no official schema of {revision} to check `{definition}` with\n");
        std::io::stderr().write_all(note.as_bytes()).expect("stderr is there");
        return None;
    };
    let mut root: Value = serde_json::from_str(&text).expect("a schema is JSON");
    let place = if root.get("$defs").is_some() { "$defs" } else { "definitions" };
    root["$ref"] = json!(format!("#/{place}/{definition}"));
    Some(jsonschema::validator_for(&root).expect("a schema"))
}
