//! How an answer departs from the plain one, and the sending of such answers.

use std::mem;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::child_process;
use super::client::Ticket;
use super::server::Server;
use crate::jsonrpc::{Answer, Refusal};
use crate::message_sink::{Long, LongKind, Outlet};
use crate::plan::{Cursor, Framing, Place, Shape, WrongId};
use crate::revision::Era;

/// What a plan wants of one answer.
#[derive(Debug, Default)]
pub(super) struct Twist {
    pub(super) late: Option<Duration>,
    pub(super) hold: Option<u64>,
    pub(super) withheld: Withheld,
    pub(super) copies: Copies,
    pub(super) id: Option<WrongId>,
    pub(super) shape: Option<Shape>,
    pub(super) error: Option<i64>,
    pub(super) framing: Option<Framing>,
    pub(super) huge: Option<(u64, Place)>,
    /// The exit code after half of the answer.
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
    /// Sends a twisted answer: now, later, with others, or not at all.
    pub(super) fn deliver(self: &Arc<Self>, mut ticket: Ticket, answer: Answer) {
        let twist = ticket.twist.take().unwrap_or_default();
        if twist.withheld == Withheld::Yes {
            return ticket.keep_open(None);
        }
        if let Some(late) = twist.late {
            ticket.keep_open(None);
            self.timer.after(late, move || {
                // It answers even a cancelled call, as a server does whose answer was on its way.
                drop(ticket.finish());
                emit(&ticket, &twist, answer);
                ticket.outlet().flush();
            });
            return;
        }
        let Some(enough) = twist.hold else { return emit(&ticket, &twist, answer) };
        ticket.twist = Some(twist);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.push((ticket, answer));
        if held.len() as u64 >= enough {
            for (mut ticket, answer) in mem::take(&mut *held).into_iter().rev() {
                let twist = ticket.twist.take().unwrap_or_default();
                emit(&ticket, &twist, answer);
                ticket.outlet().flush();
            }
        }
    }
}

fn emit(ticket: &Ticket, twist: &Twist, answer: Answer) {
    emit_unfinished(ticket, twist, answer);
    ticket.outlet().finish();
}

fn emit_unfinished(ticket: &Ticket, twist: &Twist, answer: Answer) {
    let answer = match twist.error {
        Some(code) => Answer::Refused(Refusal::new(code, "the plan says so")),
        None => answer,
    };
    let id = twist.id.map_or_else(|| ticket.id.clone(), |wrong| wrong_id(wrong, &ticket.id));
    if let Some((bytes, place)) = twist.huge {
        return emit_huge(ticket.outlet(), &id, bytes, place, ticket.era());
    }
    ticket.show_status(&answer);
    let body = Server::body(ticket, &answer);
    let body = twist.shape.map_or_else(|| body.clone(), |shape| misshapen(shape, &body));
    let comma = if body.is_empty() { "" } else { "," };
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id}{comma}{body}}}"#);
    if let Some(code) = twist.half {
        ticket.outlet().write_raw(line.as_bytes().get(..line.len() / 2).unwrap_or_default());
        child_process::leave(code);
    }
    emit_framed(ticket.outlet(), &line, twist.framing);
    if twist.copies == Copies::Two {
        emit_framed(ticket.outlet(), &line, twist.framing);
    }
}

fn emit_framed(outlet: &dyn Outlet, line: &str, framing: Option<Framing>) {
    match framing {
        None => outlet.answer(line.as_bytes()),
        Some(Framing::Crlf) => outlet.answer(format!("{line}\r").as_bytes()),
        Some(Framing::Bom) => outlet.answer(format!("\u{feff}{line}").as_bytes()),
        Some(Framing::Batch) => outlet.answer(format!("[{line}]").as_bytes()),
        Some(Framing::Bytewise) => outlet.answer_bytewise(line.as_bytes()),
    }
}

/// A proper tool result whose one text is too long for anybody.
fn emit_huge(outlet: &dyn Outlet, id: &str, bytes: u64, place: Place, era: Era) {
    let kind = if era == Era::Modern { r#""resultType":"complete","# } else { "" };
    let open = format!(r#""result":{{{kind}"content":[{{"type":"text","text":""#);
    let (head, tail) = match place {
        Place::Back => (format!(r#"{{"jsonrpc":"2.0",{open}"#), format!("\"}}]}},\"id\":{id}}}")),
        _ => (format!(r#"{{"jsonrpc":"2.0","id":{id},{open}"#), "\"}]}}".to_owned()),
    };
    let (head, tail) = (head.as_bytes(), tail.as_bytes());
    outlet.put_long(&Long { head, filler: b'a', bytes, tail, kind: LongKind::Answer });
}

fn wrong_id(wrong: WrongId, id: &str) -> String {
    match wrong {
        WrongId::Zero => "0".to_owned(),
        WrongId::Text => format!("\"{}\"", id.trim_matches('"')),
        // Only a number has such a form.
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
