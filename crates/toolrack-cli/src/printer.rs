//! All speech of the program: data to the standard output, verbosity to the standard error.
//!
//! **Invariant:** nothing else prints. A reader that has gone away (`toolrack … | head`) is no failure: what is json
//! to it is lost, and the command goes on to its end. Any other write_error of the output is remembered and told at last.
//! **Invariant:** with `-o json` a failure is alone on the standard error: what else there was to say is held back
//! until it is known that all went well.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, sleep};
use toolrack_mcp::Progress;
use toolrack_transport::plain_text;

use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::output::{List, Output};
use crate::settings::{ColorMode, Settings, StreamKind, Verbosity};
use crate::suggested_command::EchoedFlags;
use crate::usage_error;

/// So many notes are held back at most; nobody reads more.
const MOST_NOTES: usize = 1000;

/// How often progress lines move.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The one who speaks.
#[derive(Debug)]
pub(crate) struct Printer {
    output: Output,
    verbosity: Verbosity,
    color: ColorMode,
    columns: Option<usize>,
    echoed_flags: EchoedFlags,
    /// Where progress lines can be drawn.
    progress_stream: StreamKind,
    write_error: Mutex<Option<ErrorKind>>,
    /// Notes that are held back.
    notes: Mutex<Vec<String>>,
    /// The progress lines, which make room for whatever else is json.
    progress: MultiProgress,
}

/// Spinner lines that wait, and come back when this is dropped.
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
            echoed_flags: settings.echoed_flags.clone(),
            progress_stream,
            progress: MultiProgress::with_draw_target(draw_target(progress_stream)),
            ..Self::plain(settings.output)
        }
    }

    /// A printer for what goes wrong before anything is settled.
    pub(crate) fn plain(output: Output) -> Self {
        Self {
            output,
            verbosity: Verbosity::Normal,
            color: ColorMode::Plain,
            columns: None,
            echoed_flags: EchoedFlags::default(),
            progress_stream: StreamKind::Pipe,
            write_error: Mutex::default(),
            notes: Mutex::default(),
            progress: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
        }
    }

    /// The same, saying nothing but data and failures.
    pub(crate) fn quiet(self) -> Self {
        Self { verbosity: Verbosity::Quiet, ..self }
    }

    pub(crate) fn output(&self) -> Output {
        self.output
    }

    pub(crate) fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    /// Whether a progress line can be drawn on the standard error.
    pub(crate) fn progress_stream(&self) -> StreamKind {
        self.progress_stream
    }

    /// Something the user asked for.
    pub(crate) fn line(&self, text: impl fmt::Display) {
        self.data(format!("{text}\n").as_bytes());
    }

    /// Bytes the user asked for, as they are.
    pub(crate) fn data(&self, bytes: &[u8]) {
        let written = self.without_progress(|| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        });
        if let Err(error) = written
            && error.kind() != ErrorKind::BrokenPipe
        {
            *self.write_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.kind());
        }
    }

    /// A list the user asked for.
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

    /// A document the user asked for.
    pub(crate) fn document(&self, json: &str) {
        self.line(self.output.document(json));
    }

    /// What has been done: verbosity for people, a document for programs.
    pub(crate) fn done(&self, text: impl fmt::Display, json: &serde_json::Value) {
        match self.output {
            Output::Table => self.note(text),
            _ => self.document(&json.to_string()),
        }
    }

    /// A heading above what the user asked for.
    pub(crate) fn heading(&self, text: impl fmt::Display) {
        self.line(format_args!("\n{}", self.bold(text)));
    }

    fn bold(&self, text: impl fmt::Display) -> String {
        match self.color {
            ColorMode::Color => format!("\u{1b}[1m{text}\u{1b}[0m"),
            ColorMode::Plain => text.to_string(),
        }
    }

    /// Something worth knowing that nobody asked for.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        self.relay(self.echoed_flags.apply_to_text(&text.to_string()));
    }

    /// The same in the words of a server.
    pub(crate) fn relay(&self, text: impl fmt::Display) {
        if self.defers_notes() {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            if notes.len() < MOST_NOTES {
                notes.push(text.to_string());
            }
        } else {
            self.transient(text);
        }
    }

    /// Something worth knowing at this moment and not later.
    pub(crate) fn transient(&self, text: impl fmt::Display) {
        if self.verbosity != Verbosity::Quiet && !self.defers_notes() {
            self.write_stderr(text);
        }
    }

    /// Whether a program reads the standard error, and looks for nothing but a failure there.
    fn defers_notes(&self) -> bool {
        self.output == Output::Json && self.verbosity == Verbosity::Normal
    }

    /// Something that somebody has to see in order to answer.
    pub(crate) fn prompt(&self, text: impl fmt::Display) {
        self.without_progress(|| {
            let mut stderr = io::stderr().lock();
            let _result = write!(stderr, "{text}").and_then(|()| stderr.flush());
        });
    }

    fn write_stderr(&self, text: impl fmt::Display) {
        self.without_progress(|| {
            // In one piece, because others may write to the same log.
            let _result = io::stderr().write_all(format!("{text}\n").as_bytes());
        });
    }

    /// Takes progress lines away while somebody types, until the pause is dropped.
    pub(crate) fn pause_progress(&self) -> Pause<'_> {
        // Lines that cannot be cleared were never drawn.
        self.progress.clear().unwrap_or_default();
        self.progress.set_draw_target(ProgressDrawTarget::hidden());
        Pause { printer: self }
    }

    /// Says something where no progress line is in the way.
    fn without_progress<T>(&self, speak: impl FnOnce() -> T) -> T {
        self.progress.suspend(speak)
    }

    /// The progress lines, which are silent where nobody watches.
    pub(crate) fn progress(&self) -> &MultiProgress {
        &self.progress
    }

    /// One bar with a name in front.
    pub(crate) fn bar(&self, name: &str, length: u64) -> ProgressBar {
        let style = ProgressStyle::with_template("  {prefix:<14} {bar:30} {pos}/{len} {msg}")
            .unwrap_or_else(|_fixed_text| ProgressStyle::default_bar());
        let bar = self.progress.add(ProgressBar::new(length)).with_style(style);
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(TICK);
        bar
    }

    /// What was typed wrongly, in the parser's own words.
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
            // All that can be typed is said by that.
            let _result = error.print();
        } else {
            self.write_stderr(format_args!("{}\nhint: {hint}", usage_error::render(error)));
        }
        ExitCode::Usage
    }

    /// A failure for people: its faults one to a line, then what to do. For programs: one line of JSON.
    pub(crate) fn error(&self, failure: &CliError) -> ExitCode {
        if self.output == Output::Json {
            let mut summary = failure.summary();
            summary.message = self.echoed_flags.apply_to_text(&summary.message);
            summary.hint = summary.hint.map(|hint| self.echoed_flags.apply_to_text(&hint));
            self.write_stderr(serde_json::to_string(&summary).unwrap_or_default());
            return failure.exit_code();
        }
        for write_error in failure.faults() {
            self.write_stderr(format_args!(
                "error: {}",
                self.echoed_flags.apply_to_text(&write_error.message)
            ));
        }
        if let Some(hint) = failure.hint() {
            self.write_stderr(format_args!("hint: {}", self.echoed_flags.apply_to_text(hint)));
        }
        failure.exit_code()
    }

    /// The last word: `verdict`, unless data was lost on the way out.
    pub(crate) fn close(&self, exit_code: ExitCode) -> ExitCode {
        let write_error = *self.write_error.lock().unwrap_or_else(PoisonError::into_inner);
        match write_error {
            None => {
                if exit_code == ExitCode::Success {
                    let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
                    notes.drain(..).for_each(|note| self.write_stderr(note));
                }
                exit_code
            }
            Some(kind) => {
                let error = io::Error::new(kind, format!("the output cannot be written: {kind}"));
                self.error(&CliError::from(error))
            }
        }
    }
}

