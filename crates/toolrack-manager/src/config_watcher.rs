//! Config file watcher: applies changes of a config file to the manager.
//!
//! Watches the directory and not the file, because editors replace files, and a deleted file may come back.
//!
//! **Invariant:** an invalid file changes nothing, and is reported once per change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolrack_config::McpServerConfig;
use toolrack_platform::read_at_most;

use crate::error::ManagerError;
use crate::events::ManagerEvent;
use crate::manager::Shared;

/// Debounce: the file is read when it has not changed for this long.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Maximum delay after the first change, for a file that keeps changing.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Parses the text of a config file into servers, or returns all its errors.
pub type ParseServers = dyn Fn(&Path, &str) -> Result<Vec<McpServerConfig>, String> + Send + Sync;

/// A watched file. Dropping it ends the watch, and leaves the servers as they are.
#[derive(Debug)]
pub struct FileWatch {
    _stop: DropGuard,
}

/// Starts to watch a file. `servers` are those of the caller's last reading.
pub(crate) fn start(
    shared: &Arc<Shared>,
    path: PathBuf,
    servers: Vec<McpServerConfig>,
    parse: Arc<ParseServers>,
) -> io::Result<FileWatch> {
    // The process may change its working directory while the watch runs.
    let path = std::path::absolute(path)?;
    let changes = Arc::new(Notify::new());
    // Also the target of a symlink: configs are often links into a dotfiles directory.
    let target = std::fs::canonicalize(&path).ok().filter(|target| *target != path);
    let files = std::iter::once(path.clone()).chain(target).collect();
    let watcher = watch(files, &changes).map_err(io::Error::other)?;
    // The file may have changed between the caller's reading and the start of the watch.
    changes.notify_one();
    let stop = shared.stop.child_token();
    let task = WatchTask {
        shared: Arc::clone(shared),
        path,
        parse,
        servers,
        last_text: None,
        _watcher: watcher,
    };
    shared.tracker.spawn(task.run(changes, stop.clone()));
    Ok(FileWatch { _stop: stop.drop_guard() })
}

/// Notifies `changes` on every event of one of these files.
fn watch(files: Vec<PathBuf>, changes: &Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let changes = Arc::clone(changes);
    let dirs: Vec<PathBuf> =
        files.iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
    let is_watched =
        move |path: &PathBuf| files.iter().any(|file| file.file_name() == path.file_name());
    let on_event = move |event: notify::Result<notify::Event>| {
        // An error may hide a change, so it counts as one: an extra read is harmless.
        let is_change = event.map_or(true, |event| {
            let is_relevant = event.need_rescan() || event.paths.iter().any(&is_watched);
            // Our own reads cause access events.
            is_relevant && !event.kind.is_access()
        });
        if is_change {
            changes.notify_one();
        }
    };
    let mut watcher = notify::recommended_watcher(on_event)?;
    for dir in dirs {
        watcher.watch(&dir, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

struct WatchTask {
    shared: Arc<Shared>,
    path: PathBuf,
    parse: Arc<ParseServers>,
    servers: Vec<McpServerConfig>,
    /// The text of the last reading, so that touching the file has no effect.
    last_text: Option<String>,
    /// Stops watching when it is dropped.
    _watcher: RecommendedWatcher,
}

impl WatchTask {
    async fn run(mut self, changes: Arc<Notify>, stop: CancellationToken) {
        while stop.run_until_cancelled(next_change(&changes)).await.is_some() {
            self.reload().await;
        }
    }

    async fn reload(&mut self) {
        let path = self.path.clone();
        let text = tokio::task::spawn_blocking(move || read_at_most(&path, MAX_FILE_BYTES)).await;
        let text = match text.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("{}: {error}", self.path.display());
                // An editor may be replacing a missing file, so it is reported only once.
                if self.last_text.take().is_some() || error.kind() != io::ErrorKind::NotFound {
                    self.reject(message);
                }
                return;
            }
        };
        // Editors and sync tools write files without a change, and an invalid file
        // is reported once.
        if self.last_text.as_ref() == Some(&text) {
            return;
        }
        let parsed = (self.parse)(&self.path, &text);
        // Stored for an invalid file too, or each touch would report the same errors again.
        self.last_text = Some(text);
        match parsed {
            Ok(servers) => self.apply(servers).await,
            Err(message) => self.reject(message),
        }
    }

    async fn apply(&mut self, servers: Vec<McpServerConfig>) {
        if servers == self.servers {
            return;
        }
        match self.shared.reconcile(&self.servers, &servers).await {
            // Only after success: the next change is compared with the servers that the
            // manager really has.
            Ok(_plan) => self.servers = servers,
            Err(ManagerError::Closed) => {}
            Err(error) => self.reject(error.to_string()),
        }
    }

    fn reject(&self, message: String) {
        tracing::warn!("config change rejected, keeping the last valid config: {message}");
        self.shared.events.emit(|| ManagerEvent::ConfigRejected { message });
    }
}

/// Waits for a change, and then until changes have stopped for [`DEBOUNCE`], at most for [`MAX_DELAY`].
async fn next_change(changes: &Notify) {
    changes.notified().await;
    let quiet = async { while timeout(DEBOUNCE, changes.notified()).await.is_ok() {} };
    timeout(MAX_DELAY, quiet).await.unwrap_or_default();
}
