//! Fixture: a transport with a recording handler, and helpers to send requests and wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use toolrack_http::{HttpOptions, HttpServerDef, HttpTransport};
use toolrack_testkit::eventually_async;
use toolrack_transport::{
    CloseReason, Delivery, IncomingHandler, OnCancel, OutgoingRequest, ProtocolMode, RequestError,
    RequestTimeout, Transport, TransportError,
};
use toolrack_transport::{NoParams, Params, RawJson, RequestId};

use crate::server::{Reply, SeenRequest, Server};

pub(crate) const STATELESS: ProtocolMode = ProtocolMode::Stateless("2026-07-28");
pub(crate) const VERSION: &str = "2025-11-25";
/// Generous limit for a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Records unsolicited messages.
#[derive(Default)]
pub(crate) struct RecordingHandler(Mutex<Vec<String>>);

impl RecordingHandler {
    pub(crate) fn events(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn write(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

impl IncomingHandler for RecordingHandler {
    fn on_request(&self, id: RequestId, method: &str, _params: Option<RawJson>) {
        self.write(format!("request {id} {method}"));
    }

    fn on_related_request(
        &self,
        about: u64,
        id: RequestId,
        method: &str,
        _params: Option<RawJson>,
    ) {
        self.write(format!("request {id} {method} about {about}"));
    }

    fn on_notification(&self, method: &str, params: Option<RawJson>) {
        let params = params.map(|json| String::from_utf8_lossy(json.as_bytes()).into_owned());
        self.write(format!("notification {method} {}", params.unwrap_or_default()));
    }

    fn on_session_renewed(&self) {
        self.write("renewed".to_owned());
    }

    fn on_unreachable(&self, reason: &TransportError) {
        self.write(reason.to_string());
    }

    fn on_close(&self, ending: &CloseReason) {
        self.write(format!("ended: {ending}"));
    }
}

/// A transport and its handler.
pub(crate) struct Fixture {
    pub(crate) transport: HttpTransport,
    pub(crate) handler: Arc<RecordingHandler>,
}

impl Fixture {
    pub(crate) async fn open(url: &str, options: HttpOptions) -> Self {
        Self::open_definition(&HttpServerDef::new(url), options).await
    }

    pub(crate) async fn open_definition(definition: &HttpServerDef, options: HttpOptions) -> Self {
        let handler = Arc::new(RecordingHandler::default());
        let target = Arc::clone(&handler) as Arc<dyn IncomingHandler>;
        let transport = HttpTransport::open(definition, options, target).await.unwrap();
        Self { transport, handler }
    }

    /// A transport in the stateless protocol.
    pub(crate) async fn stateless(server: &Server) -> Self {
        let fixture = Self::open(&server.url, HttpOptions::default()).await;
        fixture.transport.set_protocol_mode(STATELESS);
        fixture
    }

    /// A transport with an open session.
    pub(crate) async fn with_session(server: &Server) -> Self {
        let fixture = Self::open(&server.url, HttpOptions::default()).await;
        fixture.initialize().await;
        fixture
    }

    pub(crate) async fn initialize(&self) {
        self.transport.set_protocol_mode(ProtocolMode::Initialize);
        self.request("initialize").await.unwrap();
        self.transport.set_protocol_mode(ProtocolMode::Session(VERSION));
        self.transport.notify("notifications/initialized", &NoParams).await.unwrap();
    }

    pub(crate) async fn request(&self, method: &str) -> Result<Value, RequestError> {
        self.request_with(method, &Some(json!({"x": 1})), SOON).await
    }

    pub(crate) async fn request_with(
        &self,
        method: &str,
        params: &dyn Params,
        patience: Duration,
    ) -> Result<Value, RequestError> {
        let patience = RequestTimeout::fixed(patience);
        let abandon = OnCancel::Notify;
        let outcome = self
            .transport
            .request(OutgoingRequest { method, params, timeout: patience, on_cancel: abandon })
            .await;
        outcome.map(|raw| raw.decode().unwrap())
    }

    /// Error text and delivery of a failed request.
    #[track_caller]
    pub(crate) fn failure(outcome: Result<Value, RequestError>) -> (String, Delivery) {
        let failure = outcome.expect_err("a failure");
        (failure.to_string(), failure.delivery)
    }
}

/// Tool call whose arguments are repeated in headers.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) param_headers: &'static [(&'static str, &'static str)],
}

impl Params for Call {
    fn write(&self, _id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(out, &json!({"name": self.name}))
    }

    fn target_name(&self) -> Option<&str> {
        Some(self.name)
    }

    fn header_params(&self, tell: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.param_headers {
            tell(name, value);
        }
    }
}

pub(crate) async fn wait_until(what: &str, mut fact: impl FnMut() -> bool) {
    eventually_async(SOON, what, sleep, async || fact()).await;
}

/// Reply of an ordinary 2025 server to the handshake, GET, DELETE and notifications.
pub(crate) fn default_reply(seen: &SeenRequest, http_session_id: &str) -> Option<Reply> {
    let answer = json!({"protocolVersion": VERSION, "capabilities": {}, "serverInfo": {}});
    Some(match seen.short().as_str() {
        "POST initialize" => Reply::result(seen, answer).header("mcp-session-id", http_session_id),
        "GET" => Reply::status(405),
        "DELETE" => Reply::status(200),
        notification if notification.starts_with("POST notifications/") => Reply::status(202),
        _ => return None,
    })
}
