//! Handshake: opens transports and sends `server/discover` and `initialize`.
//!
//! [`VersionDetection`] decides the next step; this file performs it.
//!
//! **Invariant:** `initialize` and the probe are never cancelled. An aborted attempt can still close the
//! transport, because [`Handshake`] owns it until the version is negotiated.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};
use toolrack_mcp::{
    DiscoverParams, EmptyResult, Era, InitializeParams, InitializeResult, Method, Request,
    Revision, TASKS_EXTENSION,
};
use toolrack_transport::{
    NoParams, OnCancel, OutgoingRequest, ProtocolMode, RequestError, RequestTimeout, Transport,
    TransportError, TransportKind, TransportStats,
};

use crate::builder::ClientBuilder;
use crate::connect::ConnectStep;
use crate::connector::Connector;
use crate::error::{CallError, ConnectError, NotMcp};
use crate::incoming::{IncomingRouter, ProtocolPhase};
use crate::request_meta::{MetaTemplate, PerRequestMeta, RequestWithMeta};
use crate::session::{ServerInfo, decode, respond};
use crate::version_detection::{ProbeTimeout, Reply, Step, TransportChoice, VersionDetection};

/// Number of stdout lines without a single message after which a program counts as not MCP.
const MAX_NOISE_LINES: u64 = 1_000;
/// Interval between counts, after the first such line.
const NOISE_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Probe timeout behind a launcher, which may have to install the server first.
const LAUNCHER_PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// An open transport and the router of its incoming messages.
pub(crate) struct OpenTransport {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) incoming: Arc<IncomingRouter>,
}

impl OpenTransport {
    pub(crate) async fn new(
        options: &ClientBuilder,
        connector: &dyn Connector,
    ) -> Result<Self, ConnectError> {
        options.report_step(ConnectStep::Opening);
        let incoming = Arc::new(IncomingRouter::new(&options.name, options.handler.clone()));
        let handler = Arc::clone(&incoming) as Arc<dyn toolrack_transport::IncomingHandler>;
        let transport = connector.open(handler).await.map_err(ConnectError::Transport)?;
        // The transport needs the router to open, so the router learns its transport only now.
        incoming.transport.get_or_init(|| Arc::downgrade(&transport));
        options.report_step(ConnectStep::Handshake);
        Ok(Self { transport, incoming })
    }
}

/// Result of a successful handshake.
pub(crate) struct Negotiated {
    pub(crate) revision: Revision,
    pub(crate) meta: MetaTemplate,
    pub(crate) server: ServerInfo,
}

/// One handshake in progress.
pub(crate) struct Handshake<'a> {
    options: &'a ClientBuilder,
    connector: &'a dyn Connector,
    deadline: Instant,
    /// Current transport.
    pub(crate) open: OpenTransport,
    /// Method of the last request.
    pub(crate) last_method: Method,
    detection: VersionDetection,
    server: ServerInfo,
    /// Error of the last request that failed.
    failed: Option<CallError>,
    /// Error response to `initialize`. It tells more than a failed second probe.
    initialize_error: Option<CallError>,
}

/// Why a handshake stopped; the transport is not closed yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// A final error.
    #[error(transparent)]
    Final(#[from] ConnectError),
    /// A request failed. Its meaning depends on why the transport closes.
    #[error(transparent)]
    Request(#[from] CallError),
}

/// The error of a handshake request.
fn request_error(method: Method, failure: RequestError, kind: TransportKind) -> CallError {
    match failure.error {
        TransportError::Parse(_) | TransportError::Oversize { .. } => {
            CallError::unexpected(method, failure.to_string())
        }
        // A server that does not read its stdin fills the queue; that is as silent as no response.
        TransportError::QueueFull { .. } if kind == TransportKind::Stream => {
            CallError::TimedOut { waited: Duration::ZERO, delivery: failure.delivery }
        }
        _ => CallError::from(failure),
    }
}

/// Classifies an error for version detection. On a stream, silence and a closed pipe may come from a server that
/// does not know the probe; over HTTP they only say that the server is unavailable.
fn failed_reply<T>(error: &CallError, kind: TransportKind) -> Reply<'_, T> {
    match error {
        CallError::Refused(error) => Reply::Error(error),
        CallError::Undecodable { .. } => Reply::Malformed,
        CallError::TimedOut { .. } if kind == TransportKind::Stream => Reply::TimedOut,
        _ if kind == TransportKind::Stream => Reply::Closed,
        CallError::Transport(RequestError {
            error: TransportError::Status { code, .. }, ..
        }) if is_about_request(*code) => Reply::Malformed,
        _ => Reply::Unavailable,
    }
}

