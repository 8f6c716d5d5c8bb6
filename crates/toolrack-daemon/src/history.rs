//! Call history in `SQLite`, beside the config file.
//!
//! A thread of its own writes to the database, fed through a bounded queue. When the disk is full or the database is
//! locked, the thread waits and retries. Callers never wait for it; records that do not fit into the queue are
//! dropped and counted.
//!
//! **Invariant:** the history never fails or slows a call.
//!
//! **Invariant:** a damaged file is moved aside, a file of another version is left alone, and neither is overwritten.
//!
//! **Invariant:** every call is written or counted as dropped.

mod damage;
mod database;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolrack_platform::unix_time_ms;
use toolrack_service::Home;
use utoipa::{IntoParams, ToSchema};

use self::damage::{FailureKind, failure_kind, last_moved_ms, move_aside};
pub(crate) use self::database::{Db, DbError};
use self::database::{IntegrityCheck, fallback_path};
use crate::daemon::DaemonError;
use crate::instance_lock::file_error;
use crate::openapi::Outcome;

/// Capacity of the queue to the writer. When it is full, new records are dropped and counted.
const QUEUE_CAPACITY: usize = 4096;
/// Maximum number of records per transaction.
const BATCH_SIZE: usize = 512;
/// Delay before a failed batch is written again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// After a damaged file was moved aside, another one is moved no sooner, also by another daemon: a disk that damages
/// every file must not make the daemon replace the kept files by empty ones.
const MOVE_ASIDE_INTERVAL: Duration = Duration::from_mins(1);

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
    writer: Mutex<Option<(SyncSender<Message>, JoinHandle<()>)>>,
    pub(crate) stats: Arc<HistoryStats>,
}

/// A message to the writer.
#[derive(Debug)]
enum Message {
    Record(Box<CallRecord>),
    /// A reader has found damage.
    CheckIntegrity,
}

/// Counters of the writer.
#[derive(Debug, Default)]
pub(crate) struct HistoryStats {
    pub(crate) n_written: AtomicU64,
    pub(crate) n_dropped: AtomicU64,
    /// Failed write attempts, each of which was retried.
    pub(crate) n_failures: AtomicU64,
    /// Damaged files that were moved aside.
    pub(crate) n_damaged: AtomicU64,
    messages: Mutex<HistoryMessages>,
    is_closing: AtomicBool,
}

/// What people must know about the history.
#[derive(Debug, Default)]
struct HistoryMessages {
    /// Why calls cannot be written now.
    failure: Option<String>,
    /// What happened to the file since the daemon started.
    notice: Option<String>,
}

/// State of the call history.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryStatus {
    /// Calls written since the daemon started.
    n_written: u64,
    /// Calls that are lost, because they could not be written.
    n_dropped: u64,
    /// Damaged files that were moved aside.
    n_damaged: u64,
    /// Why calls cannot be written at present. They wait, and the daemon retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// What happened to the file: it was damaged and moved aside, or belongs to another version.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

impl HistoryStats {
    pub(crate) fn status(&self) -> HistoryStatus {
        let messages = self.messages.lock();
        let [n_written, n_dropped, n_damaged] = [&self.n_written, &self.n_dropped, &self.n_damaged]
            .map(|counter| counter.load(Ordering::Relaxed));
        let (failure, notice) = (messages.failure.clone(), messages.notice.clone());
        HistoryStatus { n_written, n_dropped, n_damaged, failure, notice }
    }
}

