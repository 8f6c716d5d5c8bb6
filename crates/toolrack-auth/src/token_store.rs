//! Token store: stored credentials in files or in memory.
//!
//! **Invariant:** only the holder of a server's lock writes its credentials, and a refresh holds the lock since
//! before it read them.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::time::{Instant, sleep, timeout};
use toolrack_platform::{create_private_dir, private_options, read_at_most, remove, replace};
use toolrack_transport::{AuthError, BoxFuture};
use url::Url;

use crate::error::{login_needed, unreachable};
use crate::secret::Secret;
use crate::stored_credentials::StoredCredentials;

/// Store of credentials, one entry per server.
pub trait TokenStore: Send + Sync + fmt::Debug {
    /// Reads the credentials of `server`.
    fn load<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredCredentials>, StoreError>>;

    /// Locks the entry of `server` against all tasks and processes. The wait is bounded.
    fn lock<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<StoreLock, StoreError>>;

    /// Replaces or removes the credentials of the locked server. Atomic: after a crash or power failure, either the old
    /// or the new ones are there.
    fn save<'a>(
        &'a self,
        lock: &'a StoreLock,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Exclusive access to the entry of one server. Dropping it unlocks.
#[derive(Debug)]
pub struct StoreLock {
    server: String,
    _guard: Box<dyn fmt::Debug + Send + Sync>,
}

impl StoreLock {
    /// A lock that lasts until `guard` is dropped.
    pub fn new(server: &str, guard: impl fmt::Debug + Send + Sync + 'static) -> Self {
        Self { server: server.to_owned(), _guard: Box::new(guard) }
    }

    /// The locked server.
    pub fn server(&self) -> &str {
        &self.server
    }
}

/// Why a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process or task does not release the lock.
    #[error("another process holds the lock on this login")]
    Busy,
    /// The files cannot be used.
    #[error("the stored login cannot be used")]
    Io(#[from] io::Error),
}

impl From<StoreError> for AuthError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy => unreachable(error),
            StoreError::Io(ref cause) => login_needed(format_args!("{error}: {cause}")),
        }
    }
}

/// How long to wait for the lock. Its holder sends at most a few requests of ten seconds each.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);
/// Shortest and longest delay between two attempts to lock. `flock` has no timeout, and a blocking call would
/// occupy a thread of the runtime.
const LOCK_POLL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Credentials in files, one per server, shared by all processes of the user.
///
/// **Invariant:** a file is replaced atomically and readable by its owner only; it is written only under an
/// advisory lock that all tasks and processes take, and that the kernel releases when its holder dies.
#[derive(Debug, Clone)]
pub struct FileTokenStore {
    dir: PathBuf,
    lock_timeout: Duration,
    /// Set by [`FileTokenStore::for_server`]: the name of the only file, and the store of earlier versions.
    only: Option<(String, Box<FileTokenStore>)>,
}

impl FileTokenStore {
    /// Stores credentials in `dir`, which is created, private to its owner, when first needed.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), lock_timeout: LOCK_TIMEOUT, only: None }
    }

    /// Stores the credentials of the server with this id in `dir`, in the file `mcp_{id}.oauth`. Credentials that
    /// [`FileTokenStore::new`] stored in `old_dir` stay usable; the next save moves them.
    pub fn for_server(
        dir: impl Into<PathBuf>,
        id: impl fmt::Display,
        old_dir: impl Into<PathBuf>,
    ) -> Self {
        let only = (format!("mcp_{id}.oauth"), Box::new(Self::new(old_dir)));
        Self { only: Some(only), ..Self::new(dir) }
    }

    /// File of a server. The host is for readers, the fingerprint makes it unique.
    fn path(&self, server: &str) -> PathBuf {
        if let Some((name, _)) = &self.only {
            return self.dir.join(name);
        }
        let url = Url::parse(server).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let safe = |character: char| {
            if character.is_ascii_alphanumeric() || character == '.' { character } else { '-' }
        };
        let host: String = host.chars().map(safe).take(60).collect();
        self.dir.join(format!("{}_{}.json", host.trim_matches('.'), fingerprint(server)))
    }

    /// Opens the lock file of a server with an exclusive `flock`. Closing it unlocks.
    async fn acquire_lock(&self, server: &str) -> Result<File, StoreError> {
        create_private_dir(&self.dir)?;
        // `create` leaves an existing directory as it is. Fail closed: no token goes where others may look.
        if fs::metadata(&self.dir)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o700))?;
        }
        // Opened anew for every lock: `flock` belongs to the open file, so it excludes the tasks of this process too.
        // Never removed: a process that still has the removed file open would hold a lock on another file than
        // the rest.
        let file = private_options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(server).with_extension("lock"))?;
        let deadline = Instant::now() + self.lock_timeout;
        let (mut pause, longest) = LOCK_POLL;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            if Instant::now() >= deadline {
                return Err(StoreError::Busy);
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
}

