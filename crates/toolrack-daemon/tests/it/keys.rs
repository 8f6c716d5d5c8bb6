//! Keys of clients over TCP: scopes, revocation, and what a program that listens on the daemon's port gets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use toolrack_daemon::{ApiKey, Daemon, DaemonError, DaemonOptions, KeyFile, KeyScope};
use toolrack_testkit::{ChildGuard, program};

use crate::fixture::{Client, Fixture, check_problem, eventually, options, request_unix};
use crate::http::{Response, TIMEOUT, encode_request, send, send_unix};
use crate::openapi::routes;

/// A default server, and two agents with a server of their own.
fn write_config(fixture: &Fixture) {
    let (variable, value) = fixture.marker.env_var();
    let scripted = program("scripted-server").display().to_string();
    let server = |table: &str, name: &str| {
        format!(
            "[[{table}]]\nname = \"{name}\"\ntransport = \"stdio\"\ncommand = \"{scripted}\"\n\
             env = {{ {variable} = \"{value}\" }}\n"
        )
    };
    let config = [
        server("defaults.mcp", "one"),
        "[[agents]]\nid = \"main\"\n".to_owned(),
        server("agents.mcp", "two"),
        "[[agents]]\nid = \"other\"\n".to_owned(),
    ];
    let file = std::fs::File::create(fixture.home().config_file());
    file.and_then(|mut file| file.write_all(config.concat().as_bytes())).unwrap();
}

fn agent(agent: Option<&str>, server: Option<&str>) -> KeyScope {
    KeyScope::Agent { agent: agent.map(str::to_owned), server: server.map(str::to_owned) }
}

fn create(fixture: &Fixture, name: &str, scope: KeyScope) -> String {
    KeyFile::new(&fixture.home()).create(name, scope).unwrap().1.reveal().to_owned()
}

