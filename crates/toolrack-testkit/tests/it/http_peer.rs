//! MCP client over HTTP for these tests, for both eras.

use std::io;

use serde_json::{Value, json};
use toolrack_testkit::{HttpServer, HttpServerKind};

use crate::http_client::{Event, Head, Http};

/// A server and a client of it.
pub(crate) struct HttpPeer {
    pub(crate) server: HttpServer,
    pub(crate) revision: &'static str,
    pub(crate) session: Option<String>,
    next_id: u64,
    pub(crate) sent_requests: Vec<(Value, String)>,
    pub(crate) received: Vec<Value>,
}

/// Everything received for one request.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) messages: Vec<Value>,
}

impl HttpPeer {
    pub(crate) fn modern(args: &[&str]) -> Self {
        Self::start(&[&["--shape", "stateless"], args].concat(), "2026-07-28")
    }

    /// With an initialized session.
    pub(crate) fn legacy(args: &[&str]) -> Self {
        let mut peer = Self::start(args, "2025-11-25");
        peer.initialize();
        peer
    }

    pub(crate) fn start(args: &[&str], revision: &'static str) -> Self {
        let server = HttpServer::start(HttpServerKind::scripted(args)).expect("the server starts");
        Self::new(server, revision)
    }

    pub(crate) fn new(server: HttpServer, revision: &'static str) -> Self {
        let (sent_requests, received) = (Vec::new(), Vec::new());
        Self { server, revision, session: None, next_id: 1, sent_requests, received }
    }

    pub(crate) fn initialize(&mut self) -> HttpReply {
        self.session = None;
        let info = json!({ "name": "it", "version": "1" });
        let params =
            json!({ "protocolVersion": self.revision, "capabilities": {}, "clientInfo": info });
        let reply = self.request("initialize", params);
        self.session = reply.head.header("mcp-session-id").map(str::to_owned);
        let call_text =
            self.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(call_text.head.status, 202, "{reply:?} was followed by {call_text:?}");
        reply
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> HttpReply {
        let request = self.build_request(method, params);
        self.post(&request)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> HttpReply {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Posts a message on a new connection and reads the whole response.
    pub(crate) fn post(&mut self, message: &Value) -> HttpReply {
        let reply = self.try_post(message).expect("a reply");
        self.received.extend(reply.messages.clone());
        reply
    }

    pub(crate) fn try_post(&self, message: &Value) -> io::Result<HttpReply> {
        let mut http = self.begin(message)?;
        read_reply(&mut http)
    }

    /// Posts a message without reading the response.
    pub(crate) fn begin(&self, message: &Value) -> io::Result<Http> {
        let mut http = self.connect();
        let headers = self.headers(message);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (*a, b.as_str())).collect();
        http.send("POST", "/mcp", &headers, message.to_string().as_bytes())?;
        Ok(http)
    }

    /// Opens the GET stream, or resumes one.
    pub(crate) fn listen(&self, last_event: Option<&str>) -> (Http, Head) {
        let mut http = self.connect();
        let mut headers =
            vec![("accept", "text/event-stream"), ("mcp-protocol-version", self.revision)];
        headers.extend(self.session.as_deref().map(|session| ("mcp-session-id", session)));
        headers.extend(last_event.map(|last_event| ("last-event-id", last_event)));
        http.send("GET", "/mcp", &headers, b"").expect("sent");
        let head = http.head().expect("a head");
        (http, head)
    }

    pub(crate) fn delete(&self) -> Head {
        let mut http = self.connect();
        let session = self.session.clone().unwrap_or_default();
        let headers =
            [("mcp-session-id", session.as_str()), ("mcp-protocol-version", self.revision)];
        http.send("DELETE", "/mcp", &headers, b"").expect("sent");
        http.head().expect("a head")
    }

    pub(crate) fn connect(&self) -> Http {
        Http::connect(self.server.address()).expect("the server listens")
    }

    pub(crate) fn build_request(&mut self, method: &str, mut params: Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.sent_requests.push((id.clone(), method.to_owned()));
        if self.revision == "2026-07-28" {
            let meta = params.get("_meta").cloned().unwrap_or_else(|| json!({}));
            params["_meta"] = meta;
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "roots": {} });
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    pub(crate) fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
        ];
        let method = message["method"].as_str().unwrap_or_default();
        if method != "initialize" {
            headers.push(("mcp-protocol-version", self.revision.to_owned()));
        }
        if self.revision == "2026-07-28" {
            headers.push(("mcp-method", method.to_owned()));
            let name = message["params"].get("name").or_else(|| message["params"].get("uri"));
            if let Some(Value::String(name)) = name {
                headers.push(("mcp-name", name.clone()));
            }
        }
        headers.extend(self.session.clone().map(|session| ("mcp-session-id", session)));
        headers
    }
}

impl HttpReply {
    /// The last message, which is the response where there is one.
    pub(crate) fn response(&self) -> &Value {
        self.messages.last().unwrap_or(&Value::Null)
    }

    pub(crate) fn text(&self) -> &str {
        let text = self.response().pointer("/result/content/0/text");
        text.and_then(Value::as_str).unwrap_or_else(|| panic!("no text: {self:?}"))
    }

    pub(crate) fn code(&self) -> Option<i64> {
        self.response().pointer("/error/code").and_then(Value::as_i64)
    }
}

/// Reads a whole response of any form.
pub(crate) fn read_reply(http: &mut Http) -> io::Result<HttpReply> {
    let head = http.head()?;
    let mut messages = Vec::new();
    if !head.is_stream() {
        let body = http.body(&head)?;
        messages.extend(serde_json::from_slice(&body).ok());
        return Ok(HttpReply { head, body, messages });
    }
    while let Some(event) = http.event()? {
        messages.extend(message_of(&event));
    }
    Ok(HttpReply { head, body: Vec::new(), messages })
}

pub(crate) fn message_of(event: &Event) -> Option<Value> {
    serde_json::from_str(&event.data.join("\n")).ok()
}
