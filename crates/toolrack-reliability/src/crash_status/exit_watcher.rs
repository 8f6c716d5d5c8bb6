//! Sees when a process ends, in a thread of its own, however busy the runtime is; and how busy the machine was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::time::Instant;

use crate::process::Handle;

/// How long the witness sleeps again and again, once the process has ended.
const NAP: Duration = Duration::from_millis(1);

/// A machine that lets somebody oversleep by this much is too busy to measure anything by.
const STARVED: Duration = Duration::from_millis(20);

pub(super) struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Testimony>>,
}

/// What the witness saw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Testimony {
    /// When the process had ended.
    pub(super) ended: Instant,
    /// By how much the witness overslept from then on, at most.
    overslept: Duration,
}

impl Witness {
    pub(super) fn of(process: Handle, patience: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let ended = process.ends_within(patience).then(Instant::now)?;
            let mut overslept = Duration::ZERO;
            while !over.load(Ordering::Acquire) && ended.elapsed() < patience {
                let begun = Instant::now();
                thread::sleep(NAP);
                overslept = overslept.max(begun.elapsed().saturating_sub(NAP));
            }
            Some(Testimony { ended, overslept })
        });
        Self { is_over, thread }
    }

    /// Ends the watch. Nothing was seen if the process did not end.
    pub(super) fn testify(self) -> Option<Testimony> {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().ok().flatten()
    }
}

impl Testimony {
    pub(super) fn is_starved(&self) -> bool {
        self.overslept > STARVED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_on_has_no_testimony() {
        let own = Handle::of(std::process::id()).unwrap();
        assert!(Witness::of(own, Duration::from_millis(5)).testify().is_none());
    }
}
