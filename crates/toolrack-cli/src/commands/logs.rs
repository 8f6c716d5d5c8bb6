//! `toolrack logs`, `daemon logs` and `history`: server output, the daemon log and the call
//! history.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use toolrack_daemon::{CallRecord, HistoryQuery, read_call, read_history};
use toolrack_platform::{ensure_regular, private_options};
use toolrack_service::{LocalService, LogKind, LogLine, McpConfig};
use toolrack_transport::sanitize_line;

use crate::args::{DaemonLogsOptions, HistoryOptions, LogsOptions};
use crate::commands::Context;
use crate::config_service::{insert_key, with_server};
use crate::daemon_client::log_file;
use crate::error::{CliError, command, server_command};
use crate::printer::{List, Output, Printer, format_utc};

/// Polling interval of `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const MAX_LINE_CHARS: usize = 4000;

/// Prints a server's stored log, and follows it if requested.
pub(crate) async fn logs(options: LogsOptions, context: &Context) -> Result<(), CliError> {
    let (name, printer) = (&options.server, &context.printer);
    let found =
        async |service: &LocalService, config: McpConfig| Ok((config.id, service.logs().clone()));
    let (id, store) = with_server(name, None, context, found).await?;
    let mut seen = store.read(id)?;
    let selected = if options.all { &seen } else { last_run(&seen) };
    match printer.output {
        // A followed list has no end, so lines are printed one by one.
        output if options.follow || output == Output::Table => print_lines(selected, printer),
        _ => {
            let items: Vec<Value> = selected.iter().map(line_json).collect();
            printer.lines(&items, Value::to_string);
        }
    }
    if seen.is_empty() {
        printer.note(format_args!(
            "note: no output of `{name}` stored; start it with {}",
            server_command("start", name)
        ));
    }
    if !options.follow {
        return Ok(());
    }
    let print_new = || {
        let now = store.read(id)?;
        print_lines(new_lines(&seen, &now), printer);
        seen = now;
        Ok(())
    };
    follow(context, print_new).await
}

/// Calls `print_new` again and again, until Ctrl-C, which is the normal end of `--follow`.
async fn follow(
    context: &Context,
    mut print_new: impl FnMut() -> Result<(), CliError>,
) -> Result<(), CliError> {
    loop {
        tokio::select! {
            () = context.cancellation.cancelled() => return Ok(()),
            () = sleep(POLL_INTERVAL) => print_new()?,
        }
    }
}

fn print_lines(lines: &[LogLine], printer: &Printer) {
    for line in lines {
        match printer.output {
            Output::Table => {
                let mark = match line.kind {
                    LogKind::Stderr => "|",
                    LogKind::Install => "+",
                    _ => "*",
                };
                let (at, text) = (format_utc(line.at), line_text(line));
                printer.line(format_args!("{at} {mark} {text}"));
            }
            _ => printer.line(line_json(line)),
        }
    }
}

fn line_json(line: &LogLine) -> Value {
    json!({ "at": format_utc(line.at), "kind": line.kind, "text": line_text(line) })
}

fn line_text(line: &LogLine) -> String {
    sanitize_line(&line.text, MAX_LINE_CHARS)
}

/// The lines since the last start.
fn last_run(lines: &[LogLine]) -> &[LogLine] {
    let start = lines.iter().rposition(|line| line.kind == LogKind::Start).unwrap_or_default();
    lines.split_at(start).1
}

/// Lines that were not there before. A file that is rotated may have lost its beginning.
fn new_lines<'n>(seen: &[LogLine], now: &'n [LogLine]) -> &'n [LogLine] {
    if now.starts_with(seen) {
        return now.split_at(seen.len()).1;
    }
    let known = seen.last().and_then(|last| now.iter().rposition(|line| line == last));
    now.split_at(known.map_or(0, |index| index + 1)).1
}

/// How much of the end of the daemon log is printed.
const TAIL_BYTES: u64 = 16 << 10;
/// Maximum read at once while following.
const MAX_READ_BYTES: usize = 1 << 20;

