//! The demo server: reads lines, handles requests in both eras, and runs slow calls.
//!
//! The caller's thread reads. A second thread owns everything else and writes, so nothing is shared.

use std::io::{self, BufRead, Read as _, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::content::{self, Countdown, ToolOutcome};
use crate::protocol::{Message, Params, Revision, RpcError, response_line, without_nulls};

/// A longer line ends the server.
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;

/// Lines between the threads. When they are full, the reader waits: a client that does not read is not read.
const MAX_QUEUED_LINES: usize = 16;

/// Slow calls at once. One more is a tool error.
const MAX_SLOW_CALLS: usize = 1000;

/// Time between the last step and the result. Some clients drop a progress notification that arrives together with
/// the response.
const REST: Duration = Duration::from_millis(1);

/// Methods whose results have the cache hints of 2026-07-28.
const CACHEABLE: [&str; 6] = [
    "server/discover",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
];

/// Serves one client until the end of input.
///
/// Fails only if the input cannot be read; a closed output is not an error.
pub fn serve(input: impl BufRead, output: impl Write + Send + 'static) -> io::Result<()> {
    let (sender, lines) = mpsc::sync_channel(MAX_QUEUED_LINES);
    let server = thread::Builder::new().spawn(move || Server::default().run(&lines, output))?;
    let outcome = read_lines(input, &sender);
    drop(sender);
    match server.join() {
        // A failed write means that the client is gone.
        Ok(Ok(()) | Err(_)) => outcome,
        Err(_panic) => Err(io::Error::other("the thread of the server panicked")),
    }
}

fn read_lines(mut input: impl BufRead, lines: &SyncSender<Vec<u8>>) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        let n_bytes = input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if n_bytes as u64 == MAX_LINE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
        }
        // The other side is gone after a failed write.
        if n_bytes == 0 || lines.send(line).is_err() {
            return Ok(());
        }
    }
}

/// State of the conversation. Its functions take the time and return the lines to write.
#[derive(Debug, Default)]
struct Server {
    /// Set by `initialize`.
    negotiated: Option<Revision>,
    slow_calls: Vec<SlowCall>,
}

/// A call of `countdown` that is not answered yet.
#[derive(Debug)]
struct SlowCall {
    id: Box<RawValue>,
    revision: Revision,
    progress_token: Option<Value>,
    countdown: Countdown,
    n_done: u64,
    next_step: Instant,
}

impl Server {
    /// Runs until the input ends or a write fails.
    fn run(mut self, lines: &Receiver<Vec<u8>>, mut output: impl Write) -> io::Result<()> {
        loop {
            let next_step = self.slow_calls.iter().map(|call| call.next_step).min();
            let received = match next_step {
                Some(at) => lines.recv_timeout(at.saturating_duration_since(now())),
                None => lines.recv().map_err(RecvTimeoutError::from),
            };
            let mut responses = match received {
                Ok(line) => Vec::from_iter(self.handle_line(&line, now())),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            responses.extend(self.take_due_steps(now()));
            for mut response in responses {
                response.push('\n');
                output.write_all(response.as_bytes())?;
                output.flush()?;
            }
        }
    }

    /// Takes one step of each slow call that is due, and forgets the calls that it finishes.
    fn take_due_steps(&mut self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        self.slow_calls.retain_mut(|call| {
            if call.next_step > now {
                return true;
            }
            let is_last = call.n_done == call.countdown.n_steps;
            lines.extend(if is_last { Some(call.response()) } else { call.step() });
            !is_last
        });
        lines
    }

    fn handle_line(&mut self, line: &[u8], now: Instant) -> Option<String> {
        let line = line.trim_ascii();
        // Spec 2025-03-26, basic protocol: a receiver must take batches. No other revision has them.
        let has_batches = self.negotiated == Some(Revision::R2025_03_26);
        if has_batches && let Ok(batch) = serde_json::from_slice::<Vec<Message<'_>>>(line) {
            let responses: Vec<String> =
                batch.iter().filter_map(|message| self.handle_message(message, now)).collect();
            return (!responses.is_empty()).then(|| format!("[{}]", responses.join(",")));
        }
        match serde_json::from_slice(line) {
            // Serde takes an array for the members of a struct.
            Ok(message) if line.starts_with(b"{") => self.handle_message(&message, now),
            _ if line.is_empty() => None,
            // An error without an id is legal since 2025-11-25; older revisions have none.
            _ if self.negotiated.is_some_and(|revision| revision < Revision::R2025_11_25) => None,
            _ => {
                let error = RpcError::new(RpcError::PARSE_ERROR, "the line is no message");
                Some(json!({ "jsonrpc": "2.0", "error": error }).to_string())
            }
        }
    }

