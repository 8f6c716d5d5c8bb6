//! The endpoint over HTTP, request by request: sessions, streams, statuses, and who is turned away.

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

use crate::fixture::{LONG, Person, Stage, Web, eventually, n_cancelled, scripted};

const MODERN: &str = "2026-07-28";

struct Ask<'a> {
    method: Method,
    headers: Vec<(&'a str, String)>,
    body: String,
}

impl<'a> Ask<'a> {
    fn post(body: &Value) -> Self {
        let headers = vec![
            ("host", "localhost".to_owned()),
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
        ];
        Self { method: Method::POST, headers, body: body.to_string() }
    }

    fn with(mut self, name: &'a str, value: &str) -> Self {
        self.headers.retain(|(it, _)| *it != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn of(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    async fn send(self, endpoint: &HttpGateway) -> Response<GatewayBody> {
        let mut request = Request::builder().method(self.method).uri("/mcp");
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(self.body))).unwrap();
        timeout(LONG, endpoint.handle(request)).await.expect("an answer begins")
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

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 9, "method": method, "params": params})
}

async fn json_of(answer: Response<GatewayBody>) -> Value {
    let body = timeout(LONG, answer.into_body().collect()).await.expect("the answer ends").unwrap();
    serde_json::from_slice(&body.to_bytes()).unwrap_or_default()
}

/// Reads one event of a stream, with its id.
async fn event(body: &mut GatewayBody, rest: &mut String) -> Option<(String, String)> {
    loop {
        if let Some((event, after)) = rest.split_once("\n\n") {
            let field = |name: &str| {
                let line = event.lines().find_map(|it| it.strip_prefix(name));
                line.map(|it| it.trim().to_owned())
            };
            let found = field("data:").map(|data| (field("id:").unwrap_or_default(), data));
            let after = after.to_owned();
            *rest = after;
            if found.is_some() {
                return found;
            }
            continue;
        }
        let frame = timeout(LONG, body.frame()).await.expect("the stream goes on")?;
        rest.push_str(&String::from_utf8_lossy(&frame.unwrap().into_data().unwrap()));
    }
}

