//! Token lifetime: expiry, refresh, and loss of the login.

use std::sync::Arc;

use parking_lot::Mutex;
use toolrack_auth::{
    AuthSettings, MemoryTokenStore, StoreError, StoreLock, StoredCredentials, TokenStore,
};
use toolrack_testkit::oauth::Fault;
use toolrack_transport::{BoxFuture, CachedCredential, Credentials as _};

use crate::fixture::{Fixture, authorizer, call, kind};

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_refresh_once() {
    let fixture = Arc::new(Fixture::new(&[]));
    fixture.call("tools/list").await.unwrap();
    for round in 1..=3 {
        fixture.server.expire_all();
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let fixture = Arc::clone(&fixture);
                async move { fixture.call("tools/list").await }
            })
            .collect();
        for outcome in futures_util::future::join_all(calls).await {
            outcome.unwrap();
        }
        let stats = fixture.server.stats();
        assert_eq!((stats.refreshes, stats.logins, stats.invalid_grants), (round, 1, 0));
    }
}

#[tokio::test]
async fn token_of_another_process_is_used() {
    let fixture = Fixture::new(&[]);
    fixture.call("tools/list").await.unwrap();
    let other = fixture.another_process(AuthSettings::default());
    call(&fixture.server.url(), &other, "tools/list").await.unwrap();
    fixture.server.expire_all();
    call(&fixture.server.url(), &other, "tools/list").await.unwrap();
    fixture.call("tools/list").await.unwrap();
    let stats = fixture.server.stats();
    assert_eq!((stats.refreshes, stats.logins, stats.invalid_grants), (1, 1, 0));
}

#[tokio::test]
async fn temporary_refresh_error_keeps_the_login() {
    let fixture = Fixture::new(&[]);
    fixture.call("tools/list").await.unwrap();
    fixture.server.expire_all();
    fixture.server.add_fault(Fault::RefreshDown);
    assert_eq!(kind(&fixture.call("tools/list").await.unwrap_err()), "unreachable");
    fixture.server.remove_fault(Fault::RefreshDown);
    fixture.call("tools/list").await.unwrap();
    let stats = fixture.server.stats();
    assert_eq!((stats.refreshes, stats.logins), (1, 1));
}

#[tokio::test]
async fn expired_login_is_renewed_or_reported() {
    let fixture = Fixture::new(&[Fault::Quoting]);
    fixture.call("tools/list").await.unwrap();
    let without_browser = fixture.another_process(AuthSettings::default());
    assert!(without_browser.obtain().await.unwrap().is_some());
    fixture.server.revoke_all();
    let error = call(&fixture.server.url(), &without_browser, "tools/list").await.unwrap_err();
    assert_eq!(kind(&error), "login needed");
    assert!(error.to_string().contains("not logged in"), "{error}");
    fixture.call("tools/list").await.unwrap();
    assert_eq!(fixture.server.stats().logins, 2);
    // The expiry seen by the process without a browser did not affect the new login.
    call(&fixture.server.url(), &without_browser, "tools/list").await.unwrap();
    assert_eq!(fixture.server.stats().logins, 2);
}

#[tokio::test]
async fn missing_refresh_token_needs_a_login() {
    let fixture = Fixture::new(&[Fault::NoRefresh]);
    fixture.call("tools/list").await.unwrap();
    fixture.server.expire_all();
    fixture.call("tools/list").await.unwrap();
    let stats = fixture.server.stats();
    assert_eq!((stats.refreshes, stats.logins), (0, 2));
}

#[tokio::test]
async fn unrotated_refresh_token_is_kept() {
    let fixture = Fixture::new(&[Fault::RefreshKeeps]);
    fixture.call("tools/list").await.unwrap();
    for _ in 0..3 {
        fixture.server.expire_all();
        fixture.call("tools/list").await.unwrap();
    }
    let stats = fixture.server.stats();
    assert_eq!((stats.refreshes, stats.logins), (3, 1));
}

