//! A store that forgets everything when the program ends, for one-shot use and tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolrack_transport::BoxFuture;

use super::{StoreError, StoreLock, TokenStore};
use crate::stored_credentials::StoredCredentials;

/// How long to wait for another task. It does at most a few requests of ten seconds each.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);

/// Records in memory.
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
struct HeldLock {
    store: MemoryTokenStore,
    server: String,
    _permit: OwnedSemaphorePermit,
}

impl MemoryTokenStore {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        // The map is consistent between statements.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, server: &str) -> Option<StoredCredentials> {
        self.servers().get(server).and_then(|it| it.credentials.clone())
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
                HeldLock { store: self.clone(), server: server.to_owned(), _permit: semaphore };
            Ok(Box::new(lock) as Box<dyn StoreLock>)
        })
    }
}

impl StoreLock for HeldLock {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_holds_a_server() {
        let store = MemoryTokenStore::new();
        let mut lock = store.lock("a").await.unwrap();
        lock.save(Some(&StoredCredentials::default())).await.unwrap();
        assert!(store.load("a").await.unwrap().is_some());
        assert!(store.load("b").await.unwrap().is_none());
        let other = store.lock("b").await.unwrap();
        drop(other);
        let waiting = tokio::time::timeout(Duration::from_millis(20), store.lock("a")).await;
        assert!(waiting.is_err(), "two hold the same server");
        drop(lock);
        let mut lock = store.lock("a").await.unwrap();
        lock.save(None).await.unwrap();
        assert!(lock.load().await.unwrap().is_none());
    }
}
