//! Shared state of an MCP server, and its handling of messages: eras, handshake, dispatch and faults.
//!
//! **Invariant:** every response goes through `PendingRequest::respond`, so the plan can alter it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::child_process;
use super::client::{Client, MessageContext, PendingRequest, SlowCall};
use super::http::Sessions;
use super::input_requests::{AwaitingClient, InputRequest, ResultText};
use super::options::Options;
use crate::journal::{JournalEvent, JournalRecord, LineWriter};
use crate::jsonrpc::{self, Incoming, Params, Response, RpcError, RpcResult, error_code, insert};
use crate::message_sink::MessageSink;
use crate::plan::{Fault, Trigger};
use crate::revision::{Era, Revision, SupportedRevisions};
use crate::timer::Timer;

/// What a server offers: its tools, resources and prompts.
pub(crate) trait Content: fmt::Debug + Send + Sync {
    fn info(&self) -> ServerInfo;

    fn capabilities(&self, revision: Revision) -> Value;

    /// Kinds of changes that clients can subscribe to. A server without any has no log level either.
    fn change_kinds(&self) -> &'static [&'static str] {
        &[]
    }

    fn call_tool(&self, pending: &PendingRequest, params: &Params<'_>) -> ToolResult;

    /// Handles the lists and reads; every other method is unknown.
    fn read(&self, pending: &PendingRequest, method: &str, params: &Params<'_>) -> RpcResult;
}

pub(crate) type ToolResult = Result<ToolOutcome, RpcError>;

/// Outcome of a tool call.
pub(crate) enum ToolOutcome {
    Response(Response),
    /// The response comes later.
    Slow(SlowCall),
    /// The call waits for responses of a legacy client, which become the text of the result.
    Input(Vec<InputRequest>, ResultText),
}

impl From<Response> for ToolOutcome {
    fn from(response: Response) -> Self {
        Self::Response(response)
    }
}

/// How a server introduces itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerInfo {
    pub(crate) name: &'static str,
    pub(crate) title: Option<&'static str>,
    pub(crate) instructions: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(super) options: Options,
    pub(super) content: Box<dyn Content>,
    pub(super) timer: Timer,
    /// Receivers of unsolicited messages.
    pub(super) clients: Mutex<Vec<Arc<Client>>>,
    pub(super) sessions: Sessions,
    pub(super) flags: Flags,
    /// Responses that the plan holds back.
    pub(super) held: Mutex<Vec<(PendingRequest, Response)>>,
    pub(super) awaiting_client: Mutex<Vec<AwaitingClient>>,
    /// `_meta` of every modern result.
    pub(super) result_meta: String,
    journal: Option<LineWriter>,
    /// Occurrences of each trigger, in the order of `Trigger::ALL`.
    counts: [AtomicU64; Trigger::ALL.len()],
    n_calls: AtomicU64,
    n_client_requests: AtomicU64,
}

/// Permanent effects of faults.
#[derive(Debug, Default)]
pub(super) struct Flags {
    pub(super) stopped_reading: AtomicBool,
    pub(super) ignores_eof: AtomicBool,
    pub(super) prompting: AtomicBool,
}

impl Server {
    pub(super) fn new(options: Options, content: impl Content + 'static) -> io::Result<Arc<Self>> {
        let implementation = implementation(content.info(), None);
        Ok(Arc::new(Self {
            journal: options.journal.as_deref().map(LineWriter::open).transpose()?,
            options,
            timer: Timer::start(),
            clients: Mutex::default(),
            sessions: Sessions::default(),
            flags: Flags::default(),
            held: Mutex::default(),
            awaiting_client: Mutex::default(),
            result_meta: format!(
                r#","_meta":{{"io.modelcontextprotocol/serverInfo":{implementation}}}"#
            ),
            content: Box::new(content),
            counts: Default::default(),
            n_calls: AtomicU64::new(0),
            n_client_requests: AtomicU64::new(0),
        }))
    }

