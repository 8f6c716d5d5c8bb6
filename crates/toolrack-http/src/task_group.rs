//! The tasks of a line: where they are begun, and how all of them are ended.

use std::future::Future;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Begins tasks, from inside and outside of the runtime.
#[derive(Debug, Clone)]
pub(crate) struct Staff {
    tracker: TaskTracker,
    handle: Handle,
    /// Raised when the line ends. Every task listens to it.
    pub(crate) stop: CancellationToken,
}

impl Staff {
    /// Staff in the runtime in which this is called: for the line, and for its connections, which end a
    /// little later.
    pub(crate) fn pair() -> (Self, Self) {
        let first = Self {
            tracker: TaskTracker::new(),
            handle: Handle::current(),
            stop: CancellationToken::new(),
        };
        let second = Self { stop: CancellationToken::new(), ..first.clone() };
        (first, second)
    }

    /// Begins a task, which ends by itself soon after `stop`.
    pub(crate) fn employ(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn_on(task, &self.handle);
    }

    /// Waits until every task has ended.
    pub(crate) async fn gone(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl<F> hyper::rt::Executor<F> for Staff
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let stop = self.stop.clone();
        self.employ(async move {
            tokio::select! {
                _output = task => {}
                () = stop.cancelled() => {}
            }
        });
    }
}
