//! Message handling of the scripted server: eras, dispatch, faults and responses.
//!
//! **Invariant:** every response goes through `respond`, so the plan can alter it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::child_process;
use super::client::{Client, MessageContext, PendingRequest};
use super::faulty_response::ResponseFaults;
use super::http::Sessions;
use super::options::Options;
use super::tool_list::ToolList;
use crate::journal::{JournalEvent, JournalRecord, JournalWriter};
use crate::jsonrpc::{self, Incoming, Params, Response, RpcError, error_code};
use crate::message_sink::MessageSink;
use crate::plan::{Fault, Trigger};
use crate::revision::{Era, Revision, SupportedRevisions};
use crate::timer::Timer;

/// `_meta` of every modern result.
const SERVER_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted-server","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) options: Options,
    pub(super) timer: Timer,
    /// Receivers of unsolicited messages.
    pub(super) clients: Mutex<Vec<Arc<Client>>>,
    pub(super) sessions: Sessions,
    pub(super) tool_list: ToolList,
    pub(super) flags: Flags,
    /// Responses that the plan holds back.
    pub(super) held: Mutex<Vec<(PendingRequest, Response)>>,
    /// Calls of `ask` by the id of the request to the client.
    pub(super) awaiting_client: Mutex<Vec<(u64, PendingRequest)>>,
    journal: Option<JournalWriter>,
    /// Occurrences of each trigger, in the order of `Trigger::ALL`.
    counts: [AtomicU64; Trigger::ALL.len()],
    n_calls: AtomicU64,
    n_client_requests: AtomicU64,
    /// Number of resource updates.
    n_updates: AtomicU64,
}

/// Permanent effects of faults.
#[derive(Debug, Default)]
pub(super) struct Flags {
    pub(super) stopped_reading: AtomicBool,
    pub(super) ignores_eof: AtomicBool,
    pub(super) prompting: AtomicBool,
}

impl Server {
    pub(super) fn new(options: Options) -> io::Result<Arc<Self>> {
        let journal = options.journal.as_deref().map(JournalWriter::open).transpose()?;
        let tool_list = ToolList::new(&options);
        Ok(Arc::new(Self {
            options,
            timer: Timer::start(),
            clients: Mutex::default(),
            sessions: Sessions::default(),
            tool_list,
            flags: Flags::default(),
            held: Mutex::default(),
            awaiting_client: Mutex::default(),
            journal,
            counts: Default::default(),
            n_calls: AtomicU64::new(0),
            n_client_requests: AtomicU64::new(0),
            n_updates: AtomicU64::new(0),
        }))
    }

    pub(super) fn start(self: &Arc<Self>, context: &MessageContext) {
        drop(self.run_faults(context, &[Trigger::Start]));
        context.sink.flush();
    }

    pub(super) fn n_updates(&self) -> u64 {
        self.n_updates.load(Ordering::Relaxed)
    }

    pub(super) fn count_update(&self) {
        self.n_updates.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn has_stopped_reading(&self) -> bool {
        self.flags.stopped_reading.load(Ordering::Relaxed)
    }

    pub(super) fn end_of_input(self: &Arc<Self>, context: &MessageContext) {
        drop(self.run_faults(context, &[Trigger::Eof]));
        context.sink.flush();
        if self.flags.ignores_eof.load(Ordering::Relaxed) {
            child_process::sleep_then_exit(self.options.lifetime);
        }
    }

    /// Handles one line of input.
    pub(super) fn handle_line(self: &Arc<Self>, context: &MessageContext, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() || self.is_prompt_answer(line) {
            return;
        }
        drop(self.run_faults(context, &[Trigger::Message]));
        let Ok(message) = serde_json::from_slice::<Incoming<'_>>(line) else {
            // An error without an id is legal since 2025-11-25; older revisions have none.
            if self.revision(&context.client) >= Revision::R2025_11_25 {
                let rpc_error = RpcError::new(error_code::PARSE_ERROR, "the line is no message");
                context.sink.send(&rpc_error.to_response_without_id());
            }
            return;
        };
        self.handle_message(context, &message);
    }

    /// Handles one message.
    pub(super) fn handle_message(
        self: &Arc<Self>,
        context: &MessageContext,
        message: &Incoming<'_>,
    ) {
        match (&message.method, message.id) {
            (Some(method), Some(id)) => self.handle_request(context, id, method, message.params),
            (Some(method), None) => self.handle_notification(context, method, message.params),
            (None, Some(id)) => self.handle_response(id, message.result, message.error),
            (None, None) => (),
        }
    }

