//! Sessions of legacy clients: opened by `initialize`, spoken in by POST, listened to by GET, ended by DELETE.
//!
//! Spec 2025-11-25, transports: a client that leaves has not cancelled anything. What it missed is kept, and it
//! can ask for it by the last event that it saw.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use toolrack_mcp::{Era, Revision};
use toolrack_transport::{Frame, JsonRpcError, elements};

use super::HttpGateway;
use super::body::Events;
use super::request_headers::{HTTP_SESSION_ID, LAST_EVENT_ID, PROTOCOL_VERSION, single};
use super::response::{Answer, Shape, Takes, empty, first_of, json, not_allowed, refusal, stream};
use super::session::Session;
use crate::client_session::{Conversation, Reply};
use crate::encode::{internal, invalid_request};
use crate::message_queue::{Outbox, Replay};

/// What kind of messages came together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Something that is answered.
    Requests,
    /// Something that is not.
    Others,
    /// Nothing that could be read, or that the revision has.
    Unreadable,
}

impl HttpGateway {
    /// Opens a session, if the greeting is sound and there is room.
    pub(crate) async fn open(&self, message: &Bytes) -> Answer {
        let shared = &self.gateway.shared;
        let standing = Arc::new(Outbox::new(Replay::Yes, shared.manager.mask()));
        let conversation = Conversation::new(Arc::clone(shared), standing);
        let out = Arc::new(Outbox::new(Replay::No, shared.manager.mask()));
        let reader = out.read(None);
        conversation.receive(message, &Reply::single(&out));
        // The greeting is answered on the spot.
        let Some((_, greeting)) = out.next(&reader).await else {
            return refusal(StatusCode::BAD_REQUEST, &internal("there is no answer"));
        };
        if conversation.caller().is_none() {
            return json(StatusCode::OK, greeting);
        }
        let Some(id) = self.sessions.add(Arc::clone(&conversation)) else {
            conversation.end();
            return refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                &internal("too many sessions are open"),
            );
        };
        let mut answer = json(StatusCode::OK, greeting);
        if let Ok(mut id) = HeaderValue::from_str(&id) {
            id.set_sensitive(true);
            answer.headers_mut().insert(HTTP_SESSION_ID, id);
        }
        answer
    }

    pub(crate) async fn converse(
        &self,
        id: &str,
        headers: &HeaderMap,
        message: Bytes,
        takes: Takes,
    ) -> Answer {
        let session = match self.session(id, headers) {
            Ok(session) => session,
            Err(answer) => return *answer,
        };
        let conversation = &session.conversation;
        let revision = conversation.caller().map(|it| it.revision);
        match load(&message, revision) {
            Load::Others => {
                conversation.receive(&message, &Reply::standing(conversation.out()));
                empty(StatusCode::ACCEPTED)
            }
            Load::Requests => {
                let (number, out) = session.open_stream(takes.carries());
                let reader = out.read(None);
                let presence = Some(session.enter());
                conversation.receive(&message, &Reply::single(&out));
                let opening =
                    revision.filter(|it| *it >= Revision::R2025_11_25).map(|_| opening(number));
                let stream = Some(number.to_string());
                let events = Events {
                    out: Arc::clone(&out),
                    reader,
                    stream,
                    first: None,
                    _request: None,
                    _presence: presence,
                };
                let shape = if elements(&message).is_some() { Shape::Batch } else { Shape::Single };
                let answer = first_of(events, (takes, shape), opening, || StatusCode::OK).await;
                if out.is_over() {
                    session.close_stream_if_whole(number, &answer);
                }
                answer
            }
            Load::Unreadable => {
                let mask = self.gateway.shared.manager.mask();
                let out = Arc::new(Outbox::new(Replay::No, mask));
                let reader = out.read(None);
                conversation.receive(&message, &Reply::single(&out));
                let said = out.next(&reader).await.map(|(_, message)| message);
                json(StatusCode::BAD_REQUEST, said.unwrap_or_default())
            }
        }
    }

    /// What the client did not ask for, or what it missed of an answer.
    pub(crate) fn get(&self, headers: &HeaderMap) -> Answer {
        let Some(id) = single(headers, &HTTP_SESSION_ID) else { return not_allowed("POST") };
        if matches!(Takes::of(headers), None | Some(Takes::Json)) {
            let error = invalid_request("Not Acceptable: only text/event-stream is given");
            return refusal(StatusCode::NOT_ACCEPTABLE, &error);
        }
        let session = match self.session(id, headers) {
            Ok(session) => session,
            Err(answer) => return *answer,
        };
        let resumed = single(headers, &LAST_EVENT_ID).and_then(|it| session.resume(it));
        let (number, out, from) = match resumed {
            Some((number, out, next)) => (number, out, Some(next)),
            None => (0, Arc::clone(session.conversation.out()), None),
        };
        let reader = out.read(from);
        let first = Some(Bytes::from_static(b": open\n\n"));
        let (stream_name, presence) = (Some(number.to_string()), Some(session.enter()));
        stream(Events {
            out,
            reader,
            stream: stream_name,
            first,
            _request: None,
            _presence: presence,
        })
    }

    pub(crate) fn delete(&self, headers: &HeaderMap) -> Answer {
        let Some(id) = single(headers, &HTTP_SESSION_ID) else { return not_allowed("POST") };
        if let Err(answer) = self.session(id, headers) {
            return *answer;
        }
        self.sessions.remove(id);
        empty(StatusCode::OK)
    }

    fn session(&self, id: &str, headers: &HeaderMap) -> Result<Arc<Session>, Box<Answer>> {
        let session = self.sessions.find(id).ok_or_else(|| {
            let error = JsonRpcError::new(-32001, "Session not found");
            Box::new(refusal(StatusCode::NOT_FOUND, &error))
        })?;
        let said = single(headers, &PROTOCOL_VERSION);
        let is_spoken = |it: &str| Revision::parse(it).is_some_and(|it| it.era() == Era::Legacy);
        match said {
            Some(version) if !is_spoken(version) => {
                let error = invalid_request("Bad Request: Unsupported protocol version");
                Err(Box::new(refusal(StatusCode::BAD_REQUEST, &error)))
            }
            _ => Ok(session),
        }
    }
}

