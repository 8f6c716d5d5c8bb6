//! Demo server: a small, correct MCP server of both eras, for first steps and for tests.
//!
//! **Invariant:** slow tools run on a timer, so a slow call never delays a fast one; a cancelled call is never
//! answered.

mod tools;

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tools::ToolOutcome;

use crate::jsonrpc::{self, Incoming, Params, Response, RpcError, error_code};
use crate::message_sink::{MessageSink, PipeSink};
use crate::revision::{Era, Revision, SupportedRevisions};
use crate::timer::Timer;

/// `_meta` of every modern result.
const SERVER_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"toolrack-demo","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

/// Serves one client until the end of input.
///
/// Fails only if the input cannot be read; a closed output is not an error.
pub fn serve(mut input: impl BufRead, output: impl Write + Send + 'static) -> io::Result<()> {
    let demo = Arc::new(Demo {
        sink: PipeSink::new(output),
        running: Mutex::default(),
        negotiated: Mutex::new(None),
    });
    // Dropped with this function, and with it every scheduled response.
    let timer = Timer::start();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        demo.handle_line(&timer, &line);
        demo.sink.flush();
        line.clear();
    }
    Ok(())
}

#[derive(Debug)]
struct Demo {
    sink: PipeSink,
    /// Slow calls in progress, by their ids as the client wrote them.
    running: Mutex<HashSet<String>>,
    negotiated: Mutex<Option<Revision>>,
}

impl Demo {
    fn handle_line(self: &Arc<Self>, timer: &Timer, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        match serde_json::from_slice::<Incoming<'_>>(line) {
            Ok(Incoming { method: Some(method), id: Some(id), params, .. }) => {
                self.handle_request(timer, id, &method, params);
            }
            Ok(Incoming { method: Some(method), id: None, params, .. }) => {
                self.handle_notification(&method, params);
            }
            Ok(_) => (),
            Err(_) => {
                let rpc_error =
                    RpcError::new(error_code::PARSE_ERROR, "the line is no message").to_json();
                let line = json!({ "jsonrpc": "2.0", "error": rpc_error }).to_string();
                self.sink.send(line.as_bytes());
            }
        }
    }

    fn handle_request(
        self: &Arc<Self>,
        timer: &Timer,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) {
        let id = id.get();
        let parsed = Params::parse(params)
            .and_then(|params| Ok((self.revision_of(method, &params)?, params)));
        let (revision, params) = match parsed {
            Ok(parsed) => parsed,
            // The era is unknown here, and an error looks the same in both.
            Err(rpc_error) => return self.respond(id, Era::Legacy, &Response::Error(rpc_error)),
        };
        let era = revision.era();
        let response = match (method, era) {
            ("tools/call", _) => match tools::call(&params, revision) {
                Ok(ToolOutcome::Immediate(response)) => Ok(response),
                Ok(ToolOutcome::Countdown(countdown)) => {
                    self.running.lock().insert(id.to_owned());
                    let token = params.meta.progress_token.map(ToOwned::to_owned);
                    let call = SlowCall { id: id.to_owned(), revision, token };
                    return self.schedule_countdown(timer, call, countdown);
                }
                Err(rpc_error) => Err(rpc_error),
            },
            ("initialize", Era::Legacy) => {
                *self.negotiated.lock() = Some(revision);
                Ok(initialize(revision))
            }
            ("server/discover", Era::Modern) => Ok(discover()),
            ("ping", Era::Legacy) => Ok(Response::empty()),
            _ => list_or_read(method, &params, revision),
        };
        self.respond(id, era, &response.into());
    }

    /// Schedules all steps at once; steps after a cancellation find the call gone.
    fn schedule_countdown(
        self: &Arc<Self>,
        timer: &Timer,
        call: SlowCall,
        countdown: tools::Countdown,
    ) {
        let call = Arc::new(call);
        for step in 1..=countdown.from {
            let (demo, call) = (Arc::clone(self), Arc::clone(&call));
            timer.after(countdown.every * step, move || {
                if demo.running.lock().contains(&call.id) {
                    demo.send_progress(&call, step, countdown.from);
                }
            });
        }
        let (demo, end) = (Arc::clone(self), countdown.every * countdown.from);
        timer.after(end.max(Duration::from_millis(1)), move || {
            if demo.running.lock().remove(&call.id) {
                demo.respond(&call.id, call.revision.era(), &Response::text("Lift-off!"));
                demo.sink.flush();
            }
        });
    }

    fn send_progress(&self, call: &SlowCall, step: u32, from: u32) {
        let Some(token) = &call.token else { return };
        let mut params = json!({ "progressToken": token, "progress": step, "total": from });
        if let (true, Some(members)) =
            (call.revision >= Revision::R2025_03_26, params.as_object_mut())
        {
            members.insert("message".to_owned(), json!(format!("{}…", from - step)));
        }
        self.sink.send(&jsonrpc::notification_line("notifications/progress", Some(&params)));
        self.sink.flush();
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        if method != "notifications/cancelled" {
            return;
        }
        if let Some(id) = Params::parse(params).ok().and_then(|params| params.request_id) {
            self.running.lock().remove(id.get());
        }
    }

    fn respond(&self, id: &str, era: Era, response: &Response) {
        self.sink.send(&jsonrpc::response_line(id, &response.body(era, SERVER_META)));
    }

    /// A request is modern if its `_meta` names a version; otherwise the negotiated revision applies.
    fn revision_of(&self, method: &str, params: &Params<'_>) -> Result<Revision, RpcError> {
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        match (method, *self.negotiated.lock()) {
            ("initialize", _) => {
                Ok(SupportedRevisions::Dual.negotiate(requested).unwrap_or(Revision::R2025_11_25))
            }
            ("ping", None) => Ok(Revision::R2025_11_25),
            (_, Some(revision)) if params.meta.protocol_version.is_none() => Ok(revision),
            _ => {
                params.meta.check(&SupportedRevisions::Dual.supported())?;
                Ok(Revision::R2026_07_28)
            }
        }
    }
}

