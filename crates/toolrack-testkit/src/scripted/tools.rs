//! Tools of the scripted server, except `ask`.
//!
//! **Invariant:** a slow tool runs on the timer, never in the reading thread.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::client::PendingRequest;
use super::server::Server;
use crate::jsonrpc::{self, Params, Response, RpcError, error_code, json_string};
use crate::process;
use crate::revision::{Era, Revision};

impl Server {
    pub(super) fn call_tool(self: &Arc<Self>, pending: PendingRequest, params: &Params<'_>) {
        let name = params.name.as_deref().unwrap_or_default();
        let arguments = params.arguments.map_or("{}", RawValue::get);
        let response = match name {
            "echo" => echo(arguments),
            "add" => add(arguments, pending.revision),
            "big" => big(arguments),
            "fail" => fail(arguments),
            "sleep" => return self.sleep(pending, arguments),
            "progress" => return self.progress(pending, arguments, params),
            "ask" => return self.call_ask(pending, arguments, params),
            "log" => log(&pending, arguments, params),
            "mutate_tools" => self.mutate_tools(arguments),
            "touch" => self.touch(arguments),
            "end_listens" => self.end_listens_by(arguments),
            "forget_sessions" => Ok(self.forget_sessions()),
            "env" => Ok(environment()),
            "fds" => Ok(descriptors()),
            "pid" => Ok(processes()),
            routed if self.options.header_tools.has(routed) => Ok(Response::text(arguments)),
            extra if self.tool_list.is_extra(extra) => Ok(Response::text(extra)),
            _ => Err(RpcError::new(error_code::INVALID_PARAMS, format!("no tool `{name}`"))),
        };
        self.respond(pending, response.into());
    }

    fn sleep(self: &Arc<Self>, pending: PendingRequest, arguments: &str) {
        #[derive(Deserialize)]
        struct Arguments {
            ms: u64,
        }
        let Arguments { ms } = match parse_arguments(arguments) {
            Ok(arguments) => arguments,
            Err(rpc_error) => return self.respond(pending, Response::Error(rpc_error)),
        };
        pending.register_open(None);
        let server = Arc::clone(self);
        self.timer.after(Duration::from_millis(ms), move || {
            if pending.finish().is_some() {
                let sink = Arc::clone(&pending.context.sink);
                server.respond(pending, Response::text(&format!("slept {ms} ms")));
                sink.flush();
            }
        });
    }

    fn progress(self: &Arc<Self>, pending: PendingRequest, arguments: &str, params: &Params<'_>) {
        let steps: Steps = match parse_arguments(arguments) {
            Ok(steps) => steps,
            Err(rpc_error) => return self.respond(pending, Response::Error(rpc_error)),
        };
        let token =
            params.meta.progress_token.and_then(|token| serde_json::from_str(token.get()).ok());
        pending.register_open(None);
        self.step(pending, steps, token, 1);
    }

    fn step(
        self: &Arc<Self>,
        pending: PendingRequest,
        steps: Steps,
        token: Option<Value>,
        number: u64,
    ) {
        let server = Arc::clone(self);
        self.timer.after(Duration::from_millis(steps.ms), move || {
            let sink = Arc::clone(&pending.context.sink);
            if number > steps.steps {
                if pending.finish().is_some() {
                    server.respond(pending, Response::text(&format!("took {} steps", steps.steps)));
                }
            } else if pending.context.client.open.is_open(&pending.id) {
                if let Some(token) = &token {
                    send_progress(&pending, &steps, token, number);
                }
                server.step(pending, steps, token, number + 1);
            }
            sink.flush();
        });
    }

    fn mutate_tools(&self, arguments: &str) -> Result<Response, RpcError> {
        #[derive(Deserialize)]
        struct Arguments {
            #[serde(default)]
            add: Option<String>,
            #[serde(default)]
            remove: Option<String>,
        }
        let Arguments { add, remove } = parse_arguments(arguments)?;
        let text = match remove {
            Some(name) if self.tool_list.remove(&name) => format!("removed {name}"),
            Some(name) => return Ok(Response::tool_error(&format!("{name} was never added"))),
            None => {
                let number = self.tool_list.n_added() + 1;
                let name = add.unwrap_or_else(|| format!("extra_{number}"));
                self.tool_list.add(name.clone());
                format!("added {name}")
            }
        };
        self.notify_tools_changed();
        Ok(Response::text(&text))
    }

    fn touch(&self, arguments: &str) -> Result<Response, RpcError> {
        #[derive(Deserialize)]
        struct Arguments {
            uri: String,
        }
        let Arguments { uri } = parse_arguments(arguments)?;
        self.notify_resource_updated(&uri);
        Ok(Response::text(&format!("touched {uri}")))
    }

    fn end_listens_by(&self, arguments: &str) -> Result<Response, RpcError> {
        #[derive(Deserialize)]
        struct Arguments {
            #[serde(default)]
            how: String,
        }
        let Arguments { how } = parse_arguments(arguments)?;
        Ok(Response::text(&format!("ended {}", self.end_listens(&how))))
    }

    fn forget_sessions(&self) -> Response {
        Response::text(&format!("forgot {}", self.sessions.forget()))
    }
}

