//! OAuth login for the conformance client: settings from the scenario, and a browser without a window.
//!
//! The login pages of the harness redirect at once, so the redirect reaches the product's own listener as it does
//! with a real browser.

use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result, bail};
use toolrack_auth::{
    Audience, AuthSettings, Authorizer, ClientAuth, Grant, IdentityProvider, MemoryTokenStore,
    PreRegisteredClient, Secret, SigningAlgorithm, SystemBrowser, UrlOpener,
};
use toolrack_testkit::oauth::follow_redirects;
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

pub(crate) fn headless_browser() -> UrlOpener {
    Arc::new(|url: &Url| {
        let url = url.clone();
        thread::Builder::new().spawn(move || {
            if let Err(error) = follow_redirects(url.as_str()) {
                crate::print_error(&format!("browser: {error}"));
            }
        })?;
        Ok(())
    })
}
