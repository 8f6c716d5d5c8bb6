//! Tools of the scripted server.
//!
//! **Invariant:** a slow tool runs on the timer, never in the reading thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::client::{PendingRequest, SlowCall};
use super::input_requests::{InputRequest, input_required, sign_state, verify_state};
use super::options::Options;
use super::resources;
use super::server::{Content, ServerInfo, ToolOutcome, ToolResult};
use super::tool_list::ToolList;
use crate::harness::ProcessEntry;
use crate::jsonrpc::{self, Arguments, Params, Response, RpcError, RpcResult, insert, json_string};
use crate::revision::{Era, Revision};

/// Tools, resources and prompts of the scripted server.
#[derive(Debug)]
pub(super) struct ScriptedContent {
    tool_list: ToolList,
    sends_list_changed: bool,
    /// Number of resource updates.
    n_updates: AtomicU64,
}

impl ScriptedContent {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            tool_list: ToolList::new(options),
            sends_list_changed: !options.silent_changes,
            n_updates: AtomicU64::new(0),
        }
    }
}

impl Content for ScriptedContent {
    fn info(&self) -> ServerInfo {
        ServerInfo {
            name: "scripted-server",
            title: Some("Scripted server"),
            instructions: Some("A server for tests. It does what its plan says."),
        }
    }

    fn capabilities(&self, revision: Revision) -> Value {
        let mut capabilities = json!({
            "tools": { "listChanged": self.sends_list_changed },
            "resources": { "subscribe": true },
            "prompts": {},
            "logging": {},
        });
        // The first revision has completion, but no capability for it.
        let has_completions = revision >= Revision::R2025_03_26;
        insert(&mut capabilities, "completions", has_completions.then(|| json!({})));
        capabilities
    }

    fn change_kinds(&self) -> &'static [&'static str] {
        &["toolsListChanged", "resourceSubscriptions"]
    }

    fn call_tool(&self, pending: &PendingRequest, params: &Params<'_>) -> ToolResult {
        let server = &pending.context.server;
        let raw = params.arguments.map_or("{}", RawValue::get);
        if params.name() == "echo" {
            return Ok(echo(raw)?.into());
        }
        let arguments = params.arguments();
        let response = match params.name() {
            "sleep" | "progress" => return slow_call(pending, &arguments, params),
            "ask" => return ask(pending, &arguments, params),
            "add" => Response::sum(arguments.get("a")?, arguments.get("b")?, pending.revision),
            "big" => big(arguments.get("bytes")?, arguments.get("escapes")?),
            "fail" => {
                let text: Option<String> = arguments.get("text")?;
                Response::tool_error(text.as_deref().unwrap_or("this tool always fails"))
            }
            "log" => log(pending, &arguments, params)?,
            "mutate_tools" => self.mutate_tools(pending, &arguments)?,
            "touch" => {
                let uri: String = arguments.get("uri")?;
                self.n_updates.fetch_add(1, Ordering::Relaxed);
                server.notify_resource_updated(&uri);
                Response::text(&format!("touched {uri}"))
            }
            "end_listens" => {
                let how: Option<String> = arguments.get("how")?;
                Response::text(&format!("ended {}", server.end_listens(&how.unwrap_or_default())))
            }
            "env" => environment(),
            "fds" => descriptors(),
            "pid" => processes(),
            routed if self.tool_list.has_special(routed) => Response::text(raw),
            extra if self.tool_list.is_extra(extra) => Response::text(extra),
            name => return Err(RpcError::invalid_params(format!("no tool `{name}`"))),
        };
        Ok(response.into())
    }

    fn read(&self, pending: &PendingRequest, method: &str, params: &Params<'_>) -> RpcResult {
        match method {
            "tools/list" => self.tool_list.list(pending, params),
            other => {
                let n_updates = self.n_updates.load(Ordering::Relaxed);
                resources::read(pending, other, params, n_updates)
            }
        }
    }
}

