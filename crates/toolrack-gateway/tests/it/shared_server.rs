//! Several clients of one server: its requests reach the client they are about, or none.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;
use toolrack_client::{EraChoice, McpClient};
use toolrack_config::McpServerConfig;
use toolrack_gateway::Scope;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_testkit::{HttpServer, HttpServerKind};

use crate::fixture::{Fixture, HttpFixture, TestUser, scripted};

const N_ROUNDS: usize = 10;

fn named_user(name: &'static str) -> Arc<TestUser> {
    Arc::new(TestUser { name: Some(name), ..TestUser::default() })
}

/// Two clients call a sampling tool, both twice at once. Returns how many server requests were rejected as ambiguous.
async fn check(fixture: &Fixture, eras: (EraChoice, EraChoice)) -> usize {
    let http = HttpFixture::start(&fixture.gateway).await;
    let (ada, bob) = (named_user("Ada"), named_user("Bob"));
    let (a, b) = (http.client(eras.0, &ada).await, http.client(eras.1, &bob).await);
    let mut n_rejected = 0;
    let asking = &json!({"kind": "sampling"});
    for _ in 0..N_ROUNDS {
        let calls = [("Ada", &a), ("Bob", &b), ("Ada", &a), ("Bob", &b)];
        let calls = calls
            .map(|(name, client)| async move { (name, client.call_tool("s_ask", asking).await) });
        for (name, result) in join_all(calls).await {
            let text = result.unwrap().content;
            let is_rejected = text.contains("does not say which one its request is for");
            assert!(is_rejected || text.contains(name), "{name} got {text}");
            n_rejected += usize::from(is_rejected);
        }
    }
    a.shutdown().await;
    b.shutdown().await;
    n_rejected
}

async fn check_stdio(eras: (EraChoice, EraChoice)) {
    let fixture =
        Fixture::start(vec![scripted("s", &["--revision", "2025-11-25"])], Scope::All).await;
    let n_rejected = check(&fixture, eras).await;
    assert!(n_rejected <= 4, "clients take turns after the first server request: {n_rejected}");
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_request_reaches_its_legacy_client() {
    check_stdio((EraChoice::Legacy, EraChoice::Legacy)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_request_reaches_its_modern_client() {
    check_stdio((EraChoice::Modern, EraChoice::Modern)).await;
    check_stdio((EraChoice::Modern, EraChoice::Legacy)).await;
}

/// Over HTTP a server request arrives on the response stream of its call, so it is never ambiguous.
#[tokio::test(flavor = "multi_thread")]
async fn attributed_server_request_is_never_rejected() {
    let server =
        HttpServer::start(HttpServerKind::scripted(&["--revision", "2025-11-25"])).unwrap();
    let fixture = Fixture::start(vec![McpServerConfig::http("s", server.url())], Scope::All).await;
    assert_eq!(check(&fixture, (EraChoice::Legacy, EraChoice::Legacy)).await, 0);
    assert_eq!(check(&fixture, (EraChoice::Modern, EraChoice::Legacy)).await, 0);
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_request_reaches_no_other_client() {
    let fixture =
        Fixture::start(vec![scripted("s", &["--revision", "2025-11-25"])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let ada = named_user("Ada");
    let able = http.client(EraChoice::Legacy, &ada).await;
    let definition = HttpServerDef::new(http.url());
    let builder = McpClient::builder("gateway").era(EraChoice::Legacy);
    let unable = builder.connect_http(definition, HttpOptions::default()).await.unwrap();
    let (long, asking) = (json!({"ms": 1_000}), json!({"kind": "sampling"}));
    let busy = async {
        // The other call starts while this one is active.
        able.call_tool("s_sleep", &long).await.unwrap()
    };
    let (_, asked) = tokio::join!(busy, unable.call_tool("s_ask", &asking));
    let text = asked.unwrap().content;
    assert!(text.contains("error"), "{text}");
    assert_eq!(*ada.records.lock().unwrap(), Vec::<String>::new());
    able.shutdown().await;
    unable.shutdown().await;
    fixture.close().await;
}
