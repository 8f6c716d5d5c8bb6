//! Questions of servers: addresses that no client sees, and the budget of a server.

use std::sync::Arc;

use serde_json::json;
use toolrack_client::{EraChoice, McpClient};
use toolrack_gateway::{Scope, refused_questions};

use crate::fixture::{Fixture, HttpFixture, TestUser, scripted};

const BAD_URLS: [&str; 5] = [
    "file:///etc/passwd",
    "javascript:alert(1)",
    "https://bank.example@evil.example/",
    "data:text/html,x",
    "nonsense",
];
const ERAS: [EraChoice; 2] = [EraChoice::Legacy, EraChoice::Modern];
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

fn page_user() -> Arc<TestUser> {
    Arc::new(TestUser { opens_pages: true, ..TestUser::default() })
}

/// The result or error of a call as text.
async fn ask(client: &McpClient, kind: &str, url: &str) -> String {
    let arguments = json!({"kind": kind, "url": url, "force": true});
    match client.call_tool("s_ask", &arguments).await {
        Ok(result) => result.content,
        Err(error) => format!("{error:?}"),
    }
}

/// Members of results that become `input_required`, or become valid JSON, when hidden text is removed.
fn disguised_questions() -> [String; 3] {
    let question = json!({
        "method": "elicitation/create",
        "params": { "mode": "url", "elicitationId": "1", "url": "file:///x", "message": "Open" },
    });
    let requests = format!(r#""content":[],"inputRequests":{{"a":{question}}}"#);
    [
        format!(r#"{requests},"resultType\u200b":"input_required""#),
        format!(r#"{requests},"resultType":"input\u200b_required""#),
        format!("{requests},\"resultType\":\"input_required\",\"x\":\"\u{1}\u{202e}\""),
    ]
}

/// Every combination of eras: a request of a legacy server, an `input_required` result, and a URL elicitation error.
#[tokio::test(flavor = "multi_thread")]
async fn no_client_sees_a_bad_url() {
    for revision in REVISIONS {
        let fixture =
            Fixture::start(vec![scripted("s", &["--revision", revision])], Scope::All).await;
        let http = HttpFixture::start(&fixture.gateway).await;
        for era in ERAS {
            let user = page_user();
            let client = http.client(era, &user).await;
            for url in BAD_URLS {
                let n_before = refused_questions().urls;
                let text = ask(&client, "url", url).await;
                assert!(text.contains("decline"), "{revision} {era:?} {url}: {text}");
                let text = ask(&client, "url_error", url).await;
                assert!(text.contains("not shown"), "{revision} {era:?} {url}: {text}");
                assert!(!text.contains(url), "{text}");
                assert!(refused_questions().urls >= n_before + 2);
            }
            assert_eq!(*user.records.lock().unwrap(), Vec::<String>::new(), "{revision} {era:?}");
            for members in disguised_questions() {
                let text = ask(&client, "members", &members).await;
                assert!(!text.contains("accept"), "{revision} {era:?} {members}: {text}");
                let records = user.records.lock().unwrap().clone();
                let is_safe = records.iter().all(|record| !record.contains("file:"));
                assert!(is_safe, "{revision} {era:?} {members}: {records:?}");
            }
            // A web address passes, as a browser reads it.
            let text = ask(&client, "url", "https://\u{430}pple.com").await;
            assert!(text.contains("accept"), "{revision} {era:?}: {text}");
            assert!(user.has_recorded("page https://xn--pple-43d.com/"), "{:?}", user.records);
            ask(&client, "url_error", "https://e.org/pay").await;
            assert!(user.has_recorded("page https://e.org/pay"), "{revision} {era:?}");
            assert!(user.has_recorded(r#"asked Server "s" asks: Open"#), "{:?}", user.records);
            client.shutdown().await;
        }
        fixture.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_asks_too_often_is_refused() {
    let fixture =
        Fixture::start(vec![scripted("s", &["--revision", "2025-11-25"])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let user = Arc::new(TestUser::default());
    let client = http.client(EraChoice::Legacy, &user).await;
    // How many of the questions of one call are refused. The client itself answers only a few of them at once.
    let n_refused = async |n_questions: u64| {
        let n_before = refused_questions().over_budget;
        let arguments = json!({"kind": "sampling", "count": n_questions});
        client.call_tool("s_ask", &arguments).await.unwrap();
        refused_questions().over_budget - n_before
    };
    assert_eq!(n_refused(100).await, 36, "64 for one call");
    assert!(n_refused(64).await <= 8, "56 are left of 120 at once");
    let n_later = n_refused(60).await;
    // One more each second, on a busy machine.
    assert!((30..=60).contains(&n_later), "one per second: {n_later}");
    client.shutdown().await;
    fixture.close().await;
}