    pub(super) fn has_stopped_reading(&self) -> bool {
        self.flags.stopped_reading.load(Ordering::Relaxed)
    }

    /// Counts an occurrence of these triggers and returns their faults.
    pub(super) fn due_faults(&self, triggers: &[Trigger]) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.options.plan.is_empty() && self.options.mix.is_none() {
            return faults;
        }
        for trigger in triggers {
            let count = self.counts.get(*trigger as usize);
            let number = count.map_or(0, |count| count.fetch_add(1, Ordering::Relaxed)) + 1;
            faults.extend(self.options.plan.faults_at(*trigger, number).cloned());
            if let (Trigger::Call, Some(mix)) = (trigger, &self.options.mix) {
                faults.push(mix.pick(number).clone());
            }
        }
        faults
    }

    pub(super) fn cancel(&self, client: &Client, id: &str) {
        client.subscriptions.end_listen(id);
        let Some(call) = client.open.lock().remove(id) else { return };
        self.record(JournalEvent::Cancelled, call.call, call.nonce);
        for client_request in call.client_requests {
            let params = json!({ "requestId": client_request, "reason": "the call was cancelled" });
            client.sink.send(&jsonrpc::notification_line("notifications/cancelled", Some(&params)));
        }
        call.sink.finish();
    }

    /// Sends a request to the client. Ids count from 1, as those of many clients do.
    pub(super) fn request_client(
        &self,
        sink: &dyn MessageSink,
        method: &str,
        params: Option<&Value>,
    ) -> u64 {
        let id = self.n_client_requests.fetch_add(1, Ordering::Relaxed) + 1;
        let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        insert(&mut request, "params", params.cloned());
        sink.send(request.to_string().as_bytes());
        id
    }

    /// A program that prompts on its terminal reads messages as answers until a line is not JSON.
    fn is_prompt_answer(&self, line: &[u8]) -> bool {
        if !self.flags.prompting.load(Ordering::Relaxed) {
            return false;
        }
        if !line.starts_with(b"{") {
            self.flags.prompting.store(false, Ordering::Relaxed);
        }
        true
    }

    fn record(&self, event: JournalEvent, call: u64, nonce: Option<String>) {
        let Some(journal) = &self.journal else { return };
        let record = JournalRecord { event, nonce, call, pid: std::process::id() };
        if journal.write(&record).is_err() {
            // An incomplete journal proves nothing, so stop the run.
            child_process::exit(3);
        }
    }
}

impl MessageContext {
    pub(super) fn end_of_input(&self) {
        self.run_faults(Trigger::Eof);
        if self.server.flags.ignores_eof.load(Ordering::Relaxed) {
            child_process::sleep_then_exit(self.server.options.lifetime);
        }
    }

    /// Runs the faults of a trigger without a response.
    pub(super) fn run_faults(&self, trigger: Trigger) {
        self.apply_faults(&self.server.due_faults(&[trigger]));
        self.sink.flush();
    }

    /// Handles one line of input.
    pub(super) fn handle_line(&self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() || self.server.is_prompt_answer(line) {
            return;
        }
        self.apply_faults(&self.server.due_faults(&[Trigger::Message]));
        match serde_json::from_slice(line) {
            Ok(message) => self.handle_message(&message),
            // An error without an id is legal since 2025-11-25; older revisions have none.
            Err(_) if self.revision() >= Revision::R2025_11_25 => {
                let rpc_error = RpcError::new(error_code::PARSE_ERROR, "the line is no message");
                self.sink.send(&rpc_error.to_response_without_id());
            }
            Err(_) => (),
        }
    }

    /// Handles one message.
    pub(super) fn handle_message(&self, message: &Incoming<'_>) {
        match (&message.method, message.id) {
            (Some(method), Some(id)) => self.handle_request(id, method, message.params),
            (Some(method), None) => self.handle_notification(method, message.params),
            (None, Some(id)) => self.handle_response(id, message.result, message.error),
            (None, None) => (),
        }
    }

