//! The stateless dialect: every request stands for itself.

use std::time::Duration;

use serde_json::json;
use toolrack_http::HttpOptions;
use toolrack_transport::NoParams;
use toolrack_transport::{Abandon, Delivery, Line, Outgoing, Patience};

use crate::server::{Said, Seen, Server, Step};
use crate::stage::{Call, MODERN, SOON, Stage, until};

type Make = Box<dyn Fn(&Seen) -> Said + Send + Sync>;

#[tokio::test]
async fn a_request_says_in_headers_what_it_is_about() {
    let server = Server::start(|seen| Said::result(seen, json!({"ok": true}))).await;
    let stage = Stage::modern(&server).await;
    let call = Call { name: "käse", mirrored: &[("Region", "us west"), ("Note", " edge")] };
    assert_eq!(stage.ask_with("tools/call", &call, SOON).await.unwrap(), json!({"ok": true}));
    stage.ask("tools/list").await.unwrap();
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
    stage.line.close().await;
    assert_eq!(server.heard(), ["POST tools/call", "POST tools/list"]);
    assert_eq!(server.n_connections(), 1);
}

#[tokio::test]
async fn an_answer_may_come_as_a_stream() {
    let progress = |n: u64| json!({"jsonrpc": "2.0", "method": "p", "params": n});
    let script = move |seen: &Seen| {
        let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
        Said::events()
            .say(": keep alive\n\n")
            .event(&progress(1))
            .event(&question)
            .event(&progress(2))
            .event_result(seen, json!({"n": 2}))
    };
    let server = Server::start(script).await;
    let stage = Stage::modern(&server).await;
    for _ in 0..3 {
        assert_eq!(stage.ask("tools/call").await.unwrap(), json!({"n": 2}));
    }
    let diary = stage.diary.read();
    assert_eq!(diary, ["notification p 1", "notification p 2"].repeat(3));
    assert_eq!(stage.line.n_dropped_requests(), 3);
    assert_eq!(server.n_connections(), 1, "a stream read to its end frees its connection");
}

/// protocol-facts §5.2 and §18.1, as far as they are about one request.
#[tokio::test]
async fn every_kind_of_answer_has_its_outcome() {
    let body = |text: &'static str| Said::status(200).header("content-type", text);
    let answered = Delivery::Answered;
    let rows: Vec<(Make, &str, Delivery)> = vec![
        (Box::new(|_| Said::error(400, -32022, "v")), "JSON-RPC error -32022: v", answered),
        (Box::new(|_| Said::error(404, -32601, "m")), "JSON-RPC error -32601: m", answered),
        (Box::new(|_| Said::error(200, -32603, "i")), "JSON-RPC error -32603: i", answered),
        (
            Box::new(|_| Said::status(400).say("no\nsession")),
            "the server answered with HTTP status 400: no session",
            answered,
        ),
        (
            Box::new(|_| Said::status(502).say("<html>")),
            "the server answered with HTTP status 502: <html>",
            Delivery::Unknown,
        ),
        (
            Box::new(|_| Said::status(202)),
            "malformed answer: status 202 without an answer",
            answered,
        ),
        (
            Box::new(move |_| body("text/html").say("<b>login</b>")),
            "malformed answer: \"text/html\" instead of a message: <b>login</b>",
            answered,
        ),
        (
            Box::new(move |_| body("application/json").say("{\"jsonrpc\":")),
            "malformed answer: \"application/json\" instead of a message: {\"jsonrpc\":",
            answered,
        ),
        (
            Box::new(|seen| Said::json(&json!({"jsonrpc": "2.0", "id": seen.body["id"]}))),
            "malformed answer: neither a request, a notification nor an answer",
            answered,
        ),
        (Box::new(|_| Said::events()), "input or output failed", Delivery::Unknown),
        (
            Box::new(|_| Said::events().say("data: x").step(Step::Cut)),
            "input or output failed",
            Delivery::Unknown,
        ),
    ];
    for (make, expected, delivery) in rows {
        let server = Server::start(move |seen| match seen.method() {
            "tools/call" => make(seen),
            _ => Said::result(seen, json!({})),
        })
        .await;
        let stage = Stage::modern(&server).await;
        let failure = Stage::failure(stage.ask("tools/call").await);
        assert_eq!(failure, (expected.to_owned(), delivery));
        stage.ask("tools/list").await.unwrap();
        stage.line.close().await;
        assert_eq!(server.count("POST tools/call"), 1, "{expected}");
        assert_eq!(stage.diary.read(), ["ended: closed by us"]);
    }
}

