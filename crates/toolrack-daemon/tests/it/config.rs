//! `/api/config`: the file as text, checked and saved.

use serde_json::json;

use crate::stage::{Stage, check_problem};

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_edited_as_text() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    client.add(&stage.scripted("one", &[])).await;
    let before = client.get("/api/config").await;
    let text = before["text"].as_str().unwrap();
    assert!(text.contains("name = \"one\""), "{text}");
    assert_eq!(before["faults"], json!([]));
    let edited = format!("# a word of a person\n{}", text.replace("\"one\"", "\"two\""));
    let save = json!({ "text": edited, "generation": before["generation"] });
    let saved = client.ask("PUT", "/api/config", Some(save.clone())).await;
    assert_eq!((saved.status, &saved.json()["warnings"]), (200, &json!([])), "{saved:?}");
    assert_eq!(client.get("/api/config").await["text"], json!(edited));
    let names = client.get("/api/agents/mcp").await;
    assert_eq!(names["servers"][0]["name"], json!("two"));
    check_problem(&client.ask("PUT", "/api/config", Some(save)).await, 409, "CONFLICT", None);
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_with_faults_is_not_saved_and_they_are_shown_at_their_lines() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let generation = client.get("/api/config").await["generation"].clone();
    let bad = "[[defaults.mcp]]\nname = \"x\"\ncommand = 7\n";
    let verdict = client.post("/api/config/check", json!({ "text": bad })).await;
    assert_eq!(verdict["is_sound"], json!(false));
    let fault = verdict["faults"].as_array().unwrap().iter().find(|it| it["line"] == 3).unwrap();
    assert_eq!(fault["severity"], json!("error"), "{fault}");
    let good = client.post("/api/config/check", json!({ "text": "" })).await;
    assert_eq!(good, json!({ "is_sound": true, "faults": [] }));
    let save = |generation: serde_json::Value| json!({ "text": bad, "generation": generation });
    let answer = client.ask("PUT", "/api/config", Some(save(generation))).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (422, Some("VALIDATION_ERROR")));
    for generation in [json!(""), json!("x"), json!("g".repeat(32))] {
        let answer = client.ask("PUT", "/api/config", Some(save(generation))).await;
        check_problem(&answer, 422, "VALIDATION_ERROR", Some("generation"));
    }
    let answer = client.ask("PUT", "/api/config", Some(json!({ "text": "" }))).await;
    check_problem(&answer, 422, "VALIDATION_ERROR", None);
    assert!(!stage.home().config_file().exists());
    stage.end(daemon).await;
}
