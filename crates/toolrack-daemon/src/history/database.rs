//! The `SQLite` database of the call history: schema, integrity check, inserts and queries.
//!
//! **Invariant:** a database of another version of this program is neither changed nor moved.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, params};
use tokio::time::Instant;

use super::damage::{is_unreadable_value, with_suffix};
use super::{CallRecord, HistoryOptions, HistoryPage, HistoryQuery, Latency};
use crate::instance_lock::open_private;

/// How long the writer waits for a locked database. Short, because it retries anyway.
const WRITE_BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a reader waits for a locked database.
const READ_BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of calls that a query returns unless it has a limit.
const DEFAULT_LIMIT: usize = 50;
/// Number of latest calls from which percentiles are computed.
const LATENCY_SAMPLE: u32 = 20_000;
/// The write-ahead log stays small, so that little space is enough to continue after the disk was full.
const WAL_CHECKPOINT_PAGES: u32 = 64;
const WAL_MAX_BYTES: u32 = 256 << 10;
/// Rows deleted per transaction when the file is too large, so that no transaction takes long.
const DELETE_BATCH: u64 = 5_000;
/// Time for the integrity check of a file. A file that takes longer counts as intact until an error shows otherwise.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Steps of `SQLite` between two looks at the clock.
const CHECK_STEPS: i32 = 1_000;

/// Version of the schema, in `user_version` of the file. Files of the first versions have 0 and the same columns.
const SCHEMA_VERSION: i64 = 1;

const SCHEMA: &str = "
create table if not exists calls (
    place integer primary key,
    id text not null unique,
    time_ms integer not null,
    agent text,
    server text not null,
    tool text not null,
    outcome text not null,
    delivery text not null,
    duration_us integer not null,
    argument_bytes integer not null,
    result_bytes integer not null
) strict;
create index if not exists calls_by_server on calls (server, tool, place);
";

const COLUMNS: &str = "place, id, time_ms, agent, server, tool, outcome, delivery, duration_us, \
                       argument_bytes, result_bytes";

/// Why the history cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbError {
    /// `SQLite` failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The integrity check found a problem.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// A link to a file that may not be ours has the name of the database.
    #[error("it is a symbolic link")]
    SymbolicLink,
    /// A directory, socket or pipe has the name of the database.
    #[error("it is not a file")]
    NotAFile,
    /// Another version of this program has made the file.
    #[error("another version of Toolrack has written it (schema {0})")]
    OtherSchema(i64),
}

/// Which integrity check the writer makes when it opens a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntegrityCheck {
    /// The structure of the file.
    Quick,
    /// Also the content of the indexes: a reader has found damage that the quick check may not see.
    Full,
}

/// The file that is used instead of one with another schema.
pub(super) fn fallback_path(path: &Path) -> PathBuf {
    with_suffix(path, &format!(".schema-{SCHEMA_VERSION}"))
}

/// The `SQLite` database.
#[derive(Debug)]
pub(crate) struct Db {
    connection: Connection,
    /// Device and inode of the database and its write-ahead log, when they were opened.
    files: [Option<(u64, u64)>; 2],
}

impl Db {
    /// Opens or creates the database for writing.
    pub(super) fn open(path: &Path, check: Option<IntegrityCheck>) -> Result<Self, DbError> {
        check_is_file(path)?;
        // Before SQLite opens it: a file that SQLite creates gets the mode of the umask. SQLite gives its WAL and
        // shared-memory files the same mode.
        if let Err(error) = make_private(path) {
            // Opening the database fails in the same way and reports the error; a link is refused above.
            tracing::debug!(%error, "cannot make the call history private");
        }
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(WRITE_BUSY_TIMEOUT)?;
        // Before anything is changed.
        check_schema(&connection)?;
        if let Some(check) = check {
            check_integrity(&mut connection, check)?;
        }
        // Before the first table, or it has no effect.
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // In WAL mode a power failure loses the last transactions, but does not damage the database.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "journal_size_limit", WAL_MAX_BYTES)?;
        connection.pragma_update(None, "wal_autocheckpoint", WAL_CHECKPOINT_PAGES)?;
        connection.execute_batch(SCHEMA)?;
        if schema_version(&connection)? != SCHEMA_VERSION {
            connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        let files = file_ids(path);
        Ok(Self { connection, files })
    }

    /// Whether the path still leads to the open files. `SQLite` would write to removed files without an error.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let is_same = |(own, found): (_, Option<(u64, u64)>)| found == own;
        self.files.into_iter().zip(file_ids(path)).filter(|(own, _)| own.is_some()).all(is_same)
    }

