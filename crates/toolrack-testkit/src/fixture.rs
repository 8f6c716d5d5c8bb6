//! Fixture server: every tool, prompt and resource that the official conformance suites expect, in both eras.
//!
//! It runs behind a gateway, so it speaks stdio only; the HTTP checks of the suites test the gateway.
//!
//! **Invariant:** slow work runs on a timer, and a cancelled call is never answered.

mod client_requests;
mod tools;

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client_requests::AwaitingClient;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tools::PIXEL;

use crate::jsonrpc::{self, Incoming, Params, Response, RpcError, error_code, severity};
use crate::message_sink::{MessageSink, PipeSink};
use crate::revision::{Era, Revision, SupportedRevisions};
use crate::timer::Timer;

/// `_meta` of every modern result.
const SERVER_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"toolrack-fixture","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);
const USAGE: &str = "fixture-server [--revision R]   R as for scripted-server (default dual)\n";

/// Serves one client until the end of input.
pub fn run(
    args: &[String],
    mut input: impl BufRead,
    output: impl Write + Send + 'static,
) -> io::Result<ExitCode> {
    let revisions = match args {
        [] => Ok(SupportedRevisions::Dual),
        [option, revision] if option == "--revision" => SupportedRevisions::parse(revision),
        _ => Err(USAGE.to_owned()),
    };
    let revisions = match revisions {
        Ok(revisions) => revisions,
        Err(error) => {
            io::stderr().write_all(error.as_bytes())?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let fixture = Arc::new(Fixture {
        revisions,
        sink: PipeSink::new(output),
        timer: Timer::start(),
        negotiated: Mutex::new(None),
        min_severity: Mutex::new(0),
        running: Mutex::default(),
        awaiting: Mutex::default(),
        subscriptions: Mutex::default(),
        n_client_requests: AtomicU64::new(0),
        n_tool_changes: AtomicU64::new(0),
        n_prompt_changes: AtomicU64::new(0),
    });
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        fixture.handle_line(&line);
        fixture.sink.flush();
        line.clear();
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug)]
struct Fixture {
    revisions: SupportedRevisions,
    sink: PipeSink,
    timer: Timer,
    negotiated: Mutex<Option<Revision>>,
    /// Minimum log severity that a legacy client has set.
    min_severity: Mutex<usize>,
    /// Calls in progress, by their ids as the client wrote them.
    running: Mutex<HashSet<String>>,
    awaiting: Mutex<Vec<AwaitingClient>>,
    /// Open subscriptions: request id and notification filter.
    subscriptions: Mutex<Vec<(String, Value)>>,
    n_client_requests: AtomicU64,
    /// How often the lists changed. Each list shows its latest dynamic entry.
    n_tool_changes: AtomicU64,
    n_prompt_changes: AtomicU64,
}

/// A request that waits for its response.
#[derive(Debug, Clone)]
struct PendingRequest {
    id: String,
    revision: Revision,
    token: Option<Box<RawValue>>,
    /// Minimum log severity that a modern request asks for.
    min_severity: Option<usize>,
}

impl Fixture {
    fn handle_line(self: &Arc<Self>, line: &[u8]) {
        let line = line.trim_ascii();
        match serde_json::from_slice::<Incoming<'_>>(line) {
            Ok(Incoming { method: Some(method), id: Some(id), params, .. }) => {
                self.handle_request(id, &method, params);
            }
            Ok(Incoming { method: Some(method), id: None, params, .. }) => {
                self.handle_notification(&method, params);
            }
            Ok(Incoming { id: Some(id), result, .. }) => self.handle_response(id, result),
            Ok(_) | Err(_) => {}
        }
    }

    fn handle_request(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let parsed = Params::parse(params)
            .and_then(|params| Ok((self.revision_of(method, &params)?, params)));
        let mut pending = PendingRequest {
            id: id.get().to_owned(),
            revision: Revision::R2025_11_25,
            token: None,
            min_severity: None,
        };
        let (revision, params) = match parsed {
            Ok(parsed) => parsed,
            Err(rpc_error) => return self.respond(&pending, &Response::Error(rpc_error)),
        };
        pending.revision = revision;
        pending.token = params.meta.progress_token.map(ToOwned::to_owned);
        pending.min_severity = params.meta.log_level.as_deref().and_then(severity);
        let response = match (method, revision.era()) {
            ("tools/call", _) => return self.call(pending, &params),
            ("subscriptions/listen", Era::Modern) => return self.listen(&pending, &params),
            ("initialize", Era::Legacy) => {
                *self.negotiated.lock() = Some(revision);
                Ok(initialize(revision))
            }
            ("server/discover", Era::Modern) => Ok(discover(self.revisions)),
            ("ping" | "resources/subscribe" | "resources/unsubscribe", Era::Legacy) => {
                Ok(Response::empty())
            }
            ("logging/setLevel", Era::Legacy) => {
                let level = params.level.as_deref().and_then(severity);
                *self.min_severity.lock() = level.unwrap_or_default();
                Ok(Response::empty())
            }
            ("prompts/get", Era::Modern) if client_requests::needs_input(&params) => {
                Ok(client_requests::prompt_with_input(&params))
            }

            _ => list_or_read(self, method, &params, revision),
        };
        self.respond(&pending, &response.into());
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        let id = Params::parse(params).ok().and_then(|params| params.request_id.map(RawValue::get));
        if let ("notifications/cancelled", Some(id)) = (method, id) {
            self.running.lock().remove(id);
            self.awaiting.lock().retain(|call| call.pending.id != id);
            self.subscriptions.lock().retain(|(listen, _)| listen != id);
        }
    }

    fn listen(&self, pending: &PendingRequest, params: &Params<'_>) {
        let filter = params.notifications.clone().unwrap_or_default();
        let meta = subscription_meta(&pending.id);
        let acknowledged = json!({ "_meta": meta, "notifications": filter });
        let method = "notifications/subscriptions/acknowledged";
        self.sink.send(&jsonrpc::notification_line(method, Some(&acknowledged)));
        self.subscriptions.lock().push((pending.id.clone(), filter));
    }

    /// Announces a list change in the way of the client's era.
    fn send_list_changed(&self, method: &str, switch: &str) {
        if self.negotiated.lock().is_some() {
            self.sink.send(&jsonrpc::notification_line(method, None));
        }
        for (id, filter) in &*self.subscriptions.lock() {
            if filter.get(switch) == Some(&Value::Bool(true)) {
                let params = json!({ "_meta": subscription_meta(id) });
                self.sink.send(&jsonrpc::notification_line(method, Some(&params)));
            }
        }
    }

    fn respond(&self, pending: &PendingRequest, response: &Response) {
        let body = response.body(pending.revision.era(), SERVER_META);
        self.sink.send(&jsonrpc::response_line(&pending.id, &body));
    }

    /// A request is modern if its `_meta` names a version; otherwise the negotiated revision applies.
    fn revision_of(&self, method: &str, params: &Params<'_>) -> Result<Revision, RpcError> {
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        let supported = self.revisions.supported();
        match (method, *self.negotiated.lock()) {
            ("initialize", _) => self
                .revisions
                .negotiate(requested)
                .ok_or_else(|| RpcError::unsupported_version(requested, &supported)),
            (_, Some(revision)) if params.meta.protocol_version.is_none() => Ok(revision),
            _ if !self.revisions.has_modern() => Err(RpcError::unknown_method(method)),
            _ => {
                params.meta.check(&supported)?;
                Ok(Revision::R2026_07_28)
            }
        }
    }
}

