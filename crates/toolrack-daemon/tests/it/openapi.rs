//! The `OpenAPI` document is published, complete and correct.

use serde_json::{Value, json};

use crate::fixture::{Fixture, eventually};
use crate::http::Response;

/// All methods and paths of the API, with path parameters filled in.
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
fn openapi_document_is_published() {
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
fn every_operation_has_a_summary_responses_and_known_schemas() {
    let document = toolrack_daemon::openapi();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let name = format!("{method} {path}");
            assert!(operation["summary"].is_string(), "{name} has no summary");
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses.contains_key("403") && responses.contains_key("500"),
                "{name} has no error responses"
            );
        }
    }
    let text = document.to_string();
    let components = document["components"]["schemas"].as_object().unwrap();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(components.contains_key(name), "{name} is missing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn served_document_matches_the_published_one() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    assert_eq!(client.get("/api/openapi.json").await, toolrack_daemon::openapi());
    for (method, path) in routes() {
        if path == "/api/events" || path == "/api/daemon/stop" {
            continue;
        }
        let response =
            client.request(&method, &path, (method != "GET").then_some(Value::Null)).await;
        assert!(response.status != 405 && response.status < 500, "{method} {path}: {response:?}");
    }
    fixture.shutdown(daemon).await;
}

/// Validates the responses of a daemon with a server that has run.
#[tokio::test(flavor = "multi_thread")]
async fn responses_match_their_schemas() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    client.add(&fixture.scripted("one", &[])).await;
    let mut bad = fixture.scripted("bad", &["--plan", "start=stderr(1KiB)+exit(3)"]);
    bad["env_vars"]["KEY"] = json!({ "value": "hidden-value", "is_secret": true });
    client.post("/api/servers", bad).await;
    client.wait_for_state("bad", "error").await;
    let call = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    let check = |method: &str, path: &str, response: &Response| {
        let document = toolrack_daemon::openapi();
        let operation = &document["paths"][path][method];
        let documented = &operation["responses"][response.status.to_string()];
        let mut schema = documented["content"]["application/json"]["schema"].clone();
        assert!(schema.is_object(), "{method} {path} {}", response.status);
        schema["components"] = document["components"].clone();
        let errors: Vec<String> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&response.json())
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:#?}\n{}", response.body);
    };
    let created = client.request("POST", "/api/calls", Some(call)).await;
    check("post", "/api/calls", &created);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    let one = format!("/api/calls/{id}");
    eventually("the call is recorded", async || {
        client.request("GET", &one, None).await.status == 200
    })
    .await;
    for (path, wanted) in [
        ("/api/servers", "/api/servers"),
        ("/api/servers/{id}", "/api/servers/bad"),
        ("/api/servers/{id}/logs", "/api/servers/bad/logs"),
        ("/api/servers/{id}", "/api/servers/missing"),
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
        check("get", path, &client.request("GET", wanted, None).await);
    }
    let document = client.get("/api/servers/one").await["config"].clone();
    let replaced = client.request("PUT", "/api/servers/one", Some(document)).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    check("put", "/api/servers/{id}", &replaced);
    let empty = client.request("POST", "/api/servers", Some(json!({}))).await;
    check("post", "/api/servers", &empty);
    fixture.shutdown(daemon).await;
}
