//! `/api/secrets`: values go in and never out.

use serde_json::json;

use crate::stage::{Stage, check_problem};

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_in_and_never_out() {
    const CANARY: &str = "canary-5d1f0c7e9b";
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let set = client.ask("PUT", "/api/secrets/key", Some(json!({ "value": CANARY }))).await;
    assert_eq!((set.status, set.json()), (200, json!({ "restarted": [] })));
    assert_eq!(client.get("/api/secrets").await, json!({ "names": ["key"] }));
    let mut document = stage.scripted("one", &[]);
    document["env_vars"]["KEY"] = json!({ "secret_ref": "key", "required": true });
    let id = client.add(&document).await;
    let told = client.post("/api/calls", json!({ "tool": "one_env" })).await.to_string();
    assert!(told.contains("KEY") && !told.contains(CANARY), "{told}");
    let changed =
        client.ask("PUT", "/api/secrets/key", Some(json!({ "value": "other-value" }))).await;
    assert_eq!(changed.json(), json!({ "restarted": [id] }));
    client.until_state(&id, "running").await;
    for path in ["/api/servers", "/api/config", "/api/calls", "/metrics", "/api/openapi.json"] {
        let answer = client.ask("GET", path, None).await;
        assert!(!answer.body.contains(CANARY) && !answer.body.contains("other-value"), "{path}");
    }
    let gone = client.ask("DELETE", "/api/secrets/key", None).await;
    assert_eq!(gone.json(), json!({ "restarted": [id] }));
    check_problem(&client.ask("DELETE", "/api/secrets/key", None).await, 404, "NOT_FOUND", None);
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_secret_is_refused_without_repeating_it() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    for name in ["..%2fkey", "%2e%2e", ".hidden", "a%20b", "a%00"] {
        let path = format!("/api/secrets/{name}");
        let answer = client.ask("PUT", &path, Some(json!({ "value": "x1y2z3" }))).await;
        check_problem(&answer, 422, "VALIDATION_ERROR", Some("name"));
        check_problem(
            &client.ask("DELETE", &path, None).await,
            422,
            "VALIDATION_ERROR",
            Some("name"),
        );
    }
    for body in [json!({}), json!({ "value": 7 }), json!(["x1y2z3"]), json!({ "value": "" })] {
        let answer = client.ask("PUT", "/api/secrets/key", Some(body)).await;
        check_problem(&answer, 422, "VALIDATION_ERROR", Some("value"));
        assert!(!answer.body.contains("x1y2z3"));
    }
    assert_eq!(client.get("/api/secrets").await, json!({ "names": [] }));
    stage.end(daemon).await;
}
