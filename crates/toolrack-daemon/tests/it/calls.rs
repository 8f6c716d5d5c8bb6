//! `/api/tools` and `/api/calls`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::fixture::{Fixture, check_problem, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn call_returns_a_result_and_is_recorded() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    client.add(&fixture.scripted("one", &[])).await;
    let tools = client.get("/api/tools?server=one").await;
    let echo =
        tools["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "one_echo").unwrap();
    assert_eq!((&echo["server"], &echo["raw_name"]), (&json!("one"), &json!("echo")));
    assert_eq!(echo["input_schema"]["type"], json!("object"));
    assert_eq!(client.get("/api/tools?server=two").await, json!({ "tools": [] }));

    let arguments = json!({ "text": "hello" });
    for call in [
        json!({ "tool": "one_echo", "arguments": arguments }),
        json!({ "tool": "one.echo", "arguments": arguments }),
        json!({ "tool": "echo", "server": "one", "arguments": arguments, "timeout_ms": 20000 }),
    ] {
        let response = client.post("/api/calls", call).await;
        assert_eq!((&response["is_error"], &response["text"]), (&json!(false), &json!("hello")));
        assert_eq!(response["result"]["content"][0]["text"], json!("hello"));
    }
    let failed = client
        .post("/api/calls", json!({ "tool": "one_fail", "arguments": { "text": "no" } }))
        .await;
    assert_eq!((&failed["is_error"], &failed["text"]), (&json!(true), &json!("no")));

    let id = failed["id"].as_str().unwrap();
    let path = format!("/api/calls/{id}");
    // The writer is asynchronous; until then the call may be listed as running.
    eventually("the call is recorded", async || {
        let response = client.request("GET", &path, None).await;
        response.status == 200 && response.json()["outcome"] != Value::Null
    })
    .await;
    let record = client.get(&path).await;
    assert_eq!(
        json!([record["server"], record["tool"], record["outcome"], record["delivery"]]),
        json!(["one", "fail", "tool_error", "answered"])
    );
    let list = client.get("/api/calls?outcome=done&tool=echo&limit=2").await;
    assert_eq!(list["calls"].as_array().unwrap().len(), 2);
    let next =
        client.get(&format!("/api/calls?outcome=done&limit=2&before={}", list["next"])).await;
    assert_eq!((next["calls"].as_array().unwrap().len(), &next["next"]), (1, &Value::Null));
    let latencies = client.get("/api/latencies").await;
    let one = latencies["latencies"]
        .as_array()
        .unwrap()
        .iter()
        .find(|latency| latency["tool"] == "echo")
        .unwrap();
    assert_eq!((&one["n_calls"], &one["n_failed"]), (&json!(3), &json!(0)));
    let metrics = client.request("GET", "/metrics", None).await.body;
    for line in [
        "toolrack_servers{state=\"connected\"} 1",
        "toolrack_calls_total{outcome=\"done\"} 3",
        "toolrack_calls_total{outcome=\"tool_error\"} 1",
        "toolrack_call_duration_seconds_count 4",
        "toolrack_server_restarts_total{server=\"one\"} 0",
        "toolrack_history_dropped_total 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_calls_report_code_field_and_delivery() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let mut document = fixture.scripted("one", &[]);
    document["config"]["deny"] = json!(["add"]);
    client.add(&document).await;
    let check = async |call: Value, status: u16, code: &str, field: Option<&str>| {
        let response = client.request("POST", "/api/calls", Some(call)).await;
        check_problem(&response, status, code, field);
        response.json()["delivery"].as_str().map(str::to_owned)
    };
    let delivery = check(json!({ "tool": "one_ecko" }), 404, "NOT_FOUND", None).await;
    assert_eq!(delivery.as_deref(), Some("not_sent"));
    check(json!({ "tool": "echo", "server": "missing" }), 404, "NOT_FOUND", None).await;
    check(json!({ "tool": "one.add" }), 403, "DENIED", None).await;
    check(json!({}), 422, "VALIDATION_ERROR", None).await;
    check(json!({ "tool": "one_echo", "argument": {} }), 422, "VALIDATION_ERROR", None).await;
    for arguments in [json!([1]), json!("x"), json!(7)] {
        let call = json!({ "tool": "one_echo", "arguments": arguments });
        check(call, 422, "VALIDATION_ERROR", Some("arguments")).await;
    }
    for field in ["tool", "server"] {
        let mut call = json!({ "tool": "echo", "server": "one" });
        call[field] = json!("x".repeat(4_097));
        check(call, 422, "VALIDATION_ERROR", Some(field)).await;
    }
    // The history keeps the name of an unknown tool short.
    let long = json!({ "server": "one", "tool": "x".repeat(4_000) });
    check(long, 404, "NOT_FOUND", None).await;
    let calls = client.get("/api/calls?outcome=failed").await;
    let n_bytes = calls.to_string().len();
    assert!(n_bytes < 3_000, "{n_bytes}: {calls}");
    for timeout in [0, 3_600_001] {
        let call = json!({ "tool": "one_echo", "timeout_ms": timeout });
        check(call, 422, "VALIDATION_ERROR", Some("timeout_ms")).await;
    }
    let slow = json!({ "tool": "one_sleep", "arguments": { "ms": 60000 }, "timeout_ms": 100 });
    assert_eq!(check(slow, 502, "NETWORK_ERROR", None).await.as_deref(), Some("unknown"));
    for path in ["/api/calls/x", "/api/calls/x-1"] {
        check_problem(&client.request("GET", path, None).await, 404, "NOT_FOUND", None);
        let cancel = client.request("POST", &format!("{path}/cancel"), None).await;
        check_problem(&cancel, 404, "NOT_FOUND", None);
    }
    let bad = client.request("GET", "/api/calls?outcome=good", None).await;
    check_problem(&bad, 422, "VALIDATION_ERROR", Some("outcome"));
    let bad = client.request("GET", "/api/calls?unknown=1", None).await;
    check_problem(&bad, 400, "VALIDATION_ERROR", None);
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_call_is_listed_and_can_be_cancelled() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    client.add(&fixture.scripted("one", &[])).await;
    let call = json!({ "tool": "one_sleep", "arguments": { "ms": 60000 } });
    let caller = client.clone();
    let created = TaskTracker::new()
        .spawn(async move { caller.request("POST", "/api/calls", Some(call)).await });
    let mut id = String::new();
    eventually("the call is running", async || {
        let running = client.get("/api/calls").await["running"].clone();
        id = running[0]["id"].as_str().unwrap_or_default().to_owned();
        !id.is_empty()
    })
    .await;
    assert_eq!(client.get(&format!("/api/calls/{id}")).await["tool"], json!("sleep"));
    let cancel = format!("/api/calls/{id}/cancel");
    assert_eq!(client.request("POST", &cancel, None).await.status, 202);
    let response = tokio::time::timeout(Duration::from_secs(30), created).await.unwrap().unwrap();
    check_problem(&response, 409, "CONFLICT", None);
    eventually("the call is recorded as cancelled", async || {
        client.get("/api/calls?outcome=abandoned").await["calls"][0]["id"] == *id
    })
    .await;
    check_problem(&client.request("POST", &cancel, None).await, 409, "CONFLICT", None);
    fixture.shutdown(daemon).await;
}
