//! The life of a token: it ends, is renewed once for all, and is lost only if it is really over.

use std::sync::Arc;

use toolrack_auth::{
    AuthSettings, MemoryTokenStore, StoreError, StoreLock, StoredCredentials, TokenStore,
};
use toolrack_testkit::oauth::Fault;
use toolrack_transport::{AtHand, BoxFuture, Credentials as _};

use crate::stage::{Stage, authorizer, call, kind};

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_calls_renews_once() {
    let stage = Arc::new(Stage::new(&[]));
    stage.call("tools/list").await.unwrap();
    for round in 1..=3 {
        stage.server.expire_all();
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let stage = Arc::clone(&stage);
                async move { stage.call("tools/list").await }
            })
            .collect();
        for outcome in futures_util::future::join_all(calls).await {
            outcome.unwrap();
        }
        let stats = stage.server.stats();
        assert_eq!((stats.refreshes, stats.logins, stats.invalid_grants), (round, 1, 0));
    }
}

#[tokio::test]
async fn a_token_that_another_program_got_is_used() {
    let stage = Stage::new(&[]);
    stage.call("tools/list").await.unwrap();
    let other = stage.another(AuthSettings::default());
    call(&stage.server.url(), &other, "tools/list").await.unwrap();
    stage.server.expire_all();
    call(&stage.server.url(), &other, "tools/list").await.unwrap();
    stage.call("tools/list").await.unwrap();
    let stats = stage.server.stats();
    assert_eq!((stats.refreshes, stats.logins, stats.invalid_grants), (1, 1, 0));
}

#[tokio::test]
async fn a_passing_fault_costs_no_login() {
    let stage = Stage::new(&[]);
    stage.call("tools/list").await.unwrap();
    stage.server.expire_all();
    stage.server.begin(Fault::RefreshDown);
    assert_eq!(kind(&stage.call("tools/list").await.unwrap_err()), "unreachable");
    stage.server.mend(Fault::RefreshDown);
    stage.call("tools/list").await.unwrap();
    let stats = stage.server.stats();
    assert_eq!((stats.refreshes, stats.logins), (1, 1));
}

#[tokio::test]
async fn a_login_that_is_over_is_replaced_by_a_person_or_said_aloud() {
    let stage = Stage::new(&[Fault::Quoting]);
    stage.call("tools/list").await.unwrap();
    let lonely = stage.another(AuthSettings::default());
    assert!(lonely.obtain().await.unwrap().is_some());
    stage.server.revoke_all();
    let error = call(&stage.server.url(), &lonely, "tools/list").await.unwrap_err();
    assert_eq!(kind(&error), "login needed");
    assert!(error.to_string().contains("`toolrack login http://127.0.0.1"), "{error}");
    stage.call("tools/list").await.unwrap();
    assert_eq!(stage.server.stats().logins, 2);
    // What the lonely one found over did not hurt the new login.
    call(&stage.server.url(), &lonely, "tools/list").await.unwrap();
    assert_eq!(stage.server.stats().logins, 2);
}

#[tokio::test]
async fn without_refresh_tokens_somebody_logs_in_again() {
    let stage = Stage::new(&[Fault::NoRefresh]);
    stage.call("tools/list").await.unwrap();
    stage.server.expire_all();
    stage.call("tools/list").await.unwrap();
    let stats = stage.server.stats();
    assert_eq!((stats.refreshes, stats.logins), (0, 2));
}

