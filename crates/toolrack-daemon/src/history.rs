//! Which calls there were, in a small database beside the config.
//!
//! One thread of its own writes, fed through a queue with a bound. A disk that is full or a database that somebody
//! else holds makes that thread wait and try again; whoever makes calls never waits for it, and what does not fit
//! into the queue meanwhile is counted as dropped.
//!
//! **Invariant:** nothing here fails or slows a call.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, params};
use serde::Serialize;
use toolrack_service::Home;
use utoipa::ToSchema;

use crate::daemon::DaemonError;

/// Records on their way to the thread. When it is full, new ones are dropped and counted.
const QUEUE: usize = 4096;
/// Records that are written in one step.
const BATCH: usize = 512;
/// How long to leave a database alone that did not take a batch.
const PAUSE: Duration = Duration::from_millis(500);

/// What can be chosen about the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryOptions {
    /// How many calls are remembered. The oldest are forgotten.
    pub max_calls: u64,
    /// How large the database may become.
    pub max_bytes: u64,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self { max_calls: 200_000, max_bytes: 64 << 20 }
    }
}

/// Looks up calls in the history of a home, whether a daemon runs or not. Blocks like any reading of a file.
///
/// # Errors
///
/// When there is a history that cannot be read.
pub fn read_history(home: &Home, question: &Question) -> Result<Vec<CallRecord>, DaemonError> {
    read(home, |db| db.ask(question).map(|it| it.calls))
}

/// Looks up one call, by its id.
///
/// # Errors
///
/// When there is a history that cannot be read.
pub fn read_call(home: &Home, id: &str) -> Result<Option<CallRecord>, DaemonError> {
    read(home, |db| db.get(id))
}

fn read<T: Default>(
    home: &Home,
    look: impl FnOnce(&Db) -> Result<T, rusqlite::Error>,
) -> Result<T, DaemonError> {
    let path = home.history_file();
    let found = Db::read(&path).and_then(|db| db.map_or(Ok(T::default()), |db| look(&db)));
    found.map_err(|error| DaemonError::File {
        done: "read",
        path,
        source: std::io::Error::other(error),
    })
}

/// The history of a home.
#[derive(Debug)]
pub(crate) struct History {
    path: PathBuf,
    /// `None` once it is closed.
    queue: Mutex<Option<SyncSender<CallRecord>>>,
    counts: Arc<Counts>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What became of the records.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) n_written: AtomicU64,
    pub(crate) n_dropped: AtomicU64,
    /// Attempts to write that failed and were repeated.
    pub(crate) n_failures: AtomicU64,
    is_closing: AtomicBool,
}