async fn open_session(endpoint: &HttpGateway) -> String {
    let answer = Ask::post(&initialize()).send(endpoint).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let id = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    assert!(id.bytes().all(|it| it.is_ascii_graphic()));
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_until_it_is_deleted() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let web = Web::open(&stage.gateway).await;
    let id = open_session(&web.endpoint).await;
    let ask = |body: Value| Ask::post(&body).with("mcp-session-id", &id);
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(ask(told).send(&web.endpoint).await.status(), StatusCode::ACCEPTED);
    let answer = ask(call(2, "s_echo", json!({"text": "hi"}))).send(&web.endpoint).await;
    assert_eq!(json_of(answer).await["result"]["content"][0]["text"], "hi");

    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let told = json!({"jsonrpc": "2.0", "method": "notifications/made_up"});
    // This revision has no batches, and a refusal is an answer, not something to be listened to.
    for batch in [json!([]), json!([told]), json!([ping])] {
        let bad = ask(batch).send(&web.endpoint).await;
        assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
        assert_eq!(json_of(bad).await["error"]["code"], -32600);
    }
    let odd =
        ask(ping.clone()).with("mcp-protocol-version", "1999-01-01").send(&web.endpoint).await;
    assert_eq!(odd.status(), StatusCode::BAD_REQUEST);

    let deleted = ask(json!(null)).of(Method::DELETE).send(&web.endpoint).await;
    assert_eq!(deleted.status(), StatusCode::OK);
    assert_eq!(ask(ping.clone()).send(&web.endpoint).await.status(), StatusCode::NOT_FOUND);
    let again = ask(json!(null)).of(Method::DELETE).send(&web.endpoint).await;
    assert_eq!(again.status(), StatusCode::NOT_FOUND);
    let none =
        Ask::post(&ping).with("mcp-protocol-version", "2025-11-25").send(&web.endpoint).await;
    assert_eq!(none.status(), StatusCode::BAD_REQUEST);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_is_taken_up_where_it_was_left() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let web = Web::open(&stage.gateway).await;
    let id = open_session(&web.endpoint).await;
    let slow = call(2, "s_progress", json!({"steps": 5, "ms": 100}));
    let answer = Ask::post(&slow).with("mcp-session-id", &id).send(&web.endpoint).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let (mut body, mut rest) = (answer.into_body(), String::new());
    let (prime, nothing) = event(&mut body, &mut rest).await.unwrap();
    assert!(!prime.is_empty() && nothing.is_empty(), "the stream is named first");
    let (last, first) = event(&mut body, &mut rest).await.unwrap();
    assert!(first.contains("notifications/progress"), "{first}");
    // The client leaves, and the call goes on.
    drop(body);
    let again = Ask::post(&json!(null)).of(Method::GET).with("mcp-session-id", &id);
    let again = again.with("last-event-id", &last).send(&web.endpoint).await;
    let (mut body, mut rest) = (again.into_body(), String::new());
    let mut seen = Vec::new();
    while let Some((_, data)) = event(&mut body, &mut rest).await {
        seen.push(data);
    }
    assert_eq!(seen.len(), 5, "four reports and the answer: {seen:?}");
    assert!(seen[4].contains("took 5 steps"), "{seen:?}");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_come_on_the_standing_stream() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let web = Web::open(&stage.gateway).await;
    let id = open_session(&web.endpoint).await;
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    Ask::post(&told).with("mcp-session-id", &id).send(&web.endpoint).await;
    let get = Ask::post(&json!(null)).of(Method::GET).with("mcp-session-id", &id);
    let stream = get.send(&web.endpoint).await;
    let (mut body, mut rest) = (stream.into_body(), String::new());
    let change = call(2, "s_mutate_tools", json!({"add": "late"}));
    Ask::post(&change).with("mcp-session-id", &id).send(&web.endpoint).await;
    let (_, data) = event(&mut body, &mut rest).await.unwrap();
    assert!(data.contains("notifications/tools/list_changed"), "{data}");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_have_a_bound_and_end_when_unused() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--journal", &journal.display().to_string()];
    let stage = Stage::open(vec![scripted("s", &args)], Scope::All).await;
    let options = HttpGatewayOptions {
        max_sessions: 2,
        session_idle: Duration::from_secs(1),
        ..HttpGatewayOptions::default()
    };
    let web = Web::with_options(&stage.gateway, options).await;
    let first = open_session(&web.endpoint).await;
    let busy = call(2, "s_sleep", json!({"ms": 60_000}));
    let endpoint = web.endpoint.clone();
    let mut calls = tokio::task::JoinSet::new();
    let ask = Ask::post(&busy).with("mcp-session-id", &first);
    calls.spawn(async move { json_of(ask.send(&endpoint).await).await });
    eventually("the call is at work", || !Journal::read(&journal).unwrap().records.is_empty())
        .await;
    let idle = open_session(&web.endpoint).await;
    let third = open_session(&web.endpoint).await;
    assert_eq!(web.endpoint.n_sessions(), 2, "the unused one made room");
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let gone = Ask::post(&ping).with("mcp-session-id", &idle).send(&web.endpoint).await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    eventually("the unused one ends", || web.endpoint.n_sessions() == 1).await;
    let gone = Ask::post(&ping).with("mcp-session-id", &third).send(&web.endpoint).await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let there = Ask::post(&ping).with("mcp-session-id", &first).send(&web.endpoint).await;
    assert_eq!(there.status(), StatusCode::OK, "the busy one stays");
    calls.abort_all();
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modern_requests_are_checked_and_answered_with_their_status() {
    let stage = Stage::open(vec![scripted("s", &["--revision", MODERN])], Scope::All).await;
    let web = Web::open(&stage.gateway).await;
    let check = async |body: Value, headers: &[(&str, &str)], status: u16, code: i64| {
        let mut ask = Ask::post(&body);
        for (name, value) in headers {
            ask = ask.with(name, value);
        }
        let answer = ask.send(&web.endpoint).await;
        let found = answer.status().as_u16();
        let answer = json_of(answer).await;
        let said = answer["error"]["code"].as_i64().unwrap_or_default();
        assert_eq!((found, said), (status, code), "{body} {headers:?} {answer}");
        assert_eq!(answer["id"], 9);
    };
    let version = ("mcp-protocol-version", MODERN);
    let list = modern("tools/list", json!({}));
    check(list.clone(), &[version, ("mcp-method", "tools/list")], 200, 0).await;
    check(list.clone(), &[version], 400, -32020).await;
    check(list.clone(), &[version, ("mcp-method", "tools/call")], 400, -32020).await;
    check(list.clone(), &[("mcp-method", "tools/list")], 400, -32020).await;
    let bare = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
    check(bare, &[version, ("mcp-method", "tools/list")], 400, -32602).await;
    let unknown = modern("made/up", json!({}));
    check(unknown, &[version, ("mcp-method", "made/up")], 404, -32601).await;
    let ping = modern("ping", json!({}));
    check(ping, &[version, ("mcp-method", "ping")], 404, -32601).await;
    let echo = modern("tools/call", json!({"name": "s_echo", "arguments": {"text": "é"}}));
    let named = ("mcp-name", "s_echo");
    check(echo.clone(), &[version, ("mcp-method", "tools/call"), named], 200, 0).await;
    check(echo, &[version, ("mcp-method", "tools/call"), ("mcp-name", "echo")], 400, -32020).await;
    let ask = modern("tools/call", json!({"name": "s_ask", "arguments": {"kind": "sampling"}}));
    let named = ("mcp-name", "s_ask");
    check(ask, &[version, ("mcp-method", "tools/call"), named], 400, -32021).await;
    let get = Ask::post(&json!(null)).of(Method::GET).with("mcp-protocol-version", MODERN);
    assert_eq!(get.send(&web.endpoint).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_and_odd_bodies_are_turned_away() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let web = Web::open(&stage.gateway).await;
    let check = async |ask: Ask<'_>, status: u16| {
        let headers = ask.headers.clone();
        let answer = ask.send(&web.endpoint).await;
        assert_eq!(answer.status().as_u16(), status, "{headers:?}");
    };
    check(Ask::post(&initialize()).with("host", "evil.example"), 403).await;
    check(Ask::post(&initialize()).with("origin", "http://evil.example"), 403).await;
    check(Ask::post(&initialize()).with("origin", "http://localhost:5173"), 200).await;
    check(Ask::post(&initialize()).with("content-type", "text/plain"), 415).await;
    check(Ask::post(&initialize()).with("accept", "text/html"), 406).await;
    check(Ask::post(&initialize()).of(Method::PUT), 405).await;
    let mut broken = Ask::post(&initialize());
    broken.body = "{oops".to_owned();
    check(broken, 400).await;
    let mut large = Ask::post(&initialize());
    large.body = " ".repeat((32 << 20) + 1);
    check(large, 413).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_client_that_leaves_has_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--revision", MODERN, "--journal", &journal.display().to_string()];
    let stage = Stage::open(vec![scripted("s", &args)], Scope::All).await;
    let web = Web::open(&stage.gateway).await;
    let person = Arc::new(Person::default());
    let client = web.client(EraChoice::Modern, &person).await;
    let long = json!({"ms": 60_000});
    let slow = client.call_tool("s_sleep", &long);
    assert!(timeout(Duration::from_millis(300), slow).await.is_err());
    eventually("the server hears of it", || n_cancelled(&journal) == 1).await;
    client.shutdown().await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_nobody_answers_ends_its_call() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--revision", "2025-11-25", "--journal", &journal.display().to_string()];
    let stage = Stage::open(vec![scripted("s", &args)], Scope::All).await;
    let (manager, board) = (Arc::clone(&stage.manager), Arc::clone(&stage.switchboard));
    let options = GatewayOptions {
        max_parked: 1,
        question_patience: Duration::from_millis(300),
        ..GatewayOptions::default()
    };
    let gateway = Gateway::with_options(manager, board, Scope::All, options);
    let web = Web::open(&gateway).await;
    let mut ask =
        modern("tools/call", json!({"name": "s_ask", "arguments": {"kind": "elicitation"}}));
    ask["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {}});
    // Requests of several clients would wait for each other.
    ask["params"]["_meta"]["toolrack/client"] = json!("the same");
    let send = async |body: &Value| {
        let ask = Ask::post(body).with("mcp-protocol-version", MODERN);
        let ask = ask.with("mcp-method", "tools/call").with("mcp-name", "s_ask");
        json_of(ask.send(&web.endpoint).await).await
    };
    let asked = send(&ask).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let question = &asked["result"]["inputRequests"]["q1"];
    assert_eq!(question["params"]["message"], "Who are you?");
    // A legacy server has no states, so one that is not ours is nobody's.
    let mut strange = ask.clone();
    strange["params"]["requestState"] = json!("made up");
    assert_eq!(send(&strange).await["error"]["code"], -32602);
    // A second one finds no room, and its call is given up at once.
    let full = send(&ask).await;
    assert_eq!(full["error"]["code"], -32603, "{full}");
    eventually("the second is cancelled", || n_cancelled(&journal) >= 1).await;
    // The first waits too long: whoever asks next finds it cleared away, and its state leads nowhere.
    let old = asked["result"]["requestState"].clone();
    ask["params"]["requestState"] = json!(format!("{}x", old.as_str().unwrap()));
    eventually_async(LONG, "the first is cancelled", tokio::time::sleep, async || {
        assert_eq!(send(&ask).await["error"]["code"], -32602);
        n_cancelled(&journal) == 2
    })
    .await;
    ask["params"]["requestState"] = old;
    assert_eq!(send(&ask).await["error"]["code"], -32602);
    gateway.close().await;
    stage.close().await;
}

/// Without a word, and by closing it: the client was asked, and nobody waits for its answer any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_its_client_ends_with_the_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let args = ["--revision", "2025-11-25", "--journal", &journal.display().to_string()];
    let stage = Stage::open(vec![scripted("s", &args)], Scope::All).await;
    let mut ask =
        modern("tools/call", json!({"name": "s_ask", "arguments": {"kind": "elicitation"}}));
    ask["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {}});
    // What another client gave up could be the cause of a question.
    ask["params"]["_meta"]["toolrack/client"] = json!("the same");
    let send = async |endpoint: &HttpGateway| {
        let ask = Ask::post(&ask).with("mcp-protocol-version", MODERN);
        let ask = ask.with("mcp-method", "tools/call").with("mcp-name", "s_ask");
        json_of(ask.send(endpoint).await).await
    };
    let mut n_asked = 0;
    for is_closed in [true, false] {
        let (manager, board) = (Arc::clone(&stage.manager), Arc::clone(&stage.switchboard));
        let gateway = Gateway::new(manager, board, Scope::All);
        let endpoint = HttpGateway::new(gateway.clone());
        let asked = send(&endpoint).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        assert_eq!(n_cancelled(&journal), n_asked);
        n_asked += 1;
        if is_closed {
            gateway.close().await;
            let late = send(&endpoint).await;
            assert!(late["error"]["code"].is_i64(), "nothing is parked any more: {late}");
            n_asked += 1;
        }
        drop((gateway, endpoint));
        let what = format!("the server hears of it, closed: {is_closed}");
        eventually(&what, || n_cancelled(&journal) == n_asked).await;
    }
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_json_only_gets_every_answer() {
    let stage = Stage::open(vec![scripted("s", &[])], Scope::All).await;
    let web = Web::open(&stage.gateway).await;
    let mut greeting = initialize();
    greeting["params"]["protocolVersion"] = json!("2025-03-26");
    greeting["params"]["capabilities"] = json!({"roots": {}, "sampling": {}});
    let opened = Ask::post(&greeting).send(&web.endpoint).await;
    let id = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let send = async |body: Value| {
        let ask = Ask::post(&body).with("mcp-session-id", &id).with("accept", "application/json");
        let answer = ask.send(&web.endpoint).await;
        assert_eq!(answer.headers()["content-type"], "application/json", "{body}");
        json_of(answer).await
    };
    // Progress is not for it, and neither are questions: the server is told so at once.
    let slow = send(call(2, "s_progress", json!({"steps": 3, "ms": 10}))).await;
    assert_eq!(slow["result"]["content"][0]["text"], "took 3 steps");
    let asked = send(call(3, "s_ask", json!({"kind": "sampling"}))).await;
    assert_eq!(asked["id"], 3, "{asked}");
    let echo = |id: u64, text: &str| call(id, "s_echo", json!({"text": text}));
    let both = send(json!([echo(4, "a"), echo(5, "b")])).await;
    let mut texts: Vec<(u64, &str)> = both
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let text = it["result"]["content"][0]["text"].as_str().unwrap();
            (it["id"].as_u64().unwrap(), text)
        })
        .collect();
    texts.sort_unstable();
    assert_eq!(texts, [(4, "a"), (5, "b")]);
    assert_eq!(send(json!([echo(6, "c")])).await[0]["id"], 6);

    let listen =
        modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let ask = Ask::post(&listen).with("accept", "application/json");
    let ask = ask.with("mcp-protocol-version", MODERN).with("mcp-method", "subscriptions/listen");
    assert_eq!(json_of(ask.send(&web.endpoint).await).await["error"]["code"], -32600);
    stage.close().await;
}

/// An error of whoever brings requests, with its cause.
#[derive(Debug)]
struct Unread(Box<dyn Error + Send + Sync>);

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body could not be read")
    }
}