    fn handle_request(&self, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let parsed = Params::parse(params)
            .and_then(|params| Ok((self.revision_of(method, &params)?, params)));
        let faults = self.server.due_faults(triggers_for(method, self.server.options.revisions));
        let rejected = faults.iter().any(Fault::rejects_request);
        let mut pending = PendingRequest {
            context: self.clone(),
            id: id.get().to_owned(),
            revision: parsed.as_ref().map_or_else(|_| self.revision(), |(revision, _)| *revision),
            call: 0,
            nonce: None,
            faults: Vec::new(),
        };
        if let ("tools/call", Ok((_, params)), false) = (method, &parsed, rejected) {
            self.begin_call(&mut pending, params);
        }
        self.apply_faults(&faults);
        pending.faults = faults;
        match parsed {
            _ if rejected => pending.sink().finish(),
            Err(rpc_error) => {
                // Spec 2026-07-28, HTTP: a request without the required metadata is a bad request.
                if pending.era() == Era::Modern {
                    self.sink.set_status(400);
                }
                pending.respond(Response::Error(rpc_error));
            }
            Ok((_, params)) => self.serve(pending, method, &params),
        }
    }

    fn serve(&self, pending: PendingRequest, method: &str, params: &Params<'_>) {
        let content = &self.server.content;
        let subscriptions = &self.client.subscriptions;
        let has_changes = !content.change_kinds().is_empty();
        let response = match (method, pending.era()) {
            ("tools/call", _) => match content.call_tool(&pending, params) {
                Ok(ToolOutcome::Slow(slow)) => return pending.respond_slowly(slow),
                Ok(ToolOutcome::Input(requests, result_text)) => {
                    return pending.request_input(params.name(), requests, result_text);
                }
                Ok(ToolOutcome::Response(response)) => Ok(response),
                Err(rpc_error) => Err(rpc_error),
            },
            ("initialize", Era::Legacy) => Ok(self.initialize(&pending)),
            ("server/discover", Era::Modern) => Ok(self.discover(&pending)),
            ("ping", Era::Legacy) => Ok(Response::empty()),
            ("logging/setLevel", Era::Legacy) if has_changes => subscriptions.set_level(params),
            ("resources/subscribe", Era::Legacy) if has_changes => subscriptions.subscribe(params),
            ("resources/unsubscribe", Era::Legacy) if has_changes => {
                subscriptions.unsubscribe(params)
            }
            ("subscriptions/listen", Era::Modern) if has_changes => {
                return self.listen(pending, params);
            }
            _ => content.read(&pending, method, params),
        };
        pending.respond(response.into());
    }

    /// The plan may name another version than the negotiated one.
    fn initialize(&self, pending: &PendingRequest) -> Response {
        let revision = pending.revision;
        *self.client.negotiated.lock() = Some(revision);
        let info = self.server.content.info();
        let mut result = json!({
            "protocolVersion": pending.planned_version().unwrap_or(revision.as_str()),
            "capabilities": self.server.content.capabilities(revision),
            "serverInfo": implementation(info, Some(revision)),
        });
        insert(&mut result, "instructions", info.instructions.map(Value::from));
        Response::complete(&result)
    }

    fn discover(&self, pending: &PendingRequest) -> Response {
        let supported = || self.server.options.revisions.supported();
        let mut result = json!({
            "supportedVersions": pending.planned_version().map_or_else(supported, |one| vec![one]),
            "capabilities": self.server.content.capabilities(Revision::R2026_07_28),
        });
        let instructions = self.server.content.info().instructions;
        insert(&mut result, "instructions", instructions.map(Value::from));
        Response::cacheable(&result)
    }

