//! Servers of 2024, which answer on a stream.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use toolrack_http::HttpOptions;
use toolrack_transport::{Delivery, Dialect, Line};

use crate::server::{Said, Seen, Server, Step};
use crate::stage::{Stage, VERSION, until};

/// What the server has to say on its stream. A stream takes what is there when it comes by.
#[derive(Clone, Default)]
struct Mouth(Arc<Mutex<Vec<Value>>>);

/// A server with two addresses. The stream is polled, so that it needs no task of its own: it says what
/// has gathered every few milliseconds.
async fn old_server(
    path: &'static str,
    odd: impl Fn(&Seen) -> Option<Said> + Send + Sync + 'static,
) -> Server {
    let mouth = Mouth::default();
    let n_streams = AtomicUsize::new(0);
    Server::start(move |seen| {
        if let Some(said) = odd(seen) {
            return said;
        }
        match (seen.verb.as_str(), seen.path.split('?').next().unwrap()) {
            ("GET", at) if at == path => {
                let n = n_streams.fetch_add(1, Ordering::SeqCst);
                let endpoint = format!("event: endpoint\ndata: /messages?session={n}\n\n");
                Said::events().say(endpoint).step(Step::Live(live(&mouth)))
            }
            ("POST", "/messages") => {
                let id = &seen.body["id"];
                let result = match seen.method() {
                    "initialize" => json!({"protocolVersion": VERSION}),
                    _ => json!({"ok": true}),
                };
                if !id.is_null() {
                    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
                    mouth.0.lock().unwrap().push(answer);
                }
                Said::status(202).say("Accepted")
            }
            _ => Said::status(405),
        }
    })
    .await
}

fn live(mouth: &Mouth) -> Box<dyn FnMut() -> Bytes + Send> {
    let mouth = mouth.clone();
    Box::new(move || {
        let said = std::mem::take(&mut *mouth.0.lock().unwrap());
        let events = said.iter().map(|it| format!("event: message\ndata: {it}\n\n"));
        let said = events.collect::<Vec<_>>().concat();
        Bytes::from(said)
    })
}

#[tokio::test]
async fn a_server_that_knows_no_post_is_asked_the_old_way() {
    let server = old_server("/mcp", |_| None).await;
    let stage = Stage::greeted(&server).await;
    for _ in 0..3 {
        assert_eq!(stage.ask("tools/call").await.unwrap(), json!({"ok": true}));
    }
    let heard = server.heard();
    let expected = [
        "POST initialize",
        "GET",
        "POST initialize",
        "POST notifications/initialized",
        "POST tools/call",
        "POST tools/call",
        "POST tools/call",
    ];
    assert_eq!(heard, expected);
    let paths: Vec<String> = server.seen().iter().skip(2).map(|it| it.path.clone()).collect();
    assert!(paths.iter().all(|it| it == "/messages?session=0"), "{paths:?}");
    stage.line.close().await;
    assert_eq!(stage.diary.read(), ["ended: closed by us"]);
}

#[tokio::test]
async fn an_address_that_says_so_is_asked_the_old_way_at_once() {
    let server = old_server("/sse", |_| None).await;
    let url = server.url.replace("/mcp", "/sse");
    let stage = Stage::open(&url, HttpOptions::default()).await;
    stage.greet().await;
    stage.ask("tools/call").await.unwrap();
    assert_eq!(server.heard()[..2], ["GET", "POST initialize"]);
}

#[tokio::test]
async fn an_address_that_only_looks_old_is_asked_the_new_way() {
    let script = |seen: &Seen| {
        crate::stage::courtesy(seen, "s1").unwrap_or_else(|| Said::result(seen, json!({})))
    };
    let server = Server::start(script).await;
    let stage = Stage::open(&server.url.replace("/mcp", "/sse"), HttpOptions::default()).await;
    stage.greet().await;
    stage.ask("tools/call").await.unwrap();
}

#[tokio::test]
async fn nothing_is_sent_to_another_origin() {
    let thief = Server::start(|_| Said::status(202)).await;
    let elsewhere = thief.url.clone();
    let server = Server::start(move |seen| match seen.verb.as_str() {
        "GET" => {
            let endpoint = format!("event: endpoint\ndata: {elsewhere}\n\n");
            Said::events().say(endpoint).step(Step::Hold)
        }
        _ => Said::status(404).say("nothing here"),
    })
    .await;
    let stage = Stage::open(&server.url, HttpOptions::default()).await;
    stage.line.speak(Dialect::Greeting);
    let failure = Stage::failure(stage.ask("initialize").await);
    let expected = "the server answered with HTTP status 404: nothing here";
    assert_eq!(failure.0, expected, "what the first question brought says more");
    assert_eq!(thief.heard(), Vec::<String>::new());
    let stage = Stage::open(&server.url.replace("/mcp", "/sse"), HttpOptions::default()).await;
    stage.line.speak(Dialect::Greeting);
    assert_eq!(Stage::failure(stage.ask("initialize").await).0, "input or output failed");
    assert_eq!(thief.heard(), Vec::<String>::new());
}

#[tokio::test]
async fn a_modern_refusal_is_not_taken_for_an_old_server() {
    for status in [400, 404] {
        let server = Server::start(move |_| Said::error(status, -32022, "version")).await;
        let stage = Stage::open(&server.url, HttpOptions::default()).await;
        stage.line.speak(Dialect::Greeting);
        let failure = Stage::failure(stage.ask("initialize").await);
        assert_eq!(failure.0, "JSON-RPC error -32022: version");
        assert_eq!(server.heard(), ["POST initialize"]);
    }
    for status in [401, 403, 500, 503] {
        let server = Server::start(move |_| Said::status(status)).await;
        let stage = Stage::open(&server.url, HttpOptions::default()).await;
        stage.line.speak(Dialect::Greeting);
        stage.ask("initialize").await.unwrap_err();
        assert_eq!(server.heard(), ["POST initialize"], "{status}");
    }
}

#[tokio::test]
async fn a_lost_stream_fails_who_waits_and_a_new_session_begins() {
    let n_streams = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&n_streams);
    let server = old_server("/mcp", move |seen| {
        let is_first = counts.load(Ordering::SeqCst) == 0;
        match (seen.verb.as_str(), seen.method()) {
            ("GET", _) if !is_first => None,
            // The call is taken and never answered, and then the stream breaks.
            ("POST", "tools/call") if is_first => {
                counts.store(1, Ordering::SeqCst);
                Some(Said::status(202))
            }
            _ => None,
        }
    })
    .await;
    let stage = Stage::greeted(&server).await;
    let asked =
        stage.ask_with("tools/call", &toolrack_transport::NoParams, Duration::from_secs(20));
    let cut = async {
        until("it is asked", || server.count("POST tools/call") == 1).await;
        server.cut_live();
    };
    let (outcome, ()) = tokio::join!(asked, cut);
    let (_, delivery) = Stage::failure(outcome);
    assert_eq!(delivery, Delivery::Unknown);
    assert_eq!(stage.ask("tools/call").await.unwrap(), json!({"ok": true}));
    until("it was told", || stage.diary.read() == ["renewed"]).await;
    assert_eq!(server.count("GET"), 2);
    assert_eq!(server.count("POST notifications/initialized"), 2);
    let last = server.seen().pop().unwrap();
    assert_eq!(last.path, "/messages?session=1");
}
