//! Server logs: one log file of bounded size per server.
//!
//! **Invariant:** lines are sanitized and redacted before they get here, only the owner can read the files, and a line
//! is written whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolrack_platform::{Directory, ensure_regular, private_options, replace, unix_time_ms};
use uuid::Uuid;

/// A longer file is cut to its newer half. Of a longer one, only the tail is read.
const MAX_BYTES: usize = 256 << 10;
/// Bytes that one call appends at most: the last lines.
const MAX_APPEND_BYTES: usize = MAX_BYTES / 2;
/// Other processes hold the lock only while they append a few lines.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_NAME: &str = ".lock";

/// The log files of all servers.
#[derive(Debug, Clone)]
pub struct LogStore {
    dir: PathBuf,
}

/// One line of a server's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Time in milliseconds since 1970.
    pub at: u64,
    /// What the line is about.
    pub kind: LogKind,
    /// The text.
    pub text: String,
}

/// What a log line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogKind {
    /// The server is being started or connected.
    Start,
    /// The server is connected.
    Ready,
    /// The server cannot be connected, or the connection was lost.
    Failure,
    /// The server requires a login.
    NeedsLogin,
    /// A line of its stderr.
    Stderr,
    /// Output of the package installer.
    Install,
}

impl LogLine {
    /// A line with the current time.
    pub(crate) fn now(kind: LogKind, text: impl Into<String>) -> Self {
        Self { at: unix_time_ms(), kind, text: text.into() }
    }
}

impl LogStore {
    /// Keeps log files in `dir`, which is created with the first line.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Path of a server's log file, which need not exist.
    pub fn path(&self, id: Uuid) -> PathBuf {
        self.dir.join(file_name(id))
    }

