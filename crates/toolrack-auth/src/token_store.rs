//! Where logins are kept between calls, and between programs.
//!
//! **Invariant:** only who holds the lock of a server writes its record, and whoever refreshes a token has held it
//! since before the record was read.

mod file;
mod memory;
mod redacting;

use std::fmt;
use std::io;

use toolrack_transport::{AuthError, BoxFuture};

pub use self::file::FileTokenStore;
pub use self::memory::MemoryTokenStore;
pub use self::redacting::RedactingTokenStore;
use crate::error::{login_needed, unreachable};
use crate::stored_credentials::StoredCredentials;

/// A place where records of logins are kept, one for each server.
pub trait TokenStore: Send + Sync + fmt::Debug {
    /// What is kept for `server` at the moment.
    fn load<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredCredentials>, StoreError>>;

    /// Waits until nobody else changes what is kept for `server`, in any program. The wait is bounded.
    fn lock<'a>(&'a self, server: &'a str)
    -> BoxFuture<'a, Result<Box<dyn StoreLock>, StoreError>>;
}

/// The right to change what is kept for one server. Dropping it gives it back.
pub trait StoreLock: Send + fmt::Debug {
    /// What is kept now.
    fn load(&mut self) -> BoxFuture<'_, Result<Option<StoredCredentials>, StoreError>>;

    /// Replaces it, or removes it. Afterwards there is the old or the new, whole, even if the power fails.
    fn save<'a>(
        &'a mut self,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Why a store cannot do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else holds the lock, and does not let go.
    #[error("another program is busy with the same login")]
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
