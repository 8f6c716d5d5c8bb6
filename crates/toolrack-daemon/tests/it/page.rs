//! What the page asks for beyond the rest: its files, a check before something is saved, and memory.

use serde_json::{Value, json};

use crate::stage::{Stage, check_problem, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn every_script_that_a_script_wants_is_served() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let mut waiting = vec!["/app.js".to_owned()];
    let mut seen = Vec::new();
    while let Some(path) = waiting.pop() {
        let script = client.ask("GET", &path, None).await;
        assert_eq!(script.status, 200, "{path}");
        assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
        seen.push(path);
        for line in script.body.lines().filter(|it| it.contains(" from \"./")) {
            let name = line.split('"').nth(1).unwrap().trim_start_matches('.').to_owned();
            if !seen.contains(&name) && !waiting.contains(&name) {
                waiting.push(name);
            }
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_checked_without_being_saved() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let id = client.add(&stage.scripted("one", &[])).await;
    let check = async |body: Value| client.ask("POST", "/api/servers/check", Some(body)).await;
    assert_eq!(check(stage.scripted("two", &[])).await.status, 204);
    check_problem(&check(stage.scripted("one", &[])).await, 409, "CONFLICT", Some("name"));
    let mut own = stage.scripted("one", &[]);
    own["id"] = json!(id);
    assert_eq!(check(own).await.status, 204);
    let nameless = check(stage.scripted("", &[])).await;
    check_problem(&nameless, 422, "VALIDATION_ERROR", Some("name"));
    let servers = client.get("/api/servers").await;
    assert_eq!(servers["servers"].as_array().unwrap().len(), 1);
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_has_memory() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let id = client.add(&stage.scripted("one", &[])).await;
    let path = format!("/api/servers/{id}");
    let memory = async || client.get(&path).await["status"]["memory_bytes"].as_u64();
    eventually("its memory is known", async || memory().await.is_some_and(|it| it > 100_000)).await;
    client.ask("POST", &format!("{path}/stop"), None).await;
    assert_eq!(memory().await, None);
    stage.end(daemon).await;
}
