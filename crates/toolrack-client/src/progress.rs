//! Progress, from the task that received it to the task of the caller that wants to see it.
//!
//! **Invariant:** a caller's function runs in the caller's own task, so a slow one delays nobody else.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use toolrack_mcp::Progress;

use crate::session::lock;

/// Reports that wait for their caller. When it is full, the oldest goes: a newer one says more.
const CAPACITY: usize = 64;

/// What a caller wants to be called with each report.
pub type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

/// The calls that want to see their progress, by the id of the request.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    open: Mutex<HashMap<u64, Arc<Reports>>>,
}

#[derive(Debug, Default)]
struct Reports {
    waiting: Mutex<VecDeque<Progress>>,
    bell: Notify,
}

/// One caller's place in the table, empty until the request has its id. Dropping it clears the place.
pub(crate) struct Watch<'a> {
    watchers: &'a Watchers,
    reports: Arc<Reports>,
    id: AtomicU64,
    on_progress: &'a OnProgress,
}

impl Watchers {
    /// Hands a report to whoever watches request `id`. Nobody does most of the time.
    pub(crate) fn report(&self, id: u64, progress: Progress) {
        let Some(reports) = lock(&self.open).get(&id).map(Arc::clone) else { return };
        let mut waiting = lock(&reports.waiting);
        if waiting.len() == CAPACITY {
            waiting.pop_front();
        }
        waiting.push_back(progress);
        drop(waiting);
        reports.bell.notify_one();
    }

    /// Whether parsing a report is worth while.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.open).is_empty()
    }

    pub(crate) fn watch<'a>(&'a self, on_progress: &'a OnProgress) -> Watch<'a> {
        Watch { watchers: self, reports: Arc::default(), id: AtomicU64::new(0), on_progress }
    }
}

impl Watch<'_> {
    /// The request has got its id.
    pub(crate) fn begin(&self, id: u64) {
        self.id.store(id, Ordering::Relaxed);
        lock(&self.watchers.open).insert(id, Arc::clone(&self.reports));
    }

    /// Shows reports as they come, without end.
    async fn show(&self) -> std::convert::Infallible {
        loop {
            self.reports.bell.notified().await;
            self.show_waiting();
        }
    }

    /// Works, and shows reports meanwhile.
    pub(crate) async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let outcome = tokio::select! {
            biased;
            never = self.show() => match never {},
            outcome = work => outcome,
        };
        self.show_waiting();
        outcome
    }

    /// Shows what has come so far.
    pub(crate) fn show_waiting(&self) {
        loop {
            let next = lock(&self.reports.waiting).pop_front();
            let Some(progress) = next else { return };
            (self.on_progress)(&progress);
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        lock(&self.watchers.open).remove(&self.id.load(Ordering::Relaxed));
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use toolrack_mcp::Token;

    use super::*;

    fn progress(done: u32) -> Progress {
        Progress { token: Token::from(7), progress: f64::from(done), total: None, message: None }
    }

    #[test]
    fn reports_reach_their_call_and_no_other() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let on_progress: OnProgress = Arc::new(move |it| sink.lock().unwrap().push(it.progress));
        let watchers = Watchers::default();
        let watch = watchers.watch(&on_progress);
        watchers.report(7, progress(1));
        watch.begin(7);
        watchers.report(7, progress(2));
        watchers.report(8, progress(3));
        watch.show_waiting();
        assert_eq!(*seen.lock().unwrap(), [2.0]);
        drop(watch);
        assert!(watchers.is_empty());
    }

    #[test]
    fn a_flood_keeps_the_newest() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let on_progress: OnProgress = Arc::new(move |it| sink.lock().unwrap().push(it.progress));
        let watchers = Watchers::default();
        let watch = watchers.watch(&on_progress);
        watch.begin(7);
        for done in 0..100 {
            watchers.report(7, progress(done));
        }
        watch.show_waiting();
        let seen = seen.lock().unwrap();
        assert_eq!((seen.len(), seen[0], seen[63]), (CAPACITY, 36.0, 99.0));
    }
}
