//! Demo server in every revision: as a function against the official schemas, and as a program.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

use std::io::{self, BufReader, PipeWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use toolrack_testkit::{Marker, skipped};

/// Longer than anything here takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A client of a server in the same process.
struct Peer {
    input: PipeWriter,
    lines: Receiver<Vec<u8>>,
    server: JoinHandle<io::Result<()>>,
    /// `_meta` of every request.
    meta: Value,
    n_requests: u64,
    /// Messages of the server, with their definitions in the schema.
    received: Vec<(&'static str, Value)>,
}

/// Passes on what is written; the server writes one line at a time.
struct Lines(Sender<Vec<u8>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.send(line.to_owned()).map_err(|_closed| io::ErrorKind::BrokenPipe)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Peer {
    fn start() -> Self {
        let (reader, input) = io::pipe().expect("a pipe");
        let (sender, lines) = mpsc::channel();
        let server = thread::spawn(|| toolrack_demo::serve(BufReader::new(reader), Lines(sender)));
        let meta = json!({ "progressToken": "t" });
        Self { input, lines, server, meta, n_requests: 0, received: Vec::new() }
    }

    /// Result of a request; `definition` is its name in the schema.
    fn request(&mut self, method: &str, mut params: Value, definition: &'static str) -> Value {
        self.n_requests += 1;
        let id = self.n_requests;
        params["_meta"] = self.meta.clone();
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{line}").expect("the server reads");
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).expect("a message in time");
            let message: Value = serde_json::from_slice(&line).expect("JSON");
            self.received.push(("JSONRPCMessage", message.clone()));
            if message.get("id") == Some(&json!(id)) {
                let result = message["result"].clone();
                self.received.push((definition, result.clone()));
                return result;
            }
            self.received.push(("ServerNotification", message));
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", params, "CallToolResult")["content"][0]["text"].clone()
    }
}

#[test]
fn demo_is_schema_valid_in_every_revision() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let mut peer = Peer::start();
        if revision == "2026-07-28" {
            peer.meta = json!({
                "progressToken": "t",
                "io.modelcontextprotocol/protocolVersion": revision,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            peer.request("server/discover", json!({}), "DiscoverResult");
        } else {
            let params = json!({ "protocolVersion": revision });
            let result = peer.request("initialize", params, "InitializeResult");
            assert_eq!(result["protocolVersion"], json!(revision));
        }
        let tools = peer.request("tools/list", json!({}), "ListToolsResult")["tools"].clone();
        let names: Vec<&Value> =
            tools.as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["greet", "add", "dice", "countdown", "word_count"]);
        assert_eq!(peer.call("greet", json!({ "name": "Ada" })), json!("Hello, Ada!"));
        assert_eq!(peer.call("greet", json!({})), json!("arguments: `name` is missing"));
        assert_eq!(peer.call("add", json!({ "a": 40, "b": 2 })), json!("42"));
        peer.request("resources/list", json!({}), "ListResourcesResult");
        peer.request("resources/templates/list", json!({}), "ListResourceTemplatesResult");
        let readme = json!({ "uri": "demo://readme" });
        let readme = peer.request("resources/read", readme, "ReadResourceResult");
        let text = readme["contents"][0]["text"].as_str().expect("a text");
        assert!(text.contains("demo"), "{text}");
        peer.request("prompts/list", json!({}), "ListPromptsResult");
        let introduce = json!({ "name": "introduce", "arguments": { "name": "Ada" } });
        peer.request("prompts/get", introduce, "GetPromptResult");
        assert_eq!(peer.call("countdown", json!({ "from": 3, "every_ms": 1 })), json!("Lift-off!"));
        let progress = |(_, message): &(_, Value)| message.pointer("/params/progress").cloned();
        let mut steps: Vec<Value> = peer.received.iter().filter_map(progress).collect();
        // Each notification is there under both of its definitions.
        steps.dedup();
        assert_eq!(steps, [1, 2, 3]);
        drop(peer.input);
        peer.server.join().expect("no panic").expect("the input ends");
        assert_schema_valid(&peer.received, revision);
    }
}

fn assert_schema_valid(received: &[(&'static str, Value)], revision: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/protocol/schemas");
    let Ok(text) = std::fs::read(dir.join(format!("{revision}.json"))) else {
        let test = "demo_is_schema_valid_in_every_revision";
        return skipped(test, "the official schemas are not there");
    };
    let mut schema: Value = serde_json::from_slice(&text).expect("a schema is JSON");
    let definitions = if schema.get("$defs").is_some() { "$defs" } else { "definitions" };
    for (definition, value) in received {
        schema["$ref"] = json!(format!("#/{definitions}/{definition}"));
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let errors: Vec<String> =
            validator.iter_errors(value).map(|error| error.to_string()).collect();
        assert_eq!(errors, [""; 0], "{value} is no {definition} of {revision}");
    }
}

#[test]
fn program_notes_the_time_of_the_first_byte() {
    let marker = Marker::new();
    let (variable, value) = marker.env_var();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("first-byte");
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    let mut child = Command::new(env!("CARGO_BIN_EXE_demo-server"))
        .arg("--first-byte")
        .arg(&file)
        .env(variable, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"{\"id\":1,\"method\":\"ping\"}\n").expect("the server reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    let response = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), response);
    assert_eq!(output.status.code(), Some(0));
    let nanoseconds = std::fs::read_to_string(&file).expect("the file");
    assert!(nanoseconds.parse::<u64>().is_ok(), "{nanoseconds}");
    marker.assert_no_processes_left(TIMEOUT);
}