    /// Opens the database for one query. If it does not exist yet, the result is empty.
    pub(super) fn read<T: Default>(
        path: &Path,
        query: impl FnOnce(&Self) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DbError> {
        let connection = match Self::open_for_reading(path) {
            Err(DbError::OtherSchema(_)) => Self::open_for_reading(&fallback_path(path))?,
            other => other?,
        };
        // A home without calls is not an error.
        let Some(connection) = connection else { return Ok(T::default()) };
        Ok(query(&Self { connection, files: [None; 2] })?)
    }

    /// `None` if the file or its table does not exist yet.
    fn open_for_reading(path: &Path) -> Result<Option<Connection>, DbError> {
        check_is_file(path)?;
        if !path.exists() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(READ_BUSY_TIMEOUT)?;
        check_schema(&connection)?;
        // The writer creates the file before the table.
        Ok(connection.table_exists(None, "calls")?.then_some(connection))
    }

    /// Inserts calls in one transaction. Ignores ids that exist, so a retried batch is not stored twice.
    pub(super) fn insert(&mut self, records: &[CallRecord]) -> Result<(), rusqlite::Error> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "insert or ignore into calls (id, time_ms, agent, server, tool, outcome, delivery, \
                 duration_us, argument_bytes, result_bytes) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            for record in records {
                insert.execute(params![
                    record.id,
                    record.time_ms,
                    record.agent,
                    record.server,
                    record.tool,
                    record.outcome,
                    record.delivery,
                    record.duration_us,
                    record.argument_bytes,
                    record.result_bytes,
                ])?;
            }
        }
        transaction.commit()
    }

    /// Deletes the oldest calls if a limit is exceeded.
    pub(super) fn delete_oldest(&self, options: &HistoryOptions) -> Result<(), rusqlite::Error> {
        let n_excess = self.n_calls()?.saturating_sub(options.max_calls);
        let n_too_large = if self.n_bytes()? > options.max_bytes { DELETE_BATCH } else { 0 };
        let n = n_excess.max(n_too_large);
        if n == 0 {
            return Ok(());
        }
        let delete =
            "delete from calls where place in (select place from calls order by place limit ?)";
        self.connection.execute(delete, [n])?;
        // Deleted rows leave free pages in the file; this gives them back to the disk.
        self.connection.execute_batch("pragma incremental_vacuum;")
    }

    pub(crate) fn query(&self, query: &HistoryQuery) -> Result<HistoryPage, rusqlite::Error> {
        let sql = format!(
            "select {COLUMNS} from calls where place < ?1 and (?2 is null or server = ?2) \
             and (?3 is null or tool = ?3) and (?4 is null or outcome = ?4) and time_ms >= ?5 \
             and (not ?7 or outcome <> 'done') order by place desc limit ?6"
        );
        let limit = query.limit.unwrap_or(DEFAULT_LIMIT).min(u32::MAX as usize);
        let mut statement = self.connection.prepare(&sql)?;
        let rows = statement.query_map(
            params![
                query.before.unwrap_or(i64::MAX),
                query.server,
                query.tool,
                query.outcome,
                query.since_ms.unwrap_or_default(),
                // One more row shows whether there is another page.
                limit.saturating_add(1),
                query.unsuccessful_only,
            ],
            |row| Ok((row.get::<_, i64>(0)?, readable(record_from_row(row))?)),
        )?;
        let mut found: Vec<(i64, Option<CallRecord>)> = rows.collect::<Result<_, _>>()?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        // By place and not by offset, so that new calls do not shift the pages.
        let next = found.last().filter(|_| has_more).map(|(place, _)| *place);
        Ok(HistoryPage {
            calls: found.into_iter().filter_map(|(_, record)| record).collect(),
            next,
        })
    }

    pub(crate) fn get(&self, id: &str) -> Result<Option<CallRecord>, rusqlite::Error> {
        let query = format!("select {COLUMNS} from calls where id = ?");
        self.connection.query_row(&query, [id], record_from_row).optional()
    }

    /// Latencies of recent calls by server and by tool.
    pub(crate) fn latencies(&self) -> Result<Vec<Latency>, rusqlite::Error> {
        let query =
            "select server, tool, outcome, duration_us from calls order by place desc limit ?";
        let mut statement = self.connection.prepare(query)?;
        let mut groups: BTreeMap<(String, Option<String>), (Vec<u64>, u64)> = BTreeMap::new();
        let mut rows = statement.query([LATENCY_SAMPLE])?;
        while let Some(row) = rows.next()? {
            let Some((server, tool, failed, duration)) = readable(latency_from_row(row))? else {
                continue;
            };
            for key in [(server.clone(), Some(tool)), (server, None)] {
                let (durations, n_failed) = groups.entry(key).or_default();
                durations.push(duration);
                *n_failed += failed;
            }
        }
        let latency = |((server, tool), (durations, n_failed))| {
            Latency::from_durations(server, tool, durations, n_failed)
        };
        Ok(groups.into_iter().map(latency).collect())
    }

    fn n_calls(&self) -> Result<u64, rusqlite::Error> {
        // `place` only grows and only the oldest rows are deleted, so the difference is the count, without a scan.
        // SQLite finds one of the two in the index, and reads the whole table if a query asks for both.
        let query = "select coalesce((select max(place) from calls) - (select min(place) from calls) + 1, 0)";
        self.connection.query_row(query, [], |row| row.get(0))
    }

    fn n_bytes(&self) -> Result<u64, rusqlite::Error> {
        // Without free pages, or each full file would lose another batch until the vacuum has run.
        let query = "select (page_count - freelist_count) * page_size \
                     from pragma_page_count, pragma_freelist_count, pragma_page_size";
        self.connection.query_row(query, [], |row| row.get(0))
    }
}

