//! The fixture server: has every tool, prompt and resource that the official conformance suites look for, under
//! their names, in both eras.
//!
//! It stands behind a gateway, so it speaks over a pipe only; what the suites ask of HTTP is the gateway's part.
//!
//! **Invariant:** what takes time runs on a timer, and a cancelled call is never answered.

mod client_requests;
mod tools;

use std::collections::HashSet;
use std::io;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client_requests::Asking;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tools::PIXEL;

use crate::jsonrpc;
use crate::jsonrpc::{Answer, Incoming, Params, Refusal, error_code, severity};
use crate::message_sink::{Outlet, Pipe};
use crate::revision::{Era, Revision, Speaks};
use crate::timer::Timer;

/// The `_meta` of every modern result.
const SERVER_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"toolrack-fixture","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);
const USAGE: &str =
    "fixture-server [--revision R]   R as for scripted-server, `dual` unless given\n";

/// Serves one client until its input ends.
pub fn run(
    args: &[String],
    mut input: impl BufRead,
    output: impl Write + Send + 'static,
) -> io::Result<ExitCode> {
    let speaks = match args {
        [] => Ok(Speaks::Dual),
        [option, revision] if option == "--revision" => Speaks::parse(revision),
        _ => Err(USAGE.to_owned()),
    };
    let speaks = match speaks {
        Ok(speaks) => speaks,
        Err(fault) => {
            io::stderr().write_all(fault.as_bytes())?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let fixture = Arc::new(Fixture {
        speaks,
        outlet: Pipe::new(output),
        timer: Timer::start(),
        agreed: Mutex::new(None),
        least: Mutex::new(0),
        open: Mutex::default(),
        asking: Mutex::default(),
        listening: Mutex::default(),
        n_asked: AtomicU64::new(0),
        tools_made: AtomicU64::new(0),
        prompts_made: AtomicU64::new(0),
    });
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        fixture.take(&line);
        fixture.outlet.flush();
        line.clear();
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug)]
struct Fixture {
    speaks: Speaks,
    outlet: Pipe,
    timer: Timer,
    agreed: Mutex<Option<Revision>>,
    /// The least severity that a legacy client wants to read.
    least: Mutex<usize>,
    /// The calls that still run, by their ids as the client wrote them.
    open: Mutex<HashSet<String>>,
    asking: Mutex<Vec<Asking>>,
    /// Open subscriptions: the id of the request, and what is to be told.
    listening: Mutex<Vec<(String, Value)>>,
    n_asked: AtomicU64,
    /// How often the lists were changed. The last change is what each list shows besides.
    tools_made: AtomicU64,
    prompts_made: AtomicU64,
}

/// A request that is to be answered.
#[derive(Debug, Clone)]
struct Ticket {
    id: String,
    revision: Revision,
    token: Option<Box<RawValue>>,
    /// The least severity of log messages that a modern request wants.
    least: Option<usize>,
}

impl Fixture {
    fn take(self: &Arc<Self>, line: &[u8]) {
        let line = line.trim_ascii();
        match serde_json::from_slice::<Incoming<'_>>(line) {
            Ok(Incoming { method: Some(method), id: Some(id), params, .. }) => {
                self.request(id, &method, params);
            }
            Ok(Incoming { method: Some(method), id: None, params, .. }) => {
                self.notified(&method, params);
            }
            Ok(Incoming { id: Some(id), result, .. }) => self.answered(id, result),
            Ok(_) | Err(_) => {}
        }
    }

    fn request(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let read = Params::read(params)
            .and_then(|params| Ok((self.revision_of(method, &params)?, params)));
        let mut ticket = Ticket {
            id: id.get().to_owned(),
            revision: Revision::R2025_11_25,
            token: None,
            least: None,
        };
        let (revision, params) = match read {
            Ok(read) => read,
            Err(refusal) => return self.settle(&ticket, &Answer::Refused(refusal)),
        };
        ticket.revision = revision;
        ticket.token = params.meta.progress_token.map(ToOwned::to_owned);
        ticket.least = params.meta.log_level.as_deref().and_then(severity);
        let answer = match (method, revision.era()) {
            ("tools/call", _) => return self.call(ticket, &params),
            ("subscriptions/listen", Era::Modern) => return self.listen(&ticket, &params),
            ("initialize", Era::Legacy) => {
                *lock(&self.agreed) = Some(revision);
                Ok(initialize(revision))
            }
            ("server/discover", Era::Modern) => Ok(discover(self.speaks)),
            ("ping" | "resources/subscribe" | "resources/unsubscribe", Era::Legacy) => {
                Ok(Answer::empty())
            }
            ("logging/setLevel", Era::Legacy) => {
                let level = params.level.as_deref().and_then(severity);
                *lock(&self.least) = level.unwrap_or_default();
                Ok(Answer::empty())
            }
            ("prompts/get", Era::Modern) if client_requests::is_asking_prompt(&params) => {
                Ok(client_requests::prompt(&params))
            }

            _ => list_or_read(self, method, &params, revision),
        };
        self.settle(&ticket, &answer.into());
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        let id = Params::read(params).ok().and_then(|value| value.request_id.map(RawValue::get));
        if let ("notifications/cancelled", Some(id)) = (method, id) {
            lock(&self.open).remove(id);
            lock(&self.asking).retain(|value| value.ticket.id != id);
            lock(&self.listening).retain(|(listen, _)| listen != id);
        }
    }

    fn listen(&self, ticket: &Ticket, params: &Params<'_>) {
        let filter = params.notifications.clone().unwrap_or_default();
        let tag = tag(&ticket.id);
        let acknowledged = json!({ "_meta": tag, "notifications": filter });
        let method = "notifications/subscriptions/acknowledged";
        self.outlet.put(&jsonrpc::notification(method, Some(&acknowledged)));
        lock(&self.listening).push((ticket.id.clone(), filter));
    }

    /// Tells that a list has changed, in the manner of the client's era.
    fn tell_change(&self, method: &str, switch: &str) {
        if lock(&self.agreed).is_some() {
            self.outlet.put(&jsonrpc::notification(method, None));
        }
        for (id, filter) in &*lock(&self.listening) {
            if filter.get(switch) == Some(&Value::Bool(true)) {
                let params = json!({ "_meta": tag(id) });
                self.outlet.put(&jsonrpc::notification(method, Some(&params)));
            }
        }
    }

    fn settle(&self, ticket: &Ticket, answer: &Answer) {
        let body = answer.body(ticket.revision.era(), SERVER_META);
        self.outlet.put(&jsonrpc::response(&ticket.id, &body));
    }

    /// A request belongs to the modern era if it says so, else to the revision of the handshake.
    fn revision_of(&self, method: &str, params: &Params<'_>) -> Result<Revision, Refusal> {
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        let supported = self.speaks.supported();
        match (method, *lock(&self.agreed)) {
            ("initialize", _) => self
                .speaks
                .agree(requested)
                .ok_or_else(|| Refusal::unsupported_version(requested, &supported)),
            (_, Some(revision)) if params.meta.protocol_version.is_none() => Ok(revision),
            _ if !self.speaks.modern() => Err(Refusal::unknown_method(method)),
            _ => {
                params.meta.check(&supported)?;
                Ok(Revision::R2026_07_28)
            }
        }
    }
}

