//! Goal G07: whatever a server does, it is not stormed. The clock stands still, so thirty seconds are
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use toolrack_http::HttpOptions;
use toolrack_transport::NoParams;
use toolrack_transport::{
    AtHand, AuthError, Authorization, BoxFuture, Credentials, Dialect, Line, Rebuff,
};

use crate::server::{Said, Seen, Server};
use crate::stage::{Stage, VERSION, courtesy};

/// Believes to the end that the next time will be better.
#[derive(Debug)]
struct Optimist;

impl Credentials for Optimist {
    fn at_hand(&self) -> AtHand {
        AtHand::Nothing
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(None) })
    }

    fn rebuffed<'a>(&'a self, _rebuff: Rebuff<'a>) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(async { Ok(()) })
    }
}

async fn check(what: &str, script: impl Fn(&Seen) -> Said + Send + Sync + 'static) {
    let server = Server::start(script).await;
    let options = HttpOptions { credentials: Some(Arc::new(Optimist)), ..HttpOptions::default() };
    let stage = Stage::open(&server.url, options).await;
    stage.greet().await;
    sleep(Duration::from_secs(30)).await;
    let heard = server.heard();
    assert!(heard.len() <= 10, "{what}: {} requests: {heard:?}", heard.len());
    stage.line.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_closes_at_once() {
    check("closes", |seen| match seen.verb.as_str() {
        "GET" => Said::events(),
        _ => courtesy(seen, "s1").unwrap(),
    })
    .await;
    check("closes and wants us back at once", |seen| match seen.verb.as_str() {
        "GET" => Said::events().say("id: 1\nretry: 0\ndata: {}\n\n"),
        _ => courtesy(seen, "s1").unwrap(),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_refused() {
    for status in [400, 401, 403, 404, 429, 500, 503] {
        check(&status.to_string(), move |seen| match seen.verb.as_str() {
            "GET" => Said::status(status).header("retry-after", "0"),
            _ => courtesy(seen, "s1").unwrap(),
        })
        .await;
    }
}

/// The session is gone every second time.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_forgotten_again_and_again() {
    let n_streams = AtomicUsize::new(0);
    check("forgets", move |seen| match seen.verb.as_str() {
        "GET" if n_streams.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => Said::events(),
        "GET" => Said::status(404),
        _ => courtesy(seen, "s1").unwrap(),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_old_stream_that_closes_at_once() {
    let script = |seen: &Seen| match seen.verb.as_str() {
        "GET" => Said::events().say("event: endpoint\ndata: /m\n\n"),
        // Answers in place, so that sessions begin although the stream is gone.
        _ if seen.path == "/m" => Said::result(seen, json!({"protocolVersion": VERSION})),
        _ => Said::status(405),
    };
    let server = Server::start(script).await;
    let stage = Stage::open(&server.url, HttpOptions::default()).await;
    stage.line.speak(Dialect::Greeting);
    stage.ask("initialize").await.unwrap();
    stage.line.speak(Dialect::Session(VERSION));
    let _whatever = stage.line.notify("notifications/initialized", &NoParams).await;
    sleep(Duration::from_secs(30)).await;
    let heard = server.heard();
    assert!(heard.len() <= 10, "{} requests: {heard:?}", heard.len());
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_is_asked_for_at_a_pace() {
    let script = |seen: &Seen| match (seen.verb.as_str(), seen.method()) {
        ("POST", "tools/call") => Said::events().say("id: 1\nretry: 0\ndata:\n\n"),
        ("GET", _) if seen.header("last-event-id").is_some() => Said::events(),
        _ => courtesy(seen, "s1").unwrap(),
    };
    let server = Server::start(script).await;
    let stage = Stage::greeted(&server).await;
    let late = stage.ask_with("tools/call", &NoParams, Duration::from_secs(30)).await;
    assert_eq!(Stage::failure(late).0, "request timed out after 30000ms");
    assert!(server.count("GET") <= 10, "{:?}", server.heard());
    assert_eq!(server.count("POST tools/call"), 1);
}
