//! The product's own settings for logging in, filled with what a scenario hands out.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context as _, Result, bail};
use toolrack_auth::{
    Audience, AuthSettings, Authorizer, ClientAuth, Grant, IdentityProvider, MemoryTokenStore,
    PreRegisteredClient, Secret, SigningAlgorithm, SystemBrowser, UrlOpener,
};
use url::Url;

use crate::settings::{Given, Settings};

/// The document that the suites know our client by.
const METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";

pub(crate) fn authorizer(settings: &Settings) -> Result<Arc<Authorizer>> {
    let given = &settings.given;
    let auth = AuthSettings {
        client_metadata_url: Some(METADATA_URL.parse()?),
        pre_registered: given.client_id.as_ref().map(|client_id| PreRegisteredClient {
            client_id: client_id.clone(),
            client_secret: given.client_secret.as_deref().map(Secret::from),
            issuer: given.issuer.clone(),
        }),
        grant: grant(&settings.scenario, given)?,
        ..AuthSettings::default()
    };
    let browser = Arc::new(SystemBrowser::new(opener()));
    let store = Arc::new(MemoryTokenStore::new());
    Authorizer::new(&settings.url, auth, store, Some(browser)).context("the login cannot be set up")
}

fn grant(scenario: &str, given: &Given) -> Result<Grant> {
    if let Some(key) = &given.private_key_pem {
        let algorithm = match given.signing_algorithm.as_deref() {
            Some("ES256") | None => SigningAlgorithm::Es256,
            Some("ES384") => SigningAlgorithm::Es384,
            Some("RS256") => SigningAlgorithm::Rs256,
            Some(other) => bail!("no algorithm `{other}`"),
        };
        let (key, audience) = (Secret::from(key.as_str()), Audience::Issuer);
        let auth = ClientAuth::PrivateKeyJwt { key, algorithm, audience };
        return Ok(Grant::ClientCredentials { auth });
    }
    if let (Some(endpoint), Some(token)) = (&given.idp_token_endpoint, &given.idp_id_token) {
        return Ok(Grant::EnterpriseManaged(IdentityProvider {
            token_endpoint: endpoint.parse()?,
            client_id: given.idp_client_id.clone().unwrap_or_default(),
            client_secret: None,
            id_token: Arc::new(Secret::from(token.as_str())),
        }));
    }
    Ok(match scenario {
        "auth/client-credentials-basic" => Grant::ClientCredentials { auth: ClientAuth::Basic },
        _ => Grant::AuthorizationCode,
    })
}

const PATIENCE: Duration = Duration::from_secs(10);
const MAX_PAGES: usize = 5;
const MAX_PAGE_BYTES: u64 = 64 << 10;

pub(crate) fn opener() -> UrlOpener {
    Arc::new(|url: &Url| {
        let url = url.clone();
        thread::Builder::new().spawn(move || {
            visit(url).unwrap_or_else(|error| crate::complain(&format!("browser: {error}")));
        })?;
        Ok(())
    })
}

fn visit(mut url: Url) -> io::Result<()> {
    for _ in 0..MAX_PAGES {
        let Some(next) = load(&url)? else { return Ok(()) };
        url = url.join(&next).map_err(io::Error::other)?;
    }
    Err(io::Error::other("too many redirects"))
}

/// Loads a page and gives where it sends the visitor.
fn load(url: &Url) -> io::Result<Option<String>> {
    let host = url.host_str().unwrap_or("localhost");
    let port = url.port_or_known_default().unwrap_or(80);
    let mut stream = TcpStream::connect((host, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
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
