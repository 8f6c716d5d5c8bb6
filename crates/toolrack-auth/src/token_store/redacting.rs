//! A store that tells a mask each secret which passes through it, so that nobody shows one.

use std::sync::Arc;

use toolrack_transport::{BoxFuture, Mask};

use super::{Hold, StoreError, TokenStore};
use crate::stored_credentials::Record;

/// Another store, whose secrets a mask learns when they are read and when they are saved: tokens, refresh tokens, and
/// the secrets of clients.
#[derive(Debug, Clone)]
pub struct DiscreetTokenStore {
    store: Arc<dyn TokenStore>,
    mask: Mask,
}

#[derive(Debug)]
struct Held {
    hold: Box<dyn Hold>,
    server: String,
    mask: Mask,
}

impl DiscreetTokenStore {
    /// The same as `store`, and `mask` knows what is in it.
    pub fn new(store: Arc<dyn TokenStore>, mask: Mask) -> Self {
        Self { store, mask }
    }
}

fn learn(mask: &Mask, server: &str, record: Option<&Record>) {
    for (what, secret) in record.into_iter().flat_map(Record::secrets) {
        mask.learn(&format!("{what} of {server}"), secret.reveal());
    }
}

impl TokenStore for DiscreetTokenStore {
    fn load<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Option<Record>, StoreError>> {
        Box::pin(async move {
            let record = self.store.load(server).await?;
            learn(&self.mask, server, record.as_ref());
            Ok(record)
        })
    }

    fn hold<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Box<dyn Hold>, StoreError>> {
        Box::pin(async move {
            let (hold, mask) = (self.store.hold(server).await?, self.mask.clone());
            Ok(Box::new(Held { hold, server: server.to_owned(), mask }) as Box<dyn Hold>)
        })
    }
}

impl Hold for Held {
    fn load(&mut self) -> BoxFuture<'_, Result<Option<Record>, StoreError>> {
        Box::pin(async move {
            let record = self.hold.load().await?;
            learn(&self.mask, &self.server, record.as_ref());
            Ok(record)
        })
    }

    fn save<'a>(&'a mut self, record: Option<&'a Record>) -> BoxFuture<'a, Result<(), StoreError>> {
        // Before it is saved: from then on anybody may use it.
        learn(&self.mask, &self.server, record);
        self.hold.save(record)
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
        let mask = Mask::default();
        let inner: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::new());
        let store = DiscreetTokenStore::new(Arc::clone(&inner), mask.clone());
        let client: Client =
            serde_json::from_str(r#"{"id":"c","secret":"cl13nt-secret"}"#).unwrap();
        let mut record = Record { grant: Some(grant(0, None)), ..Record::default() };
        record.clients.insert("https://issuer".to_owned(), client);
        if let Some(grant) = &mut record.grant {
            grant.refresh_token = Some(Secret::new("r3fresh"));
        }
        let text = "acc3ss r3fresh cl13nt-secret";
        let expected = "[secret token of s] [secret refresh token of s] \
                        [secret client secret at https://issuer of s]";
        store.hold("s").await.unwrap().save(Some(&record)).await.unwrap();
        assert_eq!(mask.clean(text), expected);
        for is_held in [true, false] {
            let other = Mask::default();
            let store = DiscreetTokenStore::new(Arc::clone(&inner), other.clone());
            if is_held {
                store.hold("s").await.unwrap().load().await.unwrap();
            } else {
                store.load("s").await.unwrap();
            }
            assert_eq!(other.clean(text), expected);
        }
    }
}
