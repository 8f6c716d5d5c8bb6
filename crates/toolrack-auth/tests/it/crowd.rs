//! Gate G10, quick: eight programs with fifty tasks each share one login whose tokens end every 200 ms.
//!
//! Exactly one refresh for each end of a token: none comes early, none is refused, and nobody logs in again. The
//! programs are this test executable itself, started again for its one test [`member`].

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_auth::{AuthSettings, Authorizer, Browser, FileTokenStore, TokenStore};
use toolrack_testkit::eventually;
use toolrack_testkit::oauth::{OAuthPlan, OAuthServer};
use toolrack_transport::{AtHand, Credentials as _, Rebuff};
use url::Url;

use crate::stage::{exchange, person};

const N_PROGRAMS: usize = 8;
const N_TASKS: usize = 50;
const N_EXPIRIES: u32 = 50;
const LIFETIME: Duration = Duration::from_millis(200);
/// Long before the end of the test, so that a member whose parent has died ends too.
const LONGEST: Duration = Duration::from_mins(2);

const DIR: &str = "TOOLRACK_TEST_CROWD_DIR";
const URL: &str = "TOOLRACK_TEST_CROWD_URL";

fn settings() -> AuthSettings {
    AuthSettings { leeway: Duration::ZERO, ..AuthSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_programs_refresh_once_for_each_expiry() {
    let home = tempfile::tempdir().unwrap();
    let plan = OAuthPlan { lifetime: LIFETIME, ..OAuthPlan::default() };
    let server = OAuthServer::start(plan).unwrap();
    let url = Url::parse(&server.url()).unwrap();
    let store: Arc<dyn TokenStore> = Arc::new(FileTokenStore::new(home.path().join("tokens")));
    let browser: Arc<dyn Browser> = Arc::new(person(&Arc::default(), Duration::from_secs(30)));
    let first = Authorizer::new(&url, settings(), store, Some(browser)).unwrap();
    first.login().await.unwrap();

    let mut members: Vec<Child> = (0..N_PROGRAMS).map(|_| start(home.path(), &url)).collect();
    let watching = tokio::task::spawn_blocking(move || {
        eventually(LONGEST / 2, "enough expiries", || server.stats().refreshes >= N_EXPIRIES);
        server
    });
    let server = watching.await;
    // Whatever happened, nobody is left behind.
    std::fs::File::create(home.path().join("stop")).unwrap();
    let ended: Vec<bool> = members.iter_mut().map(|it| it.wait().unwrap().success()).collect();
    let server = server.unwrap();
    assert_eq!(ended, [true; N_PROGRAMS]);
    let stats = server.stats();
    let faults = (stats.early_refreshes, stats.invalid_grants, stats.logins);
    assert_eq!(faults, (0, 0, 1), "{stats:?}");
    assert!(stats.calls > N_EXPIRIES, "{stats:?}");
}

#[expect(clippy::disallowed_methods, reason = "the crowd is made of this test's own executable")]
fn start(home: &Path, url: &Url) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["crowd::member", "--exact", "--nocapture"])
        .env(DIR, home)
        .env(URL, url.as_str())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// One of the programs. Without the others it has nothing to do.
#[test]
fn member() {
    let (Some(dir), Some(url)) = (std::env::var_os(DIR), std::env::var_os(URL)) else { return };
    let url = Url::parse(url.to_str().unwrap()).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(async move {
        let store: Arc<dyn TokenStore> =
            Arc::new(FileTokenStore::new(Path::new(&dir).join("tokens")));
        let who = Authorizer::new(&url, settings(), store, None).unwrap();
        let tasks = (0..N_TASKS)
            .map(|n| work(Arc::clone(&who), url.clone(), Path::new(&dir).join("stop"), n));
        futures_util::future::join_all(tasks).await;
        who.wait_idle().await;
    });
}

/// Calls until it is told to stop. Any failure ends the program, and so the test.
async fn work(who: Arc<Authorizer>, url: Url, stop: std::path::PathBuf, n: usize) {
    let end = Instant::now() + LONGEST;
    let pause = Duration::from_millis(20 + u64::try_from(n).unwrap());
    while !stop.exists() && Instant::now() < end {
        let sent = match who.at_hand() {
            AtHand::Nothing => None,
            AtHand::Ready(token) => Some(token),
            AtHand::Ask => who.obtain().await.unwrap(),
        };
        // One in ten also uses what it got.
        if n.is_multiple_of(10) {
            let (status, challenges) = exchange(url.as_str(), sent.as_ref(), "tools/list").await;
            let operation = ("tools/list", None);
            let rebuff = Rebuff { status, challenges: &challenges, sent: sent.as_ref(), operation };
            if status != 200 {
                who.rebuffed(rebuff).await.unwrap();
            }
        }
        tokio::time::sleep(pause).await;
    }
}