/// Protocol facts §5.2: HTTP statuses that are about the request. The others mean overload, outage or
/// missing credentials.
fn is_about_request(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 401 | 403 | 407 | 408 | 425 | 429)
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(
        options: &'a ClientBuilder,
        connector: &'a dyn Connector,
        deadline: Instant,
        open: OpenTransport,
    ) -> Self {
        let detection = VersionDetection::new(options.era, options.known_version);
        let detection = match connector.launcher() {
            Some(_) => detection.with_launcher(),
            None => detection,
        };
        Self {
            options,
            connector,
            deadline,
            open,
            last_method: Method::Discover,
            detection,
            server: ServerInfo::default(),
            failed: None,
            initialize_error: None,
        }
    }

    /// Performs steps until the version is negotiated or there is nothing left to try.
    pub(crate) async fn run(&mut self) -> Result<Negotiated, HandshakeError> {
        let mut step = self.detection.first_step();
        loop {
            step = match step {
                Step::Probe { revision, transport, wait } => {
                    self.select_transport(transport).await?;
                    self.probe(revision, wait).await?
                }
                Step::Initialize { revision, transport } => {
                    self.select_transport(transport).await?;
                    self.initialize(revision).await?
                }
                Step::Done(revision) => return self.finish(revision).await,
                Step::Unsupported(theirs) => {
                    return Err(ConnectError::UnsupportedVersion { theirs }.into());
                }
                Step::Fail => return Err(self.take_error()),
            };
        }
    }

    /// The old transport stays in `self` until it has closed, so that a timeout in between still closes it.
    async fn select_transport(&mut self, choice: TransportChoice) -> Result<(), HandshakeError> {
        if choice == TransportChoice::New {
            self.open.transport.close().await;
            self.open = OpenTransport::new(self.options, self.connector).await?;
        }
        Ok(())
    }

    async fn probe(
        &mut self,
        revision: Revision,
        wait: ProbeTimeout,
    ) -> Result<Step, HandshakeError> {
        let meta = self.meta(revision)?;
        // Leave time for `initialize` on a server that ignores the probe.
        let max_wait = self.options.timeouts.startup / 3;
        let wait = match (wait, self.open.transport.kind(), self.connector.launcher()) {
            // Over HTTP, a probe timeout is never followed by `initialize`, so no time is kept back.
            (ProbeTimeout::Long, _, _) | (_, TransportKind::RequestResponse, _) => self.remaining(),
            (ProbeTimeout::Short, _, None) => self.options.timeouts.probe.min(max_wait),
            (ProbeTimeout::Short, _, Some(_)) => {
                self.options.timeouts.probe.max(LAUNCHER_PROBE_TIMEOUT).min(max_wait)
            }
        };
        // Before the request: a message that arrives with the response must already find
        // the new phase.
        self.set_phase(ProtocolPhase::Probing, ProtocolMode::Stateless(revision.as_str()));
        Ok(match self.request(&DiscoverParams {}, &meta, wait).await? {
            Ok(result) => {
                self.server = ServerInfo {
                    implementation: result.server_info().cloned(),
                    capabilities: result.capabilities,
                    instructions: result.instructions,
                };
                self.detection.on_discover(Reply::Ok(&result.supported_versions))
            }
            Err(error) => {
                let step =
                    self.detection.on_discover(failed_reply(&error, self.open.transport.kind()));
                self.failed = Some(error);
                step
            }
        })
    }

    async fn initialize(&mut self, revision: Revision) -> Result<Step, HandshakeError> {
        let params = InitializeParams {
            revision,
            capabilities: &self.options.capabilities,
            client: &self.options.client,
        };
        self.set_phase(ProtocolPhase::Legacy, ProtocolMode::Initialize);
        // The last quarter is for a second `initialize`: by then the launcher has installed the server.
        let wait = if self.detection.may_initialize_again {
            self.remaining() / 4 * 3
        } else {
            self.remaining()
        };
        let wait = wait.min(self.options.timeouts.call);
        Ok(match self.request(&params, &MetaTemplate::default(), wait).await? {
            Ok(InitializeResult { server, capabilities, instructions, protocol_version }) => {
                self.server = ServerInfo { implementation: server, capabilities, instructions };
                self.detection.on_initialize(revision, Reply::Ok(&protocol_version))
            }
            Err(error) => {
                let reply = failed_reply(&error, self.open.transport.kind());
                let step = self.detection.on_initialize(revision, reply);
                // An error response is kept apart from `failed`, which a second probe overwrites.
                match error {
                    CallError::Refused(_) => self.initialize_error = Some(error),
                    _ => self.failed = Some(error),
                }
                step
            }
        })
    }

    /// Spec 2025-11-25, lifecycle §Initialization: `initialized` follows the response, before any other message.
    async fn finish(&mut self, revision: Revision) -> Result<Negotiated, HandshakeError> {
        let meta = match revision.era() {
            Era::Modern => {
                self.set_phase(ProtocolPhase::Modern, ProtocolMode::Stateless(revision.as_str()));
                self.meta(revision)?
            }
            Era::Legacy => {
                self.set_phase(ProtocolPhase::Legacy, ProtocolMode::Session(revision.as_str()));
                let initialized = Method::Initialized.as_str();
                let sent = self.open.transport.notify(initialized, &NoParams).await;
                sent.map_err(CallError::Transport)?;
                MetaTemplate::default()
            }
        };
        Ok(Negotiated { revision, meta, server: std::mem::take(&mut self.server) })
    }

    /// Sends one request and watches for proof that the program is not an MCP server.
    async fn request<P: Request + Sync>(
        &mut self,
        params: &P,
        meta: &MetaTemplate,
        wait: Duration,
    ) -> Result<Result<P::Result, CallError>, HandshakeError> {
        self.last_method = P::METHOD;
        let OpenTransport { transport, incoming } = &self.open;
        let params = RequestWithMeta { template: meta, params, meta: PerRequestMeta::default() };
        let request = transport.request(OutgoingRequest {
            method: P::METHOD.as_str(),
            params: &params,
            timeout: RequestTimeout::fixed(wait),
            // Spec 2025-11-25, cancellation: `initialize` must not be cancelled. A server that does not
            // know the probe does not know its cancellation either.
            on_cancel: OnCancel::Silent,
        });
        // A response in the same poll wins over the proof.
        let outcome = tokio::select! {
            biased;
            outcome = request => outcome,
            proof = detect_non_server(&**transport, incoming) => return Err(proof.into()),
        };
        Ok(match outcome {
            Ok(raw) => decode::<P>(&raw),
            Err(failure) => Err(request_error(P::METHOD, failure, transport.kind())),
        })
    }

    fn meta(&self, revision: Revision) -> Result<MetaTemplate, HandshakeError> {
        let serialize_error = |error| ConnectError::Transport(TransportError::Serialize(error));
        let mut capabilities = Cow::Borrowed(&self.options.capabilities);
        // Spec 2026-07-28, extensions: declare the extension only to a server that has it.
        if self.server.capabilities.extensions.contains_key(TASKS_EXTENSION) {
            let no_settings = RawValue::from_string("{}".to_owned()).map_err(serialize_error)?;
            capabilities.to_mut().extensions.insert(TASKS_EXTENSION.to_owned(), no_settings);
        }
        let template = MetaTemplate::for_modern(revision, &self.options.client, &capabilities);
        Ok(template.map_err(serialize_error)?)
    }

    fn set_phase(&self, phase: ProtocolPhase, mode: ProtocolMode) {
        self.open.incoming.set_phase(phase);
        self.open.transport.set_protocol_mode(mode);
    }

    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn take_error(&mut self) -> HandshakeError {
        let refused = self.initialize_error.take();
        if refused.is_some() {
            self.last_method = Method::Initialize;
        }
        let closed = || CallError::Transport(RequestError::not_sent(TransportError::Shutdown));
        refused.or(self.failed.take()).unwrap_or_else(closed).into()
    }
}

