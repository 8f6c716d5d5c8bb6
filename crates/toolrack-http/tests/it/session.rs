//! Sessions of 2025: their ids, their streams, and what happens when a server forgets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolrack_http::HttpOptions;
use toolrack_transport::{Delivery, Dialect, Line};
use toolrack_transport::{NoParams, RequestId};

use crate::server::{Said, Seen, Server, Step};
use crate::stage::{Stage, VERSION, courtesy, until};

#[tokio::test]
async fn a_session_goes_with_every_message() {
    let script =
        |seen: &Seen| courtesy(seen, "s1").unwrap_or_else(|| Said::result(seen, json!({})));
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    stage.ask("tools/list").await.unwrap();
    stage.line.answer(&RequestId::from("q"), Ok(&to_raw_value(&json!({})).unwrap())).unwrap();
    until("everything has come", || server.seen().len() == 5).await;
    stage.line.close().await;
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
    let mut heard = server.heard();
    assert_eq!(heard.pop().unwrap(), "DELETE");
    // What a server says before its stream is open is lost.
    let place = |what: &str| heard.iter().position(|it| it == what);
    assert!(place("GET") < place("POST tools/list"), "{heard:?}");
    heard.sort();
    let expected =
        ["GET", "POST", "POST initialize", "POST notifications/initialized", "POST tools/list"];
    assert_eq!(heard, expected);
    assert_eq!(stage.diary.read(), ["ended: closed by us"]);
}

#[tokio::test]
async fn older_versions_have_no_header_for_themselves() {
    let script =
        |seen: &Seen| courtesy(seen, "s1").unwrap_or_else(|| Said::result(seen, json!({})));
    let server = Server::start(script).await;
    let stage = Stage::open(&server.url, HttpOptions::default()).await;
    stage.line.speak(Dialect::Greeting);
    stage.ask("initialize").await.unwrap();
    stage.line.speak(Dialect::Session("2025-03-26"));
    stage.ask("tools/list").await.unwrap();
    assert_eq!(server.seen()[1].header("mcp-protocol-version"), None);
    assert_eq!(server.seen()[1].header("mcp-session-id"), Some("s1"));
}

/// A server that forgets the session `s1` as soon as it is told to.
async fn forgetful(refuse: fn() -> Said) -> (Server, Arc<AtomicBool>) {
    let forget = Arc::new(AtomicBool::new(false));
    let (forgets, n_sessions) = (Arc::clone(&forget), AtomicUsize::new(0));
    let script = move |seen: &Seen| {
        if seen.method() == "initialize" {
            let id = format!("s{}", n_sessions.fetch_add(1, Ordering::SeqCst) + 1);
            return courtesy(seen, &id).unwrap();
        }
        if forgets.load(Ordering::SeqCst) && seen.header("mcp-session-id") == Some("s1") {
            return refuse().after(Duration::from_millis(20));
        }
        courtesy(seen, "").unwrap_or_else(|| Said::result(seen, json!({"ok": true})))
    };
    (Server::start(script).await, forget)
}

#[tokio::test]
async fn many_requests_begin_one_new_session() {
    let refusals: [fn() -> Said; 3] = [
        || Said::status(404),
        || Said::error(404, -32001, "Session not found"),
        || Said::error(400, -32000, "Bad Request: No valid session ID provided"),
    ];
    for refuse in refusals {
        let (server, forget) = forgetful(refuse).await;
        let stage = Stage::greeted(&server).await;
        forget.store(true, Ordering::SeqCst);
        let asked = (0..20).map(|_| stage.ask("tools/call"));
        for outcome in futures_util::future::join_all(asked).await {
            assert_eq!(outcome.unwrap(), json!({"ok": true}));
        }
        assert_eq!(server.count("POST initialize"), 2);
        assert_eq!(server.count("POST notifications/initialized"), 2);
        assert_eq!(stage.diary.read(), ["renewed"]);
        let seen = server.seen();
        let again = seen.iter().filter(|it| it.method() == "initialize").nth(1).unwrap();
        assert_eq!(again.header("mcp-session-id"), None);
        assert_eq!(again.body["params"], json!({"x": 1}));
        let ids: Vec<&Value> = seen
            .iter()
            .filter(|it| it.header("mcp-session-id") == Some("s2") && it.method() == "tools/call")
            .map(|it| &it.body["id"])
            .collect();
        assert_eq!(ids.len(), 20);
        stage.line.close().await;
        let last = server.seen().pop().unwrap();
        assert_eq!((last.verb.as_str(), last.header("mcp-session-id")), ("DELETE", Some("s2")));
    }
}

