//! What servers said when they were run: a file of bounded size for each, for whoever asks afterwards.
//!
//! **Invariant:** only what has been cleaned and masked gets here, only the owner can read it, and a line is
//! written whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::atomic_file::{Folder, read_all};

/// A longer file loses its older half.
const LARGEST_BYTES: usize = 256 << 10;
/// Whatever is in the file, no more of it is read.
const READ_BYTES: usize = 4 * LARGEST_BYTES;
/// Somebody else writes a few lines, which takes no time.
const PATIENCE: Duration = Duration::from_secs(2);
const LOCK: &str = ".lock";
const BESIDE: &str = ".tmp";

/// What is remembered of the runs of servers.
#[derive(Debug, Clone)]
pub struct LogStore {
    dir: PathBuf,
}

/// One thing that happened to a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What sort of thing.
    pub kind: LogKind,
    /// What was said.
    pub text: String,
}

/// What sort of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogKind {
    /// It was started, or its address was reached for.
    Start,
    /// It could be called.
    Ready,
    /// It could not be connected, or was lost.
    Failure,
    /// It wants somebody to log in.
    NeedsLogin,
    /// It wrote to its error output.
    Stderr,
    /// What installs its package said something.
    Install,
}

impl LogLine {
    /// Something that happens now.
    pub(crate) fn now(kind: LogKind, text: impl Into<String>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at: u64::try_from(since.as_millis()).unwrap_or_default(), kind, text: text.into() }
    }
}

impl LogStore {
    /// Keeps files in `dir`, which is made when there is something to write.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Where the file of a server is, or would be.
    pub fn path(&self, id: Uuid) -> PathBuf {
        self.dir.join(file_name(id))
    }

    /// Everything that is remembered of a server, the oldest first.
    ///
    /// # Errors
    ///
    /// When the file is there and cannot be read.
    pub fn read(&self, id: Uuid) -> io::Result<Vec<LogLine>> {
        let Some(folder) = Folder::open(&self.dir)? else { return Ok(Vec::new()) };
        let Some(file) = folder.open_file(&file_name(id))? else { return Ok(Vec::new()) };
        Ok(lines(&read_all(&file, READ_BYTES)?))
    }

    /// Forgets what is remembered of a server.
    ///
    /// # Errors
    ///
    /// When the file cannot be removed.
    pub fn remove(&self, id: Uuid) -> io::Result<()> {
        let Some(folder) = Folder::open(&self.dir)? else { return Ok(()) };
        let _lock = folder.lock(OsStr::new(LOCK), PATIENCE)?;
        folder.remove(&file_name(id)).map(drop)
    }

    /// Remembers what happened.
    pub(crate) fn append(&self, id: Uuid, happened: &[LogLine]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in happened {
            serde_json::to_writer(&mut bytes, line)?;
            bytes.push(b'\n');
        }
        let folder = Folder::make(&self.dir)?;
        let _lock = folder.lock(OsStr::new(LOCK), PATIENCE)?;
        let path = self.path(id);
        let mut file = private().append(true).open(&path)?;
        file.write_all(&bytes)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if size > LARGEST_BYTES { self.shorten(&path) } else { Ok(()) }
    }

    /// Keeps the younger half of a file.
    fn shorten(&self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().read(true).open(path)?;
        let bytes = read_all(&file, READ_BYTES)?;
        let (_, tail) = bytes.split_at(bytes.len().saturating_sub(LARGEST_BYTES / 2));
        let whole = tail.iter().position(|it| *it == b'\n').map_or(tail.len(), |it| it + 1);
        let beside = self.dir.join(BESIDE);
        private().truncate(true).write(true).open(&beside)?.write_all(tail.split_at(whole).1)?;
        std::fs::rename(beside, path)
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    let no_links = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    options.create(true).mode(0o600).custom_flags(no_links);
    options
}

fn file_name(id: Uuid) -> OsString {
    format!("{id}.log").into()
}

/// The lines of a file. What is no line of ours is left out.
fn lines(bytes: &[u8]) -> Vec<LogLine> {
    let each = bytes.split(|it| *it == b'\n');
    each.filter_map(|it| serde_json::from_slice(it).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_happened_is_read_again_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let store = LogStore::new(dir.path().join("logs"));
        let id = Uuid::new_v4();
        assert_eq!(store.read(id).unwrap(), []);
        let happened = [LogLine::now(LogKind::Start, "starting"), LogLine::now(LogKind::Ready, "")];
        store.append(id, &happened).unwrap();
        store.append(id, &happened).unwrap();
        assert_eq!(store.read(id).unwrap(), [happened.clone(), happened].concat());
        let mode = std::fs::metadata(store.path(id)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        store.remove(id).unwrap();
        assert_eq!(store.read(id).unwrap(), []);
    }

    #[test]
    fn a_file_that_grows_too_large_keeps_its_end() {
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
        assert!(std::fs::metadata(store.path(id)).unwrap().len() <= LARGEST_BYTES as u64);
    }

    #[test]
    fn a_link_is_not_followed() {
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
