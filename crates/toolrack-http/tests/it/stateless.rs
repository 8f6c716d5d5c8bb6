//! Stateless protocol (2026-07-28).

use std::time::Duration;

use serde_json::json;
use toolrack_http::HttpOptions;
use toolrack_transport::NoParams;
use toolrack_transport::{Delivery, OnCancel, OutgoingRequest, RequestTimeout, Transport};

use crate::fixture::{Call, Fixture, SOON, STATELESS, wait_until};
use crate::server::{Reply, SeenRequest, Server, Step};

type Make = Box<dyn Fn(&SeenRequest) -> Reply + Send + Sync>;

#[tokio::test]
async fn stateless_request_has_mcp_headers() {
    let server = Server::start(|seen| Reply::result(seen, json!({"ok": true}))).await;
    let fixture = Fixture::stateless(&server).await;
    let call = Call { name: "käse", param_headers: &[("Region", "us west"), ("Note", " edge")] };
    assert_eq!(fixture.request_with("tools/call", &call, SOON).await.unwrap(), json!({"ok": true}));
    fixture.request("tools/list").await.unwrap();
    let seen = server.seen();
    let header = |name| seen[0].header(name);
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(header("mcp-method"), Some("tools/call"));
    assert_eq!(header("mcp-name"), Some("=?base64?a8Okc2U=?="));
    assert_eq!(header("mcp-param-region"), Some("us west"));
    assert_eq!(header("mcp-param-note"), Some("=?base64?IGVkZ2U=?="));
    assert_eq!(header("origin"), None);
    assert_eq!(header("mcp-session-id"), None);
    assert_eq!(seen[1].header("mcp-name"), None);
    fixture.transport.close().await;
    assert_eq!(server.request_log(), ["POST tools/call", "POST tools/list"]);
    assert_eq!(server.n_connections(), 1);
}