#[derive(Debug, Deserialize)]
struct Steps {
    steps: u64,
    #[serde(default)]
    ms: u64,
}

fn send_progress(pending: &PendingRequest, steps: &Steps, token: &Value, number: u64) {
    let mut params = json!({ "progressToken": token, "progress": number, "total": steps.steps });
    if let (true, Some(members)) =
        (pending.revision >= Revision::R2025_03_26, params.as_object_mut())
    {
        members.insert("message".to_owned(), json!(format!("step {number}")));
    }
    pending.sink().send(&jsonrpc::notification_line("notifications/progress", Some(&params)));
}

/// Spec 2026-07-28, logging: nothing is sent unless the request names a level.
fn log(
    pending: &PendingRequest,
    arguments: &str,
    params: &Params<'_>,
) -> Result<Response, RpcError> {
    #[derive(Deserialize)]
    struct Arguments {
        #[serde(default)]
        level: Option<String>,
        #[serde(default)]
        text: Option<String>,
        #[serde(default)]
        count: Option<u64>,
    }
    let Arguments { level, text, count } = parse_arguments(arguments)?;
    let level = level.as_deref().unwrap_or("info");
    let Some(rank) = jsonrpc::severity(level) else {
        return Ok(Response::tool_error(&format!("no log level `{level}`")));
    };
    let least = match pending.era() {
        Era::Legacy => Some(pending.context.client.subscriptions.log_level()),
        Era::Modern => params.meta.log_level.as_deref().and_then(jsonrpc::severity),
    };
    let sent = if least.is_some_and(|least| least <= rank) { count.unwrap_or(1) } else { 0 };
    let message = json!({ "level": level, "logger": "log", "data": text.unwrap_or_default() });
    let line = jsonrpc::notification_line("notifications/message", Some(&message));
    for _ in 0..sent {
        pending.sink().send(&line);
    }
    Ok(Response::text(&format!("sent {sent}")))
}

pub(super) fn parse_arguments<'a, T: Deserialize<'a>>(arguments: &'a str) -> Result<T, RpcError> {
    serde_json::from_str(arguments)
        .map_err(|error| RpcError::new(error_code::INVALID_PARAMS, format!("arguments: {error}")))
}

/// Copies the texts as raw JSON: benchmarks use this call.
fn echo(arguments: &str) -> Result<Response, RpcError> {
    #[derive(Deserialize)]
    struct Arguments<'a> {
        #[serde(borrow)]
        text: &'a RawValue,
        #[serde(borrow, default)]
        nonce: Option<&'a RawValue>,
    }
    let Arguments { text, nonce } = parse_arguments(arguments)?;
    let as_string = |raw: &RawValue| {
        if raw.get().starts_with('"') { raw.get().to_owned() } else { json_string(raw.get()) }
    };
    let text = as_string(text);
    Ok(Response::Complete(match nonce {
        None => format!(r#""content":[{{"type":"text","text":{text}}}]"#),
        Some(nonce) => format!(
            r#""content":[{{"type":"text","text":{text}}},{{"type":"text","text":{}}}]"#,
            as_string(nonce)
        ),
    }))
}

fn add(arguments: &str, revision: Revision) -> Result<Response, RpcError> {
    #[derive(Deserialize)]
    struct Arguments {
        a: f64,
        b: f64,
    }
    let Arguments { a, b } = parse_arguments(arguments)?;
    let sum = a + b;
    Ok(if revision >= Revision::R2025_06_18 {
        Response::structured(&sum.to_string(), &json!({ "sum": sum }))
    } else {
        Response::text(&sum.to_string())
    })
}

fn big(arguments: &str) -> Result<Response, RpcError> {
    #[derive(Deserialize)]
    struct Arguments {
        bytes: usize,
        #[serde(default)]
        escapes: bool,
    }
    let Arguments { bytes, escapes } = parse_arguments(arguments)?;
    if !escapes {
        return Ok(Response::text(&"x".repeat(bytes)));
    }
    // 14 bytes that break readers: quote, backslash, newline, control character, two- and four-byte characters.
    let unit = "a\"b\\c\nd\u{1}é\u{1f600}";
    let mut text = unit.repeat(bytes / unit.len());
    text.push_str(&"x".repeat(bytes % unit.len()));
    Ok(Response::text(&text))
}

fn fail(arguments: &str) -> Result<Response, RpcError> {
    #[derive(Deserialize)]
    struct Arguments {
        #[serde(default)]
        text: Option<String>,
    }
    let Arguments { text } = parse_arguments(arguments)?;
    Ok(Response::tool_error(text.as_deref().unwrap_or("this tool always fails")))
}

fn environment() -> Response {
    let variables: Map<String, Value> = std::env::vars_os()
        .map(|(name, value)| {
            let value = Value::from(value.to_string_lossy());
            (name.to_string_lossy().into_owned(), value)
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
    let own = std::process::id();
    let Some(status) = process::status(own) else {
        return Response::tool_error("there is no /proc here");
    };
    let facts = json!({
        "pid": own,
        "parent": status.parent,
        "group": status.group,
        "session": status.session,
    });
    Response::text(&facts.to_string())
}
