//! The description of the API: published, complete, and true.

use serde_json::{Value, json};

use crate::http::Answer;
use crate::stage::{Stage, eventually};

/// Every method and path of the API. `{…}` of paths are filled in.
pub(crate) fn routes() -> Vec<(String, String)> {
    let document = toolrack_daemon::openapi();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "x").replace("{name}", "x");
        for method in operations.as_object().unwrap().keys() {
            routes.push((method.to_uppercase(), path.clone()));
        }
    }
    routes
}

#[test]
fn the_description_is_published() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let mut text = serde_json::to_string_pretty(&toolrack_daemon::openapi()).unwrap();
    text.push('\n');
    if std::env::var_os("UPDATE").is_some() {
        std::fs::File::create(path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
            .unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(published == text, "docs/openapi.json is out of date; run this test with UPDATE=1");
}

#[test]
fn every_operation_says_what_it_answers_and_nothing_is_left_open() {
    let document = toolrack_daemon::openapi();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let name = format!("{method} {path}");
            assert!(operation["summary"].is_string(), "{name} has no summary");
            let answers = operation["responses"].as_object().unwrap();
            assert!(
                answers.contains_key("403") && answers.contains_key("500"),
                "{name} cannot fail?"
            );
        }
    }
    let text = document.to_string();
    let components = document["components"]["schemas"].as_object().unwrap();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(components.contains_key(name), "{name} is not described");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_is_what_is_published() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    assert_eq!(client.get("/api/openapi.json").await, toolrack_daemon::openapi());
    for (method, path) in routes() {
        if path == "/api/events" || path == "/api/daemon/stop" {
            continue;
        }
        let answer = client.ask(&method, &path, (method != "GET").then_some(Value::Null)).await;
        assert!(answer.status != 405 && answer.status < 500, "{method} {path}: {answer:?}");
    }
    stage.end(daemon).await;
}

/// What is answered fits what is said of it, for every answer of a daemon with a server that has run.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_as_described() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    client.add(&stage.scripted("one", &[])).await;
    let mut bad = stage.scripted("bad", &["--plan", "start=stderr(1KiB)+exit(3)"]);
    bad["env_vars"]["KEY"] = json!({ "value": "hidden-value", "is_secret": true });
    client.post("/api/servers", bad).await;
    client.until_state("bad", "error").await;
    let call = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    let check = |method: &str, path: &str, answer: &Answer| {
        let document = toolrack_daemon::openapi();
        let operation = &document["paths"][path][method];
        let said = &operation["responses"][answer.status.to_string()];
        let mut schema = said["content"]["application/json"]["schema"].clone();
        assert!(schema.is_object(), "{method} {path} {}", answer.status);
        schema["components"] = document["components"].clone();
        let faults: Vec<String> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&answer.json())
            .map(|it| format!("{it} at {}", it.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{method} {path}: {faults:#?}\n{}", answer.body);
    };
    let made = client.ask("POST", "/api/calls", Some(call)).await;
    check("post", "/api/calls", &made);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let one = format!("/api/calls/{id}");
    eventually("it is remembered", async || client.ask("GET", &one, None).await.status == 200)
        .await;
    for (path, wanted) in [
        ("/api/servers", "/api/servers"),
        ("/api/servers/{id}", "/api/servers/bad"),
        ("/api/servers/{id}/logs", "/api/servers/bad/logs"),
        ("/api/servers/{id}", "/api/servers/nobody"),
        ("/api/agents/mcp", "/api/agents/mcp"),
        ("/api/tools", "/api/tools"),
        ("/api/calls", "/api/calls"),
        ("/api/calls/{id}", one.as_str()),
        ("/api/latencies", "/api/latencies"),
        ("/api/secrets", "/api/secrets"),
        ("/api/config", "/api/config"),
        ("/api/daemon", "/api/daemon"),
        ("/readyz", "/readyz"),
    ] {
        check("get", path, &client.ask("GET", wanted, None).await);
    }
    let document = client.get("/api/servers/one").await["config"].clone();
    let replaced = client.ask("PUT", "/api/servers/one", Some(document)).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    check("put", "/api/servers/{id}", &replaced);
    let empty = client.ask("POST", "/api/servers", Some(json!({}))).await;
    check("post", "/api/servers", &empty);
    stage.end(daemon).await;
}