#[tokio::test]
async fn a_bad_request_that_is_not_about_the_session_is_only_that() {
    let script = |seen: &Seen| {
        courtesy(seen, "s1").unwrap_or_else(|| Said::error(400, -32602, "bad arguments"))
    };
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    let failure = Stage::failure(stage.ask("tools/call").await);
    assert_eq!(failure, ("JSON-RPC error -32602: bad arguments".to_owned(), Delivery::Answered));
    assert_eq!(server.count("POST initialize"), 1);
}

#[tokio::test]
async fn a_session_that_stays_unknown_is_lost_and_not_sent() {
    let script = |seen: &Seen| courtesy(seen, "s1").unwrap_or_else(|| Said::status(404));
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    let failure = Stage::failure(stage.ask("tools/call").await);
    let expected = ("the server has ended the session".to_owned(), Delivery::NotSent);
    assert_eq!(failure, expected);
    assert_eq!(server.count("POST tools/call"), 2);
}

#[tokio::test]
async fn a_new_session_in_another_version_is_no_session() {
    let n_greetings = AtomicUsize::new(0);
    let script = move |seen: &Seen| match seen.method() {
        "initialize" if n_greetings.fetch_add(1, Ordering::SeqCst) > 0 => {
            let answer = json!({"protocolVersion": "2025-03-26"});
            Said::result(seen, answer).header("mcp-session-id", "other")
        }
        "tools/call" => Said::status(404),
        _ => courtesy(seen, "s1").unwrap(),
    };
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    let failure = Stage::failure(stage.ask("tools/call").await);
    assert_eq!(failure.0, "the server has ended the session");
    until("the other session is ended", || {
        server
            .seen()
            .iter()
            .any(|it| it.verb == "DELETE" && it.header("mcp-session-id") == Some("other"))
    })
    .await;
    assert_eq!(stage.diary.read(), Vec::<String>::new());
}

#[tokio::test]
async fn abandoned_requests_are_cancelled_by_a_message() {
    let script =
        |seen: &Seen| courtesy(seen, "s1").unwrap_or_else(|| Said::events().step(Step::Hold));
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    stage.ask_with("tools/call", &NoParams, Duration::from_millis(100)).await.unwrap_err();
    {
        let mut dropped = Box::pin(stage.ask("tools/call"));
        tokio::select! {
            _never = &mut dropped => panic!("there is no answer"),
            () = until("it is asked", || server.count("POST tools/call") == 2) => {}
        }
    }
    until("both are cancelled", || server.count("POST notifications/cancelled") == 2).await;
    let seen = server.seen();
    let told = |method: &str| -> Vec<Value> {
        let of = |it: &&Seen| it.method() == method;
        seen.iter().filter(of).map(|it| it.body.clone()).collect()
    };
    let asked: Vec<Value> = told("tools/call").iter().map(|it| it["id"].clone()).collect();
    let cancelled = told("notifications/cancelled");
    let cancelled: Vec<Value> =
        cancelled.iter().map(|it| it["params"]["requestId"].clone()).collect();
    assert_eq!(asked, cancelled);
}

/// The scenario `sse-retry` of the conformance suite.
#[tokio::test]
async fn a_broken_stream_is_taken_up_where_it_broke_off() {
    let broke = Arc::new(std::sync::Mutex::new(None::<Instant>));
    let back = Arc::new(std::sync::Mutex::new(None::<Duration>));
    let asked = Arc::new(std::sync::Mutex::new(Value::Null));
    let (breaks, backs, asks) = (Arc::clone(&broke), Arc::clone(&back), Arc::clone(&asked));
    let script = move |seen: &Seen| {
        if seen.method() == "tools/call" {
            *asks.lock().unwrap() = seen.body["id"].clone();
            *breaks.lock().unwrap() = Some(clock());
            return Said::events().say("id: e-1\nretry: 500\ndata:\n\n");
        }
        if seen.verb == "GET" && seen.header("last-event-id") == Some("e-1") {
            let since = breaks.lock().unwrap().unwrap();
            *backs.lock().unwrap() = Some(clock() - since);
            let id = asks.lock().unwrap().clone();
            return Said::events().event(&json!({"jsonrpc": "2.0", "id": id, "result": {"n": 1}}));
        }
        courtesy(seen, "s1").unwrap()
    };
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    assert_eq!(stage.ask("tools/call").await.unwrap(), json!({"n": 1}));
    let waited = back.lock().unwrap().unwrap();
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    let resumed = server.seen().into_iter().rfind(|it| it.verb == "GET").unwrap();
    assert_eq!(resumed.header("mcp-session-id"), Some("s1"));
}

