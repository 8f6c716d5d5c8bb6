//! Printer: all output of the program. Results go to stdout; messages, errors and progress go to
//! stderr.
//!
//! **Invariant:** nothing else prints. A closed pipe (`toolrack … | head`) is not an error: output
//! is discarded, and the command finishes. Any other write error is reported at the end.
//!
//! **Invariant:** with `-o json` an error is alone on stderr: notes are deferred until the command
//! has succeeded.
//!
//! **Invariant:** a spinner appears only after a delay, and leaves nothing on the screen.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use toolrack_mcp::Progress;
use toolrack_transport::sanitize_line;

use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::output::{List, Output};
use crate::settings::{ColorMode, Settings, StreamKind, Verbosity};
use crate::usage_error;

/// Maximum number of deferred notes.
const MAX_NOTES: usize = 1000;

/// Interval of progress updates.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The printer.
#[derive(Debug)]
pub(crate) struct Printer {
    output: Output,
    verbosity: Verbosity,
    color: ColorMode,
    columns: Option<usize>,
    /// Whether stderr is a terminal on which progress can be drawn.
    progress_stream: StreamKind,
    write_error: Mutex<Option<ErrorKind>>,
    /// Deferred notes.
    notes: Mutex<Vec<String>>,
    /// Progress lines, which are suspended while other output is written.
    progress: MultiProgress,
}

/// Hides progress lines until dropped.
#[derive(Debug)]
pub(crate) struct Pause<'a> {
    printer: &'a Printer,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.printer.progress.set_draw_target(draw_target(self.printer.progress_stream));
    }
}

impl Printer {
    pub(crate) fn new(settings: &Settings) -> Self {
        let verbosity = settings.verbosity;
        let progress_stream =
            if verbosity == Verbosity::Quiet { StreamKind::Pipe } else { settings.streams.stderr };
        Self {
            verbosity,
            color: settings.color,
            columns: settings.columns,
            progress_stream,
            progress: MultiProgress::with_draw_target(draw_target(progress_stream)),
            ..Self::plain(settings.output)
        }
    }

    /// A printer for errors before the settings are resolved.
    pub(crate) fn plain(output: Output) -> Self {
        Self {
            output,
            verbosity: Verbosity::Normal,
            color: ColorMode::Plain,
            columns: None,
            progress_stream: StreamKind::Pipe,
            write_error: Mutex::default(),
            notes: Mutex::default(),
            progress: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
        }
    }

    pub(crate) fn output(&self) -> Output {
        self.output
    }

    pub(crate) fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    /// Prints a line of data.
    pub(crate) fn line(&self, text: impl fmt::Display) {
        self.data(format!("{text}\n").as_bytes());
    }

    /// Prints data unchanged.
    pub(crate) fn data(&self, bytes: &[u8]) {
        let written = self.progress.suspend(|| {
            let mut stdout = io::stdout().lock();
            // Data may end without a line break, and stdout would keep it in its buffer.
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        });
        if let Err(error) = written
            && error.kind() != ErrorKind::BrokenPipe
        {
            *self.write_error.lock() = Some(error.kind());
        }
    }

    /// Prints a list.
    pub(crate) fn list(&self, list: &List) {
        let text = self.output.list(list, self.columns);
        match (self.output, self.color, text.split_once('\n')) {
            _ if text.is_empty() => {}
            (Output::Table, ColorMode::Color, Some((headings, rows))) => {
                self.line(format_args!("{}\n{rows}", self.bold(headings)));
            }
            _ => self.line(text),
        }
    }

    /// Prints a document.
    pub(crate) fn document(&self, json: &str) {
        self.line(self.output.document(json));
    }

    /// Prints a result: text, or a document for other formats.
    pub(crate) fn show(&self, text: impl fmt::Display, json: &serde_json::Value) {
        match self.output {
            Output::Table => self.line(text),
            _ => self.document(&json.to_string()),
        }
    }

    /// Prints the outcome of a change: a message, or a document for other formats.
    pub(crate) fn done(&self, text: impl fmt::Display, json: &serde_json::Value) {
        match self.output {
            Output::Table => self.note(text),
            _ => self.document(&json.to_string()),
        }
    }

