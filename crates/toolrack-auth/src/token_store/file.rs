//! Logins in files, one for each server, shared by every program of the same user.
//!
//! **Invariant:** a file is old or new, never in between; nobody but its owner can read it; it is written only
//! under a lock that every process and task respects, and which the kernel frees when its holder dies.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::time::{Instant, sleep};
use toolrack_transport::BoxFuture;
use url::Url;

use super::{StoreError, StoreLock, TokenStore};
use crate::pkce::fingerprint;
use crate::secret::Secret;
use crate::stored_credentials::StoredCredentials;

/// How long to wait for another process. It does at most a few requests of ten seconds each.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);
/// Pauses between two looks at the lock, growing from the first to the last.
const LOCK_POLL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Records in a directory of their own.
#[derive(Debug, Clone)]
pub struct FileTokenStore {
    dir: PathBuf,
    lock_timeout: Duration,
}

/// The lock of one server: an open file, locked as a whole. Closing it frees it.
#[derive(Debug)]
struct HeldLock {
    path: PathBuf,
    _lock: File,
}

impl FileTokenStore {
    /// Keeps records in `dir`, which is made, readable by its owner alone, when first needed.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), lock_timeout: LOCK_TIMEOUT }
    }

    /// The file of a server. The host is there for people, the rest for uniqueness.
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
        make_private_dir(&self.dir)?;
        // Never removed: a lock on a file that is gone locks nobody out.
        let file = private_file().create(true).truncate(false).open(path.with_extension("lock"))?;
        let deadline = Instant::now() + self.lock_timeout;
        let (mut pause, longest) = LOCK_POLL;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(other) => return Err(io::Error::from(other).into()),
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
            Ok(Box::new(HeldLock { path, _lock: lock }) as Box<dyn StoreLock>)
        })
    }
}

impl StoreLock for HeldLock {
    fn load(&mut self) -> BoxFuture<'_, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async { Ok(read(&self.path)?) })
    }

    fn save<'a>(
        &'a mut self,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (path, text) = (self.path.clone(), credentials.map(StoredCredentials::encode));
        Box::pin(async move {
            // Syncing a disk takes its time, and the runtime's threads have others to serve.
            let saving = tokio::task::spawn_blocking(move || match text {
                Some(text) => replace(&path, &text),
                None => remove(&path),
            });
            Ok(saving.await.map_err(io::Error::other)??)
        })
    }
}

/// A record that cannot be read is as good as none: its owner logs in again, and that replaces it.
fn read(path: &Path) -> io::Result<Option<StoredCredentials>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => Secret::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let credentials = StoredCredentials::decode(text.reveal());
    if credentials.is_none() {
        tracing::warn!(path = %path.display(), "the stored login is unreadable");
    }
    Ok(credentials)
}

/// Writes beside, syncs, and puts it in place in one step.
fn replace(path: &Path, text: &Secret) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let unique = format!("{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let temp_path = path.with_extension(format!("{unique}.tmp"));
    let written = write_temp(&temp_path, text).and_then(|()| fs::rename(&temp_path, path));
    if written.is_err() {
        fs::remove_file(&temp_path).unwrap_or_default();
    }
    written?;
    sync_dir(path)
}

fn write_temp(path: &Path, text: &Secret) -> io::Result<()> {
    let mut file = private_file().create_new(true).open(path)?;
    file.write_all(text.reveal().as_bytes())?;
    file.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_dir(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_dir(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn make_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mode = fs::metadata(dir)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