fn subscription_meta(id: &str) -> Value {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    json!({ "io.modelcontextprotocol/subscriptionId": id })
}

const TEMPLATE_HEAD: &str = "test://template/";
const TEMPLATE_TAIL: &str = "/data";

fn initialize(revision: Revision) -> Response {
    Response::Complete(Response::object_members(&json!({
        "protocolVersion": revision.as_str(),
        "capabilities": capabilities(),
        "serverInfo": { "name": "toolrack-fixture", "version": env!("CARGO_PKG_VERSION") },
    })))
}

fn discover(revisions: SupportedRevisions) -> Response {
    cacheable(&json!({
        "supportedVersions": revisions.supported(),
        "capabilities": capabilities(),
    }))
}

fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "prompts": { "listChanged": true },
        "logging": {},
        "completions": {},
    })
}

fn cacheable(members: &Value) -> Response {
    Response::Cacheable(Response::object_members(members))
}

/// Handles lists and reads; every other method is unknown.
fn list_or_read(
    fixture: &Fixture,
    method: &str,
    params: &Params<'_>,
    revision: Revision,
) -> Result<Response, RpcError> {
    match method {
        "tools/list" => {
            let made = dynamic_name("test_dynamic_tool", &fixture.n_tool_changes);
            Ok(cacheable(&json!({ "tools": tools(made.as_deref()) })))
        }
        "resources/list" => Ok(cacheable(&json!({ "resources": [
            resource("test://static-text", "static-text", "A text", "text/plain"),
            resource("test://static-binary", "static-binary", "An image", "image/png"),
            resource("test://watched-resource", "watched", "Can be subscribed to", "text/plain"),
        ]}))),
        "resources/templates/list" => Ok(cacheable(&json!({ "resourceTemplates": [{
            "uriTemplate": "test://template/{id}/data", "name": "template",
            "description": "Data by id", "mimeType": "application/json",
        }]}))),
        "resources/read" => read_resource(params, revision),
        "prompts/list" => {
            let made = dynamic_name("test_dynamic_prompt", &fixture.n_prompt_changes);
            Ok(cacheable(&json!({ "prompts": prompts(made.as_deref()) })))
        }
        "prompts/get" => get_prompt(params),
        "completion/complete" => {
            let completion =
                json!({ "values": ["paris", "park", "party"], "total": 3, "hasMore": false });
            Ok(Response::Complete(Response::object_members(&json!({ "completion": completion }))))
        }
        other => Err(RpcError::unknown_method(other)),
    }
}

