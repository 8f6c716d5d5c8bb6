//! The server itself: takes messages, knows which era each belongs to, and settles each request once.
//!
//! **Invariant:** every answer leaves through `settle`, so the plan can twist it, whichever method or tool made it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::child_process;
use super::client::{Client, Origin, Ticket};
use super::faulty_response::Twist;
use super::http::Sessions;
use super::options::Options;
use super::tool_list::Catalog;
use crate::journal::{Event, JournalWriter, Record};
use crate::jsonrpc;
use crate::jsonrpc::{Answer, Incoming, Params, Refusal, error_code};
use crate::message_sink::Outlet;
use crate::plan::{Fault, Moment};
use crate::revision::{Era, Revision, Speaks};
use crate::timer::Timer;

/// The `_meta` of every modern result.
const SERVER_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted-server","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) options: Options,
    pub(super) timer: Timer,
    /// Whoever can be told of something unasked.
    pub(super) clients: Mutex<Vec<Arc<Client>>>,
    pub(super) sessions: Sessions,
    pub(super) catalog: Catalog,
    pub(super) flags: Flags,
    /// Answers that a plan holds back.
    pub(super) held: Mutex<Vec<(Ticket, Answer)>>,
    /// Calls of `ask` by the id of the request that went to the client.
    pub(super) asking: Mutex<Vec<(u64, Ticket)>>,
    journal: Option<JournalWriter>,
    /// How often each moment came, in the order of `Moment::ALL`.
    counts: [AtomicU64; Moment::ALL.len()],
    n_calls: AtomicU64,
    n_asked: AtomicU64,
    /// How often any resource was updated.
    n_updates: AtomicU64,
}

/// What a plan switched on for good.
#[derive(Debug, Default)]
pub(super) struct Flags {
    pub(super) stopped_reading: AtomicBool,
    pub(super) deaf_to_eof: AtomicBool,
    pub(super) prompting: AtomicBool,
}

impl Server {
    pub(super) fn new(options: Options) -> io::Result<Arc<Self>> {
        let journal = options.journal.as_deref().map(JournalWriter::open).transpose()?;
        let catalog = Catalog::new(&options);
        Ok(Arc::new(Self {
            options,
            timer: Timer::start(),
            clients: Mutex::default(),
            sessions: Sessions::default(),
            catalog,
            flags: Flags::default(),
            held: Mutex::default(),
            asking: Mutex::default(),
            journal,
            counts: Default::default(),
            n_calls: AtomicU64::new(0),
            n_asked: AtomicU64::new(0),
            n_updates: AtomicU64::new(0),
        }))
    }

    pub(super) fn start(self: &Arc<Self>, origin: &Origin) {
        drop(self.pass(origin, &[Moment::Start]));
        origin.outlet.flush();
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

    pub(super) fn end_of_input(self: &Arc<Self>, origin: &Origin) {
        drop(self.pass(origin, &[Moment::Eof]));
        origin.outlet.flush();
        if self.flags.deaf_to_eof.load(Ordering::Relaxed) {
            child_process::linger(self.options.lifetime);
        }
    }

    /// Takes one line of input.
    pub(super) fn take(self: &Arc<Self>, origin: &Origin, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() || self.swallows(line) {
            return;
        }
        drop(self.pass(origin, &[Moment::Message]));
        let Ok(message) = serde_json::from_slice::<Incoming<'_>>(line) else {
            // The error needs no id since 2025-11-25; before, there is no way to say it.
            if self.revision(&origin.client) >= Revision::R2025_11_25 {
                let refusal = Refusal::new(error_code::PARSE_ERROR, "the line is no message");
                origin.outlet.put(&refusal.without_id());
            }
            return;
        };
        self.accept(origin, &message);
    }

    /// Takes one message.
    pub(super) fn accept(self: &Arc<Self>, origin: &Origin, message: &Incoming<'_>) {
        match (&message.method, message.id) {
            (Some(method), Some(id)) => self.request(origin, id, method, message.params),
            (Some(method), None) => self.notified(origin, method, message.params),
            (None, Some(id)) => self.answered(id, message.result, message.error),
            (None, None) => (),
        }
    }

    /// The plan's share of a moment: noise is made and ends are met here, and what concerns the answer is returned.
    pub(super) fn pass(
        self: &Arc<Self>,
        origin: &Origin,
        moments: &[Moment],
    ) -> Option<Box<Twist>> {
        self.follow(origin, &self.due(moments))
    }

