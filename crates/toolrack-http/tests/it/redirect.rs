//! Servers that send us elsewhere.

use serde_json::json;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_transport::{Delivery, Line};

use crate::server::{Said, Seen, Server};
use crate::stage::{MODERN, Stage};

async fn secretive(server: &Server) -> Stage {
    let headers = vec![("Authorization".to_owned(), "Bearer canary".to_owned())];
    let definition = HttpServerDef { url: server.url.clone(), headers };
    let stage = Stage::open_definition(&definition, HttpOptions::default()).await;
    stage.line.speak(MODERN);
    stage
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed_with_everything() {
    for status in [307, 308] {
        let script = move |seen: &Seen| match seen.path.as_str() {
            "/mcp" => Said::status(status).header("location", "/mcp/"),
            _ => Said::result(seen, json!({"x": seen.body["params"]["x"]})),
        };
        let server = Server::start(script).await;
        let stage = secretive(&server).await;
        assert_eq!(stage.ask("tools/call").await.unwrap(), json!({"x": 1}));
        let last = server.seen().pop().unwrap();
        assert_eq!(last.header("authorization"), Some("Bearer canary"));
        assert_eq!(last.header("mcp-method"), Some("tools/call"));
    }
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_not_followed() {
    let thief = Server::start(|_| Said::status(200)).await;
    let location = thief.url.clone();
    let server = Server::start(move |_| Said::status(307).header("location", &location)).await;
    let stage = secretive(&server).await;
    let (text, delivery) = Stage::failure(stage.ask("tools/call").await);
    assert!(text.contains("status 307: a redirect was not followed"), "{text}");
    assert_eq!(delivery, Delivery::Answered);
    assert_eq!(thief.n_connections(), 0);
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::start(|_| Said::status(308).header("location", "/again")).await;
    let stage = secretive(&server).await;
    let (text, _) = Stage::failure(stage.ask("tools/call").await);
    assert_eq!(text, "the server answered with HTTP status 308: too many redirects");
    assert_eq!(server.seen().len(), 6);
    for status in [301, 302, 303] {
        let server = Server::start(move |_| Said::status(status).header("location", "/x")).await;
        let stage = secretive(&server).await;
        stage.ask("tools/call").await.unwrap_err();
        assert_eq!(server.seen().len(), 1, "{status} would change the method");
    }
}