    /// Prints a heading.
    pub(crate) fn heading(&self, text: impl fmt::Display) {
        self.line(format_args!("\n{}", self.bold(text)));
    }

    fn bold(&self, text: impl fmt::Display) -> String {
        match self.color {
            ColorMode::Color => format!("\u{1b}[1m{text}\u{1b}[0m"),
            ColorMode::Plain => text.to_string(),
        }
    }

    /// Prints a message on stderr.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        if self.defers_notes() {
            let mut notes = self.notes.lock();
            // A chatty server must not fill the memory.
            if notes.len() < MAX_NOTES {
                notes.push(text.to_string());
            }
        } else {
            self.transient(text);
        }
    }

    /// Prints a message that is worthless later; it is never deferred.
    pub(crate) fn transient(&self, text: impl fmt::Display) {
        if self.verbosity != Verbosity::Quiet && !self.defers_notes() {
            self.write_stderr(text);
        }
    }

    /// Whether notes wait until the command has succeeded.
    fn defers_notes(&self) -> bool {
        self.output == Output::Json && self.verbosity == Verbosity::Normal
    }

    /// Prints a prompt, even with `--quiet`.
    pub(crate) fn prompt(&self, text: impl fmt::Display) {
        self.progress.suspend(|| {
            let mut stderr = io::stderr().lock();
            // There is no place left to report an error of stderr.
            let _result = write!(stderr, "{text}").and_then(|()| stderr.flush());
        });
    }

    fn write_stderr(&self, text: impl fmt::Display) {
        self.progress.suspend(|| {
            // In one write, because other processes may write to the same log.
            let _result = io::stderr().write_all(format!("{text}\n").as_bytes());
        });
    }

    /// Hides progress lines while the user types.
    pub(crate) fn pause_progress(&self) -> Pause<'_> {
        // Lines that cannot be cleared were never drawn.
        self.progress.clear().unwrap_or_default();
        self.progress.set_draw_target(ProgressDrawTarget::hidden());
        Pause { printer: self }
    }

    /// A progress bar with a label.
    pub(crate) fn bar(&self, name: &str, length: u64) -> ProgressBar {
        let style = ProgressStyle::with_template("  {prefix:<14} {bar:30} {pos}/{len} {msg}")
            .unwrap_or_else(|_fixed_text| ProgressStyle::default_bar());
        let bar = self.progress.add(ProgressBar::new(length)).with_style(style);
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(TICK);
        bar
    }

    /// Prints a usage error, or the help.
    pub(crate) fn usage_error(&self, error: &clap::Error, typed: &[String]) -> ExitCode {
        if !error.use_stderr() {
            let _result = error.print();
            return ExitCode::Success;
        }
        let hint = usage_error::hint(error, typed);
        if self.output == Output::Json {
            return self.error(&CliError::usage(usage_error::message(error), hint));
        }
        if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            // The help itself says all that is needed.
            let _result = error.print();
        } else {
            self.write_stderr(format_args!("{}\nhint: {hint}", usage_error::render(error)));
        }
        ExitCode::Usage
    }

    /// Prints an error: one line per fault and the hint, or one line of JSON.
    pub(crate) fn error(&self, failure: &CliError) -> ExitCode {
        if self.output == Output::Json {
            self.write_stderr(serde_json::to_string(&failure.summary()).unwrap_or_default());
            return failure.exit_code();
        }
        for error_detail in failure.error_details() {
            self.write_stderr(format_args!("error: {}", error_detail.message));
        }
        if let Some(hint) = failure.hint() {
            self.write_stderr(format_args!("hint: {hint}"));
        }
        failure.exit_code()
    }

    /// Returns `exit_code`, unless output was lost. Prints the deferred notes after a success.
    pub(crate) fn close(&self, exit_code: ExitCode) -> ExitCode {
        let write_error = *self.write_error.lock();
        match write_error {
            None => {
                if exit_code == ExitCode::Success {
                    let mut notes = self.notes.lock();
                    notes.drain(..).for_each(|note| self.write_stderr(note));
                }
                exit_code
            }
            Some(kind) => {
                let error = io::Error::new(kind, format!("cannot write output: {kind}"));
                self.error(&CliError::from(error))
            }
        }
    }
}

