//! The database itself: one table, opened for writing by one thread and for reading by whoever asks.
//!
//! **Invariant:** a file that is no database is moved aside and never overwritten.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, params};

use super::HistoryOptions;
use super::call_record::CallRecord;
use super::query::{Answers, Latency, Question};

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
pub(super) struct Db {
    connection: Connection,
}

impl Db {
    /// Opens the database for writing, or makes one.
    pub(super) fn open(path: &Path) -> Result<Self, rusqlite::Error> {
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
    pub(super) fn read(path: &Path) -> Result<Option<Self>, rusqlite::Error> {
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
    pub(super) fn add(&mut self, records: &[CallRecord]) -> Result<(), rusqlite::Error> {
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
    pub(super) fn forget_oldest(&self, options: &HistoryOptions) -> Result<(), rusqlite::Error> {
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

    pub(super) fn ask(&self, question: &Question) -> Result<Answers, rusqlite::Error> {
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

    pub(super) fn get(&self, id: &str) -> Result<Option<CallRecord>, rusqlite::Error> {
        let query = format!("select {COLUMNS} from calls where id = ?");
        self.connection.query_row(&query, [id], record).optional()
    }

    pub(super) fn latencies(&self) -> Result<Vec<Latency>, rusqlite::Error> {
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