/// Prints the end of the daemon log, and follows it if requested.
pub(crate) async fn daemon_logs(
    options: DaemonLogsOptions,
    context: &Context,
) -> Result<(), CliError> {
    let printer = &context.printer;
    let path = log_file(context.settings.home()?);
    let n_bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    let offset = n_bytes.saturating_sub(TAIL_BYTES);
    let (text, mut position) = read_lines(&path, offset)?;
    // The tail most likely begins in the middle of a line.
    let text = if offset > 0 { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text };
    print_daemon_lines(text, printer);
    if text.is_empty() {
        printer.note(format_args!(
            "note: the daemon log is empty; see the logs of a server with {}",
            command("logs NAME")
        ));
    }
    if !options.follow {
        return Ok(());
    }
    let print_new = || {
        let (text, end) = read_lines(&path, position)?;
        print_daemon_lines(&text, printer);
        position = end;
        Ok(())
    };
    follow(context, print_new).await
}

/// Complete lines from an offset, and the offset after them. A shorter file has been rotated; a
/// missing one is empty.
fn read_lines(path: &Path, offset: u64) -> io::Result<(String, u64)> {
    let mut file = match private_options().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((String::new(), 0)),
        Err(error) => return Err(error),
    };
    ensure_regular(&file)?;
    let offset = if file.metadata()?.len() < offset { 0 } else { offset };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES as u64).read_to_end(&mut bytes)?;
    // The daemon may be in the middle of a line; its rest comes with the next poll. A line that is
    // longer than one read comes in parts.
    let n_all = bytes.len();
    let n_partial = if n_all < MAX_READ_BYTES { 0 } else { n_all };
    let n_whole =
        bytes.iter().rposition(|byte| *byte == b'\n').map_or(n_partial, |index| index + 1);
    bytes.truncate(n_whole);
    let end = offset + u64::try_from(n_whole).unwrap_or_default();
    Ok((String::from_utf8_lossy(&bytes).into_owned(), end))
}

fn print_daemon_lines(text: &str, printer: &Printer) {
    for line in text.lines() {
        let line = sanitize_line(line, MAX_LINE_CHARS);
        match printer.output {
            Output::Table | Output::Raw => printer.line(line),
            _ => printer.line(json!({ "text": line })),
        }
    }
}

/// Maximum of `--limit`.
const MAX_LIMIT: u32 = 10_000;
const MAX_NAME_CHARS: usize = 200;

/// Lists calls, or shows one.
pub(crate) async fn history(options: HistoryOptions, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let home = context.settings.home()?.clone();
    if let Some(id) = options.id {
        let wanted_id = id.clone();
        let found = context.blocking(move || Ok(read_call(&home, &wanted_id)?)).await?;
        let found = found.ok_or_else(|| {
            let hint = format!("list calls and their IDs with {}", command("history"));
            CliError::unknown(format!("call `{id}` not found"), hint)
        })?;
        printer.show(render_call(&found), &call_json(&found));
        return Ok(());
    }
    if !(1..=MAX_LIMIT).contains(&options.limit) {
        let message = format!("`--limit` must be between 1 and {MAX_LIMIT}");
        return Err(CliError::usage(message, "omit it for the last 20").with_field("--limit"));
    }
    let query = HistoryQuery {
        server: options.server,
        tool: options.tool,
        unsuccessful_only: options.failed,
        limit: usize::try_from(options.limit).ok(),
        ..HistoryQuery::default()
    };
    let calls = context.blocking(move || Ok(read_history(&home, &query)?)).await?;
    if calls.is_empty() {
        printer.note("note: no matching calls; only calls through the daemon are recorded");
    }
    let mut list = List::new(&["ID", "TIME", "SERVER", "TOOL", "OUTCOME", "DURATION"]);
    for call in &calls {
        let (server, tool) = (display_name(&call.server), display_name(&call.tool));
        let (outcome, duration) =
            (call.outcome.replace('_', " "), format_duration(call.duration_us));
        let time = format_utc(call.time_ms);
        list.push(vec![call.id.clone(), time, server, tool, outcome, duration], &call_json(call));
    }
    printer.list(&list);
    Ok(())
}