    /// Reads the log of a server, oldest line first.
    ///
    /// # Errors
    ///
    /// The file exists and cannot be read.
    pub fn read(&self, id: Uuid) -> io::Result<Vec<LogLine>> {
        let Some(dir) = Directory::open(&self.dir)? else { return Ok(Vec::new()) };
        let Some(file) = dir.open_file(&file_name(id))? else { return Ok(Vec::new()) };
        let bytes = read_tail(&file, MAX_BYTES)?;
        let lines = bytes.split(|byte| *byte == b'\n');
        // Lines that do not parse are skipped.
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Deletes the log of a server.
    ///
    /// # Errors
    ///
    /// The file cannot be removed.
    pub fn remove(&self, id: Uuid) -> io::Result<()> {
        let Some(dir) = Directory::open(&self.dir)? else { return Ok(()) };
        let _lock = dir.lock(OsStr::new(LOCK_NAME), LOCK_TIMEOUT)?;
        dir.remove(&file_name(id)).map(drop)
    }

    /// Appends lines to the log of a server.
    pub(crate) fn append(&self, id: Uuid, lines: &[LogLine]) -> io::Result<()> {
        let mut written: Vec<Vec<u8>> = Vec::new();
        let mut n_bytes = 0;
        // From the end: a server can write more at once than the file holds.
        for line in lines.iter().rev() {
            let mut bytes = serde_json::to_vec(line)?;
            bytes.push(b'\n');
            n_bytes += bytes.len();
            if n_bytes > MAX_APPEND_BYTES {
                break;
            }
            written.push(bytes);
        }
        written.reverse();
        let bytes = written.concat();
        let dir = Directory::create(&self.dir)?;
        let _lock = dir.lock(OsStr::new(LOCK_NAME), LOCK_TIMEOUT)?;
        let path = self.path(id);
        let mut file = private_options().create(true).append(true).open(&path)?;
        ensure_regular(&file)?;
        // One write under the lock, so that lines of two processes do not mix.
        file.write_all(&bytes)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if size > MAX_BYTES { truncate_to_tail(&path) } else { Ok(()) }
    }
}

/// Keeps the newer half of a file, from the first whole line on.
fn truncate_to_tail(path: &Path) -> io::Result<()> {
    let file = private_options().read(true).open(path)?;
    // Half of it, so that the file is rewritten once per 128 KiB of output and not
    // on each line.
    let tail = read_tail(&file, MAX_BYTES / 2)?;
    // A reader sees the old file or the new one.
    replace(path, &tail)
}

/// Reads the end of a file, at most `max_bytes`, from the first whole line on.
///
/// # Errors
///
/// The file cannot be read, or is not a regular file.
pub fn read_tail(mut file: &File, max_bytes: usize) -> io::Result<Vec<u8>> {
    ensure_regular(file)?;
    let start = file.metadata()?.len().saturating_sub(max_bytes as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(max_bytes as u64).read_to_end(&mut bytes)?;
    if start > 0 {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..end);
    }
    Ok(bytes)
}

fn file_name(id: Uuid) -> OsString {
    format!("{id}.log").into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn logs_are_private_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let store = LogStore::new(dir.path().join("logs"));
        let id = Uuid::new_v4();
        assert_eq!(store.read(id).unwrap(), []);
        let lines = [LogLine::now(LogKind::Start, "starting"), LogLine::now(LogKind::Ready, "")];
        store.append(id, &lines).unwrap();
        store.append(id, &lines).unwrap();
        assert_eq!(store.read(id).unwrap(), [lines.clone(), lines].concat());
        let mode = std::fs::metadata(store.path(id)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        store.remove(id).unwrap();
        assert_eq!(store.read(id).unwrap(), []);
    }

    #[test]
    fn large_log_keeps_its_tail() {
        let dir = tempfile::tempdir().unwrap();
        let store = LogStore::new(dir.path());
        let id = Uuid::new_v4();
        for n in 0..100 {
            let line = LogLine::now(LogKind::Stderr, format!("{n}:{}", "x".repeat(10_000)));
            store.append(id, &[line]).unwrap();
        }
        let kept = store.read(id).unwrap();
        assert!(kept.last().unwrap().text.starts_with("99:"));
        assert!((10..30).contains(&kept.len()), "{}", kept.len());
        assert!(std::fs::metadata(store.path(id)).unwrap().len() <= MAX_BYTES as u64);
    }

    /// A server that writes megabytes at once must not make its log unreadable for good.
    #[test]
    fn flood_is_cut_and_a_huge_file_recovers() {
        let dir = tempfile::tempdir().unwrap();
        let store = LogStore::new(dir.path());
        let id = Uuid::new_v4();
        let line = |n: usize| LogLine::now(LogKind::Stderr, format!("{n}:{}", "x".repeat(10_000)));
        let flood: Vec<LogLine> = (0..2_000).map(line).collect();
        let size = || std::fs::metadata(store.path(id)).unwrap().len();
        store.append(id, &flood).unwrap();
        assert!(size() <= MAX_BYTES as u64);
        assert_eq!(store.read(id).unwrap().last(), flood.last());
        // A file that an earlier version let grow.
        let huge: Vec<u8> =
            flood.iter().flat_map(|line| serde_json::to_vec(line).unwrap()).collect();
        File::create(store.path(id)).unwrap().write_all(&huge).unwrap();
        store.append(id, &[LogLine::now(LogKind::Ready, "")]).unwrap();
        assert!(size() <= MAX_BYTES as u64);
        store.append(id, &[line(1)]).unwrap();
        assert!(store.read(id).unwrap().last().unwrap().text.starts_with("1:"));
    }

    #[test]
    fn symlink_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let store = LogStore::new(dir.path().join("logs"));
        let (id, elsewhere) = (Uuid::new_v4(), dir.path().join("elsewhere"));
        store.append(id, &[]).unwrap();
        store.remove(id).unwrap();
        std::os::unix::fs::symlink(&elsewhere, store.path(id)).unwrap();
        assert!(store.append(id, &[LogLine::now(LogKind::Start, "")]).is_err());
        assert!(!elsewhere.exists());
    }
}
