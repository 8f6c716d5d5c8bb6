//! Routes that the dashboard needs: static files, server check and memory.

use serde_json::{Value, json};

use crate::fixture::{Fixture, check_problem, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn every_imported_script_is_served() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let mut pending = vec!["/app.js".to_owned()];
    let mut seen = Vec::new();
    while let Some(path) = pending.pop() {
        let script = client.request("GET", &path, None).await;
        assert_eq!(script.status, 200, "{path}");
        assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
        seen.push(path);
        for line in script.body.lines().filter(|line| line.contains(" from \"./")) {
            let name = line.split('"').nth(1).unwrap().trim_start_matches('.').to_owned();
            if !seen.contains(&name) && !pending.contains(&name) {
                pending.push(name);
            }
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_check_does_not_save() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let id = client.add(&fixture.scripted("one", &[])).await;
    let check = async |body: Value| client.request("POST", "/api/servers/check", Some(body)).await;
    assert_eq!(check(fixture.scripted("two", &[])).await.status, 204);
    check_problem(&check(fixture.scripted("one", &[])).await, 409, "CONFLICT", Some("name"));
    let mut own = fixture.scripted("one", &[]);
    own["id"] = json!(id);
    assert_eq!(check(own).await.status, 204);
    let nameless = check(fixture.scripted("", &[])).await;
    check_problem(&nameless, 422, "VALIDATION_ERROR", Some("name"));
    let servers = client.get("/api/servers").await;
    assert_eq!(servers["servers"].as_array().unwrap().len(), 1);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_server_reports_memory() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let id = client.add(&fixture.scripted("one", &[])).await;
    let path = format!("/api/servers/{id}");
    let memory = async || client.get(&path).await["status"]["memory_bytes"].as_u64();
    eventually("its memory is reported", async || {
        memory().await.is_some_and(|bytes| bytes > 100_000)
    })
    .await;
    client.request("POST", &format!("{path}/stop"), None).await;
    assert_eq!(memory().await, None);
    fixture.shutdown(daemon).await;
}
