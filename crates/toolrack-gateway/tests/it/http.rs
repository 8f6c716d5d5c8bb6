//! The HTTP transport, request by request: sessions, streams, status codes and rejected requests.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use serde_json::{Value, json};
use tokio::time::timeout;
use toolrack_client::EraChoice;
use toolrack_gateway::{
    Gateway, GatewayBody, GatewayOptions, HttpGateway, HttpGatewayOptions, Scope,
};
use toolrack_testkit::{Journal, eventually_async};

use crate::fixture::{Fixture, HttpFixture, TIMEOUT, TestUser, eventually, n_cancelled, scripted};

const MODERN: &str = "2026-07-28";

struct TestRequest<'a> {
    method: Method,
    headers: Vec<(&'a str, String)>,
    body: String,
}

impl<'a> TestRequest<'a> {
    fn post(body: &Value) -> Self {
        let headers = vec![
            ("host", "localhost".to_owned()),
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
        ];
        Self { method: Method::POST, headers, body: body.to_string() }
    }

    fn header(mut self, name: &'a str, value: &str) -> Self {
        self.headers.retain(|(existing, _)| *existing != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    fn build(self) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method).uri("/mcp");
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(Bytes::from(self.body))).unwrap()
    }

    async fn send(self, endpoint: &HttpGateway) -> Response<GatewayBody> {
        timeout(TIMEOUT, endpoint.handle(self.build())).await.expect("a response begins")
    }

    /// Sends it with a credential.
    async fn send_as(self, endpoint: &HttpGateway, owner: Option<&str>) -> Response<GatewayBody> {
        let response = timeout(TIMEOUT, endpoint.handle_checked(self.build(), owner));
        response.await.expect("a response begins")
    }
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    }})
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn modern_request(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 9, "method": method, "params": params})
}

async fn read_json(response: Response<GatewayBody>) -> Value {
    let body =
        timeout(TIMEOUT, response.into_body().collect()).await.expect("the response ends").unwrap();
    serde_json::from_slice(&body.to_bytes()).unwrap_or_default()
}

/// Reads one SSE event: its id and its data.
async fn read_event(body: &mut GatewayBody, rest: &mut String) -> Option<(String, String)> {
    loop {
        if let Some((event, after)) = rest.split_once("\n\n") {
            let field = |name: &str| {
                let line = event.lines().find_map(|line| line.strip_prefix(name));
                line.map(|value| value.trim().to_owned())
            };
            let found = field("data:").map(|data| (field("id:").unwrap_or_default(), data));
            let after = after.to_owned();
            *rest = after;
            if found.is_some() {
                return found;
            }
            continue;
        }
        let frame = timeout(TIMEOUT, body.frame()).await.expect("the stream continues")?;
        rest.push_str(&String::from_utf8_lossy(&frame.unwrap().into_data().unwrap()));
    }
}