impl History {
    /// Starts the writer thread, which checks the database first. An unusable database is not an error here: the
    /// writer retries. `warn` is called with what people should know.
    pub(crate) fn open(
        path: &Path,
        options: HistoryOptions,
        warn: impl Fn(String) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE_CAPACITY);
        let stats = Arc::new(HistoryStats::default());
        let writer = Writer {
            path: path.to_owned(),
            is_fallback: false,
            options,
            db: None,
            check: Some(IntegrityCheck::Quick),
            stats: Arc::clone(&stats),
            warn: Box::new(warn),
        };
        let name = "toolrack-history".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || writer.run(&messages))?;
        Ok(Self { path: path.to_owned(), writer: Mutex::new(Some((queue, thread))), stats })
    }

    /// Queues a call for writing. Never waits.
    pub(crate) fn record(&self, record: CallRecord) {
        // `try_send`, so that a slow disk never holds up the recorder, which serves all calls.
        if !self.try_send(Message::Record(Box::new(record))) {
            self.stats.n_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn try_send(&self, message: Message) -> bool {
        let writer = self.writer.lock();
        writer.as_ref().is_some_and(|(queue, _)| queue.try_send(message).is_ok())
    }

    /// Runs one query. Blocking.
    pub(crate) fn read<T: Default>(
        &self,
        query: impl FnOnce(&Db) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DbError> {
        let read = Db::read(&self.path, query);
        if read.as_ref().is_err_and(|error| failure_kind(error) == FailureKind::Damaged)
            && !self.try_send(Message::CheckIntegrity)
        {
            tracing::debug!("the history writer is too busy for an integrity check");
        }
        read
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
    /// Whether `path` stands in for a file with another schema.
    is_fallback: bool,
    options: HistoryOptions,
    db: Option<Db>,
    /// Check of the file when it is opened next.
    check: Option<IntegrityCheck>,
    stats: Arc<HistoryStats>,
    warn: Box<dyn Fn(String) + Send>,
}

/// How the writer goes on after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recovery {
    /// With another file, at once.
    NewFile,
    /// After a delay.
    Retry,
    /// Without these calls.
    Drop,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>) {
        // At once and not with the first call: readers need a usable file, and people want to know.
        let mut batch = Vec::new();
        self.write_with_recovery(&batch);
        while let Ok(first) = messages.recv() {
            self.receive(first, &mut batch);
            loop {
                for message in messages.try_iter().take(BATCH_SIZE.saturating_sub(batch.len())) {
                    self.receive(message, &mut batch);
                }
                match self.write_with_recovery(&batch) {
                    None => break,
                    Some(Recovery::Drop) => {
                        self.drop_rejected(&mut batch);
                        continue;
                    }
                    Some(Recovery::NewFile | Recovery::Retry) => {}
                }
                if self.stats.is_closing.load(Ordering::Acquire) {
                    // A database that fails now must not delay the shutdown.
                    let is_record = |message: &Message| matches!(message, Message::Record(_));
                    let n_queued = messages.try_iter().filter(is_record).count();
                    self.count_dropped((batch.len() + n_queued) as u64);
                    return;
                }
                thread::sleep(RETRY_DELAY);
            }
            self.stats.n_written.fetch_add(batch.len() as u64, Ordering::Relaxed);
            batch.clear();
        }
    }

    fn receive(&mut self, message: Message, batch: &mut Vec<CallRecord>) {
        match message {
            Message::Record(record) => batch.push(*record),
            Message::CheckIntegrity => {
                self.check = Some(IntegrityCheck::Full);
                self.db = None;
            }
        }
    }

    /// Removes the calls that cannot be stored from a batch with at least one. Those that can are stored, and ignored
    /// when the batch is written again.
    fn drop_rejected(&mut self, batch: &mut Vec<CallRecord>) {
        let n_calls = batch.len();
        batch.retain(|call| {
            let written = self.write_with_recovery(std::slice::from_ref(call));
            written != Some(Recovery::Drop)
        });
        if batch.len() == n_calls {
            // Each one alone can be stored. The batch must not hold up all that follow.
            batch.clear();
        }
        self.count_dropped((n_calls - batch.len()) as u64);
    }

    fn count_dropped(&self, n_calls: u64) {
        self.stats.n_dropped.fetch_add(n_calls, Ordering::Relaxed);
        if n_calls > 0 {
            tracing::warn!(n_calls, path = %self.path.display(), "calls are lost: they could not be written to the history");
        }
    }

    /// Writes a batch; after a failure that another file cures, once more. `None` if it is written.
    fn write_with_recovery(&mut self, batch: &[CallRecord]) -> Option<Recovery> {
        for _attempt in 0..2 {
            match self.write(batch) {
                Ok(()) => {
                    self.stats.messages.lock().failure = None;
                    return None;
                }
                Err(error) => match self.recover(&error) {
                    Recovery::NewFile => {}
                    recovery => return Some(recovery),
                },
            }
        }
        Some(Recovery::Retry)
    }

    fn write(&mut self, batch: &[CallRecord]) -> Result<(), DbError> {
        if self.db.as_ref().is_some_and(|db| !db.is_at(&self.path)) {
            tracing::warn!(path = %self.path.display(), "the call history was removed or replaced, opening it again");
            self.db = None;
            self.check = Some(IntegrityCheck::Quick);
        }
        let mut db = match self.db.take() {
            Some(db) => db,
            // After an error it is reopened, in case the file was removed or is damaged.
            None => Db::open(&self.path, self.check)?,
        };
        self.check = None;
        if !batch.is_empty() {
            db.insert(batch)?;
            db.delete_oldest(&self.options)?;
        }
        self.db = Some(db);
        Ok(())
    }

    fn recover(&mut self, error: &DbError) -> Recovery {
        self.stats.n_failures.fetch_add(1, Ordering::Relaxed);
        let now_ms = unix_time_ms();
        match failure_kind(error) {
            FailureKind::Damaged if may_move_aside(last_moved_ms(&self.path), now_ms) => {
                match move_aside(&self.path, now_ms) {
                    Ok(aside) => {
                        self.stats.n_damaged.fetch_add(1, Ordering::Relaxed);
                        self.notify(format!(
                            "the call history was damaged ({error}); it is kept as `{}`, and a new one was started",
                            aside.display()
                        ));
                        Recovery::NewFile
                    }
                    Err(rename_error) => {
                        self.fail(&format!("{error}, and cannot be moved aside: {rename_error}"))
                    }
                }
            }
            FailureKind::OtherSchema if !self.is_fallback => {
                let fallback = fallback_path(&self.path);
                self.notify(format!(
                    "`{}` is not changed: {error}; calls are recorded in `{}`",
                    self.path.display(),
                    fallback.display()
                ));
                (self.path, self.is_fallback) = (fallback, true);
                self.check = Some(IntegrityCheck::Quick);
                Recovery::NewFile
            }
            FailureKind::Unreadable => {
                self.check = Some(IntegrityCheck::Full);
                self.fail(&error.to_string())
            }
            FailureKind::Rejected => {
                tracing::warn!(%error, "calls are not recorded: their values cannot be stored");
                Recovery::Drop
            }
            FailureKind::Damaged | FailureKind::OtherSchema | FailureKind::Temporary => {
                self.fail(&error.to_string())
            }
        }
    }

    /// Notes a failure that lasts. It is logged once, not for every retry.
    fn fail(&self, failure: &str) -> Recovery {
        let failure = format!("cannot write the call history, retrying: {failure}");
        let mut messages = self.stats.messages.lock();
        if messages.failure.as_ref() != Some(&failure) {
            tracing::warn!(path = %self.path.display(), "{failure}");
            (self.warn)(failure.clone());
            messages.failure = Some(failure);
        }
        Recovery::Retry
    }

    fn notify(&self, notice: String) {
        tracing::error!("{notice}");
        (self.warn)(notice.clone());
        self.stats.messages.lock().notice = Some(notice);
    }
}

/// Whether a damaged file is moved aside, if the last one was moved at this time.
fn may_move_aside(last_ms: Option<u64>, now_ms: u64) -> bool {
    // The difference, because the clock may have been set back since.
    last_ms.is_none_or(|last_ms| {
        u128::from(now_ms.abs_diff(last_ms)) > MOVE_ASIDE_INTERVAL.as_millis()
    })
}

#[cfg(test)]
mod tests;