    /// What the plan has for these moments, which counts as having come once more.
    pub(super) fn due(&self, moments: &[Moment]) -> Vec<&Fault> {
        let mut faults = Vec::new();
        if self.options.plan.is_empty() && self.options.mix.is_none() {
            return faults;
        }
        for moment in moments {
            let count = self.counts.get(*moment as usize);
            let number = count.map_or(0, |count| count.fetch_add(1, Ordering::Relaxed)) + 1;
            faults.extend(self.options.plan.at(*moment, number));
            if let (Moment::Call, Some(mix)) = (moment, &self.options.mix) {
                faults.push(mix.pick(number));
            }
        }
        faults
    }

    pub(super) fn follow(
        self: &Arc<Self>,
        origin: &Origin,
        faults: &[&Fault],
    ) -> Option<Box<Twist>> {
        let mut twist = None;
        for fault in faults {
            self.act(origin, fault, &mut twist);
        }
        twist
    }

    fn request(
        self: &Arc<Self>,
        origin: &Origin,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) {
        let moments = moments_of(method, self.options.speaks);
        let read = Params::read(params).and_then(|params| {
            let revision = self.revision_of(&origin.client, method, &params)?;
            Ok((params, revision))
        });
        let revision = read.as_ref().map(|(_, revision)| *revision);
        let mut ticket = Ticket {
            origin: origin.clone(),
            id: id.get().to_owned(),
            revision: revision.unwrap_or_else(|_| self.revision(&origin.client)),
            call: 0,
            nonce: None,
            twist: None,
        };
        let faults = self.due(moments);
        let refused = faults.iter().any(|fault| fault.refuses());
        if let ("tools/call", Ok((params, _)), false) = (method, &read, refused) {
            self.begin_call(&mut ticket, params);
        }
        ticket.twist = self.follow(origin, &faults);
        match read {
            _ if refused => refuse(&ticket),
            Err(refusal) => {
                // Spec 2026-07-28, HTTP: a request that does not say what it must is a bad request.
                if ticket.era() == Era::Modern {
                    ticket.outlet().set_status(400);
                }
                self.settle(ticket, Answer::Refused(refusal));
            }
            Ok((params, _)) => self.serve(ticket, method, &params),
        }
    }

    fn serve(self: &Arc<Self>, ticket: Ticket, method: &str, params: &Params<'_>) {
        let legacy = ticket.era() == Era::Legacy;
        let answer = match method {
            "tools/call" => return self.call_tool(ticket, params),
            "tools/list" => self.list_tools(&ticket, params),
            "initialize" if legacy => self.initialize(&ticket, params),
            "server/discover" if !legacy => Ok(self.discover(&ticket)),
            "ping" if legacy => Ok(Answer::empty()),
            "logging/setLevel" if legacy => ticket.origin.client.audience.set_level(params),
            "resources/subscribe" if legacy => ticket.origin.client.audience.subscribe(params),
            "resources/unsubscribe" if legacy => ticket.origin.client.audience.unsubscribe(params),
            "subscriptions/listen" if !legacy => return self.listen(ticket, params),
            other => self.read_content(&ticket, other, params),
        };
        self.settle(ticket, answer.into());
    }

    /// Counts and journals a call before the plan strikes: a server that crashes in a call has begun it.
    fn begin_call(&self, ticket: &mut Ticket, params: &Params<'_>) {
        ticket.call = self.n_calls.fetch_add(1, Ordering::Relaxed) + 1;
        if self.journal.is_some() {
            ticket.nonce = nonce_of(params.arguments);
            self.record(Event::Executed, ticket.call, ticket.nonce.clone());
        }
    }

