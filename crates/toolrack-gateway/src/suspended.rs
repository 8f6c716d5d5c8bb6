//! Requests of modern clients that a legacy server has interrupted with a question.
//!
//! The client got the question as a result; the request waits here until the client repeats it with the answer.
//! What leads back to it is a state that nobody can guess.
//!
//! **Invariant:** there are never more than the bound, and each is dropped when its client takes too long or the
//! gateway ends, which cancels it at the server.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use toolrack_transport::JsonRpcError;
use uuid::Uuid;

use crate::active_request::{Asked, Seat};
use crate::encode::{Outcome, internal, invalid_params};
use crate::lock::lock;

/// A request at work.
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A request that waits for its client.
pub(crate) struct Waiting {
    pub(crate) work: Work,
    pub(crate) seat: Arc<Seat>,
    pub(crate) questions: mpsc::Receiver<Asked>,
    /// What was asked, by the keys that the client was given.
    pub(crate) asked: Vec<(String, Asked)>,
    /// How many keys were given, so that none is given twice.
    pub(crate) n_asked: usize,
    /// The method and the subject, which the repeated request must share.
    pub(crate) about: (String, String),
}

/// All requests that wait.
pub(crate) struct Parked {
    /// What the states given here begin with, and no others: a server may be a gateway too, and its states are its
    /// own.
    prefix: String,
    /// Nothing once the gateway has ended. What waits holds on to what this is a part of, so that it would keep
    /// itself alive.
    waiting: Mutex<Option<HashMap<Uuid, (Instant, Waiting)>>>,
    most: usize,
    patience: Duration,
}

impl Parked {
    pub(crate) fn new(most: usize, patience: Duration) -> Self {
        let prefix = format!("toolrack-parked:{}:", Uuid::new_v4().simple());
        Self { prefix, waiting: Mutex::new(Some(HashMap::new())), most, patience }
    }

    /// Keeps a request, and gives the state that leads back to it.
    pub(crate) fn keep(&self, waiting: Waiting) -> Result<String, JsonRpcError> {
        self.expire();
        let mut all = lock(&self.waiting);
        let Some(all) = all.as_mut() else { return Err(internal("the gateway is closed")) };
        if all.len() >= self.most {
            return Err(internal("too many requests wait for an answer of their client"));
        }
        let id = Uuid::new_v4();
        all.insert(id, (Instant::now() + self.patience, waiting));
        Ok(format!("{}{id}", self.prefix))
    }

    /// Whether a state was given here, and not by a server.
    pub(crate) fn is_ours(&self, state: &str) -> bool {
        state.starts_with(&self.prefix)
    }

    /// Takes a request out again.
    pub(crate) fn take(
        &self,
        state: &str,
        about: &(String, String),
    ) -> Result<Waiting, JsonRpcError> {
        self.expire();
        let id = state.strip_prefix(self.prefix.as_str()).and_then(|it| it.parse().ok());
        let mut all = lock(&self.waiting);
        let all = all.as_mut().ok_or_else(Self::lost)?;
        let found = id.filter(|id| all.get(id).is_some_and(|(_, it)| it.about == *about));
        let found = found.and_then(|id| all.remove(&id));
        found.map(|(_, waiting)| waiting).ok_or_else(Self::lost)
    }

    /// What a client is told whose state nobody knows.
    pub(crate) fn lost() -> JsonRpcError {
        invalid_params("`requestState` leads nowhere: it was used, has expired, or was made up")
    }

    /// Drops what has waited too long.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        let mut waiting = lock(&self.waiting);
        let Some(all) = waiting.as_mut() else { return };
        let late: Vec<Uuid> = all.iter().filter(|(_, it)| it.0 <= now).map(|(id, _)| *id).collect();
        let dropped: Vec<_> = late.iter().filter_map(|id| all.remove(id)).collect();
        drop(waiting);
        // Dropping a request tells its server, which is not done under the lock.
        drop(dropped);
    }

    /// Drops everything, for good: nothing is kept any more.
    pub(crate) fn clear(&self) {
        let dropped = lock(&self.waiting).take();
        drop(dropped);
    }
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked")
            .field("waiting", &lock(&self.waiting).as_ref().map(HashMap::len))
            .finish_non_exhaustive()
    }
}