impl History {
    /// Opens the history, or an empty one. That it cannot be written is no error: it is tried again and again.
    pub(crate) fn open(path: &Path, options: HistoryOptions) -> std::io::Result<Self> {
        let (queue, records) = sync_channel(QUEUE);
        let counts = Arc::new(Counts::default());
        let writer = Writer {
            path: path.to_owned(),
            options,
            db: None,
            batch: Vec::new(),
            counts: Arc::clone(&counts),
        };
        let name = "toolrack-history".to_owned();
        let writer = thread::Builder::new().name(name).spawn(move || writer.run(&records))?;
        Ok(Self {
            path: path.to_owned(),
            queue: Mutex::new(Some(queue)),
            counts,
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Remembers a call, at once or a moment later. Never waits.
    pub(crate) fn remember(&self, record: CallRecord) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = queue.as_ref().is_some_and(|it| it.try_send(record).is_ok());
        if !sent {
            self.counts.n_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Looks calls up. Blocks for as long as the disk takes, and at most a second for whoever holds the database.
    pub(crate) fn ask(&self, question: &Question) -> Result<Answers, rusqlite::Error> {
        match Db::read(&self.path)? {
            Some(db) => db.ask(question),
            None => Ok(Answers::default()),
        }
    }

    /// One call.
    pub(crate) fn get(&self, id: &str) -> Result<Option<CallRecord>, rusqlite::Error> {
        Db::read(&self.path)?.map_or(Ok(None), |db| db.get(id))
    }

    /// How long calls took lately, for each tool of each server.
    pub(crate) fn latencies(&self) -> Result<Vec<Latency>, rusqlite::Error> {
        Db::read(&self.path)?.map_or(Ok(Vec::new()), |db| db.latencies())
    }

    /// Writes what is still in the queue, and ends. Blocks until then.
    pub(crate) fn close(&self) {
        self.counts.is_closing.store(true, Ordering::Release);
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|it| it.join().is_err()) {
            tracing::error!("the history has crashed");
        }
    }
}

/// The thread that writes.
struct Writer {
    path: PathBuf,
    options: HistoryOptions,
    db: Option<Db>,
    batch: Vec<CallRecord>,
    counts: Arc<Counts>,
}

impl Writer {
    fn run(mut self, records: &Receiver<CallRecord>) {
        loop {
            let is_last = self.gather(records);
            let written = self.write();
            let is_closing = self.counts.is_closing.load(Ordering::Acquire);
            if is_last || (is_closing && !written) {
                // Nobody waits longer for a database that does not take it even now.
                let n_lost = self.batch.len() as u64 + records.try_iter().count() as u64;
                self.counts.n_dropped.fetch_add(n_lost, Ordering::Relaxed);
                return;
            }
            if !written {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Waits for records, and takes what there is. `true` if there will be no more.
    fn gather(&mut self, records: &Receiver<CallRecord>) -> bool {
        if self.batch.is_empty() {
            match records.recv_timeout(Duration::from_hours(1)) {
                Ok(record) => self.batch.push(record),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
        while self.batch.len() < BATCH {
            match records.try_recv() {
                Ok(record) => self.batch.push(record),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
        false
    }

    /// Writes the batch. `false` if it has to be tried again.
    fn write(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        let written = self.db().and_then(|(db, batch, options)| {
            db.add(batch)?;
            db.forget_oldest(options)
        });
        match written {
            Ok(()) => {
                let n = self.batch.len() as u64;
                self.counts.n_written.fetch_add(n, Ordering::Relaxed);
                self.batch.clear();
                true
            }
            Err(error) => {
                if self.counts.n_failures.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, path = %self.path.display(), "calls are not remembered for now");
                }
                // Opened anew, in case it is the file itself that is gone or broken.
                self.db = None;
                false
            }
        }
    }

    fn db(&mut self) -> Result<(&mut Db, &[CallRecord], &HistoryOptions), rusqlite::Error> {
        let db = match self.db.take() {
            Some(db) => db,
            None => Db::open(&self.path)?,
        };
        Ok((self.db.insert(db), &self.batch, &self.options))
    }
}

// One call that is over, as it is remembered and told.

/// One call that is over. Neither its arguments nor its result are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CallRecord {
    /// Tells calls apart, also across restarts.
    pub id: String,
    /// When it was over, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whose call it was, if servers are those of one agent.
    pub agent: Option<String>,
    /// Where to.
    pub server: String,
    /// Which tool, as the server names it.
    pub tool: String,
    /// `done`, `tool_error`, `failed` or `abandoned`.
    #[schema(value_type = String)]
    pub outcome: Cow<'static, str>,
    /// How far it came: `not_sent`, `unknown` or `answered`.
    #[schema(value_type = String)]
    pub delivery: Cow<'static, str>,
    /// From the request to the outcome, in microseconds.
    pub duration_us: u64,
    /// The size of the arguments.
    pub argument_bytes: u64,
    /// The size of the result.
    pub result_bytes: u64,
}

// What can be asked of the history, and what is answered.

/// Which calls to look up, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// Of this server.
    pub server: Option<String>,
    /// Of this tool, as its server names it.
    pub tool: Option<String>,
    /// With this outcome: `done`, `tool_error`, `failed` or `abandoned`.
    pub outcome: Option<String>,
    /// With any outcome but `done`.
    pub is_unsuccessful: bool,
    /// Not older than this, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Only what stands before this place, where the page before ended.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

/// A page of calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) calls: Vec<CallRecord>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<i64>,
}

/// How long the latest calls of a tool took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Latency {
    /// Which server.
    pub(crate) server: String,
    /// Which tool; absent for all tools of the server together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// How many calls were looked at.
    pub(crate) n_calls: u64,
    /// How many of them had no result, or one that says the tool failed.
    pub(crate) n_failed: u64,
    /// Half of the calls were at most this long, in microseconds.
    pub(crate) p50_us: u64,
    /// Nine of ten were.
    pub(crate) p90_us: u64,
    /// Ninety-nine of a hundred were.
    pub(crate) p99_us: u64,
    /// The longest.
    pub(crate) max_us: u64,
}

impl Latency {
    /// Of at least one call.
    pub(crate) fn of(
        server: String,
        tool: Option<String>,
        mut durations: Vec<u64>,
        n_failed: u64,
    ) -> Self {
        durations.sort_unstable();
        let at = |percent: usize| percentile(&durations, percent);
        let n_calls = durations.len() as u64;
        let (p50_us, p90_us, p99_us, max_us) = (at(50), at(90), at(99), at(100));
        Self { server, tool, n_calls, n_failed, p50_us, p90_us, p99_us, max_us }
    }
}

/// The nearest rank: the smallest value that so many percent do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

// The database itself: one table, opened for writing by one thread and for reading by whoever asks.
//
// **Invariant:** a file that is no database is moved aside and never overwritten.

/// How long the writer waits for others. It tries again anyway.
const WRITE_PATIENCE: Duration = Duration::from_millis(200);
/// How long a reader waits for others.
const READ_PATIENCE: Duration = Duration::from_secs(1);
/// How many of the latest calls percentiles are made of.
const SAMPLE: u32 = 20_000;
/// The log is small, so that little room is enough to go on after a disk was full.
const LOG_PAGES: u32 = 64;
const LOG_BYTES: u32 = 256 << 10;
/// Rows that are forgotten in one step, so that no step takes long.
const STEP: u64 = 5_000;

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

#[derive(Debug)]
struct Db {
    connection: Connection,
}

impl Db {
    /// Opens the database for writing, or makes one.
    fn open(path: &Path) -> Result<Self, rusqlite::Error> {
        match Self::try_open(path) {
            Err(error) if is_damaged(&error) => {
                let aside = path.with_extension("db.damaged");
                tracing::error!(%error, aside = %aside.display(), "the history is damaged and begins anew");
                let moved = fs::rename(path, &aside);
                moved.map_err(|_unmoved| error)?;
                Self::try_open(path)
            }
            other => other,
        }
    }

    fn try_open(path: &Path) -> Result<Self, rusqlite::Error> {
        make_private(path);
        let connection = Connection::open(path)?;
        connection.busy_timeout(WRITE_PATIENCE)?;
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // With a log, a power cut loses the last calls and damages nothing.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection })
    }

    /// Opens the database for reading. `None` if there is none yet.
    fn read(path: &Path) -> Result<Option<Self>, rusqlite::Error> {
        if !path.exists() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(READ_PATIENCE)?;
        let query = "select count(*) from sqlite_schema where name = 'calls'";
        let n: i64 = connection.query_row(query, [], |row| row.get(0))?;
        Ok((n > 0).then_some(Self { connection }))
    }

    /// Adds calls, all or none. One that is there already is left as it is.
    fn add(&mut self, records: &[CallRecord]) -> Result<(), rusqlite::Error> {
        let step = self.connection.transaction()?;
        {
            let mut insert = step.prepare_cached(
                "insert or ignore into calls (id, time_ms, agent, server, tool, outcome, delivery, \
                 duration_us, argument_bytes, result_bytes) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            for it in records {
                insert.execute(params![
                    it.id,
                    signed(it.time_ms),
                    it.agent,
                    it.server,
                    it.tool,
                    it.outcome,
                    it.delivery,
                    signed(it.duration_us),
                    signed(it.argument_bytes),
                    signed(it.result_bytes),
                ])?;
            }
        }
        step.commit()
    }

    /// Forgets the oldest calls as long as there are too many, or they take too much room.
    fn forget_oldest(&self, options: &HistoryOptions) -> Result<(), rusqlite::Error> {
        let n_over = self.n_calls()?.saturating_sub(options.max_calls);
        let n_too_large = if self.n_bytes()? > options.max_bytes { STEP } else { 0 };
        let n = n_over.max(n_too_large);
        if n == 0 {
            return Ok(());
        }
        let oldest =
            "delete from calls where place in (select place from calls order by place limit ?)";
        self.connection.execute(oldest, [signed(n)])?;
        self.connection.execute_batch("pragma incremental_vacuum;")
    }

    fn ask(&self, question: &Question) -> Result<Answers, rusqlite::Error> {
        let query = format!(
            "select {COLUMNS} from calls where place < ?1 and (?2 is null or server = ?2) \
             and (?3 is null or tool = ?3) and (?4 is null or outcome = ?4) and time_ms >= ?5 \
             and (not ?7 or outcome <> 'done') order by place desc limit ?6"
        );
        let mut statement = self.connection.prepare(&query)?;
        let rows = statement.query_map(
            params![
                question.before.unwrap_or(i64::MAX),
                question.server,
                question.tool,
                question.outcome,
                signed(question.since_ms.unwrap_or_default()),
                // One more, to know whether there is another page.
                i64::from(question.limit) + 1,
                question.is_unsuccessful,
            ],
            |row| Ok((row.get::<_, i64>(0)?, record(row)?)),
        )?;
        let mut found: Vec<(i64, CallRecord)> = rows.collect::<Result<_, _>>()?;
        let has_more = found.len() > question.limit as usize;
        found.truncate(question.limit as usize);
        let next = found.last().filter(|_| has_more).map(|it| it.0);
        Ok(Answers { calls: found.into_iter().map(|it| it.1).collect(), next })
    }

    fn get(&self, id: &str) -> Result<Option<CallRecord>, rusqlite::Error> {
        let query = format!("select {COLUMNS} from calls where id = ?");
        self.connection.query_row(&query, [id], record).optional()
    }

    fn latencies(&self) -> Result<Vec<Latency>, rusqlite::Error> {
        let query =
            "select server, tool, outcome, duration_us from calls order by place desc limit ?";
        let mut statement = self.connection.prepare(query)?;
        let mut groups: BTreeMap<(String, Option<String>), (Vec<u64>, u64)> = BTreeMap::new();
        let mut rows = statement.query([SAMPLE])?;
        while let Some(row) = rows.next()? {
            let (server, tool): (String, String) = (row.get(0)?, row.get(1)?);
            let failed = u64::from(row.get_ref(2)?.as_str()? != "done");
            let duration = unsigned(row.get(3)?);
            for key in [(server.clone(), Some(tool)), (server, None)] {
                let (durations, n_failed) = groups.entry(key).or_default();
                durations.push(duration);
                *n_failed += failed;
            }
        }
        let latency = |((server, tool), (durations, n_failed))| {
            Latency::of(server, tool, durations, n_failed)
        };
        Ok(groups.into_iter().map(latency).collect())
    }

    fn n_calls(&self) -> Result<u64, rusqlite::Error> {
        // Places only grow and only the oldest go, so that nothing has to be counted.
        let query = "select coalesce(max(place) - min(place) + 1, 0) from calls";
        self.connection.query_row(query, [], |row| row.get(0)).map(unsigned)
    }

    fn n_bytes(&self) -> Result<u64, rusqlite::Error> {
        let query = "select (page_count - freelist_count) * page_size \
                     from pragma_page_count, pragma_freelist_count, pragma_page_size";
        self.connection.query_row(query, [], |row| row.get(0)).map(unsigned)
    }
}

fn record(row: &Row<'_>) -> Result<CallRecord, rusqlite::Error> {
    Ok(CallRecord {
        id: row.get(1)?,
        time_ms: unsigned(row.get(2)?),
        agent: row.get(3)?,
        server: row.get(4)?,
        tool: row.get(5)?,
        outcome: row.get::<_, String>(6)?.into(),
        delivery: row.get::<_, String>(7)?.into(),
        duration_us: unsigned(row.get(8)?),
        argument_bytes: unsigned(row.get(9)?),
        result_bytes: unsigned(row.get(10)?),
    })
}

fn is_damaged(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// The database, its log and its index of the log take their mode from this file.
fn make_private(path: &Path) {
    let mut options = OpenOptions::new();
    let made = options.write(true).create(true).truncate(false).mode(0o600).open(path);
    let closed = made.and_then(|it| it.set_permissions(Permissions::from_mode(0o600)));
    if let Err(error) = closed {
        // Opening it will fail in the same way, and say so.
        tracing::debug!(%error, "the history cannot be made private");
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests;
