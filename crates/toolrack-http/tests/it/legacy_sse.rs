//! HTTP+SSE servers of 2024-11-05.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use toolrack_http::HttpOptions;
use toolrack_transport::{Delivery, ProtocolMode, Transport, TransportError};

use crate::fixture::{Fixture, VERSION, wait_until};
use crate::server::{Reply, SeenRequest, Server, Step};

/// Messages for the SSE stream. An open stream takes those that are queued.
#[derive(Clone, Default)]
struct EventQueue(Arc<Mutex<Vec<Value>>>);

/// HTTP+SSE server. Its stream is polled every few milliseconds, so that it needs no task of its own.
async fn legacy_server(
    path: &'static str,
    override_response: impl Fn(&SeenRequest) -> Option<Reply> + Send + Sync + 'static,
) -> Server {
    let queue = EventQueue::default();
    let n_streams = AtomicUsize::new(0);
    Server::start(move |seen| {
        if let Some(reply) = override_response(seen) {
            return reply;
        }
        match (seen.http_method.as_str(), seen.path.split('?').next().unwrap()) {
            ("GET", at) if at == path => {
                let n = n_streams.fetch_add(1, Ordering::SeqCst);
                let endpoint = format!("event: endpoint\ndata: /messages?session={n}\n\n");
                Reply::events().send(endpoint).step(Step::Live(live_events(&queue)))
            }
            ("POST", "/messages") => {
                let id = &seen.body["id"];
                let result = match seen.method() {
                    "initialize" => json!({"protocolVersion": VERSION}),
                    _ => json!({"ok": true}),
                };
                if !id.is_null() {
                    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
                    queue.0.lock().unwrap().push(answer);
                }
                Reply::status(202).send("Accepted")
            }
            _ => Reply::status(405),
        }
    })
    .await
}

fn live_events(queue: &EventQueue) -> Box<dyn FnMut() -> Bytes + Send> {
    let queue = queue.clone();
    Box::new(move || {
        let reply = std::mem::take(&mut *queue.0.lock().unwrap());
        let events = reply.iter().map(|message| format!("event: message\ndata: {message}\n\n"));
        let reply = events.collect::<Vec<_>>().concat();
        Bytes::from(reply)
    })
}

#[tokio::test]
async fn server_without_post_falls_back_to_sse() {
    let server = legacy_server("/mcp", |_| None).await;
    let fixture = Fixture::with_session(&server).await;
    for _ in 0..3 {
        assert_eq!(fixture.request("tools/call").await.unwrap(), json!({"ok": true}));
    }
    let request_log = server.request_log();
    let expected = [
        "POST initialize",
        "GET",
        "POST initialize",
        "POST notifications/initialized",
        "POST tools/call",
        "POST tools/call",
        "POST tools/call",
    ];
    assert_eq!(request_log, expected);
    let paths: Vec<String> =
        server.seen().iter().skip(2).map(|request| request.path.clone()).collect();
    assert!(paths.iter().all(|path| path == "/messages?session=0"), "{paths:?}");
    fixture.transport.close().await;
    assert_eq!(fixture.handler.events(), ["ended: closed by the client"]);
}

#[tokio::test]
async fn sse_url_is_opened_as_legacy_first() {
    let server = legacy_server("/sse", |_| None).await;
    let url = server.url.replace("/mcp", "/sse");
    let fixture = Fixture::open(&url, HttpOptions::default()).await;
    fixture.initialize().await;
    fixture.request("tools/call").await.unwrap();
    assert_eq!(server.request_log()[..2], ["GET", "POST initialize"]);
}