#[tokio::test]
async fn a_refresh_token_that_is_not_replaced_stays() {
    let stage = Stage::new(&[Fault::RefreshKeeps]);
    stage.call("tools/list").await.unwrap();
    for _ in 0..3 {
        stage.server.expire_all();
        stage.call("tools/list").await.unwrap();
    }
    let stats = stage.server.stats();
    assert_eq!((stats.refreshes, stats.logins), (3, 1));
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_lose_the_login() {
    let stage = Stage::new(&[]);
    stage.call("tools/list").await.unwrap();
    let settings = AuthSettings { leeway: std::time::Duration::MAX, ..AuthSettings::default() };
    let url = stage.server.url();
    for round in 1..=3 {
        stage.server.expire_all();
        let hasty = stage.another(settings.clone());
        let token = hasty.obtain().await.unwrap();
        let challenges = ["Bearer error=\"invalid_token\"".to_owned()];
        let rebuff = toolrack_transport::Rebuff {
            status: 401,
            challenges: &challenges,
            sent: token.as_ref(),
            operation: ("tools/list", None),
        };
        let mut refresh = hasty.rebuffed(rebuff);
        let polled = futures_util::poll!(&mut refresh);
        assert!(polled.is_pending());
        drop(refresh);
        hasty.wait_idle().await;
        assert_eq!(stage.server.stats().refreshes, round);
        call(&url, &stage.another(AuthSettings::default()), "tools/list").await.unwrap();
    }
    let stats = stage.server.stats();
    assert_eq!((stats.refreshes, stats.logins, stats.invalid_grants), (3, 1, 0));
}

#[tokio::test]
async fn nothing_is_sent_before_a_server_asks() {
    let stage = Stage::new(&[]);
    assert_eq!(stage.authorizer.at_hand(), AtHand::Ask);
    assert_eq!(stage.authorizer.obtain().await, Ok(None));
    assert_eq!(stage.authorizer.at_hand(), AtHand::Nothing);
    assert_eq!(stage.server.seen(), []);
}

#[tokio::test]
async fn a_token_is_kept_for_its_server_alone() {
    let stage = Stage::new(&[]);
    stage.call("tools/list").await.unwrap();
    let other = Stage::new(&[]);
    let stranger = authorizer(&other.server, AuthSettings::default(), &stage.store, None);
    assert_eq!(stranger.obtain().await, Ok(None));
    // Neither for another client of the same server.
    let another = stage.another(crate::stage::pre_registered("else", "", None));
    assert_eq!(another.obtain().await, Ok(None));
    let empty: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::new());
    let forgetful = authorizer(&stage.server, AuthSettings::default(), &empty, None);
    assert_eq!(forgetful.obtain().await, Ok(None));
}

/// A store in which somebody writes without asking for the lock, between two looks of the one who holds it.
#[derive(Debug, Clone)]
struct Meddled {
    store: MemoryTokenStore,
    server: String,
    newer: StoredCredentials,
}

#[derive(Debug)]
struct MeddledHold {
    hold: Box<dyn StoreLock>,
    newer: StoredCredentials,
    n_looks: u32,
}

impl TokenStore for Meddled {
    fn load<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredCredentials>, StoreError>> {
        self.store.load(server)
    }

    fn lock<'a>(
        &'a self,
        server: &'a str,
    ) -> BoxFuture<'a, Result<Box<dyn StoreLock>, StoreError>> {
        Box::pin(async move {
            assert_eq!(server, self.server);
            let hold = self.store.lock(server).await?;
            let newer = self.newer.clone();
            Ok(Box::new(MeddledHold { hold, newer, n_looks: 0 }) as Box<dyn StoreLock>)
        })
    }
}

impl StoreLock for MeddledHold {
    fn load(&mut self) -> BoxFuture<'_, Result<Option<StoredCredentials>, StoreError>> {
        Box::pin(async {
            self.n_looks += 1;
            if self.n_looks == 2 {
                self.hold.save(Some(&self.newer)).await?;
            }
            self.hold.load().await
        })
    }

    fn save<'a>(
        &'a mut self,
        record: Option<&'a StoredCredentials>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.hold.save(record)
    }
}

#[tokio::test]
async fn a_newer_login_survives_the_end_of_an_older_one() {
    let stage = Stage::new(&[]);
    let server = stage.server.url();
    let store = MemoryTokenStore::new();
    stage.call("tools/list").await.unwrap();
    let older = stage.store.load(&server).await.unwrap();
    store.lock(&server).await.unwrap().save(older.as_ref()).await.unwrap();
    stage.server.revoke_all();
    stage.authorizer.login().await.unwrap();
    let newer = stage.store.load(&server).await.unwrap().unwrap();

    let meddled: Arc<dyn TokenStore> =
        Arc::new(Meddled { store: store.clone(), server: server.clone(), newer: newer.clone() });
    let lonely = authorizer(&stage.server, AuthSettings::default(), &meddled, None);
    call(&server, &lonely, "tools/list").await.unwrap();
    assert_eq!(store.load(&server).await.unwrap(), Some(newer));
    assert_eq!(stage.server.stats().invalid_grants, 1);
}