#[tokio::test]
async fn giving_up_closes_the_exchange() {
    let server = Server::start(|_| Said::events().say(":\n\n").step(Step::Hold)).await;
    let stage = Stage::modern(&server).await;
    let late = stage.ask_with("tools/call", &NoParams, Duration::from_millis(100)).await;
    let (text, delivery) = Stage::failure(late);
    assert_eq!((text.as_str(), delivery), ("request timed out after 100ms", Delivery::Unknown));
    until("the stream is closed", || server.n_left() == 1).await;
    {
        let mut dropped = Box::pin(stage.ask("tools/call"));
        tokio::select! {
            _never = &mut dropped => panic!("there is no answer"),
            () = until("it is asked", || server.count("POST tools/call") == 2) => {}
        }
    }
    until("the stream is closed", || server.n_left() == 2).await;
    assert_eq!(server.heard(), ["POST tools/call", "POST tools/call"]);
}

#[tokio::test]
async fn a_slow_server_does_not_stop_the_clock() {
    let slow = |_: &Seen| Said::status(200).after(Duration::from_mins(1));
    let drip = |_: &Seen| {
        let drop = || Step::Pause(Duration::from_millis(5));
        (0..20_000).fold(Said::events(), |said, _| said.step(drop()).say(":"))
    };
    for server in [Server::start(slow).await, Server::start(drip).await] {
        let stage = Stage::modern(&server).await;
        let late = stage.ask_with("tools/call", &NoParams, Duration::from_millis(200)).await;
        assert_eq!(Stage::failure(late).0, "request timed out after 200ms");
    }
}

#[tokio::test]
async fn a_session_that_nobody_wanted_is_ended() {
    let script = |seen: &Seen| match seen.verb.as_str() {
        "POST" => Said::error(400, -32000, "no").header("Mcp-Session-Id", "left-over"),
        _ => Said::status(200),
    };
    let server = Server::start(script).await;
    let stage = Stage::modern(&server).await;
    stage.ask("server/discover").await.unwrap_err();
    until("it is ended", || server.count("DELETE") == 1).await;
    assert_eq!(server.seen()[1].header("mcp-session-id"), Some("left-over"));
}

#[tokio::test]
async fn a_server_that_is_not_there_was_not_asked() {
    let server = Server::start(|_| Said::status(200)).await;
    server.stop().await;
    let stage = Stage::modern(&server).await;
    let (text, delivery) = Stage::failure(stage.ask("tools/call").await);
    assert_eq!(text, format!("no connection to {}", server.url));
    assert_eq!(delivery, Delivery::NotSent);
}

#[tokio::test]
async fn closing_ends_what_is_open() {
    let server = Server::start(|_| Said::events().step(Step::Hold)).await;
    let stage = Stage::modern(&server).await;
    let closing = async {
        until("it is asked", || !server.seen().is_empty()).await;
        stage.line.close().await
    };
    let (outcome, _ending) = tokio::join!(stage.ask("tools/call"), closing);
    assert_eq!(Stage::failure(outcome), ("transport is shut down".to_owned(), Delivery::Unknown));
    let after = Stage::failure(stage.ask("tools/call").await);
    assert_eq!(after, ("transport is shut down".to_owned(), Delivery::NotSent));
    stage.line.close().await;
    assert_eq!(stage.diary.read(), ["ended: closed by us"]);
}

#[tokio::test]
async fn progress_renews_patience() {
    let note = json!({"jsonrpc": "2.0", "method": "p"});
    let script = move |seen: &Seen| {
        let mut said = Said::events();
        for _ in 0..6 {
            said = said.event(&note).step(Step::Pause(Duration::from_millis(300)));
        }
        said.event_result(seen, json!({}))
    };
    let server = Server::start(script).await;
    let stage = Stage::modern(&server).await;
    let patience = Patience { answer: Duration::from_millis(1200), at_most: SOON };
    let request = stage.line.request(Outgoing {
        method: "tools/call",
        params: &NoParams,
        patience,
        abandon: Abandon::Tell,
    });
    let touching = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            stage.line.touch(1);
        }
    };
    tokio::select! {
        outcome = request => drop(outcome.unwrap()),
        () = touching => {}
    }
}

/// A subscription: it may be silent for long, but not without a single byte.
#[tokio::test]
async fn a_request_without_an_end_is_given_up_when_the_server_is_gone() {
    let script = |_: &Seen| {
        let comment = |said: Said| said.step(Step::Pause(Duration::from_millis(300))).say(":\n");
        (0..8).fold(Said::events(), |said, _| comment(said)).step(Step::Hold)
    };
    let server = Server::start(script).await;
    let options =
        HttpOptions { stream_idle: Duration::from_millis(1500), ..HttpOptions::default() };
    let stage = Stage::open(&server.url, options).await;
    stage.line.speak(MODERN);
    let started = tokio::time::Instant::now();
    let outcome = stage.line.request(Outgoing {
        method: "subscriptions/listen",
        params: &NoParams,
        patience: Patience::endless(),
        abandon: Abandon::Quietly,
    });
    let failure = outcome.await.unwrap_err();
    assert_eq!(failure.delivery, Delivery::Unknown);
    assert!(started.elapsed() >= Duration::from_millis(8 * 300 + 1500));
}
