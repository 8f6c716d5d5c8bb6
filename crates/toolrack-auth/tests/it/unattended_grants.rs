//! Grants without a user: client credentials and enterprise-managed authorization.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use toolrack_auth::{
    Audience, AuthSettings, ClientAuth, Grant, IdentityProvider, MemoryTokenStore, Secret,
    SigningAlgorithm, TokenStore,
};
use toolrack_testkit::oauth::{Fault, OAuthPlan, OAuthServer};
use url::Url;

use crate::fixture::{authorizer, call, kind, plan, pre_registered};

fn plan_with_client(faults: &[Fault]) -> OAuthPlan {
    OAuthPlan { clients: vec![("me".to_owned(), "pw".to_owned())], ..plan(faults) }
}

/// Calls twice; the first token expires in between.
async fn call_twice(
    server: &OAuthServer,
    settings: AuthSettings,
) -> Result<u32, toolrack_transport::AuthError> {
    let store: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::default());
    let authorizer = authorizer(server, settings, &store, None);
    call(&server.url(), &authorizer, "tools/list").await?;
    server.expire_all();
    call(&server.url(), &authorizer, "tools/list").await?;
    Ok(server.stats().non_interactive)
}

#[tokio::test]
async fn client_credentials_with_secret() {
    let grant = Grant::ClientCredentials { auth: ClientAuth::Basic };
    let settings = AuthSettings { grant, ..pre_registered("me", "pw", None) };
    let server = OAuthServer::start(plan_with_client(&[])).unwrap();
    assert_eq!(call_twice(&server, settings.clone()).await, Ok(2));
    let seen = server.requests();
    let requests_to: Vec<_> = seen.iter().filter(|request| request.path == "/token").collect();
    assert_eq!(requests_to[0].get("scope"), Some("mcp:basic"));
    assert_eq!(requests_to[0].get("resource"), Some(server.url().as_str()));
    assert!(seen.iter().all(|request| request.path != "/authorize" && request.path != "/register"));

    let server = OAuthServer::start(plan_with_client(&[Fault::SignedOnly])).unwrap();
    assert_eq!(kind(&call_twice(&server, settings).await.unwrap_err()), "refused");
    assert_eq!(server.stats().non_interactive, 0);
}

#[tokio::test]
async fn client_credentials_with_private_key_jwt() {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random).unwrap();
    let body = STANDARD.encode(der.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    let settings = |audience| {
        let key = Secret::new(pem.clone());
        let auth = ClientAuth::PrivateKeyJwt { key, algorithm: SigningAlgorithm::Es256, audience };
        AuthSettings { grant: Grant::ClientCredentials { auth }, ..pre_registered("me", "", None) }
    };
    let signed = || OAuthPlan {
        public_key: Some(pair.public_key().as_ref().to_vec()),
        ..plan(&[Fault::SignedOnly])
    };
    let server = OAuthServer::start(signed()).unwrap();
    assert_eq!(call_twice(&server, settings(Audience::Issuer)).await, Ok(2));
    let seen = server.requests();
    let token = seen.iter().find(|request| request.path == "/token").unwrap();
    assert_eq!((token.get("client_id"), token.authorization.as_deref()), (None, None));

    let server = OAuthServer::start(signed()).unwrap();
    let elsewhere = settings(Audience::Other("https://other.example".to_owned()));
    assert_eq!(kind(&call_twice(&server, elsewhere).await.unwrap_err()), "refused");
}

#[tokio::test]
async fn enterprise_managed_authorization() {
    let settings = |server: &OAuthServer| {
        let identity_provider = IdentityProvider {
            token_endpoint: Url::parse(&server.idp_token_endpoint()).unwrap(),
            client_id: "company".to_owned(),
            client_secret: None,
            id_token: Arc::new(Secret::new("id-token-s3cret")),
        };
        AuthSettings {
            grant: Grant::EnterpriseManaged(identity_provider),
            ..pre_registered("me", "pw", None)
        }
    };
    let server = OAuthServer::start(plan_with_client(&[])).unwrap();
    assert_eq!(call_twice(&server, settings(&server)).await, Ok(2));
    let seen = server.requests();
    assert!(seen.iter().all(|request| request.path != "/authorize" && request.path != "/register"));
    let exchange = seen.iter().find(|request| request.path == "/idp/token").unwrap();
    assert_eq!(exchange.get("client_id"), Some("company"));

    let server = OAuthServer::start(plan_with_client(&[Fault::ExchangeOther])).unwrap();
    assert_eq!(kind(&call_twice(&server, settings(&server)).await.unwrap_err()), "untrusted");
    assert_eq!(server.stats().non_interactive, 0);
}

#[tokio::test]
async fn client_credentials_are_not_sent_to_a_new_issuer() {
    let grant = Grant::ClientCredentials { auth: ClientAuth::Basic };
    let settings = AuthSettings { grant, ..pre_registered("me", "pw", None) };
    let server = OAuthServer::start(plan_with_client(&[])).unwrap();
    let store: Arc<dyn TokenStore> = Arc::new(MemoryTokenStore::default());
    let authorizer = authorizer(&server, settings, &store, None);
    call(&server.url(), &authorizer, "tools/list").await.unwrap();
    server.add_fault(Fault::Migrated);
    let error = call(&server.url(), &authorizer, "tools/list").await.unwrap_err();
    assert_eq!(kind(&error), "untrusted");
}
