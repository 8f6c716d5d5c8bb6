//! The live line: what is being waited for, and how far it is.
//!
//! **Invariant:** what is over soon is not shown, and when the line is dropped, nothing of it is left on the screen.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, sleep};
use toolrack_mcp::Progress;
use toolrack_transport::sanitize_line;

use crate::printer::{Printer, TICK};
use crate::terminal::End;

/// What takes no longer is not worth a line.
const PATIENCE: Duration = Duration::from_millis(250);
/// The same without a terminal, where a line stays.
const PLAIN_PATIENCE: Duration = Duration::from_secs(5);
/// Without a terminal there is a line for progress so often at most.
const PLAIN_PAUSE: Duration = Duration::from_secs(1);
const MOST_CHARS: usize = 200;

/// A line that says what is being waited for.
#[derive(Debug)]
pub(crate) struct Live {
    printer: Arc<Printer>,
    bar: ProgressBar,
    /// When a plain line was written last.
    told: Mutex<Option<Instant>>,
}

impl Live {
    /// A line that is not shown yet.
    pub(crate) fn new(printer: &Arc<Printer>) -> Self {
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
            .unwrap_or_else(|_fixed_text| ProgressStyle::default_spinner());
        let bar = ProgressBar::hidden().with_style(style);
        Self { printer: Arc::clone(printer), bar, told: Mutex::default() }
    }

    /// Says what is being waited for.
    pub(crate) fn phase(&self, text: &str) {
        self.bar.set_message(sanitize_line(text, MOST_CHARS));
    }

    /// Says how far a call of `name` is.
    pub(crate) fn report(&self, name: &str, progress: &Progress) {
        let text = sanitize_line(&format!("{name}: {}", words(progress)), MOST_CHARS);
        match self.printer.stage() {
            End::Person => self.bar.set_message(text),
            End::Program => {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.is_none_or(|it| it.elapsed() >= PLAIN_PAUSE) {
                    *told = Some(Instant::now());
                    self.printer.passing(text);
                }
            }
        }
    }

    /// Waits for something, and shows the line if that takes a while.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let patience = match self.printer.stage() {
            End::Person => PATIENCE,
            End::Program => PLAIN_PATIENCE,
        };
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            outcome = &mut work => return outcome,
            () = sleep(patience) => self.show(),
        }
        work.await
    }

    fn show(&self) {
        match self.printer.stage() {
            End::Person => {
                self.printer.live().add(self.bar.clone());
                self.bar.enable_steady_tick(TICK);
            }
            End::Program => self.printer.passing(self.bar.message()),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        self.printer.live().remove(&self.bar);
    }
}

/// How far it is, in few words.
fn words(progress: &Progress) -> String {
    let Progress { progress: done, total, message, .. } = progress;
    let far = match total {
        Some(total) if *total > 0.0 => {
            format!("{done} of {total} ({:.0} %)", (done / total * 100.0).clamp(0.0, 100.0))
        }
        _ => done.to_string(),
    };
    match message {
        Some(message) => format!("{far} {message}"),
        None => far,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let progress: Progress = serde_json::from_str(json).unwrap();
        assert_eq!(words(&progress), expected, "{json}");
    }

    #[test]
    fn progress_is_told_in_few_words() {
        check(r#"{"progressToken":1,"progress":3}"#, "3");
        check(r#"{"progressToken":1,"progress":3,"total":4}"#, "3 of 4 (75 %)");
        check(r#"{"progressToken":1,"progress":9,"total":4,"message":"x"}"#, "9 of 4 (100 %) x");
        check(r#"{"progressToken":1,"progress":0.5,"total":0}"#, "0.5");
    }
}
