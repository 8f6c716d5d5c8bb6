//! Test fixture: a temporary home, its daemon, and a client.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolrack_daemon::{Daemon, DaemonOptions, KeyFile, KeyScope};
use toolrack_service::{Home, ServiceOptions};
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Marker, eventually_async, program};

use crate::http::{Response, encode_request, send, send_unix};

/// Long enough for a busy machine, short enough for a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A temporary home, and a marker in the environment of every process started from it.
pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    /// A key with all rights.
    pub(crate) admin: String,
    pub(crate) marker: Marker,
}

/// An API client.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) addr: SocketAddr,
    pub(crate) token: String,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys = KeyFile::new(&Home::in_dir(dir.path()));
        let (_, key) = keys.create("test", KeyScope::Admin).unwrap();
        Self { dir, admin: key.reveal().to_owned(), marker: Marker::new() }
    }

    pub(crate) fn home(&self) -> Home {
        Home::in_dir(self.dir.path())
    }

    pub(crate) async fn start(&self) -> (Daemon, Client) {
        let daemon = Daemon::start(self.home(), options()).await.unwrap();
        let client = self.client(&daemon);
        (daemon, client)
    }

    /// A client with all rights.
    pub(crate) fn client(&self, daemon: &Daemon) -> Client {
        Client { addr: daemon.addr().unwrap(), token: self.admin.clone() }
    }

    /// The config of a scripted server.
    pub(crate) fn scripted(&self, name: &str, args: &[&str]) -> Value {
        let (variable, value) = self.marker.env_var();
        json!({
            "name": name,
            "package": { "package_type": "binary", "identifier": program("scripted-server") },
            "transport": { "type": "stdio" },
            "env_vars": { variable: value },
            "config": { "args": args },
        })
    }

    /// Shuts the daemon down and asserts that no process and no socket is left.
    pub(crate) async fn shutdown(&self, daemon: Daemon) {
        daemon.shutdown().await;
        self.marker.assert_no_processes_left(Duration::ZERO);
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
    /// The bytes of an authorized request.
    pub(crate) fn bytes(&self, method: &str, path: &str, body: Option<&Value>) -> Vec<u8> {
        let (host, bearer) = (self.addr.to_string(), format!("Bearer {}", self.token));
        let headers = [
            ("host", host.as_str()),
            ("authorization", &bearer),
            ("content-type", "application/json"),
        ];
        let body = body.map(ToString::to_string).unwrap_or_default();
        encode_request(method, path, &headers, &body)
    }

    pub(crate) async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Response {
        let (addr, bytes) = (self.addr, self.bytes(method, path, body.as_ref()));
        tokio::task::spawn_blocking(move || send(addr, &bytes)).await.unwrap().unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = self.request("GET", path, None).await;
        assert_eq!(response.status, 200, "{path}: {response:?}");
        response.json()
    }

    /// A POST request that must succeed.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let response = self.request("POST", path, Some(body)).await;
        assert!((200..300).contains(&response.status), "{path}: {response:?}");
        if response.body.is_empty() { Value::Null } else { response.json() }
    }

    /// Adds a server, waits until it runs, and returns its id.
    pub(crate) async fn add(&self, document: &Value) -> String {
        let created = self.post("/api/servers", document.clone()).await;
        let id = created["config"]["id"].as_str().unwrap().to_owned();
        self.wait_for_state(&id, "running").await;
        id
    }

    /// All servers with their states, from the route of spec 002.
    pub(crate) async fn states(&self) -> Vec<(String, String)> {
        let listed = self.get("/api/agents/mcp").await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let servers = listed["servers"].as_array().unwrap();
        let state = |server: &Value| (text(&server["name"]), text(&server["status"]["state"]));
        servers.iter().map(state).collect()
    }

    pub(crate) async fn wait_for_state(&self, id: &str, state: &str) {
        let path = format!("/api/servers/{id}");
        eventually(&format!("{id} is {state}"), async || {
            self.get(&path).await["status"]["status"]["state"] == *state
        })
        .await;
    }
}

/// Asserts the status, code and field of an error response.
#[track_caller]
pub(crate) fn check_problem(response: &Response, status: u16, code: &str, field: Option<&str>) {
    let body = response.json();
    assert_eq!(
        (response.status, body["code"].as_str(), body["field"].as_str()),
        (status, Some(code), field),
        "{response:?}"
    );
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{response:?}");
}

pub(crate) async fn eventually(condition: &str, is_true: impl AsyncFnMut() -> bool) {
    eventually_async(LONG, condition, tokio::time::sleep, is_true).await;
}

/// A request over the Unix socket, which needs no token.
pub(crate) async fn request_unix(daemon: &Daemon, method: &str, path: &str) -> Response {
    let (socket, bytes) =
        (daemon.socket().to_owned(), encode_request(method, path, &[("host", "x")], ""));
    tokio::task::spawn_blocking(move || send_unix(&socket, &bytes)).await.unwrap().unwrap()
}