/// Answers pings until the program proves not to be an MCP server: by an echo, or by endless text.
async fn detect_non_server(transport: &dyn Transport, incoming: &IncomingRouter) -> ConnectError {
    loop {
        if incoming.saw_echo.load(Ordering::Acquire) {
            return ConnectError::NotMcp(NotMcp::Echo);
        }
        // Spec 2025-11-25, lifecycle: `ping` is the one request that a server may
        // send before `initialized`.
        for id in incoming.take_pings() {
            respond(transport, &id, Ok(EmptyResult {}));
        }
        // The transport reports only the first few unreadable lines and counts the rest, so poll the counter.
        if incoming.saw_noise.load(Ordering::Acquire) {
            if let Some(error) = noise_error(&transport.stats(), MAX_NOISE_LINES) {
                return error;
            }
            tokio::select! {
                () = incoming.wakeup.notified() => {}
                () = sleep(NOISE_CHECK_INTERVAL) => {}
            }
        } else {
            incoming.wakeup.notified().await;
        }
    }
}

/// The error for a program that wrote at least `min_lines` lines and no message.
pub(crate) fn noise_error(stats: &TransportStats, min_lines: u64) -> Option<ConnectError> {
    // A server that prints a banner and then speaks MCP is fine, so one message
    // outweighs any noise.
    if stats.messages > 0 || stats.unreadable < min_lines {
        return None;
    }
    let sample = stats.sample.clone().unwrap_or_default();
    Some(ConnectError::NotMcp(NotMcp::Noise { sample }))
}