    /// Handles a message and returns its response, unless it has none or a late one.
    fn handle_message(&mut self, message: &Message<'_>, now: Instant) -> Option<String> {
        // A message without a method is a response, and the server sends no requests.
        let method = message.method.as_deref()?;
        let params = Params::parse(message.params);
        let Some(id) = message.id else {
            if let ("notifications/cancelled", Ok(Params { request_id: Some(id), .. })) =
                (method, params)
            {
                self.slow_calls.retain(|call| call.id.get() != id.get());
            }
            return None;
        };
        let outcome = params.and_then(|params| self.handle_request(id, method, params, now));
        outcome.transpose().map(|outcome| response_line(id.get(), outcome))
    }

    /// Result of a request; `None` if it comes later.
    fn handle_request(
        &mut self,
        id: &RawValue,
        method: &str,
        params: Params,
        now: Instant,
    ) -> Result<Option<Value>, RpcError> {
        let revision = self.revision_of(method, &params)?;
        let result = match method {
            "initialize" => {
                self.negotiated = Some(revision);
                let title = (revision >= Revision::R2025_06_18).then_some("Toolrack demo");
                json!({
                    "protocolVersion": revision,
                    "capabilities": content::capabilities(),
                    "serverInfo": server_info(title),
                    "instructions": content::INSTRUCTIONS,
                })
            }
            "server/discover" if revision.is_modern() => json!({
                "supportedVersions": Revision::ALL,
                "capabilities": content::capabilities(),
                "instructions": content::INSTRUCTIONS,
            }),
            "ping" if !revision.is_modern() => json!({}),
            "tools/call" => match content::call_tool(&params, revision)? {
                ToolOutcome::Result(result) => result,
                ToolOutcome::Countdown(_) if self.slow_calls.len() >= MAX_SLOW_CALLS => {
                    let reason =
                        format!("{MAX_SLOW_CALLS} countdowns are running; try again later");
                    content::tool_error(reason)
                }
                ToolOutcome::Countdown(countdown) => {
                    let call = SlowCall::new(id, revision, params, countdown, now);
                    self.slow_calls.push(call);
                    return Ok(None);
                }
            },
            _ => content::read(method, &params, revision)?,
        };
        Ok(Some(complete(result, method, revision)))
    }

    /// Revision of a request, or the reason why it has none.
    fn revision_of(&self, method: &str, params: &Params) -> Result<Revision, RpcError> {
        if method == "initialize" {
            return Ok(Revision::negotiate(&params.protocol_version));
        }
        let is_legacy = params.meta.protocol_version.is_none();
        match self.negotiated {
            Some(revision) if is_legacy => Ok(revision),
            // A client may ping before it knows the era of the server.
            None if is_legacy && method == "ping" => Ok(Revision::R2025_11_25),
            _ => params.meta.check().map(|()| Revision::R2026_07_28),
        }
    }
}

impl SlowCall {
    fn new(
        id: &RawValue,
        revision: Revision,
        params: Params,
        countdown: Countdown,
        now: Instant,
    ) -> Self {
        let progress_token = params.meta.progress_token;
        let mut call = Self {
            id: id.to_owned(),
            revision,
            progress_token,
            countdown,
            n_done: 0,
            next_step: now,
        };
        call.next_step += call.delay();
        call
    }