/// A call in progress.
#[derive(Debug)]
struct SlowCall {
    id: String,
    revision: Revision,
    token: Option<Box<RawValue>>,
}

/// Complete result with these members.
fn complete(members: &Value) -> Response {
    Response::Complete(Response::object_members(members))
}

const README_URI: &str = "demo://readme";
const README: &str = "\
This is the demo server of Toolrack. Its tools greet, add, roll dice, count words, and count down \
slowly enough to watch the progress or to cancel.
";
const INSTRUCTIONS: &str = "A demo: try `greet`, then `countdown`.";

fn initialize(revision: Revision) -> Response {
    let mut info = json!({ "name": "toolrack-demo", "version": env!("CARGO_PKG_VERSION") });
    if let (true, Some(members)) = (revision >= Revision::R2025_06_18, info.as_object_mut()) {
        members.insert("title".to_owned(), json!("Toolrack demo"));
    }
    complete(&json!({
        "protocolVersion": revision.as_str(),
        "capabilities": capabilities(),
        "serverInfo": info,
        "instructions": INSTRUCTIONS,
    }))
}

fn discover() -> Response {
    cacheable(&json!({
        "supportedVersions": SupportedRevisions::Dual.supported(),
        "capabilities": capabilities(),
        "instructions": INSTRUCTIONS,
    }))
}

/// Handles lists and reads; every other method is unknown.
fn list_or_read(
    method: &str,
    params: &Params<'_>,
    revision: Revision,
) -> Result<Response, RpcError> {
    match method {
        "tools/list" => Ok(cacheable(&json!({ "tools": tools(revision) }))),
        "resources/list" => Ok(cacheable(&json!({ "resources": [
            { "uri": README_URI, "name": "readme", "mimeType": "text/plain" },
        ]}))),
        "resources/templates/list" => Ok(cacheable(&json!({ "resourceTemplates": [] }))),
        "resources/read" => read_resource(params, revision),
        "prompts/list" => Ok(cacheable(&json!({ "prompts": [
            { "name": "introduce", "description": "Introduces somebody", "arguments": [
                { "name": "name", "description": "Who is introduced", "required": true },
            ]},
        ]}))),
        "prompts/get" => get_prompt(params),
        other => Err(RpcError::unknown_method(other)),
    }
}