impl ScriptedContent {
    fn mutate_tools(&self, pending: &PendingRequest, arguments: &Arguments) -> RpcResult {
        let mut added = self.tool_list.added.lock();
        let text = match arguments.get::<Option<String>>("remove")? {
            Some(name) => {
                let before = added.len();
                added.retain(|added| *added != name);
                if added.len() == before {
                    return Ok(Response::tool_error(&format!("{name} was never added")));
                }
                format!("removed {name}")
            }
            None => {
                let number = added.len() + 1;
                let name: Option<String> = arguments.get("add")?;
                let name = name.unwrap_or_else(|| format!("extra_{number}"));
                added.push(name.clone());
                format!("added {name}")
            }
        };
        drop(added);
        if self.sends_list_changed {
            pending.context.server.notify_list_changed("tools");
        }
        Ok(Response::text(&text))
    }
}

fn slow_call(pending: &PendingRequest, arguments: &Arguments, params: &Params<'_>) -> ToolResult {
    let ms: Option<u64> = arguments.get("ms")?;
    let every = Duration::from_millis(ms.unwrap_or_default());
    let (n_steps, text) = if params.name() == "sleep" {
        (0, format!("slept {} ms", arguments.get::<u64>("ms")?))
    } else {
        let n_steps = arguments.get("steps")?;
        (n_steps, format!("took {n_steps} steps"))
    };
    let notification = pending.progress_line(params, n_steps, |step| format!("step {step}"));
    Ok(ToolOutcome::Slow(SlowCall { n_steps, every, notification, text }))
}

fn ask(pending: &PendingRequest, arguments: &Arguments, params: &Params<'_>) -> ToolResult {
    let kind: String = arguments.get("kind")?;
    let is_modern = pending.era() == Era::Modern;
    let url: Option<String> = arguments.get("url")?;
    if kind == "url_error" {
        let page = json!({ "mode": "url", "elicitationId": "1", "url": url, "message": "Open" });
        let data = Some(json!({ "elicitations": [page] }));
        return Err(RpcError { data, ..RpcError::new(-32042, "a page has to be opened") });
    }
    let requests = match client_request(&kind, url) {
        Some(request) if !(is_modern && kind == "ping") => vec![request],
        None if is_modern && kind == "state" => Vec::new(),
        _ => {
            let text = format!("there is no way to ask for `{kind}`");
            return Ok(Response::tool_error(&text).into());
        }
    };
    if !is_modern {
        let count: Option<usize> = arguments.get("count")?;
        let n_requests = requests.len() * count.unwrap_or(1);
        let requests = requests.into_iter().cycle().take(n_requests).collect();
        return Ok(ToolOutcome::Input(requests, |_, responses| {
            responses.first().map(|(_, text)| text.clone()).unwrap_or_default()
        }));
    }
    let force: Option<bool> = arguments.get("force")?;
    if !force.unwrap_or_default() && !requests.is_empty() && !params.meta.declares(&kind) {
        return Err(RpcError::missing_capability(&kind));
    }
    let done = params.request_state.as_ref().map_or(Ok(0), |state| verify_state(state, &kind))?;
    let response = params.input_responses.as_ref().and_then(|responses| responses.get("answer"));
    // A round without its response is repeated rather than rejected.
    let is_missing = !requests.is_empty() && response.is_none();
    let done = done.saturating_sub(u64::from(is_missing));
    let rounds: Option<u64> = arguments.get("rounds")?;
    let response = if done >= rounds.unwrap_or(1) {
        Response::text(&json!({ "result": response }).to_string())
    } else {
        input_required(&requests, Some(sign_state(done + 1, &kind)))
    };
    Ok(response.into())
}

