//! What every test needs: a server, somebody who logs in there, and calls that behave like a line.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use toolrack_auth::{
    AuthSettings, Authorizer, Browser, MemoryTokenStore, PreRegisteredClient, Secret,
    SystemBrowser, TokenStore,
};
use toolrack_testkit::oauth::{Fault, OAuthPlan, OAuthServer, Role, Seen, visit};
use toolrack_transport::{AtHand, AuthError, Authorization, Credentials as _, Rebuff};
use url::Url;

/// A server and somebody who wants in.
pub(crate) struct Stage {
    pub(crate) server: OAuthServer,
    pub(crate) store: Arc<dyn TokenStore>,
    pub(crate) authorizer: Arc<Authorizer>,
    /// What the person saw after each login.
    pub(crate) pages: Pages,
}

type Pages = Arc<Mutex<Vec<String>>>;

impl Stage {
    /// With the settings that everybody has.
    pub(crate) fn new(faults: &[Fault]) -> Self {
        Self::with(plan(faults), AuthSettings::default())
    }

    pub(crate) fn with(plan: OAuthPlan, settings: AuthSettings) -> Self {
        let server = OAuthServer::start(plan).unwrap();
        let store: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::new());
        let pages = Pages::default();
        let browser: Arc<dyn Browser> = Arc::new(person(&pages, Duration::from_secs(20)));
        let authorizer = authorizer(&server, settings, &store, Some(browser));
        Self { server, store, authorizer, pages }
    }

    /// One call, sent as often as a line would send it.
    pub(crate) async fn call(&self, method: &str) -> Result<(), AuthError> {
        call(&self.server.url(), &self.authorizer, method).await
    }

    /// Another program with the same store and nobody at its screen.
    pub(crate) fn another(&self, settings: AuthSettings) -> Arc<Authorizer> {
        authorizer(&self.server, settings, &self.store, None)
    }

    /// Every request for a path, to anybody.
    pub(crate) fn asked(&self, path: &str) -> Vec<Seen> {
        self.server.seen().into_iter().filter(|it| it.path == path).collect()
    }

    pub(crate) fn asked_at(&self, role: Role) -> Vec<Seen> {
        self.server.seen().into_iter().filter(|it| it.role == role).collect()
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

/// Somebody whose browser opens every page and whose server agrees at once.
pub(crate) fn person(pages: &Pages, patience: Duration) -> SystemBrowser {
    let pages = Arc::clone(pages);
    let opener = move |url: &Url| {
        let (url, pages) = (url.to_string(), Arc::clone(&pages));
        thread::spawn(move || {
            let page = visit(&url).unwrap_or_default();
            pages.lock().unwrap().push(page);
        });
        Ok(())
    };
    SystemBrowser::new(Arc::new(opener)).with_timeout(patience)
}

pub(crate) fn pre_registered(id: &str, secret: &str, issuer: Option<&str>) -> AuthSettings {
    let client = PreRegisteredClient {
        client_id: id.to_owned(),
        client_secret: Some(secret).filter(|it| !it.is_empty()).map(Secret::from),
        issuer: issuer.map(str::to_owned),
    };
    AuthSettings { pre_registered: Some(client), ..AuthSettings::default() }
}

/// Sends a request as a line does: what is at hand, and again while the credentials say so.
pub(crate) async fn call(url: &str, who: &Authorizer, method: &str) -> Result<(), AuthError> {
    for _attempt in 0..6 {
        let sent = match who.at_hand() {
            AtHand::Nothing => None,
            AtHand::Ready(token) => Some(token),
            AtHand::Ask => who.obtain().await?,
        };
        let (status, challenges) = exchange(url, sent.as_ref(), method).await;
        if status == 200 {
            return Ok(());
        }
        let operation = (method, None);
        let rebuff = Rebuff { status, challenges: &challenges, sent: sent.as_ref(), operation };
        who.rebuffed(rebuff).await?;
    }
    panic!("sent again without end");
}

/// One request: the status and the challenges.
pub(crate) async fn exchange(
    url: &str,
    token: Option<&Authorization>,
    method: &str,
) -> (u16, Vec<String>) {
    let url = Url::parse(url).unwrap();
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    let token = token.map(|it| format!("Authorization: {}\r\n", it.reveal())).unwrap_or_default();
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
    let challenges = answer.lines().filter_map(|it| it.strip_prefix("www-authenticate: "));
    (status, challenges.map(str::to_owned).collect())
}

/// The reaction that an error calls for.
pub(crate) fn kind(error: &AuthError) -> &'static str {
    match error {
        AuthError::LoginNeeded { .. } => "login needed",
        AuthError::Forbidden { .. } => "forbidden",
        AuthError::Untrusted { .. } => "untrusted",
        AuthError::Refused { .. } => "refused",
        AuthError::Unregistered { .. } => "unregistered",
        AuthError::Unreachable { .. } => "unreachable",
        other => panic!("{other:?}"),
    }
}
