//! No secret is in any error, log line, page or URL. Every secret of the test server has `s3cret` in its name.

use std::fmt::Write as _;

use toolrack_auth::AuthSettings;
use toolrack_testkit::Eavesdropper;
use toolrack_testkit::oauth::{Fault, OAuthPlan};

use crate::stage::{Stage, call, plan, pre_registered};

#[tokio::test]
async fn nothing_shows_a_secret() {
    let heard = Eavesdropper::default();
    let _listening = tracing::subscriber::set_default(heard.clone());
    let mut display_url = String::new();
    let own = OAuthPlan {
        clients: vec![("me".to_owned(), "pw-s3cret".to_owned())],
        ..plan(&[Fault::Quoting])
    };
    for stage in [
        Stage::with(own, pre_registered("me", "pw-s3cret", None)),
        Stage::new(&[Fault::Quoting, Fault::BasicOnly]),
        Stage::new(&[Fault::Quoting, Fault::PostOnly]),
        Stage::new(&[Fault::Quoting, Fault::TokenType]),
        Stage::new(&[Fault::AccessDenied]),
        Stage::new(&[Fault::IssWrong]),
    ] {
        let outcome = stage.call("tools/list").await;
        write!(display_url, "{outcome:?} {:?} ", stage.authorizer).unwrap();
        let lonely = stage.another(AuthSettings::default());
        let known = toolrack_transport::Credentials::obtain(lonely.as_ref()).await;
        write!(display_url, "{known:?} ").unwrap();
        stage.server.revoke_all();
        let outcome = call(&stage.server.url(), &lonely, "tools/list").await;
        write!(display_url, "{outcome:?} {lonely:?} ").unwrap();
        if let Err(error) = outcome {
            write!(display_url, "{error} ").unwrap();
        }
        write!(display_url, "{:?} {:?} ", stage.authorizer.status().await, stage.store).unwrap();
        display_url.push_str(&stage.pages.lock().unwrap().concat());
        for seen in stage.server.seen() {
            let in_url = seen.method == "GET"
                && seen.pairs.iter().any(|(name, value)| {
                    // The public name of a client is no secret.
                    name != "client_id" && value.contains("s3cret")
                });
            assert!(!in_url, "{seen:?}");
        }
    }
    display_url.push_str(&heard.heard());
    assert!(display_url.len() > 1_000, "nothing was shown: {display_url}");
    // Client ids are public, and the test server names them like everything else.
    let display_url = display_url.replace("client-s3cret", "client");
    let at = display_url.find("s3cret").map(|at| &display_url[at.saturating_sub(200)..at + 20]);
    assert_eq!(at, None);
}
