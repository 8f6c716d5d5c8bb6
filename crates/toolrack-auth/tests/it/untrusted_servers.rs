//! Servers that must not be trusted: each row fails if its check is removed.

use std::sync::Arc;
use std::time::Duration;

use toolrack_auth::{AuthSettings, Browser};
use toolrack_testkit::oauth::{Fault, Role};

use crate::fixture::{Fixture, authorizer, call, kind, test_browser};

/// The call to the misbehaving server fails with this kind of error, and sends no request to these paths.
async fn check(faults: &[Fault], expected: &str, never: &[&str]) -> (Fixture, String) {
    let fixture = Fixture::new(faults);
    let error = fixture.call("tools/list").await.unwrap_err();
    assert_eq!(kind(&error), expected, "{faults:?}: {error}");
    for path in never {
        assert_eq!(fixture.requests_to(path), [], "{faults:?}");
    }
    (fixture, error.to_string())
}

const PAGE: &str = "/authorize";
const TOKEN: &str = "/token";
const REGISTER: &str = "/register";

#[tokio::test]
async fn untrusted_resource_metadata_is_rejected() {
    let nowhere = [REGISTER, PAGE, TOKEN, "/.well-known/oauth-authorization-server"];
    check(&[Fault::DescriptionPrivate], "untrusted", &nowhere).await;
    check(&[Fault::ServerPrivate], "untrusted", &nowhere).await;
    check(&[Fault::ServerPlain], "untrusted", &nowhere).await;
    check(&[Fault::NoServers], "untrusted", &nowhere).await;
    check(&[Fault::ResourceOther], "untrusted", &nowhere).await;
}

#[tokio::test]
async fn untrusted_server_metadata_is_rejected() {
    let nowhere = [REGISTER, PAGE, TOKEN];
    check(&[Fault::IssuerOther], "untrusted", &nowhere).await;
    check(&[Fault::IssuerNormalized], "untrusted", &nowhere).await;
    check(&[Fault::NoS256], "untrusted", &nowhere).await;
    check(&[Fault::NoPkceWord], "untrusted", &nowhere).await;
    check(&[Fault::TokenPlain], "untrusted", &nowhere).await;
    check(&[Fault::TokenPrivate], "untrusted", &nowhere).await;
    check(&[Fault::RegistrationPrivate], "untrusted", &nowhere).await;
    check(&[Fault::PageScript], "untrusted", &nowhere).await;
    check(&[Fault::MetadataHuge], "untrusted", &nowhere).await;
}

#[tokio::test]
async fn missing_server_metadata_is_an_error() {
    let nowhere = [REGISTER, PAGE, TOKEN];
    check(&[Fault::MetadataDown], "unreachable", &nowhere).await;
    check(&[Fault::NoMetadata], "unreachable", &nowhere).await;
    let (fixture, _) = check(&[Fault::MetadataRedirect], "unreachable", &nowhere).await;
    assert_eq!(fixture.requests_at(Role::Second), [], "a redirect was followed");
    check(&[Fault::NoRegistration], "unregistered", &nowhere).await;
    let (_, text) = check(&[Fault::RegistrationRefused], "unregistered", &[PAGE, TOKEN]).await;
    assert!(text.contains("invalid_redirect_uri"), "{text}");
}

#[tokio::test]
async fn redirect_from_another_issuer_is_rejected() {
    for fault in [Fault::IssMissing, Fault::IssWrong, Fault::IssSlash] {
        let (fixture, _) = check(&[fault], "untrusted", &[TOKEN]).await;
        assert_eq!(fixture.requests_to(PAGE).len(), 1, "{fault:?}");
    }
    let (_, text) = check(&[Fault::AccessDenied], "refused", &[TOKEN]).await;
    assert!(text.contains("said no"), "{text}");
    let (_, text) = check(&[Fault::AccessDenied, Fault::IssWrong], "untrusted", &[TOKEN]).await;
    assert!(!text.contains("said no") && !text.contains("access_denied"), "{text}");
}

#[tokio::test]
async fn redirect_with_another_state_is_ignored() {
    let fixture = Fixture::new(&[Fault::StateWrong]);
    let browser: Arc<dyn Browser> = Arc::new(test_browser(&fixture.pages, Duration::from_secs(1)));
    let settings = AuthSettings::default();
    let impatient = authorizer(&fixture.server, settings, &fixture.store, Some(browser));
    let error = call(&fixture.server.url(), &impatient, "tools/list").await.unwrap_err();
    assert_eq!(kind(&error), "login needed");
    assert_eq!(fixture.requests_to(TOKEN), []);
    let pages = fixture.pages.lock().unwrap().clone();
    assert!(pages.iter().all(|page| page.starts_with("HTTP/1.1 400")), "{pages:?}");
}

#[tokio::test]
async fn non_bearer_token_is_rejected() {
    let (fixture, _) = check(&[Fault::TokenType], "untrusted", &[]).await;
    assert_eq!(fixture.server.stats().calls, 0);
}

#[tokio::test]
async fn always_unauthorized_server_is_given_up() {
    let (fixture, _) = check(&[Fault::AlwaysUnauthorized], "forbidden", &[]).await;
    assert_eq!(fixture.server.stats().logins, 1);
    let again = fixture.call("tools/list").await.unwrap_err();
    assert_eq!(kind(&again), "forbidden");
    assert_eq!((fixture.server.stats().logins, fixture.server.stats().refreshes), (1, 0));
    // Other operations may try, but not endlessly.
    let mut last = String::new();
    for n in 0..8 {
        last = kind(&fixture.call(&format!("method/{n}")).await.unwrap_err()).to_owned();
    }
    assert!(fixture.server.stats().logins <= 6, "{:?}", fixture.server.stats());
    assert!(["forbidden", "login needed"].contains(&last.as_str()), "{last}");
}

#[tokio::test]
async fn forbidden_stays_forbidden() {
    let fixture = Fixture::new(&[Fault::Forbidden]);
    fixture.call("tools/list").await.unwrap();
    let error = fixture.call("tools/call").await.unwrap_err();
    assert_eq!((kind(&error), fixture.server.stats().logins), ("forbidden", 1));
}
