//! Who answers what legacy servers ask: the client whose request the server works on.
//!
//! A server of the legacy era does not say why it asks, unless its line tells. So its question goes to a client only
//! while the server works for no other; which requests are at work is table.rs's business. Servers of the modern
//! era ask in their results, which never come here.
//!
//! Directories are another matter: a legacy server keeps them for whatever it does next, for whomever. So they are
//! asked of a client only where there is but one.
//!
//! **Invariant:** a client is only asked what it has declared, by servers that it sees, and about a request of its own.
//! **Invariant:** no client decides on the directories of a server that others use too.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use toolrack_client::{ClientHandler, Limits, RawQuestion, Refusal};
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationAnswer, ElicitationCapability, LogLevel,
    LogMessage, Method, Root, RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
};
use toolrack_transport::BoxFuture;
use toolrack_transport::{JsonRpcError, RawJson};

use crate::active_request::{Owner, Seat};
use crate::client_session::Conversation;
use crate::ear::Ear;
use crate::encode::{Outcome, internal};
use crate::lock::lock;
use crate::server_queue::{End, Table, Turn, Whose};

/// Questions of one server that are open at once.
const MAX_QUESTIONS: usize = 512;

/// The way from servers back to clients. Give it to the manager as its handler, and to every gateway in front
/// of that manager.
#[derive(Default)]
pub struct Switchboard {
    clients: Clients,
    tables: Mutex<HashMap<Box<str>, Table>>,
    /// Counts requests that have come to their end and clients that are asked, for whoever waits for that.
    n_changes: watch::Sender<u64>,
    homes: Mutex<Vec<Weak<Conversation>>>,
    ears: Mutex<Vec<Weak<Ear>>>,
    fallback: Option<Arc<dyn ClientHandler>>,
}

/// How many clients there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Clients {
    #[default]
    Many,
    One,
}

/// A request in its place at a server, until this is dropped.
#[derive(Debug)]
pub(crate) struct Seated {
    switchboard: Arc<Switchboard>,
    server: Box<str>,
    seat: Arc<Seat>,
    end: End,
}

/// A request that waits for its turn, until this is dropped.
struct InLine<'a> {
    switchboard: &'a Switchboard,
    server: &'a str,
    number: u64,
}

impl Switchboard {
    /// A switchboard without any client yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// One for a gateway that serves a single client in its life, whose directories are those of the servers then.
    pub fn for_one_client() -> Arc<Self> {
        Arc::new(Self { clients: Clients::One, ..Self::default() })
    }

    /// The same, with somebody who is asked when no client can be.
    pub fn with_fallback(fallback: Arc<dyn ClientHandler>) -> Arc<Self> {
        Arc::new(Self { fallback: Some(fallback), ..Self::default() })
    }

    /// How much the manager behind a gateway takes from each server. Its servers ask many clients at once, not one
    /// person, so more of their questions may be open.
    pub fn limits() -> Limits {
        Limits { questions: MAX_QUESTIONS, human_questions: MAX_QUESTIONS, ..Limits::default() }
    }

    /// Gives a request its place at a server as soon as the server can be told apart from others by what it asks,
    /// and after `most` at the latest.
    pub(crate) async fn sit(
        self: &Arc<Self>,
        server: &str,
        seat: &Arc<Seat>,
        most: Duration,
    ) -> Seated {
        let now = Instant::now();
        let sat_down = |table: &mut Table| {
            let is_free = !table.has_turns();
            if is_free {
                table.sit(seat, now);
            }
            is_free
        };
        if !self.at(server, sat_down) {
            self.take_turn(server, seat, (now, most)).await;
        }
        let (switchboard, seat) = (Arc::clone(self), Arc::clone(seat));
        Seated { switchboard, server: server.into(), seat, end: End::Unknown }
    }

    async fn take_turn(&self, server: &str, seat: &Arc<Seat>, (now, most): (Instant, Duration)) {
        let number = self.at(server, |table| table.line_up(seat, now));
        let _in_line = InLine { switchboard: self, server, number };
        loop {
            let mut changes = self.n_changes.subscribe();
            let turn = self.at(server, |table| table.turn(number, Instant::now()));
            let Turn::Wait(until) = turn else { break };
            let until = until.min(now + most);
            if Instant::now() >= until {
                break;
            }
            tokio::select! {
                _counted = changes.changed() => {}
                () = sleep_until(until) => {}
            }
        }
        self.at(server, |table| table.sit(seat, Instant::now()));
    }