/// Name of the latest dynamic entry, if the list has changed.
fn dynamic_name(name: &str, times: &AtomicU64) -> Option<String> {
    let times = times.load(Ordering::Relaxed);
    (times > 0).then(|| format!("{name}_{times}"))
}

fn resource(uri: &str, name: &str, description: &str, mime_type: &str) -> Value {
    json!({ "uri": uri, "name": name, "description": description, "mimeType": mime_type })
}

fn read_resource(params: &Params<'_>, revision: Revision) -> Result<Response, RpcError> {
    let uri = params.uri.as_deref().unwrap_or_default();
    let id = uri.strip_prefix(TEMPLATE_HEAD).and_then(|rest| rest.strip_suffix(TEMPLATE_TAIL));
    let contents = match (uri, id) {
        ("test://static-text", _) => json!({
            "uri": uri, "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }),
        ("test://watched-resource", _) => {
            json!({ "uri": uri, "mimeType": "text/plain", "text": "Watch me." })
        }
        ("test://static-binary", _) => {
            json!({ "uri": uri, "mimeType": "image/png", "blob": PIXEL })
        }
        (_, Some(id)) => {
            let text =
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "uri": uri, "mimeType": "application/json", "text": text.to_string() })
        }
        _ => {
            let code = match revision.era() {
                Era::Legacy => error_code::RESOURCE_NOT_FOUND,
                Era::Modern => error_code::INVALID_PARAMS,
            };
            let data = Some(json!({ "uri": uri }));
            return Err(RpcError { code, message: "Resource not found".to_owned(), data });
        }
    };
    Ok(cacheable(&json!({ "contents": [contents] })))
}

fn prompts(more: Option<&str>) -> Vec<Value> {
    let argument = |name: &str| json!({ "name": name, "description": name, "required": true });
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments.iter().map(|name| argument(name)).collect();
        json!({ "name": name, "description": format!("The prompt {name}"), "arguments": arguments })
    };
    let mut prompts = vec![
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ];
    prompts.extend(more.map(|more| prompt(more, &[])));
    prompts
}

fn get_prompt(params: &Params<'_>) -> Result<Response, RpcError> {
    let name = params.name.as_deref().unwrap_or_default();
    let filled: Value = params
        .arguments
        .and_then(|arguments| serde_json::from_str(arguments.get()).ok())
        .unwrap_or_default();
    let argument = |name: &str| filled.get(name).and_then(Value::as_str).unwrap_or_default();
    let text = |text: String| json!({ "type": "text", "text": text });
    let contents = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.".to_owned())],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            vec![text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument("resourceUri"), "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            });
            vec![
                json!({ "type": "resource", "resource": resource }),
                text("Please process the embedded resource above.".to_owned()),
            ]
        }
        "test_prompt_with_image" => vec![
            json!({ "type": "image", "data": PIXEL, "mimeType": "image/png" }),
            text("Please analyze the image above.".to_owned()),
        ],
        made if made.starts_with("test_dynamic_prompt_") => vec![text("Here today.".to_owned())],
        _ => return Err(RpcError::new(error_code::INVALID_PARAMS, format!("no prompt `{name}`"))),
    };
    let message = |content: Value| json!({ "role": "user", "content": content });
    let messages: Vec<Value> = contents.into_iter().map(message).collect();
    Ok(Response::Complete(Response::object_members(&json!({ "messages": messages }))))
}

fn tools(more: Option<&str>) -> Vec<Value> {
    let tool = |name: &str, schema: Value| json!({ "name": name, "description": format!("The tool {name}"), "inputSchema": schema });
    let empty_schema = || json!({ "type": "object", "properties": {} });
    let one_string = |name: &str| {
        let properties = json!({ name: { "type": "string" } });
        json!({ "type": "object", "properties": properties, "required": [name] })
    };
    let mut tools: Vec<Value> =
        TOOLS_WITHOUT_ARGUMENTS.iter().map(|name| tool(name, empty_schema())).collect();
    tools.push(tool("test_sampling", one_string("prompt")));
    tools.push(tool("test_elicitation", one_string("message")));
    tools.push(tool("json_schema_2020_12_tool", schema_2020_12()));
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let headed = json!({ "type": "object", "properties": { "region": region } });
    tools.push(tool("test_custom_headers", headed));
    tools.extend(more.map(|more| tool(more, empty_schema())));
    tools
}

/// Tools without arguments.
const TOOLS_WITHOUT_ARGUMENTS: [&str; 23] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_error_handling",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

fn schema_2020_12() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef", "type": "object",
            "properties": { "street": text, "city": text },
        }},
        "properties": {
            "name": text,
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": text,
            "email": text,
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
