//! The scripted server at the other end of a line, and the few things that are said to it.

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
    CloseReason, IncomingHandler, OnCancel, OutgoingRequest, RequestError, RequestTimeout,
    Transport, TransportError,
};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

use crate::process;

/// A server left behind by a gate that failed ends by itself after this.
const LIFETIME: &str = "90s";

/// How a server of ours is started.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    definition: McpServerDef,
}

/// A line and what came in on it unasked.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) line: Arc<StdioClientTransport>,
    inbox: Arc<Porter>,
}

/// Answers pings, counts notifications, notes the end.
#[derive(Debug, Default)]
struct Porter {
    line: OnceLock<Weak<StdioClientTransport>>,
    n_notifications: AtomicU64,
    ended: CancellationToken,
}

impl Script {
    /// A server that carries `marker` in its environment, as everything it starts does.
    pub(crate) fn new(marker: &str, args: &[&str]) -> io::Result<Self> {
        let program = process::scripted_server()?;
        let args = ["--lifetime", LIFETIME].iter().chain(args);
        let mut definition = McpServerDef {
            command: program.to_string_lossy().into_owned(),
            args: args.map(|args| (*args).to_owned()).collect(),
            ..McpServerDef::default()
        };
        definition.env.insert(Marker::VARIABLE.to_owned(), marker.to_owned());
        Ok(Self { definition })
    }

    /// Starts the server, with this very program as its guardian.
    pub(crate) async fn open(&self) -> Result<Peer, TransportError> {
        let inbox = Arc::new(Porter::default());
        let heard: Arc<dyn IncomingHandler> = Arc::<Porter>::clone(&inbox);
        let line =
            StdioClientTransport::spawn(&self.definition, StdioOptions::default(), heard).await?;
        let line = Arc::new(line);
        inbox.line.get_or_init(|| Arc::downgrade(&line));
        Ok(Peer { line, inbox })
    }

    /// Starts the server and introduces itself.
    pub(crate) async fn meet(&self, patience: Duration) -> Result<Peer, TransportError> {
        let peer = self.open().await?;
        peer.greet(patience).await?;
        Ok(peer)
    }
}

impl Peer {
    /// The handshake of the 2025-11-25 revision.
    pub(crate) async fn greet(&self, patience: Duration) -> Result<(), RequestError> {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "toolrack-reliability", "version": env!("CARGO_PKG_VERSION") },
        });
        let outgoing = OutgoingRequest {
            method: "initialize",
            params: &Some(params),
            timeout: RequestTimeout::fixed(patience),
            on_cancel: OnCancel::Silent,
        };
        self.line.request(outgoing).await?;
        self.line.notify("notifications/initialized", &None::<()>).await
    }

    /// Asks for anything, and cancels when nobody waits any more.
    pub(crate) async fn ask(
        &self,
        method: &str,
        params: impl Serialize + Sync,
        patience: Duration,
    ) -> Result<RawJson, RequestError> {
        let outgoing = OutgoingRequest {
            method,
            params: &Some(params),
            timeout: RequestTimeout::fixed(patience),
            on_cancel: OnCancel::Notify,
        };
        self.line.request(outgoing).await
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
        patience: Duration,
    ) -> Result<RawJson, RequestError> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.ask("tools/call", params, patience).await
    }

    /// Has a text and a nonce sent back.
    pub(crate) async fn echo(
        &self,
        text: &str,
        nonce: &str,
        patience: Duration,
    ) -> Result<RawJson, RequestError> {
        let params = EchoParams { name: "echo", arguments: EchoArguments { text, nonce } };
        self.ask("tools/call", params, patience).await
    }

    pub(crate) fn n_notifications(&self) -> u64 {
        self.inbox.n_notifications.load(Ordering::Relaxed)
    }

    /// Waits until the line has ended.
    pub(crate) async fn ended(&self) {
        self.inbox.ended.cancelled().await;
    }
}

#[derive(Serialize)]
struct EchoParams<'a> {
    name: &'static str,
    arguments: EchoArguments<'a>,
}

#[derive(Serialize)]
struct EchoArguments<'a> {
    text: &'a str,
    nonce: &'a str,
}

/// The texts of a tool's result, or nothing if it is none.
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
    Some(content.into_iter().map(|content| content.text).collect())
}

impl IncomingHandler for Porter {
    /// A server that asks more than the line takes goes without an answer.
    fn on_request(&self, id: RequestId, method: &str, _params: Option<RawJson>) {
        let Some(line) = self.line.get().and_then(Weak::upgrade) else { return };
        let told = if method == "ping" {
            let nothing: Result<&RawValue, _> = serde_json::from_str("{}");
            nothing.map_or(Ok(()), |nothing| line.respond(&id, Ok(nothing)))
        } else {
            line.respond(&id, Err(&JsonRpcError::new(-32601, "not offered here")))
        };
        told.unwrap_or_default();
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
    fn the_texts_of_a_result_are_read() {
        check(
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"7"}]}"#,
            Some(&["a", "7"]),
        );
        check(r#"{"content":[]}"#, Some(&[]));
        check("null", None);
        check(r#"{"content":[{"type":"image"}]}"#, None);
    }
}
