//! Printer: all output of the program. Results go to stdout; messages, errors and progress go to
//! stderr. Output formats: tables, JSON, YAML and raw; formatting of times, in UTC, which needs no
//! time zone tables.
//!
//! **Invariant:** nothing else prints. A closed pipe (`toolrack … | head`) is not an error: output
//! is discarded, and the command finishes. Any other write error is reported at the end.
//!
//! **Invariant:** with `-o json` an error is alone on stderr: notes are deferred until the command
//! has succeeded.
//!
//! **Invariant:** tables never cut what the user types again. No line exceeds the width limit,
//! unless such a cell does.
//!
//! **Invariant:** a spinner appears only after a delay, and leaves nothing on the screen.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use toolrack_mcp::Progress;
use toolrack_transport::sanitize_line;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::error::{CliError, ExitCode};
use crate::settings::{Settings, StreamKind, Verbosity};
use crate::{json_format, usage_error, yaml};

/// Maximum number of deferred notes.
const MAX_NOTES: usize = 1000;

/// Interval of progress updates.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The printer.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) output: Output,
    pub(crate) verbosity: Verbosity,
    has_colors: bool,
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
            has_colors: settings.has_colors,
            columns: settings.streams.columns,
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
            has_colors: false,
            columns: None,
            progress_stream: StreamKind::Pipe,
            write_error: Mutex::default(),
            notes: Mutex::default(),
            progress: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
        }
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
        match text.split_once('\n').filter(|_| self.output == Output::Table) {
            _ if text.is_empty() => {}
            Some((headings, rows)) => {
                self.line(format_args!("{}\n{rows}", self.bold(headings)));
            }
            None => self.line(text),
        }
    }

    /// Prints items one per line as text, or as a list for other formats.
    pub(crate) fn lines<T: Serialize>(&self, items: &[T], text: impl Fn(&T) -> String) {
        if self.output == Output::Table {
            return items.iter().for_each(|item| self.line(text(item)));
        }
        let mut list = List::default();
        for item in items {
            list.push(Vec::new(), item);
        }
        self.list(&list);
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

    pub(crate) fn bold(&self, text: impl fmt::Display) -> String {
        if self.has_colors { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_string() }
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
            return failure.exit_code;
        }
        for error_detail in failure.error_details() {
            self.write_stderr(format_args!("error: {}", error_detail.message));
        }
        if let Some(hint) = failure.hint() {
            self.write_stderr(format_args!("hint: {hint}"));
        }
        failure.exit_code
    }

    /// Returns `exit_code`, unless output was lost. Prints the deferred notes after a success.
    pub(crate) fn close(&self, exit_code: ExitCode) -> ExitCode {
        if let Some(kind) = *self.write_error.lock() {
            let error = io::Error::new(kind, format!("cannot write output: {kind}"));
            return self.error(&CliError::from(error));
        }
        if exit_code == ExitCode::Success {
            self.notes.lock().drain(..).for_each(|note| self.write_stderr(note));
        }
        exit_code
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

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Human-readable text and tables
    #[default]
    Table,
    /// A JSON document
    Json,
    /// A YAML document
    Yaml,
    /// One JSON document per line
    Ndjson,
    /// The server's output, unchanged
    Raw,
}

/// A list as table rows and as JSON items.
#[derive(Debug, Default)]
pub(crate) struct List {
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
    items: Vec<String>,
}

