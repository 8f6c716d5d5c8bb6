//! Several clients at one server: what it asks reaches the one whose request it is about, or nobody.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;
use toolrack_client::{EraChoice, McpClient};
use toolrack_config::McpServerConfig;
use toolrack_gateway::Scope;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_testkit::{HttpServer, HttpServerKind};

use crate::fixture::{Person, Stage, Web, scripted};

const N_ROUNDS: usize = 10;

fn person(name: &'static str) -> Arc<Person> {
    Arc::new(Person { name: Some(name), ..Person::default() })
}

/// Has two clients call a tool that asks a model, both twice at the same time. Gives how many calls were refused.
async fn check(stage: &Stage, eras: (EraChoice, EraChoice)) -> usize {
    let web = Web::open(&stage.gateway).await;
    let (ada, bob) = (person("Ada"), person("Bob"));
    let (a, b) = (web.client(eras.0, &ada).await, web.client(eras.1, &bob).await);
    let mut n_refused = 0;
    let asking = &json!({"kind": "sampling"});
    for _ in 0..N_ROUNDS {
        let calls = [("Ada", &a), ("Bob", &b), ("Ada", &a), ("Bob", &b)];
        let calls = calls
            .map(|(name, client)| async move { (name, client.call_tool("s_ask", asking).await) });
        for (name, answer) in join_all(calls).await {
            let said = answer.unwrap().content;
            let is_refused = said.contains("does not say for which of them it asks");
            assert!(is_refused || said.contains(name), "{name} was told {said}");
            n_refused += usize::from(is_refused);
        }
    }
    a.shutdown().await;
    b.shutdown().await;
    n_refused
}

async fn check_pipe(eras: (EraChoice, EraChoice)) {
    let stage = Stage::open(vec![scripted("s", &["--revision", "2025-11-25"])], Scope::All).await;
    let n_refused = check(&stage, eras).await;
    assert!(n_refused <= 4, "after the first of its questions clients take turns: {n_refused}");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_reaches_the_legacy_client_that_it_is_about() {
    check_pipe((EraChoice::Legacy, EraChoice::Legacy)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_reaches_the_modern_client_that_it_is_about() {
    check_pipe((EraChoice::Modern, EraChoice::Modern)).await;
    check_pipe((EraChoice::Modern, EraChoice::Legacy)).await;
}

/// Over HTTP a question comes on the exchange of the call, so nobody has to wait and nothing is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_comes_with_its_call_is_never_refused() {
    let server =
        HttpServer::start(HttpServerKind::scripted(&["--revision", "2025-11-25"])).unwrap();
    let stage = Stage::open(vec![McpServerConfig::http("s", server.url())], Scope::All).await;
    assert_eq!(check(&stage, (EraChoice::Legacy, EraChoice::Legacy)).await, 0);
    assert_eq!(check(&stage, (EraChoice::Modern, EraChoice::Legacy)).await, 0);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_for_a_client_that_cannot_be() {
    let stage = Stage::open(vec![scripted("s", &["--revision", "2025-11-25"])], Scope::All).await;
    let web = Web::open(&stage.gateway).await;
    let ada = person("Ada");
    let able = web.client(EraChoice::Legacy, &ada).await;
    let definition = HttpServerDef::new(web.url());
    let builder = McpClient::builder("gateway").era(EraChoice::Legacy);
    let unable = builder.connect_http(definition, HttpOptions::default()).await.unwrap();
    let (long, asking) = (json!({"ms": 1_000}), json!({"kind": "sampling"}));
    let busy = async {
        // The other call comes while this one is open.
        able.call_tool("s_sleep", &long).await.unwrap()
    };
    let (_, asked) = tokio::join!(busy, unable.call_tool("s_ask", &asking));
    let said = asked.unwrap().content;
    assert!(said.contains("error"), "{said}");
    assert_eq!(*ada.said.lock().unwrap(), Vec::<String>::new());
    able.shutdown().await;
    unable.shutdown().await;
    stage.close().await;
}
