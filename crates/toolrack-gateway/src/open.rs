//! The requests of one client that are open, by their ids.
//!
//! **Invariant:** an id belongs to one request at a time, and there are never more than the bound, however many come
//! at the same moment.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;

use tokio_util::sync::CancellationToken;
use toolrack_mcp::Method;
use toolrack_rpc::{JsonRpcError, RequestId};

use crate::lock::lock;
use crate::wire::{internal, invalid_request};

/// What is open.
#[derive(Debug)]
pub(crate) struct OpenRequests {
    all: Mutex<HashMap<RequestId, (CancellationToken, Until)>>,
    most: usize,
}

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
    pub(crate) fn new(most: usize) -> Self {
        Self { all: Mutex::default(), most }
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
            _ if is_full => Err(internal("too many requests are open")),
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
        let open = OpenRequests::new(2);
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

    #[test]
    fn of_those_who_want_an_id_at_once_one_gets_it() {
        const N_THREADS: usize = 2;
        let (n_ready, token) = (AtomicUsize::new(0), CancellationToken::new());
        let rounds: Vec<OpenRequests> = (0..1_000).map(|_| OpenRequests::new(1)).collect();
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
