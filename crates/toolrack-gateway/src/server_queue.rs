//! What one server works on, for whom, and who has to wait for a turn.
//!
//! A legacy server on one stream does not say why it asks. As long as it works for one client only, the question is
//! that client's. So once a server has asked like this, the requests of several clients reach it one client after the
//! other, as far as one of them can be asked at all; a server that never asks is left alone. Who has waited long
//! enough goes on all the same, and what the server asks then is refused.
//!
//! **Invariant:** a question belongs to a client only if no request of another could be its cause, not even one that
//! was given up a moment ago. A request whose client has been asked something for more than that is no cause: its
//! server waits for the answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_client::CallError;
use toolrack_manager::RackError;
use toolrack_transport::Delivery;

use crate::active_request::{Owner, Seat};

/// How long a request holds up those of other clients. One that takes longer is not worth waiting for.
pub(crate) const TURN: Duration = Duration::from_secs(5);
/// How long a server is taken to ask still because of a request that was given up, until it has heard of that, and of
/// one for which it has just asked something else.
const AFTERMATH: Duration = Duration::from_millis(250);
/// Clients that gave up. To tell whether there is another one than some client, two are enough.
const MAX_GIVEN_UP: usize = 2;

/// The requests at one server.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Whether the server has ever asked without saying why.
    asks: bool,
    seats: Vec<Place>,
    /// Whose requests were given up and when, the latest last.
    given_up: Vec<(Owner, Instant)>,
    line: VecDeque<(u64, Place)>,
    n_lined_up: u64,
}

#[derive(Debug)]
struct Place {
    seat: Arc<Seat>,
    since: Instant,
}

impl Place {
    /// How long it holds up others. A person who is asked may think for long; nobody waits for that.
    fn until(&self) -> Instant {
        let asked = self.seat.asked_since().map(|since| since + AFTERMATH);
        asked.unwrap_or(self.since + TURN).min(self.since + TURN)
    }
}

/// Whether a request may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    /// Not before something ends, or this moment has come.
    Wait(Instant),
}

/// What a question belongs to.
#[derive(Debug)]
pub(crate) enum Whose {
    Request(Arc<Seat>),
    /// One of the requests of this client.
    Client(Owner),
    Nobody,
    /// There is no telling.
    Unknown,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The server is done with it, or never saw it.
    Done,
    /// The server may still be at it.
    Unknown,
}

impl End {
    pub(crate) fn of_call<T>(outcome: &Result<T, CallError>) -> Self {
        Self::of(outcome.as_ref().err().map(CallError::delivery))
    }

    pub(crate) fn of_rack<T>(outcome: &Result<T, RackError>) -> Self {
        Self::of(outcome.as_ref().err().map(RackError::delivery))
    }

    fn of(failed: Option<Delivery>) -> Self {
        match failed {
            None | Some(Delivery::NotSent | Delivery::Answered) => End::Done,
            Some(Delivery::Unknown) => End::Unknown,
        }
    }
}

impl Table {
    /// Whether everything about the server is as if nobody had ever used it.
    pub(crate) fn is_blank(&self) -> bool {
        let is_empty = self.seats.is_empty() && self.line.is_empty();
        !self.asks && is_empty && self.given_up.is_empty()
    }

    /// The requests that the server works on, the newest last.
    pub(crate) fn seats(&self) -> Vec<Arc<Seat>> {
        self.seats.iter().map(|it| Arc::clone(&it.seat)).collect()
    }

    /// Whether anybody may have to wait.
    pub(crate) fn has_turns(&self) -> bool {
        self.asks
    }

    pub(crate) fn line_up(&mut self, seat: &Arc<Seat>, since: Instant) -> u64 {
        self.n_lined_up += 1;
        self.line.push_back((self.n_lined_up, Place { seat: Arc::clone(seat), since }));
        self.n_lined_up
    }

    pub(crate) fn step_out(&mut self, number: u64) {
        self.line.retain(|(it, _)| *it != number);
    }

    /// Whether it is the turn of somebody in the line.
    pub(crate) fn turn(&self, number: u64, now: Instant) -> Turn {
        let Some(index) = self.line.iter().position(|(it, _)| *it == number) else {
            return Turn::Now;
        };
        let Some((_, mine)) = self.line.get(index).filter(|_| self.asks) else { return Turn::Now };
        // Whoever is asked may have to use the server to find the answer.
        let is_asked = |it: &Place| it.seat.owner == mine.seat.owner && it.seat.is_asked();
        let n_ahead = if self.seats.iter().any(is_asked) { 0 } else { index };
        let ahead = self.line.iter().take(n_ahead).map(|(_, it)| it);
        let others = self.seats.iter().chain(ahead).filter(|it| are_confused(&it.seat, &mine.seat));
        let until = others.map(Place::until).filter(|it| *it > now).max();
        until.map_or(Turn::Now, Turn::Wait)
    }

    pub(crate) fn sit(&mut self, seat: &Arc<Seat>, since: Instant) {
        self.seats.push(Place { seat: Arc::clone(seat), since });
    }

    pub(crate) fn leave(&mut self, seat: &Arc<Seat>, end: End, now: Instant) {
        self.seats.retain(|it| !Arc::ptr_eq(&it.seat, seat));
        if end == End::Unknown {
            self.given_up.retain(|(owner, since)| *owner != seat.owner && is_near(*since, now));
            self.given_up.push((seat.owner.clone(), now));
            let n_beyond = self.given_up.len().saturating_sub(MAX_GIVEN_UP);
            self.given_up.drain(..n_beyond);
        }
    }

    /// A new process knows nothing of what was given up.
    pub(crate) fn renewed(&mut self) {
        self.given_up.clear();
    }

    /// Finds out what a question belongs to. One that does not say which of our requests it is about has its server
    /// remembered for it.
    pub(crate) fn whose(&mut self, about: Option<u64>, now: Instant) -> Whose {
        if let Some(id) = about {
            let known = self.seats.iter().filter_map(|it| Some((it.seat.sent_as(id)?, &it.seat)));
            // An earlier process may have had a request of the same number.
            let latest = known.max_by_key(|(order, _)| *order);
            return latest.map_or(Whose::Nobody, |(_, seat)| Whose::Request(Arc::clone(seat)));
        }
        self.asks = true;
        self.given_up.retain(|(_, since)| is_near(*since, now));
        // A server asks several things at once or one after the other: while a person thinks, it waits for the answer.
        let waits = |it: &&Place| it.seat.asked_since().is_some_and(|since| !is_near(since, now));
        let (waiting, at_work): (Vec<&Place>, Vec<&Place>) = self.seats.iter().partition(waits);
        let causes = if at_work.is_empty() { waiting } else { at_work };
        let Some(first) = causes.first().map(|it| it.seat.owner.clone()) else {
            return Whose::Nobody;
        };
        let given_up = self.given_up.iter().map(|(owner, _)| owner);
        let mut owners = causes.iter().map(|it| &it.seat.owner).chain(given_up);
        if owners.all(|it| *it == first) { Whose::Client(first) } else { Whose::Unknown }
    }
}

fn is_near(since: Instant, now: Instant) -> bool {
    now.duration_since(since) < AFTERMATH
}

/// Whether a question could be taken for the other's. Two that cannot be asked need not be told apart.
fn are_confused(one: &Seat, other: &Seat) -> bool {
    let can_be_asked = one.caller.can_be_asked() || other.caller.can_be_asked();
    one.owner != other.owner && can_be_asked
}

#[cfg(test)]
mod tests;
