//! The tools of the scripted server, except `ask`.
//!
//! **Invariant:** a tool that takes time runs on the timer, never in the reading thread.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::client::Ticket;
use super::server::Server;
use crate::jsonrpc::error_code;
use crate::jsonrpc::{self, Answer, Params, Refusal, quoted};
use crate::process;
use crate::revision::{Era, Revision};

impl Server {
    pub(super) fn call_tool(self: &Arc<Self>, ticket: Ticket, params: &Params<'_>) {
        let name = params.name.as_deref().unwrap_or_default();
        let arguments = params.arguments.map_or("{}", RawValue::get);
        let answer = match name {
            "echo" => echo(arguments),
            "add" => add(arguments, ticket.revision),
            "big" => big(arguments),
            "fail" => fail(arguments),
            "sleep" => return self.sleep(ticket, arguments),
            "progress" => return self.progress(ticket, arguments, params),
            "ask" => return self.ask(ticket, arguments, params),
            "log" => log(&ticket, arguments, params),
            "mutate_tools" => self.mutate_tools(arguments),
            "touch" => self.touch(arguments),
            "end_listens" => self.end_listens_by(arguments),
            "forget_sessions" => Ok(self.forget_sessions()),
            "env" => Ok(environment()),
            "fds" => Ok(descriptors()),
            "pid" => Ok(processes()),
            routed if self.options.header_tools.has(routed) => Ok(Answer::text(arguments)),
            extra if self.catalog.is_extra(extra) => Ok(Answer::text(extra)),
            _ => Err(Refusal::new(error_code::INVALID_PARAMS, format!("no tool `{name}`"))),
        };
        self.settle(ticket, answer.into());
    }

    fn sleep(self: &Arc<Self>, ticket: Ticket, arguments: &str) {
        #[derive(Deserialize)]
        struct Arguments {
            ms: u64,
        }
        let Arguments { ms } = match read(arguments) {
            Ok(arguments) => arguments,
            Err(refusal) => return self.settle(ticket, Answer::Refused(refusal)),
        };
        ticket.keep_open(None);
        let server = Arc::clone(self);
        self.timer.after(Duration::from_millis(ms), move || {
            if ticket.finish().is_some() {
                let outlet = Arc::clone(&ticket.origin.outlet);
                server.settle(ticket, Answer::text(&format!("slept {ms} ms")));
                outlet.flush();
            }
        });
    }

    fn progress(self: &Arc<Self>, ticket: Ticket, arguments: &str, params: &Params<'_>) {
        let steps: Steps = match read(arguments) {
            Ok(steps) => steps,
            Err(refusal) => return self.settle(ticket, Answer::Refused(refusal)),
        };
        let token = params
            .meta
            .progress_token
            .and_then(|progress_token| serde_json::from_str(progress_token.get()).ok());
        ticket.keep_open(None);
        self.step(ticket, steps, token, 1);
    }

    fn step(self: &Arc<Self>, ticket: Ticket, steps: Steps, token: Option<Value>, number: u64) {
        let server = Arc::clone(self);
        self.timer.after(Duration::from_millis(steps.ms), move || {
            let outlet = Arc::clone(&ticket.origin.outlet);
            if number > steps.steps {
                if ticket.finish().is_some() {
                    server.settle(ticket, Answer::text(&format!("took {} steps", steps.steps)));
                }
            } else if ticket.origin.client.open.is_open(&ticket.id) {
                if let Some(token) = &token {
                    tell_progress(&ticket, &steps, token, number);
                }
                server.step(ticket, steps, token, number + 1);
            }
            outlet.flush();
        });
    }

    fn mutate_tools(&self, arguments: &str) -> Result<Answer, Refusal> {
        #[derive(Deserialize)]
        struct Arguments {
            #[serde(default)]
            add: Option<String>,
            #[serde(default)]
            remove: Option<String>,
        }
        let Arguments { add, remove } = read(arguments)?;
        let said = match remove {
            Some(name) if self.catalog.remove(&name) => format!("removed {name}"),
            Some(name) => return Ok(Answer::tool_failure(&format!("{name} was never added"))),
            None => {
                let number = self.catalog.n_added() + 1;
                let name = add.unwrap_or_else(|| format!("extra_{number}"));
                self.catalog.add(name.clone());
                format!("added {name}")
            }
        };
        self.tell_tools_changed();
        Ok(Answer::text(&said))
    }

    fn touch(&self, arguments: &str) -> Result<Answer, Refusal> {
        #[derive(Deserialize)]
        struct Arguments {
            uri: String,
        }
        let Arguments { uri } = read(arguments)?;
        self.tell_resource_updated(&uri);
        Ok(Answer::text(&format!("touched {uri}")))
    }

    fn end_listens_by(&self, arguments: &str) -> Result<Answer, Refusal> {
        #[derive(Deserialize)]
        struct Arguments {
            #[serde(default)]
            how: String,
        }
        let Arguments { how } = read(arguments)?;
        Ok(Answer::text(&format!("ended {}", self.end_listens(&how))))
    }

    fn forget_sessions(&self) -> Answer {
        Answer::text(&format!("forgot {}", self.sessions.forget()))
    }
}

#[derive(Debug, Deserialize)]
struct Steps {
    steps: u64,
    #[serde(default)]
    ms: u64,
}