#[tokio::test]
async fn a_stream_without_a_place_cannot_be_taken_up() {
    let script = |seen: &Seen| {
        courtesy(seen, "s1").unwrap_or_else(|| Said::events().say("retry: 1\ndata: {}\n\n"))
    };
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    let (_, delivery) = Stage::failure(stage.ask("tools/call").await);
    assert_eq!(delivery, Delivery::Unknown);
    assert_eq!(server.count("POST tools/call"), 1);
}

#[tokio::test]
async fn what_the_server_says_unasked_comes_by_its_own_stream() {
    let n_streams = AtomicUsize::new(0);
    let script = move |seen: &Seen| {
        if seen.verb != "GET" {
            return courtesy(seen, "s1").unwrap_or_else(|| Said::result(seen, json!({})));
        }
        let n = n_streams.fetch_add(1, Ordering::SeqCst);
        let note = json!({"jsonrpc": "2.0", "method": "n", "params": n});
        let said = Said::events().say(format!("id: e{n}\n")).event(&note);
        if n < 2 { said } else { said.step(Step::Hold) }
    };
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    until("three streams were open", || stage.diary.read().len() == 3).await;
    assert_eq!(stage.diary.read(), ["notification n 0", "notification n 1", "notification n 2"]);
    let last: Vec<Option<String>> = server
        .seen()
        .iter()
        .filter(|it| it.verb == "GET")
        .map(|it| it.header("last-event-id").map(str::to_owned))
        .collect();
    assert_eq!(last, [None, Some("e0".to_owned()), Some("e1".to_owned())]);
}

#[tokio::test]
async fn a_silent_stream_is_replaced_and_a_comment_is_not_silence() {
    let n_streams = AtomicUsize::new(0);
    let script = move |seen: &Seen| {
        if seen.verb != "GET" {
            return courtesy(seen, "s1").unwrap();
        }
        // The first stream is dead from the start; the second one says something in between.
        if n_streams.fetch_add(1, Ordering::SeqCst) == 0 {
            return Said::events().step(Step::Hold);
        }
        let comment = |said: Said| said.step(Step::Pause(Duration::from_millis(300))).say(":\n");
        let said = (0..8).fold(Said::events(), |said, _| comment(said));
        said.event(&json!({"jsonrpc": "2.0", "method": "alive"})).step(Step::Hold)
    };
    let server = Server::start(script).await;
    let options =
        HttpOptions { stream_idle: Duration::from_millis(1500), ..HttpOptions::default() };
    let stage = Stage::open(&server.url, options).await;
    stage.greet().await;
    until("the second stream has spoken", || !stage.diary.read().is_empty()).await;
    assert_eq!(stage.diary.read(), ["notification alive "]);
    assert_eq!(server.count("GET"), 2);
}

#[tokio::test]
async fn questions_of_the_server_come_with_the_call() {
    let script = |seen: &Seen| {
        let question = json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create"});
        courtesy(seen, "s1")
            .unwrap_or_else(|| Said::events().event(&question).event_result(seen, json!({})))
    };
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    stage.ask("tools/call").await.unwrap();
    assert_eq!(stage.diary.read(), ["request 9 elicitation/create about 2"]);
}

/// A server may keep such a request open without a word.
#[tokio::test]
async fn a_notification_that_is_held_open_holds_nobody_up() {
    let script = |seen: &Seen| match seen.method() {
        "notifications/initialized" => Said::events().step(Step::Hold),
        _ => courtesy(seen, "s1").unwrap_or_else(|| Said::result(seen, json!({}))),
    };
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    stage.ask("tools/call").await.unwrap();
}

fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}
