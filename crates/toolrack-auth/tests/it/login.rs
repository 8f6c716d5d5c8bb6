//! The ways in: every shape of discovery, registration and client that a server may have.

use toolrack_auth::{AuthSettings, LoginStatus, PastedRedirect};
use toolrack_testkit::oauth::{Fault, OAuthPlan, Role, visit};
use toolrack_transport::Credentials as _;
use url::Url;

use crate::stage::{Stage, authorizer, call, plan, pre_registered};

/// Gets in, and says the right resource at every step.
async fn check(faults: &[Fault]) -> Stage {
    check_with(plan(faults), AuthSettings::default()).await
}

async fn check_with(plan: OAuthPlan, settings: AuthSettings) -> Stage {
    let faults = plan.faults.clone();
    let stage = Stage::with(plan, settings);
    stage.call("tools/list").await.unwrap_or_else(|error| panic!("{faults:?}: {error}"));
    stage.server.expire_all();
    stage.call("tools/list").await.unwrap_or_else(|error| panic!("{faults:?}: {error}"));
    let stats = stage.server.stats();
    assert_eq!((stats.logins, stats.refreshes, stats.invalid_grants), (1, 1, 0), "{faults:?}");
    let published = if faults.contains(&Fault::ResourceOrigin) {
        stage.server.url().trim_end_matches("/mcp").to_owned()
    } else {
        stage.server.url()
    };
    for seen in stage.asked("/authorize").iter().chain(&stage.asked("/token")) {
        assert_eq!(seen.get("resource"), Some(published.as_str()), "{}", seen.path);
    }
    stage
}

/// The scope that the page was asked for.
fn scope(stage: &Stage) -> Option<String> {
    stage.asked("/authorize")[0].get("scope").map(str::to_owned)
}

#[tokio::test]
async fn descriptions_are_found_where_they_are() {
    let stage = check(&[]).await;
    assert_eq!(stage.asked("/.well-known/oauth-protected-resource"), []);
    check(&[Fault::NoHint]).await;
    check(&[Fault::DescriptionAtRoot]).await;
    check(&[Fault::DescriptionElsewhere]).await;
    check(&[Fault::ResourceOrigin]).await;
}

#[tokio::test]
async fn metadata_is_found_where_it_is() {
    check(&[Fault::OpenIdOnly]).await;
    check(&[Fault::IssuerSlash]).await;
    let stage = check(&[Fault::NoDescription]).await;
    let asked = stage.asked("/.well-known/oauth-authorization-server");
    assert_eq!(asked[0].version.as_deref(), Some("2025-11-25"));
    let stage = check(&[Fault::NoDescription, Fault::NoMetadata]).await;
    assert_eq!(stage.asked("/register")[0].role, Role::Resource);
}

#[tokio::test]
async fn an_issuer_that_names_itself_is_believed_if_it_is_right() {
    check(&[Fault::IssPromised]).await;
    check(&[Fault::IssUnpromised]).await;
    check(&[Fault::IssPromised, Fault::IssuerSlash]).await;
}

