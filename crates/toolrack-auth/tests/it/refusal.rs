//! Everything that must not be trusted, and is not: each row fails when its check is taken out.

use std::sync::Arc;
use std::time::Duration;

use toolrack_auth::{AuthSettings, Browser};
use toolrack_testkit::oauth::{Fault, Role};

use crate::stage::{Stage, authorizer, call, kind, person};

/// The server misbehaves; the call fails in this way, and none of these paths was asked for.
async fn check(faults: &[Fault], expected: &str, never: &[&str]) -> (Stage, String) {
    let stage = Stage::new(faults);
    let error = stage.call("tools/list").await.unwrap_err();
    assert_eq!(kind(&error), expected, "{faults:?}: {error}");
    for path in never {
        assert_eq!(stage.asked(path), [], "{faults:?}");
    }
    (stage, error.to_string())
}

const PAGE: &str = "/authorize";
const TOKEN: &str = "/token";
const REGISTER: &str = "/register";

#[tokio::test]
async fn a_description_that_cannot_be_trusted() {
    let nowhere = [REGISTER, PAGE, TOKEN, "/.well-known/oauth-authorization-server"];
    check(&[Fault::DescriptionPrivate], "untrusted", &nowhere).await;
    check(&[Fault::ServerPrivate], "untrusted", &nowhere).await;
    check(&[Fault::ServerPlain], "untrusted", &nowhere).await;
    check(&[Fault::NoServers], "untrusted", &nowhere).await;
    check(&[Fault::ResourceOther], "untrusted", &nowhere).await;
}

#[tokio::test]
async fn metadata_that_cannot_be_trusted() {
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
async fn metadata_that_is_not_there() {
    let nowhere = [REGISTER, PAGE, TOKEN];
    check(&[Fault::MetadataDown], "unreachable", &nowhere).await;
    check(&[Fault::NoMetadata], "unreachable", &nowhere).await;
    let (stage, _) = check(&[Fault::MetadataRedirect], "unreachable", &nowhere).await;
    assert_eq!(stage.asked_at(Role::Second), [], "a redirect was followed");
    check(&[Fault::NoRegistration], "unregistered", &nowhere).await;
    let (_, said) = check(&[Fault::RegistrationRefused], "unregistered", &[PAGE, TOKEN]).await;
    assert!(said.contains("invalid_redirect_uri"), "{said}");
}

#[tokio::test]
async fn a_redirect_from_somebody_else() {
    for fault in [Fault::IssMissing, Fault::IssWrong, Fault::IssSlash] {
        let (stage, _) = check(&[fault], "untrusted", &[TOKEN]).await;
        assert_eq!(stage.asked(PAGE).len(), 1, "{fault}");
    }
    let (_, said) = check(&[Fault::AccessDenied], "refused", &[TOKEN]).await;
    assert!(said.contains("said no"), "{said}");
    let (_, said) = check(&[Fault::AccessDenied, Fault::IssWrong], "untrusted", &[TOKEN]).await;
    assert!(!said.contains("said no") && !said.contains("access_denied"), "{said}");
}

#[tokio::test]
async fn a_redirect_with_another_state_does_not_end_the_login() {
    let stage = Stage::new(&[Fault::StateWrong]);
    let browser: Arc<dyn Browser> = Arc::new(person(&stage.pages, Duration::from_secs(1)));
    let settings = AuthSettings::default();
    let hasty = authorizer(&stage.server, settings, &stage.store, Some(browser));
    let error = call(&stage.server.url(), &hasty, "tools/list").await.unwrap_err();
    assert_eq!(kind(&error), "login needed");
    assert_eq!(stage.asked(TOKEN), []);
    let pages = stage.pages.lock().unwrap().clone();
    assert!(pages.iter().all(|it| it.starts_with("HTTP/1.1 400")), "{pages:?}");
}

#[tokio::test]
async fn a_token_that_is_none() {
    let (stage, _) = check(&[Fault::TokenType], "untrusted", &[]).await;
    assert_eq!(stage.server.stats().calls, 0);
}

#[tokio::test]
async fn a_server_that_lets_nobody_in_is_not_asked_for_ever() {
    let (stage, _) = check(&[Fault::AlwaysUnauthorized], "forbidden", &[]).await;
    assert_eq!(stage.server.stats().logins, 1);
    let again = stage.call("tools/list").await.unwrap_err();
    assert_eq!(kind(&again), "forbidden");
    assert_eq!((stage.server.stats().logins, stage.server.stats().refreshes), (1, 0));
    // Other operations may try, but not without end.
    let mut last = String::new();
    for n in 0..8 {
        last = kind(&stage.call(&format!("method/{n}")).await.unwrap_err()).to_owned();
    }
    assert!(stage.server.stats().logins <= 6, "{:?}", stage.server.stats());
    assert!(["forbidden", "login needed"].contains(&last.as_str()), "{last}");
}

#[tokio::test]
async fn what_is_forbidden_stays_forbidden() {
    let stage = Stage::new(&[Fault::Forbidden]);
    stage.call("tools/list").await.unwrap();
    let error = stage.call("tools/call").await.unwrap_err();
    assert_eq!((kind(&error), stage.server.stats().logins), ("forbidden", 1));
}
