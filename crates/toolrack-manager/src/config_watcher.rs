//! Following a config file: when it changes, the servers change with it.
//!
//! The directory is watched and not the file, because editors replace files, and a file may come back after it
//! was deleted.
//!
//! **Invariant:** a file that cannot be used changes nothing, and says so once for each change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use toolrack_config::McpServerConfig;

use crate::error::RackError;
use crate::events::RackEvent;
use crate::manager::{McpManager, Shared};

/// A file is read when it has been quiet for so long.
const QUIET: Duration = Duration::from_millis(100);
/// And at the latest so long after its first change, even if it is never quiet.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much of a file is read at most.
const FILE_LIMIT_BYTES: u64 = 16 << 20;

/// Makes servers of the text of a file, or says everything that is wrong with it.
pub type ReadServers = dyn Fn(&Path, &str) -> Result<Vec<McpServerConfig>, String> + Send + Sync;

/// A file that is being followed. Dropping it ends that, and leaves the servers as they are.
#[derive(Debug)]
pub struct FileWatch {
    stop: CancellationToken,
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl McpManager {
    /// Follows a config file from now on. `servers` are those that the file said last, and `read` makes servers
    /// of its text. Each change is put into effect as [`reconcile`](Self::reconcile) does; what became of it is
    /// told with [`RackEvent::ConfigApplied`] or [`RackEvent::ConfigRejected`].
    pub fn watch_file(
        &self,
        path: impl Into<PathBuf>,
        servers: Vec<McpServerConfig>,
        read: Arc<ReadServers>,
    ) -> io::Result<FileWatch> {
        let path = std::path::absolute(path.into())?;
        let changes = Arc::new(Notify::new());
        let watcher = watch(&places(&path), &changes).map_err(io::Error::other)?;
        // What was written between the caller's reading and this moment is looked at once.
        changes.notify_one();
        let stop = self.shared.stop.child_token();
        let follower = Follower {
            shared: Arc::clone(&self.shared),
            path,
            read,
            servers,
            seen: None,
            _watcher: watcher,
        };
        self.shared.tracker.spawn(follower.run(changes, stop.clone()));
        Ok(FileWatch { stop })
    }
}

/// Where the file is, and where it really is: configs are often links to a folder of dotfiles.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut places = vec![path.to_owned()];
    places.extend(std::fs::canonicalize(path).ok().filter(|it| it != path));
    places
}

/// Rings `changes` whenever something happens to one of these files.
fn watch(files: &[PathBuf], changes: &Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let (bell, names) = (Arc::clone(changes), files.to_vec());
    let is_named = move |it: &PathBuf| names.iter().any(|file| file.file_name() == it.file_name());
    let hear = move |event: notify::Result<notify::Event>| {
        // An error may hide a change, so it counts as one. Looking once more harms nobody.
        let is_ours = event.map_or(true, |event| {
            let is_meant = event.need_rescan() || event.paths.iter().any(&is_named);
            is_meant && !event.kind.is_access()
        });
        if is_ours {
            bell.notify_one();
        }
    };
    let mut watcher = notify::recommended_watcher(hear)?;
    for dir in files.iter().filter_map(|file| file.parent()) {
        watcher.watch(dir, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

struct Follower {
    shared: Arc<Shared>,
    path: PathBuf,
    read: Arc<ReadServers>,
    servers: Vec<McpServerConfig>,
    /// The text that was read last, so that touching a file changes nothing.
    seen: Option<String>,
    /// Ends the watching when it is dropped.
    _watcher: RecommendedWatcher,
}

impl Follower {
    async fn run(mut self, changes: Arc<Notify>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = changes.notified() => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = calm(&changes) => {}
            }
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let path = self.path.clone();
        let text = tokio::task::spawn_blocking(move || read_text(&path)).await;
        let text = match text.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("{}: {error}", self.path.display());
                // A file that is gone may be on its way back; it is told once.
                if self.seen.take().is_some() || error.kind() != io::ErrorKind::NotFound {
                    self.reject(message);
                }
                return;
            }
        };
        if self.seen.as_ref() == Some(&text) {
            return;
        }
        let read = (self.read)(&self.path, &text);
        self.seen = Some(text);
        match read {
            Ok(servers) => self.apply(servers).await,
            Err(message) => self.reject(message),
        }
    }

    async fn apply(&mut self, servers: Vec<McpServerConfig>) {
        if servers == self.servers {
            return;
        }
        match self.shared.reconcile(&self.servers, &servers).await {
            Ok(_plan) => self.servers = servers,
            Err(RackError::Closed) => {}
            Err(error) => self.reject(error.to_string()),
        }
    }

    fn reject(&self, message: String) {
        tracing::warn!("a changed config cannot be used, and the last good one stays: {message}");
        self.shared.bulletin.tell(|| RackEvent::ConfigRejected { message });
    }
}

/// Waits until changes have stopped for a moment.
async fn calm(changes: &Notify) {
    let latest = Instant::now() + PATIENCE;
    loop {
        let quiet = (Instant::now() + QUIET).min(latest);
        if timeout_at(quiet, changes.notified()).await.is_err() {
            return;
        }
        if Instant::now() >= latest {
            return sleep_until(latest).await;
        }
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let bytes = crate::atomic_file::read(path, FILE_LIMIT_BYTES)?;
    String::from_utf8(bytes).map_err(|_invalid| io::ErrorKind::InvalidData.into())
}
