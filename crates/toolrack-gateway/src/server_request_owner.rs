//! Owner of a server-initiated request: a queue per server decides which client it belongs to.
//!
//! A legacy server on a single stream does not say which of our requests its own request (sampling, elicitation)
//! belongs to. While it works for one client only, the answer is clear. So once a server has sent such an unattributed
//! request, the requests of different clients are sent to it one client at a time, if any of them supports
//! server requests. A server that never does this is not slowed down. A request that has waited [`MAX_TURN`]
//! proceeds anyway; a server request that is ambiguous then is rejected.
//!
//! This module is pure: no clock, no waiting. [`server_request_router`](crate::server_request_router) acts on it.
//!
//! **Invariant:** a server request that names our request belongs to that request, or to none.
//! **Invariant:** an unattributed server request belongs to a client only if no request of another client can have
//! caused it, not even a request cancelled less than [`GRACE`] ago. Otherwise it is
//! [ambiguous](RequestOwner::Ambiguous) and reaches no client.
//! **Invariant:** a request whose client has been asked something more than [`GRACE`] ago is no cause of further
//! server requests while others are active: its server waits for that response.
//! **Invariant:** a request waits at most [`MAX_TURN`] for its turn, and never for a person who is being asked.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_client::CallError;
use toolrack_manager::ManagerError;
use toolrack_transport::Delivery;

use crate::active_request::{ActiveRequest, ClientId};

/// How long an active request delays the requests of other clients. Longer calls are not worth waiting for: at worst
/// the server's own request is rejected.
pub(crate) const MAX_TURN: Duration = Duration::from_secs(5);
/// How long a server may still send requests because of a request that was cancelled, until it has processed the
/// cancellation; also how long it may send a second request along with a first one.
const GRACE: Duration = Duration::from_millis(250);
/// Clients remembered for cancelled requests. Two are enough to tell whether there is one other than a given client.
const MAX_CANCELLED: usize = 2;

/// The requests at one server.
#[derive(Debug, Default)]
pub(crate) struct ServerQueue {
    /// Whether the server has ever sent a request without naming ours.
    sends_unattributed: bool,
    active: Vec<QueueEntry>,
    /// Clients whose requests were cancelled and when, the latest last.
    cancelled: Vec<(ClientId, Instant)>,
    waiting: VecDeque<(u64, QueueEntry)>,
    n_tickets: u64,
}

#[derive(Debug)]
struct QueueEntry {
    request: Arc<ActiveRequest>,
    since: Instant,
}

impl QueueEntry {
    /// Until when the request delays those of other clients. A person may take minutes to answer, so once the client
    /// is asked only the grace period remains.
    fn blocks_until(&self) -> Instant {
        let asked = self.request.awaiting_client_since().map(|since| since + GRACE);
        // A client that is asked late does not prolong the turn.
        asked.unwrap_or(self.since + MAX_TURN).min(self.since + MAX_TURN)
    }
}

/// Whether a waiting request may proceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    /// Not before another request completes or this instant has come.
    WaitUntil(Instant),
}

/// What a server request belongs to.
#[derive(Debug)]
pub(crate) enum RequestOwner {
    Request(Arc<ActiveRequest>),
    /// One of the requests of this client.
    Client(ClientId),
    /// No active request.
    None,
    /// Requests of several clients can have caused it.
    Ambiguous,
}

/// Whether the server may still be working on a request that has ended for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The server responded, or never got the request.
    Done,
    /// The server may still work on it.
    Unknown,
}

impl Completion {
    pub(crate) fn from_call<T>(result: &Result<T, CallError>) -> Self {
        Self::from_delivery(result.as_ref().err().map(CallError::delivery))
    }

    pub(crate) fn from_manager<T>(result: &Result<T, ManagerError>) -> Self {
        Self::from_delivery(result.as_ref().err().map(ManagerError::delivery))
    }

    fn from_delivery(failed: Option<Delivery>) -> Self {
        match failed {
            None | Some(Delivery::NotSent | Delivery::Answered) => Completion::Done,
            Some(Delivery::Unknown) => Completion::Unknown,
        }
    }
}

impl ServerQueue {
    /// Whether the queue equals a new one and need not be kept.
    pub(crate) fn is_unused(&self) -> bool {
        let is_empty = self.active.is_empty() && self.waiting.is_empty();
        // A server that sends unattributed requests keeps its queue, so that clients still take
        // turns.
        !self.sends_unattributed && is_empty && self.cancelled.is_empty()
    }

    /// The active requests, the newest last.
    pub(crate) fn active(&self) -> Vec<Arc<ActiveRequest>> {
        self.active.iter().map(|entry| Arc::clone(&entry.request)).collect()
    }

    /// Whether requests of different clients take turns at this server.
    pub(crate) fn takes_turns(&self) -> bool {
        self.sends_unattributed
    }

