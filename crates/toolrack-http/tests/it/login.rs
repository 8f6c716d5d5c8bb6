//! Servers that want to know who asks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_transport::{
    AtHand, AuthError, Authorization, BoxFuture, Credentials, Delivery, Line, Rebuff,
};

use crate::server::{Said, Seen, Server};
use crate::stage::{Call, MODERN, SOON, Stage};

/// Has a new token after every rebuff, until it gives up.
#[derive(Debug, Default)]
struct Tokens {
    n_given: AtomicUsize,
    heard: Mutex<Vec<String>>,
    gives_up: bool,
}

impl Credentials for Tokens {
    fn at_hand(&self) -> AtHand {
        match self.n_given.load(Ordering::SeqCst) {
            0 => AtHand::Ask,
            n => AtHand::Ready(Authorization::bearer(&format!("t{n}"))),
        }
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(Some(Authorization::bearer("t0"))) })
    }

    fn rebuffed<'a>(&'a self, rebuff: Rebuff<'a>) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(async move {
            let sent = rebuff.sent.map(Authorization::reveal);
            let text = format!(
                "{} {:?} {sent:?} {:?}",
                rebuff.status, rebuff.challenges, rebuff.operation
            );
            self.heard.lock().unwrap().push(text);
            self.n_given.fetch_add(1, Ordering::SeqCst);
            let fault = AuthError::LoginNeeded { reason: "expired".to_owned() };
            if self.gives_up { Err(fault) } else { Ok(()) }
        })
    }
}

async fn open(server: &Server, credentials: Option<Arc<dyn Credentials>>) -> Stage {
    let options = HttpOptions { credentials, ..HttpOptions::default() };
    let stage = Stage::open(&server.url, options).await;
    stage.line.speak(MODERN);
    stage
}

fn challenge() -> Said {
    Said::status(401)
        .header("www-authenticate", "Bearer realm=\"a\"")
        .header("www-authenticate", "Basic")
        .say("{\"error\":\"x\"}")
}

#[tokio::test]
async fn a_rebuff_is_shown_to_the_credentials_and_the_request_sent_again() {
    let server = Server::start(|seen| match seen.header("authorization") {
        Some("Bearer t2") => Said::result(seen, json!({})),
        _ => challenge(),
    })
    .await;
    let tokens = Arc::new(Tokens::default());
    let stage = open(&server, Some(Arc::clone(&tokens) as Arc<dyn Credentials>)).await;
    let call = Call { name: "t", mirrored: &[] };
    stage.ask_with("tools/call", &call, SOON).await.unwrap();
    let challenges = r#"["Bearer realm=\"a\"", "Basic"]"#;
    let operation = r#"("tools/call", Some("t"))"#;
    let expected = [
        format!(r#"401 {challenges} Some("Bearer t0") {operation}"#),
        format!(r#"401 {challenges} Some("Bearer t1") {operation}"#),
    ];
    assert_eq!(*tokens.heard.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_server_that_never_lets_us_in_is_asked_four_times_at_most() {
    for status in [401, 403] {
        let server = Server::start(move |_| Said::status(status)).await;
        let stage = open(&server, Some(Arc::new(Tokens::default()))).await;
        let (text, delivery) = Stage::failure(stage.ask("tools/call").await);
        assert_eq!(delivery, Delivery::Answered);
        assert!(
            text.starts_with(if status == 401 { "login needed" } else { "not allowed" }),
            "{text}"
        );
        assert_eq!(server.seen().len(), 4);
    }
}

#[tokio::test]
async fn credentials_may_give_up() {
    let server = Server::start(|_| challenge()).await;
    let tokens = Tokens { gives_up: true, ..Tokens::default() };
    let stage = open(&server, Some(Arc::new(tokens))).await;
    assert_eq!(Stage::failure(stage.ask("tools/call").await).0, "login needed: expired");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn without_credentials_the_user_is_told() {
    for (status, expected) in [
        (401, "login needed: the server asks for credentials"),
        (403, "not allowed: the server answered with HTTP status 403"),
    ] {
        let server = Server::start(move |_| Said::status(status)).await;
        let stage = open(&server, None).await;
        assert_eq!(Stage::failure(stage.ask("tools/call").await).0, expected);
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn configured_headers_are_sent() {
    let server = Server::start(|seen: &Seen| Said::result(seen, json!({}))).await;
    let headers = vec![
        ("Authorization".to_owned(), "Bearer k".to_owned()),
        ("X-Key".to_owned(), "1".to_owned()),
    ];
    let definition = HttpServerDef { url: server.url.clone(), headers };
    let stage = Stage::open_definition(&definition, HttpOptions::default()).await;
    stage.line.speak(MODERN);
    stage.ask("tools/list").await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!((seen.header("authorization"), seen.header("x-key")), (Some("Bearer k"), Some("1")));
    assert!(seen.header("user-agent").unwrap().starts_with("toolrack/"));
    let shown = format!("{:?} {definition:?}", stage.line);
    assert_eq!(shown.find("Bearer"), None);
}

#[tokio::test]
async fn a_definition_that_cannot_be_used_says_why() {
    let odd = |url: &str, header: &str| HttpServerDef {
        url: url.to_owned(),
        headers: vec![(header.to_owned(), "x".to_owned())],
    };
    for (definition, expected) in [
        (odd("https://a/", "Mcp-Name"), "the header `Mcp-Name` is set by the protocol"),
        (odd("gopher://a/?k=1", "X"), "`gopher` is no scheme we speak; use http, https or unix"),
    ] {
        let inbox = Arc::new(crate::stage::Diary::default());
        let opened =
            toolrack_http::HttpLine::open(&definition, HttpOptions::default(), inbox).await;
        let error = opened.err().unwrap();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, expected);
        assert_eq!(error.to_string().find("k=1"), None);
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_once_more_if_that_does_no_harm() {
    for (method, n_asked) in [("tools/list", 2), ("tools/call", 1)] {
        let server =
            Server::start(|_| Said::status(429).header("retry-after", "0").say("busy")).await;
        let stage = open(&server, None).await;
        let (text, delivery) = Stage::failure(stage.ask(method).await);
        assert_eq!(text, "the server answered with HTTP status 429: busy");
        assert_eq!((delivery, server.seen().len()), (Delivery::Answered, n_asked), "{method}");
    }
}