#[tokio::test]
async fn dropped_caller_does_not_lose_the_login() {
    let fixture = Fixture::new(&[]);
    fixture.call("tools/list").await.unwrap();
    let settings = AuthSettings { leeway: std::time::Duration::MAX, ..AuthSettings::default() };
    let url = fixture.server.url();
    for round in 1..=3 {
        fixture.server.expire_all();
        let impatient = fixture.another_process(settings.clone());
        let token = impatient.obtain().await.unwrap();
        let challenges = ["Bearer error=\"invalid_token\"".to_owned()];
        let challenge = toolrack_transport::AuthChallenge {
            status: 401,
            challenges: &challenges,
            sent: token.as_ref(),
            operation: ("tools/list", None),
        };
        let mut refresh = impatient.on_challenge(challenge);
        let polled = futures_util::poll!(&mut refresh);
        assert!(polled.is_pending());
        drop(refresh);
        impatient.wait_idle().await;
        assert_eq!(fixture.server.stats().refreshes, round);
        call(&url, &fixture.another_process(AuthSettings::default()), "tools/list").await.unwrap();
    }
    let stats = fixture.server.stats();
    assert_eq!((stats.refreshes, stats.logins, stats.invalid_grants), (3, 1, 0));
}

#[tokio::test]
async fn no_token_is_sent_before_a_challenge() {
    let fixture = Fixture::new(&[]);
    assert_eq!(fixture.authorizer.cached(), CachedCredential::Obtain);
    assert_eq!(fixture.authorizer.obtain().await, Ok(None));
    assert_eq!(fixture.authorizer.cached(), CachedCredential::None);
    assert_eq!(fixture.server.requests(), []);
}

#[tokio::test]
async fn token_is_used_for_its_server_only() {
    let fixture = Fixture::new(&[]);
    fixture.call("tools/list").await.unwrap();
    let other = Fixture::new(&[]);
    let other_server = authorizer(&other.server, AuthSettings::default(), &fixture.store, None);
    assert_eq!(other_server.obtain().await, Ok(None));
    // Nor for another client of the same server.
    let other_client = fixture.another_process(crate::fixture::pre_registered("else", "", None));
    assert_eq!(other_client.obtain().await, Ok(None));
    let empty: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::default());
    let other_store = authorizer(&fixture.server, AuthSettings::default(), &empty, None);
    assert_eq!(other_store.obtain().await, Ok(None));
}

/// A store in which another writer ignores the lock and writes between two reads of the lock's holder.
#[derive(Debug)]
struct MeddledStore {
    store: MemoryTokenStore,
    server: String,
    newer: StoredCredentials,
    /// Reads since the lock was taken.
    n_loads: Mutex<Option<u32>>,
}

impl TokenStore for MeddledStore {
    fn load<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async move {
            let n_loads = {
                let mut n_loads = self.n_loads.lock();
                *n_loads = n_loads.map(|n| n + 1);
                *n_loads
            };
            if n_loads == Some(2) {
                self.store.save(&StoreLock::new(server, ()), Some(&self.newer)).await?;
            }
            self.store.load(server).await
        })
    }

    fn lock<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<StoreLock, StoreError>> {
        assert_eq!(server, self.server);
        *self.n_loads.lock() = Some(0);
        self.store.lock(server)
    }

    fn save<'a>(
        &'a self,
        lock: &'a StoreLock,
        credentials: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.save(lock, credentials)
    }
}

#[tokio::test]
async fn newer_login_survives_expiry_of_an_older_one() {
    let fixture = Fixture::new(&[]);
    let server = fixture.server.url();
    let store = MemoryTokenStore::default();
    fixture.call("tools/list").await.unwrap();
    let older = fixture.store.load(&server).await.unwrap();
    let lock = store.lock(&server).await.unwrap();
    store.save(&lock, older.as_ref()).await.unwrap();
    drop(lock);
    fixture.server.revoke_all();
    fixture.authorizer.login().await.unwrap();
    let newer = fixture.store.load(&server).await.unwrap().unwrap();

    let meddled: Arc<dyn TokenStore> = Arc::new(MeddledStore {
        store: store.clone(),
        server: server.clone(),
        newer: newer.clone(),
        n_loads: Mutex::new(None),
    });
    let without_browser = authorizer(&fixture.server, AuthSettings::default(), &meddled, None);
    call(&server, &without_browser, "tools/list").await.unwrap();
    assert_eq!(store.load(&server).await.unwrap(), Some(newer));
    assert_eq!(fixture.server.stats().invalid_grants, 1);
}
