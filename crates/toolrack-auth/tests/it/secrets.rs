//! No secret is in any error, log line, page or URL. Every secret of the test server contains `s3cret`.

use std::fmt::Write as _;

use toolrack_auth::AuthSettings;
use toolrack_testkit::LogCapture;
use toolrack_testkit::oauth::{Fault, OAuthPlan};
use toolrack_transport::{Credentials as _, Redactor};

use crate::fixture::{Fixture, call, plan, pre_registered};

#[tokio::test]
async fn no_secret_is_shown() {
    let logged = LogCapture::default();
    let _listening = tracing::subscriber::set_default(logged.clone());
    let mut output = String::new();
    let own = OAuthPlan {
        clients: vec![("me".to_owned(), "pw-s3cret".to_owned())],
        ..plan(&[Fault::Quoting])
    };
    for fixture in [
        Fixture::with(own, pre_registered("me", "pw-s3cret", None)),
        Fixture::new(&[Fault::Quoting, Fault::BasicOnly]),
        Fixture::new(&[Fault::Quoting, Fault::PostOnly]),
        Fixture::new(&[Fault::Quoting, Fault::TokenType]),
        Fixture::new(&[Fault::AccessDenied]),
        Fixture::new(&[Fault::IssWrong]),
    ] {
        let outcome = fixture.call("tools/list").await;
        write!(output, "{outcome:?} {:?} ", fixture.authorizer).unwrap();
        let without_browser = fixture.another_process(AuthSettings::default());
        let plan_with_client = without_browser.obtain().await;
        write!(output, "{plan_with_client:?} ").unwrap();
        fixture.server.revoke_all();
        let outcome = call(&fixture.server.url(), &without_browser, "tools/list").await;
        write!(output, "{outcome:?} {without_browser:?} ").unwrap();
        if let Err(error) = outcome {
            write!(output, "{error} ").unwrap();
        }
        write!(output, "{:?} {:?} ", fixture.authorizer.status().await, fixture.store).unwrap();
        output.push_str(&fixture.pages.lock().unwrap().concat());
        for seen in fixture.server.requests() {
            let in_url = seen.method == "GET"
                && seen.pairs.iter().any(|(name, value)| {
                    // A client id is not a secret.
                    name != "client_id" && value.contains("s3cret")
                });
            assert!(!in_url, "{seen:?}");
        }
    }
    output.push_str(&logged.text());
    assert!(output.len() > 1_000, "nothing was shown: {output}");
    // Client ids are public, but the test server puts `s3cret` into them too.
    let output = output.replace("client-s3cret", "client");
    let at = output.find("s3cret").map(|at| &output[at.saturating_sub(200)..at + 20]);
    assert_eq!(at, None);
}

#[tokio::test]
async fn saved_and_loaded_tokens_are_redacted() {
    let (saved, loaded) = (Redactor::default(), Redactor::default());
    let settings = |redactor: &Redactor| AuthSettings {
        redactor: redactor.clone(),
        ..AuthSettings::default()
    };
    let fixture = Fixture::with(plan(&[]), settings(&saved));
    fixture.call("tools/list").await.unwrap();
    let token = fixture.authorizer.obtain().await.unwrap().unwrap();
    let other = fixture.another_process(settings(&loaded));
    assert_eq!(other.obtain().await.unwrap().as_ref(), Some(&token));
    for redactor in [saved, loaded] {
        let shown = redactor.redact(token.reveal());
        assert!(shown.starts_with("Bearer [secret token of http://"), "{shown}");
    }
}
