//! Redirects.

use serde_json::json;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_transport::{Delivery, Transport};

use crate::fixture::{Fixture, STATELESS};
use crate::server::{Reply, SeenRequest, Server};

async fn with_bearer_header(server: &Server) -> Fixture {
    let headers = vec![("Authorization".to_owned(), "Bearer canary".to_owned())];
    let definition = HttpServerDef { url: server.url.clone(), headers };
    let fixture = Fixture::open_definition(&definition, HttpOptions::default()).await;
    fixture.transport.set_protocol_mode(STATELESS);
    fixture
}

#[tokio::test]
async fn same_origin_redirect_keeps_headers_and_body() {
    for status in [307, 308] {
        let script = move |seen: &SeenRequest| match seen.path.as_str() {
            "/mcp" => Reply::status(status).header("location", "/mcp/"),
            _ => Reply::result(seen, json!({"x": seen.body["params"]["x"]})),
        };
        let server = Server::start(script).await;
        let fixture = with_bearer_header(&server).await;
        assert_eq!(fixture.request("tools/call").await.unwrap(), json!({"x": 1}));
        let last = server.seen().pop().unwrap();
        assert_eq!(last.header("authorization"), Some("Bearer canary"));
        assert_eq!(last.header("mcp-method"), Some("tools/call"));
    }
}

#[tokio::test]
async fn cross_origin_redirect_is_not_followed() {
    let other_origin = Server::start(|_| Reply::status(200)).await;
    let location = other_origin.url.clone();
    let server = Server::start(move |_| Reply::status(307).header("location", &location)).await;
    let fixture = with_bearer_header(&server).await;
    let (text, delivery) = Fixture::failure(fixture.request("tools/call").await);
    assert!(text.contains("status 307: redirect not followed"), "{text}");
    assert_eq!(delivery, Delivery::Answered);
    assert_eq!(other_origin.n_connections(), 0);
}

#[tokio::test]
async fn redirects_are_limited() {
    let server = Server::start(|_| Reply::status(308).header("location", "/again")).await;
    let fixture = with_bearer_header(&server).await;
    let (text, _) = Fixture::failure(fixture.request("tools/call").await);
    assert_eq!(text, "the server responded with HTTP status 308: too many redirects");
    assert_eq!(server.seen().len(), 6);
    for status in [301, 302, 303] {
        let server = Server::start(move |_| Reply::status(status).header("location", "/x")).await;
        let fixture = with_bearer_header(&server).await;
        fixture.request("tools/call").await.unwrap_err();
        assert_eq!(server.seen().len(), 1, "{status} would change the method");
    }
}
