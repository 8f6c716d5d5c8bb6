//! The server itself: takes messages, knows which era each belongs to, and settles each request once.
//!
//! **Invariant:** every answer leaves through `settle`, so the plan can twist it, whichever method or tool made it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::audience::Audience;
use super::catalog::Catalog;
use super::open_calls::{OpenCall, OpenCalls};
use super::options::Options;
use super::role;
use super::twist::Twist;
use crate::code;
use crate::journal::{Event, JournalWriter, Record};
use crate::outlet::Outlet;
use crate::plan::Moment;
use crate::revision::{Era, Revision, Speaks};
use crate::timer::Timer;
use crate::wire::{self, Answer, Incoming, Params, Refusal};

/// The `_meta` of every modern result.
const SERVER_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted-server","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) options: Options,
    pub(super) outlet: Outlet,
    pub(super) timer: Timer,
    pub(super) open: OpenCalls,
    pub(super) audience: Audience,
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
    agreed: Mutex<Option<Revision>>,
}

/// What a plan switched on for good.
#[derive(Debug, Default)]
pub(super) struct Flags {
    pub(super) stopped_reading: AtomicBool,
    pub(super) deaf_to_eof: AtomicBool,
    pub(super) prompting: AtomicBool,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Ticket {
    /// The id as the client wrote it.
    pub(super) id: String,
    pub(super) revision: Revision,
    /// The number of the call; 0 for other requests.
    pub(super) call: u64,
    pub(super) nonce: Option<String>,
    pub(super) twist: Option<Box<Twist>>,
}

impl Ticket {
    pub(super) fn era(&self) -> Era {
        self.revision.era()
    }
}

impl Server {
    pub(super) fn new(options: Options, outlet: Outlet) -> io::Result<Arc<Self>> {
        let journal = options.journal.as_deref().map(JournalWriter::open).transpose()?;
        let catalog = Catalog::new(options.n_tools, options.schema_bytes, options.page_size);
        Ok(Arc::new(Self {
            options,
            outlet,
            timer: Timer::start(),
            open: OpenCalls::default(),
            audience: Audience::default(),
            catalog,
            flags: Flags::default(),
            held: Mutex::default(),
            asking: Mutex::default(),
            journal,
            counts: Default::default(),
            n_calls: AtomicU64::new(0),
            n_asked: AtomicU64::new(0),
            agreed: Mutex::new(None),
        }))
    }

    pub(super) fn start(self: &Arc<Self>) {
        drop(self.pass(&[Moment::Start]));
        self.outlet.flush();
    }

    pub(super) fn has_stopped_reading(&self) -> bool {
        self.flags.stopped_reading.load(Ordering::Relaxed)
    }

    pub(super) fn end_of_input(self: &Arc<Self>) {
        drop(self.pass(&[Moment::Eof]));
        self.outlet.flush();
        if self.flags.deaf_to_eof.load(Ordering::Relaxed) {
            role::linger(self.options.lifetime);
        }
    }

    /// Takes one line of input.
    pub(super) fn take(self: &Arc<Self>, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() || self.swallows(line) {
            return;
        }
        drop(self.pass(&[Moment::Message]));
        let Ok(message) = serde_json::from_slice::<Incoming<'_>>(line) else {
            // The error needs no id since 2025-11-25; before, there is no way to say it.
            if self.revision() >= Revision::R2025_11_25 {
                let refusal = Refusal::new(code::PARSE_ERROR, "the line is no message").to_json();
                self.outlet
                    .put(json!({ "jsonrpc": "2.0", "error": refusal }).to_string().as_bytes());
            }
            return;
        };
        match (message.method, message.id) {
            (Some(method), Some(id)) => self.request(id, &method, message.params),
            (Some(method), None) => self.notified(&method, message.params),
            (None, Some(id)) => self.answered(id, message.result, message.error),
            (None, None) => (),
        }
    }

    /// The plan's share of a moment: noise is made and ends are met here, and what concerns the answer is returned.
    fn pass(self: &Arc<Self>, moments: &[Moment]) -> Option<Box<Twist>> {
        if self.options.plan.is_empty() && self.options.mix.is_none() {
            return None;
        }
        let mut twist = None;
        for moment in moments {
            let count = self.counts.get(*moment as usize);
            let number = count.map_or(0, |it| it.fetch_add(1, Ordering::Relaxed)) + 1;
            for fault in self.options.plan.at(*moment, number) {
                self.act(fault, &mut twist);
            }
            if let (Moment::Call, Some(mix)) = (moment, &self.options.mix) {
                self.act(mix.pick(number), &mut twist);
            }
        }
        twist
    }

