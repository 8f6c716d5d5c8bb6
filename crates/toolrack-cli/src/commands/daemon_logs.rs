//! `toolrack daemon logs`: the end of the daemon's own log, as far as one screen or two can hold it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use toolrack_transport::plain_text;

use crate::args::daemon::DaemonLogsOptions;
use crate::context::Surroundings;
use crate::daemon_client::log_file;
use crate::error::Failure;
use crate::output::Output;
use crate::printer::Printer;

/// What is shown of a long log.
const END_BYTES: u64 = 16 << 10;
/// What is read at once of one that is followed.
const MOST_BYTES: u64 = 1 << 20;
/// How often a log is looked at that is followed.
const LOOK: Duration = Duration::from_millis(200);
const MOST_CHARS: usize = 4000;

/// Shows the end of the log, and goes on if that is wanted.
pub(crate) async fn logs(
    options: &DaemonLogsOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let path = log_file(surroundings.settings.home()?);
    let n_bytes = std::fs::metadata(&path).map_or(0, |it| it.len());
    let begin = n_bytes.saturating_sub(END_BYTES);
    let (text, mut place) = read(&path, begin)?;
    // The first line is most likely not whole.
    let text = if begin > 0 { text.split_once('\n').map_or("", |it| it.1) } else { &text };
    show(text, printer);
    if text.is_empty() {
        printer.note("note: the daemon has not written anything; servers have logs of their own, `toolrack logs NAME`");
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
        let (text, end) = read(&path, place)?;
        show(&text, printer);
        place = end;
    }
}

/// Whole lines from a place on, and the place behind them. A log that is shorter than that has begun anew, and one that
/// is not there is empty.
fn read(path: &Path, begin: u64) -> io::Result<(String, u64)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((String::new(), 0)),
        Err(error) => return Err(error),
    };
    let begin = if file.metadata()?.len() < begin { 0 } else { begin };
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let n_whole = bytes.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1);
    bytes.truncate(n_whole);
    let end = begin + u64::try_from(n_whole).unwrap_or_default();
    Ok((String::from_utf8_lossy(&bytes).into_owned(), end))
}

fn show(text: &str, printer: &Printer) {
    for line in text.lines() {
        let line = plain_text(line, MOST_CHARS);
        match printer.output() {
            Output::Table | Output::Raw => printer.line(line),
            _ => printer.line(json!({ "text": line })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn whole_lines_are_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(read(&path, 0).unwrap(), (String::new(), 0));
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(read(&path, 0).unwrap(), ("one\ntwo\n".to_owned(), 8));
        file.write_all(b"ee\n").unwrap();
        assert_eq!(read(&path, 8).unwrap(), ("three\n".to_owned(), 14));
        assert_eq!(read(&path, 14).unwrap(), (String::new(), 14));
        File::create(&path).unwrap().write_all(b"new\n").unwrap();
        assert_eq!(read(&path, 14).unwrap(), ("new\n".to_owned(), 4));
    }
}