/// Where progress is drawn, if anywhere.
fn draw_target(progress_stream: StreamKind) -> ProgressDrawTarget {
    match progress_stream {
        StreamKind::Terminal => ProgressDrawTarget::stderr(),
        StreamKind::Pipe => ProgressDrawTarget::hidden(),
    }
}

/// Shorter waits show no spinner.
const SHOW_AFTER: Duration = Duration::from_millis(250);
/// The same without a terminal, where the line stays.
const SHOW_AFTER_PLAIN: Duration = Duration::from_secs(5);
/// Minimum interval of progress lines without a terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_CHARS: usize = 200;

/// A spinner with the current phase.
#[derive(Debug)]
pub(crate) struct Spinner {
    printer: Arc<Printer>,
    bar: ProgressBar,
    /// Time of the last plain progress line.
    last_line: Mutex<Option<Instant>>,
}

impl Spinner {
    /// A spinner that is not shown yet.
    pub(crate) fn new(printer: &Arc<Printer>, phase: &str) -> Arc<Self> {
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
            .unwrap_or_else(|_fixed_text| ProgressStyle::default_spinner());
        let bar = ProgressBar::hidden().with_style(style);
        let (printer, last_line) = (Arc::clone(printer), Mutex::default());
        let spinner = Self { printer, bar, last_line };
        spinner.phase(phase);
        Arc::new(spinner)
    }

    /// Sets the current phase.
    pub(crate) fn phase(&self, text: &str) {
        self.bar.set_message(sanitize_line(text, MAX_CHARS));
    }

    /// Reports the progress of a call.
    pub(crate) fn report(&self, name: &str, progress: &Progress) {
        let text = sanitize_line(&format!("{name}: {}", describe(progress)), MAX_CHARS);
        match self.printer.progress_stream {
            StreamKind::Terminal => self.bar.set_message(text),
            StreamKind::Pipe => {
                let mut last_line = self.last_line.lock();
                if last_line.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL) {
                    *last_line = Some(Instant::now());
                    self.printer.transient(text);
                }
            }
        }
    }

    /// Awaits `work`, and shows the spinner if it takes a while.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let delay = match self.printer.progress_stream {
            StreamKind::Terminal => SHOW_AFTER,
            StreamKind::Pipe => SHOW_AFTER_PLAIN,
        };
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            outcome = &mut work => return outcome,
            () = sleep(delay) => self.show(),
        }
        work.await
    }

    fn show(&self) {
        match self.printer.progress_stream {
            StreamKind::Terminal => {
                self.printer.progress.add(self.bar.clone());
                self.bar.enable_steady_tick(TICK);
            }
            StreamKind::Pipe => self.printer.transient(self.bar.message()),
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        self.printer.progress.remove(&self.bar);
    }
}

/// Progress in words.
fn describe(progress: &Progress) -> String {
    let Progress { progress: done, total, message, .. } = progress;
    let position = match total {
        Some(total) if *total > 0.0 => {
            format!("{done} of {total} ({:.0} %)", (done / total * 100.0).clamp(0.0, 100.0))
        }
        _ => done.to_string(),
    };
    match message {
        Some(message) => format!("{position} {message}"),
        None => position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let progress: Progress = serde_json::from_str(json).unwrap();
        assert_eq!(describe(&progress), expected, "{json}");
    }

    #[test]
    fn progress_is_described() {
        check(r#"{"progressToken":1,"progress":3}"#, "3");
        check(r#"{"progressToken":1,"progress":3,"total":4}"#, "3 of 4 (75 %)");
        check(r#"{"progressToken":1,"progress":9,"total":4,"message":"x"}"#, "9 of 4 (100 %) x");
        check(r#"{"progressToken":1,"progress":0.5,"total":0}"#, "0.5");
    }
}