    /// Time until the next step.
    fn delay(&self) -> Duration {
        if self.n_done == self.countdown.n_steps { REST } else { self.countdown.every }
    }

    /// Takes a step and returns its progress notification, if the client wants it.
    fn step(&mut self) -> Option<String> {
        self.n_done += 1;
        self.next_step += self.delay();
        let n_left = self.countdown.n_steps - self.n_done;
        let has_message = self.revision >= Revision::R2025_03_26;
        let params = without_nulls(json!({
            "progressToken": self.progress_token.as_ref()?,
            "progress": self.n_done,
            "total": self.countdown.n_steps,
            "message": has_message.then(|| format!("{n_left}…")),
        }));
        let method = "notifications/progress";
        Some(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string())
    }

    fn response(&self) -> String {
        let result = complete(content::text_result("Lift-off!"), "tools/call", self.revision);
        response_line(self.id.get(), Ok(result))
    }
}

/// Adds what every result has in 2026-07-28.
fn complete(mut result: Value, method: &str, revision: Revision) -> Value {
    let is_cacheable = CACHEABLE.contains(&method);
    let added = without_nulls(json!({
        "resultType": "complete",
        "_meta": { "io.modelcontextprotocol/serverInfo": server_info(None) },
        "ttlMs": is_cacheable.then_some(60_000),
        "cacheScope": is_cacheable.then_some("public"),
    }));
    if let (true, Value::Object(members), Value::Object(added)) =
        (revision.is_modern(), &mut result, added)
    {
        members.extend(added);
    }
    result
}

fn server_info(title: Option<&str>) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    without_nulls(json!({ "name": "toolrack-demo", "version": version, "title": title }))
}

