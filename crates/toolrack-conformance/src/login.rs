//! OAuth login for the conformance client: settings from the scenario, and a browser without a window.
//!
//! The login pages of the harness redirect at once, so the redirect reaches the product's own listener as it does
//! with a real browser.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use toolrack_auth::{
    Audience, AuthSettings, Authorizer, ClientAuth, Grant, IdentityProvider, MemoryTokenStore,
    PreRegisteredClient, Secret, SigningAlgorithm, SystemBrowser, UrlOpener,
};
use url::Url;

use crate::settings::{ScenarioContext, Settings};

/// Client ID metadata document that the suites expect.
const METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";

pub(crate) fn authorizer(settings: &Settings) -> Result<Arc<Authorizer>> {
    let context = &settings.context;
    let auth = AuthSettings {
        client_metadata_url: Some(METADATA_URL.parse()?),
        pre_registered: context.client_id.as_ref().map(|client_id| PreRegisteredClient {
            client_id: client_id.clone(),
            client_secret: context.client_secret.as_deref().map(Secret::from),
            issuer: context.issuer.clone(),
        }),
        grant: grant(&settings.scenario, context)?,
        ..AuthSettings::default()
    };
    let browser = Arc::new(SystemBrowser::new(headless_browser()));
    let store = Arc::new(MemoryTokenStore::default());
    Authorizer::new(&settings.url, auth, store, Some(browser)).context("cannot set up the login")
}

fn grant(scenario: &str, context: &ScenarioContext) -> Result<Grant> {
    if let Some(key) = &context.private_key_pem {
        let algorithm = match context.signing_algorithm.as_deref() {
            Some("ES256") | None => SigningAlgorithm::Es256,
            Some("ES384") => SigningAlgorithm::Es384,
            Some("RS256") => SigningAlgorithm::Rs256,
            Some(other) => bail!("unknown algorithm `{other}`"),
        };
        let (key, audience) = (Secret::from(key.as_str()), Audience::Issuer);
        let auth = ClientAuth::PrivateKeyJwt { key, algorithm, audience };
        return Ok(Grant::ClientCredentials { auth });
    }
    if let (Some(endpoint), Some(token)) = (&context.idp_token_endpoint, &context.idp_id_token) {
        return Ok(Grant::EnterpriseManaged(IdentityProvider {
            token_endpoint: endpoint.parse()?,
            client_id: context.idp_client_id.clone().unwrap_or_default(),
            client_secret: None,
            id_token: Arc::new(Secret::from(token.as_str())),
        }));
    }
    Ok(match scenario {
        "auth/client-credentials-basic" => Grant::ClientCredentials { auth: ClientAuth::Basic },
        _ => Grant::AuthorizationCode,
    })
}

const READ_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
const MAX_PAGE_BYTES: u64 = 64 << 10;

pub(crate) fn headless_browser() -> UrlOpener {
    Arc::new(|url: &Url| {
        let url = url.clone();
        thread::Builder::new().spawn(move || {
            follow_redirects(url)
                .unwrap_or_else(|error| crate::print_error(&format!("browser: {error}")));
        })?;
        Ok(())
    })
}

fn follow_redirects(mut url: Url) -> io::Result<()> {
    for _ in 0..MAX_REDIRECTS {
        let Some(next) = load(&url)? else { return Ok(()) };
        url = url.join(&next).map_err(io::Error::other)?;
    }
    Err(io::Error::other("too many redirects"))
}

/// Loads a page and returns its `Location` header.
fn load(url: &Url) -> io::Result<Option<String>> {
    let host = url.host_str().unwrap_or("localhost");
    let port = url.port_or_known_default().unwrap_or(80);
    let mut stream = TcpStream::connect((host, port))?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let target =
        url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    stream.take(MAX_PAGE_BYTES).read_to_end(&mut page)?;
    let page = String::from_utf8_lossy(&page);
    let head = page.split("\r\n\r\n").next().unwrap_or_default();
    let location = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    Ok(location)
}
