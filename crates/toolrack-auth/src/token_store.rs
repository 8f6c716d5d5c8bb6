//! Token store: stored credentials in files, in memory, or behind a redactor.
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

use parking_lot::{Mutex, MutexGuard};
use ring::digest::{SHA256, digest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use toolrack_platform::{create_private_dir, private_options, remove, replace};
use toolrack_transport::{AuthError, BoxFuture, Redactor};
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
    fn lock<'a>(&'a self, server: &'a str)
    -> BoxFuture<'a, Result<Box<dyn StoreLock>, StoreError>>;
}

/// Exclusive access to the entry of one server. Dropping it unlocks.
pub trait StoreLock: Send + fmt::Debug {
    /// Reads the credentials.
    fn load(&mut self) -> BoxFuture<'_, Result<Option<StoredCredentials>, StoreError>>;

    /// Replaces or removes the credentials. Atomic: after a crash or power failure, either the old or the new
    /// ones are there.
    fn save<'a>(
        &'a mut self,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
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
}

/// Lock of one server: an open file with an exclusive `flock`. Closing it unlocks.
#[derive(Debug)]
struct FileLock {
    path: PathBuf,
    _lock: File,
}

impl FileTokenStore {
    /// Stores credentials in `dir`, which is created, private to its owner, when first needed.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), lock_timeout: LOCK_TIMEOUT }
    }

    /// File of a server. The host is for readers, the fingerprint makes it unique.
    fn path(&self, server: &str) -> PathBuf {
        let url = Url::parse(server).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let safe = |character: char| {
            if character.is_ascii_alphanumeric() || character == '.' { character } else { '-' }
        };
        let host: String = host.chars().map(safe).take(60).collect();
        self.dir.join(format!("{}_{}.json", host.trim_matches('.'), fingerprint(server)))
    }

    async fn acquire_lock(&self, path: &Path) -> Result<File, StoreError> {
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
            .open(path.with_extension("lock"))?;
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
        Box::pin(async move { Ok(read(&self.path(server))?) })
    }

    fn lock<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Box<dyn StoreLock>, StoreError>> {
        Box::pin(async move {
            let path = self.path(server);
            let lock = self.acquire_lock(&path).await?;
            Ok(Box::new(FileLock { path, _lock: lock }) as Box<dyn StoreLock>)
        })
    }
}

impl StoreLock for FileLock {
    fn load(&mut self) -> BoxFuture<'_, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async { Ok(read(&self.path)?) })
    }

    fn save<'a>(
        &'a mut self,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (path, text) = (self.path.clone(), credentials.map(StoredCredentials::encode));
        Box::pin(async move {
            // `fsync` blocks, so it must not run on a thread of the runtime.
            let saving = tokio::task::spawn_blocking(move || match text {
                Some(text) => replace(&path, text.reveal().as_bytes()),
                None => remove(&path).map(drop),
            });
            Ok(saving.await.map_err(io::Error::other)??)
        })
    }
}

/// A malformed file counts as absent: the next login replaces it.
fn read(path: &Path) -> io::Result<Option<StoredCredentials>> {
    let text = match fs::read_to_string(path) {
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

#[derive(Debug, Clone)]
struct Entry {
    credentials: Option<StoredCredentials>,
    semaphore: Arc<Semaphore>,
}

#[derive(Debug)]
struct MemoryLock {
    store: MemoryTokenStore,
    server: String,
    _permit: OwnedSemaphorePermit,
}

impl MemoryTokenStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        // No statement leaves it inconsistent, so a poisoned lock is safe to use.
        self.servers.lock()
    }

    fn read(&self, server: &str) -> Option<StoredCredentials> {
        self.servers().get(server).and_then(|entry| entry.credentials.clone())
    }

    fn semaphore(&self, server: &str) -> Arc<Semaphore> {
        let fresh = || Entry { credentials: None, semaphore: Arc::new(Semaphore::new(1)) };
        Arc::clone(&self.servers().entry(server.to_owned()).or_insert_with(fresh).semaphore)
    }
}

impl TokenStore for MemoryTokenStore {
    fn load<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async move { Ok(self.read(server)) })
    }

    fn lock<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Box<dyn StoreLock>, StoreError>> {
        Box::pin(async move {
            let semaphore =
                tokio::time::timeout(LOCK_TIMEOUT, self.semaphore(server).acquire_owned()).await;
            let Ok(Ok(semaphore)) = semaphore else { return Err(StoreError::Busy) };
            let lock =
                MemoryLock { store: self.clone(), server: server.to_owned(), _permit: semaphore };
            Ok(Box::new(lock) as Box<dyn StoreLock>)
        })
    }
}