#[tokio::test]
async fn clients_introduce_and_prove_themselves_as_they_may() {
    let stage = check(&[]).await;
    assert_eq!(stage.server.stats().registrations, 1);
    let document = &stage.asked("/register")[0].body;
    assert!(document.contains(r#""application_type":"native""#), "{document}");
    assert!(document.contains(r#""refresh_token""#), "{document}");
    check(&[Fault::BasicOnly]).await;
    check(&[Fault::PostOnly]).await;

    let own = OAuthPlan { clients: vec![("me".to_owned(), "p:w d".to_owned())], ..plan(&[]) };
    let stage = check_with(own, pre_registered("me", "p:w d", None)).await;
    assert_eq!(stage.server.stats().registrations, 0);
    assert!(stage.asked("/token")[0].authorization.as_deref().unwrap().starts_with("Basic "));

    let id = "https://toolrack.example/client.json";
    let settings =
        AuthSettings { client_metadata_url: Some(Url::parse(id).unwrap()), ..Default::default() };
    let stage = check_with(plan(&[Fault::Documents]), settings.clone()).await;
    assert_eq!(stage.asked("/authorize")[0].get("client_id"), Some(id));
    assert_eq!(stage.server.stats().registrations, 0);
    // Where documents are not taken, there is still registration.
    let stage = check_with(plan(&[]), settings).await;
    assert_eq!(stage.server.stats().registrations, 1);
}

#[tokio::test]
async fn scopes_come_from_the_nearest_voice() {
    assert_eq!(scope(&check(&[]).await).as_deref(), Some("mcp:basic"));
    assert_eq!(scope(&check(&[Fault::ScopesListed]).await).as_deref(), Some("mcp:basic"));
    let listed = check(&[Fault::ScopesListed, Fault::NoScopeHint]).await;
    assert_eq!(scope(&listed).as_deref(), Some("mcp:basic mcp:listed"));
    assert_eq!(scope(&check(&[Fault::NoScopeHint]).await), None);
    let offline = check(&[Fault::Offline]).await;
    assert_eq!(scope(&offline).as_deref(), Some("mcp:basic offline_access"));
    let settings = AuthSettings { scopes: Some(vec!["own".to_owned()]), ..Default::default() };
    assert_eq!(scope(&check_with(plan(&[]), settings).await).as_deref(), Some("own"));
}

#[tokio::test]
async fn a_person_logs_in_and_out() {
    let stage = Stage::new(&[Fault::NoHint]);
    assert_eq!(stage.authorizer.status().await, Ok(LoginStatus::LoggedOut));
    let status = stage.authorizer.login().await.unwrap();
    let Status::LoginResult { issuer, scopes, expires_at, renewable, .. } = status.clone() else {
        panic!("{status:?}");
    };
    assert_eq!((issuer, scopes), (stage.server.issuer(), vec!["mcp:basic".to_owned()]));
    assert!(expires_at.is_some() && renewable);
    stage.call("tools/list").await.unwrap();
    assert_eq!(stage.authorizer.status().await, Ok(status));
    stage.authorizer.logout().await.unwrap();
    assert_eq!(stage.authorizer.status().await, Ok(LoginStatus::LoggedOut));
    assert_eq!(stage.authorizer.at_hand(), toolrack_transport::AtHand::Nothing);
    assert_eq!(stage.asked("/revoke").len(), 1);
    let pages = stage.pages.lock().unwrap().clone();
    assert!(pages.iter().all(|it| it.contains("Logged in")), "{pages:?}");
}

#[tokio::test]
async fn a_registration_is_used_again() {
    let stage = Stage::new(&[]);
    stage.authorizer.login().await.unwrap();
    stage.authorizer.login().await.unwrap();
    let stats = stage.server.stats();
    assert_eq!((stats.logins, stats.codes, stats.registrations), (2, 2, 1));
}

#[tokio::test]
async fn without_a_screen_the_redirect_is_pasted() {
    let stage = Stage::new(&[Fault::IssPromised]);
    let pasted = PastedRedirect::new(|errand| {
        Box::pin(async move {
            // The browser on the other machine ends on a page that nobody serves.
            let url = errand.url.to_string();
            let (sent, led) = std::sync::mpsc::channel();
            std::thread::spawn(move || sent.send(first_hop(&url)));
            Ok(led.recv().unwrap())
        })
    });
    let settings = AuthSettings::default();
    let browser = std::sync::Arc::new(pasted);
    let remote = authorizer(&stage.server, settings, &stage.store, Some(browser));
    call(&stage.server.url(), &remote, "tools/list").await.unwrap();
    assert_eq!(stage.server.stats().codes, 1);
}

/// Where a page leads at once.
fn first_hop(url: &str) -> String {
    let failed = visit(url).err();
    assert!(failed.is_some(), "somebody serves the redirect");
    let (_, answer) = toolrack_testkit::oauth::get(url).unwrap();
    let line = answer.lines().find(|it| it.starts_with("location: ")).unwrap();
    line.trim_start_matches("location: ").to_owned()
}