impl Session {
    /// An answer that went out in one piece is not asked for again.
    fn close_stream_if_whole(&self, number: u64, answer: &Answer) {
        if http_body::Body::size_hint(answer.body()).exact().is_some() {
            self.close_stream(number);
        }
    }
}

/// Spec 2025-11-25, transports §Resumability: the first event names the stream before anything was said.
fn opening(number: u64) -> Bytes {
    Bytes::from(format!("id: {number}-begin\ndata: \n\n"))
}

/// What cannot be read is refused beside the answers, if there are any to come.
fn load(message: &[u8], revision: Option<Revision>) -> Load {
    let messages = match elements(message) {
        Some(_) if revision.is_none_or(|it| !it.has_batches()) => return Load::Unreadable,
        Some(batch) => batch,
        None => vec![message],
    };
    let mut load = if messages.is_empty() { Load::Unreadable } else { Load::Others };
    for message in messages {
        match Frame::parse(message) {
            Ok(Frame::Request { .. }) => return Load::Requests,
            Ok(_) => {}
            Err(_) => load = Load::Unreadable,
        }
    }
    load
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_answered_if_one_of_them_asks() {
        let check = |message: &str, expected| {
            let revision = Some(Revision::R2025_03_26);
            assert_eq!(load(message.as_bytes(), revision), expected, "{message}");
            let revision = Some(Revision::R2025_11_25);
            let without = if message.starts_with('[') { Load::Unreadable } else { expected };
            assert_eq!(load(message.as_bytes(), revision), without, "{message}");
        };
        check(r#"{"id":1,"method":"m"}"#, Load::Requests);
        check(r#"{"method":"m"}"#, Load::Others);
        check(r#"{"id":1,"result":{}}"#, Load::Others);
        check(r#"[{"method":"m"},{"id":1,"method":"m"}]"#, Load::Requests);
        check(r#"[{"method":"m"}]"#, Load::Others);
        check("[]", Load::Unreadable);
        check("[7]", Load::Unreadable);
        check(r#"[7,{"method":"m"}]"#, Load::Unreadable);
        check(r#"[7,{"id":1,"method":"m"}]"#, Load::Requests);
        check("{oops", Load::Unreadable);
    }
}