    /// Counts and journals a call before its faults: a server that crashes in a call has executed it.
    fn begin_call(&self, pending: &mut PendingRequest, params: &Params<'_>) {
        pending.call = self.server.n_calls.fetch_add(1, Ordering::Relaxed) + 1;
        if self.server.journal.is_some() {
            pending.nonce = call_nonce(params);
            self.server.record(JournalEvent::Executed, pending.call, pending.nonce.clone());
        }
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/initialized" => {
                self.apply_faults(&self.server.due_faults(&[Trigger::Initialized]));
            }
            "notifications/cancelled" => {
                let parsed = Params::parse(params).ok();
                if let Some(id) = parsed.and_then(|params| params.request_id) {
                    self.server.cancel(&self.client, id.get());
                }
            }
            _ => (),
        }
    }

    /// Revision to assume for the client.
    fn revision(&self) -> Revision {
        match self.server.options.revisions {
            SupportedRevisions::Only(revision) => revision,
            SupportedRevisions::Dual => self.client.negotiated().unwrap_or(Revision::R2026_07_28),
        }
    }

    /// Revision of a request, or the reason why it has none.
    fn revision_of(&self, method: &str, params: &Params<'_>) -> Result<Revision, RpcError> {
        let revisions = self.server.options.revisions;
        if method == "initialize" {
            let requested = params.protocol_version.as_deref().unwrap_or_default();
            let unsupported = || RpcError::unsupported_version(requested, &revisions.supported());
            return revisions.negotiate(requested).ok_or_else(unsupported);
        }
        let is_modern = revisions.has_modern() && params.meta.protocol_version.is_some();
        match self.client.negotiated() {
            Some(revision) if !is_modern => Ok(revision),
            // A client may ping before it knows the era of the server.
            None if method == "ping" && revisions.has_legacy() && !is_modern => {
                Ok(revisions.negotiate("").unwrap_or(Revision::R2025_11_25))
            }
            _ if revisions.has_modern() => {
                params.meta.check(&revisions.supported())?;
                Ok(Revision::R2026_07_28)
            }
            _ if !is_known(method, revisions) => Ok(self.revision()),
            _ => Err(RpcError::new(error_code::INVALID_REQUEST, "`initialize` comes first")),
        }
    }
}

/// Name and version of the server; a title where the revision has one.
fn implementation(info: ServerInfo, revision: Option<Revision>) -> Value {
    let mut implementation = json!({ "name": info.name, "version": env!("CARGO_PKG_VERSION") });
    let titled = info.title.is_some() && revision >= Some(Revision::R2025_06_18);
    insert(&mut implementation, "title", titled.then(|| json!(info.title)));
    implementation
}

/// Triggers of a request.
fn triggers_for(method: &str, revisions: SupportedRevisions) -> &'static [Trigger] {
    let known = is_known(method, revisions);
    match method {
        "initialize" => &[Trigger::Initialize],
        "server/discover" if known => &[Trigger::Discover],
        "server/discover" => &[Trigger::Discover, Trigger::Unknown],
        "tools/list" => &[Trigger::List],
        "resources/list" => &[Trigger::Resources],
        "resources/templates/list" => &[Trigger::Templates],
        "prompts/list" => &[Trigger::Prompts],
        "tools/call" => &[Trigger::Call],
        "subscriptions/listen" if known => &[Trigger::Listen],
        _ if known => &[],
        _ => &[Trigger::Unknown],
    }
}

/// Whether a server with these revisions knows the method.
fn is_known(method: &str, revisions: SupportedRevisions) -> bool {
    const LEGACY: [&str; 5] =
        ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
    const MODERN: [&str; 2] = ["server/discover", "subscriptions/listen"];
    const BOTH: [&str; 8] = [
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    ];
    BOTH.contains(&method)
        || revisions.has_legacy() && LEGACY.contains(&method)
        || revisions.has_modern() && MODERN.contains(&method)
}

/// Argument `nonce` of a call, which identifies it in the journal.
fn call_nonce(params: &Params<'_>) -> Option<String> {
    match params.arguments().0.get("nonce")? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}
