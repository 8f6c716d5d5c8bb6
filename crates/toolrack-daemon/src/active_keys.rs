//! The keys of a running daemon: looked up for each request over TCP, read again when the file has changed.
//!
//! **Invariant:** once [`ActiveKeys::reload`] returns, no request, stream or session of a removed key is served any
//! more. If the file cannot be read, no key is valid.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use crate::daemon::DaemonError;
use crate::keys::{KeyEntry, KeyError, KeyFile, KeyHash, KeyScope, day, proof};

/// A valid key.
#[derive(Debug)]
pub(crate) struct ActiveKey {
    /// Its id, which changes with its secret.
    pub(crate) id: String,
    pub(crate) scope: KeyScope,
    hash: KeyHash,
    /// Cancelled once the key is no longer valid.
    pub(crate) revoked: CancellationToken,
    /// The day of the last use that is known to be in the file, counted from 1970.
    last_used_day: AtomicU64,
}

impl ActiveKey {
    fn new(entry: &KeyEntry) -> Self {
        Self {
            id: entry.hash().id(),
            scope: entry.scope.clone(),
            hash: *entry.hash(),
            revoked: CancellationToken::new(),
            last_used_day: AtomicU64::new(entry.last_used_ms.map_or(0, day)),
        }
    }

    /// Whether this is the first use of the day, which goes into the file.
    pub(crate) fn is_first_use_of_day(&self, now_ms: u64) -> bool {
        self.last_used_day.swap(day(now_ms), Ordering::Relaxed) != day(now_ms)
    }

    pub(crate) fn hash(&self) -> &KeyHash {
        &self.hash
    }
}

/// All valid keys.
#[derive(Debug)]
pub(crate) struct ActiveKeys {
    pub(crate) file: KeyFile,
    keys: RwLock<Vec<Arc<ActiveKey>>>,
    /// Held while the file is read, so that an older content never replaces a newer one.
    reload_lock: Mutex<()>,
    /// Answers challenges for unknown keys.
    decoy: hmac::Key,
}

impl ActiveKeys {
    /// Without any key, until the first reload.
    pub(crate) fn new(file: KeyFile) -> Result<Self, DaemonError> {
        let mut secret = [0_u8; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_unspecified| DaemonError::NoRandomness)?;
        let decoy = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        Ok(Self { file, keys: RwLock::default(), reload_lock: Mutex::default(), decoy })
    }

    /// Reads the file again. Returns the keys that are no longer valid; their requests have been told to end.
    pub(crate) fn reload(&self) -> (Vec<Arc<ActiveKey>>, Result<usize, KeyError>) {
        let _reload_lock = self.reload_lock.lock();
        let read = self.file.list();
        let entries = read.as_deref().unwrap_or_default();
        let mut keys = self.keys.write();
        let is_entry = |key: &ActiveKey, entry: &KeyEntry| {
            key.hash.matches(entry.hash()) && key.scope == entry.scope
        };
        let removed: Vec<_> =
            keys.extract_if(.., |key| !entries.iter().any(|entry| is_entry(key, entry))).collect();
        for entry in entries {
            if !keys.iter().any(|key| is_entry(key, entry)) {
                keys.push(Arc::new(ActiveKey::new(entry)));
            }
        }
        drop(keys);
        for key in &removed {
            key.revoked.cancel();
        }
        (removed, read.map(|entries| entries.len()))
    }

    /// The valid key that a request carries. Compares hashes, each in constant time.
    pub(crate) fn find(&self, candidate: &str) -> Option<Arc<ActiveKey>> {
        let hash = KeyHash::of(candidate);
        self.keys.read().iter().find(|key| key.hash.matches(&hash)).map(Arc::clone)
    }

    /// The answer to a challenge. For an unknown key it has the same shape and is as stable, so that it does not tell
    /// which keys there are.
    pub(crate) fn prove(&self, id: &str, addr: &str, challenge: &str) -> String {
        let decoy = hmac::sign(&self.decoy, id.as_bytes());
        let mut answer = proof(decoy.as_ref(), addr, challenge);
        for key in self.keys.read().iter() {
            if bool::from(key.id.as_bytes().ct_eq(id.as_bytes())) {
                answer = key.hash.proof(addr, challenge);
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use toolrack_service::Home;

    use super::*;

    fn active() -> (tempfile::TempDir, ActiveKeys) {
        let dir = tempfile::tempdir().unwrap();
        let keys = ActiveKeys::new(KeyFile::new(&Home::in_dir(dir.path()))).unwrap();
        (dir, keys)
    }

    #[test]
    fn reload_keeps_unchanged_keys_and_ends_removed_ones() {
        let (_dir, keys) = active();
        let (_, stays) = keys.file.create("stays", KeyScope::Admin).unwrap();
        let (_, rotated) = keys.file.create("rotated", KeyScope::Admin).unwrap();
        assert!(keys.find(stays.reveal()).is_none());
        assert_eq!(keys.reload().1.unwrap(), 2);
        let find = |text: &str| keys.find(text);
        let (before, old) = (find(stays.reveal()).unwrap(), find(rotated.reveal()).unwrap());
        let (_, new) = keys.file.rotate("rotated").unwrap();
        let (removed, _) = keys.reload();
        assert_eq!(removed.iter().map(|key| &key.id).collect::<Vec<_>>(), [&old.id]);
        assert!(old.revoked.is_cancelled() && find(rotated.reveal()).is_none());
        assert!(find(new.reveal()).is_some_and(|key| key.id != old.id));
        assert!(Arc::ptr_eq(&before, &find(stays.reveal()).unwrap()));
        assert!(!before.revoked.is_cancelled());
    }

    #[test]
    fn no_key_is_valid_if_the_file_is_damaged() {
        let (dir, keys) = active();
        let (_, key) = keys.file.create("one", KeyScope::Admin).unwrap();
        assert!(keys.reload().1.is_ok());
        toolrack_platform::replace(&dir.path().join("keys.json"), b"{").unwrap();
        let (removed, read) = keys.reload();
        assert!(read.is_err() && removed.len() == 1);
        assert!(keys.find(key.reveal()).is_none());
    }

    #[test]
    fn use_is_recorded_once_a_day() {
        const DAY: u64 = 24 * 60 * 60 * 1000;
        let (_dir, keys) = active();
        let (_, key) = keys.file.create("one", KeyScope::Admin).unwrap();
        assert!(keys.reload().1.is_ok());
        let key = keys.find(key.reveal()).unwrap();
        let uses =
            [DAY, DAY + 1, 2 * DAY - 1, 2 * DAY].map(|now_ms| key.is_first_use_of_day(now_ms));
        assert_eq!(uses, [true, false, false, true]);
    }

    #[test]
    fn unknown_key_is_answered_like_a_known_one() {
        let (_dir, keys) = active();
        let (entry, key) = keys.file.create("one", KeyScope::Admin).unwrap();
        assert!(keys.reload().1.is_ok());
        let (addr, challenge) = ("127.0.0.1:1", "00");
        let known = keys.prove(&entry.hash().id(), addr, challenge);
        assert!(key.hash().is_proof(&known, addr, challenge));
        let unknown = keys.prove("0123456789abcdef", addr, challenge);
        assert_eq!(unknown.len(), known.len());
        assert_eq!(unknown, keys.prove("0123456789abcdef", addr, challenge));
        assert_ne!(unknown, keys.prove("0123456789abcdee", addr, challenge));
        assert_ne!(unknown, keys.prove("0123456789abcdef", addr, "01"));
        assert!(!key.hash().is_proof(&unknown, addr, challenge));
    }
}
