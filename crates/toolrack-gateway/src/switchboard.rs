//! Who answers what legacy servers ask: the client whose request the server works on.
//!
//! A server of the legacy era does not say why it asks. So its question goes to the newest request that it works
//! on and whose client can answer. Servers of the modern era ask in their results, which never come here.
//!
//! Directories are another matter: a legacy server keeps them for whatever it does next, for whomever. So they are
//! asked of a client only where there is but one.
//!
//! **Invariant:** a client is only asked what it has declared, and only by servers that it sees.
//! **Invariant:** no client decides on the directories of a server that others use too.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use toolrack_client::{ClientHandler, Limits, RawQuestion, Refusal};
use toolrack_link::BoxFuture;
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationAnswer, ElicitationCapability, LogLevel,
    LogMessage, Method, Root, RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
};
use toolrack_rpc::{JsonRpcError, RawJson};

use crate::conversation::Conversation;
use crate::lock::lock;
use crate::seat::{Asked, Seat};
use crate::wire::{Outcome, internal};

/// Questions of one server that are open at once.
const MAX_QUESTIONS: usize = 512;

/// The way from servers back to clients. Give it to the manager as its handler, and to every gateway in front
/// of that manager.
#[derive(Default)]
pub struct Switchboard {
    clients: Clients,
    seats: Mutex<HashMap<Box<str>, Vec<Arc<Seat>>>>,
    homes: Mutex<Vec<Weak<Conversation>>>,
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

    pub(crate) fn sit(self: &Arc<Self>, server: &str, seat: &Arc<Seat>) -> Seated {
        lock(&self.seats).entry(server.into()).or_default().push(Arc::clone(seat));
        let (switchboard, seat) = (Arc::clone(self), Arc::clone(seat));
        Seated { switchboard, server: server.into(), seat }
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
        lock(&self.seats).get(server).cloned().unwrap_or_default()
    }

    /// Clients without regard to their requests, the newest first.
    fn homes(&self) -> Vec<Arc<Conversation>> {
        lock(&self.homes).iter().rev().filter_map(Weak::upgrade).collect()
    }

    /// The least that any client wants to read in the log, if one has said so.
    pub(crate) fn lowest_level(&self) -> Option<LogLevel> {
        self.homes().iter().filter_map(|it| *lock(it.level())).min()
    }

    /// Gives the question to the newest request that can take it.
    fn hand_over(
        &self,
        server: &str,
        method: &str,
        params: Option<&RawJson>,
    ) -> Option<oneshot::Receiver<Outcome>> {
        for seat in self.seats_at(server).iter().rev() {
            if seat.caller.can(method, params) {
                let (answer, answered) = oneshot::channel();
                let asked = Asked { method: method.to_owned(), params: params.cloned(), answer };
                if seat.ask(asked).is_ok() {
                    return Some(answered);
                }
            }
        }
        None
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let mut seats = lock(&self.switchboard.seats);
        let Some(here) = seats.get_mut(&self.server) else { return };
        if let Some(place) = here.iter().position(|it| Arc::ptr_eq(it, &self.seat)) {
            here.remove(place);
        }
        if here.is_empty() {
            seats.remove(&self.server);
        }
    }
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
        let RawQuestion { method, params, .. } = question;
        let is_roots = method == Method::ListRoots.as_str();
        if is_roots && !self.passes_roots() {
            return None;
        }
        if let Some(answered) = self.hand_over(server, method, params) {
            return Some(Box::pin(async {
                let gone = |_dropped| Err(internal("the client is gone"));
                boxed(answered.await.unwrap_or_else(gone))
            }));
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
        for seat in &seats {
            seat.log(server, message);
        }
        if seats.is_empty() {
            self.homes().iter().filter(|it| it.sees(server)).for_each(|it| it.log(server, message));
        }
        if let Some(fallback) = &self.fallback {
            fallback.log_from(server, message);
        }
    }
}

impl fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switchboard")
            .field("servers", &lock(&self.seats).len())
            .field("homes", &lock(&self.homes).len())
            .finish_non_exhaustive()
    }
}
