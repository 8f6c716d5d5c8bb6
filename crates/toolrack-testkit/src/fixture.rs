//! The fixture server: has every tool, prompt and resource that the official conformance suites look for, under
//! their names, in both eras.
//!
//! It stands behind a gateway, so it speaks over a pipe only; what the suites ask of HTTP is the gateway's part.
//!
//! **Invariant:** what takes time runs on a timer, and a cancelled call is never answered.

mod catalog;
mod client_requests;
mod tools;

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::jsonrpc::{self, Answer, Incoming, Params, Refusal, severity};
use crate::message_sink::{Outlet, Pipe};
use crate::revision::{Era, Revision, Speaks};
use crate::timer::Timer;
use client_requests::Asking;

/// The `_meta` of every modern result.
const SERVER_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"toolrack-fixture","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);
const USAGE: &str =
    "fixture-server [--revision R]   R as for scripted-server, `dual` unless given\n";

/// Serves one client until its input ends.
pub fn run(
    args: &[String],
    mut input: impl BufRead,
    output: impl Write + Send + 'static,
) -> io::Result<ExitCode> {
    let speaks = match args {
        [] => Ok(Speaks::Dual),
        [option, revision] if option == "--revision" => Speaks::parse(revision),
        _ => Err(USAGE.to_owned()),
    };
    let speaks = match speaks {
        Ok(speaks) => speaks,
        Err(fault) => {
            io::stderr().write_all(fault.as_bytes())?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let fixture = Arc::new(Fixture {
        speaks,
        outlet: Pipe::new(output),
        timer: Timer::start(),
        agreed: Mutex::new(None),
        least: Mutex::new(0),
        open: Mutex::default(),
        asking: Mutex::default(),
        listening: Mutex::default(),
        n_asked: AtomicU64::new(0),
        tools_made: AtomicU64::new(0),
        prompts_made: AtomicU64::new(0),
    });
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        fixture.take(&line);
        fixture.outlet.flush();
        line.clear();
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug)]
struct Fixture {
    speaks: Speaks,
    outlet: Pipe,
    timer: Timer,
    agreed: Mutex<Option<Revision>>,
    /// The least severity that a legacy client wants to read.
    least: Mutex<usize>,
    /// The calls that still run, by their ids as the client wrote them.
    open: Mutex<HashSet<String>>,
    asking: Mutex<Vec<Asking>>,
    /// Open subscriptions: the id of the request, and what is to be told.
    listening: Mutex<Vec<(String, Value)>>,
    n_asked: AtomicU64,
    /// How often the lists were changed. The last change is what each list shows besides.
    tools_made: AtomicU64,
    prompts_made: AtomicU64,
}

/// A request that is to be answered.
#[derive(Debug, Clone)]
struct Ticket {
    id: String,
    revision: Revision,
    token: Option<Box<RawValue>>,
    /// The least severity of log messages that a modern request wants.
    least: Option<usize>,
}

impl Fixture {
    fn take(self: &Arc<Self>, line: &[u8]) {
        let line = line.trim_ascii();
        match serde_json::from_slice::<Incoming<'_>>(line) {
            Ok(Incoming { method: Some(method), id: Some(id), params, .. }) => {
                self.request(id, &method, params);
            }
            Ok(Incoming { method: Some(method), id: None, params, .. }) => {
                self.notified(&method, params);
            }
            Ok(Incoming { id: Some(id), result, .. }) => self.answered(id, result),
            Ok(_) | Err(_) => {}
        }
    }

    fn request(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let read = Params::read(params)
            .and_then(|params| Ok((self.revision_of(method, &params)?, params)));
        let mut ticket = Ticket {
            id: id.get().to_owned(),
            revision: Revision::R2025_11_25,
            token: None,
            least: None,
        };
        let (revision, params) = match read {
            Ok(read) => read,
            Err(refusal) => return self.settle(&ticket, &Answer::Refused(refusal)),
        };
        ticket.revision = revision;
        ticket.token = params.meta.progress_token.map(ToOwned::to_owned);
        ticket.least = params.meta.log_level.as_deref().and_then(severity);
        let answer = match (method, revision.era()) {
            ("tools/call", _) => return self.call(ticket, &params),
            ("subscriptions/listen", Era::Modern) => return self.listen(&ticket, &params),
            ("initialize", Era::Legacy) => {
                *lock(&self.agreed) = Some(revision);
                Ok(catalog::initialize(revision))
            }
            ("server/discover", Era::Modern) => Ok(catalog::discover(self.speaks)),
            ("ping" | "resources/subscribe" | "resources/unsubscribe", Era::Legacy) => {
                Ok(Answer::empty())
            }
            ("logging/setLevel", Era::Legacy) => {
                let level = params.level.as_deref().and_then(severity);
                *lock(&self.least) = level.unwrap_or_default();
                Ok(Answer::empty())
            }
            ("prompts/get", Era::Modern) if client_requests::is_asking_prompt(&params) => {
                Ok(client_requests::prompt(&params))
            }

            _ => catalog::read(self, method, &params, revision),
        };
        self.settle(&ticket, &answer.into());
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        let id = Params::read(params).ok().and_then(|value| value.request_id.map(RawValue::get));
        if let ("notifications/cancelled", Some(id)) = (method, id) {
            lock(&self.open).remove(id);
            lock(&self.asking).retain(|value| value.ticket.id != id);
            lock(&self.listening).retain(|(listen, _)| listen != id);
        }
    }

    fn listen(&self, ticket: &Ticket, params: &Params<'_>) {
        let filter = params.notifications.clone().unwrap_or_default();
        let tag = tag(&ticket.id);
        let acknowledged = json!({ "_meta": tag, "notifications": filter });
        let method = "notifications/subscriptions/acknowledged";
        self.outlet.put(&jsonrpc::notification(method, Some(&acknowledged)));
        lock(&self.listening).push((ticket.id.clone(), filter));
    }

    /// Tells that a list has changed, in the manner of the client's era.
    fn tell_change(&self, method: &str, switch: &str) {
        if lock(&self.agreed).is_some() {
            self.outlet.put(&jsonrpc::notification(method, None));
        }
        for (id, filter) in &*lock(&self.listening) {
            if filter.get(switch) == Some(&Value::Bool(true)) {
                let params = json!({ "_meta": tag(id) });
                self.outlet.put(&jsonrpc::notification(method, Some(&params)));
            }
        }
    }

    fn settle(&self, ticket: &Ticket, answer: &Answer) {
        let body = answer.body(ticket.revision.era(), SERVER_META);
        self.outlet.put(&jsonrpc::response(&ticket.id, &body));
    }

    /// A request belongs to the modern era if it says so, else to the revision of the handshake.
    fn revision_of(&self, method: &str, params: &Params<'_>) -> Result<Revision, Refusal> {
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        let supported = self.speaks.supported();
        match (method, *lock(&self.agreed)) {
            ("initialize", _) => self
                .speaks
                .agree(requested)
                .ok_or_else(|| Refusal::unsupported_version(requested, &supported)),
            (_, Some(revision)) if params.meta.protocol_version.is_none() => Ok(revision),
            _ if !self.speaks.modern() => Err(Refusal::unknown_method(method)),
            _ => {
                params.meta.check(&supported)?;
                Ok(Revision::R2026_07_28)
            }
        }
    }
}

fn tag(id: &str) -> Value {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    json!({ "io.modelcontextprotocol/subscriptionId": id })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
