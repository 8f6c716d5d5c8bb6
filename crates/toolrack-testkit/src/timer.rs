//! Timer thread: runs jobs at their time, so that slow calls need no threads of their own.
//!
//! **Invariant:** jobs of the same instant run in insertion order. Dropping the timer drops its pending jobs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Timer {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: BinaryHeap<Entry>,
    n_added: u64,
    closed: bool,
}

struct Entry {
    at: Instant,
    order: u64,
    job: Job,
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("waiting", &self.shared.lock().jobs.len()).finish()
    }
}

impl Timer {
    pub(crate) fn start() -> Self {
        let shared =
            Arc::new(Shared { queue: Mutex::new(Queue::default()), wakeup: Condvar::new() });
        let worker = Arc::clone(&shared);
        thread::spawn(move || worker.run());
        Self { shared }
    }

    pub(crate) fn after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.lock();
        let order = queue.n_added;
        queue.n_added += 1;
        queue.jobs.push(Entry { at: now() + delay, order, job: Box::new(job) });
        drop(queue);
        self.shared.wakeup.notify_one();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.wakeup.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    /// Waits for the next due job; `None` when the timer is dropped.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            // A wake-up may mean a new job, an earlier one, or a drop, so everything is checked again.
            let wait = queue.jobs.peek().map(|first| first.at.saturating_duration_since(now()));
            match wait {
                Some(Duration::ZERO) => return queue.jobs.pop().map(|entry| entry.job),
                Some(wait) => {
                    self.wakeup.wait_for(&mut queue, wait);
                }
                None => self.wakeup.wait(&mut queue),
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "these servers are real processes on the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// `BinaryHeap` pops the greatest entry, so the earliest one compares as the greatest.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

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
