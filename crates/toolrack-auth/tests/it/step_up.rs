//! Step-up to more scopes, and a change of the authorization server.

use toolrack_auth::AuthSettings;
use toolrack_testkit::oauth::{Fault, OAuthPlan, Role};
use url::Url;

use crate::fixture::{Fixture, call, kind, plan, pre_registered};

#[tokio::test]
async fn step_up_requests_old_and_new_scopes() {
    let fixture = Fixture::new(&[Fault::StepUp, Fault::ScopesListed]);
    fixture.call("tools/list").await.unwrap();
    fixture.call("tools/call").await.unwrap();
    let scopes: Vec<String> = fixture
        .requests_to("/authorize")
        .iter()
        .map(|request| request.get("scope").unwrap().to_owned())
        .collect();
    assert_eq!(scopes, ["mcp:basic", "mcp:basic mcp:write"]);
    fixture.call("tools/call").await.unwrap();
    assert_eq!(fixture.server.stats().logins, 2);
}

#[tokio::test]
async fn endless_step_up_is_given_up() {
    let fixture = Fixture::new(&[Fault::ScopeLoop]);
    fixture.call("tools/list").await.unwrap();
    let error = fixture.call("tools/call").await.unwrap_err();
    assert_eq!((kind(&error), fixture.server.stats().logins), ("forbidden", 3));
    // The limit applies to this operation only.
    let error = fixture.call("tools/call").await.unwrap_err();
    assert_eq!((kind(&error), fixture.server.stats().logins), ("forbidden", 3));
    fixture.call("tools/list").await.unwrap();
}

#[tokio::test]
async fn pending_scopes_are_requested_at_next_login() {
    let fixture = Fixture::new(&[Fault::StepUp]);
    fixture.call("tools/list").await.unwrap();
    let without_browser = fixture.another_process(AuthSettings::default());
    let error = call(&fixture.server.url(), &without_browser, "tools/call").await.unwrap_err();
    assert_eq!(kind(&error), "login needed");
    assert!(error.to_string().contains("the server requests more scopes"), "{error}");
    fixture.authorizer.login().await.unwrap();
    call(&fixture.server.url(), &without_browser, "tools/call").await.unwrap();
    assert_eq!(fixture.server.stats().logins, 2);
}

#[tokio::test]
async fn new_issuer_gets_a_new_registration_and_no_old_secrets() {
    let fixture = Fixture::new(&[]);
    fixture.call("tools/list").await.unwrap();
    let old = fixture.requests_to("/authorize")[0].get("client_id").unwrap().to_owned();
    fixture.server.add_fault(Fault::Migrated);
    fixture.call("tools/list").await.unwrap();
    let stats = fixture.server.stats();
    assert_eq!((stats.registrations, stats.logins), (2, 2));
    for seen in fixture.requests_at(Role::Second) {
        let text = format!("{seen:?}");
        assert!(!text.contains(&old) && !text.contains("refresh-s3cret"), "{text}");
    }
    // And back: the first registration is still valid there.
    fixture.server.remove_fault(Fault::Migrated);
    fixture.call("tools/list").await.unwrap();
}

#[tokio::test]
async fn client_of_one_issuer_is_not_sent_to_another() {
    let own = || OAuthPlan { clients: vec![("me".to_owned(), "pw".to_owned())], ..plan(&[]) };
    let fixture = Fixture::with(own(), pre_registered("me", "pw", None));
    fixture.call("tools/list").await.unwrap();
    fixture.server.add_fault(Fault::Migrated);
    let error = fixture.call("tools/list").await.unwrap_err();
    assert_eq!(kind(&error), "untrusted");
    let requests = fixture.requests_at(Role::Second);
    assert!(
        requests
            .iter()
            .all(|request| request.method == "GET" && request.path.contains("well-known")),
        "{requests:?}"
    );

    let fixture = Fixture::with(own(), pre_registered("me", "pw", Some("https://old.example")));
    assert_eq!(kind(&fixture.call("tools/list").await.unwrap_err()), "untrusted");
    assert_eq!(fixture.requests_to("/authorize"), []);
}

#[tokio::test]
async fn client_metadata_document_works_at_a_new_issuer() {
    let id = Url::parse("https://toolrack.example/client.json").unwrap();
    let settings = AuthSettings { client_metadata_url: Some(id), ..AuthSettings::default() };
    let fixture = Fixture::with(plan(&[Fault::Documents]), settings);
    fixture.call("tools/list").await.unwrap();
    fixture.server.add_fault(Fault::Migrated);
    fixture.call("tools/list").await.unwrap();
    let stats = fixture.server.stats();
    assert_eq!((stats.registrations, stats.logins), (0, 2));
}