/// The version of the schema. 0 if the file is new or of the first version.
fn schema_version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Checks that the table of calls is missing, or is the one that this version writes.
fn check_schema(connection: &Connection) -> Result<(), DbError> {
    let version = schema_version(connection)?;
    let query = "select coalesce(group_concat(name, ', '), '') from pragma_table_info('calls')";
    let columns: String = connection.query_row(query, [], |row| row.get(0))?;
    if version > SCHEMA_VERSION || !(columns.is_empty() || columns == COLUMNS) {
        return Err(DbError::OtherSchema(version));
    }
    Ok(())
}

fn check_integrity(connection: &mut Connection, check: IntegrityCheck) -> Result<(), DbError> {
    let pragma = match check {
        IntegrityCheck::Quick => "pragma quick_check(1)",
        IntegrityCheck::Full => "pragma integrity_check(1)",
    };
    let started = Instant::now();
    let is_late = move || started.elapsed() > CHECK_TIMEOUT;
    connection.progress_handler(CHECK_STEPS, Some(is_late))?;
    let found: Result<String, rusqlite::Error> = connection.query_row(pragma, [], |row| row.get(0));
    connection.progress_handler(0, None::<fn() -> bool>)?;
    match found {
        Ok(found) if found == "ok" => Ok(()),
        Ok(problem) => Err(DbError::Damaged(problem)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            tracing::info!("the integrity check of the call history took too long");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// A directory, pipe or socket cannot be a database, and opening a pipe would wait for ever. `SQLite` would follow a link.
fn check_is_file(path: &Path) -> Result<(), DbError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => Err(DbError::SymbolicLink),
        Ok(metadata) if !metadata.is_file() => Err(DbError::NotAFile),
        _ => Ok(()),
    }
}

/// Creates the file, or gives it the mode 0600. With less, `SQLite` would open it read-only without an error.
fn make_private(path: &Path) -> std::io::Result<()> {
    match open_private(path) {
        // The owner of a read-only file cannot open it for writing, but can change its mode.
        Err(error)
            if error.kind() == std::io::ErrorKind::PermissionDenied
                && path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) =>
        {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        }
        opened => opened.map(drop),
    }
}

fn file_ids(path: &Path) -> [Option<(u64, u64)>; 2] {
    [path.to_owned(), with_suffix(path, "-wal")]
        .map(|path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino())))
}

/// A row of which some bytes have changed is left out: it must not hide all others.
fn readable<T>(row: Result<T, rusqlite::Error>) -> Result<Option<T>, rusqlite::Error> {
    match row {
        Err(error) if is_unreadable_value(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// Server, tool, whether the call failed, and its duration.
fn latency_from_row(row: &Row<'_>) -> Result<(String, String, u64, u64), rusqlite::Error> {
    let failed = u64::from(row.get::<_, String>(2)? != "done");
    Ok((row.get(0)?, row.get(1)?, failed, row.get(3)?))
}

fn record_from_row(row: &Row<'_>) -> Result<CallRecord, rusqlite::Error> {
    Ok(CallRecord {
        id: row.get(1)?,
        time_ms: row.get(2)?,
        agent: row.get(3)?,
        server: row.get(4)?,
        tool: row.get(5)?,
        outcome: row.get::<_, String>(6)?.into(),
        delivery: row.get::<_, String>(7)?.into(),
        duration_us: row.get(8)?,
        argument_bytes: row.get(9)?,
        result_bytes: row.get(10)?,
    })
}
