//! Damage of the history file: which errors mean it, and moving a damaged file aside.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};

use super::database::DbError;

/// Number of damaged files that are kept. The oldest are removed, but never the largest one: after a disk has failed for
/// a while, it is the one with the history, and the others are empty.
pub(super) const MAX_DAMAGED_FILES: usize = 3;
/// Names that are tried, if files of this time exist.
const MAX_NAMES: u64 = 1000;
/// Follows the name of the database in that of a damaged one; the time follows.
const DAMAGED: &str = ".damaged-";
/// `SQLite` keeps these files beside a database. They belong to it, so they move with it.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// What the writer does about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The file can never be used again: it is moved aside.
    Damaged,
    /// The disk did not deliver a part of the file, which may be intact: an integrity check decides.
    Unreadable,
    /// The file belongs to another version: it stays, and another file is used.
    OtherSchema,
    /// A full disk, a lock, a missing permission: the calls wait, and the writer retries.
    Temporary,
    /// These calls can never be stored: they are dropped and counted.
    Rejected,
}

/// Classifies a failure by its code, never by its text.
pub(super) fn failure_kind(error: &DbError) -> FailureKind {
    let error = match error {
        DbError::Sqlite(error) => error,
        DbError::Damaged(_) | DbError::NotAFile => return FailureKind::Damaged,
        DbError::OtherSchema(_) => return FailureKind::OtherSchema,
        DbError::SymbolicLink => return FailureKind::Temporary,
    };
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => FailureKind::Damaged,
            // Failed writes are different: they may succeed once there is room.
            ErrorCode::SystemIoFailure
                if [
                    ffi::SQLITE_IOERR_READ,
                    ffi::SQLITE_IOERR_SHORT_READ,
                    ffi::SQLITE_IOERR_CORRUPTFS,
                    ffi::SQLITE_IOERR_DATA,
                ]
                .contains(&failure.extended_code) =>
            {
                FailureKind::Unreadable
            }
            ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig => {
                FailureKind::Rejected
            }
            _ => FailureKind::Temporary,
        },
        rusqlite::Error::ToSqlConversionFailure(_) => FailureKind::Rejected,
        error if is_unreadable_value(error) => FailureKind::Damaged,
        _ => FailureKind::Temporary,
    }
}

/// Whether one stored value cannot be read, because some of its bytes have changed.
pub(super) fn is_unreadable_value(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

/// Moves a damaged database aside, with its companions, and returns its new name.
pub(super) fn move_aside(path: &Path, now_ms: u64) -> io::Result<PathBuf> {
    let aside = (now_ms..now_ms.saturating_add(MAX_NAMES))
        .map(|time| with_suffix(path, &format!("{DAMAGED}{time}")))
        .find(|aside| aside.symlink_metadata().is_err())
        .ok_or(io::ErrorKind::AlreadyExists)?;
    // The companions first: after a kill between two renames, a new database must not find the log of the old one.
    for companion in COMPANIONS {
        match fs::rename(with_suffix(path, companion), with_suffix(&aside, companion)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, &aside)?;
    remove_oldest(path);
    Ok(aside)
}

/// Removes the oldest damaged files beyond the limit, except the largest one.
fn remove_oldest(path: &Path) {
    let files = damaged_files(path);
    let n_excess = files.len().saturating_sub(MAX_DAMAGED_FILES);
    let n_bytes = |file: &&PathBuf| file.metadata().map_or(0, |metadata| metadata.len());
    let largest = files.iter().max_by_key(n_bytes);
    for file in files.iter().filter(|file| Some(*file) != largest).take(n_excess) {
        let names = ["", "-wal", "-shm"].map(|suffix| with_suffix(file, suffix));
        for name in names.iter().filter(|name| name.exists()) {
            if let Err(error) = fs::remove_file(name) {
                tracing::warn!(%error, path = %name.display(), "cannot remove a damaged history");
            }
        }
    }
}

/// The damaged files of a history, oldest first. A directory in place of a database does not count: it is not ours.
pub(super) fn damaged_files(path: &Path) -> Vec<PathBuf> {
    moved_aside(path).into_iter().map(|(_, path)| path).filter(|path| path.is_file()).collect()
}

/// When a damaged history was moved aside last, in Unix time in milliseconds.
pub(super) fn last_moved_ms(path: &Path) -> Option<u64> {
    moved_aside(path).last().map(|(time, _)| *time)
}

/// What was moved aside and is still there, by time.
fn moved_aside(path: &Path) -> Vec<(u64, PathBuf)> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return Vec::new();
    };
    let prefix = format!("{name}{DAMAGED}");
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let time = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let time: u64 = name.to_str()?.strip_prefix(&prefix)?.parse().ok()?;
        Some((time, entry.path()))
    };
    let mut moved: Vec<(u64, PathBuf)> = entries.flatten().filter_map(time).collect();
    moved.sort_unstable();
    moved
}

/// Appends to the name of a file.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
