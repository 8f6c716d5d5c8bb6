//! Locks that cannot be poisoned.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock for a moment. What we lock is whole between statements, so a panic in another task cannot have
/// torn it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
