//! Call history in `SQLite`, beside the config file.
//!
//! A thread of its own writes to the database, fed through a bounded queue. When the disk is full or the database is
//! locked, the thread waits and retries. Callers never wait for it; records that do not fit into the queue are
//! dropped and counted.
//!
//! **Invariant:** the history never fails or slows a call.
//!
//! **Invariant:** a file that is not a database is moved aside, never overwritten.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};
use toolrack_service::Home;
use utoipa::{IntoParams, ToSchema};

use crate::daemon::DaemonError;
use crate::instance_lock::{file_error, open_private};
use crate::openapi::Outcome;

/// Capacity of the queue to the writer. When it is full, new records are dropped and counted.
const QUEUE_CAPACITY: usize = 4096;
/// Maximum number of records per transaction.
const BATCH_SIZE: usize = 512;
/// Delay before a failed batch is written again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
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

/// The errors of a file that is moved aside.
const DAMAGED: [Option<ErrorCode>; 2] =
    [Some(ErrorCode::NotADatabase), Some(ErrorCode::DatabaseCorrupt)];

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

/// Limits of the call history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Maximum number of calls. The oldest are deleted.
    pub max_calls: u64,
    /// Maximum size of the database.
    pub max_bytes: u64,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self { max_calls: 200_000, max_bytes: 64 << 20 }
    }
}

/// A finished call. Arguments and result are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CallRecord {
    /// The id of the call, unique across restarts.
    pub id: String,
    /// End time, Unix time in milliseconds.
    pub time_ms: u64,
    /// The agent, if the servers are those of one agent.
    pub agent: Option<String>,
    /// The server.
    pub server: String,
    /// The tool, by the server's name for it.
    pub tool: String,
    /// `done`, `tool_error`, `failed` or `abandoned`.
    pub outcome: Cow<'static, str>,
    /// Whether the server may have acted on the call: `not_sent`, `unknown` or `answered`.
    pub delivery: Cow<'static, str>,
    /// Time from request to outcome, in microseconds.
    pub duration_us: u64,
    /// Size of the arguments.
    pub argument_bytes: u64,
    /// Size of the result.
    pub result_bytes: u64,
}

/// Filter and page of a history query. Results are newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// Only calls of this server.
    pub server: Option<String>,
    /// Only calls of this tool, by the server's name for it.
    pub tool: Option<String>,
    /// Only calls with this outcome.
    #[param(value_type = Option<Outcome>, inline)]
    pub outcome: Option<String>,
    /// Only calls with an outcome other than `done`.
    #[serde(skip)]
    pub unsuccessful_only: bool,
    /// Only calls that ended at or after this Unix time in milliseconds.
    pub since_ms: Option<u64>,
    /// Cursor: `next` of the previous page.
    pub before: Option<i64>,
    /// Maximum number of calls.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
}

/// A page of calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryPage {
    pub(crate) calls: Vec<CallRecord>,
    /// Cursor of the next page, if there is one.
    pub(crate) next: Option<i64>,
}

/// Latency percentiles of recent calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Latency {
    /// The server.
    pub(crate) server: String,
    /// The tool; absent for all tools of the server together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// Number of calls in the sample.
    pub(crate) n_calls: u64,
    /// Number of calls with an outcome other than `done`.
    pub(crate) n_failed: u64,
    /// 50th percentile (median), in microseconds.
    pub(crate) p50_us: u64,
    /// 90th percentile.
    pub(crate) p90_us: u64,
    /// 99th percentile.
    pub(crate) p99_us: u64,
    /// Maximum.
    pub(crate) max_us: u64,
}

impl Latency {
    fn from_durations(
        server: String,
        tool: Option<String>,
        mut durations: Vec<u64>,
        n_failed: u64,
    ) -> Self {
        durations.sort_unstable();
        let n_calls = durations.len() as u64;
        let [p50_us, p90_us, p99_us, max_us] =
            [50, 90, 99, 100].map(|percent| percentile(&durations, percent));
        Self { server, tool, n_calls, n_failed, p50_us, p90_us, p99_us, max_us }
    }
}

/// The nearest-rank percentile: the smallest value that `percent` of all values do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Queries the history of a home, whether a daemon is running or not. Blocking.
///
/// # Errors
///
/// When the database exists and cannot be read.
pub fn read_history(home: &Home, query: &HistoryQuery) -> Result<Vec<CallRecord>, DaemonError> {
    read(home, |db| db.query(query).map(|page| page.calls))
}

/// Reads one call from the history of a home. Blocking.
///
/// # Errors
///
/// When the database exists and cannot be read.
pub fn read_call(home: &Home, id: &str) -> Result<Option<CallRecord>, DaemonError> {
    read(home, |db| db.get(id))
}

