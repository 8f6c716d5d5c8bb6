//! `/api/config`: reading, checking and saving the config file.

use serde_json::json;

use crate::fixture::{Fixture, check_problem};

#[tokio::test(flavor = "multi_thread")]
async fn config_is_edited_as_text() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    client.add(&fixture.scripted("one", &[])).await;
    let before = client.get("/api/config").await;
    let text = before["text"].as_str().unwrap();
    assert!(text.contains("name = \"one\""), "{text}");
    assert_eq!(before["faults"], json!([]));
    let edited = format!("# a comment\n{}", text.replace("\"one\"", "\"two\""));
    let save = json!({ "text": edited, "generation": before["generation"] });
    let saved = client.request("PUT", "/api/config", Some(save.clone())).await;
    assert_eq!((saved.status, &saved.json()["warnings"]), (200, &json!([])), "{saved:?}");
    assert_eq!(client.get("/api/config").await["text"], json!(edited));
    let names = client.get("/api/agents/mcp").await;
    assert_eq!(names["servers"][0]["name"], json!("two"));
    check_problem(&client.request("PUT", "/api/config", Some(save)).await, 409, "CONFLICT", None);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_config_is_not_saved_and_errors_have_lines() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let generation = client.get("/api/config").await["generation"].clone();
    let bad = "[[defaults.mcp]]\nname = \"x\"\ncommand = 7\n";
    let checked = client.post("/api/config/check", json!({ "text": bad })).await;
    assert_eq!(checked["is_sound"], json!(false));
    let error = checked["faults"]
        .as_array()
        .unwrap()
        .iter()
        .find(|diagnostic| diagnostic["line"] == 3)
        .unwrap();
    assert_eq!(error["severity"], json!("error"), "{error}");
    let many = "[[defaults.mcp]]\ncommand = 7\n".repeat(200);
    let many = client.post("/api/config/check", json!({ "text": many })).await;
    assert_eq!(many["faults"].as_array().map(Vec::len), Some(100), "{many:.999}");
    let large = json!({ "text": "#".repeat((4 << 20) + 1) });
    let response = client.request("POST", "/api/config/check", Some(large)).await;
    check_problem(&response, 422, "VALIDATION_ERROR", Some("text"));
    let good = client.post("/api/config/check", json!({ "text": "" })).await;
    assert_eq!(good, json!({ "is_sound": true, "faults": [] }));
    let save = |generation: serde_json::Value| json!({ "text": bad, "generation": generation });
    let response = client.request("PUT", "/api/config", Some(save(generation))).await;
    assert_eq!(
        (response.status, response.json()["code"].as_str()),
        (422, Some("VALIDATION_ERROR"))
    );
    for generation in [json!(""), json!("x"), json!("g".repeat(32))] {
        let response = client.request("PUT", "/api/config", Some(save(generation))).await;
        check_problem(&response, 422, "VALIDATION_ERROR", Some("generation"));
    }
    let response = client.request("PUT", "/api/config", Some(json!({ "text": "" }))).await;
    check_problem(&response, 422, "VALIDATION_ERROR", None);
    assert!(!fixture.home().config_file().exists());
    fixture.shutdown(daemon).await;
}