/// Request to the client for this kind of input.
fn client_request(kind: &str, url: Option<String>) -> Option<InputRequest> {
    let (method, params) = match kind {
        "ping" => ("ping", None),
        "roots" => ("roots/list", None),
        "sampling" => {
            let content = jsonrpc::text_block("What is the answer?");
            let messages = json!([{ "role": "user", "content": content }]);
            ("sampling/createMessage", Some(json!({ "messages": messages, "maxTokens": 64 })))
        }
        "elicitation" => {
            let properties = json!({
                "name": { "type": "string", "description": "Your name" },
                "agree": { "type": "boolean", "default": true },
            });
            let schema =
                json!({ "type": "object", "properties": properties, "required": ["name"] });
            let params = json!({ "message": "Who are you?", "requestedSchema": schema });
            ("elicitation/create", Some(params))
        }
        "url" => {
            let params =
                json!({ "mode": "url", "elicitationId": "1", "url": url, "message": "Open" });
            ("elicitation/create", Some(params))
        }
        _ => return None,
    };
    Some(("answer", method, params))
}

fn log(pending: &PendingRequest, arguments: &Arguments, params: &Params<'_>) -> RpcResult {
    let level: Option<String> = arguments.get("level")?;
    let level = level.as_deref().unwrap_or("info");
    let severity = match jsonrpc::severity(level) {
        Ok(severity) => severity,
        Err(unknown) => return Ok(Response::tool_error(&unknown.message)),
    };
    let count: Option<u64> = arguments.get("count")?;
    let sent = if pending.wants_log(severity, params) { count.unwrap_or(1) } else { 0 };
    let text: Option<String> = arguments.get("text")?;
    let message = json!({ "level": level, "logger": "log", "data": text.unwrap_or_default() });
    let line = jsonrpc::notification_line("notifications/message", Some(&message));
    for _ in 0..sent {
        pending.sink().send(&line);
    }
    Ok(Response::text(&format!("sent {sent}")))
}

/// Copies the texts as raw JSON: benchmarks use this call.
fn echo(arguments: &str) -> RpcResult {
    #[derive(Deserialize)]
    struct Echo<'a> {
        #[serde(borrow)]
        text: &'a RawValue,
        #[serde(borrow)]
        nonce: Option<&'a RawValue>,
    }
    let Echo { text, nonce } = serde_json::from_str(arguments)
        .map_err(|error| RpcError::invalid_params(format!("arguments: {error}")))?;
    let block = |raw: &RawValue| {
        let raw = raw.get();
        let text = if raw.starts_with('"') { raw.to_owned() } else { json_string(raw) };
        format!(r#"{{"type":"text","text":{text}}}"#)
    };
    let blocks: Vec<String> = [Some(text), nonce].into_iter().flatten().map(block).collect();
    Ok(Response::Complete(format!(r#""content":[{}]"#, blocks.join(","))))
}

fn big(bytes: usize, escapes: Option<bool>) -> Response {
    // 14 bytes that break readers: quote, backslash, newline, control character, two- and four-byte characters.
    let unit = if escapes.unwrap_or_default() { "a\"b\\c\nd\u{1}é\u{1f600}" } else { "x" };
    let mut text = unit.repeat(bytes / unit.len());
    text.push_str(&"x".repeat(bytes % unit.len()));
    Response::text(&text)
}

fn environment() -> Response {
    let variables: Map<String, Value> = std::env::vars_os()
        .map(|(name, value)| {
            (name.to_string_lossy().into_owned(), Value::from(value.to_string_lossy()))
        })
        .collect();
    Response::text(&Value::Object(variables).to_string())
}

/// Leaves out the descriptor that reads the directory.
fn descriptors() -> Response {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Response::tool_error("there is no /proc here");
    };
    let mut open = Map::new();
    for entry in entries.flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        if !target.starts_with("/proc/") {
            open.insert(entry.file_name().to_string_lossy().into_owned(), json!(target));
        }
    }
    Response::text(&Value::Object(open).to_string())
}

/// From `/proc`: the system calls cannot express a group outside of this PID namespace.
fn processes() -> Response {
    let Some(entry) = ProcessEntry::read(std::process::id()) else {
        return Response::tool_error("there is no /proc here");
    };
    let ProcessEntry { pid, parent, group, session, .. } = entry;
    let facts = json!({ "pid": pid, "parent": parent, "group": group, "session": session });
    Response::text(&facts.to_string())
}
