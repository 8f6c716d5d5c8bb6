//! Execution journal of a scripted server: one line per executed call, read back to prove that no call ran twice.
//!
//! **Invariant:** a record is one `write(2)` to a file opened for appending, so lines never mix and a crash loses
//! none.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What happened to a call on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalEvent {
    /// The call arrived and ran.
    Executed,
    /// The client cancelled it while it was pending.
    Cancelled,
}

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// What happened to the call.
    pub event: JournalEvent,
    /// Argument `nonce` of the call, if present.
    pub nonce: Option<String>,
    /// Number of the call within its server process, from 1.
    pub call: u64,
    /// The server process.
    pub pid: u32,
}

/// All records that one or more servers wrote to a journal file, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    /// Records, oldest first.
    pub records: Vec<JournalRecord>,
}

impl Journal {
    /// Reads a journal; a missing file is an empty journal.
    ///
    /// Fails with `InvalidData` on an invalid line.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(Self { records: read_lines(path)? })
    }

    /// How often the call with this nonce ran.
    pub fn executions(&self, nonce: &str) -> usize {
        self.count(nonce, JournalEvent::Executed)
    }

    /// How often the call with this nonce was cancelled while pending.
    pub fn cancellations(&self, nonce: &str) -> usize {
        self.count(nonce, JournalEvent::Cancelled)
    }

    /// Nonces that ran more than once, and how often.
    pub fn duplicates(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for record in self.records.iter().filter(|record| record.event == JournalEvent::Executed) {
            if let Some(nonce) = &record.nonce {
                *counts.entry(nonce.clone()).or_default() += 1;
            }
        }
        counts.retain(|_, count| *count > 1);
        counts
    }

    fn count(&self, nonce: &str, event: JournalEvent) -> usize {
        let matches = |record: &&JournalRecord| {
            record.event == event && record.nonce.as_deref() == Some(nonce)
        };
        self.records.iter().filter(matches).count()
    }
}

/// Appends records to a file, one line each.
#[derive(Debug)]
pub(crate) struct LineWriter {
    file: File,
}

impl LineWriter {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    pub(crate) fn write(&self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }
}

/// Reads the records of a file; there are none in a missing file.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = match std::fs::read_to_string(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => String::new(),
        other => other?,
    };
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: JournalEvent, nonce: Option<&str>, call: u64) -> JournalRecord {
        JournalRecord { event, nonce: nonce.map(str::to_owned), call, pid: 9 }
    }

    #[test]
    fn journal_round_trips_and_counts_duplicates() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal");
        assert_eq!(Journal::read(&path).expect("no file yet"), Journal::default());

        let records = vec![
            record(JournalEvent::Executed, Some("a"), 1),
            record(JournalEvent::Executed, Some("b\n\"c\""), 2),
            record(JournalEvent::Executed, Some("a"), 3),
            record(JournalEvent::Cancelled, Some("a"), 3),
            record(JournalEvent::Executed, None, 4),
            record(JournalEvent::Executed, None, 5),
        ];
        let (one, two) = (LineWriter::open(&path), LineWriter::open(&path));
        let writers = [one.expect("opened"), two.expect("opened")];
        for (record, writer) in records.iter().zip(writers.iter().cycle()) {
            writer.write(record).expect("written");
        }

        let journal = Journal::read(&path).expect("read");
        assert_eq!(journal.records, records);
        assert_eq!(journal.duplicates(), BTreeMap::from([("a".to_owned(), 2)]));
        let of_a = (journal.executions("a"), journal.cancellations("a"));
        assert_eq!(of_a, (2, 1));
    }

    #[test]
    fn invalid_journal_line_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal");
        File::create(&path).and_then(|mut file| file.write_all(b"hello\n")).expect("written");
        let error = Journal::read(&path).expect_err("no journal");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