fn read<T: Default>(
    home: &Home,
    query: impl FnOnce(&Db) -> Result<T, rusqlite::Error>,
) -> Result<T, DaemonError> {
    let path = home.history_file();
    let read = Db::read(&path, query);
    read.map_err(|error| file_error("read", &path, std::io::Error::other(error)))
}

/// Handle to the history of a running daemon.
#[derive(Debug)]
pub(crate) struct History {
    path: PathBuf,
    /// Queue and thread of the writer. `None` once the history is closed.
    writer: Mutex<Option<(SyncSender<CallRecord>, JoinHandle<()>)>>,
    pub(crate) stats: Arc<HistoryStats>,
}

/// Counters of the writer.
#[derive(Debug, Default)]
pub(crate) struct HistoryStats {
    pub(crate) n_written: AtomicU64,
    pub(crate) n_dropped: AtomicU64,
    /// Failed write attempts, each of which was retried.
    pub(crate) n_failures: AtomicU64,
    is_closing: AtomicBool,
}

impl History {
    /// Starts the writer thread. An unusable database is not an error here: the writer retries.
    pub(crate) fn open(path: &Path, options: HistoryOptions) -> std::io::Result<Self> {
        let (queue, records) = sync_channel(QUEUE_CAPACITY);
        let stats = Arc::new(HistoryStats::default());
        let (path, shared_stats) = (path.to_owned(), Arc::clone(&stats));
        let writer = Writer { path: path.clone(), options, db: None, stats: shared_stats };
        let name = "toolrack-history".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || writer.run(&records))?;
        Ok(Self { path, writer: Mutex::new(Some((queue, thread))), stats })
    }

    /// Queues a call for writing. Never waits.
    pub(crate) fn record(&self, record: CallRecord) {
        let writer = self.writer.lock();
        // `try_send`, so that a slow disk never holds up the recorder, which serves all calls.
        let is_queued = writer.as_ref().is_some_and(|(queue, _)| queue.try_send(record).is_ok());
        if !is_queued {
            self.stats.n_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs one query. Blocking.
    pub(crate) fn read<T: Default>(
        &self,
        query: impl FnOnce(&Db) -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        Db::read(&self.path, query)
    }

    /// Writes the queue and joins the writer thread. Blocking.
    pub(crate) fn close(&self) {
        // Set first, so that a writer that is retrying gives up.
        self.stats.is_closing.store(true, Ordering::Release);
        let Some((queue, thread)) = self.writer.lock().take() else { return };
        // Dropping the sender disconnects the channel, which ends the writer after
        // the queued records.
        drop(queue);
        if thread.join().is_err() {
            tracing::error!("the history writer panicked");
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        // A writer that is retrying gives up.
        self.stats.is_closing.store(true, Ordering::Release);
    }
}

/// The writer thread.
struct Writer {
    path: PathBuf,
    options: HistoryOptions,
    db: Option<Db>,
    stats: Arc<HistoryStats>,
}

impl Writer {
    fn run(mut self, records: &Receiver<CallRecord>) {
        while let Ok(first) = records.recv() {
            let mut batch = vec![first];
            loop {
                batch.extend(records.try_iter().take(BATCH_SIZE - batch.len()));
                let Err(error) = self.write(&batch) else { break };
                // Logged once, not for every retry.
                if self.stats.n_failures.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, path = %self.path.display(), "cannot write the call history, retrying");
                }
                if self.stats.is_closing.load(Ordering::Acquire) {
                    // A database that fails now must not delay the shutdown.
                    let n_lost = batch.len() as u64 + records.try_iter().count() as u64;
                    self.stats.n_dropped.fetch_add(n_lost, Ordering::Relaxed);
                    return;
                }
                thread::sleep(RETRY_DELAY);
            }
            self.stats.n_written.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
    }

    fn write(&mut self, batch: &[CallRecord]) -> Result<(), rusqlite::Error> {
        // After an error it is reopened, in case the file was removed or is damaged.
        let mut db = self.db.take().map_or_else(|| Db::open(&self.path), Ok)?;
        db.insert(batch)?;
        db.delete_oldest(&self.options)?;
        self.db = Some(db);
        Ok(())
    }
}

/// The `SQLite` database.
#[derive(Debug)]
pub(crate) struct Db(Connection);

impl Db {
    /// Opens or creates the database for writing. Moves a damaged file aside.
    fn open(path: &Path) -> Result<Self, rusqlite::Error> {
        match Self::try_open(path) {
            Err(error) if DAMAGED.contains(&error.sqlite_error_code()) => {
                let aside = path.with_extension("db.damaged");
                tracing::error!(%error, aside = %aside.display(), "the call history is damaged, starting a new one");
                let moved = fs::rename(path, &aside);
                moved.map_err(|_rename_error| error)?;
                Self::try_open(path)
            }
            other => other,
        }
    }

    fn try_open(path: &Path) -> Result<Self, rusqlite::Error> {
        // Before SQLite opens it: a file that SQLite creates gets the mode of the umask. SQLite gives its WAL and
        // shared-memory files the same mode.
        if let Err(error) = open_private(path) {
            // Opening the database fails in the same way and reports the error.
            tracing::debug!(%error, "cannot make the call history private");
        }
        let connection = Connection::open(path)?;
        connection.busy_timeout(WRITE_BUSY_TIMEOUT)?;
        // Before the first table, or it has no effect.
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // In WAL mode a power failure loses the last transactions, but does not damage the database.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "journal_size_limit", WAL_MAX_BYTES)?;
        connection.pragma_update(None, "wal_autocheckpoint", WAL_CHECKPOINT_PAGES)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self(connection))
    }

    /// Opens the database for one query. If it does not exist yet, the result is empty.
    fn read<T: Default>(
        path: &Path,
        query: impl FnOnce(&Self) -> Result<T, rusqlite::Error>,
    ) -> Result<T, rusqlite::Error> {
        // A read-only open of a missing file is an error, but a home without calls is not.
        if !path.exists() {
            return Ok(T::default());
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(READ_BUSY_TIMEOUT)?;
        // The writer creates the file before the table.
        if !connection.table_exists(None, "calls")? {
            return Ok(T::default());
        }
        query(&Self(connection))
    }

    /// Inserts calls in one transaction. Ignores ids that exist, so a retried batch is not stored twice.
    fn insert(&mut self, records: &[CallRecord]) -> Result<(), rusqlite::Error> {
        let transaction = self.0.transaction()?;
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
    fn delete_oldest(&self, options: &HistoryOptions) -> Result<(), rusqlite::Error> {
        let n_excess = self.n_calls()?.saturating_sub(options.max_calls);
        let n_too_large = if self.n_bytes()? > options.max_bytes { DELETE_BATCH } else { 0 };
        let n = n_excess.max(n_too_large);
        if n == 0 {
            return Ok(());
        }
        let delete =
            "delete from calls where place in (select place from calls order by place limit ?)";
        self.0.execute(delete, [n])?;
        // Deleted rows leave free pages in the file; this gives them back to the disk.
        self.0.execute_batch("pragma incremental_vacuum;")
    }

    pub(crate) fn query(&self, query: &HistoryQuery) -> Result<HistoryPage, rusqlite::Error> {
        let sql = format!(
            "select {COLUMNS} from calls where place < ?1 and (?2 is null or server = ?2) \
             and (?3 is null or tool = ?3) and (?4 is null or outcome = ?4) and time_ms >= ?5 \
             and (not ?7 or outcome <> 'done') order by place desc limit ?6"
        );
        let limit = query.limit.unwrap_or(DEFAULT_LIMIT).min(u32::MAX as usize);
        let mut statement = self.0.prepare(&sql)?;
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
            |row| Ok((row.get::<_, i64>(0)?, record_from_row(row)?)),
        )?;
        let mut found: Vec<(i64, CallRecord)> = rows.collect::<Result<_, _>>()?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        // By place and not by offset, so that new calls do not shift the pages.
        let next = found.last().filter(|_| has_more).map(|(place, _)| *place);
        Ok(HistoryPage { calls: found.into_iter().map(|(_, record)| record).collect(), next })
    }

    pub(crate) fn get(&self, id: &str) -> Result<Option<CallRecord>, rusqlite::Error> {
        let query = format!("select {COLUMNS} from calls where id = ?");
        self.0.query_row(&query, [id], record_from_row).optional()
    }

    /// Latencies of recent calls by server and by tool.
    pub(crate) fn latencies(&self) -> Result<Vec<Latency>, rusqlite::Error> {
        let query =
            "select server, tool, outcome, duration_us from calls order by place desc limit ?";
        let mut statement = self.0.prepare(query)?;
        let mut groups: BTreeMap<(String, Option<String>), (Vec<u64>, u64)> = BTreeMap::new();
        let mut rows = statement.query([LATENCY_SAMPLE])?;
        while let Some(row) = rows.next()? {
            let (server, tool): (String, String) = (row.get(0)?, row.get(1)?);
            let failed = u64::from(row.get_ref(2)?.as_str()? != "done");
            let duration: u64 = row.get(3)?;
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
        let query = "select coalesce(max(place) - min(place) + 1, 0) from calls";
        self.0.query_row(query, [], |row| row.get(0))
    }

    fn n_bytes(&self) -> Result<u64, rusqlite::Error> {
        // Without free pages, or each full file would lose another batch until the vacuum has run.
        let query = "select (page_count - freelist_count) * page_size \
                     from pragma_page_count, pragma_freelist_count, pragma_page_size";
        self.0.query_row(query, [], |row| row.get(0))
    }
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

#[cfg(test)]
mod tests;
