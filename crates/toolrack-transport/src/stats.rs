//! What was odd on a line, counted: shown to people, never a reason to end it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::redact::Mask;
use crate::sanitize::plain_text;

/// How much of an unreadable line is kept.
const SAMPLE_CHARS: usize = 200;

/// Counters of one line. They only grow.
#[derive(Debug, Default)]
pub struct Tally {
    messages: AtomicU64,
    unreadable: AtomicU64,
    late: AtomicU64,
    oversize: AtomicU64,
    sample: Mutex<Option<String>>,
}

/// What has been seen on a line so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// Messages that could be read.
    pub messages: u64,
    /// Lines that are not messages, such as a banner on the standard output.
    pub unreadable: u64,
    /// Answers that nobody waited for any more, or that came twice.
    pub late: u64,
    /// Messages over the size limit, thrown away.
    pub oversize: u64,
    /// The first unreadable line, cleaned and cut.
    pub sample: Option<String>,
    /// The last lines of the error output, oldest first, cleaned.
    pub stderr: Vec<String>,
    /// The process below which everything of the server runs, if it runs on this machine. None once the server has
    /// ended: the number may be somebody else's by then.
    pub process: Option<u32>,
}

impl Tally {
    /// One more message.
    pub fn message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// One more line that is no message. Gives a sample of it.
    pub fn unreadable(&self, line: &[u8], mask: &Mask) -> Option<String> {
        let before = self.unreadable.fetch_add(1, Ordering::Relaxed);
        // A server may write nonsense without end: after the first few, counting is enough.
        if before >= 16 {
            return None;
        }
        let start = line.get(..line.len().min(4 * SAMPLE_CHARS)).unwrap_or(line);
        let sample = plain_text(&mask.clean(&String::from_utf8_lossy(start)), SAMPLE_CHARS);
        let mut first = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| sample.clone());
        Some(sample)
    }

    /// One more answer that nobody waits for.
    pub fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// One more message over the limit.
    pub fn oversize(&self) {
        self.oversize.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters as they stand.
    pub fn diagnosis(&self) -> Diagnosis {
        Diagnosis {
            messages: self.messages.load(Ordering::Relaxed),
            unreadable: self.unreadable.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            oversize: self.oversize.load(Ordering::Relaxed),
            sample: self.sample.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            stderr: Vec::new(),
            process: None,
        }
    }
}