async fn open_session(endpoint: &HttpGateway) -> String {
    let response = TestRequest::post(&initialize()).send(endpoint).await;
    assert_eq!(response.status(), StatusCode::OK);
    let id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    assert!(id.bytes().all(|byte| byte.is_ascii_graphic()));
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn session_belongs_to_the_credential_that_opened_it() {
    let fixture = Fixture::new(Vec::new(), Scope::All);
    let endpoint = HttpGateway::new(fixture.gateway.clone());
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let owners = [None, Some("a"), Some("b")];
    let mut sessions = Vec::new();
    for owner in owners {
        let opened = TestRequest::post(&initialize()).send_as(&endpoint, owner).await;
        sessions.push(opened.headers()["mcp-session-id"].to_str().unwrap().to_owned());
    }
    let use_session = async |method: Method, session: &str, owner| {
        let request = TestRequest::post(&ping).method(method).header("mcp-session-id", session);
        request.send_as(&endpoint, owner).await.status().as_u16()
    };
    for (session, opener) in sessions.iter().zip(owners) {
        for owner in owners {
            for method in [Method::POST, Method::GET] {
                let expected = if owner == opener { 200 } else { 404 };
                let found = use_session(method.clone(), session, owner).await;
                assert_eq!(found, expected, "{method} {opener:?} {owner:?}");
            }
            if owner != opener {
                assert_eq!(use_session(Method::DELETE, session, owner).await, 404);
            }
        }
    }
    endpoint.close_sessions_of("a");
    assert_eq!(endpoint.n_sessions(), 2);
    assert_eq!(use_session(Method::POST, &sessions[1], Some("a")).await, 404);
    assert_eq!(use_session(Method::POST, &sessions[2], Some("b")).await, 200);
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_lives_until_deleted() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let id = open_session(&http.endpoint).await;
    let request = |body: Value| TestRequest::post(&body).header("mcp-session-id", &id);
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(request(initialized).send(&http.endpoint).await.status(), StatusCode::ACCEPTED);
    let response = request(call(2, "s_echo", json!({"text": "hi"}))).send(&http.endpoint).await;
    assert_eq!(read_json(response).await["result"]["content"][0]["text"], "hi");

    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let unknown = json!({"jsonrpc": "2.0", "method": "notifications/made_up"});
    // This revision has no batches, and the error belongs in the response, not on the standalone stream.
    for batch in [json!([]), json!([unknown]), json!([ping])] {
        let bad = request(batch).send(&http.endpoint).await;
        assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
        assert_eq!(read_json(bad).await["error"]["code"], -32600);
    }
    let unsupported = request(ping.clone())
        .header("mcp-protocol-version", "1999-01-01")
        .send(&http.endpoint)
        .await;
    assert_eq!(unsupported.status(), StatusCode::BAD_REQUEST);

    let deleted = request(json!(null)).method(Method::DELETE).send(&http.endpoint).await;
    assert_eq!(deleted.status(), StatusCode::OK);
    assert_eq!(request(ping.clone()).send(&http.endpoint).await.status(), StatusCode::NOT_FOUND);
    let again = request(json!(null)).method(Method::DELETE).send(&http.endpoint).await;
    assert_eq!(again.status(), StatusCode::NOT_FOUND);
    let none = TestRequest::post(&ping)
        .header("mcp-protocol-version", "2025-11-25")
        .send(&http.endpoint)
        .await;
    assert_eq!(none.status(), StatusCode::BAD_REQUEST);
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_stream_is_resumed() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let id = open_session(&http.endpoint).await;
    let slow = call(2, "s_progress", json!({"steps": 5, "ms": 100}));
    let response =
        TestRequest::post(&slow).header("mcp-session-id", &id).send(&http.endpoint).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut body, mut rest) = (response.into_body(), String::new());
    let (prime, nothing) = read_event(&mut body, &mut rest).await.unwrap();
    assert!(!prime.is_empty() && nothing.is_empty(), "the first event names the stream");
    let (last, first) = read_event(&mut body, &mut rest).await.unwrap();
    assert!(first.contains("notifications/progress"), "{first}");
    // The client disconnects, and the call continues.
    drop(body);
    let again = TestRequest::post(&json!(null)).method(Method::GET).header("mcp-session-id", &id);
    let again = again.header("last-event-id", &last).send(&http.endpoint).await;
    let (mut body, mut rest) = (again.into_body(), String::new());
    let mut seen = Vec::new();
    while let Some((_, data)) = read_event(&mut body, &mut rest).await {
        seen.push(data);
    }
    assert_eq!(seen.len(), 5, "four progress notifications and the response: {seen:?}");
    assert!(seen[4].contains("took 5 steps"), "{seen:?}");
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_arrive_on_the_standalone_stream() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let id = open_session(&http.endpoint).await;
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    TestRequest::post(&initialized).header("mcp-session-id", &id).send(&http.endpoint).await;
    let get = TestRequest::post(&json!(null)).method(Method::GET).header("mcp-session-id", &id);
    let stream = get.send(&http.endpoint).await;
    let (mut body, mut rest) = (stream.into_body(), String::new());
    let change = call(2, "s_mutate_tools", json!({"add": "late"}));
    TestRequest::post(&change).header("mcp-session-id", &id).send(&http.endpoint).await;
    let (_, data) = read_event(&mut body, &mut rest).await.unwrap();
    assert!(data.contains("notifications/tools/list_changed"), "{data}");
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_bounded_and_expire_when_idle() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--journal", &journal.display().to_string()];
    let fixture = Fixture::start(vec![scripted("s", &args)], Scope::All).await;
    let options = HttpGatewayOptions {
        max_sessions: 2,
        session_idle_timeout: Duration::from_secs(1),
        ..HttpGatewayOptions::default()
    };
    let http = HttpFixture::with_options(&fixture.gateway, options).await;
    let first = open_session(&http.endpoint).await;
    let busy = call(2, "s_sleep", json!({"ms": 60_000}));
    let endpoint = http.endpoint.clone();
    let mut calls = tokio::task::JoinSet::new();
    let request = TestRequest::post(&busy).header("mcp-session-id", &first);
    calls.spawn(async move { read_json(request.send(&endpoint).await).await });
    eventually("the call is active", || !Journal::read(&journal).unwrap().records.is_empty()).await;
    let idle = open_session(&http.endpoint).await;
    let third = open_session(&http.endpoint).await;
    assert_eq!(http.endpoint.n_sessions(), 2, "the idle session made room");
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let gone = TestRequest::post(&ping).header("mcp-session-id", &idle).send(&http.endpoint).await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    eventually("the idle session expires", || http.endpoint.n_sessions() == 1).await;
    let gone = TestRequest::post(&ping).header("mcp-session-id", &third).send(&http.endpoint).await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let there =
        TestRequest::post(&ping).header("mcp-session-id", &first).send(&http.endpoint).await;
    assert_eq!(there.status(), StatusCode::OK, "the busy session stays");
    calls.abort_all();
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modern_requests_are_checked_and_have_their_status() {
    let fixture = Fixture::start(vec![scripted("s", &["--revision", MODERN])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let check = async |body: Value, headers: &[(&str, &str)], status: u16, code: i64| {
        let mut request = TestRequest::post(&body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let response = request.send(&http.endpoint).await;
        let found = response.status().as_u16();
        let response = read_json(response).await;
        let found_code = response["error"]["code"].as_i64().unwrap_or_default();
        assert_eq!((found, found_code), (status, code), "{body} {headers:?} {response}");
        assert_eq!(response["id"], 9);
    };
    let version = ("mcp-protocol-version", MODERN);
    let list = modern_request("tools/list", json!({}));
    check(list.clone(), &[version, ("mcp-method", "tools/list")], 200, 0).await;
    check(list.clone(), &[version], 400, -32020).await;
    check(list.clone(), &[version, ("mcp-method", "tools/call")], 400, -32020).await;
    check(list.clone(), &[("mcp-method", "tools/list")], 400, -32020).await;
    let bare = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
    check(bare, &[version, ("mcp-method", "tools/list")], 400, -32602).await;
    let unknown = modern_request("made/up", json!({}));
    check(unknown, &[version, ("mcp-method", "made/up")], 404, -32601).await;
    let ping = modern_request("ping", json!({}));
    check(ping, &[version, ("mcp-method", "ping")], 404, -32601).await;
    let echo = modern_request("tools/call", json!({"name": "s_echo", "arguments": {"text": "é"}}));
    let named = ("mcp-name", "s_echo");
    check(echo.clone(), &[version, ("mcp-method", "tools/call"), named], 200, 0).await;
    check(echo, &[version, ("mcp-method", "tools/call"), ("mcp-name", "echo")], 400, -32020).await;
    let request =
        modern_request("tools/call", json!({"name": "s_ask", "arguments": {"kind": "sampling"}}));
    let named = ("mcp-name", "s_ask");
    check(request, &[version, ("mcp-method", "tools/call"), named], 400, -32021).await;
    let get =
        TestRequest::post(&json!(null)).method(Method::GET).header("mcp-protocol-version", MODERN);
    assert_eq!(get.send(&http.endpoint).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_origins_and_malformed_bodies_are_rejected() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let check = async |request: TestRequest<'_>, status: u16| {
        let headers = request.headers.clone();
        let response = request.send(&http.endpoint).await;
        assert_eq!(response.status().as_u16(), status, "{headers:?}");
    };
    check(TestRequest::post(&initialize()).header("host", "evil.example"), 403).await;
    check(TestRequest::post(&initialize()).header("origin", "http://evil.example"), 403).await;
    check(TestRequest::post(&initialize()).header("origin", "http://localhost:5173"), 200).await;
    check(TestRequest::post(&initialize()).header("content-type", "text/plain"), 415).await;
    check(TestRequest::post(&initialize()).header("accept", "text/html"), 406).await;
    check(TestRequest::post(&initialize()).method(Method::PUT), 405).await;
    let mut broken = TestRequest::post(&initialize());
    broken.body = "{oops".to_owned();
    check(broken, 400).await;
    let mut large = TestRequest::post(&initialize());
    large.body = " ".repeat((32 << 20) + 1);
    check(large, 413).await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnect_cancels_a_modern_request() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--revision", MODERN, "--journal", &journal.display().to_string()];
    let fixture = Fixture::start(vec![scripted("s", &args)], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let user = Arc::new(TestUser::default());
    let client = http.client(EraChoice::Modern, &user).await;
    let long = json!({"ms": 60_000});
    let slow = client.call_tool("s_sleep", &long);
    assert!(timeout(Duration::from_millis(300), slow).await.is_err());
    eventually("the server is told", || n_cancelled(&journal) == 1).await;
    client.shutdown().await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_server_request_ends_its_call() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--revision", "2025-11-25", "--journal", &journal.display().to_string()];
    let fixture = Fixture::start(vec![scripted("s", &args)], Scope::All).await;
    let (manager, router) = (Arc::clone(&fixture.manager), Arc::clone(&fixture.router));
    let options = GatewayOptions {
        max_suspended: 1,
        client_response_timeout: Duration::from_millis(300),
        ..GatewayOptions::default()
    };
    let gateway = Gateway::with_options(manager, router, Scope::All, options);
    let http = HttpFixture::start(&gateway).await;
    let mut body = modern_request(
        "tools/call",
        json!({"name": "s_ask", "arguments": {"kind": "elicitation"}}),
    );
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {}});
    // Otherwise the requests count as different clients and wait for each other.
    body["params"]["_meta"]["toolrack/client"] = json!("the same");
    let send = async |body: &Value| {
        let request = TestRequest::post(body).header("mcp-protocol-version", MODERN);
        let request = request.header("mcp-method", "tools/call").header("mcp-name", "s_ask");
        read_json(request.send(&http.endpoint).await).await
    };
    let suspended = send(&body).await;
    assert_eq!(suspended["result"]["resultType"], "input_required", "{suspended}");
    let server_request = &suspended["result"]["inputRequests"]["q1"];
    assert_eq!(server_request["params"]["message"], r#"Server "s" asks: Who are you?"#);
    // A legacy server issues no states, so a state that the gateway did not issue is unknown.
    let mut forged = body.clone();
    forged["params"]["requestState"] = json!("made up");
    assert_eq!(send(&forged).await["error"]["code"], -32602);
    // There is no room for a second one, and its call is cancelled at once.
    let full = send(&body).await;
    assert_eq!(full["error"]["code"], -32603, "{full}");
    eventually("the second is cancelled", || n_cancelled(&journal) >= 1).await;
    // The first expires: the next request drops it, and its state is unknown.
    let old = suspended["result"]["requestState"].clone();
    body["params"]["requestState"] = json!(format!("{}x", old.as_str().unwrap()));
    eventually_async(TIMEOUT, "the first is cancelled", tokio::time::sleep, async || {
        assert_eq!(send(&body).await["error"]["code"], -32602);
        n_cancelled(&journal) == 2
    })
    .await;
    body["params"]["requestState"] = old;
    assert_eq!(send(&body).await["error"]["code"], -32602);
    gateway.close().await;
    fixture.close().await;
}

/// With and without `close`: the client was asked, and its response is no longer needed.
#[tokio::test(flavor = "multi_thread")]
async fn suspended_request_ends_with_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--revision", "2025-11-25", "--journal", &journal.display().to_string()];
    let fixture = Fixture::start(vec![scripted("s", &args)], Scope::All).await;
    let mut body = modern_request(
        "tools/call",
        json!({"name": "s_ask", "arguments": {"kind": "elicitation"}}),
    );
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {}});
    // Otherwise a cancelled request of another client makes the server request ambiguous.
    body["params"]["_meta"]["toolrack/client"] = json!("the same");
    let send = async |endpoint: &HttpGateway| {
        let request = TestRequest::post(&body).header("mcp-protocol-version", MODERN);
        let request = request.header("mcp-method", "tools/call").header("mcp-name", "s_ask");
        read_json(request.send(endpoint).await).await
    };
    let mut n_expected = 0;
    for is_closed in [true, false] {
        let (manager, router) = (Arc::clone(&fixture.manager), Arc::clone(&fixture.router));
        let gateway = Gateway::new(manager, router, Scope::All);
        let endpoint = HttpGateway::new(gateway.clone());
        let suspended = send(&endpoint).await;
        assert_eq!(suspended["result"]["resultType"], "input_required", "{suspended}");
        assert_eq!(n_cancelled(&journal), n_expected);
        n_expected += 1;
        if is_closed {
            gateway.close().await;
            let late = send(&endpoint).await;
            assert!(late["error"]["code"].is_i64(), "requests are no longer suspended: {late}");
            n_expected += 1;
        }
        drop((gateway, endpoint));
        let what = format!("the server is told, closed: {is_closed}");
        eventually(&what, || n_cancelled(&journal) == n_expected).await;
    }
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_only_client_gets_every_response() {
    let fixture = Fixture::start(vec![scripted("s", &[])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let mut initialize_request = initialize();
    initialize_request["params"]["protocolVersion"] = json!("2025-03-26");
    initialize_request["params"]["capabilities"] = json!({"roots": {}, "sampling": {}});
    let opened = TestRequest::post(&initialize_request).send(&http.endpoint).await;
    let id = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let send = async |body: Value| {
        let request = TestRequest::post(&body)
            .header("mcp-session-id", &id)
            .header("accept", "application/json");
        let response = request.send(&http.endpoint).await;
        assert_eq!(response.headers()["content-type"], "application/json", "{body}");
        read_json(response).await
    };
    // It gets neither progress nor server requests: the server gets an error at once.
    let slow = send(call(2, "s_progress", json!({"steps": 3, "ms": 10}))).await;
    assert_eq!(slow["result"]["content"][0]["text"], "took 3 steps");
    let rejected = send(call(3, "s_ask", json!({"kind": "sampling"}))).await;
    assert_eq!(rejected["id"], 3, "{rejected}");
    let echo = |id: u64, text: &str| call(id, "s_echo", json!({"text": text}));
    let both = send(json!([echo(4, "a"), echo(5, "b")])).await;
    let mut texts: Vec<(u64, &str)> = both
        .as_array()
        .unwrap()
        .iter()
        .map(|response| {
            let text = response["result"]["content"][0]["text"].as_str().unwrap();
            (response["id"].as_u64().unwrap(), text)
        })
        .collect();
    texts.sort_unstable();
    assert_eq!(texts, [(4, "a"), (5, "b")]);
    assert_eq!(send(json!([echo(6, "c")])).await[0]["id"], 6);

    let listen = modern_request(
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    let request = TestRequest::post(&listen).header("accept", "application/json");
    let request =
        request.header("mcp-protocol-version", MODERN).header("mcp-method", "subscriptions/listen");
    assert_eq!(read_json(request.send(&http.endpoint).await).await["error"]["code"], -32600);
    fixture.close().await;
}

/// Body error of an HTTP server, with its source.
#[derive(Debug)]
struct BodyError(Box<dyn Error + Send + Sync>);

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body could not be read")
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_bodies_have_distinct_status_codes() {
    type Piece = Result<Frame<Bytes>, BodyError>;
    let fixture = Fixture::new(Vec::new(), Scope::All);
    let options = HttpGatewayOptions {
        body_timeout: Duration::from_millis(50),
        ..HttpGatewayOptions::default()
    };
    let endpoint = HttpGateway::with_options(fixture.gateway.clone(), options);
    let send = async |body: UnsyncBoxBody<Bytes, BodyError>| {
        let request = Request::post("/mcp").header("host", "localhost");
        let request = request.header("content-type", "application/json").body(body).unwrap();
        timeout(TIMEOUT, endpoint.handle(request)).await.expect("a response").status().as_u16()
    };
    let piece = || Ok(Frame::data(Bytes::from_static(b"{")));
    let broken = stream::iter([piece(), Piece::Err(BodyError("gone".into()))]);
    assert_eq!(send(StreamBody::new(broken).boxed_unsync()).await, 400);
    let pausing = stream::iter([piece()]).chain(stream::pending::<Piece>());
    assert_eq!(send(StreamBody::new(pausing).boxed_unsync()).await, 408);
    // A lower limit of the HTTP server, as the source of its error.
    let cut = Limited::new(Full::new(Bytes::from_static(b"{ }")), 1).map_err(BodyError);
    assert_eq!(send(cut.boxed_unsync()).await, 413);
    let endless = stream::repeat_with(|| Piece::Ok(Frame::data(Bytes::from(vec![b' '; 1 << 20]))));
    let patient = HttpGateway::new(fixture.gateway.clone());
    let request = Request::post("/mcp").header("host", "localhost");
    let request = request.header("content-type", "application/json");
    let request = request.body(StreamBody::new(endless).boxed_unsync()).unwrap();
    let response = timeout(TIMEOUT, patient.handle(request)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    fixture.close().await;
}
