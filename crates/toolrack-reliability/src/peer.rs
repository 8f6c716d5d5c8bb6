//! Scripted server over stdio and the requests that gates send to it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolrack_stdio::{McpServerDef, StdioClientTransport, StdioOptions};
use toolrack_testkit::Marker;
use toolrack_transport::{
    CloseReason, IncomingHandler, JsonRpcError, OnCancel, OutgoingRequest, RawJson, RequestError,
    RequestId, RequestTimeout, Transport, TransportError,
};

use crate::process;

/// Servers left behind by a failed gate exit by themselves after this time.
const LIFETIME: &str = "90s";

/// Start definition of a scripted server.
#[derive(Debug, Clone)]
pub(crate) struct ServerScript {
    definition: McpServerDef,
}

/// A transport and its incoming messages.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) transport: Arc<StdioClientTransport>,
    incoming: Arc<IncomingCounter>,
}

/// Answers pings, counts notifications, and reports the close.
#[derive(Debug, Default)]
struct IncomingCounter {
    transport: OnceLock<Weak<StdioClientTransport>>,
    n_notifications: AtomicU64,
    ended: CancellationToken,
}

impl ServerScript {
    /// `marker` goes into the environment, and so to every child process.
    pub(crate) fn new(marker: &str, args: &[&str]) -> io::Result<Self> {
        let program = process::scripted_server()?;
        let args = ["--lifetime", LIFETIME].iter().chain(args);
        let mut definition = McpServerDef {
            command: program.to_string_lossy().into_owned(),
            args: args.map(|arg| (*arg).to_owned()).collect(),
            ..McpServerDef::default()
        };
        definition.env.insert(Marker::VARIABLE.to_owned(), marker.to_owned());
        Ok(Self { definition })
    }

    /// Starts the server, with this program as its guardian.
    pub(crate) async fn open(&self) -> Result<Peer, TransportError> {
        let incoming = Arc::new(IncomingCounter::default());
        let handler: Arc<dyn IncomingHandler> = Arc::<IncomingCounter>::clone(&incoming);
        let transport =
            StdioClientTransport::spawn(&self.definition, StdioOptions::default(), handler).await?;
        let transport = Arc::new(transport);
        incoming.transport.get_or_init(|| Arc::downgrade(&transport));
        Ok(Peer { transport, incoming })
    }

    /// Starts the server and initializes the session.
    pub(crate) async fn connect(&self, call_timeout: Duration) -> Result<Peer, TransportError> {
        let peer = self.open().await?;
        peer.initialize(call_timeout).await?;
        Ok(peer)
    }
}

impl Peer {
    /// Handshake of revision 2025-11-25.
    pub(crate) async fn initialize(&self, call_timeout: Duration) -> Result<(), RequestError> {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "toolrack-reliability", "version": env!("CARGO_PKG_VERSION") },
        });
        self.send("initialize", params, call_timeout, OnCancel::Silent).await?;
        self.transport.notify("notifications/initialized", &None::<()>).await
    }

    /// Sends a request. Cancels it when the caller drops the future.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: impl Serialize + Sync,
        call_timeout: Duration,
    ) -> Result<RawJson, RequestError> {
        self.send(method, params, call_timeout, OnCancel::Notify).await
    }

    async fn send(
        &self,
        method: &str,
        params: impl Serialize + Sync,
        call_timeout: Duration,
        on_cancel: OnCancel,
    ) -> Result<RawJson, RequestError> {
        let timeout = RequestTimeout::fixed(call_timeout);
        let outgoing = OutgoingRequest { method, params: &Some(params), timeout, on_cancel };
        self.transport.request(outgoing).await
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
        call_timeout: Duration,
    ) -> Result<RawJson, RequestError> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", params, call_timeout).await
    }

    /// Calls `echo` with a text and a nonce.
    pub(crate) async fn echo(
        &self,
        text: &str,
        nonce: &str,
        call_timeout: Duration,
    ) -> Result<RawJson, RequestError> {
        self.call("echo", json!({ "text": text, "nonce": nonce }), call_timeout).await
    }

    pub(crate) fn n_notifications(&self) -> u64 {
        self.incoming.n_notifications.load(Ordering::Relaxed)
    }

    /// Waits until the transport is closed.
    pub(crate) async fn ended(&self) {
        self.incoming.ended.cancelled().await;
    }
}

/// Texts of a tool result; `None` if it is not one.
pub(crate) fn texts(result: &RawJson) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct CallResult {
        content: Vec<Block>,
    }
    #[derive(Deserialize)]
    struct Block {
        text: String,
    }
    let CallResult { content } = result.decode().ok()?;
    Some(content.into_iter().map(|block| block.text).collect())
}

impl IncomingHandler for IncomingCounter {
    /// A response that does not fit into the write queue is dropped.
    fn on_request(&self, id: RequestId, method: &str, _params: Option<RawJson>) {
        let Some(transport) = self.transport.get().and_then(Weak::upgrade) else { return };
        let sent = if method == "ping" {
            let empty: Result<&RawValue, _> = serde_json::from_str("{}");
            empty.map_or(Ok(()), |empty| transport.respond(&id, Ok(empty)))
        } else {
            transport.respond(&id, Err(&JsonRpcError::new(-32601, "not offered here")))
        };
        sent.unwrap_or_default();
    }

    fn on_notification(&self, _method: &str, _params: Option<RawJson>) {
        self.n_notifications.fetch_add(1, Ordering::Relaxed);
    }

    fn on_close(&self, _ending: &CloseReason) {
        self.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(result: &'static str, expected: Option<&[&str]>) {
        let expected =
            expected.map(|expected| expected.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(texts(&RawJson::new(result)), expected, "{result}");
    }

    #[test]
    fn result_texts_are_parsed() {
        check(
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"7"}]}"#,
            Some(&["a", "7"]),
        );
        check(r#"{"content":[]}"#, Some(&[]));
        check("null", None);
        check(r#"{"content":[{"type":"image"}]}"#, None);
    }
}
