//! The product's own settings for logging in, filled with what a scenario hands out.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use toolrack_auth::{
    SigningAlgorithm, Audience, AuthSettings, Authorizer, ClientAuth, IdentityProvider, Grant,
    MemoryTokenStore, PreRegisteredClient, Secret, SystemBrowser,
};

use crate::browser::opener;
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
