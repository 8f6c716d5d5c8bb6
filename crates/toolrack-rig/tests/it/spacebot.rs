//! Founding document 002 as a program: its config file, its startup, a worker, hot reload, shutdown, and the two
//! endpoints.

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolrack_config::{ConfigDiff, McpServerConfig, McpTransport, read};
use toolrack_http::UnixClient;
use toolrack_manager::{ConnectionState, McpManager};
use toolrack_testkit::{
    ChildGuard, HttpLog, HttpServer, HttpServerKind, Marker, eventually_async, program,
};

use crate::fixture::{LONG, server};
use crate::worker::{answer, create_worker_tool_server, tool_names};

/// The config of the document, word for word.
const CONFIG: &str = r#"[defaults]
# MCP servers inherited by all agents

[[defaults.mcp]]
name = "filesystem"
transport = "stdio"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/workspace"]

[[defaults.mcp]]
name = "sentry"
transport = "http"
url = "https://mcp.sentry.io"
headers = { "Authorization" = "Bearer ${SENTRY_TOKEN}" }

# Per-agent override
[[agents]]
id = "main"

[[agents.mcp]]
name = "postgres"
transport = "stdio"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-postgres", "postgresql://..."]
"#;

/// Set for the process that runs the program: a test cannot change its own environment.
const TOKEN: &str = "SENTRY_TOKEN";

fn resolve(text: &str) -> Vec<McpServerConfig> {
    let (file, warnings) = read("config.toml", text).accept().unwrap();
    assert_eq!(warnings, []);
    file.resolve("main")
}

/// Local servers instead of `npx` and the internet. What the config says about them stays: the last argument and the
/// headers.
fn local(config: &McpServerConfig, sentry: &HttpServer, marker: &Marker) -> McpServerConfig {
    let transport = match config.transport.clone() {
        McpTransport::Stdio { args, .. } => {
            let args = ["--marker", args.last().unwrap()];
            server(&config.name, "scripted-server", &args, marker).transport
        }
        McpTransport::Http { headers, .. } => McpTransport::Http { url: sentry.url(), headers },
        other => panic!("not in the document: {other:?}"),
    };
    McpServerConfig { transport, ..config.clone() }
}

fn launches(manager: &McpManager) -> Vec<(String, ConnectionState, Option<u64>)> {
    let servers = manager.servers().into_iter();
    servers
        .map(|server| (server.name().to_owned(), server.state().clone(), server.launch()))
        .collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program needs a variable in its environment")]
fn spacebot_program_runs() {
    if std::env::var(TOKEN).is_ok_and(|token| token == "sesame") {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(run());
    }
    let program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "spacebot::spacebot_program_runs", "--nocapture"])
        .env(TOKEN, "sesame")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (status, stdout, stderr) = ChildGuard::new(program).wait_with_output(LONG * 4).unwrap();
    assert!(status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
}

async fn run() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("requests");
    let arguments = ["--http-log", log.to_str().unwrap()];
    let sentry = HttpServer::start(HttpServerKind::scripted(&arguments)).unwrap();

    // Config resolution: the agent's servers after the defaults, references as they are written.
    let resolved = resolve(CONFIG);
    let names: Vec<&str> = resolved.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["filesystem", "sentry", "postgres"]);
    let http = resolved.iter().find_map(|config| match &config.transport {
        McpTransport::Http { url, headers } => Some((url, headers)),
        _ => None,
    });
    let (url, headers) = http.unwrap();
    assert_eq!(url, "https://mcp.sentry.io");
    assert_eq!(headers["Authorization"], "Bearer ${SENTRY_TOKEN}");
    let localize = |configs: &[McpServerConfig]| -> Vec<McpServerConfig> {
        configs.iter().map(|config| local(config, &sentry, &marker)).collect()
    };
    let old_mcp = localize(&resolved);

    // Agent startup.
    let mcp_manager = McpManager::new(old_mcp.clone());
    let servers = mcp_manager.connect_all().await.unwrap();
    assert_eq!(servers.len(), 3);
    let states = launches(&mcp_manager);
    assert!(states.iter().all(|(_, state, _)| *state == ConnectionState::Connected), "{states:?}");
    let requests = HttpLog::read(&log).unwrap().requests;
    assert!(!requests.is_empty());
    for request in requests {
        let token = request.headers.get("authorization").map(String::as_str);
        assert_eq!(token, Some("Bearer sesame"), "{request:?}");
    }

    // A worker calls tools of all servers.
    let worker_tool_server = create_worker_tool_server(mcp_manager.get_tools().await);
    for name in ["filesystem", "sentry", "postgres"] {
        let tool = format!("{name}_echo");
        let text = answer(&worker_tool_server, &tool, json!({"text": name})).await;
        assert_eq!(text, format!("The tool says: {name}"));
    }
    let worker_tools = tool_names(&worker_tool_server);

    // Hot reload: one server changes, one goes, one comes, one stays.
    let edited = CONFIG.replace("/workspace", "/other").replace("postgres", "github");
    let new_mcp = localize(&resolve(&edited));
    let applied = mcp_manager.reconcile(&old_mcp, &new_mcp).await.unwrap();
    let list = |name: &str| vec![name.to_owned()];
    let expected = ConfigDiff {
        connect: list("github"),
        disconnect: list("postgres"),
        reconnect: list("filesystem"),
        keep: list("sentry"),
        ..ConfigDiff::default()
    };
    assert_eq!(applied, expected);
    assert_eq!(mcp_manager.ready(LONG).await.len(), 0);
    let connected =
        |name: &str, launch| (name.to_owned(), ConnectionState::Connected, Some(launch));
    let expected = [connected("filesystem", 2), connected("sentry", 1), connected("github", 1)];
    assert_eq!(launches(&mcp_manager), expected);

    // The worker keeps its tools; a new one gets the updated tools.
    assert_eq!(tool_names(&worker_tool_server), worker_tools);
    let text = answer(&worker_tool_server, "filesystem_echo", json!({"text": "again"})).await;
    assert_eq!(text, "The tool says: again");
    let text = answer(&worker_tool_server, "postgres_echo", json!({"text": "gone"})).await;
    assert!(text.contains("no server named `postgres`"), "{text}");
    let next = create_worker_tool_server(mcp_manager.get_tools().await);
    assert!(!tool_names(&next).contains(&"postgres_echo".to_owned()));
    let text = answer(&next, "github_echo", json!({"text": "new"})).await;
    assert_eq!(text, "The tool says: new");

    // Shutdown: processes end, and the HTTP session is closed.
    mcp_manager.disconnect_all().await.unwrap();
    marker.assert_no_processes_left(Duration::ZERO);
    assert_eq!(HttpLog::read(&log).unwrap().with_verb("DELETE").count(), 1);
    assert!(mcp_manager.get_tools().await.is_empty());
    control_api(&sentry, &marker).await;
    marker.assert_no_processes_left(Duration::from_secs(5));
}

