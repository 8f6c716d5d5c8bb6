//! MCP client over stdio for these tests, with a timeout on every read.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use toolrack_testkit::{Marker, eventually, program};

/// Longer than anything here takes, even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Peer {
    pub(crate) child: Child,
    pub(crate) marker: Marker,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    errors: Receiver<Vec<u8>>,
    next_id: u64,
    modern: bool,
    /// Methods of sent requests by id, and all received messages.
    pub(crate) sent_requests: Vec<(Value, String)>,
    pub(crate) received: Vec<Value>,
}

impl Peer {
    pub(crate) fn scripted(args: &[&str]) -> Self {
        Self::start("scripted-server", args)
    }

    /// With an initialized session.
    pub(crate) fn legacy(args: &[&str]) -> Self {
        let mut peer = Self::scripted(args);
        peer.initialize("2025-11-25");
        peer
    }

    pub(crate) fn modern(args: &[&str]) -> Self {
        let mut peer = Self::scripted(&[&["--revision", "modern"], args].concat());
        peer.modern = true;
        peer
    }

    #[expect(clippy::disallowed_methods, reason = "these tests drive real programs")]
    pub(crate) fn start(name: &str, args: &[&str]) -> Self {
        let marker = Marker::new();
        let (variable, value) = marker.env_var();
        let mut child = Command::new(program(name))
            .args(args)
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdin = child.stdin.take();
        let lines = lines_of(child.stdout.take().expect("a pipe"));
        let errors = lines_of(child.stderr.take().expect("a pipe"));
        let (sent_requests, received) = (Vec::new(), Vec::new());
        Self {
            child,
            marker,
            stdin,
            lines,
            errors,
            next_id: 1,
            modern: false,
            sent_requests,
            received,
        }
    }

    pub(crate) fn use_modern(&mut self) {
        self.modern = true;
    }

    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let info = json!({ "name": "it", "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": info });
        let response = self.request("initialize", params);
        self.notify("notifications/initialized", json!({}));
        response
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> Value {
        if self.modern {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": { "roots": {}, "sampling": {}, "elicitation": {} },
            });
            let given = params.get("_meta").cloned().unwrap_or_else(|| json!({}));
            let mut whole = meta.as_object().cloned().expect("an object");
            whole.extend(given.as_object().cloned().expect("an object"));
            params["_meta"] = Value::Object(whole);
        }
        let id = json!(self.next_id);
        self.next_id += 1;
        self.sent_requests.push((id.clone(), method.to_owned()));
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Sends a request and waits for its response; keeps other messages in `received`.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.response_to(&id)
    }

    pub(crate) fn response_to(&mut self, id: &Value) -> Value {
        loop {
            let message = self.message();
            if message.get("id") == Some(id) && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Calls a tool and returns its texts, or the whole response if it has none.
    pub(crate) fn call_text(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.call(tool, arguments);
        texts(&self.response_to(&id))
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    pub(crate) fn write(&mut self, message: &Value) {
        self.write_raw(format!("{message}\n").as_bytes());
    }

    pub(crate) fn write_raw(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("not hung up yet");
        stdin.write_all(bytes).expect("the server reads");
    }

    pub(crate) fn message(&mut self) -> Value {
        let line = self.line().expect("a line, not the end");
        let message: Value = serde_json::from_slice(&line).expect("a message");
        self.received.push(message.clone());
        message
    }

    /// The next stdout line without its newline; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<Vec<u8>> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing on stdout within {TIMEOUT:?}"),
        }
    }

    /// Asserts that nothing arrives before the response to another request.
    pub(crate) fn assert_quiet(&mut self) {
        let id = self.send("tools/call", json!({ "name": "pid" }));
        assert_eq!(self.message().get("id"), Some(&id), "something else was written before");
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// All of stderr until its end.
    pub(crate) fn stderr(&mut self) -> Vec<u8> {
        let lines: Vec<Vec<u8>> = self.errors.iter().collect();
        lines.join(&b'\n')
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_none()
    }

    pub(crate) fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(TIMEOUT, "the server exits", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        status.expect("an exit status")
    }

    /// Closes stdin, waits for the exit, and asserts that no process is left.
    pub(crate) fn finish(mut self) {
        self.close_stdin();
        assert_eq!(self.exit().code(), Some(0));
        self.marker.assert_no_processes_left(TIMEOUT);
    }

    /// Kills processes that a test left on purpose.
    pub(crate) fn clean_up(&mut self) {
        self.kill_survivors();
        self.marker.assert_no_processes_left(TIMEOUT);
    }

    fn kill_survivors(&mut self) {
        for process in self.marker.survivors() {
            let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
            // It may have exited by itself.
            kill_process(pid.expect("a pid"), Signal::KILL).unwrap_or_default();
        }
        self.child.wait().expect("our child");
    }
}

/// A failed test must not leave processes either.
impl Drop for Peer {
    fn drop(&mut self) {
        self.close_stdin();
        self.kill_survivors();
    }
}

pub(crate) fn texts(response: &Value) -> Value {
    let blocks = response.pointer("/result/content").and_then(Value::as_array);
    let text = |block: &Value| block.get("text").cloned().unwrap_or_else(|| block.clone());
    match blocks.map(Vec::as_slice) {
        Some([only]) => text(only),
        Some(several) => several.iter().map(text).collect(),
        None => response.clone(),
    }
}

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, call_text) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).unwrap_or_default() > 0 {
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    call_text
}
