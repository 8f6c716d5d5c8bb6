//! Faulty responses: late, duplicate, misshapen, huge or missing.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::child_process;
use super::client::PendingRequest;
use super::server::Server;
use crate::jsonrpc::{Response, RpcError};
use crate::message_sink::{LongKind, LongMessage, MessageSink};
use crate::plan::{Cursor, Framing, HugePlacement, Shape, WrongId};
use crate::revision::Era;

/// Faults of one response.
#[derive(Debug, Default)]
pub(super) struct ResponseFaults {
    pub(super) late: Option<Duration>,
    pub(super) hold: Option<u64>,
    pub(super) withheld: Withheld,
    pub(super) copies: Copies,
    pub(super) id: Option<WrongId>,
    pub(super) shape: Option<Shape>,
    pub(super) error: Option<i64>,
    pub(super) framing: Option<Framing>,
    pub(super) huge: Option<(u64, HugePlacement)>,
    /// Exit code after half of the response.
    pub(super) half: Option<i32>,
    pub(super) version: Option<String>,
    pub(super) cursor: Option<Cursor>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Withheld {
    #[default]
    No,
    Yes,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    #[default]
    One,
    Two,
}

impl Server {
    /// Sends a faulty response: now, later, together with others, or never.
    pub(super) fn send_faulty(self: &Arc<Self>, mut pending: PendingRequest, response: Response) {
        let response_faults = pending.response_faults.take().unwrap_or_default();
        if response_faults.withheld == Withheld::Yes {
            return pending.register_open(None);
        }
        if let Some(late) = response_faults.late {
            pending.register_open(None);
            self.timer.after(late, move || {
                // Answer even a cancelled call, like a response that was already in transit.
                drop(pending.finish());
                emit(&pending, &response_faults, response);
                pending.sink().flush();
            });
            return;
        }
        let Some(enough) = response_faults.hold else {
            return emit(&pending, &response_faults, response);
        };
        pending.response_faults = Some(response_faults);
        let mut held = self.held.lock();
        held.push((pending, response));
        if held.len() as u64 >= enough {
            for (mut pending, response) in mem::take(&mut *held).into_iter().rev() {
                let response_faults = pending.response_faults.take().unwrap_or_default();
                emit(&pending, &response_faults, response);
                pending.sink().flush();
            }
        }
    }
}

fn emit(pending: &PendingRequest, response_faults: &ResponseFaults, response: Response) {
    emit_unfinished(pending, response_faults, response);
    pending.sink().finish();
}

fn emit_unfinished(pending: &PendingRequest, response_faults: &ResponseFaults, response: Response) {
    let response = match response_faults.error {
        Some(code) => Response::Error(RpcError::new(code, "the plan says so")),
        None => response,
    };
    let id =
        response_faults.id.map_or_else(|| pending.id.clone(), |wrong| wrong_id(wrong, &pending.id));
    if let Some((bytes, place)) = response_faults.huge {
        return emit_huge(pending.sink(), &id, bytes, place, pending.era());
    }
    pending.set_http_status(&response);
    let body = Server::body(pending, &response);
    let body = response_faults.shape.map_or_else(|| body.clone(), |shape| misshapen(shape, &body));
    let comma = if body.is_empty() { "" } else { "," };
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id}{comma}{body}}}"#);
    if let Some(code) = response_faults.half {
        pending.sink().write_raw(line.as_bytes().get(..line.len() / 2).unwrap_or_default());
        child_process::exit(code);
    }
    emit_framed(pending.sink(), &line, response_faults.framing);
    if response_faults.copies == Copies::Two {
        emit_framed(pending.sink(), &line, response_faults.framing);
    }
}

fn emit_framed(sink: &dyn MessageSink, line: &str, framing: Option<Framing>) {
    match framing {
        None => sink.respond(line.as_bytes()),
        Some(Framing::Crlf) => sink.respond(format!("{line}\r").as_bytes()),
        Some(Framing::Bom) => sink.respond(format!("\u{feff}{line}").as_bytes()),
        Some(Framing::Batch) => sink.respond(format!("[{line}]").as_bytes()),
        Some(Framing::Bytewise) => sink.respond_bytewise(line.as_bytes()),
    }
}

/// A valid tool result with one huge text.
fn emit_huge(sink: &dyn MessageSink, id: &str, bytes: u64, place: HugePlacement, era: Era) {
    let kind = if era == Era::Modern { r#""resultType":"complete","# } else { "" };
    let open = format!(r#""result":{{{kind}"content":[{{"type":"text","text":""#);
    let (head, tail) = match place {
        HugePlacement::Back => {
            (format!(r#"{{"jsonrpc":"2.0",{open}"#), format!("\"}}]}},\"id\":{id}}}"))
        }
        _ => (format!(r#"{{"jsonrpc":"2.0","id":{id},{open}"#), "\"}]}}".to_owned()),
    };
    let (head, tail) = (head.as_bytes(), tail.as_bytes());
    sink.send_long(&LongMessage { head, filler: b'a', bytes, tail, kind: LongKind::Response });
}

fn wrong_id(wrong: WrongId, id: &str) -> String {
    match wrong {
        WrongId::Zero => "0".to_owned(),
        WrongId::Text => format!("\"{}\"", id.trim_matches('"')),
        // Only a number has a float form.
        WrongId::Float if id.starts_with('"') => id.to_owned(),
        WrongId::Float => format!("{id}.0"),
        WrongId::Unknown => "987654321".to_owned(),
        WrongId::Null => "null".to_owned(),
    }
}

fn misshapen(shape: Shape, body: &str) -> String {
    match shape {
        Shape::Both => format!(
            r#"{body},"{}":{{"code":-32603,"message":"also an error"}}"#,
            if body.starts_with(r#""error""#) { "result" } else { "error" }
        ),
        Shape::Neither => String::new(),
        Shape::Null => r#""result":null"#.to_owned(),
        Shape::Number => r#""result":5"#.to_owned(),
        Shape::Alien => r#""result":{"resultType":"alien","content":[]}"#.to_owned(),
    }
}
