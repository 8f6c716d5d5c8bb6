//! All speech of the program: data to the standard output, talk to the standard error.
//!
//! **Invariant:** nothing else prints. A reader that has gone away (`toolrack … | head`) is no failure: what is said
//! to it is lost, and the command goes on to its end. Any other fault of the output is remembered and told at last.
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

use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::output::{List, Output};
use crate::settings::{End, Paint, Settings, Talk};
use crate::suggested_command::Aim;
use crate::usage_error;

/// So many notes are held back at most; nobody reads more.
const MOST_NOTES: usize = 1000;

/// How often live lines move.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The one who speaks.
#[derive(Debug)]
pub(crate) struct Printer {
    output: Output,
    talk: Talk,
    paint: Paint,
    columns: Option<usize>,
    aim: Aim,
    /// Where live lines can be drawn.
    stage: End,
    fault: Mutex<Option<ErrorKind>>,
    /// Notes that are held back.
    notes: Mutex<Vec<String>>,
    /// The live lines, which make room for whatever else is said.
    live: MultiProgress,
}

/// Live lines that wait, and come back when this is dropped.
#[derive(Debug)]
pub(crate) struct Pause<'a> {
    printer: &'a Printer,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.printer.live.set_draw_target(draw_target(self.printer.stage));
    }
}

impl Printer {
    pub(crate) fn new(settings: &Settings) -> Self {
        let talk = settings.talk;
        let stage = if talk == Talk::Quiet { End::Program } else { settings.terminal.talk };
        Self {
            talk,
            paint: settings.paint,
            columns: settings.columns,
            aim: settings.aim.clone(),
            stage,
            live: MultiProgress::with_draw_target(draw_target(stage)),
            ..Self::plain(settings.output)
        }
    }

    /// A printer for what goes wrong before anything is settled.
    pub(crate) fn plain(output: Output) -> Self {
        Self {
            output,
            talk: Talk::Usual,
            paint: Paint::Plain,
            columns: None,
            aim: Aim::default(),
            stage: End::Program,
            fault: Mutex::default(),
            notes: Mutex::default(),
            live: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
        }
    }

    /// The same, saying nothing but data and failures.
    pub(crate) fn silenced(self) -> Self {
        Self { talk: Talk::Quiet, ..self }
    }

    pub(crate) fn output(&self) -> Output {
        self.output
    }

    pub(crate) fn talk(&self) -> Talk {
        self.talk
    }

    /// Whether a live line can be drawn on the standard error.
    pub(crate) fn stage(&self) -> End {
        self.stage
    }

    /// Something the user asked for.
    pub(crate) fn line(&self, text: impl fmt::Display) {
        self.data(format!("{text}\n").as_bytes());
    }

