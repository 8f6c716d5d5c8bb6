//! A store that forgets everything when the program ends, for one-shot use and tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolrack_transport::BoxFuture;

use super::{Hold, StoreError, TokenStore};
use crate::stored_credentials::Record;

/// How long to wait for another task. It does at most a few requests of ten seconds each.
const PATIENCE: Duration = Duration::from_mins(1);

/// Records in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryTokenStore {
    servers: Arc<Mutex<HashMap<String, Entry>>>,
}

#[derive(Debug, Clone)]
struct Entry {
    record: Option<Record>,
    turn: Arc<Semaphore>,
}

#[derive(Debug)]
struct Held {
    store: MemoryTokenStore,
    server: String,
    _turn: OwnedSemaphorePermit,
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

    fn read(&self, server: &str) -> Option<Record> {
        self.servers().get(server).and_then(|it| it.record.clone())
    }

    fn turn(&self, server: &str) -> Arc<Semaphore> {
        let fresh = || Entry { record: None, turn: Arc::new(Semaphore::new(1)) };
        Arc::clone(&self.servers().entry(server.to_owned()).or_insert_with(fresh).turn)
    }
}

impl TokenStore for MemoryTokenStore {
    fn load<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Option<Record>, StoreError>> {
        Box::pin(async move { Ok(self.read(server)) })
    }

    fn hold<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Box<dyn Hold>, StoreError>> {
        Box::pin(async move {
            let turn = tokio::time::timeout(PATIENCE, self.turn(server).acquire_owned()).await;
            let Ok(Ok(turn)) = turn else { return Err(StoreError::Busy) };
            let held = Held { store: self.clone(), server: server.to_owned(), _turn: turn };
            Ok(Box::new(held) as Box<dyn Hold>)
        })
    }
}

impl Hold for Held {
    fn load(&mut self) -> BoxFuture<'_, Result<Option<Record>, StoreError>> {
        Box::pin(async { Ok(self.store.read(&self.server)) })
    }

    fn save<'a>(&'a mut self, record: Option<&'a Record>) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(entry) = self.store.servers().get_mut(&self.server) {
                entry.record = record.cloned();
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
        let mut held = store.hold("a").await.unwrap();
        held.save(Some(&Record::default())).await.unwrap();
        assert!(store.load("a").await.unwrap().is_some());
        assert!(store.load("b").await.unwrap().is_none());
        let other = store.hold("b").await.unwrap();
        drop(other);
        let waiting = tokio::time::timeout(Duration::from_millis(20), store.hold("a")).await;
        assert!(waiting.is_err(), "two hold the same server");
        drop(held);
        let mut held = store.hold("a").await.unwrap();
        held.save(None).await.unwrap();
        assert!(held.load().await.unwrap().is_none());
    }
}