#[tokio::test]
async fn sse_url_may_be_streamable_http() {
    let script = |seen: &SeenRequest| {
        crate::fixture::default_reply(seen, "s1").unwrap_or_else(|| Reply::result(seen, json!({})))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::open(&server.url.replace("/mcp", "/sse"), HttpOptions::default()).await;
    fixture.initialize().await;
    fixture.request("tools/call").await.unwrap();
}

#[tokio::test]
async fn endpoint_of_another_origin_is_rejected() {
    let other_origin = Server::start(|_| Reply::status(202)).await;
    let elsewhere = other_origin.url.clone();
    let server = Server::start(move |seen| match seen.http_method.as_str() {
        "GET" => {
            let endpoint = format!("event: endpoint\ndata: {elsewhere}\n\n");
            Reply::events().send(endpoint).step(Step::Hold)
        }
        _ => Reply::status(404).send("nothing here"),
    })
    .await;
    let fixture = Fixture::open(&server.url, HttpOptions::default()).await;
    fixture.transport.set_protocol_mode(ProtocolMode::Initialize);
    let failure = Fixture::failure(fixture.request("initialize").await);
    let expected = "the server responded with HTTP status 404: nothing here";
    assert_eq!(failure.0, expected, "the first error is the more telling one");
    assert_eq!(other_origin.request_log(), Vec::<String>::new());
    let fixture = Fixture::open(&server.url.replace("/mcp", "/sse"), HttpOptions::default()).await;
    fixture.transport.set_protocol_mode(ProtocolMode::Initialize);
    let failure = Fixture::failure(fixture.request("initialize").await).0;
    assert!(
        failure.starts_with("IO error: the `endpoint` event: it leads to another origin: "),
        "{failure}"
    );
    assert_eq!(other_origin.request_log(), Vec::<String>::new());
}

#[tokio::test]
async fn stateless_error_does_not_trigger_sse_fallback() {
    for status in [400, 404] {
        let server = Server::start(move |_| Reply::error(status, -32022, "version")).await;
        let fixture = Fixture::open(&server.url, HttpOptions::default()).await;
        fixture.transport.set_protocol_mode(ProtocolMode::Initialize);
        let failure = Fixture::failure(fixture.request("initialize").await);
        assert_eq!(failure.0, "JSON-RPC error -32022: version");
        assert_eq!(server.request_log(), ["POST initialize"]);
    }
    for status in [401, 403, 500, 503] {
        let server = Server::start(move |_| Reply::status(status)).await;
        let fixture = Fixture::open(&server.url, HttpOptions::default()).await;
        fixture.transport.set_protocol_mode(ProtocolMode::Initialize);
        fixture.request("initialize").await.unwrap_err();
        assert_eq!(server.request_log(), ["POST initialize"], "{status}");
    }
}

#[tokio::test]
async fn lost_sse_stream_fails_requests_and_reconnects() {
    let n_streams = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&n_streams);
    let server = legacy_server("/mcp", move |seen| {
        let is_first = counts.load(Ordering::SeqCst) == 0;
        match (seen.http_method.as_str(), seen.method()) {
            ("GET", _) if !is_first => None,
            // The call is accepted and never answered, and then the stream breaks.
            ("POST", "tools/call") if is_first => {
                counts.store(1, Ordering::SeqCst);
                Some(Reply::status(202))
            }
            _ => None,
        }
    })
    .await;
    let fixture = Fixture::with_session(&server).await;
    let asked =
        fixture.request_with("tools/call", &toolrack_transport::NoParams, Duration::from_secs(20));
    let cut = async {
        wait_until("the request has arrived", || server.count("POST tools/call") == 1).await;
        server.close_live_streams();
    };
    let (outcome, ()) = tokio::join!(asked, cut);
    let (_, delivery) = Fixture::failure(outcome);
    assert_eq!(delivery, Delivery::Unknown);
    assert_eq!(fixture.request("tools/call").await.unwrap(), json!({"ok": true}));
    wait_until("the handler was told", || fixture.handler.events() == ["renewed"]).await;
    assert_eq!(server.count("GET"), 2);
    assert_eq!(server.count("POST notifications/initialized"), 2);
    let last = server.seen().pop().unwrap();
    assert_eq!(last.path, "/messages?session=1");
}

#[tokio::test]
async fn failed_reconnect_fails_waiting_requests() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let server = legacy_server("/mcp", move |seen| {
        (seen.http_method == "GET" && down.load(Ordering::SeqCst)).then(|| Reply::status(500))
    })
    .await;
    let fixture = Fixture::with_session(&server).await;
    is_down.store(true, Ordering::SeqCst);
    server.close_live_streams();
    wait_until("the first attempt has failed", || server.count("GET") >= 2).await;
    let patience = Duration::from_mins(1);
    let outcome = fixture.request_with("tools/call", &toolrack_transport::NoParams, patience).await;
    let failure = outcome.unwrap_err();
    assert!(matches!(failure.error, TransportError::SessionLost), "{failure}");
    assert_eq!(failure.delivery, Delivery::NotSent);
}
