//! Goal G07: retries never flood a server. The clock is paused, so thirty seconds pass at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use toolrack_http::HttpOptions;
use toolrack_transport::NoParams;
use toolrack_transport::{
    AuthChallenge, AuthError, Authorization, BoxFuture, CachedCredential, Credentials,
    ProtocolMode, Transport,
};

use crate::fixture::{Fixture, VERSION, default_reply};
use crate::server::{Reply, SeenRequest, Server};

/// Credentials that always ask for another attempt.
#[derive(Debug)]
struct AlwaysRetry;

impl Credentials for AlwaysRetry {
    fn cached(&self) -> CachedCredential {
        CachedCredential::None
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(None) })
    }

    fn on_challenge<'a>(
        &'a self,
        _rebuff: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(async { Ok(()) })
    }
}

async fn check(what: &str, script: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static) {
    let server = Server::start(script).await;
    let options =
        HttpOptions { credentials: Some(Arc::new(AlwaysRetry)), ..HttpOptions::default() };
    let fixture = Fixture::open(&server.url, options).await;
    fixture.initialize().await;
    sleep(Duration::from_secs(30)).await;
    let request_log = server.request_log();
    assert!(request_log.len() <= 10, "{what}: {} requests: {request_log:?}", request_log.len());
    fixture.transport.close().await;
}

#[tokio::test(start_paused = true)]
async fn stream_that_closes_at_once_is_reopened_slowly() {
    check("closes", |seen| match seen.http_method.as_str() {
        "GET" => Reply::events(),
        _ => default_reply(seen, "s1").unwrap(),
    })
    .await;
    check("closes and wants us back at once", |seen| match seen.http_method.as_str() {
        "GET" => Reply::events().send("id: 1\nretry: 0\ndata: {}\n\n"),
        _ => default_reply(seen, "s1").unwrap(),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rejected_stream_is_reopened_slowly() {
    for status in [400, 401, 403, 404, 429, 500, 503] {
        check(&status.to_string(), move |seen| match seen.http_method.as_str() {
            "GET" => Reply::status(status).header("retry-after", "0"),
            _ => default_reply(seen, "s1").unwrap(),
        })
        .await;
    }
}

/// The session is lost every second time.
#[tokio::test(start_paused = true)]
async fn expiring_sessions_are_renewed_slowly() {
    let n_streams = AtomicUsize::new(0);
    check("forgets", move |seen| match seen.http_method.as_str() {
        "GET" if n_streams.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => Reply::events(),
        "GET" => Reply::status(404),
        _ => default_reply(seen, "s1").unwrap(),
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn legacy_stream_that_closes_at_once_is_reopened_slowly() {
    let script = |seen: &SeenRequest| match seen.http_method.as_str() {
        "GET" => Reply::events().send("event: endpoint\ndata: /m\n\n"),
        // Responds in the POST itself, so that sessions start although the stream is gone.
        _ if seen.path == "/m" => Reply::result(seen, json!({"protocolVersion": VERSION})),
        _ => Reply::status(405),
    };
    let server = Server::start(script).await;
    let fixture = Fixture::open(&server.url, HttpOptions::default()).await;
    fixture.transport.set_protocol_mode(ProtocolMode::Initialize);
    fixture.request("initialize").await.unwrap();
    fixture.transport.set_protocol_mode(ProtocolMode::Session(VERSION));
    let _outcome = fixture.transport.notify("notifications/initialized", &NoParams).await;
    sleep(Duration::from_secs(30)).await;
    let request_log = server.request_log();
    assert!(request_log.len() <= 10, "{} requests: {request_log:?}", request_log.len());
}

#[tokio::test(start_paused = true)]
async fn broken_response_is_resumed_slowly() {
    let script = |seen: &SeenRequest| match (seen.http_method.as_str(), seen.method()) {
        ("POST", "tools/call") => Reply::events().send("id: 1\nretry: 0\ndata:\n\n"),
        ("GET", _) if seen.header("last-event-id").is_some() => Reply::events(),
        _ => default_reply(seen, "s1").unwrap(),
    };
    let server = Server::start(script).await;
    let fixture = Fixture::with_session(&server).await;
    let timed_out = fixture.request_with("tools/call", &NoParams, Duration::from_secs(30)).await;
    assert_eq!(Fixture::failure(timed_out).0, "request timed out after 30000ms");
    assert!(server.count("GET") <= 10, "{:?}", server.request_log());
    assert_eq!(server.count("POST tools/call"), 1);
}