impl StoreLock for MemoryLock {
    fn load(&mut self) -> BoxFuture<'_, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async { Ok(self.store.read(&self.server)) })
    }

    fn save<'a>(
        &'a mut self,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(entry) = self.store.servers().get_mut(&self.server) {
                entry.credentials = credentials.cloned();
            }
            Ok(())
        })
    }
}

/// Store wrapper that registers every secret with a redactor: access tokens, refresh tokens and client secrets.
#[derive(Debug, Clone)]
pub struct RedactingTokenStore {
    store: Arc<dyn TokenStore>,
    redactor: Redactor,
}

#[derive(Debug)]
struct RedactingLock {
    lock: Box<dyn StoreLock>,
    server: String,
    redactor: Redactor,
}

impl RedactingTokenStore {
    /// Wraps `store`.
    pub fn new(store: Arc<dyn TokenStore>, redactor: Redactor) -> Self {
        Self { store, redactor }
    }
}

fn learn(redactor: &Redactor, server: &str, credentials: Option<&StoredCredentials>) {
    for (what, secret) in credentials.into_iter().flat_map(StoredCredentials::secrets) {
        redactor.add_secret(&format!("{what} of {server}"), secret.reveal());
    }
}

impl TokenStore for RedactingTokenStore {
    fn load<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async move {
            let credentials = self.store.load(server).await?;
            learn(&self.redactor, server, credentials.as_ref());
            Ok(credentials)
        })
    }

    fn lock<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Box<dyn StoreLock>, StoreError>> {
        Box::pin(async move {
            let (lock, redactor) = (self.store.lock(server).await?, self.redactor.clone());
            Ok(Box::new(RedactingLock { lock, server: server.to_owned(), redactor })
                as Box<dyn StoreLock>)
        })
    }
}

impl StoreLock for RedactingLock {
    fn load(&mut self) -> BoxFuture<'_, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async move {
            let credentials = self.lock.load().await?;
            learn(&self.redactor, &self.server, credentials.as_ref());
            Ok(credentials)
        })
    }

    fn save<'a>(
        &'a mut self,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        // Before saving: another process may use the secret as soon as it is stored.
        learn(&self.redactor, &self.server, credentials);
        self.lock.save(credentials)
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod memory_tests {
    use super::*;

    #[tokio::test]
    async fn memory_lock_is_exclusive_per_server() {
        let store = MemoryTokenStore::new();
        let mut lock = store.lock("a").await.unwrap();
        lock.save(Some(&StoredCredentials::default())).await.unwrap();
        assert!(store.load("a").await.unwrap().is_some());
        assert!(store.load("b").await.unwrap().is_none());
        let other = store.lock("b").await.unwrap();
        drop(other);
        let waiting = tokio::time::timeout(Duration::from_millis(20), store.lock("a")).await;
        assert!(waiting.is_err(), "two locks on the same server");
        drop(lock);
        let mut lock = store.lock("a").await.unwrap();
        lock.save(None).await.unwrap();
        assert!(lock.load().await.unwrap().is_none());
    }
}

#[cfg(test)]
mod redacting_tests {
    use super::*;
    use crate::client_registration::Client;
    use crate::secret::Secret;
    use crate::stored_credentials::tests::grant;
    use crate::token_store::MemoryTokenStore;

    #[tokio::test]
    async fn stored_secrets_are_redacted() {
        let redactor = Redactor::default();
        let inner: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::new());
        let store = RedactingTokenStore::new(Arc::clone(&inner), redactor.clone());
        let client: Client =
            serde_json::from_str(r#"{"id":"c","secret":"cl13nt-secret"}"#).unwrap();
        let mut credentials =
            StoredCredentials { grant: Some(grant(0, None)), ..StoredCredentials::default() };
        credentials.clients.insert("https://issuer".to_owned(), client);
        if let Some(grant) = &mut credentials.grant {
            grant.refresh_token = Some(Secret::new("r3fresh"));
        }
        let text = "acc3ss r3fresh cl13nt-secret";
        let expected = "[secret token of s] [secret refresh token of s] \
                        [secret client secret at https://issuer of s]";
        store.lock("s").await.unwrap().save(Some(&credentials)).await.unwrap();
        assert_eq!(redactor.redact(text), expected);
        for with_lock in [true, false] {
            let other = Redactor::default();
            let store = RedactingTokenStore::new(Arc::clone(&inner), other.clone());
            if with_lock {
                store.lock("s").await.unwrap().load().await.unwrap();
            } else {
                store.load("s").await.unwrap();
            }
            assert_eq!(other.redact(text), expected);
        }
    }
}
