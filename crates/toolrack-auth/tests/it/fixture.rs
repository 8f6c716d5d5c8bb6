//! Fixture: an OAuth server, an authorizer with a test browser, and calls that behave like a transport.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use toolrack_auth::{
    AuthSettings, Authorizer, Browser, MemoryTokenStore, PreRegisteredClient, Secret,
    SystemBrowser, TokenStore,
};
use toolrack_testkit::oauth::{
    Fault, OAuthPlan, OAuthServer, RecordedRequest, Role, follow_redirects,
};
use toolrack_transport::{
    AuthChallenge, AuthError, Authorization, CachedCredential, Credentials as _,
};
use url::Url;

/// A server and an authorizer for it.
pub(crate) struct Fixture {
    pub(crate) server: OAuthServer,
    pub(crate) store: Arc<dyn TokenStore>,
    pub(crate) authorizer: Arc<Authorizer>,
    /// The page shown after each login.
    pub(crate) pages: Pages,
}

type Pages = Arc<Mutex<Vec<String>>>;

impl Fixture {
    /// With default settings.
    pub(crate) fn new(faults: &[Fault]) -> Self {
        Self::with(plan(faults), AuthSettings::default())
    }

    pub(crate) fn with(plan: OAuthPlan, settings: AuthSettings) -> Self {
        let server = OAuthServer::start(plan).unwrap();
        let store: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::default());
        let pages = Pages::default();
        let browser: Arc<dyn Browser> = Arc::new(test_browser(&pages, Duration::from_secs(20)));
        let authorizer = authorizer(&server, settings, &store, Some(browser));
        Self { server, store, authorizer, pages }
    }

    /// One call, sent as often as a transport would send it.
    pub(crate) async fn call(&self, method: &str) -> Result<(), AuthError> {
        call(&self.server.url(), &self.authorizer, method).await
    }

    /// Another process with the same store and without a browser.
    pub(crate) fn another_process(&self, settings: AuthSettings) -> Arc<Authorizer> {
        authorizer(&self.server, settings, &self.store, None)
    }

    /// Every request for a path, to any role.
    pub(crate) fn requests_to(&self, path: &str) -> Vec<RecordedRequest> {
        self.server.requests().into_iter().filter(|request| request.path == path).collect()
    }

    pub(crate) fn requests_at(&self, role: Role) -> Vec<RecordedRequest> {
        self.server.requests().into_iter().filter(|request| request.role == role).collect()
    }
}

pub(crate) fn plan(faults: &[Fault]) -> OAuthPlan {
    OAuthPlan { faults: faults.to_vec(), ..OAuthPlan::default() }
}

pub(crate) fn authorizer(
    server: &OAuthServer,
    settings: AuthSettings,
    store: &Arc<dyn TokenStore>,
    browser: Option<Arc<dyn Browser>>,
) -> Arc<Authorizer> {
    let url = Url::parse(&server.url()).unwrap();
    Authorizer::new(&url, settings, Arc::clone(store), browser).unwrap()
}

/// A browser that opens every URL; the server grants access at once.
pub(crate) fn test_browser(pages: &Pages, timeout_after: Duration) -> SystemBrowser {
    let pages = Arc::clone(pages);
    let opener = move |url: &Url| {
        let (url, pages) = (url.to_string(), Arc::clone(&pages));
        thread::spawn(move || {
            let page = follow_redirects(&url).unwrap_or_default();
            pages.lock().unwrap().push(page);
        });
        Ok(())
    };
    SystemBrowser { login_timeout: timeout_after, ..SystemBrowser::new(Arc::new(opener)) }
}

pub(crate) fn pre_registered(id: &str, secret: &str, issuer: Option<&str>) -> AuthSettings {
    let client = PreRegisteredClient {
        client_id: id.to_owned(),
        client_secret: Some(secret).filter(|secret| !secret.is_empty()).map(Secret::from),
        issuer: issuer.map(str::to_owned),
    };
    AuthSettings { pre_registered: Some(client), ..AuthSettings::default() }
}

/// Sends a request as a transport does: with the cached credential, and again while the credentials allow it.
pub(crate) async fn call(
    url: &str,
    authorizer: &Authorizer,
    method: &str,
) -> Result<(), AuthError> {
    for _attempt in 0..6 {
        let sent = match authorizer.cached() {
            CachedCredential::None => None,
            CachedCredential::Ready(token) => Some(token),
            CachedCredential::Obtain => authorizer.obtain().await?,
        };
        let (status, challenges) = exchange(url, sent.as_ref(), method).await;
        if status == 200 {
            return Ok(());
        }
        let operation = (method, None);
        let challenge =
            AuthChallenge { status, challenges: &challenges, sent: sent.as_ref(), operation };
        authorizer.on_challenge(challenge).await?;
    }
    panic!("sent again without end");
}

/// One request: its status and challenges.
pub(crate) async fn exchange(
    url: &str,
    token: Option<&Authorization>,
    method: &str,
) -> (u16, Vec<String>) {
    let url = Url::parse(url).unwrap();
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    let token =
        token.map(|token| format!("Authorization: {}\r\n", token.reveal())).unwrap_or_default();
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\n{token}Content-Length: {}\r\n\r\n{body}",
        url.path(),
        body.len()
    );
    let address = (url.host_str().unwrap(), url.port().unwrap());
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let challenges = answer.lines().filter_map(|line| line.strip_prefix("www-authenticate: "));
    (status, challenges.map(str::to_owned).collect())
}

/// The kind of an error.
pub(crate) fn kind(error: &AuthError) -> &'static str {
    match error {
        AuthError::LoginRequired { .. } => "login needed",
        AuthError::Forbidden { .. } => "forbidden",
        AuthError::Untrusted { .. } => "untrusted",
        AuthError::Rejected { .. } => "refused",
        AuthError::Unregistered { .. } => "unregistered",
        AuthError::Unreachable { .. } => "unreachable",
        other => panic!("{other:?}"),
    }
}
