//! `/api/servers` and `/api/agents/mcp`.

use serde_json::{Value, json};

use crate::fixture::{Fixture, check_problem, eventually, request_unix};

#[tokio::test(flavor = "multi_thread")]
async fn server_is_added_changed_and_removed() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    assert_eq!(client.get("/api/servers").await, json!({ "servers": [] }));
    let created = client.request("POST", "/api/servers", Some(fixture.scripted("one", &[]))).await;
    assert_eq!(created.status, 201, "{created:?}");
    let id = created.json()["config"]["id"].as_str().unwrap().to_owned();
    assert_eq!(created.header("location"), Some(format!("/api/servers/{id}").as_str()));
    client.wait_for_state(&id, "running").await;
    let by_name = client.get("/api/servers/one").await;
    assert_eq!(by_name["config"]["id"], json!(id));
    assert_eq!(by_name["status"]["phase"], json!("connected"));

    let path = format!("/api/servers/{id}");
    let changes = json!({ "config": { "timeout": "7s", "args": ["--tools", "2"] } });
    let patched = client.request("PATCH", &path, Some(changes)).await;
    assert_eq!(patched.status, 200, "{patched:?}");
    let config = &patched.json()["config"];
    assert_eq!(config["config"], json!({ "timeout": "7s", "args": ["--tools", "2"] }));
    assert_eq!(config["name"], json!("one"));
    let patched =
        client.request("PATCH", &path, Some(json!({ "config": { "timeout": null } }))).await;
    assert_eq!(patched.json()["config"]["config"], json!({ "args": ["--tools", "2"] }));

    let mut replacement = fixture.scripted("two", &[]);
    replacement["enabled"] = json!(false);
    let replaced = client.request("PUT", &path, Some(replacement)).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    assert_eq!(replaced.json()["config"]["name"], json!("two"));
    client.wait_for_state(&id, "disabled").await;

    let deleted = client.request("DELETE", &path, None).await;
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
    check_problem(&client.request("GET", &path, None).await, 404, "NOT_FOUND", None);
    assert!(!std::fs::read_to_string(fixture.home().config_file()).unwrap().contains("two"));
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_started_stopped_and_toggled() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let id = client.add(&fixture.scripted("one", &[])).await;
    let act = async |what: &str| {
        let response = client.request("POST", &format!("/api/servers/{id}/{what}"), None).await;
        assert_eq!(response.status, 200, "{response:?}");
        let state = response.json()["status"]["state"].as_str().unwrap().to_owned();
        assert_eq!(client.states().await, [("one".to_owned(), state.clone())], "{what}");
        state
    };
    assert_eq!(act("stop").await, "stopped");
    fixture.marker.assert_no_processes_left(std::time::Duration::ZERO);
    assert_eq!(act("start").await, "running");
    let launch =
        async || client.get(&format!("/api/servers/{id}")).await["status"]["launch"].clone();
    let before = launch().await;
    assert_eq!(act("restart").await, "running");
    assert_ne!(launch().await, before);
    assert_eq!(act("disable").await, "disabled");
    let refused = client.request("POST", &format!("/api/servers/{id}/start"), None).await;
    check_problem(&refused, 409, "CONFLICT", Some("enabled"));
    assert_eq!(act("enable").await, "running");
    let before = launch().await.as_u64();
    let again = client.post("/api/agents/mcp/reconnect", json!({ "name": "one" })).await;
    assert_eq!(again["status"]["state"], json!("running"));
    assert!(again["launch"].as_u64() > before, "{before:?} {again}");
    assert_eq!(request_unix(&daemon, "GET", "/api/agents/mcp").await.status, 200);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_server_configs_report_every_error() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let id = client.add(&fixture.scripted("one", &[])).await;
    let path = format!("/api/servers/{id}");
    let empty = client.request("POST", "/api/servers", Some(json!({}))).await;
    check_problem(&empty, 422, "VALIDATION_ERROR", Some("package.identifier"));
    let fields: Vec<Value> = empty.json()["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["field"].clone())
        .collect();
    assert_eq!(json!(fields), json!(["package.identifier", "transport", "name"]));
    let ask = async |method: &str, path: &str, body: Value| {
        client.request(method, path, Some(body)).await
    };
    let duplicate = ask("POST", "/api/servers", fixture.scripted("one", &[])).await;
    check_problem(&duplicate, 409, "CONFLICT", Some("name"));
    let other_id = json!({ "id": "6f2c1e9a-8a1b-4c3d-9e4f-0123456789ab" });
    check_problem(&ask("PATCH", &path, other_id).await, 422, "VALIDATION_ERROR", Some("id"));
    let no_name = ask("PATCH", &path, json!({ "name": null })).await;
    check_problem(&no_name, 422, "VALIDATION_ERROR", Some("name"));
    check_problem(&ask("PATCH", &path, json!([])).await, 422, "VALIDATION_ERROR", None);
    check_problem(&ask("POST", "/api/servers", json!([])).await, 422, "VALIDATION_ERROR", None);
    check_problem(
        &ask("PUT", &path, json!({})).await,
        422,
        "VALIDATION_ERROR",
        Some("package.identifier"),
    );
    let unknown = "/api/servers/6f2c1e9a-8a1b-4c3d-9e4f-0123456789ab";
    for (method, tail) in
        [("GET", ""), ("DELETE", ""), ("POST", "/start"), ("POST", "/stop"), ("GET", "/logs")]
    {
        for server in [unknown, "/api/servers/missing", "/api/servers/%2e%2e", "/api/servers/%00"] {
            let response = client.request(method, &format!("{server}{tail}"), None).await;
            assert_eq!(response.status, 404, "{method} {server}{tail}: {response:?}");
        }
    }
    let response = ask("POST", "/api/agents/mcp/reconnect", json!({ "name": "missing" })).await;
    check_problem(&response, 404, "NOT_FOUND", None);
    let response = ask("POST", "/api/agents/mcp/reconnect", json!({})).await;
    check_problem(&response, 422, "VALIDATION_ERROR", None);
    check_problem(
        &client.request("POST", "/api/agents/mcp", None).await,
        405,
        "VALIDATION_ERROR",
        None,
    );
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_start_reports_the_problem_and_the_log() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let plan = ["--plan", "start=stderr(1KiB)+exit(3)"];
    let created = client.post("/api/servers", fixture.scripted("bad", &plan)).await;
    let id = created["config"]["id"].as_str().unwrap();
    let path = format!("/api/servers/{id}");
    client.wait_for_state(id, "error").await;
    client.add(&fixture.scripted("good", &[])).await;
    let expected = [("bad", "error"), ("good", "running")];
    let expected = expected.map(|(name, state)| (name.to_owned(), state.to_owned()));
    eventually("both states are reported", async || client.states().await == expected).await;
    let status = client.get(&path).await["status"].clone();
    assert_eq!(status["problem"]["code"], json!("SERVICE_UNAVAILABLE"), "{status}");
    check_problem(
        &client.request("POST", &format!("{path}/start"), None).await,
        503,
        "SERVICE_UNAVAILABLE",
        None,
    );
    let lines = format!("{path}/logs");
    let mut last = Value::Null;
    eventually("a line was logged", async || {
        last = client.get(&lines).await["lines"]
            .as_array()
            .unwrap()
            .last()
            .cloned()
            .unwrap_or_default();
        last.is_object()
    })
    .await;
    let after = format!("{lines}?after={}&limit=1", last["number"].as_u64().unwrap() + 1000);
    assert_eq!(client.get(&after).await["lines"], json!([]));
    for query in ["limit=0", "limit=501"] {
        let response = client.request("GET", &format!("{lines}?{query}"), None).await;
        check_problem(&response, 422, "VALIDATION_ERROR", Some("limit"));
    }
    let response = client.request("GET", &format!("{lines}?limit=x"), None).await;
    check_problem(&response, 400, "VALIDATION_ERROR", None);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_patches_are_not_lost() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let mut document = fixture.scripted("one", &[]);
    document["enabled"] = json!(false);
    let created = client.post("/api/servers", document).await;
    let path = format!("/api/servers/{}", created["config"]["id"].as_str().unwrap());
    let mut patches = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (client, path) = (client.clone(), path.clone());
        patches.spawn(async move {
            let change = json!({ "env_vars": { format!("V{number}"): "x" } });
            client.request("PATCH", &path, Some(change)).await.status
        });
    }
    assert!(patches.join_all().await.iter().all(|status| *status == 200));
    let variables = client.get(&path).await["config"]["env_vars"].as_object().unwrap().len();
    assert_eq!(variables, 9);
    fixture.shutdown(daemon).await;
}
