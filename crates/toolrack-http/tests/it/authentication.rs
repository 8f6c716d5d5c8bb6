//! 401 and 403: challenges, credentials, `Retry-After` and configured headers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_transport::{
    AuthChallenge, AuthError, Authorization, BoxFuture, CachedCredential, Credentials, Delivery,
    Transport,
};

use crate::fixture::{Call, Fixture, SOON, STATELESS};
use crate::server::{Reply, SeenRequest, Server};

/// Has a new token after every challenge, until it gives up.
#[derive(Debug, Default)]
struct RotatingTokens {
    n_given: AtomicUsize,
    request_log: Mutex<Vec<String>>,
    gives_up: bool,
}

impl Credentials for RotatingTokens {
    fn cached(&self) -> CachedCredential {
        match self.n_given.load(Ordering::SeqCst) {
            0 => CachedCredential::Obtain,
            n => CachedCredential::Ready(Authorization::bearer(&format!("t{n}"))),
        }
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(Some(Authorization::bearer("t0"))) })
    }

    fn on_challenge<'a>(
        &'a self,
        rebuff: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(async move {
            let sent = rebuff.sent.map(Authorization::reveal);
            let text = format!(
                "{} {:?} {sent:?} {:?}",
                rebuff.status, rebuff.challenges, rebuff.operation
            );
            self.request_log.lock().unwrap().push(text);
            self.n_given.fetch_add(1, Ordering::SeqCst);
            let fault = AuthError::LoginRequired { reason: "expired".to_owned() };
            if self.gives_up { Err(fault) } else { Ok(()) }
        })
    }
}

async fn open(server: &Server, credentials: Option<Arc<dyn Credentials>>) -> Fixture {
    let options = HttpOptions { credentials, ..HttpOptions::default() };
    let fixture = Fixture::open(&server.url, options).await;
    fixture.transport.set_protocol_mode(STATELESS);
    fixture
}

fn challenge() -> Reply {
    Reply::status(401)
        .header("www-authenticate", "Bearer realm=\"a\"")
        .header("www-authenticate", "Basic")
        .send("{\"error\":\"x\"}")
}

#[tokio::test]
async fn auth_challenge_reaches_credentials_and_request_is_retried() {
    let server = Server::start(|seen| match seen.header("authorization") {
        Some("Bearer t2") => Reply::result(seen, json!({})),
        _ => challenge(),
    })
    .await;
    let credentials = Arc::new(RotatingTokens::default());
    let fixture = open(&server, Some(Arc::clone(&credentials) as Arc<dyn Credentials>)).await;
    let call = Call { name: "t", param_headers: &[] };
    fixture.request_with("tools/call", &call, SOON).await.unwrap();
    let challenges = r#"["Bearer realm=\"a\"", "Basic"]"#;
    let operation = r#"("tools/call", Some("t"))"#;
    let expected = [
        format!(r#"401 {challenges} Some("Bearer t0") {operation}"#),
        format!(r#"401 {challenges} Some("Bearer t1") {operation}"#),
    ];
    assert_eq!(*credentials.request_log.lock().unwrap(), expected);
}

#[derive(Debug)]
struct InvalidToken;

impl Credentials for InvalidToken {
    fn cached(&self) -> CachedCredential {
        CachedCredential::Ready(Authorization::bearer("s3cret\n"))
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(None) })
    }

    fn on_challenge<'a>(
        &'a self,
        _challenge: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn invalid_token_is_an_error_without_its_value() {
    let server = Server::start(|seen| Reply::result(seen, json!({}))).await;
    let fixture = open(&server, Some(Arc::new(InvalidToken))).await;
    let (text, delivery) = Fixture::failure(fixture.request("tools/call").await);
    assert_eq!(text, "login required: the value of the header `Authorization` is not valid");
    assert_eq!((delivery, server.seen().len()), (Delivery::NotSent, 0));
}

#[tokio::test]
async fn rejected_request_is_sent_four_times_at_most() {
    for status in [401, 403] {
        let server = Server::start(move |_| Reply::status(status)).await;
        let fixture = open(&server, Some(Arc::new(RotatingTokens::default()))).await;
        let (text, delivery) = Fixture::failure(fixture.request("tools/call").await);
        assert_eq!(delivery, Delivery::Answered);
        assert!(
            text.starts_with(if status == 401 { "login required" } else { "permission denied" }),
            "{text}"
        );
        assert_eq!(server.seen().len(), 4);
    }
}

#[tokio::test]
async fn credentials_error_ends_the_retries() {
    let server = Server::start(|_| challenge()).await;
    let credentials = RotatingTokens { gives_up: true, ..RotatingTokens::default() };
    let fixture = open(&server, Some(Arc::new(credentials))).await;
    assert_eq!(Fixture::failure(fixture.request("tools/call").await).0, "login required: expired");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn challenge_without_credentials_needs_login() {
    for (status, expected) in [
        (401, "login required: the server requires authentication"),
        (403, "permission denied: the server responded with HTTP status 403"),
    ] {
        let server = Server::start(move |_| Reply::status(status)).await;
        let fixture = open(&server, None).await;
        assert_eq!(Fixture::failure(fixture.request("tools/call").await).0, expected);
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn configured_headers_are_sent() {
    let server = Server::start(|seen: &SeenRequest| Reply::result(seen, json!({}))).await;
    let headers = vec![
        ("Authorization".to_owned(), "Bearer k".to_owned()),
        ("X-Key".to_owned(), "1".to_owned()),
    ];
    let definition = HttpServerDef { url: server.url.clone(), headers };
    let fixture = Fixture::open_definition(&definition, HttpOptions::default()).await;
    fixture.transport.set_protocol_mode(STATELESS);
    fixture.request("tools/list").await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!((seen.header("authorization"), seen.header("x-key")), (Some("Bearer k"), Some("1")));
    assert!(seen.header("user-agent").unwrap().starts_with("toolrack/"));
    let shown = format!("{:?} {definition:?}", fixture.transport);
    assert_eq!(shown.find("Bearer"), None);
}

#[tokio::test]
async fn invalid_definition_names_the_reason() {
    let definition = |url: &str, header: &str| HttpServerDef {
        url: url.to_owned(),
        headers: vec![(header.to_owned(), "x".to_owned())],
    };
    for (definition, expected) in [
        (definition("https://a/", "Mcp-Name"), "the header `Mcp-Name` is set by the protocol"),
        (
            definition("gopher://a/?k=1", "X"),
            "unsupported scheme `gopher`; use http, https or unix",
        ),
    ] {
        let inbox = Arc::new(crate::fixture::RecordingHandler::default());
        let opened =
            toolrack_http::HttpTransport::open(&definition, HttpOptions::default(), inbox).await;
        let error = opened.err().unwrap();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, expected);
        assert_eq!(error.to_string().find("k=1"), None);
    }
}

#[tokio::test]
async fn retry_after_retries_idempotent_requests_once() {
    for (method, n_asked) in [("tools/list", 2), ("tools/call", 1)] {
        let server =
            Server::start(|_| Reply::status(429).header("retry-after", "0").send("busy")).await;
        let fixture = open(&server, None).await;
        let (text, delivery) = Fixture::failure(fixture.request(method).await);
        assert_eq!(text, "the server responded with HTTP status 429: busy");
        assert_eq!((delivery, server.seen().len()), (Delivery::Answered, n_asked), "{method}");
    }
}