impl List {
    pub(crate) fn new(columns: &'static [&'static str]) -> Self {
        Self { columns, ..Self::default() }
    }

    pub(crate) fn push(&mut self, row: Vec<String>, item: &impl Serialize) {
        self.rows.push(row);
        // All its keys are text, so it can be serialized.
        self.items.push(serde_json::to_string(item).unwrap_or_default());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl Output {
    /// Formats a document. As a table it is pretty-printed JSON.
    pub(crate) fn document(self, json: &str) -> String {
        match self {
            Self::Table | Self::Json => json_format::pretty(json),
            Self::Yaml => yaml::write(json),
            Self::Ndjson => json_format::compact(json),
            Self::Raw => json.to_owned(),
        }
    }

    /// Formats a list; a table is at most `columns` wide.
    pub(crate) fn list(self, list: &List, columns: Option<usize>) -> String {
        match self {
            Self::Table => render_table(list.columns, &list.rows, columns),
            Self::Json | Self::Yaml => self.document(&format!("[{}]", list.items.join(","))),
            Self::Ndjson | Self::Raw => {
                let lines = list.items.iter().map(|item| self.document(item));
                lines.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

/// Between two columns.
const GAP: &str = "  ";
/// Columns are not shrunk below this width.
const MIN_WIDTH: usize = 6;
/// Columns whose cells the user types again.
const NEVER_CUT: [&str; 7] = ["ID", "NAME", "NEXT", "PROMPT", "SERVER", "TOOL", "URI"];

/// A column and its width.
#[derive(Debug, Clone, Copy)]
struct Column {
    width: usize,
    never_cut: bool,
}

/// Renders a table. Without a limit, nothing is cut.
pub(crate) fn render_table(columns: &[&str], rows: &[Vec<String>], limit: Option<usize>) -> String {
    let headings: Vec<String> = columns.iter().map(|&heading| heading.to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(rows).collect();
    let column = |(index, heading): (usize, &&str)| {
        let cells = lines.iter().filter_map(|cells| cells.get(index));
        Column {
            width: cells.map(|cell| cell.width()).max().unwrap_or_default(),
            // Resources are addressed by URI, so their names may be cut.
            never_cut: NEVER_CUT.contains(heading)
                && (*heading != "NAME" || !columns.contains(&"URI")),
        }
    };
    let mut fitted: Vec<Column> = columns.iter().enumerate().map(column).collect();
    if let Some(limit) = limit {
        fit_columns(&mut fitted, limit);
    }
    let drawn: Vec<String> = lines.iter().map(|cells| render_row(cells, &fitted)).collect();
    drawn.join("\n")
}

/// Shrinks the widest columns until all fit, beginning with those that may be cut.
fn fit_columns(columns: &mut [Column], limit: usize) {
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    while columns.iter().map(|column| column.width).sum::<usize>() + gaps > limit {
        let wide = columns.iter_mut().filter(|column| column.width > MIN_WIDTH);
        // Columns that are typed again shrink last; `row_widths` then gives their cells
        // the room back.
        match wide.max_by_key(|column| (!column.never_cut, column.width)) {
            Some(widest) => widest.width -= 1,
            None => break,
        }
    }
}

/// Cells that are never cut take room from the other cells of their row, the last one first.
fn row_widths(cells: &[String], columns: &[Column]) -> Vec<usize> {
    let width = |(cell, column): (&String, &Column)| {
        if column.never_cut { column.width.max(cell.width()) } else { column.width }
    };
    let mut widths: Vec<usize> = cells.iter().zip(columns).map(width).collect();
    let room: usize = columns.iter().map(|column| column.width).sum();
    let mut surplus = widths.iter().sum::<usize>().saturating_sub(room);
    for (width, _) in widths.iter_mut().zip(columns).rev().filter(|(_, column)| !column.never_cut) {
        let taken = surplus.min(*width);
        *width -= taken;
        surplus -= taken;
    }
    widths
}

fn render_row(cells: &[String], columns: &[Column]) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(row_widths(cells, columns)).enumerate() {
        if index > 0 {
            line.push_str(GAP);
        }
        let shown = truncate(cell, width);
        let missing = width.saturating_sub(shown.width());
        line.push_str(&shown);
        line.extend(std::iter::repeat_n(' ', missing));
    }
    line.truncate(line.trim_end().len());
    line
}

/// Cuts a text to a width, with an ellipsis.
pub(crate) fn truncate(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let mut shown = String::new();
    let mut room = width.saturating_sub(1);
    for character in text.chars() {
        // Columns and not characters: CJK characters take two.
        let needs = character.width().unwrap_or_default();
        if needs > room {
            break;
        }
        room -= needs;
        shown.push(character);
    }
    shown.truncate(shown.trim_end().len());
    shown.push('…');
    shown
}

const DAY: u64 = 24 * 60 * 60;

/// A timestamp in milliseconds as `2026-07-28T12:00:00Z`.
pub(crate) fn format_utc(time_ms: u64) -> String {
    let seconds = time_ms / 1000;
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Date of a day since the Unix epoch. Years are counted from March, so that leap days come last.
fn date(day: u64) -> (u64, u64, u64) {
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A relative time in one unit.
pub(crate) fn format_ago(time_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(time_ms) / 1000;
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..DAY => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(output: Output, expected: &str) {
        let list = List {
            columns: &["NAME", "SIZE"],
            rows: vec![vec!["a".to_owned(), "1".to_owned()], vec!["bb".to_owned(), "2".to_owned()]],
            items: vec![r#"{"name": "a"}"#.to_owned(), r#"{"name": "bb"}"#.to_owned()],
        };
        assert_eq!(output.list(&list, None), expected);
    }

    #[test]
    fn lists_render_in_every_format() {
        check(Output::Table, "NAME  SIZE\na     1\nbb    2");
        let json = "[\n  {\n    \"name\": \"a\"\n  },\n  {\n    \"name\": \"bb\"\n  }\n]";
        check(Output::Json, json);
        check(Output::Yaml, "- name: a\n- name: bb");
        check(Output::Ndjson, "{\"name\":\"a\"}\n{\"name\":\"bb\"}");
        check(Output::Raw, "{\"name\": \"a\"}\n{\"name\": \"bb\"}");
    }

    fn drawn(columns: &[&str], rows: &[&[&str]], limit: Option<usize>) -> String {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|&cell| cell.to_owned()).collect()).collect();
        render_table(columns, &rows, limit)
    }

    #[track_caller]
    fn check_table(rows: &[&[&str]], limit: Option<usize>, expected: &str) {
        assert_eq!(drawn(&["NAME", "DESCRIPTION"], rows, limit), expected);
    }

    #[test]
    fn long_cells_are_truncated() {
        let long = "Adds two numbers and returns their sum";
        check_table(&[], None, "NAME  DESCRIPTION");
        check_table(&[&["add", long]], None, &format!("NAME  DESCRIPTION\nadd   {long}"));
        check_table(&[&["add", long]], Some(26), "NAME  DESCRIPTION\nadd   Adds two numbers an…");
        check_table(&[&["漢字", "x"]], Some(26), "NAME  DESCRIPTION\n漢字  x");
    }

    #[test]
    fn typed_columns_are_never_truncated() {
        let long = "a_very_long_name_indeed";
        check_table(&[&[long, "x"]], Some(20), &format!("NAME          DESCR…\n{long}"));
        check_table(
            &[&["add", "Adds two numbers"], &[long, "x"]],
            Some(28),
            &format!("NAME                  DESCR…\nadd                   Adds…\n{long}  x"),
        );
        let columns = ["NAME", "STATE", "DETAIL", "NEXT"];
        let row = ["it", "failed", "no `npx` in the path", "toolrack doctor it"];
        assert_eq!(
            drawn(&columns, &[&row], Some(44)),
            "NAME  STATE   DETAIL      NEXT\nit    failed  no `npx`…   toolrack doctor it",
        );
        let columns = ["SERVER", "URI", "NAME", "DESCRIPTION"];
        let row = ["web", "demo://resource/static/document/features.md", "features.md", "Text"];
        assert_eq!(
            drawn(&columns, &[&row], Some(64)),
            "SERVER  URI                                       NAME    DESCR…\n\
             web     demo://resource/static/document/features.md  featu…  Te…",
        );
    }

    proptest! {
        #[test]
        fn table_width_is_limited(
            rows in prop::collection::vec(("[a-z漢ü ]{0,40}", "[a-z漢ü ]{0,90}"), 0..6),
            limit in 20_usize..120,
        ) {
            let rows: Vec<Vec<String>> = rows.into_iter().map(|(a, b)| vec![a, b]).collect();
            let drawn = render_table(&["NAME", "DESCRIPTION"], &rows, Some(limit));
            prop_assert_eq!(drawn.split('\n').count(), rows.len() + 1);
            for (line, row) in drawn.split('\n').skip(1).zip(&rows) {
                let name = row[0].trim_end();
                prop_assert!(line.starts_with(name), "{}", drawn);
                prop_assert!(line.width() <= limit.max(name.width()), "{}", drawn);
            }
        }
    }

    #[track_caller]
    fn check_time_format(time_ms: u64, expected: &str) {
        assert_eq!(format_utc(time_ms), expected);
    }

    #[test]
    fn timestamps_are_utc_dates() {
        check_time_format(0, "1970-01-01T00:00:00Z");
        check_time_format(951_782_400_000, "2000-02-29T00:00:00Z");
        check_time_format(951_868_799_999, "2000-02-29T23:59:59Z");
        check_time_format(1_735_689_600_000, "2025-01-01T00:00:00Z");
        check_time_format(4_107_542_399_000, "2100-02-28T23:59:59Z");
        check_time_format(4_107_542_400_000, "2100-03-01T00:00:00Z");
    }

    #[test]
    fn relative_times_have_one_unit() {
        for (seconds, expected) in
            [(0, "just now"), (61, "1 min ago"), (7300, "2 h ago"), (200_000, "2 days ago")]
        {
            assert_eq!(format_ago(0, seconds * 1000), expected);
        }
        assert_eq!(format_ago(5000, 0), "just now");
    }

    #[track_caller]
    fn check_progress(json: &str, expected: &str) {
        let progress: Progress = serde_json::from_str(json).unwrap();
        assert_eq!(describe(&progress), expected, "{json}");
    }

    #[test]
    fn progress_is_described() {
        check_progress(r#"{"progressToken":1,"progress":3}"#, "3");
        check_progress(r#"{"progressToken":1,"progress":3,"total":4}"#, "3 of 4 (75 %)");
        check_progress(
            r#"{"progressToken":1,"progress":9,"total":4,"message":"x"}"#,
            "9 of 4 (100 %) x",
        );
        check_progress(r#"{"progressToken":1,"progress":0.5,"total":0}"#, "0.5");
    }
}