async fn reload(daemon: &Daemon) -> Value {
    let response = request_unix(daemon, "POST", "/api/keys/reload").await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

fn with_token(client: &Client, token: &str) -> Client {
    Client { token: token.to_owned(), ..client.clone() }
}

/// The token of a browser that has logged in.
async fn log_in(client: &Client) -> String {
    let link = client.post("/api/daemon/link", json!({})).await;
    let (_, code) = link["url"].as_str().unwrap().split_once("#code=").unwrap();
    let login = client.post("/api/login", json!({ "code": code })).await;
    login["token"].as_str().unwrap().to_owned()
}

const PUBLIC: [(&str, &str); 5] = [
    ("GET", "/healthz"),
    ("POST", "/api/login"),
    ("POST", "/api/proof"),
    ("GET", "/"),
    ("GET", "/app.js"),
];
/// MCP endpoints, and the kinds of keys that may use them besides those with all rights.
const ENDPOINTS: [(&str, &[&str]); 9] = [
    ("/mcp", &["default"]),
    ("/mcp/server/one", &["default", "default-one"]),
    ("/mcp/server/%6fne", &["default", "default-one"]),
    ("/mcp/server/absent", &["default"]),
    ("/mcp/main", &["main"]),
    ("/mcp/m%61in", &["main"]),
    ("/mcp/main/server/two", &["main", "main-two"]),
    ("/mcp/main/server/one", &["main"]),
    ("/mcp/other", &["other"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_with_every_key_on_both_listeners() {
    let fixture = Fixture::new();
    write_config(&fixture);
    let scoped = [
        ("default", agent(None, None)),
        ("default-one", agent(None, Some("one"))),
        ("main", agent(Some("main"), None)),
        ("main-two", agent(Some("main"), Some("two"))),
        ("other", agent(Some("other"), None)),
    ];
    let scoped = scoped.map(|(name, scope)| (name, create(&fixture, name, scope)));
    let (daemon, client) = fixture.start().await;
    let browser = log_in(&client).await;
    let all_rights = [("admin", fixture.admin.clone()), ("browser", browser)];
    let mut all = routes();
    let more = [("GET", "/"), ("GET", "/app.js"), ("GET", "/nowhere"), ("GET", "/mcpx")];
    all.extend(more.map(|(method, path)| (method.to_owned(), path.to_owned())));
    let endpoints = ENDPOINTS.iter();
    all.extend(endpoints.map(|(path, _)| ("GET".to_owned(), (*path).to_owned())));
    // Asked for last, because it ends the daemon.
    all.retain(|(_, path)| path != "/api/daemon/stop");
    all.push(("POST".to_owned(), "/api/daemon/stop".to_owned()));
    let (socket, mut n_refused) = (daemon.socket().to_owned(), 0);
    for (method, path) in &all {
        let is_public = PUBLIC.contains(&(method.as_str(), path.as_str()));
        let endpoint = ENDPOINTS.iter().find(|(endpoint, _)| endpoint == path);
        let request = async |token: &str| -> Response {
            // The event stream does not end by itself.
            let (addr, host, bearer) =
                (client.addr, client.addr.to_string(), format!("Bearer {token}"));
            let mut headers = vec![("host", host.as_str()), ("content-type", "application/json")];
            headers.extend((!token.is_empty()).then_some(("authorization", bearer.as_str())));
            let bytes = encode_request(method, path, &headers, "");
            tokio::task::spawn_blocking(move || read_head(addr, &bytes)).await.unwrap()
        };
        for token in ["", "unknown", "trk_unknown"] {
            let response = request(token).await;
            let is_refused = response.status == 401;
            // `/api/login` itself answers 401 to a wrong code, but only after it has read a body.
            assert_eq!(is_refused, !is_public, "{method} {path} {token}: {response:?}");
        }
        for (name, key) in &scoped {
            let response = request(key).await;
            let allowed = is_public || endpoint.is_some_and(|(_, names)| names.contains(name));
            assert_eq!(response.status == 403, !allowed, "{method} {path} {name}: {response:?}");
            assert_ne!(response.status, 401, "{method} {path} {name}");
            if !allowed {
                check_problem(&response, 403, "DENIED", None);
                let needed = if endpoint.is_some() { "requires a key for " } else { "`admin`" };
                assert!(response.json()["message"].as_str().unwrap().contains(needed));
                n_refused += 1;
            }
        }
        for (name, key) in &all_rights {
            // The daemon stops after the first of them.
            if path != "/api/daemon/stop" || *name == "admin" {
                let response = request(key).await;
                assert!(![401, 403].contains(&response.status), "{method} {path} {name}");
            }
        }
        if path != "/api/daemon/stop" && path != "/api/events" {
            let (socket, bytes) = (
                socket.clone(),
                encode_request(
                    method,
                    path,
                    &[("host", "x"), ("content-type", "application/json")],
                    "",
                ),
            );
            let response = tokio::task::spawn_blocking(move || send_unix(&socket, &bytes));
            let response = response.await.unwrap().unwrap();
            assert!(![401, 403].contains(&response.status), "{method} {path}: {response:?}");
        }
    }
    assert!(n_refused > 150, "{n_refused}");
    fixture.shutdown(daemon).await;
}

/// Sends a request and reads the response, of an endless one the head only.
fn read_head(addr: SocketAddr, bytes: &[u8]) -> Response {
    let is_stream = bytes.starts_with(b"GET /api/events ");
    if !is_stream {
        return send(addr, bytes).unwrap();
    }
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).unwrap() > 0 {}
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = String::new();
    if status != 200 {
        lines.read_to_string(&mut body).unwrap();
    }
    Response { status, head, body }
}

/// A program that listens on the port while the daemon is down: returns the key that a client sends to it.
fn squat(addr: SocketAddr) -> std::thread::JoinHandle<String> {
    let listener = TcpListener::bind(addr).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        let mut lines = lines.take_while(|line| !line.is_empty());
        lines
            .find_map(|line| line.strip_prefix("authorization: Bearer ").map(str::to_owned))
            .unwrap()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn key_taken_by_listening_on_the_port_is_useless_for_the_control_api() {
    let fixture = Fixture::new();
    write_config(&fixture);
    let (daemon, client) = fixture.start().await;
    let addr = client.addr;
    let agent_key = create(&fixture, "cursor", agent(None, None));
    assert_eq!(reload(&daemon).await, json!({ "n_keys": 2, "n_revoked": 0 }));
    fixture.shutdown(daemon).await;
    // The daemon is down, another program listens on its port, and the client sends its key there.
    let squatter = squat(addr);
    let victim = with_token(&client, &agent_key);
    let sent = victim.bytes("POST", "/mcp", Some(&json!({})));
    TcpStream::connect(addr).unwrap().write_all(&sent).unwrap();
    let stolen = tokio::task::spawn_blocking(move || squatter.join().unwrap()).await.unwrap();
    assert_eq!(stolen, agent_key);

    let (daemon, client) = fixture.start().await;
    let attacker = with_token(&client, &stolen);
    let evil = fixture.scripted("evil", &[]);
    let response = attacker.request("POST", "/api/servers", Some(evil)).await;
    check_problem(&response, 403, "DENIED", None);
    let all = routes().into_iter().filter(|(method, path)| !PUBLIC.contains(&(method, path)));
    let all: Vec<_> = all.collect();
    assert!(all.len() > 30, "{all:?}");
    for (method, path) in &all {
        let response = attacker.request(method, path, Some(json!({}))).await;
        check_problem(&response, 403, "DENIED", None);
    }
    let names: Vec<String> = client.states().await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["one"]);
    // What the key is for still works, and the daemon is not stopped: until the key is rotated.
    assert_eq!(attacker.request("GET", "/mcp", None).await.status, 405);
    let (_, new) = KeyFile::new(&fixture.home()).rotate("cursor").unwrap();
    assert_eq!(reload(&daemon).await, json!({ "n_keys": 2, "n_revoked": 1 }));
    for (method, path) in all.iter().map(|(method, path)| (method.as_str(), path.as_str())).chain([
        ("GET", "/mcp"),
        ("POST", "/mcp"),
        ("GET", "/mcp/server/one"),
    ]) {
        let response = attacker.request(method, path, Some(json!({}))).await;
        check_problem(&response, 401, "UNAUTHORIZED", None);
    }
    let owner = with_token(&client, new.reveal());
    assert_eq!(owner.request("GET", "/mcp", None).await.status, 405);
    fixture.shutdown(daemon).await;
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    }})
}

