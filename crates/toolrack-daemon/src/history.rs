//! Which calls there were, in a small database beside the config.
//!
//! One thread of its own writes, fed through a queue with a bound. A disk that is full or a database that somebody
//! else holds makes that thread wait and try again; whoever makes calls never waits for it, and what does not fit
//! into the queue meanwhile is counted as dropped.
//!
//! **Invariant:** nothing here fails or slows a call.

mod call_record;
mod db;
mod query;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use toolrack_service::Home;

use crate::error::DaemonError;
pub use call_record::CallRecord;
use db::Db;
pub use query::Question;
pub(crate) use query::{Answers, Latency};

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

#[cfg(test)]
mod tests;