    fn request(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let known = is_known(method, self.options.speaks);
        let moments: &[Moment] = match method {
            "initialize" => &[Moment::Initialize],
            "server/discover" if known => &[Moment::Discover],
            "server/discover" => &[Moment::Discover, Moment::Unknown],
            "tools/list" => &[Moment::List],
            "tools/call" => &[Moment::Call],
            _ if known => &[],
            _ => &[Moment::Unknown],
        };
        let read = Params::read(params).and_then(|params| {
            let revision = self.revision_of(method, &params)?;
            Ok((params, revision))
        });
        let mut ticket = Ticket {
            id: id.get().to_owned(),
            revision: read.as_ref().map_or(self.revision(), |(_, revision)| *revision),
            call: 0,
            nonce: None,
            twist: None,
        };
        if let ("tools/call", Ok((params, _))) = (method, &read) {
            self.begin_call(&mut ticket, params);
        }
        ticket.twist = self.pass(moments);
        match read {
            Err(refusal) => self.settle(ticket, Answer::Refused(refusal)),
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
            "logging/setLevel" if legacy => self.set_level(params),
            "resources/subscribe" if legacy => self.audience.subscribe(params),
            "resources/unsubscribe" if legacy => self.audience.unsubscribe(params),
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

    fn notified(self: &Arc<Self>, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/initialized" => drop(self.pass(&[Moment::Initialized])),
            "notifications/cancelled" => {
                let read = Params::read(params).ok();
                if let Some(id) = read.and_then(|it| it.request_id) {
                    self.cancel(id.get());
                }
            }
            _ => (),
        }
    }

    fn cancel(&self, id: &str) {
        self.audience.hang_up(id);
        let Some(call) = self.open.finish(id) else { return };
        self.record(Event::Cancelled, call.call, call.nonce);
        if let Some(asked) = call.asked {
            let params = json!({ "requestId": asked, "reason": "the call was cancelled" });
            self.outlet.put(&wire::notification("notifications/cancelled", Some(&params)));
        }
    }

    /// Sends the answer, as the plan has it.
    pub(super) fn settle(self: &Arc<Self>, ticket: Ticket, answer: Answer) {
        if ticket.twist.is_some() {
            return self.deliver(ticket, answer);
        }
        let body = answer.body(ticket.era(), SERVER_META);
        self.outlet.put(&wire::response(&ticket.id, &body));
    }

    pub(super) fn body(ticket: &Ticket, answer: &Answer) -> String {
        answer.body(ticket.era(), SERVER_META)
    }

    /// Notes a call that can be cancelled from now on.
    pub(super) fn keep_open(&self, ticket: &Ticket, asked: Option<u64>) {
        let call = OpenCall { call: ticket.call, nonce: ticket.nonce.clone(), asked };
        self.open.begin(&ticket.id, call);
    }

    /// Sends a request to the client. Ids count from 1, as a client's own often do.
    pub(super) fn ask_client(&self, method: &str, params: Option<&Value>) -> u64 {
        let id = self.n_asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        if let (Some(params), Some(members)) = (params, request.as_object_mut()) {
            members.insert("params".to_owned(), params.clone());
        }
        self.outlet.put(request.to_string().as_bytes());
        id
    }

    pub(super) fn agree_on(&self, revision: Revision) {
        *self.agreed.lock().unwrap_or_else(PoisonError::into_inner) = Some(revision);
    }

    pub(super) fn agreed(&self) -> Option<Revision> {
        *self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision to assume where no request says otherwise.
    fn revision(&self) -> Revision {
        match self.options.speaks {
            Speaks::Only(revision) => revision,
            Speaks::Dual => self.agreed().unwrap_or(Revision::R2026_07_28),
        }
    }

    /// Which revision a request is made in, or why it is made in none.
    fn revision_of(&self, method: &str, params: &Params<'_>) -> Result<Revision, Refusal> {
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
        let agreed = self.agreed();
        if speaks.modern() && (says_modern || agreed.is_none()) {
            params.meta.check(&speaks.supported())?;
            return Ok(Revision::R2026_07_28);
        }
        match agreed {
            Some(revision) => Ok(revision),
            None if method == "ping" || !is_known(method, speaks) => Ok(self.revision()),
            None => Err(Refusal::new(code::INVALID_REQUEST, "`initialize` comes first")),
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
            role::leave(3);
        }
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