#[tokio::test]
async fn response_may_be_an_sse_stream() {
    let progress = |n: u64| json!({"jsonrpc": "2.0", "method": "p", "params": n});
    let script = move |seen: &SeenRequest| {
        let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
        Reply::events()
            .send(": keep alive\n\n")
            .event(&progress(1))
            .event(&question)
            .event(&progress(2))
            .event_result(seen, json!({"n": 2}))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::stateless(&server).await;
    for _ in 0..3 {
        assert_eq!(fixture.request("tools/call").await.unwrap(), json!({"n": 2}));
    }
    let events = fixture.handler.events();
    assert_eq!(events, ["notification p 1", "notification p 2"].repeat(3));
    assert_eq!(server.n_connections(), 1, "a stream read to its end frees its connection");
}

/// protocol-facts §5.2 and §18.1, as far as they are about one request.
#[tokio::test]
async fn every_kind_of_response_has_its_outcome() {
    let body = |text: &'static str| Reply::status(200).header("content-type", text);
    let answered = Delivery::Answered;
    let rows: Vec<(Make, &str, Delivery)> = vec![
        (Box::new(|_| Reply::error(400, -32022, "v")), "JSON-RPC error -32022: v", answered),
        (Box::new(|_| Reply::error(404, -32601, "m")), "JSON-RPC error -32601: m", answered),
        (Box::new(|_| Reply::error(200, -32603, "i")), "JSON-RPC error -32603: i", answered),
        (
            Box::new(|_| Reply::status(400).send("no\nsession")),
            "the server responded with HTTP status 400: no session",
            answered,
        ),
        (
            Box::new(|_| Reply::status(502).send("<html>")),
            "the server responded with HTTP status 502: <html>",
            Delivery::Unknown,
        ),
        (
            Box::new(|_| Reply::status(202)),
            "failed to parse response: status 202 without a JSON-RPC message",
            answered,
        ),
        (
            Box::new(move |_| body("text/html").send("<b>login</b>")),
            "failed to parse response: \"text/html\" instead of a JSON-RPC message: <b>login</b>",
            answered,
        ),
        (
            Box::new(move |_| body("application/json").send("{\"jsonrpc\":")),
            "failed to parse response: \"application/json\" instead of a JSON-RPC message: {\"jsonrpc\":",
            answered,
        ),
        (
            Box::new(|seen| Reply::json(&json!({"jsonrpc": "2.0", "id": seen.body["id"]}))),
            "failed to parse response: neither a request, a notification nor a response",
            answered,
        ),
        (
            Box::new(|_| Reply::events()),
            "IO error: the stream ended before the response",
            Delivery::Unknown,
        ),
        (
            Box::new(|_| Reply::events().send("data: x").step(Step::Abort)),
            "IO error: ",
            Delivery::Unknown,
        ),
    ];
    for (make, expected, delivery) in rows {
        let server = Server::start(move |seen| match seen.method() {
            "tools/call" => make(seen),
            _ => Reply::result(seen, json!({})),
        })
        .await;
        let fixture = Fixture::stateless(&server).await;
        let failure = Fixture::failure(fixture.request("tools/call").await);
        // The system's own words follow.
        let is_expected =
            failure.0 == expected || expected.ends_with(": ") && failure.0.starts_with(expected);
        assert!(is_expected && failure.1 == delivery, "{failure:?}");
        fixture.request("tools/list").await.unwrap();
        fixture.transport.close().await;
        assert_eq!(server.count("POST tools/call"), 1, "{expected}");
        assert_eq!(fixture.handler.events(), ["ended: closed by the client"]);
    }
}

#[tokio::test]
async fn abandoning_a_request_closes_its_stream() {
    let server = Server::start(|_| Reply::events().send(":\n\n").step(Step::Hold)).await;
    let fixture = Fixture::stateless(&server).await;
    let timed_out = fixture.request_with("tools/call", &NoParams, Duration::from_millis(100)).await;
    let (text, delivery) = Fixture::failure(timed_out);
    assert_eq!((text.as_str(), delivery), ("request timed out after 100ms", Delivery::Unknown));
    wait_until("the stream is closed", || server.n_aborted_bodies() == 1).await;
    {
        let mut dropped = Box::pin(fixture.request("tools/call"));
        tokio::select! {
            _never = &mut dropped => panic!("there is no response"),
            () = wait_until("the request has arrived", || server.count("POST tools/call") == 2) => {}
        }
    }
    wait_until("the stream is closed", || server.n_aborted_bodies() == 2).await;
    assert_eq!(server.request_log(), ["POST tools/call", "POST tools/call"]);
}

#[tokio::test]
async fn slow_server_does_not_delay_the_timeout() {
    let slow = |_: &SeenRequest| Reply::status(200).after(Duration::from_mins(1));
    let drip = |_: &SeenRequest| {
        let drop = || Step::Pause(Duration::from_millis(5));
        (0..20_000).fold(Reply::events(), |reply, _| reply.step(drop()).send(":"))
    };
    for server in [Server::start(slow).await, Server::start(drip).await] {
        let fixture = Fixture::stateless(&server).await;
        let timed_out =
            fixture.request_with("tools/call", &NoParams, Duration::from_millis(200)).await;
        assert_eq!(Fixture::failure(timed_out).0, "request timed out after 200ms");
    }
}

#[tokio::test]
async fn unwanted_session_is_deleted() {
    let script = |seen: &SeenRequest| match seen.http_method.as_str() {
        "POST" => Reply::error(400, -32000, "no").header("Mcp-Session-Id", "left-over"),
        _ => Reply::status(200),
    };
    let server = Server::start(script).await;
    let fixture = Fixture::stateless(&server).await;
    fixture.request("server/discover").await.unwrap_err();
    wait_until("the session is deleted", || server.count("DELETE") == 1).await;
    assert_eq!(server.seen()[1].header("mcp-session-id"), Some("left-over"));
}

#[tokio::test]
async fn absent_server_means_not_sent() {
    let server = Server::start(|_| Reply::status(200)).await;
    server.stop().await;
    let fixture = Fixture::stateless(&server).await;
    let (text, delivery) = Fixture::failure(fixture.request("tools/call").await);
    assert_eq!(text, format!("cannot connect to {}", server.url));
    assert_eq!(delivery, Delivery::NotSent);
}

#[tokio::test]
async fn close_ends_open_requests() {
    let server = Server::start(|_| Reply::events().step(Step::Hold)).await;
    let fixture = Fixture::stateless(&server).await;
    let closing = async {
        wait_until("the request has arrived", || !server.seen().is_empty()).await;
        fixture.transport.close().await
    };
    let (outcome, _ending) = tokio::join!(fixture.request("tools/call"), closing);
    assert_eq!(Fixture::failure(outcome), ("transport is shut down".to_owned(), Delivery::Unknown));
    let after = Fixture::failure(fixture.request("tools/call").await);
    assert_eq!(after, ("transport is shut down".to_owned(), Delivery::NotSent));
    fixture.transport.close().await;
    assert_eq!(fixture.handler.events(), ["ended: closed by the client"]);
}

#[tokio::test]
async fn progress_extends_the_deadline() {
    let note = json!({"jsonrpc": "2.0", "method": "p"});
    let script = move |seen: &SeenRequest| {
        let mut reply = Reply::events();
        for _ in 0..6 {
            reply = reply.event(&note).step(Step::Pause(Duration::from_millis(300)));
        }
        reply.event_result(seen, json!({}))
    };
    let server = Server::start(script).await;
    let fixture = Fixture::stateless(&server).await;
    let patience = RequestTimeout { idle: Duration::from_millis(1200), total: SOON };
    let request = fixture.transport.request(OutgoingRequest {
        method: "tools/call",
        params: &NoParams,
        timeout: patience,
        on_cancel: OnCancel::Notify,
    });
    let extending = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            fixture.transport.extend_deadline(Some(1));
        }
    };
    tokio::select! {
        outcome = request => drop(outcome.unwrap()),
        () = extending => {}
    }
}

/// A subscription may be silent for long, but not without a single byte.
#[tokio::test]
async fn endless_request_fails_after_the_idle_timeout() {
    let script = |_: &SeenRequest| {
        let comment =
            |reply: Reply| reply.step(Step::Pause(Duration::from_millis(300))).send(":\n");
        (0..8).fold(Reply::events(), |reply, _| comment(reply)).step(Step::Hold)
    };
    let server = Server::start(script).await;
    let options =
        HttpOptions { stream_idle: Duration::from_millis(1500), ..HttpOptions::default() };
    let fixture = Fixture::open(&server.url, options).await;
    fixture.transport.set_protocol_mode(STATELESS);
    let started = tokio::time::Instant::now();
    let outcome = fixture.transport.request(OutgoingRequest {
        method: "subscriptions/listen",
        params: &NoParams,
        timeout: RequestTimeout::unlimited(),
        on_cancel: OnCancel::Silent,
    });
    let failure = outcome.await.unwrap_err();
    assert_eq!(failure.delivery, Delivery::Unknown);
    assert!(started.elapsed() >= Duration::from_millis(8 * 300 + 1500));
}
