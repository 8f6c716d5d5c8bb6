//! Gate G10, quick: eight processes with fifty tasks each share one login whose tokens expire every 200 ms.
//!
//! Exactly one refresh per expiry: none comes early, none is rejected, and there is no second login. The
//! processes are this test executable itself, started for its one test [`member`].

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_auth::{AuthSettings, Authorizer, Browser, FileTokenStore, TokenStore};
use toolrack_testkit::eventually;
use toolrack_testkit::oauth::{OAuthPlan, OAuthServer};
use toolrack_transport::{AuthChallenge, CachedCredential, Credentials as _};
use url::Url;

use crate::fixture::{exchange, test_browser};

const N_PROCESSES: usize = 8;
const N_TASKS: usize = 50;
const N_EXPIRIES: u32 = 50;
const LIFETIME: Duration = Duration::from_millis(200);
/// Ends a process whose parent has died.
const MAX_RUN_TIME: Duration = Duration::from_mins(2);

const DIR: &str = "TOOLRACK_TEST_CROWD_DIR";
const URL: &str = "TOOLRACK_TEST_CROWD_URL";

fn settings() -> AuthSettings {
    AuthSettings { leeway: Duration::ZERO, ..AuthSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_refresh_once_per_expiry() {
    let home = tempfile::tempdir().unwrap();
    let plan = OAuthPlan { lifetime: LIFETIME, ..OAuthPlan::default() };
    let server = OAuthServer::start(plan).unwrap();
    let url = Url::parse(&server.url()).unwrap();
    let store: Arc<dyn TokenStore> = Arc::new(FileTokenStore::new(home.path().join("tokens")));
    let browser: Arc<dyn Browser> =
        Arc::new(test_browser(&Arc::default(), Duration::from_secs(30)));
    let first = Authorizer::new(&url, settings(), store, Some(browser)).unwrap();
    first.login().await.unwrap();

    let mut processes: Vec<Child> = (0..N_PROCESSES).map(|_| start(home.path(), &url)).collect();
    let watching = tokio::task::spawn_blocking(move || {
        eventually(MAX_RUN_TIME / 2, "enough expiries", || server.stats().refreshes >= N_EXPIRIES);
        server
    });
    let server = watching.await;
    // Stops all processes in any case.
    std::fs::File::create(home.path().join("stop")).unwrap();
    let succeeded: Vec<bool> =
        processes.iter_mut().map(|process| process.wait().unwrap().success()).collect();
    let server = server.unwrap();
    assert_eq!(succeeded, [true; N_PROCESSES]);
    let stats = server.stats();
    let faults = (stats.early_refreshes, stats.invalid_grants, stats.logins);
    assert_eq!(faults, (0, 0, 1), "{stats:?}");
    assert!(stats.calls > N_EXPIRIES, "{stats:?}");
}

#[expect(clippy::disallowed_methods, reason = "the crowd is made of this test's own executable")]
fn start(home: &Path, url: &Url) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["refresh_processes::member", "--exact", "--nocapture"])
        .env(DIR, home)
        .env(URL, url.as_str())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// One of the processes. Does nothing on its own.
#[test]
fn member() {
    let (Some(dir), Some(url)) = (std::env::var_os(DIR), std::env::var_os(URL)) else { return };
    let url = Url::parse(url.to_str().unwrap()).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(async move {
        let store: Arc<dyn TokenStore> =
            Arc::new(FileTokenStore::new(Path::new(&dir).join("tokens")));
        let authorizer = Authorizer::new(&url, settings(), store, None).unwrap();
        let tasks = (0..N_TASKS)
            .map(|n| work(Arc::clone(&authorizer), url.clone(), Path::new(&dir).join("stop"), n));
        futures_util::future::join_all(tasks).await;
        authorizer.wait_idle().await;
    });
}

/// Sends calls until the stop file exists. Any failure ends the process, and so the test.
async fn work(authorizer: Arc<Authorizer>, url: Url, stop: std::path::PathBuf, n: usize) {
    let end = Instant::now() + MAX_RUN_TIME;
    let pause = Duration::from_millis(20 + u64::try_from(n).unwrap());
    while !stop.exists() && Instant::now() < end {
        let sent = match authorizer.cached() {
            CachedCredential::None => None,
            CachedCredential::Ready(token) => Some(token),
            CachedCredential::Obtain => authorizer.obtain().await.unwrap(),
        };
        // One in ten also sends a request with the token.
        if n.is_multiple_of(10) {
            let (status, challenges) = exchange(url.as_str(), sent.as_ref(), "tools/list").await;
            let operation = ("tools/list", None);
            let challenge =
                AuthChallenge { status, challenges: &challenges, sent: sent.as_ref(), operation };
            if status != 200 {
                authorizer.on_challenge(challenge).await.unwrap();
            }
        }
        tokio::time::sleep(pause).await;
    }
}