/// The program `toolrack` with the document's config, in a home of its own.
struct ControlApi {
    home: TempDir,
}

impl ControlApi {
    #[expect(clippy::disallowed_methods, reason = "the daemon is a program of its own")]
    fn run(&self, args: &[&str]) {
        let toolrack = Command::new(program("toolrack"))
            .args(args)
            .env("TOOLRACK_HOME", self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (status, stdout, stderr) = ChildGuard::new(toolrack).wait_with_output(LONG).unwrap();
        assert!(status.success(), "{args:?}: {stdout}{stderr}");
    }

    async fn request(&self, method: Method, target: &str, body: Option<Value>) -> Value {
        let client = UnixClient::new(self.home.path().join("run/daemon.sock"));
        let body = body.map(|body| Bytes::from(body.to_string()));
        let response = client.request(method, target, body, LONG).await.unwrap();
        assert_eq!(response.status, 200, "{target}: {response:?}");
        serde_json::from_slice(&response.body).unwrap()
    }

    /// The servers of the agent, with their connections.
    #[expect(clippy::indexing_slicing, reason = "a panic fails the test")]
    async fn connections(&self) -> Vec<(String, String)> {
        let listed = self.request(Method::GET, "/api/agents/mcp?agent=main", None).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let servers = listed["servers"].as_array().unwrap();
        servers.iter().map(|server| (text(&server["name"]), text(&server["connection"]))).collect()
    }
}

/// The two endpoints of the document.
#[expect(clippy::indexing_slicing, reason = "a panic fails the test")]
async fn control_api(sentry: &HttpServer, marker: &Marker) {
    let (variable, value) = marker.env_var();
    let tagged = format!("env = {{ {variable} = \"{value}\" }}");
    let scripted = program("scripted-server").display().to_string();
    let is_args = |line: &&str| line.starts_with("args = ");
    let text = CONFIG
        .replace("\"npx\"", &format!("{scripted:?}"))
        .replace("https://mcp.sentry.io", &sentry.url());
    let args: Vec<&str> = text.lines().filter(is_args).collect();
    let text = args.iter().fold(text.clone(), |text, args| text.replace(args, &tagged));
    let api = ControlApi { home: tempfile::tempdir().unwrap() };
    let config = api.home.path().join("toolrack.toml");
    File::create(config).unwrap().write_all(text.as_bytes()).unwrap();
    api.run(&["daemon", "start"]);
    let all = |state: &str| -> Vec<(String, String)> {
        let names = ["filesystem", "sentry", "postgres"];
        names.iter().map(|name| ((*name).to_owned(), state.to_owned())).collect()
    };
    assert_eq!(api.connections().await, all("Disconnected"));
    let reconnect = async || {
        let body = json!({"agent": "main", "name": "postgres"});
        let status = api.request(Method::POST, "/api/agents/mcp/reconnect", Some(body)).await;
        assert_eq!(status["status"]["state"], "running", "{status}");
        status["launch"].as_u64().unwrap()
    };
    let first = reconnect().await;
    let is_connected = async || api.connections().await == all("Connected");
    eventually_async(LONG, "the agent's servers", tokio::time::sleep, is_connected).await;
    assert!(reconnect().await > first);
    api.run(&["daemon", "stop"]);
}