fn capabilities() -> Value {
    json!({ "tools": {}, "resources": {}, "prompts": {} })
}

fn cacheable(members: &Value) -> Response {
    Response::Cacheable(Response::object_members(members))
}

fn tools(revision: Revision) -> Vec<Value> {
    let integer = |minimum: u32, maximum: u32, description: &str| {
        let kind = "integer";
        json!({ "type": kind, "minimum": minimum, "maximum": maximum, "description": description })
    };
    let text = |what: &str| json!({ "type": "string", "description": what });
    let number = json!({ "type": "number" });
    let rows = [
        ("greet", "Greets somebody", json!({ "name": text("Whom to greet") }), vec!["name"]),
        ("add", "Adds two numbers", json!({ "a": number, "b": number }), vec!["a", "b"]),
        (
            "dice",
            "Rolls dice; the same seed rolls the same",
            json!({
                "sides": integer(1, 1000, "Sides of each die (6)"),
                "rolls": integer(1, 100, "How many dice (1)"),
                "seed": { "type": "integer", "minimum": 0, "description": "A number to start from" },
            }),
            Vec::new(),
        ),
        (
            "countdown",
            "Counts down to zero, telling its progress",
            json!({
                "from": integer(0, 1000, "Where to start (3)"),
                "every_ms": integer(0, 60_000, "Milliseconds for each step (1000)"),
            }),
            Vec::new(),
        ),
        (
            "word_count",
            "Counts lines, words and characters",
            json!({ "text": text("The text to count in") }),
            vec!["text"],
        ),
    ];
    let tool = |(name, description, properties, required): (&str, &str, Value, Vec<&str>)| {
        let mut schema = json!({ "type": "object", "properties": properties });
        if let (false, Some(members)) = (required.is_empty(), schema.as_object_mut()) {
            members.insert("required".to_owned(), json!(required));
        }
        let mut tool = json!({ "name": name, "description": description, "inputSchema": schema });
        if let (true, Some(members)) = (revision >= Revision::R2025_03_26, tool.as_object_mut()) {
            let hints = json!({ "readOnlyHint": true, "openWorldHint": false });
            members.insert("annotations".to_owned(), hints);
        }
        tool
    };
    rows.into_iter().map(tool).collect()
}

fn read_resource(params: &Params<'_>, revision: Revision) -> Result<Response, RpcError> {
    let uri = params.uri.as_deref().unwrap_or_default();
    if uri == README_URI {
        let item = json!({ "uri": uri, "mimeType": "text/plain", "text": README });
        return Ok(cacheable(&json!({ "contents": [item] })));
    }
    let code = match revision.era() {
        Era::Legacy => error_code::RESOURCE_NOT_FOUND,
        Era::Modern => error_code::INVALID_PARAMS,
    };
    let message = format!("no resource `{uri}`; there is `{README_URI}`");
    Err(RpcError { code, message, data: Some(json!({ "uri": uri })) })
}

fn get_prompt(params: &Params<'_>) -> Result<Response, RpcError> {
    let refused = |why: &str| Err(RpcError::new(error_code::INVALID_PARAMS, why));
    if params.name.as_deref() != Some("introduce") {
        return refused("no such prompt; there is `introduce`");
    }
    let arguments: Value = params
        .arguments
        .and_then(|arguments| serde_json::from_str(arguments.get()).ok())
        .unwrap_or_default();
    let Some(name) = arguments.get("name").and_then(Value::as_str) else {
        return refused("the argument `name` is missing");
    };
    let content = json!({ "type": "text", "text": format!("Introduce {name} in two sentences.") });
    Ok(complete(&json!({ "messages": [{ "role": "user", "content": content }] })))
}
