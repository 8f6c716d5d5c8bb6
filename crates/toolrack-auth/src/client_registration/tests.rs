//! Client selection for combinations of settings, metadata and earlier registrations.

use url::Url;

use super::*;
use crate::stored_credentials::ClientBinding;

const ISSUER: &str = "https://a";
const REDIRECT: &str = "http://127.0.0.1:1/callback";

fn registered(redirect_uri: &str, secret_expires_at: Option<u64>) -> Client {
    let redirect_uri = Some(redirect_uri.to_owned());
    Client { redirect_uri, secret_expires_at, ..Client::public("given") }
}

fn pre_registered(issuer: Option<&str>) -> AuthSettings {
    let issuer = issuer.map(str::to_owned);
    let client = PreRegisteredClient {
        client_id: "pre".to_owned(),
        client_secret: Some(Secret::new("s3cret")),
        issuer,
    };
    AuthSettings { pre_registered: Some(client), ..Default::default() }
}

fn with_document() -> AuthSettings {
    let url = Url::parse("https://h/client.json").unwrap();
    AuthSettings { client_metadata_url: Some(url), ..Default::default() }
}

/// What the metadata offers: `d` for documents, `r` for registration.
fn metadata(offers: &str) -> ServerMetadata {
    ServerMetadata {
        issuer: ISSUER.to_owned(),
        client_id_metadata_document_supported: offers.contains('d'),
        registration_endpoint: offers.contains('r').then(|| "https://a/register".to_owned()),
        ..Default::default()
    }
}

#[track_caller]
fn check(
    settings: &AuthSettings,
    offers: &str,
    memory: (Option<&str>, Option<&Client>),
    expected: &str,
) {
    let (bound, known) = memory;
    let bind =
        |issuer: &str| ClientBinding { client_id: "pre".to_owned(), issuer: issuer.to_owned() };
    let credentials = StoredCredentials {
        server: None,
        client_binding: bound.map(bind),
        clients: known.map(|client| (ISSUER.to_owned(), client.clone())).into_iter().collect(),
        ..Default::default()
    };
    let found = match choose_client(settings, &metadata(offers), &credentials, REDIRECT, 100) {
        Ok(Some(client)) => client.id,
        Ok(None) => "register".to_owned(),
        Err(AuthError::Untrusted { .. }) => "untrusted".to_owned(),
        Err(AuthError::Unregistered { .. }) => "ask".to_owned(),
        Err(other) => panic!("{other:?}"),
    };
    assert_eq!(found, expected);
}

#[test]
fn client_selection_order() {
    let plain = AuthSettings::default();
    check(&pre_registered(None), "dr", (None, None), "pre");
    check(&with_document(), "dr", (None, None), "https://h/client.json");
    check(&with_document(), "r", (None, None), "register");
    check(&plain, "dr", (None, None), "register");
    check(&plain, "", (None, None), "ask");
}

#[test]
fn registration_is_reused_while_valid() {
    let plain = AuthSettings::default();
    check(&plain, "r", (None, Some(&registered(REDIRECT, None))), "given");
    check(&plain, "r", (None, Some(&registered(REDIRECT, Some(101)))), "given");
    check(&plain, "r", (None, Some(&registered(REDIRECT, Some(100)))), "register");
    check(&plain, "r", (None, Some(&registered("http://127.0.0.1:2/callback", None))), "register");
    check(
        &with_document(),
        "dr",
        (None, Some(&registered(REDIRECT, None))),
        "https://h/client.json",
    );
}

#[test]
fn pre_registered_client_is_bound_to_its_issuer() {
    check(&pre_registered(Some(ISSUER)), "r", (None, None), "pre");
    check(&pre_registered(Some("https://a/")), "r", (None, None), "untrusted");
    check(&pre_registered(Some("https://old")), "r", (None, None), "untrusted");
    check(&pre_registered(None), "r", (Some("https://old"), None), "untrusted");
    check(&pre_registered(None), "r", (Some(ISSUER), None), "pre");
}

#[test]
fn auth_method_is_as_registered_or_first_supported() {
    let check = |secret: bool, agreed: Option<&str>, supported: Option<&[&str]>, expected| {
        let secret = secret.then(|| Secret::new("s3cret"));
        let registered = agreed.map(str::to_owned);
        let client = Client { secret, auth_method: registered, ..Client::public("c") };
        let list: Option<Vec<String>> =
            supported.map(|list| list.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(auth_method(&client, list.as_deref()).ok(), expected);
    };
    check(false, None, None, Some(AuthMethod::None));
    check(true, None, None, Some(AuthMethod::Basic));
    check(
        true,
        None,
        Some(&["client_secret_post", "client_secret_basic"]),
        Some(AuthMethod::Basic),
    );
    check(true, None, Some(&["client_secret_post", "none"]), Some(AuthMethod::Post));
    check(true, None, Some(&["none"]), Some(AuthMethod::None));
    check(true, None, Some(&["private_key_jwt"]), None);
    check(true, Some("client_secret_post"), Some(&["client_secret_basic"]), Some(AuthMethod::Post));
    check(true, Some("private_key_jwt"), Some(&["client_secret_basic"]), Some(AuthMethod::Basic));
    check(
        false,
        Some("client_secret_basic"),
        Some(&["client_secret_basic"]),
        Some(AuthMethod::None),
    );
}

#[test]
fn registration_prefers_no_client_secret() {
    let check = |supported: Option<&[&str]>, expected| {
        let list: Option<Vec<String>> =
            supported.map(|list| list.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(auth_method_to_register(list.as_deref()), expected);
    };
    check(None, "none");
    check(Some(&["client_secret_basic", "none"]), "none");
    check(Some(&["client_secret_post", "client_secret_basic"]), "client_secret_basic");
    check(Some(&["client_secret_post"]), "client_secret_post");
}
