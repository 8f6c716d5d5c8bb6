//! Responses that are too large, compressed, or split into single bytes.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tokio::time::Instant;
use toolrack_http::HttpOptions;
use toolrack_testkit::eventually_async;
use toolrack_transport::{Delivery, OnCancel, OutgoingRequest, RequestTimeout, Transport};

use crate::fixture::{Fixture, SOON, STATELESS};
use crate::server::{Reply, SeenRequest, Server, Step};

const LIMIT: usize = 64 << 10;

type Make = Box<dyn Fn(&SeenRequest) -> Reply + Send + Sync>;

async fn small(server: &Server) -> Fixture {
    let options = HttpOptions { max_message_bytes: LIMIT, ..HttpOptions::default() };
    let fixture = Fixture::open(&server.url, options).await;
    fixture.transport.set_protocol_mode(STATELESS);
    fixture
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn answer(seen: &SeenRequest, n_bytes: usize) -> String {
    let result = json!({"text": "x".repeat(n_bytes)});
    json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}).to_string()
}

#[tokio::test]
async fn oversize_response_fails_alone() {
    let json = || Reply::status(200).header("content-type", "application/json");
    let rows: Vec<Make> = vec![
        Box::new(move |seen| json().send(answer(seen, LIMIT))),
        // Without `Content-Length`, so that the limit is checked while reading.
        Box::new(move |seen| json().send(answer(seen, LIMIT)).send("")),
        Box::new(move |_| {
            let bomb = gzip(&vec![b' '; 64 << 20]);
            json().header("content-encoding", "gzip").send(bomb)
        }),
        Box::new(|seen| Reply::events().send(format!("data: {}\n\n", answer(seen, LIMIT)))),
        Box::new(|_| {
            let bomb = gzip(&[b"data: ".to_vec(), vec![b'x'; 64 << 20]].concat());
            Reply::events().header("content-encoding", "gzip").send(bomb)
        }),
    ];
    for make in rows {
        let server = Server::start(move |seen| match seen.method() {
            "tools/call" => make(seen),
            _ => Reply::result(seen, json!({})),
        })
        .await;
        let fixture = small(&server).await;
        let expected = "response exceeds the limit of 65536 bytes".to_owned();
        let failure = Fixture::failure(fixture.request("tools/call").await);
        assert_eq!(failure, (expected, Delivery::Answered));
        assert_eq!(fixture.transport.stats().oversize, 1);
        fixture.request("tools/list").await.unwrap();
    }
}

#[tokio::test]
async fn small_response_respects_the_limit() {
    let server = Server::start(|seen| Reply::result(seen, json!({"text": "x".repeat(100)}))).await;
    for (max_message_bytes, is_taken) in [(100, false), (1_000, true)] {
        let options = HttpOptions { max_message_bytes, ..HttpOptions::default() };
        let fixture = Fixture::open(&server.url, options).await;
        fixture.transport.set_protocol_mode(STATELESS);
        assert_eq!(fixture.request("tools/call").await.is_ok(), is_taken, "{max_message_bytes}");
    }
}

/// A caller that takes a large text out of its response would have to copy it if the buffer were shared.
#[tokio::test]
async fn response_buffer_is_unique() {
    let server = Server::start(|seen| {
        let n_bytes = seen.body["params"]["n"].as_u64().unwrap_or_default();
        Reply::result(seen, json!({"text": "x".repeat(usize::try_from(n_bytes).unwrap())}))
    })
    .await;
    let fixture = Fixture::stateless(&server).await;
    for n_bytes in [10, 3_000, 5_000, 20_000, 58_000, 60_000, 64_000, 100_000, 10, 62_000] {
        let request = OutgoingRequest {
            method: "tools/call",
            params: &Some(json!({"n": n_bytes})),
            timeout: RequestTimeout::fixed(SOON),
            on_cancel: OnCancel::Notify,
        };
        let answer = fixture.transport.request(request).await.unwrap();
        assert!(answer.into_bytes().is_unique(), "{n_bytes}");
    }
}

