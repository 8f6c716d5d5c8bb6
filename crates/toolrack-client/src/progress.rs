//! Progress notifications: routed from the reader task to the callback of their call.
//!
//! **Invariant:** a progress callback runs in its caller's task, so a slow callback delays no other call.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use toolrack_mcp::Progress;

/// Reports queued per call. When full, the oldest is dropped: a newer one supersedes it.
const CAPACITY: usize = 64;

/// Progress callback.
pub type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

/// Calls with a progress callback, by request id.
#[derive(Debug, Default)]
pub(crate) struct ProgressRoutes {
    routes: Mutex<HashMap<u64, Arc<ProgressQueue>>>,
}

#[derive(Debug, Default)]
struct ProgressQueue {
    reports: Mutex<VecDeque<Progress>>,
    wakeup: Notify,
}

/// One call's route, registered once the request has an id. Dropping it removes the route.
pub(crate) struct ProgressReceiver<'a> {
    routes: &'a ProgressRoutes,
    queue: Arc<ProgressQueue>,
    id: AtomicU64,
    on_progress: &'a OnProgress,
}

impl ProgressRoutes {
    /// Queues a report for request `id`. Most requests have no route.
    pub(crate) fn report(&self, id: u64, progress: Progress) {
        // The two locks are never held together, and the callback runs under neither.
        let Some(queue) = self.routes.lock().get(&id).map(Arc::clone) else { return };
        let mut reports = queue.reports.lock();
        if reports.len() == CAPACITY {
            reports.pop_front();
        }
        reports.push_back(progress);
        drop(reports);
        queue.wakeup.notify_one();
    }

    pub(crate) fn receiver<'a>(&'a self, on_progress: &'a OnProgress) -> ProgressReceiver<'a> {
        ProgressReceiver { routes: self, queue: Arc::default(), id: AtomicU64::new(0), on_progress }
    }
}

impl ProgressReceiver<'_> {
    /// Registers the route under the request's id. Runs while the request is serialized, so that no progress can
    /// arrive before the route exists.
    pub(crate) fn register(&self, id: u64) {
        self.id.store(id, Ordering::Relaxed);
        self.routes.routes.lock().insert(id, Arc::clone(&self.queue));
    }

    /// Delivers reports forever.
    async fn deliver(&self) -> std::convert::Infallible {
        loop {
            // `notify_one` stores a permit, so a report between two waits is not lost.
            self.queue.wakeup.notified().await;
            self.deliver_queued();
        }
    }

    /// Runs `work` and delivers reports meanwhile.
    pub(crate) async fn run_with<T>(&self, work: impl Future<Output = T>) -> T {
        // Reports come first, so that none is overtaken by the outcome.
        let outcome = tokio::select! {
            biased;
            never = self.deliver() => match never {},
            outcome = work => outcome,
        };
        // Reports that arrived together with the response.
        self.deliver_queued();
        outcome
    }

    /// Delivers the queued reports.
    pub(crate) fn deliver_queued(&self) {
        loop {
            let next = self.queue.reports.lock().pop_front();
            let Some(progress) = next else { return };
            (self.on_progress)(&progress);
        }
    }
}

impl Drop for ProgressReceiver<'_> {
    fn drop(&mut self) {
        self.routes.routes.lock().remove(&self.id.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use toolrack_mcp::ProgressToken;

    use super::*;

    fn progress(done: u32) -> Progress {
        Progress {
            token: ProgressToken::Integer(7),
            progress: f64::from(done),
            total: None,
            message: None,
        }
    }

    #[test]
    fn progress_reaches_only_its_call() {
        let values = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&values);
        let on_progress: OnProgress = Arc::new(move |report| sink.lock().push(report.progress));
        let routes = ProgressRoutes::default();
        let receiver = routes.receiver(&on_progress);
        routes.report(7, progress(1));
        receiver.register(7);
        routes.report(7, progress(2));
        routes.report(8, progress(3));
        receiver.deliver_queued();
        assert_eq!(*values.lock(), [2.0]);
        drop(receiver);
        assert!(routes.routes.lock().is_empty());
    }

    #[test]
    fn full_progress_queue_keeps_the_newest() {
        let values = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&values);
        let on_progress: OnProgress = Arc::new(move |report| sink.lock().push(report.progress));
        let routes = ProgressRoutes::default();
        let receiver = routes.receiver(&on_progress);
        receiver.register(7);
        for done in 0..100 {
            routes.report(7, progress(done));
        }
        receiver.deliver_queued();
        let values = values.lock();
        assert_eq!((values.len(), values[0], values[63]), (CAPACITY, 36.0, 99.0));
    }
}
