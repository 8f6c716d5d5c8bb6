//! A store that tells a mask each secret which passes through it, so that nobody shows one.

use std::sync::Arc;

use toolrack_transport::{BoxFuture, Mask};

use super::{StoreError, StoreLock, TokenStore};
use crate::stored_credentials::StoredCredentials;

/// Another store, whose secrets a mask learns when they are read and when they are saved: tokens, refresh tokens, and
/// the secrets of clients.
#[derive(Debug, Clone)]
pub struct RedactingTokenStore {
    store: Arc<dyn TokenStore>,
    redactor: Mask,
}

#[derive(Debug)]
struct HeldLock {
    lock: Box<dyn StoreLock>,
    server: String,
    redactor: Mask,
}

impl RedactingTokenStore {
    /// The same as `store`, and `mask` knows what is in it.
    pub fn new(store: Arc<dyn TokenStore>, redactor: Mask) -> Self {
        Self { store, redactor }
    }
}

fn learn(redactor: &Mask, server: &str, credentials: Option<&StoredCredentials>) {
    for (what, secret) in credentials.into_iter().flat_map(StoredCredentials::secrets) {
        redactor.learn(&format!("{what} of {server}"), secret.reveal());
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
            Ok(Box::new(HeldLock { lock, server: server.to_owned(), redactor })
                as Box<dyn StoreLock>)
        })
    }
}

impl StoreLock for HeldLock {
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
        // Before it is saved: from then on anybody may use it.
        learn(&self.redactor, &self.server, credentials);
        self.lock.save(credentials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_identity::Client;
    use crate::secret::Secret;
    use crate::stored_credentials::tests::grant;
    use crate::token_store::MemoryTokenStore;

    #[tokio::test]
    async fn what_is_saved_and_read_is_masked() {
        let redactor = Mask::default();
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
        assert_eq!(redactor.clean(text), expected);
        for with_lock in [true, false] {
            let other = Mask::default();
            let store = RedactingTokenStore::new(Arc::clone(&inner), other.clone());
            if with_lock {
                store.lock("s").await.unwrap().load().await.unwrap();
            } else {
                store.load("s").await.unwrap();
            }
            assert_eq!(other.clean(text), expected);
        }
    }
}
