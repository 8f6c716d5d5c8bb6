//! What the tests of the daemon share: a home of its own, a daemon for it, and requests to that.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolrack_daemon::{Daemon, DaemonOptions};
use toolrack_service::{Home, ServiceOptions};
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Marker, eventually_async, program};

use crate::http::{Answer, request, send, send_unix};

/// Long enough for a busy machine, short enough for a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A home in a temporary folder, and a mark on every process that is started from it.
pub(crate) struct Stage {
    pub(crate) dir: TempDir,
    pub(crate) marker: Marker,
}

/// Who sends a request, and where to.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) addr: SocketAddr,
    pub(crate) token: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), marker: Marker::new() }
    }

    pub(crate) fn home(&self) -> Home {
        Home::at(self.dir.path())
    }

    pub(crate) async fn start(&self) -> (Daemon, Client) {
        let daemon = Daemon::start(self.home(), options()).await.unwrap();
        let client = Client::of(&daemon);
        (daemon, client)
    }

    /// The document of a scripted server.
    pub(crate) fn scripted(&self, name: &str, args: &[&str]) -> Value {
        let (variable, value) = self.marker.pair();
        json!({
            "name": name,
            "package": { "package_type": "binary", "identifier": program("scripted-server") },
            "transport": { "type": "stdio" },
            "env_vars": { variable: value },
            "config": { "args": args },
        })
    }

    /// Ends the daemon, and sees that nothing is left.
    pub(crate) async fn end(&self, daemon: Daemon) {
        daemon.shutdown().await;
        self.marker.assert_nobody_left(Duration::ZERO);
        assert!(!self.home().run_dir().join("daemon.sock").exists());
    }
}

pub(crate) fn options() -> DaemonOptions {
    let guardian = Guardian::Program(program("toolrack-guard"));
    let stdio = StdioOptions { guardian, ..StdioOptions::default() };
    let service = ServiceOptions { stdio, ..ServiceOptions::default() };
    let listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    DaemonOptions { service, listen, ..DaemonOptions::default() }
}

impl Client {
    pub(crate) fn of(daemon: &Daemon) -> Self {
        Self { addr: daemon.addr().unwrap(), token: daemon.token().reveal().to_owned() }
    }

    /// A request as an honest client sends it.
    pub(crate) fn bytes(&self, method: &str, path: &str, body: Option<&Value>) -> Vec<u8> {
        let (host, key) = (self.addr.to_string(), format!("Bearer {}", self.token));
        let headers = [
            ("host", host.as_str()),
            ("authorization", &key),
            ("content-type", "application/json"),
        ];
        let body = body.map(ToString::to_string).unwrap_or_default();
        request(method, path, &headers, &body)
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let (addr, bytes) = (self.addr, self.bytes(method, path, body.as_ref()));
        tokio::task::spawn_blocking(move || send(addr, &bytes)).await.unwrap().unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, None).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// A request that has to succeed.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.ask("POST", path, Some(body)).await;
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    /// Adds a server, waits until it runs, and gives its id.
    pub(crate) async fn add(&self, document: &Value) -> String {
        let made = self.post("/api/servers", document.clone()).await;
        let id = made["config"]["id"].as_str().unwrap().to_owned();
        self.until_state(&id, "running").await;
        id
    }

    /// Every server and its state, as the route of spec 002 lists them.
    pub(crate) async fn states(&self) -> Vec<(String, String)> {
        let listed = self.get("/api/agents/mcp").await;
        let text = |it: &Value| it.as_str().unwrap().to_owned();
        let servers = listed["servers"].as_array().unwrap();
        servers.iter().map(|it| (text(&it["name"]), text(&it["status"]["state"]))).collect()
    }

    pub(crate) async fn until_state(&self, id: &str, state: &str) {
        let path = format!("/api/servers/{id}");
        eventually(&format!("{id} is {state}"), async || {
            self.get(&path).await["status"]["status"]["state"] == *state
        })
        .await;
    }
}

/// `CODE field` of an answer that has to be a problem with this status.
#[track_caller]
pub(crate) fn check_problem(answer: &Answer, status: u16, code: &str, field: Option<&str>) {
    let body = answer.json();
    assert_eq!(
        (answer.status, body["code"].as_str(), body["field"].as_str()),
        (status, Some(code), field),
        "{answer:?}"
    );
    assert!(body["message"].as_str().is_some_and(|it| !it.is_empty()), "{answer:?}");
}

pub(crate) async fn eventually(what: &str, fact: impl AsyncFnMut() -> bool) {
    eventually_async(LONG, what, tokio::time::sleep, fact).await;
}

/// A request over the Unix socket, which needs no key.
pub(crate) async fn ask_unix(daemon: &Daemon, method: &str, path: &str) -> Answer {
    let (socket, bytes) = (daemon.socket().to_owned(), request(method, path, &[("host", "x")], ""));
    tokio::task::spawn_blocking(move || send_unix(&socket, &bytes)).await.unwrap().unwrap()
}