    /// Runs the faults of these triggers: immediate effects happen here, response faults are returned.
    pub(super) fn run_faults(
        self: &Arc<Self>,
        context: &MessageContext,
        triggers: &[Trigger],
    ) -> Option<Box<ResponseFaults>> {
        self.apply_faults(context, &self.due_faults(triggers))
    }

    /// Counts an occurrence of these triggers and returns their faults.
    pub(super) fn due_faults(&self, triggers: &[Trigger]) -> Vec<&Fault> {
        let mut faults = Vec::new();
        if self.options.plan.is_empty() && self.options.mix.is_none() {
            return faults;
        }
        for trigger in triggers {
            let count = self.counts.get(*trigger as usize);
            let number = count.map_or(0, |count| count.fetch_add(1, Ordering::Relaxed)) + 1;
            faults.extend(self.options.plan.faults_at(*trigger, number));
            if let (Trigger::Call, Some(mix)) = (trigger, &self.options.mix) {
                faults.push(mix.pick(number));
            }
        }
        faults
    }

    pub(super) fn apply_faults(
        self: &Arc<Self>,
        context: &MessageContext,
        faults: &[&Fault],
    ) -> Option<Box<ResponseFaults>> {
        let mut response_faults = None;
        for fault in faults {
            self.apply_fault(context, fault, &mut response_faults);
        }
        response_faults
    }

    fn handle_request(
        self: &Arc<Self>,
        context: &MessageContext,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) {
        let triggers = triggers_for(method, self.options.revisions);
        let parsed = Params::parse(params).and_then(|params| {
            let revision = self.revision_of(&context.client, method, &params)?;
            Ok((params, revision))
        });
        let revision = parsed.as_ref().map(|(_, revision)| *revision);
        let mut pending = PendingRequest {
            context: context.clone(),
            id: id.get().to_owned(),
            revision: revision.unwrap_or_else(|_| self.revision(&context.client)),
            call: 0,
            nonce: None,
            response_faults: None,
        };
        let faults = self.due_faults(triggers);
        let rejected = faults.iter().any(|fault| fault.rejects_request());
        if let ("tools/call", Ok((params, _)), false) = (method, &parsed, rejected) {
            self.begin_call(&mut pending, params);
        }
        pending.response_faults = self.apply_faults(context, &faults);
        match parsed {
            _ if rejected => reject(&pending),
            Err(rpc_error) => {
                // Spec 2026-07-28, HTTP: a request without the required metadata is a bad request.
                if pending.era() == Era::Modern {
                    pending.sink().set_status(400);
                }
                self.respond(pending, Response::Error(rpc_error));
            }
            Ok((params, _)) => self.serve(pending, method, &params),
        }
    }

    fn serve(self: &Arc<Self>, pending: PendingRequest, method: &str, params: &Params<'_>) {
        let legacy = pending.era() == Era::Legacy;
        let response = match method {
            "tools/call" => return self.call_tool(pending, params),
            "tools/list" => self.list_tools(&pending, params),
            "initialize" if legacy => self.initialize(&pending, params),
            "server/discover" if !legacy => Ok(self.discover(&pending)),
            "ping" if legacy => Ok(Response::empty()),
            "logging/setLevel" if legacy => pending.context.client.subscriptions.set_level(params),
            "resources/subscribe" if legacy => {
                pending.context.client.subscriptions.subscribe(params)
            }
            "resources/unsubscribe" if legacy => {
                pending.context.client.subscriptions.unsubscribe(params)
            }
            "subscriptions/listen" if !legacy => return self.listen(pending, params),
            other => self.read_content(&pending, other, params),
        };
        self.respond(pending, response.into());
    }

    /// Counts and journals a call before its faults: a server that crashes in a call has executed it.
    fn begin_call(&self, pending: &mut PendingRequest, params: &Params<'_>) {
        pending.call = self.n_calls.fetch_add(1, Ordering::Relaxed) + 1;
        if self.journal.is_some() {
            pending.nonce = call_nonce(params.arguments);
            self.record(JournalEvent::Executed, pending.call, pending.nonce.clone());
        }
    }

    fn handle_notification(
        self: &Arc<Self>,
        context: &MessageContext,
        method: &str,
        params: Option<&RawValue>,
    ) {
        match method {
            "notifications/initialized" => drop(self.run_faults(context, &[Trigger::Initialized])),
            "notifications/cancelled" => {
                let parsed = Params::parse(params).ok();
                if let Some(id) = parsed.and_then(|params| params.request_id) {
                    self.cancel(&context.client, id.get());
                }
            }
            _ => (),
        }
    }