    /// Adds a waiting request and returns its ticket.
    pub(crate) fn enqueue(&mut self, request: &Arc<ActiveRequest>, since: Instant) -> u64 {
        self.n_tickets += 1;
        let entry = QueueEntry { request: Arc::clone(request), since };
        self.waiting.push_back((self.n_tickets, entry));
        self.n_tickets
    }

    pub(crate) fn dequeue(&mut self, ticket: u64) {
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
    }

    /// Whether it is the turn of a waiting request.
    pub(crate) fn turn(&self, ticket: u64, now: Instant) -> Turn {
        let Some(index) = self.waiting.iter().position(|(waiting, _)| *waiting == ticket) else {
            return Turn::Now;
        };
        let Some((_, own)) = self.waiting.get(index).filter(|_| self.sends_unattributed) else {
            return Turn::Now;
        };
        // A client that is being asked may have to call this very server to find its answer, so it does not queue
        // behind requests that wait for it.
        let is_asked = |entry: &QueueEntry| {
            entry.request.client_id == own.request.client_id && entry.request.is_awaiting_client()
        };
        let n_ahead = if self.active.iter().any(is_asked) { 0 } else { index };
        let ahead = self.waiting.iter().take(n_ahead).map(|(_, entry)| entry);
        let others = self.active.iter().chain(ahead);
        let others = others.filter(|entry| could_be_confused(&entry.request, &own.request));
        let until = others.map(QueueEntry::blocks_until).filter(|until| *until > now).max();
        until.map_or(Turn::Now, Turn::WaitUntil)
    }

    /// Adds an active request.
    pub(crate) fn start(&mut self, request: &Arc<ActiveRequest>, since: Instant) {
        self.active.push(QueueEntry { request: Arc::clone(request), since });
    }

    /// Removes an active request.
    pub(crate) fn finish(
        &mut self,
        request: &Arc<ActiveRequest>,
        completion: Completion,
        now: Instant,
    ) {
        self.active.retain(|entry| !Arc::ptr_eq(&entry.request, request));
        if completion == Completion::Unknown {
            // One entry per client, with its latest cancellation.
            self.cancelled.retain(|(client_id, since)| {
                *client_id != request.client_id && is_recent(*since, now)
            });
            self.cancelled.push((request.client_id.clone(), now));
            let n_excess = self.cancelled.len().saturating_sub(MAX_CANCELLED);
            self.cancelled.drain(..n_excess);
        }
    }

    /// Forgets cancelled requests: a new server process knows nothing of them. That the server sends unattributed
    /// requests stays true.
    pub(crate) fn server_restarted(&mut self) {
        self.cancelled.clear();
    }

    /// Decides what a server request belongs to. `about` is the id of our request that it names, if any. If it names
    /// none, requests to this server are serialized from then on.
    pub(crate) fn owner_of_request(&mut self, about: Option<u64>, now: Instant) -> RequestOwner {
        if let Some(id) = about {
            let sent = self.active.iter().filter_map(|entry| {
                let order = entry.request.send_order(id)?;
                Some((order, &entry.request))
            });
            // Ids restart with a new connection, and a request of the old one may still be unwinding: the latest wins.
            let latest = sent.max_by_key(|(order, _)| *order);
            return latest.map_or(RequestOwner::None, |(_, request)| {
                RequestOwner::Request(Arc::clone(request))
            });
        }
        self.sends_unattributed = true;
        self.cancelled.retain(|(_, since)| is_recent(*since, now));
        // A server sends several requests at once, or waits for each response. So a request whose client was asked a
        // while ago is idle at the server, and cannot be the cause while another one is being worked on.
        let is_idle = |entry: &&QueueEntry| {
            entry.request.awaiting_client_since().is_some_and(|since| !is_recent(since, now))
        };
        let (idle, busy): (Vec<&QueueEntry>, Vec<&QueueEntry>) =
            self.active.iter().partition(is_idle);
        let causes = if busy.is_empty() { idle } else { busy };
        let Some(first) = causes.first().map(|entry| entry.request.client_id.clone()) else {
            return RequestOwner::None;
        };
        let cancelled = self.cancelled.iter().map(|(client_id, _)| client_id);
        let mut clients = causes.iter().map(|entry| &entry.request.client_id).chain(cancelled);
        if clients.all(|client_id| *client_id == first) {
            RequestOwner::Client(first)
        } else {
            RequestOwner::Ambiguous
        }
    }
}

fn is_recent(since: Instant, now: Instant) -> bool {
    now.duration_since(since) < GRACE
}

/// Whether a server request could reach the wrong one of the two clients. If neither supports server requests, none
/// can reach either.
fn could_be_confused(one: &ActiveRequest, other: &ActiveRequest) -> bool {
    let is_reachable =
        one.client.accepts_server_requests() || other.client.accepts_server_requests();
    one.client_id != other.client_id && is_reachable
}

#[cfg(test)]
mod tests;
