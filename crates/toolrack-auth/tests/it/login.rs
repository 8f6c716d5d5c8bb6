//! Every kind of discovery, registration and client that a server may have.

use toolrack_auth::{AuthSettings, LoginStatus, PastedRedirect};
use toolrack_testkit::oauth::{Fault, OAuthPlan, Role, follow_redirects};
use toolrack_transport::Credentials as _;
use url::Url;

use crate::fixture::{Fixture, authorizer, call, plan, pre_registered};

/// Logs in, and checks the resource indicator of every request.
async fn check(faults: &[Fault]) -> Fixture {
    check_with(plan(faults), AuthSettings::default()).await
}

async fn check_with(plan: OAuthPlan, settings: AuthSettings) -> Fixture {
    let faults = plan.faults.clone();
    let fixture = Fixture::with(plan, settings);
    fixture.call("tools/list").await.unwrap_or_else(|error| panic!("{faults:?}: {error}"));
    fixture.server.expire_all();
    fixture.call("tools/list").await.unwrap_or_else(|error| panic!("{faults:?}: {error}"));
    let stats = fixture.server.stats();
    assert_eq!((stats.logins, stats.refreshes, stats.invalid_grants), (1, 1, 0), "{faults:?}");
    let published = if faults.contains(&Fault::ResourceOrigin) {
        fixture.server.url().trim_end_matches("/mcp").to_owned()
    } else {
        fixture.server.url()
    };
    for seen in fixture.requests_to("/authorize").iter().chain(&fixture.requests_to("/token")) {
        assert_eq!(seen.get("resource"), Some(published.as_str()), "{}", seen.path);
    }
    fixture
}

/// The scope of the authorization request.
fn scope(fixture: &Fixture) -> Option<String> {
    fixture.requests_to("/authorize")[0].get("scope").map(str::to_owned)
}

#[tokio::test]
async fn resource_metadata_is_discovered() {
    let fixture = check(&[]).await;
    assert_eq!(fixture.requests_to("/.well-known/oauth-protected-resource"), []);
    check(&[Fault::NoHint]).await;
    check(&[Fault::DescriptionAtRoot]).await;
    check(&[Fault::DescriptionElsewhere]).await;
    check(&[Fault::ResourceOrigin]).await;
}

#[tokio::test]
async fn server_metadata_is_discovered() {
    check(&[Fault::OpenIdOnly]).await;
    check(&[Fault::IssuerSlash]).await;
    let fixture = check(&[Fault::NoDescription]).await;
    let requests_to = fixture.requests_to("/.well-known/oauth-authorization-server");
    assert_eq!(requests_to[0].version.as_deref(), Some("2025-11-25"));
    let fixture = check(&[Fault::NoDescription, Fault::NoMetadata]).await;
    assert_eq!(fixture.requests_to("/register")[0].role, Role::Resource);
}

#[tokio::test]
async fn matching_iss_parameter_is_accepted() {
    check(&[Fault::IssPromised]).await;
    check(&[Fault::IssUnpromised]).await;
    check(&[Fault::IssPromised, Fault::IssuerSlash]).await;
}

#[tokio::test]
async fn every_client_kind_can_log_in() {
    let fixture = check(&[]).await;
    assert_eq!(fixture.server.stats().registrations, 1);
    let document = &fixture.requests_to("/register")[0].body;
    assert!(document.contains(r#""application_type":"native""#), "{document}");
    assert!(document.contains(r#""refresh_token""#), "{document}");
    check(&[Fault::BasicOnly]).await;
    check(&[Fault::PostOnly]).await;

    let own = OAuthPlan { clients: vec![("me".to_owned(), "p:w d".to_owned())], ..plan(&[]) };
    let fixture = check_with(own, pre_registered("me", "p:w d", None)).await;
    assert_eq!(fixture.server.stats().registrations, 0);
    assert!(
        fixture.requests_to("/token")[0].authorization.as_deref().unwrap().starts_with("Basic ")
    );

    let id = "https://toolrack.example/client.json";
    let settings =
        AuthSettings { client_metadata_url: Some(Url::parse(id).unwrap()), ..Default::default() };
    let fixture = check_with(plan(&[Fault::Documents]), settings.clone()).await;
    assert_eq!(fixture.requests_to("/authorize")[0].get("client_id"), Some(id));
    assert_eq!(fixture.server.stats().registrations, 0);
    // If the server does not accept documents, the client registers.
    let fixture = check_with(plan(&[]), settings).await;
    assert_eq!(fixture.server.stats().registrations, 1);
}

#[tokio::test]
async fn requested_scopes_follow_precedence() {
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
async fn login_and_logout() {
    let fixture = Fixture::new(&[Fault::NoHint]);
    assert_eq!(fixture.authorizer.status().await, Ok(LoginStatus::LoggedOut));
    let status = fixture.authorizer.login().await.unwrap();
    let LoginStatus::LoggedIn { issuer, scopes, expires_at, renewable, .. } = status.clone() else {
        panic!("{status:?}");
    };
    assert_eq!((issuer, scopes), (fixture.server.issuer(), vec!["mcp:basic".to_owned()]));
    assert!(expires_at.is_some() && renewable);
    fixture.call("tools/list").await.unwrap();
    assert_eq!(fixture.authorizer.status().await, Ok(status));
    fixture.authorizer.logout().await.unwrap();
    assert_eq!(fixture.authorizer.status().await, Ok(LoginStatus::LoggedOut));
    assert_eq!(fixture.authorizer.cached(), toolrack_transport::CachedCredential::None);
    assert_eq!(fixture.requests_to("/revoke").len(), 1);
    let pages = fixture.pages.lock().unwrap().clone();
    assert!(pages.iter().all(|page| page.contains("Logged in")), "{pages:?}");
}

#[tokio::test]
async fn registration_is_reused() {
    let fixture = Fixture::new(&[]);
    fixture.authorizer.login().await.unwrap();
    fixture.authorizer.login().await.unwrap();
    let stats = fixture.server.stats();
    assert_eq!((stats.logins, stats.codes, stats.registrations), (2, 2, 1));
}

#[tokio::test]
async fn redirect_can_be_pasted() {
    let fixture = Fixture::new(&[Fault::IssPromised]);
    let pasted = PastedRedirect::new(|request| {
        Box::pin(async move {
            // The browser on the other machine ends at a URL that no process serves.
            let url = request.url.to_string();
            let (sent, led) = std::sync::mpsc::channel();
            std::thread::spawn(move || sent.send(first_hop(&url)));
            Ok(led.recv().unwrap())
        })
    });
    let settings = AuthSettings::default();
    let browser = std::sync::Arc::new(pasted);
    let remote = authorizer(&fixture.server, settings, &fixture.store, Some(browser));
    call(&fixture.server.url(), &remote, "tools/list").await.unwrap();
    assert_eq!(fixture.server.stats().codes, 1);
}

/// Target of the first redirect.
fn first_hop(url: &str) -> String {
    let failed = follow_redirects(url).err();
    assert!(failed.is_some(), "a process serves the redirect");
    let (_, answer) = toolrack_testkit::oauth::get(url).unwrap();
    let line = answer.lines().find(|line| line.starts_with("location: ")).unwrap();
    line.trim_start_matches("location: ").to_owned()
}