impl TokenStore for FileTokenStore {
    fn load<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async move {
            let Some((_, old)) = &self.only else { return Ok(read(&self.path(server))?) };
            let find = || {
                // A login is for one URL. The config of a server can change, its id does not.
                let is_own = |found: &StoredCredentials| found.server.as_deref() == Some(server);
                let found = read(&self.path(server))?.filter(is_own);
                io::Result::Ok(found.map(|found| StoredCredentials { server: None, ..found }))
            };
            match find()? {
                Some(found) => Ok(Some(found)),
                // The new file once more: another process may have moved the login in between.
                None => Ok(read(&old.path(server))?.map_or_else(find, |found| Ok(Some(found)))?),
            }
        })
    }

    fn lock<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<StoreLock, StoreError>> {
        Box::pin(async move {
            let own = self.acquire_lock(server).await?;
            let old = match &self.only {
                // Servers with one URL had one login: only the first may refresh and move it.
                Some((_, old)) if old.path(server).exists() => {
                    Some(old.acquire_lock(server).await?)
                }
                _ => None,
            };
            Ok(StoreLock::new(server, (own, old)))
        })
    }

    fn save<'a>(
        &'a self,
        lock: &'a StoreLock,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let path = self.path(&lock.server);
        let old_path = self.only.as_ref().map(|(_, old)| old.path(&lock.server));
        let server = self.only.is_some().then(|| lock.server.clone());
        let text = credentials
            .map(|credentials| StoredCredentials { server, ..credentials.clone() }.encode());
        Box::pin(async move {
            // `fsync` blocks, so it must not run on a thread of the runtime.
            let saving = tokio::task::spawn_blocking(move || {
                match text {
                    Some(text) => replace(&path, text.reveal().as_bytes())?,
                    None => drop(remove(&path)?),
                }
                // Last: a crash in between leaves both files, and the new one counts.
                old_path.map_or(Ok(()), |old_path| remove(&old_path).map(drop))
            });
            Ok(saving.await.map_err(io::Error::other)??)
        })
    }
}

/// Larger than any login.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A malformed file counts as absent: the next login replaces it.
fn read(path: &Path) -> io::Result<Option<StoredCredentials>> {
    let text = match read_at_most(path, MAX_FILE_BYTES) {
        Ok(text) => Secret::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let credentials = StoredCredentials::decode(text.reveal());
    if credentials.is_none() {
        tracing::warn!(path = %path.display(), "ignoring an unreadable stored login");
    }
    Ok(credentials)
}

/// Short hash for file names.
fn fingerprint(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let start: [u8; 8] = hash.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(start))
}

/// Credentials in memory, for one-shot use and tests.
#[derive(Debug, Clone, Default)]
pub struct MemoryTokenStore {
    servers: Arc<Mutex<HashMap<String, Entry>>>,
}

#[derive(Debug, Default)]
struct Entry {
    credentials: Option<StoredCredentials>,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl TokenStore for MemoryTokenStore {
    fn load<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async move {
            let servers = self.servers.lock();
            Ok(servers.get(server).and_then(|entry| entry.credentials.clone()))
        })
    }

    fn lock<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<StoreLock, StoreError>> {
        Box::pin(async move {
            let lock = Arc::clone(&self.servers.lock().entry(server.to_owned()).or_default().lock);
            let guard = timeout(LOCK_TIMEOUT, lock.lock_owned()).await;
            Ok(StoreLock::new(server, guard.map_err(|_elapsed| StoreError::Busy)?))
        })
    }

    fn save<'a>(
        &'a self,
        lock: &'a StoreLock,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut servers = self.servers.lock();
            servers.entry(lock.server.clone()).or_default().credentials = credentials.cloned();
            Ok(())
        })
    }
}

/// Removes the credentials that [`FileTokenStore::for_server`] stored for a server that is deleted.
pub fn remove_server_tokens(dir: &Path, id: impl fmt::Display) -> io::Result<()> {
    let path = FileTokenStore::for_server(dir, id, dir).path("");
    remove(&path)?;
    // With the server, nobody takes its lock any more.
    remove(&path.with_extension("lock")).map(drop)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod memory_tests {
    use super::*;

    #[tokio::test]
    async fn memory_lock_is_exclusive_per_server() {
        let store = MemoryTokenStore::default();
        let lock = store.lock("a").await.unwrap();
        store.save(&lock, Some(&StoredCredentials::default())).await.unwrap();
        assert!(store.load("a").await.unwrap().is_some());
        assert!(store.load("b").await.unwrap().is_none());
        let other = store.lock("b").await.unwrap();
        drop(other);
        let waiting = timeout(Duration::from_millis(20), store.lock("a")).await;
        assert!(waiting.is_err(), "two locks on the same server");
        drop(lock);
        let lock = store.lock("a").await.unwrap();
        store.save(&lock, None).await.unwrap();
        assert!(store.load("a").await.unwrap().is_none());
    }
}