#[tokio::test]
async fn oversize_notification_does_not_fail_the_request() {
    let script = |seen: &SeenRequest| {
        let note = json!({"jsonrpc": "2.0", "method": "note", "params": {"x": "y".repeat(LIMIT)}});
        // `method` comes first, as servers write it.
        let note =
            format!(r#"data: {{"jsonrpc":"2.0","method":"note","params":{}}}"#, note["params"]);
        Reply::events().send(format!("{note}\n\n")).event_result(seen, json!({"ok": 1}))
    };
    let server = Server::start(script).await;
    let fixture = small(&server).await;
    assert_eq!(fixture.request("tools/call").await.unwrap(), json!({"ok": 1}));
    assert_eq!(fixture.transport.stats().oversize, 1);
}

#[tokio::test]
async fn gzip_responses_are_decoded() {
    let script = |seen: &SeenRequest| {
        let is_stream = seen.method() == "tools/call";
        let text = answer(seen, 10_000);
        let text = if is_stream { format!("data: {text}\n\n") } else { text };
        let kind = if is_stream { "text/event-stream" } else { "application/json" };
        let reply = Reply::status(200).header("content-type", kind);
        let bytes = Bytes::from(gzip(text.as_bytes()));
        let reply = reply.header("content-encoding", "gzip");
        (0..bytes.len()).fold(reply, |reply, at| reply.send(bytes.slice(at..=at)))
    };
    let server = Server::start(script).await;
    let fixture = small(&server).await;
    for method in ["tools/call", "tools/list"] {
        let result = fixture.request(method).await.unwrap();
        assert_eq!(result["text"].as_str().unwrap().len(), 10_000, "{method}");
    }
    assert_eq!(server.seen()[0].header("accept-encoding"), Some("gzip"));
}

#[tokio::test]
async fn sse_may_arrive_byte_by_byte() {
    let script = |seen: &SeenRequest| {
        let text = format!("\u{feff}event: message\r\ndata: {}\r\n\r\n", answer(seen, 10));
        let bytes = Bytes::from(text);
        let mut reply = Reply::events();
        for at in 0..bytes.len() {
            reply = reply.send(bytes.slice(at..=at)).step(Step::Pause(Duration::ZERO));
        }
        reply
    };
    let server = Server::start(script).await;
    let fixture = small(&server).await;
    assert_eq!(fixture.request("tools/call").await.unwrap()["text"], "x".repeat(10));
}

#[tokio::test]
async fn large_response_arrives_whole() {
    let script = |seen: &SeenRequest| {
        Reply::status(200).header("content-type", "application/json").send(answer(seen, 8 << 20))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::stateless(&server).await;
    let result = fixture.request("tools/call").await.unwrap();
    assert_eq!(result["text"].as_str().unwrap().len(), 8 << 20);
}

/// Three times the events of one second: the first second's worth is read at once, the rest at that pace.
const FLOOD: usize = 3 * 16_384;

fn flood(line: &str) -> String {
    format!("data: {line}\n\n").repeat(FLOOD)
}

/// The time that a flood takes at least. A busy machine only adds to it.
const FLOOD_TIME: Duration = Duration::from_millis(1800);

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;

#[tokio::test]
async fn flood_on_a_response_stream_is_slowed_down_and_nothing_is_lost() {
    for (line, n_expected) in [(NOTE, FLOOD), ("not a message", 0)] {
        let server = Server::start(move |seen| match seen.method() {
            "tools/call" => {
                let end = format!("data: {}\n\n", answer(seen, 1));
                Reply::events().send(flood(line)).send(end)
            }
            _ => Reply::result(seen, json!({})),
        })
        .await;
        let fixture = Fixture::stateless(&server).await;
        let started = Instant::now();
        fixture.request("tools/call").await.unwrap();
        assert!(started.elapsed() > FLOOD_TIME, "{:?}", started.elapsed());
        assert_eq!(fixture.handler.events().len(), n_expected);
    }
}

/// The same as three times the events of one second.
const FLOOD_BYTES: usize = 64 * FLOOD;

#[tokio::test]
async fn flood_of_bytes_that_are_not_data_is_slowed_down() {
    let comments = ":\n".repeat(FLOOD_BYTES / 2);
    for (is_compressed, flood) in [
        (false, comments.clone()),
        (false, format!("data: x\n{comments}")),
        (false, format!("{}\n\n", comments.replacen(':', "data: x\n\n:", 1))),
        (true, flood(NOTE)),
    ] {
        let server = Server::start(move |seen| match seen.method() {
            "tools/call" => {
                let body = format!("{flood}\n\ndata: {}\n\n", answer(seen, 1));
                if !is_compressed {
                    return Reply::events().send(body);
                }
                Reply::events().header("content-encoding", "gzip").send(gzip(body.as_bytes()))
            }
            _ => Reply::result(seen, json!({})),
        })
        .await;
        let fixture = Fixture::stateless(&server).await;
        let started = Instant::now();
        fixture.request("tools/call").await.unwrap();
        assert!(started.elapsed() > FLOOD_TIME, "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn flood_on_the_notification_stream_is_slowed_down() {
    let server = Server::start(|seen| match (seen.http_method.as_str(), seen.method()) {
        ("GET", _) => Reply::events().send(flood(NOTE)).step(Step::Hold),
        _ => Reply::result(seen, json!({})),
    })
    .await;
    let started = Instant::now();
    let fixture = Fixture::with_session(&server).await;
    eventually_async(SOON, "all arrive", tokio::time::sleep, async || {
        fixture.handler.events().len() == FLOOD
    })
    .await;
    assert!(started.elapsed() > FLOOD_TIME, "{:?}", started.elapsed());
    // Calls are exchanges of their own.
    fixture.request("tools/call").await.unwrap();
}