/// A request in a session, with the head of the response.
async fn in_session(client: &Client, method: &str, session: &str, body: Value) -> Response {
    let (addr, host, bearer) =
        (client.addr, client.addr.to_string(), format!("Bearer {}", client.token));
    let headers = [
        ("host", host.as_str()),
        ("authorization", &bearer),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", session),
    ];
    let body = if method == "POST" { body.to_string() } else { String::new() };
    let bytes = encode_request(method, "/mcp", &headers, &body);
    tokio::task::spawn_blocking(move || send(addr, &bytes)).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn session_is_used_only_with_the_key_that_opened_it() {
    let fixture = Fixture::new();
    let (first, second) = ("first", "second");
    let first = create(&fixture, first, agent(None, None));
    let second = create(&fixture, second, agent(None, None));
    let (daemon, client) = fixture.start().await;
    let (owner, other) = (with_token(&client, &first), with_token(&client, &second));
    let opened = owner.request("POST", "/mcp", Some(initialize())).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    // The key of another client, one with all rights, and a browser.
    let browser = with_token(&client, &log_in(&client).await);
    for stranger in [&other, &client, &browser] {
        for method in ["POST", "GET", "DELETE"] {
            let response = in_session(stranger, method, &session, ping.clone()).await;
            assert_eq!(response.status, 404, "{method} {response:?}");
        }
    }
    assert_eq!(in_session(&owner, "POST", &session, ping).await.status, 200);
    assert_eq!(in_session(&owner, "DELETE", &session, Value::Null).await.status, 200);
    fixture.shutdown(daemon).await;
}

/// Opens a stream, and returns it once its head has arrived.
fn open_stream(client: &Client, path: &str, more: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(client.addr).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (host, token) = (client.addr, &client.token);
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\naccept: text/event-stream\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    lines
}

/// A connection on which a request with a key was answered.
fn keep_alive(client: &Client) -> TcpStream {
    let mut stream = TcpStream::connect(client.addr).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = String::from_utf8(client.bytes("GET", "/api/secrets", None)).unwrap();
    let request = request.replace("connection: close\r\n", "");
    assert!(is_answered(&mut stream, &request, b"]}"));
    stream
}

/// Whether the daemon answers a request without a key on this connection.
fn is_alive(stream: &mut TcpStream) -> bool {
    let addr = stream.peer_addr();
    let request = addr.map(|addr| format!("GET /healthz HTTP/1.1\r\nhost: {addr}\r\n\r\n"));
    request.is_ok_and(|request| is_answered(stream, &request, b"ok\n"))
}

/// Whether a request gets a response with this end.
fn is_answered(stream: &mut TcpStream, request: &str, end: &[u8]) -> bool {
    let (mut response, mut byte) = (Vec::new(), [0]);
    let is_sent = stream.write_all(request.as_bytes()).is_ok();
    while is_sent && !response.ends_with(end) && stream.read_exact(&mut byte).is_ok() {
        response.extend(byte);
    }
    response.starts_with(b"HTTP/1.1 200") && response.ends_with(end)
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_ends_its_calls_streams_and_sessions() {
    let fixture = Fixture::new();
    write_config(&fixture);
    let (revoked, kept) =
        (create(&fixture, "revoked", KeyScope::Admin), create(&fixture, "kept", KeyScope::Admin));
    let (daemon, client) = fixture.start().await;
    let (revoked, kept) = (with_token(&client, &revoked), with_token(&client, &kept));
    eventually("the server runs", async || {
        client.states().await == [("one".to_owned(), "running".to_owned())]
    })
    .await;
    let mut streams = Vec::new();
    for owner in [&revoked, &kept] {
        let opened = owner.request("POST", "/mcp", Some(initialize())).await;
        let session = opened.header("mcp-session-id").unwrap();
        streams.push(open_stream(owner, "/mcp", &format!("mcp-session-id: {session}\r\n")));
        streams.push(open_stream(owner, "/api/events", ""));
    }
    let mut connections = [keep_alive(&revoked), keep_alive(&kept)];
    let caller = revoked.clone();
    let call = json!({ "tool": "one_sleep", "arguments": { "ms": 600_000 } });
    let call = TaskTracker::new()
        .spawn(async move { caller.request("POST", "/api/calls", Some(call)).await });
    eventually("the call runs", async || {
        client.get("/api/daemon").await["n_running_calls"] == json!(1)
    })
    .await;
    KeyFile::new(&fixture.home()).revoke("revoked").unwrap();
    assert_eq!(reload(&daemon).await, json!({ "n_keys": 2, "n_revoked": 1 }));
    check_problem(&call.await.unwrap(), 401, "UNAUTHORIZED", None);
    let mut streams = streams.into_iter();
    let ended: Vec<_> = streams.by_ref().take(2).collect();
    tokio::task::spawn_blocking(move || {
        for mut stream in ended {
            // Reads to the end: fails by timeout if the stream goes on.
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        }
    })
    .await
    .unwrap();
    check_problem(&revoked.request("GET", "/mcp", None).await, 401, "UNAUTHORIZED", None);
    // The connection of a revoked key ends, also if it requests public pages only.
    eventually("the connection of the key has ended", async || !is_alive(&mut connections[0]))
        .await;
    assert!(is_alive(&mut connections[1]), "a connection of the other key has ended");
    eventually("the call is cancelled", async || {
        client.get("/api/daemon").await["n_running_calls"] == json!(0)
    })
    .await;
    for stream in streams {
        let stream = stream.into_inner();
        stream.set_nonblocking(true).unwrap();
        let open = loop {
            match (&stream).read(&mut [0; 4096]) {
                Ok(0) => break false,
                Ok(_) => {}
                Err(error) => break error.kind() == std::io::ErrorKind::WouldBlock,
            }
        };
        assert!(open, "a stream of the other key has ended");
    }
    fixture.shutdown(daemon).await;
}

/// A program cannot tell the daemon then, because it does not find it.
#[tokio::test(flavor = "multi_thread")]
async fn key_revoked_without_a_lock_file_becomes_invalid() {
    let fixture = Fixture::new();
    let lost = create(&fixture, "lost", KeyScope::Admin);
    let (daemon, client) = fixture.start().await;
    let lost = with_token(&client, &lost);
    lost.get("/api/secrets").await;
    std::fs::remove_file(fixture.home().lock_file()).unwrap();
    KeyFile::new(&fixture.home()).revoke("lost").unwrap();
    eventually("the key is invalid", async || {
        lost.request("GET", "/api/secrets", None).await.status == 401
    })
    .await;
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_file_of_an_earlier_version_becomes_a_key_for_mcp_only() {
    let fixture = Fixture::new();
    let (path, token) = (fixture.home().run_dir().join("daemon.token"), "0a".repeat(32));
    toolrack_platform::replace(&path, token.as_bytes()).unwrap();
    let (daemon, client) = fixture.start().await;
    assert!(!path.exists());
    let legacy = with_token(&client, &token);
    assert_eq!(legacy.request("GET", "/mcp", None).await.status, 405);
    for path in ["/api/servers", "/api/daemon", "/metrics", "/readyz", "/mcp/main"] {
        check_problem(&legacy.request("GET", path, None).await, 403, "DENIED", None);
    }
    let keys = KeyFile::new(&fixture.home());
    let list = || keys.list().unwrap();
    assert!(list().iter().any(|entry| entry.name == "legacy" && entry.legacy));
    eventually("its use is recorded", async || {
        list().iter().any(|entry| entry.name == "legacy" && entry.last_used_ms.is_some())
    })
    .await;
    keys.rotate("legacy").unwrap();
    reload(&daemon).await;
    check_problem(&legacy.request("GET", "/mcp", None).await, 401, "UNAUTHORIZED", None);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_proves_itself_before_it_gets_the_key() {
    let fixture = Fixture::new();
    let key = ApiKey::from_text(&create(&fixture, "one", agent(None, None)));
    let (daemon, client) = fixture.start().await;
    let nobody = with_token(&client, "none");
    let challenge = "5a".repeat(32);
    let prove = async |id: &str, challenge: &str| {
        let body = json!({ "key_id": id, "challenge": challenge });
        nobody.request("POST", "/api/proof", Some(body)).await
    };
    let response = prove(&key.hash().id(), &challenge).await;
    assert_eq!(response.status, 200, "{response:?}");
    let answer = response.json()["proof"].as_str().unwrap().to_owned();
    assert!(key.hash().is_proof(&answer, &client.addr.to_string(), &challenge));
    assert!(!key.hash().is_proof(&answer, "127.0.0.1:1", &challenge));
    // An unknown key is answered in the same way, and always the same.
    let unknown = prove("0123456789abcdef", &challenge).await;
    assert_eq!((unknown.status, unknown.body.len()), (200, response.body.len()));
    assert_eq!(unknown.body, prove("0123456789abcdef", &challenge).await.body);
    assert_ne!(unknown.body, response.body);
    // The answer is no key.
    check_problem(
        &with_token(&client, &answer).request("GET", "/mcp", None).await,
        401,
        "UNAUTHORIZED",
        None,
    );
    let id = key.hash().id();
    let wrong = [
        (id.as_str(), "", "challenge"),
        (&id, &"0".repeat(30), "challenge"),
        (&id, &"0".repeat(33), "challenge"),
        (&id, &"0".repeat(130), "challenge"),
        (&id, &"G".repeat(64), "challenge"),
        ("", &challenge, "key_id"),
        ("0123456789abcdef00", &challenge, "key_id"),
        ("0123456789ABCDEF", &challenge, "key_id"),
    ];
    for (id, challenge, field) in wrong {
        check_problem(&prove(id, challenge).await, 422, "VALIDATION_ERROR", Some(field));
    }
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_key_file_makes_every_key_invalid() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    assert_eq!(client.request("GET", "/readyz", None).await.status, 200);
    let keys = KeyFile::new(&fixture.home());
    // The daemon writes this into the file, and must not do so after the damage.
    eventually("the use is recorded", async || keys.list().unwrap()[0].last_used_ms.is_some())
        .await;
    toolrack_platform::replace(&keys.path(), b"{}").unwrap();
    let reloaded = request_unix(&daemon, "POST", "/api/keys/reload").await;
    check_problem(&reloaded, 500, "INTERNAL", None);
    check_problem(&client.request("GET", "/readyz", None).await, 401, "UNAUTHORIZED", None);
    fixture.shutdown(daemon).await;
    // It starts all the same, for the socket and the dashboard.
    let (daemon, client) = fixture.start().await;
    check_problem(&client.request("GET", "/readyz", None).await, 401, "UNAUTHORIZED", None);
    assert_eq!(request_unix(&daemon, "GET", "/readyz").await.status, 200);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "a program of another user must be a process")]
async fn port_of_another_user_is_named() {
    use std::os::unix::process::CommandExt as _;
    const SCRIPT: &str = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); \
                          print(s.getsockname()[1], flush=True); sys.stdin.read()";
    let name = "port_of_another_user_is_named";
    if !rustix::process::geteuid().is_root() {
        return toolrack_testkit::skipped(name, "only root can start a program of another user");
    }
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).uid(65534).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return toolrack_testkit::skipped(name, "python3 is not installed");
    };
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _squatter = ChildGuard::new(child);
    let fixture = Fixture::new();
    let listen = Some(format!("127.0.0.1:{}", line.trim()).parse().unwrap());
    let error = Daemon::start(fixture.home(), DaemonOptions { listen, ..options() }).await;
    let error = error.unwrap_err();
    assert!(matches!(error, DaemonError::Listen { other_user: Some(65534), .. }), "{error:?}");
    assert!(error.to_string().contains("another user (uid 65534)"), "{error}");
    assert!(error.hint().unwrap().contains("rotate the keys"), "{error}");
}