    fn notified(self: &Arc<Self>, origin: &Origin, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/initialized" => drop(self.pass(origin, &[Moment::Initialized])),
            "notifications/cancelled" => {
                let read = Params::read(params).ok();
                if let Some(id) = read.and_then(|value| value.request_id) {
                    self.cancel(&origin.client, id.get());
                }
            }
            _ => (),
        }
    }

    pub(super) fn cancel(&self, client: &Client, id: &str) {
        client.audience.hang_up(id);
        let Some(call) = client.open.finish(id) else { return };
        self.record(Event::Cancelled, call.call, call.nonce);
        if let Some(asked) = call.asked {
            let params = json!({ "requestId": asked, "reason": "the call was cancelled" });
            client.outlet.put(&jsonrpc::notification("notifications/cancelled", Some(&params)));
        }
        call.outlet.finish();
    }

    /// Sends the answer, as the plan has it.
    pub(super) fn settle(self: &Arc<Self>, ticket: Ticket, answer: Answer) {
        if ticket.twist.is_some() {
            return self.deliver(ticket, answer);
        }
        ticket.show_status(&answer);
        let body = Self::body(&ticket, &answer);
        ticket.outlet().answer(&jsonrpc::response(&ticket.id, &body));
        ticket.outlet().finish();
    }

    pub(super) fn body(ticket: &Ticket, answer: &Answer) -> String {
        answer.body(ticket.era(), SERVER_META)
    }

    /// Sends a request to the client. Ids count from 1, as a client's own often do.
    pub(super) fn ask_client(
        &self,
        outlet: &dyn Outlet,
        method: &str,
        params: Option<&Value>,
    ) -> u64 {
        let id = self.n_asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        if let (Some(params), Some(members)) = (params, request.as_object_mut()) {
            members.insert("params".to_owned(), params.clone());
        }
        outlet.put(request.to_string().as_bytes());
        id
    }

    /// The revision to assume where no request says otherwise.
    fn revision(&self, client: &Client) -> Revision {
        match self.options.speaks {
            Speaks::Only(revision) => revision,
            Speaks::Dual => client.agreed().unwrap_or(Revision::R2026_07_28),
        }
    }

    /// Which revision a request is made in, or why it is made in none.
    fn revision_of(
        &self,
        client: &Client,
        method: &str,
        params: &Params<'_>,
    ) -> Result<Revision, Refusal> {
        let speaks = self.options.speaks;
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        match (method, speaks.agree(requested)) {
            ("initialize", Some(revision)) => return Ok(revision),
            ("initialize", None) => {
                return Err(Refusal::unsupported_version(requested, &speaks.supported()));
            }
            _ => (),
        }
        let says_modern = params.meta.protocol_version.is_some();
        let agreed = client.agreed();
        if speaks.modern() && (says_modern || agreed.is_none()) {
            params.meta.check(&speaks.supported())?;
            return Ok(Revision::R2026_07_28);
        }
        match agreed {
            Some(revision) => Ok(revision),
            None if method == "ping" || !is_known(method, speaks) => Ok(self.revision(client)),
            None => Err(Refusal::new(error_code::INVALID_REQUEST, "`initialize` comes first")),
        }
    }

    /// A program that asks on its terminal takes messages for bad answers until a person types something.
    fn swallows(&self, line: &[u8]) -> bool {
        if !self.flags.prompting.load(Ordering::Relaxed) {
            return false;
        }
        if !line.starts_with(b"{") {
            self.flags.prompting.store(false, Ordering::Relaxed);
        }
        true
    }

    fn record(&self, event: Event, call: u64, nonce: Option<String>) {
        let Some(journal) = &self.journal else { return };
        let record = Record { event, nonce, call, pid: std::process::id() };
        if journal.write(&record).is_err() {
            // A journal that misses a call proves nothing, so the run must not go on.
            child_process::leave(3);
        }
    }
}

/// Turns a request away, with an error in the body if the plan names one.
fn refuse(ticket: &Ticket) {
    if let Some(code) = ticket.twist.as_ref().and_then(|twist| twist.error) {
        let refusal = Answer::Refused(Refusal::new(code, "the plan says so"));
        let body = Server::body(ticket, &refusal);
        ticket.outlet().answer(&jsonrpc::response(&ticket.id, &body));
    }
    ticket.outlet().finish();
}

/// The moments of the plan that a request is.
fn moments_of(method: &str, speaks: Speaks) -> &'static [Moment] {
    let known = is_known(method, speaks);
    match method {
        "initialize" => &[Moment::Initialize],
        "server/discover" if known => &[Moment::Discover],
        "server/discover" => &[Moment::Discover, Moment::Unknown],
        "tools/list" => &[Moment::List],
        "tools/call" => &[Moment::Call],
        "subscriptions/listen" if known => &[Moment::Listen],
        _ if known => &[],
        _ => &[Moment::Unknown],
    }
}

/// Whether a server that speaks these eras knows the method.
fn is_known(method: &str, speaks: Speaks) -> bool {
    match method {
        "initialize"
        | "ping"
        | "logging/setLevel"
        | "resources/subscribe"
        | "resources/unsubscribe" => speaks.legacy(),
        "server/discover" | "subscriptions/listen" => speaks.modern(),
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

/// The argument `nonce` of a call, by which a journal knows it.
fn nonce_of(arguments: Option<&RawValue>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Nonce {
        nonce: Option<Value>,
    }
    match serde_json::from_str::<Nonce>(arguments?.get()).ok()?.nonce? {
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}