fn tell_progress(ticket: &Ticket, steps: &Steps, token: &Value, number: u64) {
    let mut params = json!({ "progressToken": token, "progress": number, "total": steps.steps });
    if let (true, Some(members)) =
        (ticket.revision >= Revision::R2025_03_26, params.as_object_mut())
    {
        members.insert("message".to_owned(), json!(format!("step {number}")));
    }
    ticket.outlet().put(&jsonrpc::notification("notifications/progress", Some(&params)));
}

/// Spec 2026-07-28, logging: nothing is sent unless the request itself names a level.
fn log(ticket: &Ticket, arguments: &str, params: &Params<'_>) -> Result<Answer, Refusal> {
    #[derive(Deserialize)]
    struct Arguments {
        #[serde(default)]
        level: Option<String>,
        #[serde(default)]
        text: Option<String>,
        #[serde(default)]
        count: Option<u64>,
    }
    let Arguments { level, text, count } = read(arguments)?;
    let level = level.as_deref().unwrap_or("info");
    let Some(rank) = jsonrpc::severity(level) else {
        return Ok(Answer::tool_failure(&format!("no log level `{level}`")));
    };
    let least = match ticket.era() {
        Era::Legacy => Some(ticket.origin.client.audience.log_level()),
        Era::Modern => params.meta.log_level.as_deref().and_then(jsonrpc::severity),
    };
    let sent = if least.is_some_and(|least| least <= rank) { count.unwrap_or(1) } else { 0 };
    let message = json!({ "level": level, "logger": "log", "data": text.unwrap_or_default() });
    let line = jsonrpc::notification("notifications/message", Some(&message));
    for _ in 0..sent {
        ticket.outlet().put(&line);
    }
    Ok(Answer::text(&format!("sent {sent}")))
}

pub(super) fn read<'a, T: Deserialize<'a>>(arguments: &'a str) -> Result<T, Refusal> {
    serde_json::from_str(arguments)
        .map_err(|fault| Refusal::new(error_code::INVALID_PARAMS, format!("arguments: {fault}")))
}

/// The texts are copied as the JSON they came in: this is the call that measurements make.
fn echo(arguments: &str) -> Result<Answer, Refusal> {
    #[derive(Deserialize)]
    struct Arguments<'a> {
        #[serde(borrow)]
        text: &'a RawValue,
        #[serde(borrow, default)]
        nonce: Option<&'a RawValue>,
    }
    let Arguments { text, nonce } = read(arguments)?;
    let as_string = |raw: &RawValue| {
        if raw.get().starts_with('"') { raw.get().to_owned() } else { quoted(raw.get()) }
    };
    let text = as_string(text);
    Ok(Answer::Complete(match nonce {
        None => format!(r#""content":[{{"type":"text","text":{text}}}]"#),
        Some(nonce) => format!(
            r#""content":[{{"type":"text","text":{text}}},{{"type":"text","text":{}}}]"#,
            as_string(nonce)
        ),
    }))
}

fn add(arguments: &str, revision: Revision) -> Result<Answer, Refusal> {
    #[derive(Deserialize)]
    struct Arguments {
        a: f64,
        b: f64,
    }
    let Arguments { a, b } = read(arguments)?;
    let sum = a + b;
    Ok(if revision >= Revision::R2025_06_18 {
        Answer::structured(&sum.to_string(), &json!({ "sum": sum }))
    } else {
        Answer::text(&sum.to_string())
    })
}

fn big(arguments: &str) -> Result<Answer, Refusal> {
    #[derive(Deserialize)]
    struct Arguments {
        bytes: usize,
        #[serde(default)]
        escapes: bool,
    }
    let Arguments { bytes, escapes } = read(arguments)?;
    if !escapes {
        return Ok(Answer::text(&"x".repeat(bytes)));
    }
    // Fourteen bytes of what breaks readers: quote, backslash, newline, control, two and four byte characters.
    let unit = "a\"b\\c\nd\u{1}é\u{1f600}";
    let mut text = unit.repeat(bytes / unit.len());
    text.push_str(&"x".repeat(bytes % unit.len()));
    Ok(Answer::text(&text))
}

fn fail(arguments: &str) -> Result<Answer, Refusal> {
    #[derive(Deserialize)]
    struct Arguments {
        #[serde(default)]
        text: Option<String>,
    }
    let Arguments { text } = read(arguments)?;
    Ok(Answer::tool_failure(text.as_deref().unwrap_or("this tool always fails")))
}

fn environment() -> Answer {
    let variables: Map<String, Value> = std::env::vars_os()
        .map(|(name, value)| {
            let value = Value::from(value.to_string_lossy());
            (name.to_string_lossy().into_owned(), value)
        })
        .collect();
    Answer::text(&Value::Object(variables).to_string())
}

/// The descriptor that reads the directory is left out: it is closed before the answer leaves.
fn descriptors() -> Answer {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Answer::tool_failure("there is no /proc here");
    };
    let mut open = Map::new();
    for entry in entries.flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        if !target.starts_with("/proc/") {
            open.insert(entry.file_name().to_string_lossy().into_owned(), json!(target));
        }
    }
    Answer::text(&Value::Object(open).to_string())
}

/// Told by `/proc`: the system calls have no word for a group outside of our process namespace.
fn processes() -> Answer {
    let own = std::process::id();
    let Some(status) = process::status(own) else {
        return Answer::tool_failure("there is no /proc here");
    };
    let facts = json!({
        "pid": own,
        "parent": status.parent,
        "group": status.group,
        "session": status.session,
    });
    Answer::text(&facts.to_string())
}
