//! A new home with five kinds of servers, through a SIGKILL of the service and a restart.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use toolrack_testkit::{DockerEngine, HttpServer, HttpServerKind, eventually, program, skipped};

use crate::fixture::Fixture;
use crate::packages_fixture::{shared_dir, without_npm, without_pypi};

/// Long enough for an installation on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// The example `service_repl`, killed when dropped.
struct ReplProcess {
    child: Child,
    input: Option<ChildStdin>,
    responses: Receiver<String>,
}

impl ReplProcess {
    /// Starts it on a home. Its server processes carry the marker.
    #[expect(clippy::disallowed_methods, reason = "the test runs the example as a user does")]
    fn start(fixture: &Fixture, env: &[(&str, String)]) -> Self {
        let own = std::env::current_exe().unwrap();
        let built = own.parent().unwrap().parent().unwrap().join("examples/service_repl");
        assert!(built.is_file(), "build the example `service_repl` first; `cargo test` does");
        let (variable, value) = fixture.marker.env_var();
        let mut child = Command::new(built)
            .arg(fixture.path())
            .envs(env.iter().map(|(name, value)| (*name, value)))
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, input, responses: read_lines(output) }
    }

    #[track_caller]
    fn request(&mut self, line: &str) -> Value {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        let response = self.responses.recv_timeout(TIMEOUT).unwrap();
        serde_json::from_str(&response).unwrap()
    }

    /// Closes its stdin and waits until it exits with success.
    fn end(mut self) {
        drop(self.input.take());
        let has_exited = || self.child.try_wait().unwrap().is_some();
        eventually(Duration::from_secs(30), "the example exits", has_exited);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Reads lines in a thread, so that waiting for one can time out.
fn read_lines(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Drop for ReplProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One kind of server: its config, a call, and a part of the result.
struct Kind {
    config: Value,
    call: (&'static str, Value, &'static str),
}

fn config(name: &str, kind: &str, identifier: &str, rest: Value) -> Value {
    let mut config = json!({
        "name": name,
        "package": { "package_type": kind, "identifier": identifier },
        "transport": if kind == "http" { json!({"type": "http", "url": identifier}) } else { json!("stdio") },
    });
    if let (Some(members), Value::Object(rest)) = (config.as_object_mut(), rest) {
        members.extend(rest);
    }
    config
}

/// The config with the marker in the environment.
fn marked(config: &Value, fixture: &Fixture) -> Value {
    let mut config = config.clone();
    if config["package"]["package_type"] != "http" {
        let (variable, value) = fixture.marker.env_var();
        config["env_vars"][variable] = json!(value);
    }
    config
}

/// Without `uv` the test would use `pip`, which takes more than a minute.
fn missing_uv() -> Option<String> {
    (!uv().join("uv").is_file()).then(|| "uv is missing; run `cargo xtask servers`".to_owned())
}

fn uv() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/python/uv/venv/bin")
}

/// The kinds that are available here; the others are reported as skipped.
fn kinds(
    test: &str,
    fixture: &Fixture,
    server: &HttpServer,
) -> (Vec<Kind>, Vec<(&'static str, String)>) {
    let path = std::env::var_os("PATH").unwrap_or_default().to_string_lossy().into_owned();
    let mut env = vec![
        ("PATH", format!("{}:{path}", uv().display())),
        ("npm_config_cache", shared_dir("npm").display().to_string()),
        ("UV_CACHE_DIR", shared_dir("uv").display().to_string()),
    ];
    let demo = program("demo-server").display().to_string();
    let mut kinds = vec![
        Kind {
            config: config("program", "binary", &demo, json!({})),
            call: ("greet", json!({"name": "World"}), "Hello, World!"),
        },
        Kind {
            config: config("endpoint", "http", &server.url(), json!({})),
            call: ("echo", json!({"text": "over"}), "over"),
        },
    ];
    match without_npm() {
        Some(reason) => skipped(&format!("{test} (npm)"), &reason),
        None => {
            let file = fixture.path().join("memory.json").display().to_string();
            let mut memory = config(
                "memory",
                "npm",
                "@modelcontextprotocol/server-memory",
                json!({ "env_vars": { "MEMORY_FILE_PATH": file } }),
            );
            memory["package"]["version"] = json!("2026.8.31");
            kinds.push(Kind { config: memory, call: ("read_graph", json!({}), "entities") });
        }
    }
    match without_pypi().or_else(missing_uv) {
        Some(reason) => skipped(&format!("{test} (PyPI)"), &reason),
        None => kinds.push(Kind {
            config: config("time", "pypi", "mcp-server-time", json!({})),
            call: ("get_current_time", json!({"timezone": "Europe/Berlin"}), "Europe/Berlin"),
        }),
    }
    match DockerEngine::shared() {
        Err(reason) => skipped(&format!("{test} (Docker)"), &reason),
        Ok(engine) => {
            env.push(("DOCKER_HOST", engine.host()));
            let rest = json!({ "config": { "package": { "runtime_args": ["--network=none"] } } });
            kinds.push(Kind {
                config: config("container", "docker", DockerEngine::IMAGE, rest),
                call: ("echo", json!({"text": "inside"}), "inside"),
            });
        }
    }
    (kinds, env)
}

#[test]
fn every_kind_of_server_survives_a_killed_service() {
    let test = "every_kind_of_server_survives_a_killed_service";
    let fixture = Fixture::new();
    let server = HttpServer::start(HttpServerKind::scripted(&["--shape", "dual"])).unwrap();
    let (kinds, env) = kinds(test, &fixture, &server);
    let mut first = ReplProcess::start(&fixture, &env);
    for kind in &kinds {
        let created = first.request(&format!("create {}", marked(&kind.config, &fixture)));
        assert!(created.is_string(), "{created}");
    }
    let before = use_all(&mut first, &kinds);
    // SIGKILL: no cleanup.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    fixture.marker.assert_no_processes_left(Duration::from_secs(15));

    let mut second = ReplProcess::start(&fixture, &env);
    assert_eq!(use_all(&mut second, &kinds), before, "the same ids, names and tools");
    second.end();
    fixture.marker.assert_no_processes_left(Duration::from_secs(5));
    if let Ok(engine) = DockerEngine::shared() {
        assert_eq!(engine.containers("container").unwrap(), Vec::<String>::new());
    }
}

/// Waits for every server, calls a tool of each, and returns the list.
fn use_all(program: &mut ReplProcess, kinds: &[Kind]) -> Value {
    for kind in kinds {
        let name = kind.config["name"].as_str().unwrap();
        let status = program.request(&format!("wait {name}"));
        assert_eq!(status["state"], "running", "{name}: {status}");
        let (tool, arguments, part) = &kind.call;
        let response = program.request(&format!("call {name} {tool} {arguments}"));
        assert!(response.to_string().contains(part), "{name}: {response}");
    }
    program.request("list")
}
