//! `toolrack logs`: what a server wrote to its error output, as far as it is remembered.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use toolrack_service::{LocalService, LogKind, LogLine, LogStore};
use toolrack_transport::plain_text;

use crate::args::servers::LogsOptions;
use crate::config_service::{find, must_exist, with_service};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::{List, Output};
use crate::printer::Printer;
use crate::suggested_command::word;
use crate::time_format;

/// How often a file is looked at that is followed.
const LOOK: Duration = Duration::from_millis(200);
const MOST_CHARS: usize = 4000;

/// Shows what is remembered of a server, and goes on if that is wanted.
pub(crate) async fn logs(
    options: &LogsOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let (name, printer) = (&options.server, &surroundings.printer);
    must_exist(name, surroundings)?;
    let (id, store) = with_service(surroundings, None, async |service: &LocalService| {
        Ok((find(service, name)?.id, service.logs().clone()))
    })
    .await?;
    let read = |store: &LogStore| store.read(id).map_err(Failure::from);
    let mut seen = read(&store)?;
    let wanted = if options.all { &seen } else { last_run(&seen) };
    match printer.output() {
        // Nobody knows where a list ends that is followed.
        output if options.follow || output == Output::Table => show(wanted, printer),
        _ => {
            let items = wanted.iter().map(|it| document(it).to_string()).collect();
            printer.list(&List { columns: &[], rows: Vec::new(), items });
        }
    }
    if seen.is_empty() {
        let typed = word(name);
        printer.note(format_args!(
            "note: nothing is remembered of `{name}`; `toolrack start {typed}` starts it once"
        ));
    }
    if !options.follow {
        return Ok(());
    }
    loop {
        tokio::select! {
            // Leaving is how this ends.
            () = surroundings.stop.cancelled() => return Ok(()),
            () = sleep(LOOK) => {}
        }
        let now = read(&store)?;
        show(fresh(&seen, &now), printer);
        seen = now;
    }
}

fn show(lines: &[LogLine], printer: &Printer) {
    for line in lines {
        match printer.output() {
            Output::Table => {
                let (at, text) = (time_format::utc(line.at), shown(line));
                printer.line(format_args!("{at} {} {text}", mark(line.kind)));
            }
            _ => printer.line(document(line)),
        }
    }
}

fn document(line: &LogLine) -> Value {
    json!({ "at": time_format::utc(line.at), "kind": line.kind, "text": shown(line) })
}

fn shown(line: &LogLine) -> String {
    plain_text(&line.text, MOST_CHARS)
}

/// What sort of line it is, in as many letters as any other.
fn mark(kind: LogKind) -> &'static str {
    match kind {
        LogKind::Stderr => "|",
        LogKind::Install => "+",
        _ => "*",
    }
}

/// What has happened since the last start.
fn last_run(lines: &[LogLine]) -> &[LogLine] {
    let start = lines.iter().rposition(|it| it.kind == LogKind::Start).unwrap_or_default();
    lines.split_at(start).1
}

/// What was not there before. A file that has grown too large may have lost its beginning.
fn fresh<'n>(seen: &[LogLine], now: &'n [LogLine]) -> &'n [LogLine] {
    if now.starts_with(seen) {
        return now.split_at(seen.len()).1;
    }
    let known = seen.last().and_then(|last| now.iter().rposition(|it| it == last));
    now.split_at(known.map_or(0, |it| it + 1)).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<LogLine> {
        let kind = |it: char| if it == 's' { LogKind::Start } else { LogKind::Stderr };
        let line = |it: char| LogLine { at: 0, kind: kind(it), text: it.to_string() };
        text.chars().map(line).collect()
    }

    #[test]
    fn the_last_run_begins_with_its_start() {
        for (all, expected) in [("", ""), ("ab", "ab"), ("sab", "sab"), ("sabsc", "sc")] {
            assert_eq!(last_run(&lines(all)), lines(expected));
        }
    }

    #[test]
    fn what_is_new_is_shown_once() {
        for (seen, now, expected) in [
            ("", "sa", "sa"),
            ("sa", "sa", ""),
            ("sa", "sabc", "bc"),
            ("sab", "bc", "c"),
            ("sab", "xy", "xy"),
            ("sab", "", ""),
        ] {
            assert_eq!(fresh(&lines(seen), &lines(now)), lines(expected), "{seen} {now}");
        }
    }
}