impl Error for Unread {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_told_apart_by_its_status() {
    type Piece = Result<Frame<Bytes>, Unread>;
    let stage = Stage::set(Vec::new(), Scope::All);
    let options = HttpGatewayOptions {
        body_patience: Duration::from_millis(50),
        ..HttpGatewayOptions::default()
    };
    let endpoint = HttpGateway::with_options(stage.gateway.clone(), options);
    let send = async |body: UnsyncBoxBody<Bytes, Unread>| {
        let request = Request::post("/mcp").header("host", "localhost");
        let request = request.header("content-type", "application/json").body(body).unwrap();
        timeout(LONG, endpoint.handle(request)).await.expect("an answer").status().as_u16()
    };
    let piece = || Ok(Frame::data(Bytes::from_static(b"{")));
    let broken = stream::iter([piece(), Piece::Err(Unread("gone".into()))]);
    assert_eq!(send(StreamBody::new(broken).boxed_unsync()).await, 400);
    let pausing = stream::iter([piece()]).chain(stream::pending::<Piece>());
    assert_eq!(send(StreamBody::new(pausing).boxed_unsync()).await, 408);
    // A lower limit of whoever listens, as an error within an error.
    let cut = Limited::new(Full::new(Bytes::from_static(b"{ }")), 1).map_err(Unread);
    assert_eq!(send(cut.boxed_unsync()).await, 413);
    let endless = stream::repeat_with(|| Piece::Ok(Frame::data(Bytes::from(vec![b' '; 1 << 20]))));
    let patient = HttpGateway::new(stage.gateway.clone());
    let request = Request::post("/mcp").header("host", "localhost");
    let request = request.header("content-type", "application/json");
    let request = request.body(StreamBody::new(endless).boxed_unsync()).unwrap();
    let answer = timeout(LONG, patient.handle(request)).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    stage.close().await;
}