/// Where progress lines are drawn, which is nowhere if nobody watches.
fn draw_target(progress_stream: StreamKind) -> ProgressDrawTarget {
    match progress_stream {
        StreamKind::Terminal => ProgressDrawTarget::stderr(),
        StreamKind::Pipe => ProgressDrawTarget::hidden(),
    }
}

/// What takes no longer is not worth a line.
const SHOW_AFTER: Duration = Duration::from_millis(250);
/// The same without a terminal, where a line stays.
const SHOW_AFTER_PLAIN: Duration = Duration::from_secs(5);
/// Without a terminal there is a line for progress so often at most.
const PLAIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_CHARS: usize = 200;

/// A line that says what is being waited for.
#[derive(Debug)]
pub(crate) struct Spinner {
    printer: Arc<Printer>,
    bar: ProgressBar,
    /// When a plain line was written last.
    told: Mutex<Option<Instant>>,
}

impl Spinner {
    /// A line that is not shown yet.
    pub(crate) fn new(printer: &Arc<Printer>) -> Self {
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
            .unwrap_or_else(|_fixed_text| ProgressStyle::default_spinner());
        let bar = ProgressBar::hidden().with_style(style);
        Self { printer: Arc::clone(printer), bar, told: Mutex::default() }
    }

    /// Says what is being waited for.
    pub(crate) fn phase(&self, text: &str) {
        self.bar.set_message(plain_text(text, MAX_CHARS));
    }

    /// Says how far a call of `name` is.
    pub(crate) fn report(&self, name: &str, progress: &Progress) {
        let text = plain_text(&format!("{name}: {}", describe(progress)), MAX_CHARS);
        match self.printer.progress_stream() {
            StreamKind::Terminal => self.bar.set_message(text),
            StreamKind::Pipe => {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL) {
                    *told = Some(Instant::now());
                    self.printer.transient(text);
                }
            }
        }
    }

    /// Waits for something, and shows the line if that takes a while.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let patience = match self.printer.progress_stream() {
            StreamKind::Terminal => SHOW_AFTER,
            StreamKind::Pipe => SHOW_AFTER_PLAIN,
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
        match self.printer.progress_stream() {
            StreamKind::Terminal => {
                self.printer.progress().add(self.bar.clone());
                self.bar.enable_steady_tick(TICK);
            }
            StreamKind::Pipe => self.printer.transient(self.bar.message()),
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        self.printer.progress().remove(&self.bar);
    }
}

/// How far it is, in few words.
fn describe(progress: &Progress) -> String {
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
        assert_eq!(describe(&progress), expected, "{json}");
    }

    #[test]
    fn progress_is_told_in_few_words() {
        check(r#"{"progressToken":1,"progress":3}"#, "3");
        check(r#"{"progressToken":1,"progress":3,"total":4}"#, "3 of 4 (75 %)");
        check(r#"{"progressToken":1,"progress":9,"total":4,"message":"x"}"#, "9 of 4 (100 %) x");
        check(r#"{"progressToken":1,"progress":0.5,"total":0}"#, "0.5");
    }
}