fn display_name(text: &str) -> String {
    sanitize_line(text, MAX_NAME_CHARS)
}

/// A duration in the unit that reads best.
fn format_duration(us: u64) -> String {
    match us {
        0..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        10_000..10_000_000 => format!("{} ms", us / 1000),
        _ => format!("{} s", us / 1_000_000),
    }
}

fn call_json(call: &CallRecord) -> Value {
    let mut item = json!(call);
    insert_key(&mut item, "time", json!(format_utc(call.time_ms)));
    item
}

/// All fields of a call, one per line.
fn render_call(call: &CallRecord) -> String {
    let mut lines = vec![
        format!("id         {}", call.id),
        format!("time       {}", format_utc(call.time_ms)),
        format!("server     {}", display_name(&call.server)),
        format!("tool       {}", display_name(&call.tool)),
        format!("outcome    {}", call.outcome.replace('_', " ")),
        format!("delivery   {}", call.delivery.replace('_', " ")),
        format!("duration   {}", format_duration(call.duration_us)),
        format!("arguments  {} bytes", call.argument_bytes),
        format!("result     {} bytes", call.result_bytes),
    ];
    if let Some(agent) = &call.agent {
        lines.insert(2, format!("agent      {}", display_name(agent)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    fn lines(text: &str) -> Vec<LogLine> {
        let kind = |c: char| if c == 's' { LogKind::Start } else { LogKind::Stderr };
        let line = |c: char| LogLine { at: 0, kind: kind(c), text: c.to_string() };
        text.chars().map(line).collect()
    }

    #[test]
    fn last_run_begins_at_the_last_start() {
        for (all, expected) in [("", ""), ("ab", "ab"), ("sab", "sab"), ("sabsc", "sc")] {
            assert_eq!(last_run(&lines(all)), lines(expected));
        }
    }

    #[test]
    fn new_lines_are_printed_once() {
        for (seen, now, expected) in [
            ("", "sa", "sa"),
            ("sa", "sa", ""),
            ("sa", "sabc", "bc"),
            ("sab", "bc", "c"),
            ("sab", "xy", "xy"),
            ("sab", "", ""),
        ] {
            assert_eq!(new_lines(&lines(seen), &lines(now)), lines(expected), "{seen} {now}");
        }
    }

    #[test]
    fn complete_lines_are_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(read_lines(&path, 0).unwrap(), (String::new(), 0));
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(read_lines(&path, 0).unwrap(), ("one\ntwo\n".to_owned(), 8));
        file.write_all(b"ee\n").unwrap();
        assert_eq!(read_lines(&path, 8).unwrap(), ("three\n".to_owned(), 14));
        assert_eq!(read_lines(&path, 14).unwrap(), (String::new(), 14));
        File::create(&path).unwrap().write_all(b"new\n").unwrap();
        assert_eq!(read_lines(&path, 14).unwrap(), ("new\n".to_owned(), 4));
        // A line over 1 MiB does not stop the rest.
        File::create(&path)
            .unwrap()
            .write_all(&[vec![b'x'; 2 << 20], b"\nend\n".to_vec()].concat())
            .unwrap();
        let (mut text, mut position) = (String::new(), 0);
        for _ in 0..4 {
            let (more, end) = read_lines(&path, position).unwrap();
            text.push_str(&more);
            position = end;
        }
        assert!(text.len() == (2 << 20) + 5 && text.ends_with("x\nend\n"), "{}", text.len());
    }

    #[test]
    fn durations_use_a_readable_unit() {
        for (us, expected) in [
            (0, "0.0 ms"),
            (1_250, "1.2 ms"),
            (25_900, "25 ms"),
            (9_999_999, "9999 ms"),
            (61_000_000, "61 s"),
        ] {
            assert_eq!(format_duration(us), expected);
        }
    }
}