#[cfg(test)]
mod tests {
    use toolrack_transport::AuthError;

    use super::*;

    #[track_caller]
    fn check(error: TransportError, stream: &str, exchange: &str) {
        // `TransportError` is not `Clone`, and each one is classified twice.
        let copy = match &error {
            TransportError::Status { code, text } => {
                TransportError::Status { code: *code, text: text.clone() }
            }
            TransportError::Timeout(ms) => TransportError::Timeout(*ms),
            TransportError::Unauthorized(auth) => TransportError::Unauthorized(auth.clone()),
            TransportError::Parse(text) => TransportError::Parse(text.clone()),
            _ => TransportError::StdoutNotAvailable,
        };
        let text = format!("{error:?}");
        let name = |error: TransportError, kind| {
            let error = request_error(Method::Discover, RequestError::unknown(error), kind);
            match failed_reply::<()>(&error, kind) {
                Reply::Ok(()) => "ok",
                Reply::Malformed => "malformed",
                Reply::Error(_) => "error",
                Reply::TimedOut => "timed out",
                Reply::Closed => "closed",
                Reply::Unavailable => "unavailable",
            }
        };
        let classified =
            [name(error, TransportKind::Stream), name(copy, TransportKind::RequestResponse)];
        assert_eq!(classified, [stream, exchange], "{text}");
    }

    /// Protocol facts §5.2: an outage or missing credentials say nothing about the era.
    #[test]
    fn only_request_errors_decide_the_era() {
        check(TransportError::Timeout(5), "timed out", "unavailable");
        check(TransportError::StdoutNotAvailable, "closed", "unavailable");
        check(TransportError::Parse("no".to_owned()), "malformed", "malformed");
        let locked = AuthError::LoginRequired { reason: String::new() };
        check(TransportError::Unauthorized(locked), "closed", "unavailable");
        for code in [400, 404, 405, 406, 415, 422] {
            check(TransportError::Status { code, text: String::new() }, "closed", "malformed");
        }
        for code in [301, 401, 403, 408, 429, 500, 502, 503, 504] {
            check(TransportError::Status { code, text: String::new() }, "closed", "unavailable");
        }
    }
}
