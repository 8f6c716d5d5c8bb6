//! `/api/servers` and `/api/agents/mcp`: every route, good and bad.

use serde_json::{Value, json};

use crate::stage::{Stage, ask_unix, check_problem, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_added_changed_and_deleted() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    assert_eq!(client.get("/api/servers").await, json!({ "servers": [] }));
    let made = client.ask("POST", "/api/servers", Some(stage.scripted("one", &[]))).await;
    assert_eq!(made.status, 201, "{made:?}");
    let id = made.json()["config"]["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), Some(format!("/api/servers/{id}").as_str()));
    client.until_state(&id, "running").await;
    let by_name = client.get("/api/servers/one").await;
    assert_eq!(by_name["config"]["id"], json!(id));
    assert_eq!(by_name["status"]["phase"], json!("connected"));

    let path = format!("/api/servers/{id}");
    let changes = json!({ "config": { "timeout": "7s", "args": ["--tools", "2"] } });
    let patched = client.ask("PATCH", &path, Some(changes)).await;
    assert_eq!(patched.status, 200, "{patched:?}");
    let config = &patched.json()["config"];
    assert_eq!(config["config"], json!({ "timeout": "7s", "args": ["--tools", "2"] }));
    assert_eq!(config["name"], json!("one"));
    let patched = client.ask("PATCH", &path, Some(json!({ "config": { "timeout": null } }))).await;
    assert_eq!(patched.json()["config"]["config"], json!({ "args": ["--tools", "2"] }));

    let mut whole = stage.scripted("two", &[]);
    whole["enabled"] = json!(false);
    let replaced = client.ask("PUT", &path, Some(whole)).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    assert_eq!(replaced.json()["config"]["name"], json!("two"));
    client.until_state(&id, "disabled").await;

    let deleted = client.ask("DELETE", &path, None).await;
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
    check_problem(&client.ask("GET", &path, None).await, 404, "NOT_FOUND", None);
    assert!(!std::fs::read_to_string(stage.home().config_file()).unwrap().contains("two"));
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_started_stopped_and_toggled() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let id = client.add(&stage.scripted("one", &[])).await;
    let act = async |what: &str| {
        let answer = client.ask("POST", &format!("/api/servers/{id}/{what}"), None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = answer.json()["status"]["state"].as_str().unwrap().to_owned();
        assert_eq!(client.states().await, [("one".to_owned(), told.clone())], "{what}");
        told
    };
    assert_eq!(act("stop").await, "stopped");
    stage.marker.assert_nobody_left(std::time::Duration::ZERO);
    assert_eq!(act("start").await, "running");
    let launch =
        async || client.get(&format!("/api/servers/{id}")).await["status"]["launch"].clone();
    let before = launch().await;
    assert_eq!(act("restart").await, "running");
    assert_ne!(launch().await, before);
    assert_eq!(act("disable").await, "disabled");
    let refused = client.ask("POST", &format!("/api/servers/{id}/start"), None).await;
    check_problem(&refused, 409, "CONFLICT", Some("enabled"));
    assert_eq!(act("enable").await, "running");
    let again = client.post("/api/agents/mcp/reconnect", json!({ "name": "one" })).await;
    assert_eq!(again["status"]["state"], json!("running"));
    assert_eq!(ask_unix(&daemon, "GET", "/api/agents/mcp").await.status, 200);
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_document_is_said_at_once() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let id = client.add(&stage.scripted("one", &[])).await;
    let path = format!("/api/servers/{id}");
    let empty = client.ask("POST", "/api/servers", Some(json!({}))).await;
    check_problem(&empty, 422, "VALIDATION_ERROR", Some("package.identifier"));
    let fields: Vec<Value> =
        empty.json()["errors"].as_array().unwrap().iter().map(|it| it["field"].clone()).collect();
    assert_eq!(json!(fields), json!(["package.identifier", "transport", "name"]));
    let ask =
        async |method: &str, path: &str, body: Value| client.ask(method, path, Some(body)).await;
    let twin = ask("POST", "/api/servers", stage.scripted("one", &[])).await;
    check_problem(&twin, 409, "CONFLICT", Some("name"));
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
        for server in [unknown, "/api/servers/nobody", "/api/servers/%2e%2e", "/api/servers/%00"] {
            let answer = client.ask(method, &format!("{server}{tail}"), None).await;
            assert_eq!(answer.status, 404, "{method} {server}{tail}: {answer:?}");
        }
    }
    let answer = ask("POST", "/api/agents/mcp/reconnect", json!({ "name": "nobody" })).await;
    check_problem(&answer, 404, "NOT_FOUND", None);
    let answer = ask("POST", "/api/agents/mcp/reconnect", json!({})).await;
    check_problem(&answer, 422, "VALIDATION_ERROR", None);
    check_problem(
        &client.ask("POST", "/api/agents/mcp", None).await,
        405,
        "VALIDATION_ERROR",
        None,
    );
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_start_says_why_and_its_lines_can_be_read() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let plan = ["--plan", "start=stderr(1KiB)+exit(3)"];
    let made = client.post("/api/servers", stage.scripted("bad", &plan)).await;
    let id = made["config"]["id"].as_str().unwrap();
    let path = format!("/api/servers/{id}");
    client.until_state(id, "error").await;
    client.add(&stage.scripted("good", &[])).await;
    let health = [("bad", "error"), ("good", "running")];
    let health = health.map(|(name, state)| (name.to_owned(), state.to_owned()));
    eventually("both say how they are", async || client.states().await == health).await;
    let status = client.get(&path).await["status"].clone();
    assert_eq!(status["problem"]["code"], json!("SERVICE_UNAVAILABLE"), "{status}");
    check_problem(
        &client.ask("POST", &format!("{path}/start"), None).await,
        503,
        "SERVICE_UNAVAILABLE",
        None,
    );
    let lines = format!("{path}/logs");
    let mut last = Value::Null;
    eventually("it wrote something", async || {
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
        let answer = client.ask("GET", &format!("{lines}?{query}"), None).await;
        check_problem(&answer, 422, "VALIDATION_ERROR", Some("limit"));
    }
    let answer = client.ask("GET", &format!("{lines}?limit=x"), None).await;
    check_problem(&answer, 400, "VALIDATION_ERROR", None);
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_at_once_do_not_undo_each_other() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let mut document = stage.scripted("one", &[]);
    document["enabled"] = json!(false);
    let made = client.post("/api/servers", document).await;
    let path = format!("/api/servers/{}", made["config"]["id"].as_str().unwrap());
    let mut patches = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (client, path) = (client.clone(), path.clone());
        patches.spawn(async move {
            let change = json!({ "env_vars": { format!("V{number}"): "x" } });
            client.ask("PATCH", &path, Some(change)).await.status
        });
    }
    assert!(patches.join_all().await.iter().all(|it| *it == 200));
    let variables = client.get(&path).await["config"]["env_vars"].as_object().unwrap().len();
    assert_eq!(variables, 9);
    stage.end(daemon).await;
}