    /// A server was started anew, and knows nothing of what others were asked.
    pub(crate) fn renewed(&self, server: &str) {
        self.at(server, Table::renewed);
    }

    /// What is known of a server, which is forgotten when there is nothing to know.
    fn at<T>(&self, server: &str, look: impl FnOnce(&mut Table) -> T) -> T {
        let mut tables = lock(&self.tables);
        if let Some(table) = tables.get_mut(server) {
            let seen = look(table);
            if table.is_blank() {
                tables.remove(server);
            }
            return seen;
        }
        let mut table = Table::default();
        let seen = look(&mut table);
        if !table.is_blank() {
            tables.insert(server.into(), table);
        }
        seen
    }

    pub(crate) fn settle(&self, home: &Arc<Conversation>) {
        let mut homes = lock(&self.homes);
        homes.retain(|it| it.strong_count() > 0);
        homes.push(Arc::downgrade(home));
    }

    /// Whether servers may be told of a client's directories.
    pub(crate) fn passes_roots(&self) -> bool {
        self.clients == Clients::One
    }

    fn seats_at(&self, server: &str) -> Vec<Arc<Seat>> {
        lock(&self.tables).get(server).map(Table::seats).unwrap_or_default()
    }

    /// The requests of a client that a server works on and that can be asked this, the newest first.
    fn seats_of(
        &self,
        server: &str,
        whose: &Owned,
        asked: (&str, Option<&RawJson>),
    ) -> Vec<Arc<Seat>> {
        let is_his = |it: &Arc<Seat>| match whose {
            Owned::Request(seat) => Arc::ptr_eq(it, seat),
            Owned::Client(owner) => it.owner == *owner,
        };
        let can = |it: &Arc<Seat>| is_his(it) && it.caller.can(asked.0, asked.1);
        self.seats_at(server).into_iter().rev().filter(can).collect()
    }

    /// Clients without regard to their requests, the newest first.
    fn homes(&self) -> Vec<Arc<Conversation>> {
        lock(&self.homes).iter().rev().filter_map(Weak::upgrade).collect()
    }

    /// The least that any client wants to read in the log, if one has said so.
    pub(crate) fn lowest_level(&self) -> Option<LogLevel> {
        let (homes, ears) = (self.homes(), self.ears());
        let said = homes.iter().filter_map(|it| *lock(it.level()));
        said.chain(ears.iter().map(|it| it.level)).min()
    }

    /// Log messages that belong to no request go to this one too, until it is dropped.
    pub(crate) fn lend(&self, ear: &Arc<Ear>) {
        let mut ears = lock(&self.ears);
        ears.retain(|it| it.strong_count() > 0);
        ears.push(Arc::downgrade(ear));
    }

    fn ears(&self) -> Vec<Arc<Ear>> {
        lock(&self.ears).iter().filter_map(Weak::upgrade).collect()
    }

    /// Asks whoever the question is for. A request that ends meanwhile was not the one that it is about, so another
    /// one of the same client takes it over.
    async fn ask(&self, server: &str, whose: &Owned, asked: (&str, Option<&RawJson>)) -> Outcome {
        let mut tried: Vec<Arc<Seat>> = Vec::new();
        loop {
            let seats = self.seats_of(server, whose, asked);
            let is_new = |it: &&Arc<Seat>| !tried.iter().any(|tried| Arc::ptr_eq(tried, it));
            let Some(seat) = seats.iter().find(is_new) else {
                return Err(internal("the client is gone"));
            };
            let _open = seat.open_question();
            self.wake_who_waits();
            let answered = tokio::select! {
                biased;
                answered = seat.ask(asked.0, asked.1) => answered,
                () = self.left(server, whose) => None,
            };
            match answered {
                Some(outcome) => return outcome,
                None => tried.push(Arc::clone(seat)),
            }
        }
    }

    fn wake_who_waits(&self) {
        self.n_changes.send_modify(|it| *it = it.wrapping_add(1));
    }