fn tag(id: &str) -> Value {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    json!({ "io.modelcontextprotocol/subscriptionId": id })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const TEMPLATE_HEAD: &str = "test://template/";
const TEMPLATE_TAIL: &str = "/data";

fn initialize(revision: Revision) -> Answer {
    Answer::Complete(Answer::members_of(&json!({
        "protocolVersion": revision.text(),
        "capabilities": capabilities(),
        "serverInfo": { "name": "toolrack-fixture", "version": env!("CARGO_PKG_VERSION") },
    })))
}

fn discover(speaks: Speaks) -> Answer {
    cacheable(&json!({
        "supportedVersions": speaks.supported(),
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

fn cacheable(members: &Value) -> Answer {
    Answer::Cacheable(Answer::members_of(members))
}

/// The lists and what they list; every other method is unknown.
fn list_or_read(
    fixture: &Fixture,
    method: &str,
    params: &Params<'_>,
    revision: Revision,
) -> Result<Answer, Refusal> {
    match method {
        "tools/list" => {
            let made = made("test_dynamic_tool", &fixture.tools_made);
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
            let made = made("test_dynamic_prompt", &fixture.prompts_made);
            Ok(cacheable(&json!({ "prompts": prompts(made.as_deref()) })))
        }
        "prompts/get" => get_prompt(params),
        "completion/complete" => {
            let completion =
                json!({ "values": ["paris", "park", "party"], "total": 3, "hasMore": false });
            Ok(Answer::Complete(Answer::members_of(&json!({ "completion": completion }))))
        }
        other => Err(Refusal::unknown_method(other)),
    }
}

/// What was made last, if anything was.
fn made(name: &str, times: &AtomicU64) -> Option<String> {
    let times = times.load(Ordering::Relaxed);
    (times > 0).then(|| format!("{name}_{times}"))
}

fn resource(uri: &str, name: &str, description: &str, mime_type: &str) -> Value {
    json!({ "uri": uri, "name": name, "description": description, "mimeType": mime_type })
}

fn read_resource(params: &Params<'_>, revision: Revision) -> Result<Answer, Refusal> {
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
            return Err(Refusal { code, message: "Resource not found".to_owned(), data });
        }
    };
    Ok(cacheable(&json!({ "contents": [contents] })))
}

fn prompts(more: Option<&str>) -> Vec<Value> {
    let argument = |name: &str| json!({ "name": name, "description": name, "required": true });
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments.iter().map(|item| argument(item)).collect();
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

fn get_prompt(params: &Params<'_>) -> Result<Answer, Refusal> {
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
        _ => return Err(Refusal::new(error_code::INVALID_PARAMS, format!("no prompt `{name}`"))),
    };
    let message = |content: Value| json!({ "role": "user", "content": content });
    let messages: Vec<Value> = contents.into_iter().map(message).collect();
    Ok(Answer::Complete(Answer::members_of(&json!({ "messages": messages }))))
}

fn tools(more: Option<&str>) -> Vec<Value> {
    let tool = |name: &str, schema: Value| json!({ "name": name, "description": format!("The tool {name}"), "inputSchema": schema });
    let nothing = || json!({ "type": "object", "properties": {} });
    let one = |name: &str| {
        let properties = json!({ name: { "type": "string" } });
        json!({ "type": "object", "properties": properties, "required": [name] })
    };
    let mut tools: Vec<Value> = PLAIN.iter().map(|name| tool(name, nothing())).collect();
    tools.push(tool("test_sampling", one("prompt")));
    tools.push(tool("test_elicitation", one("message")));
    tools.push(tool("json_schema_2020_12_tool", rich_schema()));
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let headed = json!({ "type": "object", "properties": { "region": region } });
    tools.push(tool("test_custom_headers", headed));
    tools.extend(more.map(|more| tool(more, nothing())));
    tools
}

/// The tools without arguments.
const PLAIN: [&str; 23] = [
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

fn rich_schema() -> Value {
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
