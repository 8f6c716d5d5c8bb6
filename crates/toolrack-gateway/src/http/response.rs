//! Answers over HTTP: statuses, and the choice between one message and a stream of them.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tokio::time::timeout;
use toolrack_mcp::ErrorCode;
use toolrack_transport::{JsonRpcError, RequestId};

use super::body::{self, Events, GatewayBody, event};
use crate::encode::{answer, refusal_without_id};
use crate::message_queue::Carries;

pub(crate) type Answer = Response<GatewayBody>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// When nothing has come for so long, a stream is begun to show that the request is alive.
const SILENCE: Duration = Duration::from_secs(10);

/// Which bodies a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Both,
    Json,
    Events,
}

impl Takes {
    /// Spec 2025-11-25 and 2026-07-28, transports: a client takes both. One that says less gets less, and one
    /// that says nothing is not held to it.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut said = headers.get_all(ACCEPT).iter().filter_map(|it| it.to_str().ok()).peekable();
        if said.peek().is_none() {
            return Some(Takes::Both);
        }
        let (mut json, mut events) = (false, false);
        for range in said.flat_map(|it| it.split(',')) {
            match range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                "*/*" => (json, events) = (true, true),
                "application/json" | "application/*" => json = true,
                "text/event-stream" | "text/*" => events = true,
                _ => {}
            }
        }
        match (json, events) {
            (true, true) => Some(Takes::Both),
            (true, false) => Some(Takes::Json),
            (false, true) => Some(Takes::Events),
            (false, false) => None,
        }
    }
}

impl Takes {
    /// What can be given on a stream to such a client.
    pub(crate) fn carries(self) -> Carries {
        match self {
            Takes::Json => Carries::Answers,
            Takes::Both | Takes::Events => Carries::Everything,
        }
    }
}

/// How a client has asked, and so how it is answered in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Single,
    /// Spec 2025-03-26 has batches: several messages in an array.
    Batch,
}

impl Shape {
    fn of(self, answers: &[Bytes]) -> Bytes {
        match (self, answers) {
            (Shape::Single, [answer]) => answer.clone(),
            _ => {
                let answers: Vec<&[u8]> = answers.iter().map(|it| it.trim_ascii_end()).collect();
                [b"[", answers.join(&b',').as_slice(), b"]\n"].concat().into()
            }
        }
    }
}

/// Spec 2026-07-28, transports: the status that goes with an error of the protocol.
pub(crate) fn status_of(error: &JsonRpcError) -> StatusCode {
    match ErrorCode(error.code) {
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        ErrorCode::HEADER_MISMATCH
        | ErrorCode::MISSING_CLIENT_CAPABILITY
        | ErrorCode::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

pub(crate) fn refusal(status: StatusCode, error: &JsonRpcError) -> Answer {
    json(status, refusal_without_id(error))
}

pub(crate) fn refusal_to(status: StatusCode, id: &RequestId, error: JsonRpcError) -> Answer {
    json(status, answer(id, &Err(error)))
}

pub(crate) fn json(status: StatusCode, message: Bytes) -> Answer {
    let mut answer = bare(status, body::whole(message));
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

pub(crate) fn empty(status: StatusCode) -> Answer {
    bare(status, body::empty())
}

pub(crate) fn not_allowed(methods: &'static str) -> Answer {
    let mut answer = empty(StatusCode::METHOD_NOT_ALLOWED);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

pub(crate) fn stream(events: Events) -> Answer {
    let mut answer = bare(StatusCode::OK, body::streamed(events));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Some proxies hold events back until they have many.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    answer
}

fn bare(status: StatusCode, body: GatewayBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
}

/// Waits for the first message. If it is the answer, it is given alone; if something comes before it, or nothing
/// for a while, the rest comes as a stream that begins with `opening`.
pub(crate) async fn first_of(
    mut events: Events,
    (takes, shape): (Takes, Shape),
    opening: Option<Bytes>,
    status: impl Fn() -> StatusCode,
) -> Answer {
    if takes == Takes::Json {
        return all_of(events, shape, status).await;
    }
    let first = timeout(SILENCE, events.out.next(&events.reader)).await;
    match first {
        Ok(None) => empty(StatusCode::ACCEPTED),
        Ok(Some((number, message))) if events.out.is_last(number) && takes != Takes::Events => {
            json(status(), shape.of(&[message]))
        }
        Ok(Some((number, message))) => {
            let first = event(events.stream.as_deref(), number, &message);
            events.first = Some([opening.unwrap_or_default(), first].concat().into());
            stream(events)
        }
        Err(_elapsed) => {
            events.first = Some(opening.unwrap_or(Bytes::from_static(b": alive\n\n")));
            stream(events)
        }
    }
}

/// Waits for all answers. Whoever takes no stream gets them in one piece, and nothing else was put in.
async fn all_of(events: Events, shape: Shape, status: impl Fn() -> StatusCode) -> Answer {
    let mut answers = Vec::new();
    while let Some((_, message)) = events.out.next(&events.reader).await {
        answers.push(message);
    }
    if answers.is_empty() {
        return empty(StatusCode::ACCEPTED);
    }
    json(status(), shape.of(&answers))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use toolrack_transport::Mask;

    use super::*;
    use crate::message_queue::{Outbox, Replay};

    /// What a client that takes JSON only is given of these answers, each of which came before the end did.
    async fn given(answers: &[&'static str], shape: Shape) -> String {
        let out = Outbox::new(Replay::No, &Mask::default()).carrying(Takes::Json.carries());
        let out = Arc::new(out);
        let reader = out.read(None);
        for answer in answers {
            out.tell(Bytes::from_static(b"a notification\n"));
            out.put(Bytes::from_static(answer.as_bytes()));
        }
        out.finish();
        let (stream, first) = (None, None);
        let events = Events { out, reader, stream, first, _request: None, _presence: None };
        let answer = first_of(events, (Takes::Json, shape), None, || StatusCode::OK).await;
        let whole = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8_lossy(&whole).into_owned()
    }

    #[tokio::test]
    async fn whoever_takes_json_only_gets_every_answer_and_nothing_else() {
        assert_eq!(given(&[], Shape::Single).await, "");
        assert_eq!(given(&["1\n"], Shape::Single).await, "1\n");
        assert_eq!(given(&["1\n"], Shape::Batch).await, "[1]\n");
        assert_eq!(given(&["1\n", "2\n"], Shape::Batch).await, "[1,2]\n");
    }

    #[test]
    fn a_client_says_what_it_takes() {
        let check = |accept: Option<&str>, expected: Option<Takes>| {
            let mut headers = HeaderMap::new();
            accept.map(|it| headers.insert(ACCEPT, HeaderValue::from_str(it).unwrap()));
            assert_eq!(Takes::of(&headers), expected, "{accept:?}");
        };
        check(Some("application/json, text/event-stream"), Some(Takes::Both));
        check(Some("Application/JSON;q=0.5"), Some(Takes::Json));
        check(Some("text/event-stream"), Some(Takes::Events));
        check(Some("*/*"), Some(Takes::Both));
        check(Some("text/html"), None);
        check(None, Some(Takes::Both));
    }

    /// Protocol facts §18.5.
    #[test]
    fn errors_of_the_protocol_have_their_status() {
        let check = |code, expected: u16| {
            assert_eq!(status_of(&JsonRpcError::new(code, "")).as_u16(), expected, "{code}");
        };
        check(-32601, 404);
        check(-32020, 400);
        check(-32021, 400);
        check(-32022, 400);
        check(-32602, 200);
        check(-32603, 200);
    }
}