    /// Bytes the user asked for, as they are.
    pub(crate) fn data(&self, bytes: &[u8]) {
        let written = self.aside(|| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        });
        if let Err(error) = written
            && error.kind() != ErrorKind::BrokenPipe
        {
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.kind());
        }
    }

    /// A list the user asked for.
    pub(crate) fn list(&self, list: &List) {
        let text = self.output.list(list, self.columns);
        match (self.output, self.paint, text.split_once('\n')) {
            _ if text.is_empty() => {}
            (Output::Table, Paint::Color, Some((headings, rows))) => {
                self.line(format_args!("{}\n{rows}", self.bold(headings)));
            }
            _ => self.line(text),
        }
    }

    /// A document the user asked for.
    pub(crate) fn document(&self, json: &str) {
        self.line(self.output.document(json));
    }

    /// What has been done: talk for people, a document for programs.
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
        match self.paint {
            Paint::Color => format!("\u{1b}[1m{text}\u{1b}[0m"),
            Paint::Plain => text.to_string(),
        }
    }

    /// Something worth knowing that nobody asked for.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        self.relay(self.aim.told(&text.to_string()));
    }

    /// The same in the words of a server.
    pub(crate) fn relay(&self, text: impl fmt::Display) {
        if self.holds_back() {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            if notes.len() < MOST_NOTES {
                notes.push(text.to_string());
            }
        } else {
            self.passing(text);
        }
    }

    /// Something worth knowing at this moment and not later.
    pub(crate) fn passing(&self, text: impl fmt::Display) {
        if self.talk != Talk::Quiet && !self.holds_back() {
            self.say(text);
        }
    }

    /// Whether a program reads the standard error, and looks for nothing but a failure there.
    fn holds_back(&self) -> bool {
        self.output == Output::Json && self.talk == Talk::Usual
    }

    /// Something that somebody has to see in order to answer.
    pub(crate) fn ask(&self, text: impl fmt::Display) {
        self.aside(|| {
            let mut stderr = io::stderr().lock();
            let _heard = write!(stderr, "{text}").and_then(|()| stderr.flush());
        });
    }

    fn say(&self, text: impl fmt::Display) {
        self.aside(|| {
            // In one piece, because others may write to the same log.
            let _heard = io::stderr().write_all(format!("{text}\n").as_bytes());
        });
    }

    /// Takes live lines away while somebody types, until the pause is dropped.
    pub(crate) fn pause_live(&self) -> Pause<'_> {
        // Lines that cannot be cleared were never drawn.
        self.live.clear().unwrap_or_default();
        self.live.set_draw_target(ProgressDrawTarget::hidden());
        Pause { printer: self }
    }

    /// Says something where no live line is in the way.
    fn aside<T>(&self, speak: impl FnOnce() -> T) -> T {
        self.live.suspend(speak)
    }

    /// The live lines, which are silent where nobody watches.
    pub(crate) fn live(&self) -> &MultiProgress {
        &self.live
    }

    /// One bar with a name in front.
    pub(crate) fn bar(&self, name: &str, length: u64) -> ProgressBar {
        let style = ProgressStyle::with_template("  {prefix:<14} {bar:30} {pos}/{len} {msg}")
            .unwrap_or_else(|_fixed_text| ProgressStyle::default_bar());
        let bar = self.live.add(ProgressBar::new(length)).with_style(style);
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(TICK);
        bar
    }

    /// What was typed wrongly, in the parser's own words.
    pub(crate) fn usage(&self, error: &clap::Error, typed: &[String]) -> Verdict {
        if !error.use_stderr() {
            let _heard = error.print();
            return Verdict::Success;
        }
        let hint = usage_error::hint(error, typed);
        if self.output == Output::Json {
            return self.failure(&Failure::usage(usage_error::message(error), hint));
        }
        if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            // All that can be typed is said by that.
            let _heard = error.print();
        } else {
            self.say(format_args!("{}\nhint: {hint}", usage_error::words(error)));
        }
        Verdict::Usage
    }

    /// A failure for people: its faults one to a line, then what to do. For programs: one line of JSON.
    pub(crate) fn failure(&self, failure: &Failure) -> Verdict {
        if self.output == Output::Json {
            let mut summary = failure.summary();
            summary.message = self.aim.told(&summary.message);
            summary.hint = summary.hint.map(|it| self.aim.told(&it));
            self.say(serde_json::to_string(&summary).unwrap_or_default());
            return failure.verdict();
        }
        for fault in failure.faults() {
            self.say(format_args!("error: {}", self.aim.told(&fault.message)));
        }
        if let Some(hint) = failure.hint() {
            self.say(format_args!("hint: {}", self.aim.told(hint)));
        }
        failure.verdict()
    }

    /// The last word: `verdict`, unless data was lost on the way out.
    pub(crate) fn close(&self, verdict: Verdict) -> Verdict {
        let fault = *self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match fault {
            None => {
                if verdict == Verdict::Success {
                    let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
                    notes.drain(..).for_each(|it| self.say(it));
                }
                verdict
            }
            Some(kind) => {
                let error = io::Error::new(kind, format!("the output cannot be written: {kind}"));
                self.failure(&Failure::from(error))
            }
        }
    }
}

/// Where live lines are drawn, which is nowhere if nobody watches.
fn draw_target(stage: End) -> ProgressDrawTarget {
    match stage {
        End::Person => ProgressDrawTarget::stderr(),
        End::Program => ProgressDrawTarget::hidden(),
    }
}

/// What takes no longer is not worth a line.
const SHOW_AFTER: Duration = Duration::from_millis(250);
/// The same without a terminal, where a line stays.
const SHOW_AFTER_PLAIN: Duration = Duration::from_secs(5);
/// Without a terminal there is a line for progress so often at most.
const PLAIN_INTERVAL: Duration = Duration::from_secs(1);
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
        self.bar.set_message(plain_text(text, MOST_CHARS));
    }

    /// Says how far a call of `name` is.
    pub(crate) fn report(&self, name: &str, progress: &Progress) {
        let text = plain_text(&format!("{name}: {}", describe(progress)), MOST_CHARS);
        match self.printer.stage() {
            End::Person => self.bar.set_message(text),
            End::Program => {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.is_none_or(|it| it.elapsed() >= PLAIN_INTERVAL) {
                    *told = Some(Instant::now());
                    self.printer.passing(text);
                }
            }
        }
    }

    /// Waits for something, and shows the line if that takes a while.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let patience = match self.printer.stage() {
            End::Person => SHOW_AFTER,
            End::Program => SHOW_AFTER_PLAIN,
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