    /// Waits until the server works for the client no longer.
    async fn left(&self, server: &str, whose: &Owned) {
        let is_his = |it: &Arc<Seat>| match whose {
            Owned::Request(seat) => Arc::ptr_eq(it, seat),
            Owned::Client(owner) => it.owner == *owner,
        };
        loop {
            let mut changes = self.n_changes.subscribe();
            if !self.seats_at(server).iter().any(is_his) || changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Seated {
    /// How the request ended, which says whether the server may still be at work on it.
    pub(crate) fn ended(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.switchboard
            .at(&self.server, |table| table.leave(&self.seat, self.end, Instant::now()));
        self.switchboard.wake_who_waits();
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.switchboard.at(self.server, |table| table.step_out(self.number));
        self.switchboard.wake_who_waits();
    }
}

/// What a question is known to belong to.
enum Owned {
    Request(Arc<Seat>),
    /// One of the requests of this client.
    Client(Owner),
}

/// What a server is told whose question could be about the requests of several clients.
fn unknown() -> JsonRpcError {
    internal(
        "the server works for several clients and does not say for which of them it asks, so nobody was asked; \
         the same call may succeed when it is made again",
    )
}

fn boxed(outcome: Outcome) -> Result<Box<RawValue>, JsonRpcError> {
    let raw = outcome?;
    raw.checked().map(ToOwned::to_owned).map_err(|_fault| internal("the answer is no JSON"))
}

impl ClientHandler for Switchboard {
    fn capabilities(&self) -> ClientCapabilities {
        let own = self.fallback.as_ref().and_then(|it| it.capabilities().roots);
        let passed = self.passes_roots().then_some(RootsCapability { list_changed: true });
        ClientCapabilities {
            roots: passed.or(own),
            sampling: Some(SamplingCapability { tools: true, context: true }),
            elicitation: Some(ElicitationCapability { form: true, url: true }),
            ..ClientCapabilities::default()
        }
    }

    fn pass_on<'a>(
        &'a self,
        server: &'a str,
        question: RawQuestion<'a>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
        let RawQuestion { method, params, about } = question;
        let is_roots = method == Method::ListRoots.as_str();
        if is_roots && !self.passes_roots() {
            return None;
        }
        let whose = self.at(server, |table| table.whose(about, Instant::now()));
        let owned = match whose {
            Whose::Request(seat) => Some(Owned::Request(seat)),
            Whose::Client(owner) => Some(Owned::Client(owner)),
            Whose::Nobody => None,
            Whose::Unknown => return Some(Box::pin(async { Err(unknown()) })),
        };
        let asked = (method, params);
        if let Some(owned) = owned.filter(|it| !self.seats_of(server, it, asked).is_empty()) {
            return Some(Box::pin(async move { boxed(self.ask(server, &owned, asked).await) }));
        }
        if !is_roots {
            return None;
        }
        let homes = self.homes();
        let home = homes.into_iter().find(|it| it.sees(server) && it.can(method))?;
        Some(Box::pin(async move { boxed(home.ask(home.out(), method, None).await) }))
    }

    fn elicit<'a>(
        &'a self,
        server: &'a str,
        question: Elicitation,
    ) -> BoxFuture<'a, ElicitationAnswer> {
        match &self.fallback {
            Some(fallback) => fallback.elicit(server, question),
            // Nobody is there, which is not the same as a no.
            None => Box::pin(async { ElicitationAnswer::Cancel }),
        }
    }

    fn sample<'a>(
        &'a self,
        server: &'a str,
        params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, Refusal>> {
        match &self.fallback {
            Some(fallback) => fallback.sample(server, params),
            None => Box::pin(async {
                Err(Refusal::Failed("no client with a model works with this server".to_owned()))
            }),
        }
    }

    fn roots<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        match &self.fallback {
            Some(fallback) => fallback.roots(server),
            None => Box::pin(async { Vec::new() }),
        }
    }

    fn log_from(&self, server: &str, message: &LogMessage) {
        let seats = self.seats_at(server);
        // Somebody else may have made the server talkative.
        let usual = if self.lowest_level().is_some() { LogLevel::Info } else { LogLevel::Debug };
        for seat in &seats {
            seat.log(server, message, usual);
        }
        if seats.is_empty() {
            let homes = self.homes();
            let homes = homes.iter().filter(|it| it.sees(server));
            homes.for_each(|it| it.log(server, message, usual));
            self.ears().iter().for_each(|it| it.hear(server, message));
        }
        if let Some(fallback) = &self.fallback {
            fallback.log_from(server, message);
        }
    }
}

impl fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switchboard")
            .field("servers", &lock(&self.tables).len())
            .field("homes", &lock(&self.homes).len())
            .finish_non_exhaustive()
    }
}