#[expect(clippy::disallowed_methods, reason = "the server has no async runtime")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server after this handshake, and a time to start from.
    fn server(revision: &str) -> (Server, Instant) {
        let (mut server, start) = (Server::default(), now());
        let params = json!({ "protocolVersion": revision });
        let response = request(&mut server, "initialize", params, start).expect("a response");
        assert_eq!(response["result"]["protocolVersion"], json!(revision));
        (server, start)
    }

    /// Response to a request whose id is its method.
    fn request(server: &mut Server, method: &str, params: Value, at: Instant) -> Option<Value> {
        let line = json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params });
        let response = server.handle_line(line.to_string().as_bytes(), at)?;
        Some(serde_json::from_str(&response).expect("JSON"))
    }

    fn countdown(from: u64) -> Value {
        json!({ "name": "countdown", "arguments": { "from": from, "every_ms": 1000 } })
    }

    #[test]
    fn slow_call_delays_no_other() {
        let (mut server, start) = server("2025-11-25");
        assert_eq!(request(&mut server, "tools/call", countdown(2), start), None);
        assert_eq!(server.take_due_steps(start), [""; 0]);
        let greet = json!({ "name": "greet", "arguments": { "name": "Bob" } });
        let response = request(&mut server, "tools/call", greet, start).expect("a response");
        assert_eq!(response["result"]["content"][0]["text"], json!("Hello, Bob!"));
        let late = start + Duration::from_secs(9);
        // Without a token there is no progress.
        assert_eq!(server.take_due_steps(late), [""; 0]);
        assert_eq!(server.take_due_steps(late), [""; 0]);
        let result = json!({ "content": [{ "type": "text", "text": "Lift-off!" }] });
        assert_eq!(server.take_due_steps(late), [response_line("\"tools/call\"", Ok(result))]);
        assert!(server.slow_calls.is_empty());
    }

    #[test]
    fn cancelled_call_is_never_answered() {
        let (mut server, start) = server("2025-11-25");
        let late = start + Duration::from_hours(1);
        let cancel = |server: &mut Server, id: &str| {
            let params = json!({ "requestId": id });
            let line = json!({ "method": "notifications/cancelled", "params": params }).to_string();
            assert_eq!(server.handle_line(line.as_bytes(), start), None);
        };
        assert_eq!(request(&mut server, "tools/call", countdown(0), start), None);
        cancel(&mut server, "another");
        assert_eq!(server.slow_calls.len(), 1);
        cancel(&mut server, "tools/call");
        assert_eq!(server.take_due_steps(late), [""; 0]);
    }

    #[test]
    fn too_many_slow_calls_are_a_tool_error() {
        let (mut server, start) = server("2025-11-25");
        for _ in 0..MAX_SLOW_CALLS {
            assert_eq!(request(&mut server, "tools/call", countdown(1), start), None);
        }
        let response = request(&mut server, "tools/call", countdown(1), start).expect("a response");
        assert_eq!(response["result"]["isError"], json!(true));
    }

    #[test]
    fn bad_request_does_not_affect_later_ones() {
        let (mut fresh, start) = (Server::default(), now());
        let response = fresh.handle_line(b"hello\n", start).expect("a response");
        assert!(response.contains("-32700"), "{response}");
        let check = |server: &mut Server, method: &str, params: Value, expected: i64| {
            let response = request(server, method, params, start).expect("a response");
            assert_eq!(response["error"]["code"], json!(expected), "{method} {response}");
        };
        let meta = |revision: &str, capabilities: Value| {
            json!({ "_meta": {
                "io.modelcontextprotocol/protocolVersion": revision,
                "io.modelcontextprotocol/clientCapabilities": capabilities,
            }})
        };
        check(&mut fresh, "tools/list", json!({}), RpcError::INVALID_PARAMS);
        check(&mut fresh, "tools/list", meta("2026-07-28", json!(1)), RpcError::INVALID_PARAMS);
        let unsupported = meta("2030-01-01", json!({}));
        check(&mut fresh, "tools/list", unsupported, RpcError::UNSUPPORTED_VERSION);
        check(&mut fresh, "ping", meta("2026-07-28", json!({})), RpcError::METHOD_NOT_FOUND);
        let pong = request(&mut fresh, "ping", json!({}), start).expect("a response");
        assert_eq!(pong["result"], json!({}));
        let (mut server, _) = server("2025-11-25");
        check(&mut server, "no/such", json!({}), RpcError::METHOD_NOT_FOUND);
        check(&mut server, "tools/call", json!({ "name": "none" }), RpcError::INVALID_PARAMS);
        check(&mut server, "prompts/get", json!({ "name": 3 }), RpcError::INVALID_PARAMS);
        let missing = json!({ "uri": "demo://none" });
        check(&mut server, "resources/read", missing, RpcError::RESOURCE_NOT_FOUND);
    }

    #[test]
    fn only_2025_03_26_has_batches() {
        let batch = br#"[{"id":1,"method":"ping"},{"method":"notifications/initialized"},{"id":"b","method":"ping"}]"#;
        let check = |revision: &str, expected: Option<Value>| {
            let (mut server, start) = server(revision);
            let response = server.handle_line(batch, start);
            let response = response.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
            assert_eq!(response, expected, "{revision}");
        };
        let pong = |id: Value| json!({ "jsonrpc": "2.0", "id": id, "result": {} });
        let error = json!({ "code": RpcError::PARSE_ERROR, "message": "the line is no message" });
        check("2024-11-05", None);
        check("2025-03-26", Some(json!([pong(json!(1)), pong(json!("b"))])));
        check("2025-06-18", None);
        check("2025-11-25", Some(json!({ "jsonrpc": "2.0", "error": error })));
    }

    #[test]
    fn serve_ends_with_the_client() {
        /// Refuses everything.
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let ping = &b"{\"id\":1,\"method\":\"ping\"}\n"[..];
        serve(ping, Vec::new()).expect("the input ends");
        serve(ping.chain(ping), Closed).expect("a closed output is not an error");
        let endless = io::BufReader::new(io::repeat(b'x'));
        let error = serve(endless, Vec::new()).expect_err("a line without an end");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
