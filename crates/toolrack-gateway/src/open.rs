//! The requests of one client that are open, by their ids: those that are worked on, and those that wait until there
//! are less of them.
//!
//! **Invariant:** an id belongs to one request at a time, and there are never more than the bounds, however many come
//! at the same moment.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolrack_mcp::Method;
use toolrack_transport::{JsonRpcError, RequestId};

use crate::encode::invalid_request;
use crate::error_mapping::RelayFailure;
use crate::lock::lock;

/// What is open.
#[derive(Debug)]
pub(crate) struct OpenRequests {
    all: Mutex<HashMap<RequestId, (CancellationToken, Until)>>,
    most: usize,
    at_work: Semaphore,
    n_at_work: usize,
}

/// How long a request waits until it is worked on.
const WAIT: Duration = Duration::from_mins(1);

/// How long a request is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until it is answered.
    Answered,
    /// Until its client has enough.
    Ended,
}

impl Until {
    pub(crate) fn of(method: &str) -> Self {
        if method == Method::Listen.as_str() { Until::Ended } else { Until::Answered }
    }
}

impl OpenRequests {
    /// So many may be worked on, and so many wait.
    pub(crate) fn new(n_at_work: usize, n_waiting: usize) -> Self {
        let most = n_at_work.saturating_add(n_waiting);
        let n_at_work = n_at_work.min(Semaphore::MAX_PERMITS);
        Self { all: Mutex::default(), most, at_work: Semaphore::new(n_at_work), n_at_work }
    }

    /// Waits until the request may be worked on, which it may until the place is dropped. What asks nobody, or goes on
    /// until its client has enough, needs no place.
    pub(crate) async fn place(
        &self,
        method: &str,
    ) -> Result<Option<SemaphorePermit<'_>>, JsonRpcError> {
        if method == Method::Ping.as_str() || Until::of(method) == Until::Ended {
            return Ok(None);
        }
        match timeout(WAIT, self.at_work.acquire()).await {
            Ok(place) => Ok(place.ok()),
            Err(_elapsed) => Err(RelayFailure::busy(format!(
                "{} requests are open, and none was answered within {} s",
                self.n_at_work,
                WAIT.as_secs()
            ))),
        }
    }

    /// Takes an id for a request, which is cancelled by the token.
    pub(crate) fn claim(
        &self,
        id: &RequestId,
        token: &CancellationToken,
        until: Until,
    ) -> Result<(), JsonRpcError> {
        let mut all = lock(&self.all);
        let is_full = all.len() >= self.most;
        match all.entry(id.clone()) {
            _ if is_full => {
                let message = format!("too many requests are open: {}", self.most);
                Err(RelayFailure::busy(message))
            }
            Entry::Occupied(_) => {
                Err(invalid_request("the id belongs to a request that is still open"))
            }
            Entry::Vacant(place) => {
                place.insert((token.clone(), until));
                Ok(())
            }
        }
    }

    /// Gives an id back.
    pub(crate) fn release(&self, id: &RequestId) {
        lock(&self.all).remove(id);
    }

    /// Cancels a request, if it is open.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let found = lock(&self.all).get(id).cloned();
        found.inspect(|(token, _)| token.cancel());
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.all).len()
    }

    /// How many will be answered by themselves.
    pub(crate) fn n_unanswered(&self) -> usize {
        lock(&self.all).values().filter(|(_, it)| *it == Until::Answered).count()
    }
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn an_id_is_free_again_when_its_request_is_answered() {
        let open = OpenRequests::new(1, 1);
        let token = CancellationToken::new();
        let claim = |id: u64, method: &str| {
            open.claim(&RequestId::from(id), &token, Until::of(method)).map_err(|it| it.code)
        };
        let (listen, call) = ("subscriptions/listen", "tools/call");
        assert_eq!(claim(1, listen), Ok(()));
        assert_eq!(claim(1, call), Err(-32600));
        assert_eq!(claim(2, call), Ok(()));
        assert_eq!((open.len(), open.n_unanswered()), (2, 1));
        assert_eq!(claim(3, call), Err(-32603), "there are too many");
        open.release(&RequestId::from(1));
        assert_eq!((claim(1, call), open.n_unanswered()), (Ok(()), 2));
        open.cancel(&RequestId::from(7));
        assert!(!token.is_cancelled());
        open.cancel(&RequestId::from(2));
        assert!(token.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_too_late_waits_for_a_place_and_not_forever() {
        let open = OpenRequests::new(1, 1);
        let first = open.place("tools/call").await.unwrap();
        assert!(first.is_some() && open.place("ping").await.unwrap().is_none());
        assert!(open.place("subscriptions/listen").await.unwrap().is_none());
        let busy = open.place("tools/call").await.unwrap_err();
        let told = RelayFailure::read(&busy).unwrap();
        assert_eq!(told.cause, crate::error_mapping::RelayCause::Busy);
        assert_eq!(told.delivery, toolrack_transport::Delivery::NotSent);
        let (second, ()) = tokio::join!(open.place("tools/call"), async { drop(first) });
        assert!(second.unwrap().is_some());
    }

    #[test]
    fn of_those_who_want_an_id_at_once_one_gets_it() {
        const N_THREADS: usize = 2;
        let (n_ready, token) = (AtomicUsize::new(0), CancellationToken::new());
        let rounds: Vec<OpenRequests> = (0..1_000).map(|_| OpenRequests::new(1, 0)).collect();
        let id = RequestId::from(1);
        let take_all = || {
            let mut n_taken = 0;
            for (round, open) in rounds.iter().enumerate() {
                // A barrier wakes one after the other, and they would never meet.
                n_ready.fetch_add(1, Ordering::AcqRel);
                while n_ready.load(Ordering::Acquire) < (round + 1) * N_THREADS {
                    spin_loop();
                }
                n_taken += usize::from(open.claim(&id, &token, Until::Answered).is_ok());
            }
            n_taken
        };
        let n_taken: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..N_THREADS).map(|_| scope.spawn(take_all)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).sum()
        });
        assert_eq!(n_taken, rounds.len());
    }
}
