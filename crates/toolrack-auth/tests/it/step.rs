//! More scopes, and another authorization server: what happens after the first login.

use toolrack_auth::AuthSettings;
use toolrack_testkit::oauth::{Fault, OAuthPlan, Role};
use url::Url;

use crate::stage::{Stage, call, kind, plan, pre_registered};

#[tokio::test]
async fn more_scopes_are_asked_for_together_with_the_old_ones() {
    let stage = Stage::new(&[Fault::StepUp, Fault::ScopesListed]);
    stage.call("tools/list").await.unwrap();
    stage.call("tools/call").await.unwrap();
    let scopes: Vec<String> =
        stage.asked("/authorize").iter().map(|it| it.get("scope").unwrap().to_owned()).collect();
    assert_eq!(scopes, ["mcp:basic", "mcp:basic mcp:write"]);
    stage.call("tools/call").await.unwrap();
    assert_eq!(stage.server.stats().logins, 2);
}

#[tokio::test]
async fn a_server_that_always_wants_more_is_given_up() {
    let stage = Stage::new(&[Fault::ScopeLoop]);
    stage.call("tools/list").await.unwrap();
    let error = stage.call("tools/call").await.unwrap_err();
    assert_eq!((kind(&error), stage.server.stats().logins), ("forbidden", 3));
    // It is remembered for this operation, and does no harm to others.
    let error = stage.call("tools/call").await.unwrap_err();
    assert_eq!((kind(&error), stage.server.stats().logins), ("forbidden", 3));
    stage.call("tools/list").await.unwrap();
}

#[tokio::test]
async fn what_nobody_can_grant_now_is_asked_for_at_the_next_login() {
    let stage = Stage::new(&[Fault::StepUp]);
    stage.call("tools/list").await.unwrap();
    let lonely = stage
        .another(AuthSettings { server_name: Some("files".to_owned()), ..AuthSettings::default() });
    let error = call(&stage.server.url(), &lonely, "tools/call").await.unwrap_err();
    assert_eq!(kind(&error), "login needed");
    assert!(error.to_string().contains("`toolrack login files`"), "{error}");
    stage.authorizer.login().await.unwrap();
    call(&stage.server.url(), &lonely, "tools/call").await.unwrap();
    assert_eq!(stage.server.stats().logins, 2);
}

#[tokio::test]
async fn after_a_move_we_register_anew_and_tell_nothing_of_the_old() {
    let stage = Stage::new(&[]);
    stage.call("tools/list").await.unwrap();
    let old = stage.asked("/authorize")[0].get("client_id").unwrap().to_owned();
    stage.server.begin(Fault::Migrated);
    stage.call("tools/list").await.unwrap();
    let stats = stage.server.stats();
    assert_eq!((stats.registrations, stats.logins), (2, 2));
    for seen in stage.asked_at(Role::Second) {
        let text = format!("{seen:?}");
        assert!(!text.contains(&old) && !text.contains("refresh-s3cret"), "{text}");
    }
    // And back: what the first one gave us is still ours there.
    stage.server.mend(Fault::Migrated);
    stage.call("tools/list").await.unwrap();
}

#[tokio::test]
async fn a_client_that_was_made_for_one_issuer_is_not_shown_to_another() {
    let own = || OAuthPlan { clients: vec![("me".to_owned(), "pw".to_owned())], ..plan(&[]) };
    let stage = Stage::with(own(), pre_registered("me", "pw", None));
    stage.call("tools/list").await.unwrap();
    stage.server.begin(Fault::Migrated);
    let error = stage.call("tools/list").await.unwrap_err();
    assert_eq!(kind(&error), "untrusted");
    let told = stage.asked_at(Role::Second);
    assert!(told.iter().all(|it| it.method == "GET" && it.path.contains("well-known")), "{told:?}");

    let stage = Stage::with(own(), pre_registered("me", "pw", Some("https://old.example")));
    assert_eq!(kind(&stage.call("tools/list").await.unwrap_err()), "untrusted");
    assert_eq!(stage.asked("/authorize"), []);
}

#[tokio::test]
async fn a_document_goes_along_to_the_new_issuer() {
    let id = Url::parse("https://toolrack.example/client.json").unwrap();
    let settings = AuthSettings { client_metadata_url: Some(id), ..AuthSettings::default() };
    let stage = Stage::with(plan(&[Fault::Documents]), settings);
    stage.call("tools/list").await.unwrap();
    stage.server.begin(Fault::Migrated);
    stage.call("tools/list").await.unwrap();
    let stats = stage.server.stats();
    assert_eq!((stats.registrations, stats.logins), (0, 2));
}