    pub(super) fn cancel(&self, client: &Client, id: &str) {
        client.subscriptions.end_listen(id);
        let Some(call) = client.open.finish(id) else { return };
        self.record(JournalEvent::Cancelled, call.call, call.nonce);
        if let Some(client_request) = call.client_request {
            let params = json!({ "requestId": client_request, "reason": "the call was cancelled" });
            client.sink.send(&jsonrpc::notification_line("notifications/cancelled", Some(&params)));
        }
        call.sink.finish();
    }

    /// Sends the response, with the faults of the plan.
    pub(super) fn respond(self: &Arc<Self>, pending: PendingRequest, response: Response) {
        if pending.response_faults.is_some() {
            return self.send_faulty(pending, response);
        }
        pending.set_http_status(&response);
        let body = Self::body(&pending, &response);
        pending.sink().respond(&jsonrpc::response_line(&pending.id, &body));
        pending.sink().finish();
    }

    pub(super) fn body(pending: &PendingRequest, response: &Response) -> String {
        response.body(pending.era(), SERVER_META)
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
        if let (Some(params), Some(members)) = (params, request.as_object_mut()) {
            members.insert("params".to_owned(), params.clone());
        }
        sink.send(request.to_string().as_bytes());
        id
    }

    /// Revision to assume for a client.
    fn revision(&self, client: &Client) -> Revision {
        match self.options.revisions {
            SupportedRevisions::Only(revision) => revision,
            SupportedRevisions::Dual => client.negotiated().unwrap_or(Revision::R2026_07_28),
        }
    }

    /// Revision of a request, or the reason why it has none.
    fn revision_of(
        &self,
        client: &Client,
        method: &str,
        params: &Params<'_>,
    ) -> Result<Revision, RpcError> {
        let revisions = self.options.revisions;
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        match (method, revisions.negotiate(requested)) {
            ("initialize", Some(revision)) => return Ok(revision),
            ("initialize", None) => {
                return Err(RpcError::unsupported_version(requested, &revisions.supported()));
            }
            _ => (),
        }
        let says_modern = params.meta.protocol_version.is_some();
        let negotiated = client.negotiated();
        if revisions.has_modern() && (says_modern || negotiated.is_none()) {
            params.meta.check(&revisions.supported())?;
            return Ok(Revision::R2026_07_28);
        }
        match negotiated {
            Some(revision) => Ok(revision),
            None if method == "ping" || !is_known(method, revisions) => Ok(self.revision(client)),
            None => Err(RpcError::new(error_code::INVALID_REQUEST, "`initialize` comes first")),
        }
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

/// Rejects a request, with an error body if the plan has one.
fn reject(pending: &PendingRequest) {
    if let Some(code) =
        pending.response_faults.as_ref().and_then(|response_faults| response_faults.error)
    {
        let rpc_error = Response::Error(RpcError::new(code, "the plan says so"));
        let body = Server::body(pending, &rpc_error);
        pending.sink().respond(&jsonrpc::response_line(&pending.id, &body));
    }
    pending.sink().finish();
}

/// Triggers of a request.
fn triggers_for(method: &str, revisions: SupportedRevisions) -> &'static [Trigger] {
    let known = is_known(method, revisions);
    match method {
        "initialize" => &[Trigger::Initialize],
        "server/discover" if known => &[Trigger::Discover],
        "server/discover" => &[Trigger::Discover, Trigger::Unknown],
        "tools/list" => &[Trigger::List],
        "tools/call" => &[Trigger::Call],
        "subscriptions/listen" if known => &[Trigger::Listen],
        _ if known => &[],
        _ => &[Trigger::Unknown],
    }
}

/// Whether a server with these revisions knows the method.
fn is_known(method: &str, revisions: SupportedRevisions) -> bool {
    match method {
        "initialize"
        | "ping"
        | "logging/setLevel"
        | "resources/subscribe"
        | "resources/unsubscribe" => revisions.has_legacy(),
        "server/discover" | "subscriptions/listen" => revisions.has_modern(),
        "tools/list"
        | "tools/call"
        | "resources/list"
        | "resources/templates/list"
        | "resources/read"
        | "prompts/list"
        | "prompts/get"
        | "completion/complete" => true,
        _ => false,
    }
}

/// Argument `nonce` of a call, which identifies it in the journal.
fn call_nonce(arguments: Option<&RawValue>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Nonce {
        nonce: Option<Value>,
    }
    match serde_json::from_str::<Nonce>(arguments?.get()).ok()?.nonce? {
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}
