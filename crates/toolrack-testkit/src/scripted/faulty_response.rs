//! Responses and their faults: late, duplicate, misshapen, huge or missing.

use std::mem;
use std::sync::Arc;

use super::child_process;
use super::client::PendingRequest;
use super::hostile_values;
use crate::jsonrpc::{self, Response, RpcError};
use crate::message_sink::{LongKind, LongMessage, MessageSink};
use crate::plan::{Fault, Framing, HugePlacement, Shape, WrongId};
use crate::revision::Era;

impl PendingRequest {
    /// Sends the response as the plan says: now, later, together with others, or never.
    pub(crate) fn respond(self, response: Response) {
        let (mut late, mut enough) = (None, None);
        for fault in &self.faults {
            match fault {
                Fault::Hang | Fault::Huge { place: HugePlacement::Open, .. } => {
                    return self.register_open(Vec::new());
                }
                Fault::Late(delay) => late = Some(*delay),
                Fault::Hold(count) => enough = Some(*count),
                _ => (),
            }
        }
        let server = Arc::clone(&self.context.server);
        match (late, enough) {
            (None, None) => self.emit(response),
            (Some(late), _) => {
                self.register_open(Vec::new());
                server.timer.after(late, move || {
                    // Answer even a cancelled call, like a response that was already in transit.
                    self.finish();
                    self.emit(response);
                    self.sink().flush();
                });
            }
            (None, Some(enough)) => {
                let mut held = server.held.lock();
                held.push((self, response));
                if held.len() as u64 >= enough {
                    for (pending, response) in mem::take(&mut *held).into_iter().rev() {
                        pending.emit(response);
                        pending.sink().flush();
                    }
                }
            }
        }
    }

    /// Version that the plan puts into the handshake.
    pub(super) fn planned_version(&self) -> Option<&str> {
        self.faults.iter().rev().find_map(|fault| match fault {
            Fault::Version(version) => Some(version.as_str()),
            _ => None,
        })
    }

    fn emit(&self, response: Response) {
        self.emit_unfinished(response);
        self.sink().finish();
    }

    fn emit_unfinished(&self, mut response: Response) {
        let (sink, mut id, mut copies) = (self.sink(), self.id.clone(), 1);
        let (mut shape, mut framing, mut half, mut huge) = (None, None, None, None);
        for fault in &self.faults {
            match fault {
                Fault::Error(code) => {
                    response = Response::Error(RpcError::new(*code, "the plan says so"));
                }
                Fault::Member { name, value, amount } => {
                    response.set_member(name, &hostile_values::value(*value, *amount));
                }
                Fault::Id(wrong) => id = wrong_id(*wrong, &self.id),
                Fault::Huge { bytes, place } if fault.changes_response() => {
                    huge = Some((*bytes, *place));
                }
                Fault::Shape(wrong) => shape = Some(*wrong),
                Fault::Frame(wrong) => framing = Some(*wrong),
                Fault::Half(code) => half = Some(*code),
                Fault::Dup => copies = 2,
                _ => (),
            }
        }
        if let Some((bytes, place)) = huge {
            return emit_huge(sink, &id, bytes, place, self.era());
        }
        self.set_http_status(&response);
        let mut body = response.body(self.era(), &self.context.server.result_meta);
        if let Some(shape) = shape {
            body = misshapen(shape, &body);
        }
        let line = hostile_values::with_invalid_bytes(jsonrpc::response_line(&id, &body));
        if let Some(code) = half {
            sink.write_raw(line.get(..line.len() / 2).unwrap_or_default());
            child_process::exit(code);
        }
        for _ in 0..copies {
            emit_framed(sink, &line, framing);
        }
    }
}

fn emit_framed(sink: &dyn MessageSink, line: &[u8], framing: Option<Framing>) {
    match framing {
        None => sink.respond(line),
        Some(Framing::Crlf) => sink.respond(&[line, b"\r"].concat()),
        Some(Framing::Bom) => sink.respond(&[b"\xef\xbb\xbf", line].concat()),
        Some(Framing::Batch) => sink.respond(&[b"[", line, b"]"].concat()),
        Some(Framing::Bytewise) => sink.send_long(&LongMessage {
            head: line,
            piece_bytes: 1,
            kind: LongKind::Response,
            ..LongMessage::default()
        }),
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
    let (head, tail, kind) = (head.as_bytes(), tail.as_bytes(), LongKind::Response);
    sink.send_long(&LongMessage {
        head,
        filler: b'a',
        bytes,
        tail,
        kind,
        ..LongMessage::default()
    });
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
