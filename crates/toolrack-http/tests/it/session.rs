//! Sessions of Streamable HTTP: their ids, their streams, and their renewal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolrack_http::HttpOptions;
use toolrack_transport::{Delivery, ProtocolMode, Transport};
use toolrack_transport::{NoParams, RequestId};

use crate::fixture::{Fixture, VERSION, default_reply, wait_until};
use crate::server::{Reply, SeenRequest, Server, Step};

#[tokio::test]
async fn session_id_is_sent_with_every_message() {
    let script = |seen: &SeenRequest| {
        default_reply(seen, "s1").unwrap_or_else(|| Reply::result(seen, json!({})))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    fixture.request("tools/list").await.unwrap();
    fixture
        .transport
        .respond(&RequestId::from("q"), Ok(&to_raw_value(&json!({})).unwrap()))
        .unwrap();
    wait_until("all requests have arrived", || server.seen().len() == 5).await;
    fixture.transport.close().await;
    let seen = server.seen();
    let first = &seen[0];
    assert_eq!(
        (first.header("mcp-session-id"), first.header("mcp-protocol-version")),
        (None, None)
    );
    for seen in &seen[1..] {
        let found = (seen.header("mcp-session-id"), seen.header("mcp-protocol-version"));
        assert_eq!(found, (Some("s1"), Some(VERSION)), "{}", seen.short());
        assert_eq!(seen.header("mcp-method"), None);
    }
    let mut request_log = server.request_log();
    assert_eq!(request_log.pop().unwrap(), "DELETE");
    // Notifications sent before the stream is open are lost.
    let position = |what: &str| request_log.iter().position(|line| line == what);
    assert!(position("GET") < position("POST tools/list"), "{request_log:?}");
    request_log.sort();
    let expected =
        ["GET", "POST", "POST initialize", "POST notifications/initialized", "POST tools/list"];
    assert_eq!(request_log, expected);
    assert_eq!(fixture.handler.events(), ["ended: closed by the client"]);
}

#[tokio::test]
async fn version_header_is_not_sent_before_2025_06_18() {
    let script = |seen: &SeenRequest| {
        default_reply(seen, "s1").unwrap_or_else(|| Reply::result(seen, json!({})))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::open(&server.url, HttpOptions::default()).await;
    fixture.transport.set_protocol_mode(ProtocolMode::Initialize);
    fixture.request("initialize").await.unwrap();
    fixture.transport.set_protocol_mode(ProtocolMode::Session("2025-03-26"));
    fixture.request("tools/list").await.unwrap();
    assert_eq!(server.seen()[1].header("mcp-protocol-version"), None);
    assert_eq!(server.seen()[1].header("mcp-session-id"), Some("s1"));
}

/// A server that forgets the session `s1` once the flag is set.
async fn server_that_expires_sessions(reject: fn() -> Reply) -> (Server, Arc<AtomicBool>) {
    let expire = Arc::new(AtomicBool::new(false));
    let (expires, n_sessions) = (Arc::clone(&expire), AtomicUsize::new(0));
    let script = move |seen: &SeenRequest| {
        if seen.method() == "initialize" {
            let id = format!("s{}", n_sessions.fetch_add(1, Ordering::SeqCst) + 1);
            return default_reply(seen, &id).unwrap();
        }
        if expires.load(Ordering::SeqCst) && seen.header("mcp-session-id") == Some("s1") {
            return reject().after(Duration::from_millis(20));
        }
        default_reply(seen, "").unwrap_or_else(|| Reply::result(seen, json!({"ok": true})))
    };
    (Server::start(script).await, expire)
}

#[tokio::test]
async fn many_requests_start_one_new_session() {
    let rejections: [fn() -> Reply; 3] = [
        || Reply::status(404),
        || Reply::error(404, -32001, "Session not found"),
        || Reply::error(400, -32000, "Bad Request: No valid session ID provided"),
    ];
    for reject in rejections {
        let (server, expire) = server_that_expires_sessions(reject).await;
        let fixture = Fixture::with_session(&server).await;
        expire.store(true, Ordering::SeqCst);
        let asked = (0..20).map(|_| fixture.request("tools/call"));
        for outcome in futures_util::future::join_all(asked).await {
            assert_eq!(outcome.unwrap(), json!({"ok": true}));
        }
        assert_eq!(server.count("POST initialize"), 2);
        assert_eq!(server.count("POST notifications/initialized"), 2);
        assert_eq!(fixture.handler.events(), ["renewed"]);
        let seen = server.seen();
        let again = seen.iter().filter(|request| request.method() == "initialize").nth(1).unwrap();
        assert_eq!(again.header("mcp-session-id"), None);
        assert_eq!(again.body["params"], json!({"x": 1}));
        let ids: Vec<&Value> = seen
            .iter()
            .filter(|request| {
                request.header("mcp-session-id") == Some("s2") && request.method() == "tools/call"
            })
            .map(|request| &request.body["id"])
            .collect();
        assert_eq!(ids.len(), 20);
        fixture.transport.close().await;
        let last = server.seen().pop().unwrap();
        assert_eq!(
            (last.http_method.as_str(), last.header("mcp-session-id")),
            ("DELETE", Some("s2"))
        );
    }
}

#[tokio::test]
async fn bad_request_without_session_text_is_an_error() {
    let script = |seen: &SeenRequest| {
        default_reply(seen, "s1").unwrap_or_else(|| Reply::error(400, -32602, "bad arguments"))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    let failure = Fixture::failure(fixture.request("tools/call").await);
    assert_eq!(failure, ("JSON-RPC error -32602: bad arguments".to_owned(), Delivery::Answered));
    assert_eq!(server.count("POST initialize"), 1);
}

#[tokio::test]
async fn session_that_stays_unknown_is_lost() {
    let script =
        |seen: &SeenRequest| default_reply(seen, "s1").unwrap_or_else(|| Reply::status(404));
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    let failure = Fixture::failure(fixture.request("tools/call").await);
    let expected = ("the server ended the session".to_owned(), Delivery::NotSent);
    assert_eq!(failure, expected);
    assert_eq!(server.count("POST tools/call"), 2);
}

#[tokio::test]
async fn new_session_in_another_version_is_rejected() {
    let n_initializes = AtomicUsize::new(0);
    let script = move |seen: &SeenRequest| match seen.method() {
        "initialize" if n_initializes.fetch_add(1, Ordering::SeqCst) > 0 => {
            let answer = json!({"protocolVersion": "2025-03-26"});
            Reply::result(seen, answer).header("mcp-session-id", "other")
        }
        "tools/call" => Reply::status(404),
        _ => default_reply(seen, "s1").unwrap(),
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    let failure = Fixture::failure(fixture.request("tools/call").await);
    assert_eq!(failure.0, "the server ended the session");
    wait_until("the other session is deleted", || {
        server.seen().iter().any(|request| {
            request.http_method == "DELETE" && request.header("mcp-session-id") == Some("other")
        })
    })
    .await;
    assert_eq!(fixture.handler.events(), Vec::<String>::new());
}

#[tokio::test]
async fn abandoned_requests_send_cancelled() {
    let script = |seen: &SeenRequest| {
        default_reply(seen, "s1").unwrap_or_else(|| Reply::events().step(Step::Hold))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    fixture.request_with("tools/call", &NoParams, Duration::from_millis(100)).await.unwrap_err();
    {
        let mut dropped = Box::pin(fixture.request("tools/call"));
        tokio::select! {
            _never = &mut dropped => panic!("there is no response"),
            () = wait_until("the request has arrived", || server.count("POST tools/call") == 2) => {}
        }
    }
    wait_until("both are cancelled", || server.count("POST notifications/cancelled") == 2).await;
    let seen = server.seen();
    let bodies = |method: &str| -> Vec<Value> {
        let has_method = |request: &&SeenRequest| request.method() == method;
        seen.iter().filter(has_method).map(|request| request.body.clone()).collect()
    };
    let asked: Vec<Value> = bodies("tools/call").iter().map(|body| body["id"].clone()).collect();
    let cancelled = bodies("notifications/cancelled");
    let cancelled: Vec<Value> =
        cancelled.iter().map(|body| body["params"]["requestId"].clone()).collect();
    assert_eq!(asked, cancelled);
}

/// The scenario `sse-retry` of the conformance suite.
#[tokio::test]
async fn broken_stream_is_resumed_with_last_event_id() {
    let broke = Arc::new(std::sync::Mutex::new(None::<Instant>));
    let back = Arc::new(std::sync::Mutex::new(None::<Duration>));
    let asked = Arc::new(std::sync::Mutex::new(Value::Null));
    let (breaks, backs, asks) = (Arc::clone(&broke), Arc::clone(&back), Arc::clone(&asked));
    let script = move |seen: &SeenRequest| {
        if seen.method() == "tools/call" {
            *asks.lock().unwrap() = seen.body["id"].clone();
            *breaks.lock().unwrap() = Some(clock());
            return Reply::events().send("id: e-1\nretry: 500\ndata:\n\n");
        }
        if seen.http_method == "GET" && seen.header("last-event-id") == Some("e-1") {
            let since = breaks.lock().unwrap().unwrap();
            *backs.lock().unwrap() = Some(clock() - since);
            let id = asks.lock().unwrap().clone();
            return Reply::events().event(&json!({"jsonrpc": "2.0", "id": id, "result": {"n": 1}}));
        }
        default_reply(seen, "s1").unwrap()
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    assert_eq!(fixture.request("tools/call").await.unwrap(), json!({"n": 1}));
    let waited = back.lock().unwrap().unwrap();
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    let resumed = server.seen().into_iter().rfind(|request| request.http_method == "GET").unwrap();
    assert_eq!(resumed.header("mcp-session-id"), Some("s1"));
}

#[tokio::test]
async fn stream_without_event_id_is_not_resumed() {
    let script = |seen: &SeenRequest| {
        default_reply(seen, "s1").unwrap_or_else(|| Reply::events().send("retry: 1\ndata: {}\n\n"))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    let (_, delivery) = Fixture::failure(fixture.request("tools/call").await);
    assert_eq!(delivery, Delivery::Unknown);
    assert_eq!(server.count("POST tools/call"), 1);
}

#[tokio::test]
async fn notifications_arrive_on_the_get_stream() {
    let n_streams = AtomicUsize::new(0);
    let script = move |seen: &SeenRequest| {
        if seen.http_method != "GET" {
            return default_reply(seen, "s1").unwrap_or_else(|| Reply::result(seen, json!({})));
        }
        let n = n_streams.fetch_add(1, Ordering::SeqCst);
        let note = json!({"jsonrpc": "2.0", "method": "n", "params": n});
        let reply = Reply::events().send(format!("id: e{n}\n")).event(&note);
        if n < 2 { reply } else { reply.step(Step::Hold) }
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    wait_until("three streams were open", || fixture.handler.events().len() == 3).await;
    assert_eq!(
        fixture.handler.events(),
        ["notification n 0", "notification n 1", "notification n 2"]
    );
    let last: Vec<Option<String>> = server
        .seen()
        .iter()
        .filter(|request| request.http_method == "GET")
        .map(|request| request.header("last-event-id").map(str::to_owned))
        .collect();
    assert_eq!(last, [None, Some("e0".to_owned()), Some("e1".to_owned())]);
}

#[tokio::test]
async fn idle_stream_is_replaced_unless_comments_arrive() {
    let n_streams = AtomicUsize::new(0);
    let script = move |seen: &SeenRequest| {
        if seen.http_method != "GET" {
            return default_reply(seen, "s1").unwrap();
        }
        // The first stream is silent; the second one sends comments.
        if n_streams.fetch_add(1, Ordering::SeqCst) == 0 {
            return Reply::events().step(Step::Hold);
        }
        let comment =
            |reply: Reply| reply.step(Step::Pause(Duration::from_millis(300))).send(":\n");
        let reply = (0..8).fold(Reply::events(), |reply, _| comment(reply));
        reply.event(&json!({"jsonrpc": "2.0", "method": "alive"})).step(Step::Hold)
    };
    let server = Server::start(script).await;
    let options =
        HttpOptions { stream_idle: Duration::from_millis(1500), ..HttpOptions::default() };
    let fixture = Fixture::open(&server.url, options).await;
    fixture.initialize().await;
    wait_until("the second stream has sent an event", || !fixture.handler.events().is_empty())
        .await;
    assert_eq!(fixture.handler.events(), ["notification alive "]);
    assert_eq!(server.count("GET"), 2);
}

#[tokio::test]
async fn server_requests_arrive_on_the_call_stream() {
    let script = |seen: &SeenRequest| {
        let question = json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create"});
        default_reply(seen, "s1")
            .unwrap_or_else(|| Reply::events().event(&question).event_result(seen, json!({})))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    fixture.request("tools/call").await.unwrap();
    assert_eq!(fixture.handler.events(), ["request 9 elicitation/create about 2"]);
}

/// A server may hold the POST of a notification open.
#[tokio::test]
async fn notification_held_open_does_not_block() {
    let script = |seen: &SeenRequest| match seen.method() {
        "notifications/initialized" => Reply::events().step(Step::Hold),
        _ => default_reply(seen, "s1").unwrap_or_else(|| Reply::result(seen, json!({}))),
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    fixture.request("tools/call").await.unwrap();
}

fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}
