//! Timer thread: runs jobs at their time, so that slow calls need no threads of their own.
//!
//! **Invariant:** jobs of the same instant run in insertion order. Dropping the timer drops its pending jobs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::harness::now;

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Timer {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Jobs by their time and insertion number.
    jobs: BTreeMap<(Instant, u64), Job>,
    n_added: u64,
    closed: bool,
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("waiting", &self.shared.queue.lock().jobs.len()).finish()
    }
}

impl Timer {
    pub(crate) fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let worker = Arc::clone(&shared);
        thread::spawn(move || {
            while let Some(job) = worker.next() {
                job();
            }
        });
        Self { shared }
    }

    pub(crate) fn after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        let key = (now() + delay, queue.n_added);
        queue.n_added += 1;
        queue.jobs.insert(key, Box::new(job));
        drop(queue);
        self.shared.wakeup.notify_one();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.wakeup.notify_one();
    }
}

impl Shared {
    /// Waits for the next due job; `None` when the timer is dropped.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            // A wake-up may mean a new job, an earlier one, or a drop, so everything is checked again.
            let first = queue.jobs.first_key_value().map(|((at, _), _)| *at);
            match first.map(|at| at.saturating_duration_since(now())) {
                Some(Duration::ZERO) => return queue.jobs.pop_first().map(|(_, job)| job),
                Some(wait) => {
                    self.wakeup.wait_for(&mut queue, wait);
                }
                None => self.wakeup.wait(&mut queue),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_in_time_order() {
        let timer = Timer::start();
        let (sender, receiver) = mpsc::channel();
        for (name, delay) in [("late", 30), ("soon", 0), ("soon too", 0), ("later", 60)] {
            let sender = sender.clone();
            timer.after(Duration::from_millis(delay), move || {
                sender.send(name).expect("the test listens");
            });
        }
        let order: Vec<&str> = receiver.iter().take(4).collect();
        assert_eq!(order, ["soon", "soon too", "late", "later"]);
    }
}
